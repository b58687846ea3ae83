"""Experiments with a cell that has run: it runs again with one thing changed, and is shown beside the first run.

The cell runs on the state that it finds now, which is restored at the end; what it prints and displays is dropped.  The
values of each run are compared with those of plain PyTorch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compiler_core.errors import UsageError
from compiler_core.records import Guard, Record
from compiler_core.records.differences import SourceEdit
from compiler_core.tools.questions.compare import compare
from kernel_magics.display.record_view import Run, cell_labels
from kernel_magics.run.cell_timer import CellTimer
from kernel_magics.run.fixes.live_code import fresh_code
from kernel_magics.run.fixes.trial import Fixes
from kernel_magics.run.request import Request, fresh, open_record, request_for, unit_compiler
from kernel_magics.run.silenced_output import silenced_output
from kernel_magics.run.snapshots import RANDOM_NOTE, names_read, value_difference, values_by_name

if TYPE_CHECKING:
    import torch

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Experiment:
    """What is tried; `pane` has its answer."""

    label: str
    pane: str
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The options of the cell that are changed."""


EXPERIMENTS = {
    "advice": Experiment("try the advice", "overview"),
    "measure": Experiment("time each kernel", "costs"),
    "check": Experiment("check kernels against plain PyTorch", "accuracy"),
    "machine": Experiment("record the machine code", "machine", {"target": "cpu"}),
    "steps": Experiment("record the steps of the capture", "steps", {"steps": True}),
    "frames": Experiment("record the Python frames", "frames", {"steps": True, "frames": True}),
    "memory-curve": Experiment("record the memory curve", "partition", {"memory_curve": True}),
    "dynamic": Experiment("dynamic sizes", "engines", {"dynamic": True}),
    "size": Experiment("another size", "engines"),
    "stock": Experiment("stock torch.compile", "engines", {"engine": "torch"}),
    "core": Experiment("Cutaway's compiler", "engines", {"engine": "core"}),
    "memory": Experiment("half of the saved bytes", "engines", {"memory_budget": 0.5}),
    "operators": Experiment("PyTorch's operators instead of kernels", "engines", {"backend": "aot_eager"}),
    "guard": Experiment("without the pinned guard", "engines"),
}


_OWN = "the cell uses torch.compile itself: change its arguments there"


