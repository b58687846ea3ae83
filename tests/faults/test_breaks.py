"""Of each planted graph break the reason, the line and the advice are right, on both engines, and nothing else is
reported; the script that follows the advice has no problem."""

from __future__ import annotations

import pytest
import torch

from tests.faults.breaks import BREAKS
from tests.faults.checks import errors
from tests.faults.fault import Broken
from tests.faults.harness import ENGINES, Engine, changed, run
from tests.records.texts import wrong_lines
from tests.sampling import few_of_stock

CASES = [(fault, engine) for engine in ENGINES for fault in BREAKS]
IDS = [f"{fault.title} - {engine}" for fault, engine in CASES]


@pytest.mark.parametrize(("fault", "engine"), few_of_stock(CASES), ids=IDS)
def test_the_reason_is_named_and_nothing_else(fault: Broken, engine: Engine) -> None:
    ran = run(fault.script, fault.title, engine)
    torch.testing.assert_close(ran.results, run(fault.script, fault.title, None).results)
    assert wrong_lines(ran.record) == []
    if fault.happens_on(engine):
        assert errors(fault, engine, ran.record.compiles, ran.problems) == []
    else:
        assert [problem.title for problem in ran.problems] == []


@pytest.mark.parametrize(("fault", "engine"), few_of_stock(CASES), ids=IDS)
def test_the_script_without_its_fault_has_no_problem(fault: Broken, engine: Engine) -> None:
    repaired = changed(fault.script, fault.repair)
    ran = run(repaired, fault.title, engine)
    torch.testing.assert_close(ran.results, run(repaired, fault.title, None).results)
    assert [(problem.title, problem.lineno) for problem in ran.problems] == []
    assert len(ran.compiles) == 1


@pytest.mark.parametrize("fault", [each for each in BREAKS if each.config], ids=lambda each: each.title)
def test_an_option_that_stock_names_works(fault: Broken) -> None:
    with torch._dynamo.config.patch(fault.config):
        ran = run(fault.script, fault.title, "torch")
    assert [problem.title for problem in ran.problems] == []
    assert len(ran.compiles) == 1
