"""What must not be reported as "0 problems", and the same programs without the fault, of which nothing is reported."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.records import Record, needing_action
from compiler_core.records.artifacts import Artifact, Event, Graph, Node
from compiler_core.records.differences import AdviceTrial
from compiler_core.records.problems import SLOW_COMPILE_S
from compiler_core.tools.questions.problems import conclude, repeated_block

ENGINES = ["core", "torch"]


def recorded(engine: str, function: Callable[..., Any], *args: Any, backend: Any = "eager") -> Record:
    """Returns the record of a call, whose exception is dropped; the results of a generator are used."""
    torch._dynamo.reset()
    opened = Record()
    try:
        with compiler_core.record(engine=engine) as opened:  # type: ignore[arg-type]
            compile_: Any = torch.compile if engine == "torch" else compiler_core.compile
            result = compile_(function, backend=backend)(*args)
            if isinstance(result, types.GeneratorType):
                list(result)
    except ValueError:
        pass
    return opened


def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


@pytest.mark.parametrize("engine", ENGINES)
def test_an_exception_of_the_program_is_in_the_verdict(engine: str) -> None:
    def raises(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        if x.shape[0] == 3:
            raise ValueError("three")
        return y

    record = recorded(engine, raises, torch.ones(3))
    assert record.raised == "ValueError"
    assert "it raised ValueError" in str(record.verdict)
    assert "0 problems" not in str(record.verdict)
    record = recorded(engine, raises, torch.ones(4))
    assert record.raised == ""
    assert str(record.verdict).endswith("0 problems")


# ---------------------------------------------------------------- functions that are never captured


def yields(x: torch.Tensor) -> Iterator[torch.Tensor]:
    yield x.sin()


def executes(x: torch.Tensor) -> torch.Tensor:
    exec("y = 1")
    return x.sin()


@pytest.mark.parametrize(
    ("engine", "function", "cause"),
    [("core", yields, "a generator"), ("torch", yields, "a generator"), ("core", executes, "local variables")],
)
@pytest.mark.filterwarnings("ignore::compiler_core.RefusalWarning")
def test_a_function_that_is_never_captured_is_a_problem(engine: str, function: Any, cause: str) -> None:
    record = recorded(engine, function, torch.ones(3))
    (problem,) = needing_action(record.problems)
    assert problem.title == f"{function.__name__} runs as plain Python"
    assert cause in problem.cause
    assert problem.filename == __file__
    assert record.verdict is not None
    assert record.verdict.problems == "1 problem"
    assert not recorded(engine, sine, torch.ones(3)).problems


# ---------------------------------------------------------------- changed graphs


def changed(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    for node in gm.graph.nodes:
        if node.target == "sin":
            node.target = "exp"
    gm.recompile()
    return gm


BACKENDS: dict[str, Any] = {
    "in place": lambda gm, _: changed(gm).forward,
    "a copy": lambda gm, _: changed(copy.deepcopy(gm)),
    "the function of a copy": lambda gm, _: changed(copy.deepcopy(gm)).forward,
}
HARMLESS: dict[str, Any] = {
    "as it is": lambda gm, _: gm.forward,
    "a copy": lambda gm, _: copy.deepcopy(gm),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backend_that_changes_the_graph_is_reported(engine: str, backend: str) -> None:
    record = recorded(engine, sine, torch.ones(3), backend=BACKENDS[backend])
    (problem,) = record.problems
    assert (problem.kind, problem.grade) == ("changed graph", "expected")
    (shown,) = [a for a in record.artifacts if a.pane == "passes"]
    assert shown.name in problem.cause
    assert "exp" in shown.text
    assert problem.line is not None
    assert record.text(problem.line) == "    return x.sin() + 1"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("backend", HARMLESS)
def test_a_backend_that_changes_nothing_is_not_reported(engine: str, backend: str) -> None:
    assert not recorded(engine, sine, torch.ones(3), backend=HARMLESS[backend]).problems


# ---------------------------------------------------------------- repeated blocks


@pytest.mark.parametrize(
    ("targets", "found"),
    [
        ("abc" * 10, (3, 10, 0)),
        ("x" + "abc" * 10 + "y", (3, 10, 1)),
        ("aab" * 12, (3, 12, 0)),
        ("a" * 9, (1, 9, 0)),
        ("abcdefgh", (0, 0, 0)),
        ("abab", (2, 2, 0)),
        ("", (0, 0, 0)),
    ],
)
def test_repeated_blocks_are_found(targets: str, found: tuple[int, int, int]) -> None:
    assert repeated_block(list(targets)) == found


def slow(targets: str, seconds: float) -> Record:
    """Returns the record of a compile of a graph with these operations, which took so long."""
    record = Record()
    frame = record.frame("f", __file__, 1, "root")
    compile_ = record.compile(frame)
    compile_.outcome = "compiled"
    nodes = [Node(f"n{at}", "call_function", target) for at, target in enumerate(targets)]
    compile_.artifacts.append(Artifact("0/0:captured", "captured", "captured", "python", "", graph=Graph(nodes, [])))
    compile_.events.append(Event("backend", "inductor", 0, round(1e9 * seconds)))
    record.find_problems()
    return record


def test_a_slow_compile_of_repeated_blocks_is_a_problem() -> None:
    (problem,) = slow("abcdefg" * 300, 100).problems
    assert (problem.kind, problem.grade) == ("slow compile", "costly")
    assert "300 equal blocks of 7 operations in a row" in problem.cause
    assert problem.cost == "It took 100 s to compile."
    assert problem.checked.startswith("Not tried here; proven for such programs")
    assert not slow("abcdefg" * 300, SLOW_COMPILE_S / 2).problems
    assert not slow("abcdefghij", 10 * SLOW_COMPILE_S).problems


@pytest.mark.parametrize(("outcome", "grade"), [("helps", "costly"), ("does not help", "expected")])
def test_a_compile_of_a_few_seconds_is_a_problem_if_a_trial_helped(outcome: Any, grade: Any) -> None:
    (problem,) = slow("abcdefg" * 300, 2 * SLOW_COMPILE_S).problems
    before = problem.grade
    assert before == "expected"
    assert problem.advice.startswith("Only if that is too long: Compile the repeated block")
    conclude(problem, [AdviceTrial("compile each block", outcome)])
    assert problem.grade == grade
    assert problem.advice.startswith("Compile the repeated block") == (grade == "costly")
