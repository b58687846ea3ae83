"""The checked options of one magic, and the function that compiles a cell's units with them."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from compiler_core.config import CodeEdit, GraphPass
from compiler_core.records import Guard, Record
from kernel_magics.cell.parse import Program, Unit
from kernel_magics.display.record_view import warn
from kernel_magics.run import stock
from kernel_magics.run.snapshots import ATTRIBUTE_LOADS, held_codes, names_read
from kernel_magics.startup import version_trial


@dataclass(frozen=True)
class Request:
    """The checked options of one magic."""

    backend: str | Callable[..., Any] | None = None
    fullgraph: bool = False
    target: str | None = None
    strict: bool = False
    steps: bool = False
    frames: bool = False
    memory_budget: float = 1.0
    memory_curve: bool = False
    capture_backward: bool | None = None
    """Whether a backward stays in the graph, if an option says so (`keeps_backward`)."""
    trains: bool = dataclasses.field(default=False, compare=False)
    """Whether the program takes a step of training."""
    save: str | None = None
    engine: str = "core"
    leaves_open: bool = dataclasses.field(default=False, compare=False)
    """Whether no option says how the cell is compiled."""
    as_written: str = dataclasses.field(default="", compare=False)
    """How the cell uses stock `torch.compile` itself, if it runs as written for that reason (`own_compiles`)."""
    dynamic: bool = False
    mode: str | None = None
    options: dict[str, Any] | None = None
    logs: bool = False
    keep_apart: tuple[tuple[str, str], ...] = ()
    force_fuse: tuple[tuple[str, str], ...] = ()
    block_sizes: tuple[tuple[str, str, int], ...] = ()
    measure: bool = False
    check: bool = False
    tune: bool = False
    passes: tuple[GraphPass, ...] = ()
    edits: tuple[CodeEdit, ...] = ()
    time: tuple[str, ...] | None = None
    """The forms to time besides plain PyTorch and that of the cell; None: nothing is timed."""
    try_advice: bool = False
    """Whether the advice on each problem is tried after the cell."""
    cover: tuple[str, ...] = ()
    """The panes to cover until a prediction is made."""
    dropped_guard: tuple[str, str] | None = None
    """The kind and the source of the guards that an experiment leaves out."""

    @property
    def keeps_backward(self) -> bool:
        """Whether a backward stays in the graph.

        If no option says so, that of a step of training does, unless an option or a pass is about the partition into
        a forward and a backward, or the backend is not ours: it may not know `torch.autograd.grad`.
        """
        if self.capture_backward is not None:
            return self.capture_backward
        of_halves = self.memory_budget < 1 or self.memory_curve or any(each.at == "backward" for each in self.passes)
        return self.trains and self.engine == "core" and self.backend in (None, "cpp", "triton") and not of_halves

    def blocks_by_kernel(self) -> dict[str, dict[str, int]]:
        """Returns the block sizes of each kernel, by their names."""
        found: dict[str, dict[str, int]] = {}
        for kernel, name, value in self.block_sizes:
            found.setdefault(kernel, {})[name] = value
        return found

    def as_text(self) -> dict[str, str]:
        """Returns the options that were given, as text for the record."""
        given = {"backend": getattr(self.backend, "__name__", self.backend)}
        given |= {name: getattr(self, name) for name in _SHOWN_AS_GIVEN} | {"capture_backward": self.keeps_backward}
        for name in ("keep_apart", "force_fuse"):
            given[name] = " ".join(",".join(pair) for pair in getattr(self, name)) or None
        given["block_sizes"] = " ".join(f"{kernel}:{name}={n}" for kernel, name, n in self.block_sizes) or None
        given["passes"] = " ".join(f"{each.name}@{each.at}" for each in self.passes) or None
        given["edits"] = " ".join(each.name for each in self.edits) or None
        given["dropped_guard"] = " of ".join(self.dropped_guard) if self.dropped_guard else None
        given["memory_budget"] = self.memory_budget if self.memory_budget < 1 else None
        return {name: str(value) for name, value in given.items() if value not in (None, False)}


_SHOWN_AS_GIVEN = (
    *("target", "fullgraph", "strict", "tune", "memory_curve", "dynamic", "mode", "options"),
    *("frames", "check", "measure", "steps"),
)


def with_training(request: Request, program: Program, namespace: dict[str, Any]) -> Request:
    """Notes whether a program takes a step of training: whether it, or a function or an object of the namespace that it
    uses, reads an attribute ``backward`` and an attribute ``step``."""
    codes = [program.skeleton, *program.units]
    codes += held_codes(namespace, codes)
    read = set[str]().union(*(names_read(code, ATTRIBUTE_LOADS) for code in codes))
    return dataclasses.replace(request, trains={"backward", "step"} <= read)


def request_for(request: Request, engine: str, **changes: Any) -> Request:
    """Returns the request for one engine, without the options that only the other engine has."""
    other: dict[str, Any] = {"mode": None, "options": None, "logs": False, "as_written": ""}
    if engine == "torch":
        other = {"target": None, "strict": False}
        other["backend"] = None if request.backend in ("cpp", "triton") else request.backend
    return dataclasses.replace(request, engine=engine, **other, **changes)


@contextmanager
def open_record(request: Request, title: str) -> Iterator[Record]:
    """Records what is compiled inside a ``with`` block."""
    if request.engine == "core" and version_trial.core_engine_problem():
        yield Record(title=title, options=request.as_text())
        return
    from compiler_core.tools.recording import record as recording

    engine: Literal["core", "torch"] = "torch" if request.engine == "torch" else "core"
    with recording(title, engine=engine, steps=request.steps, logs=request.logs, frames=request.frames) as record:
        record.options = request.as_text()
        yield record


def unit_compiler(request: Request, record: Record) -> Callable[[types.FunctionType], Unit]:
    """Returns the function that compiles a unit with the chosen engine; the identity if the engine does not work."""
    if request.as_written:
        return lambda unit: unit
    if request.engine == "core":
        return _core_compiler(request, record)
    chosen = {"backend": request.backend, "mode": request.mode, "options": request.options}
    dynamic = request.dynamic or None
    return stock.unit_compiler(request.passes, request.edits, fullgraph=request.fullgraph, dynamic=dynamic, **chosen)


def _core_compiler(request: Request, record: Record) -> Callable[[types.FunctionType], Unit]:
    if reason := version_trial.core_engine_problem():
        record.notes.append(f"The cell ran as plain Python: the core engine does not work here ({reason}).")
        warn(record.notes[-1])
        return lambda unit: unit
    from compiler_core.api import compile as api

    dropped = request.dropped_guard

    def keep(guards: list[Guard]) -> list[bool]:
        return [(guard.kind, guard.source) != dropped for guard in guards]

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
            capture_backward=request.keeps_backward,
            mode=request.mode or "default",
            keep_apart=request.keep_apart,
            force_fuse=request.force_fuse,
            tune=request.tune,
            passes=request.passes,
            edits=request.edits,
            block_sizes=request.blocks_by_kernel(),
            guard_filter=keep if dropped else None,
        )
        return compiled

    return compile_unit


def fresh(compile_unit: Callable[[types.FunctionType], Unit]) -> Callable[[types.FunctionType], Unit]:
    """Compiles copies of units: stock keeps what it compiled by code objects, and the cell's own stay free of it."""
    return lambda unit: compile_unit(types.FunctionType(unit.__code__.replace(), unit.__globals__))
