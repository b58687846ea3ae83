"""Tests of experiments with a cell that has run: ``Explorer.experiment``, and the page's menu *Try*."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import kernel_magics
from compiler_core.errors import UsageError
from compiler_core.records import Guard
from kernel_magics.cell.parse import parse
from kernel_magics.display import messages
from kernel_magics.display.record_view import Run
from kernel_magics.run.cell_timer import CellTimer
from kernel_magics.run.experiments import EXPERIMENTS, CellExperiments, _differences
from kernel_magics.run.request import Request

CELL = "h = torch.tanh(x @ w)\nloss = h.square().mean()\nloss.backward()\nseen.append(1)"


def experiments(shell: InteractiveShell, cell: str = CELL, options: str = "", **request: Any) -> CellExperiments:
    """Runs a cell, and returns the experiments with it."""
    setup = "x = torch.randn(6, 4)\nw = torch.nn.Parameter(torch.randn(4, 4))\nseen = []"
    with capture_output():
        shell.run_cell(setup).raise_error()
        shell.run_cell(f"%%compile {options}\n{cell}", store_history=True).raise_error()
    return CellExperiments(CellTimer(shell, parse(shell, cell), Request(**request)), kernel_magics.last_record())


def tried(experiments: CellExperiments, name: str, guard: Guard | None = None) -> Run:
    return experiments.run(name, guard, lambda text, share: None)


def why(experiments: CellExperiments) -> dict[str, str]:
    return {choice["name"]: choice["why"] for choice in experiments.choices()}


def test_each_experiment_answers_in_its_pane_and_changes_nothing(magics: InteractiveShell) -> None:
    found = experiments(magics)
    assert not any(why(found).values())  # the advice is to capture the backward
    assert set(EXPERIMENTS) == set(messages.EXPERIMENTS)
    names, own = magics.user_ns, kernel_magics.last_record()
    before = names["w"].grad.clone(), list(names["seen"]), names["h"], torch.get_rng_state()
    steps, curve, dynamic = (tried(found, name).record for name in ("steps", "memory-curve", "dynamic"))
    machine = tried(found, "machine").record
    assert any(artifact.pane == "machine" for compile_ in machine.compiles for artifact in compile_.artifacts)
    assert any(compile_.steps for compile_ in steps.compiles)
    assert any(compile_.partition and len(compile_.partition.curve) > 1 for compile_ in curve.compiles)
    assert any(symbol.source.endswith("size()[0]") for symbol in dynamic.compiles[0].symbols)
    for record in (steps, curve, dynamic):
        assert record.comparison is not None
        assert (record.comparison.before, record.comparison.values) == (own.title, {})
    assert tried(found, "measure").record is own
    assert all(kernel.time_ns for compile_ in own.compiles for kernel in compile_.kernels)
    assert tried(found, "check").pane == "accuracy"
    assert any(compile_.accuracy for compile_ in own.compiles)
    assert torch.equal(names["w"].grad, before[0])
    assert (names["seen"], names["h"]) == before[1:3]
    assert torch.equal(torch.get_rng_state(), before[3])


def test_rounding_that_an_optimizer_makes_large_is_no_difference() -> None:
    gradient = torch.tensor([1e-9])
    before: dict[str, object] = {"w": torch.tensor([0.0]), "w.grad": gradient, "y": torch.tensor([0.0])}
    after: dict[str, object] = {"w": torch.tensor([1e-2]), "w.grad": -gradient, "y": torch.tensor([0.1])}
    assert [name for name, _ in _differences(after, before)] == ["y"]
    after["w.grad"] = torch.tensor([1.0])
    assert [name for name, _ in _differences(after, before)] == ["w", "w.grad", "y"]


def test_a_size_is_that_of_what_the_cell_reads(magics: InteractiveShell) -> None:
    found = experiments(magics, "a, b, c = (x[:2].clone() for _ in range(3))")
    assert "another size: 6 → 3 rows" in [choice["label"] for choice in found.choices()]


def test_another_size_shows_whether_it_recompiles(magics: InteractiveShell) -> None:
    found = experiments(magics)
    assert "another size: 6 → 3 rows" in [choice["label"] for choice in found.choices()]
    run = tried(found, "size")
    assert [problem.kind for problem in run.record.problems].count("recompile") == 1
    assert run.record.comparison is not None
    assert run.record.comparison.values == {}
    assert magics.user_ns["x"].shape == (6, 4)


def test_without_a_guard_a_run_may_be_wrong_and_says_so(magics: InteractiveShell) -> None:
    counter = """class M:
    calls = 1
    def __call__(self, x):
        self.calls += 1
        return x * self.calls
m = M()"""
    with capture_output():
        magics.run_cell(counter).raise_error()
    found = experiments(magics, "for _ in range(2):\n    z = m(x)")
    guards = [guard for compile_ in kernel_magics.last_record().compiles for guard in compile_.guards]
    run = tried(found, "guard", next(guard for guard in guards if "calls ==" in guard.code)).record
    assert run.comparison is not None
    assert "(plain PyTorch / this run)" in (run.comparison.values or {})["z"]
    assert run.options["dropped_guard"].endswith(" of G['m'].calls")
    assert [total.after for total in run.comparison.totals if total.name == "recompiles"] == [0]
    other = tried(found, "dynamic").record.comparison
    assert other is not None
    assert other.values == {}  # the guard is back
    with pytest.raises(UsageError, match="no guard is pinned"):
        tried(found, "guard")


@pytest.mark.usefixtures("fresh_stock")
def test_stock_is_set_beside(magics: InteractiveShell) -> None:
    run = tried(experiments(magics, options="--backend aot_eager", backend="aot_eager"), "stock")
    assert run.record.engine == "torch"
    assert run.record.comparison is not None
    assert run.record.comparison.values == {}


@pytest.mark.parametrize(
    ("cell", "options", "name", "reason"),
    [
        ("torch.ones(3).sin()", {}, "size", "no tensor that the cell reads has rows"),
        ("torch.ones(3).sin()", {}, "memory-curve", "nothing is saved for a backward"),
        ("x.sin()", {"steps": True}, "steps", "the cell already ran like this"),
        ("y = 1", {}, "measure", "there are no kernels"),
    ],
)
def test_why_an_experiment_cannot_be_made(
    magics: InteractiveShell, cell: str, options: dict[str, Any], name: str, reason: str
) -> None:
    found = experiments(magics, cell, **options)
    assert why(found)[name] == reason
    with pytest.raises(UsageError, match=reason):
        tried(found, name)


def test_what_cannot_be_undone_is_not_tried(magics: InteractiveShell) -> None:
    magics.user_ns["numbers"] = iter(range(9))
    found = experiments(magics, "y = x + next(numbers)")
    with pytest.raises(UsageError, match="an iterator"):
        tried(found, "dynamic")
    assert next(magics.user_ns["numbers"]) == 1
