"""One cell or expression through the compiler: the result to the caller, the record to the reader."""

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
from kernel_magics.display.view import View, guarded, say, warn
from kernel_magics.run import stock
from kernel_magics.startup import version_trial


@dataclass(frozen=True)
class Request:
    """The options of one magic, checked."""

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
        """Those that were given, for the record."""
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
def recorded(request: Request, title: str, view: View) -> Iterator[Record]:
    """A record of what is compiled inside, shown while it grows and afterwards, and saved."""
    with ExitStack() as shown, _open(request, title) as record:
        shown.callback(_show, record, request, view)
        with guarded("the explorer cannot be shown"):
            view.start(record)
        yield record


def _show(record: Record, request: Request, view: View) -> None:
    """What is left to do with a record once it is whole."""
    view.stop()
    record.labels |= _cells(record)
    record.notes += _unknown_nodes(record)
    with guarded("--measure"):
        if request.measure:
            from compiler_core.api.measure import measure

            measure(record)
    with guarded("--check"):
        if request.check:
            from compiler_core.api.accuracy import check_accuracy

            check_accuracy(record)
    with guarded("the record cannot be shown"):
        view.show(record)
    save(record, request)


def _unknown_nodes(record: Record) -> list[str]:
    """What `--keep-apart` and `--force-fuse` named and no graph has."""
    refused = [{(r.first, r.second) for r in c.refusals if r.kind == "unknown"} for c in record.compiles if c.kernels]
    pairs = set.intersection(*refused) if refused else set()
    return [
        f"--keep-apart, --force-fuse: no graph has both nodes {a} and {b}; their names stand in the graphs' panes"
        for a, b in sorted(pairs)
    ]


def save(record: Record, request: Request) -> None:
    """Write the record where it was asked for."""
    if request.save:
        with guarded(f"--save {request.save}"):
            say(f"Saved {export.save(record, request.save)}")


def _cells(record: Record) -> dict[str, str]:
    """The sources that are cells, by the name that tracebacks give them: ``In[3]``."""
    shell = get_ipython()
    named = {s.name: shell.compile.format_code_name(s.name) for s in record.sources} if shell else {}
    return {filename: name[1] for filename, name in named.items() if name}


def _open(request: Request, title: str) -> AbstractContextManager[Record]:
    if request.engine == "core" and version_trial.broken():
        return nullcontext(Record(title=title, options=request.as_text()))
    from compiler_core.api import compile as api

    engine: Literal["core", "torch"] = "torch" if request.engine == "torch" else "core"
    return api.record(title, engine=engine, steps=request.steps, logs=request.logs, **request.as_text())


def run(shell: Any, program: Program, request: Request, title: str, view: View) -> object:
    """The value of the program's last expression."""
    if program.is_async and awaiting.loop_is_running():
        raise UsageError("a loop runs already in this kernel, so this cannot await; a cell with %%compile can")
    with _running(program, request, title, view) as record:
        return program.run(shell.user_ns, _compiler(request, record), shell.loop_runner)


async def run_awaiting(shell: Any, program: Program, request: Request, title: str, view: View) -> object:
    """The same for a cell that awaits, in the kernel's own loop."""
    with _running(program, request, title, view) as record:
        return await program.run_awaiting(shell.user_ns, _compiler(request, record))


@contextmanager
def _running(program: Program, request: Request, title: str, view: View) -> Iterator[Record]:
    with recorded(request, title, view) as record:
        record.source(program.filename, 1, program.source.splitlines())
        record.notes += program.notes
        yield record


def _compiler(request: Request, record: Record) -> Callable[[types.FunctionType], Unit]:
    """What makes a unit of the cell run compiled; where the engine does not work here, nothing does."""
    if request.engine == "core":
        return _core(request, record)
    chosen = {"backend": request.backend, "mode": request.mode, "options": request.options}
    return stock.compiler(fullgraph=request.fullgraph, dynamic=request.dynamic or None, **chosen)


def _core(request: Request, record: Record) -> Callable[[types.FunctionType], Unit]:
    if reason := version_trial.broken():
        record.notes.append(f"The cell ran as plain Python: the core engine does not work here ({reason}).")
        warn(record.notes[-1])
        return lambda unit: unit
    from compiler_core.api import compile as api

    def compile_unit(unit: types.FunctionType) -> Unit:
        made: Unit = api.compile(
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
        return made

    return compile_unit
