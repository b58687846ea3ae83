"""Runs one cell with both engines and compares them: ``--engine core,torch``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from IPython.core.error import UsageError

from compiler_core.records import Record
from compiler_core.tools.questions.compare import compare
from kernel_magics.cell.parse import Program
from kernel_magics.display.record_view import EngineComparison, RecordView, print_line
from kernel_magics.display.storage import shown_records
from kernel_magics.run import outside_effects
from kernel_magics.run.core import run, save_if_requested
from kernel_magics.run.request import Request, request_for
from kernel_magics.run.silenced_output import silenced_output
from kernel_magics.run.snapshots import RANDOM_NOTE, Snapshot, value_difference

FORMS = {"core": "core", "torch": "stock"}
"""The form in which a cell is timed with an engine."""


@dataclass(frozen=True)
class Outcome:
    """The result of the cell with one engine."""

    record: Record | None
    value: object = None
    error: Exception | None = None


def run_both(shell: Any, program: Program, request: Request, title: str, view: RecordView) -> object:
    """Runs the cell once with each engine.

    Returns the first run's value, and its effects stay.  The second run works on copies of the state before the
    first, its output is not shown, and its effects on Python objects are undone.

    Raises UsageError for a cell that awaits, which would await twice.
    """
    if program.is_async:
        raise UsageError("--engine core,torch cannot run a cell that awaits, because it would await twice")
    import torch

    engines = request.engine.split(",")
    codes = [program.skeleton, *program.units]
    random_state = torch.get_rng_state()
    snapshot = Snapshot(shell.user_ns, codes)
    others = None if request.time is None else (*request.time, FORMS[engines[1]])
    # unless asked for, the step of training is divided as stock's is: the graphs are compared
    request = replace(request, capture_backward=bool(request.capture_backward))
    first_request = request_for(request, engines[0], save=None, time=others)
    first = _run_engine(shell, program, first_request, f"{title}, {engines[0]}", view)
    first_names = dict(shell.user_ns)
    is_random = not torch.equal(random_state, torch.get_rng_state())
    try:
        with (
            snapshot.restored() as now,
            silenced_output(shell),
            outside_effects.record_effects(shell.user_ns, snapshot.not_copied),
        ):
            second = _run_engine(
                shell,
                program,
                request_for(request, engines[1], save=None, time=None, try_advice=False),
                f"{title}, {engines[1]}",
                RecordView(),
            )
            second_names = now()
    finally:
        RecordView.latest = view
    if first.record is not None and second.record is not None:
        names = {name for name in snapshot.names if name in first_names or name in second_names}
        records = first.record, second.record
        found = first.record.comparison = compare(*records)
        found.values, found.shared = _differences(first, second, first_names, second_names, names), snapshot.not_copied
        if is_random:
            found.random = RANDOM_NOTE
        view.both = EngineComparison(records, found)
        shown_records.add(second.record)  # by name in the comparison
        # the explorer has the whole table
        print_line(str(found) if view.explorer is None else found.brief())
        view.refresh()
    if first.record is not None:
        save_if_requested(first.record, request)
    if first.error is not None:
        raise first.error
    return first.value


def _run_engine(shell: Any, program: Program, request: Request, title: str, view: RecordView) -> Outcome:
    try:
        value = run(shell, program, request, title, view)
    except Exception as error:
        return Outcome(view.record, error=error)
    return Outcome(view.record, value)


def _differences(
    first: Outcome, second: Outcome, first_names: dict[str, Any], second_names: dict[str, Any], names: set[str]
) -> dict[str, str]:
    errors = [f"{type(o.error).__name__}: {o.error}" if o.error else "no error" for o in (first, second)]
    found = {"error": " / ".join(errors)} if errors[0] != errors[1] else {}
    for name in sorted(names):
        if how := value_difference(first_names.get(name), second_names.get(name)):
            found[name] = how
    if how := value_difference(first.value, second.value):
        found["result"] = how
    return found
