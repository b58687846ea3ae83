"""Which values of a parametrised test every run of the suite takes, and which only ``make sweeps`` does."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def sample(values: Iterable[Any], step: int) -> list[Any]:
    """Marks all of `values` with ``sweep``, except each `step`-th from the first one on."""
    return [_sweep(value) if at % step else value for at, value in enumerate(values)]


def pairs(first: Iterable[Any], second: Iterable[Any], step: int) -> list[Any]:
    """All pairs of values of two arguments.  Each `step`-th diagonal is not marked, so that each value is in some."""
    numbered = itertools.product(enumerate(first), enumerate(second))
    return [(one, other) if not (i + j) % step else _sweep((one, other)) for (i, one), (j, other) in numbered]


def always(values: Iterable[Any], chosen: Callable[[Any], bool]) -> list[Any]:
    """Marks those of `values` with ``sweep`` that are not `chosen`.  A tuple is the values of several arguments."""
    return [value if chosen(value) else _sweep(value) for value in values]


def few_of_stock(cases: Iterable[tuple[Any, ...]], step: int = 8) -> list[Any]:
    """Marks those cases with ``sweep`` whose last value is the engine ``torch``, except each `step`-th of them: stock
    takes longer, and a test of logs has what it says of all."""
    of_stock = [case for case in cases if case[-1] == "torch"]
    return always(cases, lambda case: case[-1] != "torch" or of_stock.index(case) % step == 0)


def _sweep(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.sweep)
