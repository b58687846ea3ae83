# mypy: ignore-errors
# ruff: noqa
"""Breaks in called functions: the callee and each of its callers continue where they stopped.

PYTEST_DONT_REWRITE: the programs are users' code.
"""

from __future__ import annotations

import functools
import types

import torch
from torch import nn

import compiler_core as cc
from compiler_core.tools.testing import same_as_eager


def one(x):
    y = x + 1
    print("one", y.shape[0])
    return y * 2


def two(x):
    z = one(x.sin())
    return z.cos(), x


def three(x, k=3):
    pair = two(x * k)
    return [*pair, k]


@same_as_eager(graphs=3, breaks=["data-dependent branch"] * 2, inputs=lambda: (torch.ones(3),))
def test_boolean_operator_in_a_callee(x):
    def pick(v):
        return (v.sum() > 0 and v.max() > 100) or "neither"

    return pick(x * 2), x + 1


@same_as_eager(graphs=2, breaks=["asked for"])
def test_graph_break_in_a_callee(x):
    def inner(v):
        w = v + 1
        cc.graph_break()
        return w * 2

    return inner(x) - x


# ---------------------------------------------------------------- arguments, defaults, closures, cells


@same_as_eager(graphs=2, breaks=["print"])
def test_partial_and_lambda(x):
    f = functools.partial(three, k=4)
    return (lambda v: f(v))(x)[0] * 2


# ---------------------------------------------------------------- methods


class Base:
    def __init__(self, x):
        self.x = x

    def go(self, k):
        y = self.x * k
        print("base", k)
        self.x = y
        return y + 1

    def __call__(self, v):
        w = v + self.x
        print("call")
        return w * 2


class SelfInCell(Base):
    def go(self, k):
        each = lambda: self.x * k
        print("cell")
        return super().go(k) + each()


@same_as_eager(graphs=2, breaks=["print"] * 2)
def test_super_where_self_is_a_cell(x):
    return SelfInCell(x).go(2)


# ---------------------------------------------------------------- modules


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x, scale=1.0):
        y = self.fc(x)
        print("block")
        return torch.relu(y) * scale


@same_as_eager(graphs=4, breaks=["print"] * 6, inputs=lambda: (nn.Sequential(Block(), Block()), torch.ones(2, 4)))
def test_sequential(model, x):
    return model(x) + 1


# ---------------------------------------------------------------- exceptions


@cc.disable
def fails_unseen(kind=ValueError):
    raise kind("unseen")


# ---------------------------------------------------------------- places that cannot resume in the callee


@same_as_eager(graphs=2, breaks=["class statement", "print", "print", "print", "print"])
def test_property(x):
    class P:
        @property
        def value(self):
            print("property")
            return x + 1

    return P().value * 2


@same_as_eager(graphs=2, breaks=["class statement", *["print"] * 11])
def test_special_methods(x):
    class S:
        def __getitem__(self, i):
            print("item", i)
            return x * i

        def __len__(self):
            print("len")
            return 3

        def __eq__(self, other):
            print("eq")
            return True

        def __bool__(self):
            print("bool")
            return False

    s = S()
    return s[2] + len(s), s == 1, not s, "yes" if s else "no"


@same_as_eager(graphs=1, breaks=["print"] * 4)
def test_key_functions_and_map(x):
    def key(v):
        print("key", v)
        return -v

    return sorted([1, 3, 2], key=key), list(map(key, [1, 2])), max([1, 2], key=key), x + 1


@same_as_eager(graphs=3, breaks=["class statement", "print"])
def test_constructor(x):
    class C:
        def __init__(self, v):
            self.v = v + 1
            print("made")
            self.w = v * 2

    c = C(x)
    return c.v + c.w


# ---------------------------------------------------------------- globals of another module

SCALE = 3
COUNT = 0


def _module(name, text):
    module = types.ModuleType(name)
    exec(compile(text, f"<{name}>", "exec"), module.__dict__)
    return module


other = _module(
    "another_module",
    """
SCALE, COUNT = 10, 0

def scaled(x):
    global COUNT
    COUNT += 1
    y = x * SCALE
    print(__name__, COUNT, globals()["__name__"])
    COUNT += 1
    return y + SCALE

def counted():
    return COUNT

def helper(x):
    print("helper")
    return twice(x)

def twice(x):
    return x * 2 + SCALE
""",
)


@same_as_eager(graphs=2, breaks=["skipped function", "print"], changes=("COUNT",))
def test_globals_are_the_callee_s(x):
    other.COUNT = 0
    y = other.scaled(x) * SCALE
    return y, other.COUNT


@same_as_eager(graphs=2, breaks=["print"])
def test_callee_of_another_module_calls_its_own(x):
    return other.helper(x + SCALE) + SCALE


def test_traceback_names_the_callee_and_its_line():
    import traceback

    def inner(v):
        w = v + 1
        fails_unseen()  # the line in the callee
        return w

    def program(x):
        return inner(x * 2)  # the line in the caller

    try:
        cc.compile(program, backend="eager", strict=True)(torch.ones(2))
    except ValueError as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__]
    assert [(f.name, f.line.partition("# ")[2]) for f in frames[1:3]] == [
        ("program", "the line in the caller"),
        ("inner", "the line in the callee"),
    ]
