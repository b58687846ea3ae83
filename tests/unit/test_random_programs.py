"""Random programs, the same in every run, do what eager does.  `make fuzz N=20000` runs many more."""

from __future__ import annotations

import pytest

from tests.fuzz import run
from tests.fuzz.reduce import reduced


@pytest.mark.parametrize("number", range(20))
def test_ten_programs(number: int) -> None:
    tally = run.Tally()
    run.search(number, tally, "eager")
    assert (tally.programs, tally.invalid) == (run.PER_SEED, 0)
    assert not tally.found, "\n\n".join(f"# {kind}\n{program}" for kind, program in tally.found.items())


def test_reduced_keeps_what_fails() -> None:
    source = "def f(a, b):\n    x = a + 1\n    if b:\n        print(x, 1 // 0)\n    return x\n"
    assert reduced(source, lambda text: "// 0" in text) == "1 // 0"
