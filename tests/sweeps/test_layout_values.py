"""Compares some programs of `layout_values` with eager, each in one layout; ``make layouts`` takes all."""

from __future__ import annotations

import pytest

from tests.sweeps.layout_values import cases
from tests.sweeps.operator_sweep import run

CASES = (
    "pad constant (1, 1, 1, 1), channels_last",
    "amax over -1, expanded columns",
    "max_pool2d with indices, slice",
    "gather, sizes of one",
    "roll, no element",
)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")
def test_equal_to_eager(name: str) -> None:
    (case,) = (each for each in cases(name.partition(",")[0]) if each.name == name)
    result = run(case, None)
    assert (result.verdict, result.reason) == ("equal", "")
