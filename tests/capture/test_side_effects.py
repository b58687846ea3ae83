# mypy: ignore-errors
# (the programs stand for users' code, which has no annotations)
"""Changes of outside objects are the same as in Python, in captured code and across breaks."""

from __future__ import annotations

import types

import pytest
import torch

import compiler_core as cc
from compiler_core.tools.testing import same_as_eager

COUNT = 0
LOG: list[object] = []


def x4():
    return torch.randn(4)


@same_as_eager(changes=["COUNT"])
def test_global_deleted(x):
    global COUNT
    y = x + COUNT
    del COUNT
    print("COUNT" in globals())
    COUNT = 3
    return y


def test_free_variables_of_the_frame():
    def make():
        n, log = 0, []

        def program(x):
            nonlocal n
            n += 1
            log.append(n)
            return x + n

        return program, lambda: (n, log)

    import compiler_core as cc

    (plain, look), (other, look_too) = make(), make()
    compiled = cc.compile(other, backend="eager", strict=True)
    for _ in range(3):
        x = torch.randn(3)
        assert torch.equal(plain(x), compiled(x))
    assert look() == look_too() == (3, [1, 2, 3])


@same_as_eager(breaks=["print"], inputs=lambda: (x4(), [1]))
def test_read_before_and_stored_after(x, items):
    first = items[0]
    items[0] = 7
    items.insert(0, first)
    print(first)
    return first, items, x + 1


@same_as_eager(breaks=[], inputs=lambda: (x4(), types.SimpleNamespace(n=1)))
def test_simple_namespace(x, space):
    return x + 1, space


@same_as_eager(breaks=[], inputs=lambda: (x4(), [3, 1, 2]))
def test_sort_outside(x, items):
    items.sort(reverse=True)
    items.reverse()
    return x + items[0]


def read_after_write(d, x):
    d["factor"] = 5.0
    return x * factor


def write_of_a_called_function(d, x):
    d.update(factor=5.0)
    return read_factor(x)


def write_of_the_global(d, x):
    global factor
    factor = 7.0
    return x * d["factor"]


@pytest.mark.parametrize("program", [read_after_write, write_of_a_called_function, write_of_the_global])
@pytest.mark.parametrize("first_its_own", [False, True])
def test_argument_that_is_the_globals(program, first_its_own):
    space = {"__builtins__": __builtins__, "__name__": "space", "factor": 2.0}
    exec("def read_factor(x):\n    return x * factor", space)
    plain, x = types.FunctionType(program.__code__, space), x4()
    compiled = cc.compile(plain, backend="eager", strict=True)
    compiled(space if first_its_own else {"factor": 1.0}, x)
    results = []
    for function in (plain, compiled):
        space["factor"] = 2.0
        results.append((function(space, x), space["factor"]))
    assert torch.equal(results[0][0], results[1][0])
    assert results[0][1] == results[1][1] != 2.0
