# mypy: ignore-errors
# ruff: noqa
"""Breaks in every kind of statement: what runs before, at and after them is what Python would do.

PYTEST_DONT_REWRITE: the programs are users' code.
"""

from __future__ import annotations

import contextlib
import sys
import traceback

import torch

import compiler_core as cc
from compiler_core.tools.testing import same_as_eager


class Noted:
    """A context manager of the user's that writes down what happens; `swallow` says which exception it keeps."""

    def __init__(self, log, swallow=()):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, error, _):
        self.log.append(("exit", kind and kind.__name__, str(error)))
        return kind is not None and issubclass(kind, self.swallow)


def fail(x, error=ValueError):
    if x.shape[0] == 4:
        raise error("fail")
    return x


@cc.disable
def fail_unseen(x, error=ValueError):
    raise error("unseen")


# ---------------------------------------------------------------- if and else


# ---------------------------------------------------------------- try, except, else, finally


@same_as_eager(graphs=2, breaks=["asked for", "print", "unsupported attribute"])
def test_bare_raise_after_a_break_in_the_handler(x):
    log = []
    try:
        try:
            fail_unseen(x + 1)
        except ValueError:
            print("inner")
            raise
    except ValueError as error:
        log.append((str(error), error.__context__))
    return x * 2, log


@same_as_eager(graphs=3, breaks=["asked for", "asked for", "unsupported attribute"])
def test_context_of_what_the_broken_call_raises(x):
    try:
        try:
            fail_unseen(x + 1)
        except ValueError:
            fail_unseen(x + 2, KeyError)
    except KeyError as error:
        return type(error.__context__).__name__, x.cos()


@same_as_eager(graphs=2, breaks=["asked for", "skipped function", "print"])
def test_traceback_printed_in_the_handler(x):
    y = x + 1
    try:
        fail_unseen(y)
    except ValueError:
        print(traceback.format_exc().splitlines()[-1])
    return y * 2


@same_as_eager(graphs=1, breaks=["print", "print", "asked for", "print", "asked for", "print", "unsupported attribute"])
def test_nested_try_blocks_each_with_a_break(x):
    out = []
    try:
        print("1")
        try:
            print("2")
            fail_unseen(x, KeyError)
        except KeyError:
            out.append("key")
            print("3")
            fail_unseen(x, IndexError)
        finally:
            out.append("finally")
            print("4")
    except IndexError as error:
        out.append(type(error.__context__).__name__)
    else:
        out.append("else")
    return out, x + 1


@same_as_eager(graphs=3, breaks=["asked for"] * 4)
def test_exception_group_of_handlers_in_a_loop(x):
    out = []
    for kind in (ValueError, KeyError, IndexError):
        try:
            out.append(x * len(out))
            fail_unseen(x, kind)
        except (ValueError, KeyError) as error:
            out.append(type(error).__name__)
        except IndexError:
            out.append("index")
            break
    else:
        out.append("else")
    return out


@same_as_eager(graphs=2, breaks=["tensor value read"])
def test_item_of_many_is_caught(x):
    y = x + 1
    try:
        n = y.item()
    except RuntimeError:
        n = 3
    return y * n


@same_as_eager(graphs=3, breaks=["print"] * 2)
def test_stored_exception_across_a_break(x):
    y = x.sin()
    try:
        {}["k"]
    except KeyError as error:
        kept = error
    z = y + 1
    print("now")
    return repr(kept), z * 2


# ---------------------------------------------------------------- with


def test_grad_mode_after_an_exception_out_of_a_block():
    with contextlib.suppress(ValueError):
        cc.compile(lambda x: _leaves(x), backend="eager", strict=True)(torch.ones(4))
    assert torch.is_grad_enabled()


def _leaves(x):
    with torch.no_grad():
        y = x * 2
        print(end="")
        fail_unseen(y)


@same_as_eager(graphs=1, breaks=["print", "asked for"])
def test_two_managers_in_one_statement(x):
    first, second = [], []
    with Noted(first) as a, Noted(second, (KeyError,)) as b:
        y = x + 1
        print("in", a is b)
        fail_unseen(y, KeyError)
    return y, first, second


@same_as_eager(graphs=2, breaks=["asked for", "print"])
def test_suppress_and_nullcontext(x):
    y = x + 1
    with contextlib.suppress(ValueError):
        fail_unseen(y)
    with contextlib.nullcontext(5) as n:
        print("in")
        y = y * n
    return y


@same_as_eager(
    graphs=3,
    breaks=["inference mode", "print", "inference mode"],
)
def test_inference_mode(x):
    with torch.inference_mode():
        y = x * 2
        print(torch.is_inference_mode_enabled())
        z = (y + 1).clone()
    return z + 0, torch.is_inference_mode_enabled()


# ---------------------------------------------------------------- other statements and places


@same_as_eager(graphs=1, breaks=["print"] * 4)
def test_match_with_breaks(x):
    found = []
    for case in ({"k": 1, "v": x}, [1, 2, 3], "s", None):
        match case:
            case {"k": k, **rest}:
                print("dict", k)
                found.append(rest["v"] * 2)
            case [a, *more]:
                print("list", a)
                found.append(more)
            case str():
                print("str")
            case _:
                found.append("none")
    return found


@same_as_eager(graphs=1, breaks=["print", "unsupported iteration"])
def test_enumerate_across_a_break(x):
    each = enumerate([x, x + 1, x + 2], 5)
    first = next(each)
    print("now")
    return first, list(each)


@same_as_eager(graphs=1, breaks=["print", "unsupported iteration", "print", "unsupported iteration"])
def test_started_generator_across_a_break(x):
    def rows():
        for i in range(3):
            yield x + i

    y = x.sin()
    each = rows()
    first = next(each)
    print("now")
    return y, first, list(each)


# since 3.12 a comprehension is a loop of the function
@same_as_eager(graphs=0, breaks=["print"] * (2 if sys.version_info < (3, 12) else 1))
def test_nested_comprehensions_with_breaks(x):
    return [[print(i, j) or x * i + j for j in range(2)] for i in range(2)], {i: print(i) for i in range(2)}


@same_as_eager(graphs=3, breaks=["print"] * 3)
def test_three_in_one_expression(x):
    return (print(1) or x + 1) * (print(2) or x + 2) - (print(3) or 3)


def test_many_breaks_in_a_row():
    lines = "".join(f"    x = x + {i}\n    print('', end='')\n" for i in range(80))
    space = {}
    exec(f"def many(x):\n{lines}    return x\n", space)
    compiled = cc.compile(space["many"], backend="eager", strict=True)
    assert torch.equal(compiled(torch.ones(2)), torch.ones(2) + sum(range(80)))
    *_, last = cc.api.compile.record_of(compiled).frames
    assert "64 graph breaks in a row" in last.skipped
