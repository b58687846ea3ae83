"""The same checks for planted faults of other kinds; `make sweeps` runs them."""

from __future__ import annotations

import pytest
import torch

from tests.faults import held_back, test_breaks, test_costs, test_divergences
from tests.faults.checks import errors
from tests.faults.fault import Broken, Diverged, Fault, Inexact, Missed, Recompiled, Repeated, Saved
from tests.faults.harness import ENGINES, Engine, changed, run

pytestmark = pytest.mark.sweep

OF_THE_FUNCTION = ("an expression in a string", "the names of a function")
"""Functions that read their own local variables: that is said of the function, and not of a graph break."""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fault", held_back.RECOMPILES, ids=lambda each: each.title)
def test_recompiles(fault: Recompiled, engine: Engine) -> None:
    ran = run(fault.script, fault.title, engine)
    torch.testing.assert_close(ran.results, run(fault.script, fault.title, None).results)
    if not fault.happens_on(engine):
        return
    assert errors(fault, engine, ran.compiles, ran.problems) == []
    (change,) = fault.changes
    script = changed(fault.script, change.replace)
    after = run(script, fault.title, engine, change.options)
    torch.testing.assert_close(after.results, run(script, fault.title, None).results)
    assert (len(after.compiles), after.problems) == (1, [])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fault", held_back.BREAKS, ids=lambda each: each.title)
def test_breaks_(fault: Broken, engine: Engine) -> None:
    if fault.title in OF_THE_FUNCTION:
        (problem,) = run(fault.script, fault.title, "core").problems
        assert (problem.kind, problem.lineno) == ("plain Python", fault.line)
        assert "which can read its local variables" in problem.cause
    else:
        test_breaks.test_the_reason_is_named_and_nothing_else(fault, engine)
    test_breaks.test_the_script_without_its_fault_has_no_problem(fault, engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fault", held_back.DIVERGENCES, ids=lambda each: each.title)
def test_divergences_(fault: Diverged, engine: Engine) -> None:
    test_divergences.test_the_first_difference_is_named(fault, engine)
    test_divergences.test_ranks_that_do_the_same_are_alike(fault, engine)


COSTS = [*held_back.REPEATED, *held_back.SAVED, *held_back.INEXACT, *held_back.MISSED]


@pytest.mark.parametrize("fault", COSTS, ids=lambda each: each.title)
def test_costs_(fault: Fault) -> None:
    match fault:
        case Repeated():
            for engine in ENGINES:
                test_costs.test_a_repeated_block_is_found(fault, engine)
            test_costs.test_the_block_compiled_alone_is_compiled_once(fault)
        case Saved():
            test_costs.test_the_largest_saved_value_is_found(fault)
        case Inexact():
            test_costs.test_the_first_inexact_value_is_found(fault)
        case Missed():
            test_costs.test_the_field_of_the_key_that_differs_is_named(fault)
