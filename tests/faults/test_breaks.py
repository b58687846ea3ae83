"""Of each planted graph break the reason, the line and the advice are right, on both engines, and nothing else is
reported; the script that follows the advice has no problem."""

from __future__ import annotations

import pytest
import torch

from tests.faults import real_scripts
from tests.faults.breaks import BREAKS as OF_KINDS
from tests.faults.checks import errors
from tests.faults.fault import Broken
from tests.faults.harness import ENGINES, Engine, changed, run
from tests.records.texts import wrong_lines
from tests.sampling import few_of_stock

BREAKS = [*OF_KINDS, *real_scripts.BREAKS]
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


LAST = """
import math
from torch import full

SCALE = torch.ones(3)

def made(n):
    return torch.full((3,), n)

def program(x):
    loss = x.square().mean()
    value = loss.item()
    return round(value, 2), math.sqrt(value)
"""
RESTS = {
    "return round(value, 2), math.sqrt(value)": True,
    "history = []\n    history.append(value)\n    return history[-1] * 2": True,
    "return f'{value:.3f}' if value > 1 else None": True,
    "return made(value)": False,  # which Dynamo compiles by itself
    "return SCALE * value": False,  # which runs as plain Python
    "return full((3,), value)": False,
    "return program.scale(value)": False,
}


@pytest.mark.parametrize("rest", RESTS)
def test_nothing_is_computed_after_the_last_break(rest: str) -> None:
    script = LAST.replace("return round(value, 2), math.sqrt(value)", rest)
    if "program.scale" in rest:
        script += "\nprogram.scale = lambda value: SCALE * value\n"
    (problem,) = run(script, "last", "torch").problems
    assert (problem.grade == "expected") == RESTS[rest]
    assert ("nothing is computed after it" in problem.advice) == RESTS[rest]


LOGGED = """
import logging

logger = logging.getLogger("cutaway.faults")
logger.addHandler(logging.NullHandler())

def program(x):
    y = x.sin()
    logger.warning("norm %.3f", y.norm())
    return y * 2
"""


def test_breaks_in_what_a_broken_line_calls_go_with_it() -> None:
    """Python calls the functions of logging, each of which Dynamo compiles."""
    first, *others = run(LOGGED, "logged", "torch").problems
    assert (first.grade, first.lineno) == ("costly", 9)
    assert {(each.grade, each.lineno) for each in others} == {("expected", 9)}


RETRIED = """
def program(x):
    for _ in range(3):
        if x.sum() > 0:
            x = x * 2
    return x
"""


def test_no_earlier_break_is_blamed_that_is_not_there() -> None:
    (problem,) = run(RETRIED, "retried", "torch").problems
    assert "earlier graph break" not in problem.advice


EMPTY_AT_FIRST = """
def program(x, items):
    for each in items:
        x = x + each
    return x

def run(call):
    for n in range(3):
        call(torch.ones(3), [torch.ones(3)] * n)
"""


def test_a_function_that_computes_nothing_at_first_runs_as_python_on_stock() -> None:
    ran = run(EMPTY_AT_FIRST, "empty at first", "torch")
    (problem,) = ran.problems
    assert (ran.compiles, problem.kind, problem.grade, problem.lineno) == ([], "plain Python", "costly", 2)
    assert "its first call computes nothing with tensors, and PyTorch does not try again" in problem.cause
    assert problem.advice.startswith("Decide outside of the compiled function")
    assert run(EMPTY_AT_FIRST.replace("range(3)", "range(1, 3)"), "not empty", "torch").problems[0].kind == "recompile"
    identity = "def program(x):\n    return x\n"
    assert run(identity, "identity", "torch").problems == []
