"""Whether the cache of a function still has a result when a compiled call uses it."""

from __future__ import annotations

import functools

import pytest

from compiler_core.capture.rules.python.cached import _finder


@pytest.mark.parametrize(("others", "before", "is_there"), [(1, 0, True), (1, 1, False), (0, 1, True), (0, 2, False)])
def test_calls_before_may_evict_a_result(others: int, before: int, is_there: bool) -> None:
    @functools.lru_cache(maxsize=2)
    def square(n: int) -> int:
        return n * n

    for n in range(others + 1):
        square(n)
    assert _finder(square, (0,), {}, before)() is is_there


def test_no_call_evicts_a_result_of_a_cache_without_a_limit() -> None:
    @functools.cache
    def square(n: int) -> int:
        return n * n

    square(3)
    assert _finder(square, (3,), {}, 1000)()
    assert not _finder(square, (4,), {}, 0)()


def test_keywords_and_types_are_part_of_a_key() -> None:
    @functools.lru_cache(maxsize=4, typed=True)
    def square(n: float) -> float:
        return n * n

    square(n=3)
    assert _finder(square, (), {"n": 3}, 0)()
    assert not _finder(square, (3,), {}, 0)()
    assert not _finder(square, (), {"n": 3.0}, 0)()