class CellExperiments:
    """The experiments with a cell whose run has `record`."""

    def __init__(self, timer: CellTimer, record: Record) -> None:
        self._timer, self._record, self._request = timer, record, timer.request
        self._fixes = Fixes(timer, record)

    # ---- what can be tried

    def choices(self) -> list[dict[str, str]]:
        """Returns the name and the label of each experiment, and why it cannot be made; empty if it can be."""
        found = []
        for name, experiment in EXPERIMENTS.items():
            if name != self._request.engine.replace("torch", "stock"):
                found.append({"name": name, "label": self._label(name, experiment), "why": self._obstacle(name)})
        return found

    def _label(self, name: str, experiment: Experiment) -> str:
        if name == "size" and (rows := self._rows()):
            return f"{experiment.label}: {rows[0]} → {rows[1]} rows"
        return experiment.label

    def _obstacle(self, name: str) -> str:
        """Returns why an experiment cannot be made; empty if it can be."""
        compiles, is_core = self._record.compiles, self._request.engine == "core"
        if self._timer.program.is_async:
            return "the cell awaits"
        if name in ("measure", "check", "memory-curve", "guard", "memory", "operators", "machine") and not is_core:
            return "only for Cutaway's compiler"
        if name in ("measure", "check", "operators") and not any(compile_.kernels for compile_ in compiles):
            return "there are no kernels"
        if name in ("memory-curve", "memory") and not any(c.partition and c.partition.saved_count for c in compiles):
            return "nothing is saved for a backward"
        if name == "machine" and all(kernel.language != "cpp" for c in compiles for kernel in c.kernels):
            return "there are no kernels in C++"
        if name == "advice" and not self._fixes.offers:
            return "no advice can be tried on this cell"
        option = "target" if name == "machine" else name.replace("-", "_")
        if name in ("steps", "frames", "memory-curve", "dynamic", "machine") and getattr(self._request, option):
            return "the cell already ran like this"
        if name == "dynamic" and self._request.as_written:
            return _OWN
        if name == "size" and not self._rows():
            return "no tensor that the cell reads has rows"
        return ""

    def _rows(self) -> tuple[int, int] | None:
        """Returns the number of rows of the cell's inputs, and another one that can be tried."""
        sizes = [tensor.shape[0] for tensor in self._inputs().values()]
        rows = max(sizes, key=lambda rows: (sizes.count(rows), rows), default=0)
        return (rows, rows // 2 if rows > 1 else 2) if rows else None

    def _inputs(self) -> dict[str, torch.Tensor]:
        """Returns the tensors with rows that the cell reads, parameters left out, by their global name."""
        import torch

        names = set().union(*map(names_read, self._timer.program.units))
        found = {name: self._timer.shell.user_ns.get(name) for name in sorted(names)}
        return {
            name: value
            for name, value in found.items()
            if isinstance(value, torch.Tensor) and value.is_leaf and not value.requires_grad and value.dim()
        }

    def changes(self) -> list[tuple[int, SourceEdit]]:
        """Returns the changes that may remove a problem, and that no trial has refuted, each with the number of the
        problem."""
        return [(problem, fix.edit) for problem, fix in self._fixes.offers]

    # ---- trying

    def run_changed_code(self, number: int, progress: Progress) -> Run:
        """Tries one of `changes`; UsageError says why it is not offered, or why the cell cannot run again."""
        return self._fixes.run(number, progress)

    def try_advice(self, progress: Progress) -> None:
        """Tries all changes that the advice on the problems stands for; what came of it is in the record's problems."""
        self._fixes.run_all(progress)

    def run(self, name: str, guard: Guard | None, progress: Progress) -> Run:
        """Makes an experiment; `guard` is the one that it leaves out.  UsageError says why it cannot be made."""
        experiment = EXPERIMENTS[name]
        if obstacle := self._obstacle(name):
            raise UsageError(obstacle)
        if name == "advice":
            self.try_advice(progress)
            return Run(self._record, experiment.label, experiment.pane)
        if name in ("measure", "check"):
            return self._add_to_record(name, experiment, progress)
        request, label = self._changed(name, experiment, guard)
        made = self._run_again(request, label, progress, another_size=name == "size")
        return Run(made, label[0].upper() + label[1:], experiment.pane)

    def run_fused(self, name: str, kernels: Sequence[str], progress: Progress) -> Run:
        """Runs the cell again with two of its kernels joined (``join``) or one of them split (``split``), and times the
        kernels of both runs; UsageError says why it cannot."""
        from compiler_core.tools.inspection.what_if import fusion_rules, notes_of_rules

        join = [(kernels[0], kernels[1])] if name == "join" else []
        rules = fusion_rules(self._record, kernels if name == "split" else (), join)
        label = f"{' and '.join(kernels)} {'joined' if name == 'join' else 'split'}"
        run = self.run_changed(label, progress, passes=(*self._request.passes, *rules))
        self.time_kernels(run.record, notes_of_rules(self._record, run.record, rules))
        return run

    def run_changed(self, label: str, progress: Progress, marks: Sequence[tuple[str, int]] = (), **changes: Any) -> Run:
        """Runs the cell again with other options; UsageError says why it cannot.

        `marks` has names of tensors, and dimensions whose size is symbolic.
        """
        if self._timer.program.is_async:
            raise UsageError("the cell awaits")
        if self._request.as_written and changes and "engine" not in changes:
            raise UsageError(_OWN)
        request = dataclasses.replace(self._request, save=None, time=None)
        if "engine" in changes:
            request = request_for(request, changes.pop("engine"))
        request = dataclasses.replace(request, **changes)
        with self._marked(marks):
            return Run(self._run_again(request, label, progress, another_size=False), label, "engines")

    def time_kernels(self, record: Record, notes: Sequence[str]) -> None:
        """Times the kernels of the cell's record and of another run, and compares them again; `notes` are added."""
        from compiler_core.tools.measure import measure

        for each in (self._record, record):
            if each.engine == "core" and not any(kernel.time_ns for c in each.compiles for kernel in c.kernels):
                measure(each)
        before = record.comparison
        record.comparison = compare(self._record, record)
        if before is not None:
            record.comparison.values, record.comparison.notes = before.values, [*before.notes, *notes]

    @contextmanager
    def _marked(self, marks: Sequence[tuple[str, int]]) -> Iterator[None]:
        """Context manager in which sizes of tensors are marked as symbolic."""
        import torch

        from compiler_core.tools.inspection.what_if import remove_marks
        from compiler_core.torch_private import stock_mark_dynamic

        namespace = self._timer.shell.user_ns
        tensors = [(namespace.get(name), dim, name) for name, dim in marks]
        for tensor, dim, name in tensors:
            if not isinstance(tensor, torch.Tensor) or dim >= tensor.dim():
                raise UsageError(f"{name} is not a tensor with a dimension {dim}")
            stock_mark_dynamic(tensor, dim)
        try:
            yield
        finally:
            for tensor, _, _ in tensors:
                remove_marks(tensor)

    def _add_to_record(self, name: str, experiment: Experiment, progress: Progress) -> Run:
        """Adds times or errors of kernels to the record of the cell."""
        from compiler_core.tools.accuracy import check_accuracy
        from compiler_core.tools.measure import measure

        progress("running the kernels", 0.0)
        (measure if name == "measure" else check_accuracy)(self._record)
        return Run(self._record, experiment.label, experiment.pane)

    def _changed(self, name: str, experiment: Experiment, guard: Guard | None) -> tuple[Request, str]:
        """Returns the options of the experiment, and what it is called."""
        request = dataclasses.replace(self._request, save=None, time=None)
        if name in ("stock", "core"):
            return request_for(request, **experiment.changes), experiment.label
        if name == "guard":
            if guard is None:
                raise UsageError("no guard is pinned; click one in the pane Guards")
            left_out = guard.kind, guard.source  # its value may have changed since
            return dataclasses.replace(request, dropped_guard=left_out), f"without the guard of {guard.source}"
        label = self._label(name, experiment).removeprefix("record the ")
        return dataclasses.replace(request, **experiment.changes), label

    def _run_again(self, request: Request, label: str, progress: Progress, *, another_size: bool) -> Record:
        import torch

        timer = self._timer
        shell, program = timer.shell, timer.program
        state = timer.saved_state(progress)
        changes = [{}, self._inputs_of_another_size()] if another_size else [{}]
        expected: list[dict[str, object]] = []
        values: dict[str, str] = {}
        random_state = torch.get_rng_state()
        is_random = False

        def keep(value: object) -> None:
            nonlocal is_random
            expected.append(self._results(value))
            is_random |= not torch.equal(random_state, torch.get_rng_state())

        title = f"{self._record.title}, {label}"
        with silenced_output(shell):
            for change in changes:
                with self._replaced(change):
                    timer.rehearse(state, keep)
            progress("compiling it again", 0.0)
            with ExitStack() as around:
                around.enter_context(state.preserved())
                if request.as_written:
                    around.enter_context(fresh_code(self._record))
                record = around.enter_context(open_record(request, title))
                record.source(program.filename, 1, program.source.splitlines())
                record.notes += program.notes
                run = program.bind(shell.user_ns, fresh(unit_compiler(request, record)))
                for change, right in zip(changes, expected, strict=True):
                    state.restore()
                    with self._replaced(change):
                        values |= dict(_differences(self._results(run()), right))
        record.labels |= cell_labels(record)
        record.find_problems()
        record.comparison = compare(self._record, record)
        record.comparison.values = values
        if is_random and request.engine == "torch":
            record.comparison.random = RANDOM_NOTE
        return record

    def _inputs_of_another_size(self) -> dict[str, torch.Tensor]:
        import torch

        rows, others = self._rows() or (0, 0)
        inputs = {name: value for name, value in self._inputs().items() if value.shape[0] == rows}
        return {
            name: (value[:others] if others < rows else torch.cat([value] * others)).clone()
            for name, value in inputs.items()
        }

    @contextmanager
    def _replaced(self, values: dict[str, torch.Tensor]) -> Iterator[None]:
        """Context manager in which names of the cell have other values."""
        namespace = self._timer.shell.user_ns
        before = {name: namespace[name] for name in values}
        namespace.update(values)
        try:
            yield
        finally:
            namespace.update(before)

    def _results(self, value: object) -> dict[str, object]:
        """Returns copies of the tensors that the cell has changed: its value, and those of its names and modules."""
        import torch

        program = self._timer.program
        found = values_by_name(self._timer.shell.user_ns, (program.skeleton, *program.units), value)
        return {name: each.detach().clone() for name, each in found.items() if isinstance(each, torch.Tensor)}


def _differences(found: dict[str, object], expected: dict[str, object]) -> Iterator[tuple[str, str]]:
    """Yields the names whose values differ, and how.

    A parameter whose gradient is the same is left out: an optimizer such as Adam makes rounding errors of a gradient of
    nearly zero as large as a step.
    """
    differing = {name: value_difference(value, found.get(name)) for name, value in expected.items()}
    for name, how in differing.items():
        gradient = f"{name}.grad"
        if how and (gradient not in differing or differing[gradient]):
            yield name, f"{how} (plain PyTorch / this run)"
