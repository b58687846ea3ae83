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


@same_as_eager(graphs=2, breaks=["print"])
def test_under_pending_values(x):
    return [x * 2, {"k": one(x)}, (x, one.__name__)]


@same_as_eager(graphs=2, breaks=["tensor value read"], inputs=lambda: (torch.ones(3),))
def test_value_read_in_a_callee(x):
    def mean(v):
        return int(v.sum()) / v.numel()

    y = x * 2
    return y - mean(y)


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


@same_as_eager(graphs=3, breaks=["print"] * 2)
def test_cell_shared_by_three_levels(x):
    total = x * 0

    def outer(v):
        def inner(w):
            nonlocal total
            total = total + w
            print("inner")
            total = total + 1
            return v + total

        r = inner(v * 2)
        print("outer")
        return r * total

    return outer(x), total


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


class Child(Base):
    def go(self, k):
        y = super().go(k + 1)
        self.seen = k
        return y * self.x

    @classmethod
    def build(cls, x):
        print("build", cls.__name__)
        return cls(x)

    @staticmethod
    def plain(x):
        print("static")
        return x + 1


class GrandChild(Child):
    def go(self, k):
        print("grand")
        y = super().go(k)
        print("after")
        return super().go(k) + y


@same_as_eager(graphs=2, breaks=["print"])
def test_super_and_its_break(x):
    c = Child(x)
    return c.go(2), c.x, c.seen


@same_as_eager(graphs=4, breaks=["print"] * 4)
def test_super_before_and_after_breaks(x):
    return GrandChild(x).go(1)


@same_as_eager(graphs=2, breaks=["print"] * 2)
def test_class_and_static_methods(x):
    c = Child.build(x + 1)
    return Child.plain(c.x), type(c).__name__


@same_as_eager(graphs=2, breaks=["print"])
def test_bound_method_as_a_value(x):
    b = Base(x)
    go = b.go
    return go(3) + go.__self__.x


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


@same_as_eager(
    graphs=3, breaks=["print"] * 3, inputs=lambda: (nn.ModuleList([Block(), Block(), Block()]), torch.ones(2, 4))
)
def test_module_list_in_a_loop(blocks, x):
    for block in blocks:
        x = block(x)
    return x


# ---------------------------------------------------------------- exceptions


@cc.disable
def fails_unseen(kind=ValueError):
    raise kind("unseen")


@same_as_eager(graphs=2, breaks=["asked for"])
def test_broken_call_caught_two_levels_up(x):
    log = []

    def inner(v):
        try:
            fails_unseen(KeyError)
        except IndexError:
            log.append("never")
        finally:
            log.append("inner")

    def middle(v):
        try:
            inner(v + 1)
        finally:
            log.append("middle")

    try:
        middle(x)
    except KeyError as error:
        log.append(str(error))
    return x + 1, log


@same_as_eager(graphs=2, breaks=["print"], grad=True)
def test_with_of_the_callee(x):
    def inner(v):
        with torch.no_grad():
            w = v * 2
            print(torch.is_grad_enabled())
            w = w + v
        return w * v

    return inner(x.sin()) + x


@same_as_eager(graphs=1, breaks=["asked for", "print"])
def test_bare_raise_in_a_callee(x):
    def again():
        print("again")
        raise

    try:
        try:
            fails_unseen(KeyError)
        except KeyError:
            again()
    except KeyError as error:
        return str(error), x + 1


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


@same_as_eager(graphs=2, breaks=["print"])
def test_generator_in_a_callee(x):
    def rows(v):
        for i in range(2):
            print("row", i)
            yield v + i

    def total(v):
        return sum(rows(v * 2))

    return total(x) - x


@same_as_eager(graphs=2, breaks=["print", "unsupported iteration", "print", "unsupported iteration"])
def test_callee_with_a_started_generator(x):
    def rows():
        yield x
        yield x + 1

    def inner():
        each = rows()
        first = next(each)
        print("between")
        return first + next(each)

    y = x.sin()
    return inner() * y


@same_as_eager(graphs=5, breaks=["print"] * 6)
def test_recursion(x):
    def down(v, n):
        if n == 0:
            return v
        print("down", n)
        return down(v + n, n - 1) * 2

    return down(x, 4)


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


left = []


def unfinished(x):
    try:
        yield x
        yield x + 1
    finally:
        left.append(x.shape[0])


def breaks_with_a_generator_open(x):
    each = unfinished(x)
    y = next(each)
    print("open", y.shape[0])
    return y * 2


@same_as_eager(grad=True)
def test_the_call_that_began_a_generator_lies_behind_the_end_of_the_callee(x):
    y = x + 1
    y = y * 2 + y * 3 + y * 4 + y * 5 + y * 6 + y * 7 + y * 8 + y * 9 + y * 10
    y = y * 2 + y * 3 + y * 4 + y * 5 + y * 6 + y * 7 + y * 8 + y * 9 + y * 10
    return breaks_with_a_generator_open(y)
