# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""Context variables.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import contextvars

import torch

import compiler_core
from compiler_core.api.compile import record_of
from compiler_core.tools.testing import graph_count, same_as_eager

scale = contextvars.ContextVar("scale", default=2)
unset = contextvars.ContextVar("unset")
collector = contextvars.ContextVar("collector", default=None)


def doubled(x):
    return x * scale.get()


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_get(x):
    return doubled(x), scale.get(), scale.name, unset.get(3)


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_unset(x):
    try:
        unset.get()
    except LookupError as error:
        return x + 1, error.args[0] is unset


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_set_and_reset(x):
    token = scale.set(5)
    inner = scale.set(7)
    a = doubled(x)
    scale.reset(inner)
    b = doubled(x)
    scale.reset(token)
    return a, b, doubled(x)


def run_in_copy(fn, *args):
    return contextvars.copy_context().run(fn, *args)


def changes_value(x):
    token = scale.set(scale.get() + 1)
    collector.set([x + 1])
    return doubled(x), token


def test_a_set_that_stays():
    def left(x):
        result = compiled(x)
        return result[0], scale.get(), collector.get(), type(result[1])

    compiled = compiler_core.compile(changes_value, backend="eager")
    x = torch.ones(3)
    for _ in range(3):
        got = run_in_copy(left, x)
        assert got[0].tolist() == [3.0] * 3 and got[1] == 3 and got[2][0].tolist() == [2.0] * 3
        assert got[3] is contextvars.Token


@same_as_eager(graphs=3, breaks=["asked for", "unsupported call"])
def test_break_between_set_and_reset(x):
    token = scale.set(5)
    y = x + 1
    compiler_core.graph_break()
    z = doubled(y)
    scale.reset(token)
    return z, doubled(x)


def test_guarded_by_value():
    compiled = compiler_core.compile(doubled, backend="eager")
    x = torch.ones(2)
    assert compiled(x).tolist() == [2, 2]
    token = scale.set(4)
    assert compiled(x).tolist() == [4, 4]
    scale.reset(token)
    assert compiled(x).tolist() == [2, 2]
    assert graph_count(record_of(compiled)) == 2
