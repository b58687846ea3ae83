"""Texts name values as the user wrote them, on both engines: a sweep over many programs for names that the compilers
made, doubled words and broken grammar."""

from __future__ import annotations

import contextlib
import copy
import math
import random
import sys
import types
from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch

import compiler_core
from compiler_core.capture.break_kinds import KINDS
from compiler_core.records import Record
from compiler_core.records.capture import BreakReason
from tests.docs.test_graph_breaks import NEED_RANKS, programs
from tests.records.texts import wrong_lines
from tests.sampling import pairs

Engine = Literal["core", "torch"]
ENGINES: tuple[Engine, ...] = ("core", "torch")
pytestmark = pytest.mark.filterwarnings("ignore")
x, twice, longer, longest, one = torch.ones(3), 2 * torch.ones(3), torch.ones(5), torch.ones(7), torch.ones(1)


def run(fn: Any, engine: Engine, calls: list[tuple[Any, ...]], **options: Any) -> Record:
    torch._dynamo.reset()
    with compiler_core.record(engine=engine) as record:
        make: Any = compiler_core.compile if engine == "core" else torch.compile
        compiled = make(fn, backend="eager", **options)
        for args in calls:
            with contextlib.suppress(ValueError, RuntimeError):  # which some of the programs raise
                compiled(*copy.deepcopy(args))
    return record


def asks() -> int:
    compiler_core.graph_break()
    return 1


def of_callee(x: torch.Tensor) -> Any:
    return torch.add(x + 1, asks())


def item(x: torch.Tensor) -> Any:
    return x * round(x.sum().item())


def several_values(x: torch.Tensor, d: dict[str, torch.Tensor]) -> Any:
    return torch.cat([x.sin(), x * float(x.max())]) + d["a"].item()


def number_of_python(x: torch.Tensor) -> Any:
    n: Any = math.floor(x.sum().item())
    return x.new_ones(n) + random.random()


def in_a_method_call(x: torch.Tensor) -> Any:
    return x.sin().add(x.sum().item(), alpha=2)


def in_an_index(x: torch.Tensor, d: dict[str, torch.Tensor]) -> Any:
    return d["a"][int(x.sum())] * x


def text_of_size(x: torch.Tensor, table: dict[str, int]) -> Any:
    text = f"Input height ({x.shape[0]}) is {x.shape[-1]:>4}"
    return x * len(text) + table.get(text, 0)


def raises(x: torch.Tensor) -> Any:
    if x.shape[0] > 4:
        raise ValueError(f"Input height ({x.shape[0]}) must be small")
    return x + 1


def of_sizes(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x.sin() + y


def counts_down(x: torch.Tensor, n: int) -> Any:
    while n > 0:
        x, n = x + 1, n - 1
    return x


def rows_from(x: torch.Tensor, start: int) -> Any:
    return x[start : start + 4].cos()


def dropped(x: torch.Tensor, p: float) -> Any:
    return torch.nn.functional.dropout(x, p)


class Scale:
    by = 2


class Other(Scale):
    def __init__(self) -> None:
        self.by = 5


def of_class(x: torch.Tensor, scale: Any) -> Any:
    return x * scale.by


def block(x: torch.Tensor, layers: Any) -> Any:
    return layers[0](x) + layers[1].training


training, evaluating = (torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.1)) for _ in range(2))
evaluating.eval()
PROGRAMS: dict[Callable[..., Any], list[tuple[Any, ...]]] = {
    of_callee: [(x,), (longer,), (one,)],
    item: [(x,), (twice,), (longer,)],
    several_values: [(each, {"a": x[0]}) for each in (x, twice, longer)],
    number_of_python: [(x,), (twice,)],
    in_a_method_call: [(x,), (twice,), (longer,)],
    in_an_index: [(each, {"a": torch.ones(9)}) for each in (x, twice, longer)],
    text_of_size: [(x, {}), (longer, {}), (longest, {})],
    raises: [(x,), (longer,)],
    of_sizes: [(x, x), (longer, longer), (longest, longer)],
    counts_down: [(x, 2), (x, 3), (x, 5)],
    dropped: [(x, 0.1), (x, 0.2), (x, 0.3)],
    of_class: [(x, Scale()), (x, Other())],
    block: [(x, training), (x, evaluating)],
}
RESULTS = {
    item: "x.sum().item()",
    number_of_python: "x.sum()",
    of_callee: "x + 1",
}
"""What recompiles after a graph break are about."""
TAKE_LONG: set[BreakReason] = {"unroll limit"}


