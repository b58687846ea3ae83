"""A record that is being built from trace events: finds the frame and the compile of each event."""

from __future__ import annotations

import copy
import functools
import traceback
import types
from collections.abc import Callable

from compiler_core.records import Compile, Frame, GraphBreak, Guard, Recompile, Record, limits
from compiler_core.records.capture import is_around_call
from compiler_core.records.recompiles import named
from compiler_core.tools.stock.build.compile_builder import CompileBuilder
from compiler_core.tools.stock.build.event_costs import cost_of
from compiler_core.tools.stock.build.memory_budget import MemoryBudget
from compiler_core.tools.stock.build.missed_entries import recompile_of
from compiler_core.tools.stock.read.breaks.stack_names import expressions_on_stack, is_of_result, stack_names
from compiler_core.tools.stock.read.trace_event import TraceEvent
from compiler_core.tools.stock.read.wrapped_calls import (
    argument_names,
    arguments_of_call,
    called_class,
    parameter_names,
    with_arguments,
)
from compiler_core.tools.stock.source_files import SourceFiles

_FIRST_SKIPPED = -1_000_000
"""The number of the first frame that PyTorch gave no id, downwards."""


class PartialRecord:
    """A record with its unfinished compiles, source lines and memory budget."""

    def __init__(self, record: Record, start_ns: int | None, read_files: bool, budget: MemoryBudget) -> None:
        """`start_ns`: when the record was opened, in nanoseconds since the epoch; None: at the first timed event."""
        self.record = record
        self.start_ns = start_ns
        self.lines = SourceFiles(record, read_files)
        self.budget = budget
        self.strings: dict[int, str] = {}
        """File names by the numbers that stand for them in the trace."""
        self.compiles: dict[str, CompileBuilder] = {}
        self._frames: dict[int, Frame] = {}
        self._on_stack: dict[int, list[str]] = {}
        """Of resume functions, by the number of the frame: what the user wrote for values of the stack."""
        self._wrapped_names: dict[int, dict[str, None]] = {}
        self.running: set[tuple[str, int]] = set()
        """The files and lines of the breaks whose resume functions called a function that was compiled."""
        self._argument_names: dict[int, dict[str, str]] = {}
        """Of functions around the calls of PyTorch's modules, by the number of the frame."""

    def compile_of(self, event: TraceEvent) -> CompileBuilder:
        """Returns the compile of an event, a new one if needed.  Events without an id belong to the latest compile."""
        id_ = event.compile_id or next(reversed(self.compiles), "")
        if id_ not in self.compiles:
            frame = self.frame_of(event)
            compile_ = Compile(id_ or "0/0", frame.id, _record=self.record)
            frame.compiles.append(compile_)
            frame.calls += 1
            self.compiles[id_] = CompileBuilder(compile_, self.lines, self.budget)
        return self.compiles[id_]

    def frame_of(self, event: TraceEvent) -> Frame:
        """Returns the frame of an event, a new one if needed.  Compiled autograd has no frame: its ids are negative."""
        id_ = event.frame_id if event.frame_id is not None else -1 - (event.compiled_autograd_id or 0)
        if id_ not in self._frames:
            name = "compiled autograd" if event.frame_id is None else "?"
            self._frames[id_] = Frame(id_, name, "", 0, "root")
            self.record.frames.append(self._frames[id_])
        return self._frames[id_]

    def add_skipped_frame(self, code: types.CodeType, reason: str) -> None:
        """Adds the frame of a function that was called and never compiled, once.  PyTorch gave it no id."""
        place = code.co_name, code.co_filename, code.co_firstlineno
        if all((each.name, each.filename, each.line) != place for each in self.record.frames):
            id_ = _FIRST_SKIPPED - len(self.record.frames)
            self.record.frames.append(Frame(id_, *place, "root", calls=1, skipped=reason))

    def accepts(self, event: TraceEvent) -> bool:
        """Takes the event's bytes from the budget; returns False if they do not fit."""
        fits = self.budget.accepts(event, cost_of(event))
        if not fits and event.name == "dynamo_cpp_guards_str":
            self.compile_of(event).compile.outcome = "compiled"
        return fits

    def truncate(self, text: str) -> str:
        """Cuts a text to `limits.TEXT` and counts it if it was longer."""
        if len(text) > limits.TEXT:
            self.budget.left_out["ends of long texts"] += 1
        return limits.truncate(text, limits.TEXT)

    def note(self, note: str) -> None:
        """Adds a note to the record, at most `limits.NOTES`."""
        if len(self.record.notes) < limits.NOTES:
            self.record.notes.append(note)
        else:
            self.budget.left_out["notes"] += 1

    def close(self) -> None:
        """Finishes all compiles and links resume functions to the graph breaks before them."""
        for builder in self.compiles.values():
            try:
                builder.close(self.strings, self.names(builder.compile))
            except Exception as error:
                builder.compile.fail("backend", f"{type(error).__name__}: {error}", traceback.format_exc())
        for builder in self.compiles.values():
            if builder.reasons:
                builder.compile.cause = self.recompile_of(builder)
        self._link_resume_functions()
        self.lines.flush()

    def recompile_of(self, builder: CompileBuilder) -> Recompile | None:
        """Returns the cause of a compile, from its reasons and from the guards that are known by now.

        Dynamo compiles one function around the calls of all of PyTorch's modules: a compile for another class of module
        is no recompile.
        """
        compiles = {each.compile: self.compiles.get(each.compile) for each in builder.reasons}
        guards = {id_: found.guard_index for id_, found in compiles.items() if found is not None}
        reasons = copy.deepcopy(builder.reasons)
        if is_around_call(self._frames[builder.compile.frame].filename):
            called = called_class(builder.compile.guards)
            others = {id_ for id_, index in guards.items() if called_class(index.guards) != called}
            reasons = [each for each in reasons if each.compile not in others]
        if not reasons:
            return None
        compile_ = builder.compile
        cause = recompile_of(reasons, guards, builder.guard_index, compile_.symbols)
        return _with_names(cause, self.names(compile_))

    def names(self, compile_: Compile) -> Callable[[str], str]:
        """Returns what puts the user's names into a text, for those that only Dynamo's function has."""
        frame = self._frames[compile_.frame]
        if frame.kind == "resume":
            guards = (guard for each in frame.compiles for guard in each.guards)
            return functools.partial(named, names=stack_names(self._expressions_on_stack(frame), guards))
        if is_around_call(frame.filename):
            of_call = arguments_of_call(compile_.caller.text) if compile_.caller else {}
            inside = self._argument_names.get(frame.id) or self._parameters_inside(frame, compile_)
            return functools.partial(with_arguments, names=inside or of_call)
        return str

    def _parameters_inside(self, frame: Frame, compile_: Compile) -> dict[str, str]:
        """Returns the names of ``args[0]`` and so on of the function of the user's that is called, such as one that
        `torch.no_grad` decorates."""
        files = {source.id: source.name for source in self.record.sources}
        called = {name.rpartition(".")[2] for name in frame.name.split(" or ")}
        for line in dict.fromkeys(guard.line for guard in compile_.guards if guard.line):
            id_, _, number = line.rpartition("#")
            if files.get(id_, frame.filename) != frame.filename:
                lines = self.lines.lines_of_file(files[id_])
                if names := parameter_names(lines, called, int(number)):
                    return names
        return {}

    def is_of_result(self, compile_: Compile, break_: GraphBreak) -> bool:
        """Returns whether a break is at a method of what an earlier break in its line has left."""
        frame = self._frames[compile_.frame]
        at = break_.place
        is_there = (
            frame.kind == "resume" and at is not None and (at.filename, at.lineno) == (frame.filename, frame.line)
        )
        return is_there and is_of_result(break_, self._expressions_on_stack(frame))

    def name_arguments(self, frame: Frame, guards: list[Guard]) -> None:
        """Finds the names for the function around the call of a module, from the guards of a compile of it."""
        module, _, name = called_class(guards).removeprefix("torch.").rpartition(".")
        is_torch = is_around_call(frame.filename) and called_class(guards).startswith("torch.")
        if is_torch and frame.id not in self._argument_names:
            self.name_wrapped(frame.id, name)
            names = argument_names(frame.filename, module, name, self.lines.lines_of_file)
            self._argument_names[frame.id] = names

    def name_wrapped(self, frame_id: int, name: str) -> None:
        """Names the frame around the call of what has this name; Dynamo has one frame for all that are called so."""
        names = self._wrapped_names.setdefault(frame_id, {})
        names[name] = None
        self._frames[frame_id].name = " or ".join(names)

    def _expressions_on_stack(self, frame: Frame) -> list[str]:
        """Returns what the user wrote for the last values of the stack that a resume function gets."""
        if frame.id not in self._on_stack:
            before = [b for c in self.record.compiles if c.frame < frame.id for b in c.breaks]
            at = [
                (b, line)
                for b in before
                for line in b.stack
                if (line.filename, line.lineno) == (frame.filename, frame.line)
            ]
            self._on_stack[frame.id] = expressions_on_stack(*at[-1]) if at else []
        return self._on_stack[frame.id]

    def _link_resume_functions(self) -> None:
        """Links each resume function to the latest break before it at its line; a line may break several times."""
        breaks: dict[tuple[str, int], list[tuple[Compile, GraphBreak]]] = {}
        for builder in self.compiles.values():
            for break_ in builder.compile.breaks:
                for place in {(at.filename, at.lineno) for at in break_.stack}:  # callers resume, too
                    breaks.setdefault(place, []).append((builder.compile, break_))
        for frame in self.record.frames:
            if frame.kind == "resume":
                before = [each for each in breaks.get((frame.filename, frame.line), ()) if each[0].frame < frame.id]
                if before:
                    compile_, break_ = max(before, key=lambda each: each[0].frame)
                    frame.resumes = compile_.id
                    break_.resumes.append(frame.id)
        for place in self.running.intersection(breaks):
            for _, break_ in breaks[place]:
                break_.is_last = False


def _with_names(cause: Recompile, names: Callable[[str], str]) -> Recompile:
    """Returns a cause with the user's expressions for values that only Dynamo's function has a name for."""
    for each in (cause, *cause.besides, *(failed for entry in cause.others for failed in entry.failed)):
        each.name, each.subject, each.item, each.expected = map(
            names, (each.name, each.subject, each.item, each.expected)
        )
    cause.text = names(cause.text)
    return cause
