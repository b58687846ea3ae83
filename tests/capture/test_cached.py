"""What is found in the cache of a function, without a call that counts."""

from __future__ import annotations

import enum
import functools
from typing import Any

import pytest

from compiler_core.capture.values.cached_calls import find_result, finder


class Color(enum.Enum):
    RED = 1


class Compared:
    """An object that its program compares."""

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compared)


@pytest.mark.parametrize(("others", "before", "is_there"), [(1, 0, True), (1, 1, False), (0, 1, True), (0, 2, False)])
def test_calls_before_may_evict_a_result(others: int, before: int, is_there: bool) -> None:
    @functools.lru_cache(maxsize=2)
    def square(n: int) -> int:
        return n * n

    for n in range(others + 1):
        square(n)
    assert finder(square, (0,), {}, before)() is is_there


def test_no_call_evicts_a_result_of_a_cache_without_a_limit() -> None:
    @functools.cache
    def square(n: int) -> int:
        return n * n

    square(3)
    assert finder(square, (3,), {}, 1000)()
    assert not finder(square, (4,), {}, 0)()


def test_keywords_and_types_are_part_of_a_key() -> None:
    @functools.lru_cache(maxsize=4, typed=True)
    def square(n: float) -> float:
        return n * n

    square(n=3)
    assert finder(square, (), {"n": 3}, 0)()
    assert not finder(square, (3,), {}, 0)()
    assert not finder(square, (), {"n": 3.0}, 0)()


@pytest.mark.parametrize("maxsize", [None, 2])
@pytest.mark.parametrize("typed", [False, True])
def test_the_results_of_calls(maxsize: int | None, typed: bool) -> None:
    """They are those of real calls, which alone are counted."""

    @functools.lru_cache(maxsize, typed)
    def called(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return {"args": args, "kwargs": kwargs}

    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        *(
            ((n,), {})
            for n in (1, 1.0, True, "1", None, (1, 2), (1, (2.0, "x")), Color.RED, int, test_the_results_of_calls)
        ),
        *(((n, 2), {}) for n in (1, 1.0, "a", -0.0, 0.0)),
        *(((1,), {"by": n}) for n in (1, 2.0, (1,))),
        ((), {"a": 1, "b": 2}),
        ((), {"b": 2, "a": 1}),
        ((), {}),
    ]
    for args, kwargs in calls:
        real = called(*args, **kwargs)
        info = called.cache_info()
        assert find_result(called, args, kwargs) == (real,)
        assert called.cache_info() == info
        for others in calls:
            found, before = find_result(called, *others), called.cache_info()
            if found is not None:
                copy = called(*others[0], **others[1])
                assert copy is found[0]
                assert called.cache_info().hits == before.hits + 1
        called(*args, **kwargs)
    called.cache_clear()
    assert not any(find_result(called, *call) for call in calls)


@pytest.mark.parametrize("maxsize", [None, 2])
def test_a_key_that_the_program_compares_is_not_looked_for(maxsize: int | None) -> None:
    @functools.lru_cache(maxsize)
    def called(obj: Any) -> int:
        return 1

    key = Compared()
    called(key)
    assert find_result(called, (key,), {}) is None
    assert not finder(called, (key,), {}, 0)()
