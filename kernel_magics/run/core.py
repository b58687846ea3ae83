"""Runs one cell or expression with one engine: returns its value, and shows and saves the record of its compiles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from IPython.core.error import UsageError

from compiler_core.errors import UsageError as WrongUse
from compiler_core.records import Record
from kernel_magics.cell import awaiting
from kernel_magics.cell.parse import CompileUnit, Program
from kernel_magics.display import export
from kernel_magics.display.record_view import RecordView, cell_labels, print_line, warn_on_error
from kernel_magics.run import edits, graph_passes
from kernel_magics.run.cell_timer import CellTimer
from kernel_magics.run.experiments import CellExperiments
from kernel_magics.run.request import Request, open_record, unit_compiler, with_training


@contextmanager
def recorded(request: Request, title: str, view: RecordView, timer: CellTimer) -> Iterator[Record]:
    """Records what is compiled inside the block; the record is shown during and after it, and saved if requested."""
    with ExitStack() as shown, open_record(request, title) as record:
        shown.push(lambda kind, *_: _finish_record(record, request, view, timer, kind))
        with warn_on_error("the explorer cannot be shown"):
            view.start(record)
        yield record


def _finish_record(
    record: Record, request: Request, view: RecordView, timer: CellTimer, raised: type[BaseException] | None
) -> None:
    """Completes a record after its cell has run, then shows it, also if that was interrupted, and saves it."""
    try:
        without_effect = _complete_record(record, request, view, timer, raised)
    finally:
        try:
            with warn_on_error("the record cannot be shown"):
                view.show(record)
        finally:
            view.end()
    if view.explorer is not None:  # the summary in a terminal has all notes
        for note in without_effect:
            print_line(note)
    save_if_requested(record, request)


def _complete_record(
    record: Record, request: Request, view: RecordView, timer: CellTimer, raised: type[BaseException] | None
) -> list[str]:
    """Adds to a record what is known once its cell has run: labels, notes, measurements, problems.

    Returns the notes on options that had no effect.
    """
    try:
        if raised is not None:
            record.raised = raised.__name__
        else:
            if request.time is not None:
                _time(timer, record, request.time, view)
            if request.try_advice:
                _try_advice(timer, record, view)
    finally:
        view.stop()
    if request.as_written:
        record.notes.append(_note_as_written(record, request))
    record.labels |= cell_labels(record)
    record.covered = list(request.cover)
    without_effect = _unknown_node_notes(record)
    if request.engine == "core":
        without_effect += graph_passes.notes(record, request.passes)
    record.notes += [*without_effect, *edits.notes(record, request.edits)]
    with warn_on_error("--measure"):
        if request.measure:
            from compiler_core.tools.measure import measure

            measure(record)
    with warn_on_error("--check"):
        if request.check:
            from compiler_core.tools.accuracy import check_accuracy

            check_accuracy(record)
    record.find_problems()
    if raised is not None:
        view.refuse_timing(f"the cell raised {raised.__name__}")
    else:
        view.offer_timing(lambda others, progress: timer.time(record, others, progress))
        view.offer_experiments(CellExperiments(timer, record))
    return without_effect


def _time(timer: CellTimer, record: Record, others: tuple[str, ...], view: RecordView) -> None:
    """Times the cell for ``--time``; a refusal, and that it was stopped, become notes of the record."""
    record.find_problems()
    try:
        with warn_on_error("--time"):
            try:
                timer.time(record, others, view.show_progress)
            except WrongUse as refusal:
                record.notes.append(f"--time: not timed: {refusal}.")
    except KeyboardInterrupt:
        record.notes.append("--time: stopped; nothing was timed.")


def _try_advice(timer: CellTimer, record: Record, view: RecordView) -> None:
    """Tries the advice for ``--try-advice``; that it was stopped becomes a note of the record."""
    record.find_problems()
    try:
        with warn_on_error("--try-advice"):
            CellExperiments(timer, record).try_advice(view.show_progress)
    except KeyboardInterrupt:
        record.notes.append("--try-advice: stopped; no advice was tried.")


def _unknown_node_notes(record: Record) -> list[str]:
    """Returns a note for each pair of `--keep-apart` and `--force-fuse` whose nodes are in no graph."""
    refused = [{(r.first, r.second) for r in c.refusals if r.kind == "unknown"} for c in record.compiles if c.kernels]
    pairs = set.intersection(*refused) if refused else set()
    return [
        f"--keep-apart, --force-fuse: no graph has both nodes {a} and {b}; the graph panes show the nodes' names"
        for a, b in sorted(pairs)
    ]


def save_if_requested(record: Record, request: Request) -> None:
    """Writes the record to the path of ``--save``, if it was given."""
    if request.save:
        with warn_on_error(f"--save {request.save}"):
            print_line(f"Saved {export.save(record, request.save)}")


def run(shell: Any, program: Program, request: Request, title: str, view: RecordView) -> object:
    """Runs the program and returns the value of its last expression.

    Raises UsageError if the program awaits and an event loop is already running (`run_awaiting` is for that).
    """
    if program.is_async and awaiting.loop_is_running():
        raise UsageError(
            "%compile cannot await here, because the kernel's event loop is already running; use %%compile"
        )
    with _recorded_program(shell, program, request, title, view) as compile_unit:
        return program.run(shell.user_ns, compile_unit, shell.loop_runner)


async def run_awaiting(shell: Any, program: Program, request: Request, title: str, view: RecordView) -> object:
    """Like `run`, for a cell that awaits, in the kernel's event loop."""
    with _recorded_program(shell, program, request, title, view) as compile_unit:
        return await program.run_awaiting(shell.user_ns, compile_unit)


@contextmanager
def _recorded_program(
    shell: Any, program: Program, request: Request, title: str, view: RecordView
) -> Iterator[CompileUnit]:
    """Records what is compiled inside the block; yields the function that compiles the program's units."""
    if request.leaves_open:
        from kernel_magics.run.own_compiles import as_written  # imports PyTorch

        request = as_written(request, program, shell.user_ns)
    if request.engine == "core":
        request = with_training(request, program, shell.user_ns)
    with recorded(request, title, view, CellTimer(shell, program, request)) as record:
        record.source(program.filename, 1, program.source.splitlines())
        if not request.as_written:
            record.notes += program.notes
        yield unit_compiler(request, record)


def _note_as_written(record: Record, request: Request) -> str:
    """Returns what the reader is to know of a cell that ran as written."""
    did = "this is what stock torch.compile did." if record.compiles else "torch.compile compiled nothing in it."
    note = f"The cell {request.as_written}, so it ran as written, and {did}"
    if not record.compiles and not record.notes:  # else they say why
        note += (
            "  What it compiled before, `compiler_core.already_compiled(f)` opens; after `torch.compiler.reset()` it "
            "compiles again."
        )
    return f"{note}  `%%compile --engine core` compiles the whole cell by Cutaway's compiler."
