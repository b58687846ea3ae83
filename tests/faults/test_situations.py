"""What is said of programs in situations that other faults of the corpus do not have."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.records.problems import needing_action
from compiler_core.tools.stock.read.breaks.rest import computes_nothing
from tests.faults.harness import ENGINES, Engine, run

ADDED_IN_WITH = """
def program(x, total):
    with torch.no_grad():
        total = total + x.sum().item()
        return x * total

def run(call):
    for total in (1.0, 1.5):
        call(torch.ones(3), total)
"""


def test_values_of_the_stack_have_their_names_in_a_with_block() -> None:
    """Dynamo's function gets a value for each ``with`` block besides those of the statement."""
    compiles = run(ADDED_IN_WITH, "added in with", "torch").compiles
    causes = [each.cause for each in compiles if each.cause is not None]
    assert [(each.name, each.expected, each.got) for each in causes] == [("total", "1.0", "1.5")] * 2


GRAPHS = """
def program(x, edges, nodes):
    return torch.zeros(nodes, 4).index_add_(0, edges[1], x[edges[0]])

def run(call):
    for nodes in (5, 7, 1, 9):
        call(torch.ones(nodes, 4), torch.zeros(2, nodes + 1 if nodes > 1 else 1, dtype=torch.int64), nodes)
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_a_size_of_one_is_no_comparison_of_the_program(engine: Engine) -> None:
    problems = run(GRAPHS, "graphs", engine).problems
    (costly,) = needing_action(problems)
    assert "sizes 0 and 1" in costly.remedies
    assert "x.size(0) >= 2" not in costly.advice
    (settled,) = (each for each in problems if each is not costly)
    assert settled.advice.startswith("Nothing to change: compile 0/1 has a symbol for it")


UNFROZEN = """
WEIGHTS = [torch.nn.Parameter(torch.ones(2, 3)), torch.nn.Parameter(torch.ones(3))]

def program(weight):
    weight.requires_grad_(True)

def run(call):
    for weight in WEIGHTS:
        call(weight)
"""


def test_what_computes_nothing_is_not_to_be_passed_otherwise() -> None:
    assert needing_action(run(UNFROZEN, "unfrozen", "core").problems) == []


READ_AT_THE_END = """
state = {}

def fit(x):
    state["mean"] = x.mean().item()
    state["std"] = x.std().item()

def program(x):
    fit(x)
    return (x - 1).sin()
"""


def test_a_break_at_the_end_of_a_called_function_divides_its_caller() -> None:
    problems = run(READ_AT_THE_END, "read at the end", "torch").problems
    assert [(each.lineno, each.grade) for each in problems] == [(5, "costly"), (6, "costly")]


OF_CLOSURES = """
def add(number):
    return lambda x: x + number

def program(x, function):
    return function(x)

def run(call):
    for number in (0.5, 0.7, 0.9):
        call(torch.ones(3), add(number))
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_a_free_variable_of_an_argument_is_symbolic_from_the_first(engine: Engine) -> None:
    assert len(run(OF_CLOSURES, "of closures", engine, {"dynamic": True}).compiles) == 1


@pytest.mark.parametrize(
    ("lines", "is_last"),
    [(["y = f(x)", "print(tuple(y.shape))"], True), (["print(y)", "z = y + 1"], False), (["print(y)", "g(y)"], False)],
)
def test_the_last_line_of_a_cell_divides_nothing(lines: list[str], is_last: bool) -> None:
    at = next(i for i, line in enumerate(lines, 1) if line.startswith("print"))
    assert computes_nothing([f"{line}\n" for line in lines], at) == is_last


def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


class Service:
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def predict(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin()


def recorded(engine: Engine, fn: Any, **options: Any) -> compiler_core.Record:
    torch._dynamo.reset()
    make: Any = compiler_core.compile if engine == "core" else torch.compile
    with compiler_core.record(engine=engine) as record:
        make(fn, **{"backend": "eager", **options})(torch.ones(3))
    return record


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("is_around", [True, False])
def test_a_stance_is_named_with_which_nothing_is_compiled(engine: Engine, is_around: bool) -> None:
    def stance() -> Any:
        return torch.compiler.set_stance("force_eager")

    with stance() if is_around else nullcontext():
        torch._dynamo.reset()
        make: Any = compiler_core.compile if engine == "core" else torch.compile
        with compiler_core.record(engine=engine) as record, nullcontext() if is_around else stance():
            make(sine, backend="eager")(torch.ones(3))
    (note,) = record.notes
    assert note.startswith('Nothing was compiled: torch.compiler.set_stance("force_eager") is set')
    assert recorded(engine, sine).notes == []


def test_settings_of_stock_are_named_for_which_code_runs_as_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*_: Any) -> Any:
        raise NotImplementedError("no such kernel")

    with monkeypatch.context() as patch:
        patch.setenv("TORCHDYNAMO_DISABLE", "1")
        (note,) = recorded("torch", sine).notes
        assert note.startswith("Nothing was compiled: TORCHDYNAMO_DISABLE=1 is set")
        assert recorded("core", sine).notes == []
    with torch._dynamo.config.patch(suppress_errors=True):
        (note,) = recorded("torch", sine, backend=refusing).notes
        assert note.startswith("torch._dynamo.config.suppress_errors is set")
        assert recorded("torch", sine).notes == []


@pytest.mark.parametrize("engine", ENGINES)
def test_a_disabled_function_that_is_compiled_is_a_problem(engine: Engine) -> None:
    (problem,) = recorded(engine, Service().predict).problems
    assert (problem.grade, problem.filename) == ("costly", __file__)
    assert "So nothing of what it calls is compiled." in problem.cause
    assert problem.advice.startswith("Remove the ")


FORMATTED = """
def program(x, step):
    loss = x.sin().sum()
    print(f"step {step}: {loss.item()}")
    return loss * 2

def run(call):
    for step in range(3):
        try:
            call(torch.ones(3), step)
        except TypeError:
            assert step == 2  # stock's: it joins the number to the texts
"""


def test_an_error_of_stock_alone_is_not_called_the_programs() -> None:
    problems = run(FORMATTED, "formatted", "torch").problems
    (raised,) = (each for each in problems if "BUILD_STRING" in each.title)
    assert raised.advice.startswith("Nothing to change if the line raises without torch.compile, too.")
