"""Functions whose decompiled text does what they do: branches, loops, conditional expressions, nested functions."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from compiler_core.bytecode.decompile import runnable_text
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
    endless, a_loop_in_a_loop, nested_function, many_sides,
]  # fmt: skip


def result(function: Callable[..., Any], x: int) -> Any:
    try:
        return function(x)
    except Exception as error:
        return repr(error)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: each.__name__)
def test_the_text_does_the_same(function: types.FunctionType) -> None:
    code = function.__code__
    stripped = types.FunctionType(code, globals(), closure=function.__closure__)
    try:
        text, constants = runnable_text(code)
    except ValueError as error:
        pytest.skip(f"in this version of Python: {error}")
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


def catches(x: Any) -> Any:
    try:
        return 1 / x
    except ZeroDivisionError:
        return 0


def hides(x: Any) -> Any:
    for iter in x:
        print(iter)


@pytest.mark.parametrize(
    ("function", "why"), [(catches, "an exception handler has no Python text"), (hides, "hides the builtin iter")]
)
def test_what_has_no_text_is_refused(function: types.FunctionType, why: str) -> None:
    with pytest.raises(ValueError, match=f"{function.__name__} cannot be decompiled: .*{why}"):
        runnable_text(function.__code__)


@pytest.mark.sweep
def test_the_library_passes_its_tests_with_decompiled_functions() -> None:
    plain, decompiled = decompiled_library.run(replace=False), decompiled_library.run(replace=True)
    assert decompiled.failed == plain.failed
    assert decompiled.ran == plain.ran > 2000
    assert decompiled.replaced > 1000
