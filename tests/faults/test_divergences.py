"""Of each planted difference between ranks the line and both sides are named; the same script on all ranks is alike."""

from __future__ import annotations

import pytest

from compiler_core.tools.ranks.comparison import RankComparison, compare_rank_facts
from compiler_core.tools.ranks.facts import rank_facts
from tests.faults.corpus import DIVERGENCES
from tests.faults.fault import Diverged
from tests.faults.harness import ENGINES, Engine, changed, run
from tests.sampling import few_of_stock


def compared(script: str, title: str, engine: Engine) -> RankComparison:
    """Runs a script as rank 0 and as rank 1, and compares what was recorded."""
    ranks = [(number, run(script, title, engine, rank=number).record) for number in range(2)]
    return compare_rank_facts([rank_facts(record, f"rank {number}", number) for number, record in ranks])


CASES = [(fault, engine) for engine in ENGINES for fault in DIVERGENCES]
IDS = [f"{fault.title} - {engine}" for fault, engine in CASES]


@pytest.mark.parametrize(("fault", "engine"), few_of_stock(CASES), ids=IDS)
def test_the_first_difference_is_named(fault: Diverged, engine: Engine) -> None:
    comparison = compared(fault.script, fault.title, engine)
    (_, group) = comparison.groups
    truth = fault.of(engine)
    assert group.first is not None
    assert (group.first.line, group.first.kind) == (truth["line"], truth["kind"]), str(comparison)
    assert truth["here"] in group.first.here, str(comparison)
    assert truth["others"] in group.first.others, str(comparison)
    assert f":{truth['line']}: " in str(comparison).splitlines()[1]


@pytest.mark.parametrize(("fault", "engine"), few_of_stock(CASES), ids=IDS)
def test_ranks_that_do_the_same_are_alike(fault: Diverged, engine: Engine) -> None:
    comparison = compared(changed(fault.script, fault.repair), fault.title, engine)
    assert str(comparison) == "2 alike"
