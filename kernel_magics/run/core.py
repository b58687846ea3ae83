"""Runs one cell or expression with one engine: returns its value, and shows and saves the record of its compiles."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

from IPython.core.error import UsageError
from IPython.core.getipython import get_ipython

from compiler_core.records import Record
from kernel_magics.cell import awaiting
from kernel_magics.cell.parse import Program, Unit
from kernel_magics.display import export
from kernel_magics.display.record_view import RecordView, print_line, warn, warn_on_error
from kernel_magics.run import stock
from kernel_magics.startup import version_trial


@dataclass(frozen=True)
class Request:
    """The checked options of one magic."""

    backend: str | Callable[..., Any] | None = None
    fullgraph: bool = False
    target: str | None = None
    strict: bool = False
    steps: bool = False
    memory_budget: float = 1.0
    memory_curve: bool = False
    save: str | None = None
    engine: str = "core"
    dynamic: bool = False
    mode: str | None = None
    options: dict[str, Any] | None = None
    logs: bool = False
    keep_apart: tuple[tuple[str, str], ...] = ()
    force_fuse: tuple[tuple[str, str], ...] = ()
    measure: bool = False
    check: bool = False
    tune: bool = False

    def as_text(self) -> dict[str, str]:
        """Returns the options that were given, as text for the record."""
        backend = getattr(self.backend, "__name__", self.backend)
        given = {"backend": backend, "target": self.target, "fullgraph": self.fullgraph, "strict": self.strict}
        given |= {"tune": self.tune, "memory_curve": self.memory_curve, "dynamic": self.dynamic}
        given |= {"mode": self.mode, "options": self.options}
        given |= {name: _pairs_text(getattr(self, name)) or None for name in ("keep_apart", "force_fuse")}
        given["memory_budget"] = self.memory_budget if self.memory_budget < 1 else None
        return {name: str(value) for name, value in given.items() if value not in (None, False)}


def _pairs_text(pairs: tuple[tuple[str, str], ...]) -> str:
    return " ".join(",".join(pair) for pair in pairs)


@contextmanager
def recorded(request: Request, title: str, view: RecordView) -> Iterator[Record]:
    """Records what is compiled inside the block; the record is shown during and after it, and saved if requested."""
    with ExitStack() as shown, _open_record(request, title) as record:
        shown.callback(_finish_record, record, request, view)
        with warn_on_error("the explorer cannot be shown"):
            view.start(record)
        yield record


def _finish_record(record: Record, request: Request, view: RecordView) -> None:
    """Completes a record after its cell has run: labels, notes, measurements; then shows and saves it."""
    view.stop()
    record.labels |= _cell_labels(record)
    record.notes += _unknown_node_notes(record)
    with warn_on_error("--measure"):
        if request.measure:
            from compiler_core.api.measure import measure

            measure(record)
    with warn_on_error("--check"):
        if request.check:
            from compiler_core.api.accuracy import check_accuracy

            check_accuracy(record)
    record.find_problems()
    with warn_on_error("the record cannot be shown"):
        view.show(record)
    save_if_requested(record, request)


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


def _cell_labels(record: Record) -> dict[str, str]:
    """Returns the label of each source that is a cell, as tracebacks name it: ``In[3]``."""
    shell = get_ipython()
    named = {s.name: shell.compile.format_code_name(s.name) for s in record.sources} if shell else {}
    return {filename: name[1] for filename, name in named.items() if name}


def _open_record(request: Request, title: str) -> AbstractContextManager[Record]:
    if request.engine == "core" and version_trial.core_engine_problem():
        return nullcontext(Record(title=title, options=request.as_text()))
    from compiler_core.api import compile as api

    engine: Literal["core", "torch"] = "torch" if request.engine == "torch" else "core"
    return api.record(title, engine=engine, steps=request.steps, logs=request.logs, **request.as_text())


def run(shell: Any, program: Program, request: Request, title: str, view: RecordView) -> object:
    """Runs the program and returns the value of its last expression.

    Raises UsageError if the program awaits and an event loop is already running (`run_awaiting` is for that).
    """
    if program.is_async and awaiting.loop_is_running():
        raise UsageError(
            "%compile cannot await here, because the kernel's event loop is already running; use %%compile"
        )
    with _recorded_program(program, request, title, view) as record:
        return program.run(shell.user_ns, _unit_compiler(request, record), shell.loop_runner)


async def run_awaiting(shell: Any, program: Program, request: Request, title: str, view: RecordView) -> object:
    """Like `run`, for a cell that awaits, in the kernel's event loop."""
    with _recorded_program(program, request, title, view) as record:
        return await program.run_awaiting(shell.user_ns, _unit_compiler(request, record))


@contextmanager
def _recorded_program(program: Program, request: Request, title: str, view: RecordView) -> Iterator[Record]:
    with recorded(request, title, view) as record:
        record.source(program.filename, 1, program.source.splitlines())
        record.notes += program.notes
        yield record


def _unit_compiler(request: Request, record: Record) -> Callable[[types.FunctionType], Unit]:
    """Returns the function that compiles a unit with the chosen engine; the identity if the engine does not work."""
    if request.engine == "core":
        return _core_compiler(request, record)
    chosen = {"backend": request.backend, "mode": request.mode, "options": request.options}
    return stock.unit_compiler(fullgraph=request.fullgraph, dynamic=request.dynamic or None, **chosen)


def _core_compiler(request: Request, record: Record) -> Callable[[types.FunctionType], Unit]:
    if reason := version_trial.core_engine_problem():
        record.notes.append(f"The cell ran as plain Python: the core engine does not work here ({reason}).")
        warn(record.notes[-1])
        return lambda unit: unit
    from compiler_core.api import compile as api

    def compile_unit(unit: types.FunctionType) -> Unit:
        compiled: Unit = api.compile(
            unit,
            backend=request.backend,
            fullgraph=request.fullgraph,
            dynamic=request.dynamic or None,
            target=request.target,
            strict=request.strict,
            steps=request.steps,
            memory_budget=request.memory_budget,
            memory_curve=request.memory_curve,
            mode=request.mode or "default",
            keep_apart=request.keep_apart,
            force_fuse=request.force_fuse,
            tune=request.tune,
        )
        return compiled

    return compile_unit
