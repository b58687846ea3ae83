# mypy: ignore-errors
# ruff: noqa
"""Changes of lists, dicts, sets, objects, cells, globals, modules and tensors: before and after a break or an
exception they are what Python would have left, with identity and aliasing kept.

PYTEST_DONT_REWRITE: the programs are users' code.
"""

from __future__ import annotations

import collections
import sys
import types

import pytest
import torch

import compiler_core as cc
from compiler_core.api.compile import record_of
from compiler_core.tools.testing import same_as_eager

COUNT = 0
STATE = {"calls": 0}
HERE = sys.modules[__name__]
settings = types.ModuleType("settings")
settings.level = 1


class Box:
    kind = "box"

    def __init__(self, value=None):
        self.value = value


@cc.disable
def fail(*_):
    raise ValueError("fail")


def x4():
    return torch.arange(4.0)


# ---------------------------------------------------------------- containers


@same_as_eager(graphs=0, breaks=["print"] * 2, inputs=lambda: (x4(), [3, 1, 2]))
def test_list_methods_around_a_break(x, items):
    items.sort()
    items[1:2] = [7, 8]
    print(items)
    items.reverse()
    items.insert(0, x)
    del items[2]
    print(len(items))
    items.extend([5]), items.pop()
    return items


@same_as_eager(graphs=1, breaks=["print"] * 2, inputs=lambda: (x4(), collections.deque([1, 2], 3)))
def test_a_deque_is_read_after_items_were_appended(x, items):
    items.append(3), items.append(x)
    print(list(items)[:2])
    items.append(4)
    items.append(items.popleft())
    print(len(items))
    items.append(5)
    return x + len(items), items


def test_a_deque_that_grows_is_compiled_once():
    recent = collections.deque(maxlen=3)

    def program(x):
        recent.append((x.sum(), len(x)))
        return x * 2

    compiled = cc.compile(program, fullgraph=True)
    for n in range(6):
        compiled(torch.full((2,), float(n)))
    assert [float(total) for total, _ in recent] == [6, 8, 10]
    assert len(record_of(compiled).compiles) == 1


@same_as_eager(graphs=1, breaks=["print"], inputs=lambda: (x4(), {1, 2}))
def test_set_around_a_break(x, s):
    s.add(3)
    print(sorted(s))
    s.discard(1)
    s |= {9}
    return x + len(s)


@same_as_eager(
    graphs=0, breaks=["print"], inputs=lambda: (x4(), collections.OrderedDict(a=1), collections.deque([1], 3))
)
def test_ordered_dict_and_deque(x, d, q):
    d["b"] = x
    q.append(2)
    print(list(d), list(q))
    d.move_to_end("a")
    q.append(3), q.append(4)
    return d, q


@same_as_eager(graphs=0, breaks=["print"])
def test_own_list_that_holds_itself(x):
    items = [x + 1]
    items.append(items)
    print("now")
    return items[1] is items, items[0] * 2


# ---------------------------------------------------------------- objects and modules


@same_as_eager(graphs=1, breaks=["asked for", "exception"], inputs=lambda: (x4(), Box(1)))
def test_object_changed_then_exception(x, box):
    box.value = x * 2
    try:
        box.second = 2
        fail(box)
    finally:
        box.third = 3


@same_as_eager(graphs=1, breaks=["print"])
def test_class_attribute_shadowed(x):
    box = Box()
    box.kind = "mine"
    print(box.kind, Box.kind)
    del box.kind
    return box.kind, x + 1


# ---------------------------------------------------------------- globals, cells, modules


@same_as_eager(graphs=1, breaks=[], changes=("COUNT",))
def test_global_through_its_module(x):
    global COUNT
    COUNT = 7
    y = x + HERE.COUNT
    HERE.COUNT = 8
    return y * COUNT


@same_as_eager(graphs=1, breaks=["print", "exception"])
def test_new_global_and_its_end(x):
    global BRAND_NEW
    BRAND_NEW = x + 1
    y = BRAND_NEW * 2
    print("now")
    del BRAND_NEW
    try:
        return BRAND_NEW
    except NameError as error:
        return y, str(error)


# ---------------------------------------------------------------- without breaks


def test_free_variables_of_the_frame():
    def make():
        n, log = 0, []

        def program(x):
            nonlocal n
            n += 1
            log.append(n)
            return x + n

        return program, lambda: (n, log)

    (plain, look), (other, look_too) = make(), make()
    compiled = cc.compile(other, backend="eager", strict=True)
    for _ in range(3):
        x = torch.randn(3)
        assert torch.equal(plain(x), compiled(x))
    assert look() == look_too() == (3, [1, 2, 3])


def append_default(x, seen=[]):
    seen.append(len(seen))
    return x + len(seen)


def test_default_arguments_are_remembered():
    def program(x):
        return append_default(x)

    compiled = cc.compile(program, backend="eager", strict=True)
    append_default.__defaults__[0].clear()
    got = [compiled(torch.zeros(1)).item() for _ in range(3)]
    assert got == [1, 2, 3]
    assert append_default.__defaults__[0] == [0, 1, 2]


@same_as_eager(changes=["COUNT"])
def test_global_deleted(x):
    global COUNT
    y = x + COUNT
    del COUNT
    print("COUNT" in globals())
    COUNT = 3
    return y


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