@pytest.mark.parametrize(("program", "engine"), pairs(PROGRAMS, ENGINES, 2))
def test_names_are_the_users(program: Callable[..., Any], engine: Engine) -> None:
    record = run(program, engine, PROGRAMS[program])
    assert wrong_lines(record) == []
    recompiled = [each for each in record.problems if each.kind == "recompile"]
    assert recompiled
    if program in RESULTS:
        assert any(RESULTS[program] in each.title + each.cause for each in recompiled), [
            each.title for each in recompiled
        ]


@pytest.mark.parametrize(
    ("kind", "engine"), pairs([kind for kind in KINDS if kind not in NEED_RANKS | TAKE_LONG], ENGINES, 8)
)
def test_names_at_breaks_are_the_users(kind: BreakReason, engine: Engine) -> None:
    assert wrong_lines(run(programs(kind)[0], engine, [(x,), (torch.ones(4),), (one,)])) == []


@pytest.mark.parametrize(
    ("engine", "cause"),
    [
        ("core", "round(x.sum().item()) is 6; compile 1/0 was made for 3."),
        ("torch", "x.sum().item() is 6.0; compile 1/0 was made for 3.0."),
    ],
)
def test_a_number_keeps_its_type(engine: Engine, cause: str) -> None:
    """A float of stock's symbols that is whole is a float."""
    (found,) = (p for p in run(item, engine, [(x,), (twice,)]).problems if p.kind == "recompile")
    assert found.cause.startswith(cause)


def test_a_condition_has_no_sum_with_a_negative_number() -> None:
    causes = [each.cause for each in run(counts_down, "core", PROGRAMS[counts_down]).problems]
    assert any(cause.startswith("n <= 3 does not hold") for cause in causes), causes


def test_of_several_conditions_those_that_do_not_hold_are_named() -> None:
    rows = torch.ones(10, 3)
    causes = [each.cause for each in run(rows_from, "core", [(rows, 0), (rows, 4), (rows, 8)]).problems]
    assert any(cause.startswith("4 + start <= 10 does not hold: start is 8; compile 0/1 was") for cause in causes), (
        causes
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_an_exception_of_the_program_is_expected(engine: Engine) -> None:
    problems = run(raises, engine, PROGRAMS[raises]).problems
    assert {each.grade for each in problems} == {"expected"}
    assert {each.advice for each in problems if each.kind == "graph break"} == {
        "Nothing to change if the exception is intended."
    }


@pytest.mark.parametrize("engine", ENGINES)
def test_a_name_of_a_script_has_no_module(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    script = types.ModuleType("__main__")
    exec("mode = 'sin'\ndef computed(x):\n    return x.sin() if mode == 'sin' else x.cos()\n", vars(script))
    monkeypatch.setitem(sys.modules, "__main__", script)
    computed = vars(script)["computed"]

    def program(x: torch.Tensor) -> Any:
        return computed(x) + 1

    torch._dynamo.reset()
    with compiler_core.record(engine=engine) as record:
        make: Any = compiler_core.compile if engine == "core" else torch.compile
        compiled = make(program, backend="eager")
        compiled(x)
        vars(script)["mode"] = "cos"
        compiled(x)
    (problem,) = record.problems
    assert problem.title == "recompiled: mode changed"
