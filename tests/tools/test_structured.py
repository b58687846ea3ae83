"""Functions whose decompiled text does what they do: branches, loops, conditional expressions, nested functions."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from compiler_core.tools.decompile import runnable_text
from tests.sweeps import decompiled_library

# the names of variables are also those that the decompiler would choose first


def both_sides_of_a_branch(x: Any) -> Any:
    if x > 0:
        y = 1
    else:
        y = 2
    z = y + x
    return z * 2


def conditional_expressions(x: Any) -> Any:
    y = x if x > 3 else -x
    return y + (x and 5) + (x or 7), f"{x}-{x!r:>4}", [x, *range(x)][x:]


def comprehensions(x: Any) -> Any:
    return [i * 2 for i in range(x) if i % 2], {i: i * x for i in range(3)}, {i % 3 for i in range(x)}


def for_with_else(x: Any) -> Any:
    total = 0
    for i in range(x):
        if i == 3:
            continue
        if i > 6:
            break
        total += i
    else:
        total = -total
    return total


def while_with_else(x: Any) -> Any:
    t0 = 0
    while x > 0 and t0 < 50:
        x -= 1
        if x % 3 == 0:
            continue
        t0 += x
        if t0 > 30:
            break
    else:
        return "else", t0
    return t0


def nested_loops(x: Any) -> Any:
    out: list[Any] = []
    for i, (j, k) in enumerate(zip(range(x), "abcdefghij", strict=False)):
        for t1 in range(j):
            if t1 == 2:
                break
            out.append((i, k, t1))
        else:
            out.append(k)
            continue
        out.append("broke")
    return out


def endless(x: Any) -> Any:
    while True:
        x += 1
        if x > 10:
            return x
        if x == 5 or x == 7:
            x += 2
            break
    return x


def a_loop_in_a_loop(x: Any) -> Any:
    n = 0
    for i in range(x):
        while n < i:
            n += 2
            if n == 4:
                return "four"
        if not (i and n) or i == 9:
            n = n + 1 if n % 2 else n
    if not n >= 0:
        raise AssertionError("no")
    return n


def nested_function(x: Any) -> Any:
    def inner(y):  # type: ignore[no-untyped-def]
        nonlocal x
        for q in range(y):
            x += q
        return x

    return inner(3), x, (lambda y: y + x)(2)


LOG: list[str] = []


class Manager:
    """Notes when it is entered and left; swallows the exceptions of `swallows`."""

    def __init__(self, name: str, *swallows: type[Exception]) -> None:
        self.name, self.swallows = name, swallows

    def __enter__(self) -> tuple[str, str]:
        LOG.append(f"enter {self.name}")
        return self.name, "entered"

    def __exit__(self, kind: Any, error: Any, _: Any) -> bool:
        LOG.append(f"exit {self.name} {error!r}")
        return kind is not None and issubclass(kind, self.swallows)


def manages(x: Any) -> Any:
    with Manager("a", ValueError) as (name, _), Manager("b"):
        if x == 1:
            return name
        if x == 2:
            raise ValueError(name)
        if x == 3:
            raise KeyError(name)
        LOG.append("body")
    return "after"


def catches(x: Any) -> Any:
    y = None
    try:
        y = 6 / (x - 2)
        if y > 5:
            return [y][int(y)]
    except (ZeroDivisionError, TypeError) as error:
        LOG.append(str(error))
    except IndexError:
        if x == 3:
            raise
        return "index"
    else:
        LOG.append("else")
        undefined  # type: ignore[name-defined]  # noqa: F821
    return x, y


def cleans_up(x: Any) -> Any:
    for i in range(5):
        try:
            if i == x:
                break
            if i + 2 == x:
                continue
            if i + 3 == x:
                return i
            LOG.append(f"try {10 // (i - x + 6)}")
        except ZeroDivisionError as error:
            LOG.append(repr(error))
            raise RuntimeError from error
        finally:
            LOG.append(f"finally {i}")
            if x == 7:
                LOG.append("seven")
    else:
        return "else"
    return "broke"


def loops_until_an_exception(x: Any) -> Any:
    out, numbers = [], iter(range(x))
    while True:
        with Manager("loop", RuntimeError):
            try:
                number = next(numbers)
            except StopIteration:
                break
            if number == 2:
                continue
            if number == 4:
                raise RuntimeError
            if number == 9:
                return "nine"
            out.append(number)
    try:
        missing  # type: ignore[name-defined]
    except NameError:
        out.append(-1)
    return out


def nested_tries(x: Any) -> Any:
    try:
        try:
            if x % 3 == 0:
                raise ValueError(x)
            result = "none"
        finally:
            try:
                LOG.append(str(1 // (x % 4)))
            except ZeroDivisionError:
                LOG.append("zero")
                if x == 8:
                    raise
    except ValueError as error:
        context = error.__context__
        del error
        return "value", context
    except:
        LOG.append("bare")
        raise
    return result


def keeps_its_order(x: Any) -> Any:
    def note(value, *, name: int = x):  # type: ignore[no-untyped-def]
        """Notes a value."""
        LOG.append(f"{value} {name}")
        return value

    import os.path as path
    from math import floor as down
    from math import pi

    first, *rest = range(x + 1)
    chained = 1 < note(2) <= note(x) < 6 and (1 < x <= 9 == 9)
    return {note(i): note(-i) for i in rest}, chained, down(pi), path.sep, first, note.__annotations__, note.__doc__


def many_sides(x: Any) -> Any:
    if x == 1:
        return "one"
    elif x == 2 and x < 5:
        r = "two"
    elif x is None:
        r = "none"
    else:
        r = "many" if x > 5 else "some"
    return r


FUNCTIONS = [
    both_sides_of_a_branch, conditional_expressions, comprehensions, for_with_else, while_with_else, nested_loops,
    endless, a_loop_in_a_loop, nested_function, many_sides, manages, catches, cleans_up, loops_until_an_exception,
    nested_tries, keeps_its_order,
]  # fmt: skip


def result(function: Callable[..., Any], x: int) -> Any:
    """Returns what a call returns, or its exception with its cause and context, and what it noted."""
    LOG.clear()
    try:
        returned: Any = function(x)
    except Exception as error:
        returned = [repr(each) for each in (error, error.__cause__, error.__context__)]
    return repr(returned), list(LOG)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: each.__name__)
def test_the_text_does_the_same(function: types.FunctionType) -> None:
    code = function.__code__
    stripped = types.FunctionType(code, globals(), closure=function.__closure__)
    if sys.version_info >= (3, 12) and function in (while_with_else, cleans_up):
        pytest.skip("refused: it has jumps that leave two statements")
    text, constants = runnable_text(code)
    namespace = globals() | constants
    exec(compile(text, "decompiled", "exec"), namespace)
    for x in range(12):
        assert result(namespace[code.co_name], x) == result(stripped, x), text


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the text is that of the bytecode of 3.11")
def test_loops_read_as_loops() -> None:
    text, _ = runnable_text(while_with_else.__code__)
    assert text.splitlines()[1:6] == [
        "    t0 = 0",
        "    while (x > 0) and (t0 < 50):",
        "        x -= 1",
        "        if (x % 3) == 0:",
        "            continue",
    ]


def makes_a_class(x: Any) -> Any:
    class Made:
        value = x

    return Made


def hides(x: Any) -> Any:
    for slice in x:
        print(x[slice:1:2])


@pytest.mark.parametrize(
    ("function", "why"), [(makes_a_class, "a class statement has no Python text"), (hides, "hides the builtin slice")]
)
def test_what_has_no_text_is_refused(function: types.FunctionType, why: str) -> None:
    with pytest.raises(ValueError, match=f"{function.__name__} cannot be decompiled: .*{why}"):
        runnable_text(function.__code__)


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_the_library_passes_its_tests_with_decompiled_functions() -> None:
    plain, decompiled = decompiled_library.run(replace=False), decompiled_library.run(replace=True)
    assert set(decompiled.failed) <= {*plain.failed, *decompiled_library.OF_SOURCE}
    assert decompiled.ran == plain.ran > 6000
    assert decompiled.replaced > 4000
