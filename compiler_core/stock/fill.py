"""From what stock `torch.compile` told to the record: a method for each thing that can happen.

The same code fills records while a compile runs (`observer`) and from a log (`logs`).  Cheap things are written at
once, so that progress shows; texts are read when the record closes, which costs the compile nothing.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable
from typing import Any

from compiler_core.record import Compile, Event, Frame, GraphBreak, Record
from compiler_core.stock.code import record_bytecode
from compiler_core.stock.graphs import GRAPHS, Opened
from compiler_core.stock.guard_costs import estimate
from compiler_core.stock.guard_tree import read_guards
from compiler_core.stock.happened import Happened
from compiler_core.stock.kernels import Kernels
from compiler_core.stock.later import Later
from compiler_core.stock.lines import Lines
from compiler_core.stock.stages import stage_of
from compiler_core.stock.told import read_break, read_reasons

MOST_NOTES = 100
EVENT, OBJECT = 300, 2000
"""Characters that count for an event, and for a thing told without a text."""
_WHOLE = frozenset({"compilation_metrics", "bwd_compilation_metrics"})
_RESUME = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)$")
_LOCAL = re.compile(r"^L\['(\w+)'\]")
_SILENT = frozenset({"", "str"})


class Filler:
    """Writes what it is told into one record."""

    def __init__(self, record: Record, began: int | None, files: bool = True, budget: int | None = None) -> None:
        """`began`: when the record was opened, in nanoseconds since the epoch; None: with the first thing told.
        `budget`: how many characters of text are kept; the last half is for what has a pane of its own."""
        self.record = record
        self.lines = Lines(record, files)
        self.later = Later()
        self.strings: dict[int, str] = {}
        self._began = began
        self._budget = self._left = budget
        self._left_out = 0
        self._frames: dict[int, Frame] = {}
        self._opened: dict[str, Opened] = {}
        self._waiting: list[Happened] = []

    def hear(self, told: Happened) -> None:
        """Something happened: written now if that is cheap, else when the record closes."""
        if told.name in _AT_ONCE and (told.compile_id or self._opened or told.name == "str"):
            if told.name != "chromium_event" or self._spends(EVENT, told):
                self._safely(told)
        elif told.name not in _SILENT and self._affords(told):
            self._waiting.append(told)

    def read(self) -> None:
        """Write what has waited."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if each.compile_id or self._opened or each.name in _OF_NONE:
                self._safely(each)

    def close(self) -> None:
        """Write all that only the whole tells."""
        self.read()
        for opened in self._opened.values():
            self._end(opened)
        self._resumes()
        self.lines.flush()
        if self._left_out:
            self.record.notes.append(
                f"{self._left_out:,} texts were left out: the log is longer than what is kept of it."
            )

    def _affords(self, told: Happened) -> bool:
        if not told.payload and told.name not in _WHOLE:
            return self._spends(OBJECT, told)
        kept = not told.payload or self._keeps(told.payload, spare=told.name not in _RULES)
        if not kept and told.name == "dynamo_cpp_guards_str":
            self._of(told).compile.outcome = "compiled"
        return kept

    def _spends(self, size: int, told: Happened) -> bool:
        """Whether the budget allows for an object of about this size; the time of a whole compile is always kept."""
        if self._left is None:
            return True
        self._left -= size
        return self._left > 0 or '"entire_' in told.payload

    def _keeps(self, text: str, spare: bool) -> bool:
        """Whether the budget allows for a text; what has no pane of its own gets half of it."""
        if self._left is None or self._budget is None:
            return True
        if self._left - len(text) < (self._budget // 2 if spare else 0):
            self._left_out += 1
            return False
        self._left -= len(text)
        return True

    def _safely(self, told: Happened) -> None:
        try:
            told.payload = self.later.whole(told.payload)
            _RULES.get(told.name, Filler._other)(self, told)
        except Exception as error:
            self._failed(told, error)

    def _failed(self, told: Happened, error: Exception) -> None:
        if len(self.record.notes) >= MOST_NOTES:
            return
        message = f"what PyTorch told ({told.name}) could not be read: {type(error).__name__}: {error}"
        if told.compile_id in self._opened:
            self._opened[told.compile_id].compile.fail("backend", message, traceback.format_exc())
        else:
            self.record.notes.append(message)

    def _of(self, told: Happened) -> Opened:
        """The compile that something belongs to; what names none belongs to the latest."""
        id_ = told.compile_id or next(reversed(self._opened), "")
        if id_ not in self._opened:
            frame = self._frame(told)
            made = Compile(id_ or "0/0", frame.id, _record=self.record)
            frame.compiles.append(made)
            frame.calls += 1
            self._opened[id_] = Opened(made, Kernels(made), self.lines)
        return self._opened[id_]

    def _frame(self, told: Happened) -> Frame:
        id_ = told.frame if told.frame is not None else -1 - (told.autograd or 0)
        if id_ not in self._frames:
            name = "compiled autograd" if told.frame is None else "?"
            self._frames[id_] = Frame(id_, name, "", 0, "root")
            self.record.frames.append(self._frames[id_])
        return self._frames[id_]

    def _string(self, told: Happened) -> None:
        if isinstance(told.about, (list, tuple)) and len(told.about) == 2:
            text, number = told.about
            self.strings[int(number)] = str(text)

    def _start(self, told: Happened) -> None:
        opened, frame = self._of(told), self._frame(told)
        stack = told.about.get("stack") if isinstance(told.about, dict) else None
        if not stack or frame.filename:
            return
        at = stack[-1]
        frame.name, frame.line = str(at.get("name", "?")), int(at.get("line") or 0)
        frame.filename = str(at.get("file") or self.strings.get(at.get("filename"), "?"))
        if resume := _RESUME.match(frame.name):
            frame.name, frame.kind, frame.line = resume[1], "resume", int(resume[2])
        opened.compile.outcome = "running"
        self.lines.item(frame.filename, frame.line)

    def _time(self, told: Happened) -> None:
        """A phase begins (B), ends (E), or a moment is noted (i)."""
        moment = json.loads(told.payload) if told.payload else told.about
        events, name, phase = self._of(told).compile.events, str(moment["name"]), moment.get("ph")
        self._began = self._began or int(moment["ts"] * 1000)
        at = int(moment["ts"] * 1000) - self._began
        if phase == "E":
            running = next((e for e in reversed(events) if e.end is None and e.name == name), None)
            if running is not None:
                running.end, running.outcome = at, "ok"
                self._of(told).compile._tell(running)
            return
        event = Event(stage_of(name), name, at)
        if phase == "i":
            event.end, event.outcome = at, "ok"
            event.detail = str(moment.get("args", {}).get("key") or "")
        events.append(event)
        self._of(told).compile._tell(event)

    def _graph(self, told: Happened) -> None:
        self._of(told).graph(told)

    def _pass(self, told: Happened) -> None:
        self._of(told).after_pass(told.about, told.payload)

    def _break(self, told: Happened) -> None:
        opened, found = self._of(told), read_break(told.payload)
        stack = [self.lines.stack_line(line) for line in found.stack]
        hints = [*found.hints, f"More about it: {found.link}"] if found.link else found.hints
        made = GraphBreak(
            f"b{len(opened.compile.breaks)}", found.kind, "\n".join(found.explanation), "\n".join(hints), stack
        )
        if all((made.kind, made.stack) != (b.kind, b.stack) for b in opened.compile.breaks):
            opened.compile.breaks.append(made)  # an attempt that starts again tells it again
        self._other(told)

    def _guards(self, told: Happened) -> None:
        compile_, found = self._of(told).compile, read_guards(told.payload)
        artifact = compile_.artifact("guards", "guards", "text", told.payload, found.spans)
        for guard in found.guards:
            if guard.key in found.at:
                guard.line = self.lines.ending(*found.at[guard.key])
                compile_.link(artifact.item(guard.key), [guard.line] if guard.line else [], "guard")
        compile_.guards, compile_.guards_ns = found.guards, found.cost_ns
        compile_.outcome = "compiled"
        estimate(found.guards, found.cost_ns)

    def _reasons(self, told: Happened) -> None:
        compile_ = self._of(told).compile
        for cause in read_reasons(told.payload):
            before = self._opened.get(cause.of)
            guard = (
                next((g for g in before.compile.guards if _is_of(g.source, g.code, cause.guard)), None)
                if before
                else None
            )
            if guard is not None:
                cause.guard, cause.source, cause.line = guard.code, guard.source, guard.line
            compile_.cause = compile_.cause or cause
        self._other(told)

    def _code(self, told: Happened) -> None:
        self._of(told).output_code(told.payload)

    def _kernel(self, told: Happened) -> None:
        self._of(told).kernels.made_of(*told.about)

    def _refusal(self, told: Happened) -> None:
        self._of(told).kernels.refused(*told.about)

    def _bytecode(self, told: Happened) -> None:
        record_bytecode(self._of(told).compile, self.lines, *told.about)

    def _steps(self, told: Happened) -> None:
        self._of(told).compile.steps.append(told.about)

    def _message(self, told: Happened) -> None:
        self._of(told).messages.setdefault(f"log.{told.about}", []).append(told.payload)

    def _described(self, told: Happened) -> None:
        """What PyTorch tells of the inputs: each source, tensor and storage."""
        about = {told.name.removeprefix("describe_"): told.about}
        self._of(told).messages.setdefault("inputs", []).append(json.dumps(about, default=str))

    def _symbol(self, told: Happened) -> None:
        self._of(told).symbols.append(told.about)

    def _metrics(self, told: Happened) -> None:
        compile_, about = self._of(told).compile, told.about
        text = json.dumps(about, indent=1, default=str)
        if self._keeps(text, spare=True):
            self._of(told).text(told.name, text, told.attempt)
        if reason := about.get("cudagraph_skip_reason"):
            self._without_cudagraphs(compile_, reason)
        if about.get("fail_type"):
            compile_.outcome, compile_.reason = "failed", f"{about['fail_type']}: {about.get('fail_reason')}"
        elif compile_.outcome == "running":
            compile_.outcome, compile_.reason = "skipped", "nothing was captured"

    def _autotuned(self, told: Happened) -> None:
        """The choices for one operation, the chosen one first, with their times in milliseconds."""
        name, tried = told.about
        rows = [f"{time:>12.4f} ms  {choice}" for time, choice in tried]
        self._of(told).messages.setdefault("autotuning", []).append("\n".join([name, *rows]))

    def _cudagraphs(self, told: Happened) -> None:
        self._without_cudagraphs(self._of(told).compile, told.about)

    def _without_cudagraphs(self, compile_: Compile, reason: str) -> None:
        note = f"{compile_.id}: CUDA graphs were skipped: {reason}"
        if note not in self.record.notes:
            self.record.notes.append(note)

    def _version(self, told: Happened) -> None:
        self.record.versions["torch"] = str(json.loads(told.payload).get("pytorch_version"))

    def _other(self, told: Happened) -> None:
        text = told.payload or (json.dumps(told.about, indent=1, default=str) if told.about else "")
        if text:
            self._of(told).text(told.name, text, told.attempt)

    def _end(self, opened: Opened) -> None:
        try:
            opened.close(self.strings)
        except Exception as error:
            opened.compile.fail("backend", f"{type(error).__name__}: {error}", traceback.format_exc())

    def _resumes(self) -> None:
        """Which break each resume function goes on after."""
        places: dict[tuple[str, int], tuple[str, GraphBreak]] = {}
        for opened in self._opened.values():
            for break_ in opened.compile.breaks:
                if break_.stack:
                    at = break_.stack[-1]
                    places.setdefault((at.filename, at.lineno), (opened.compile.id, break_))
        for frame in self.record.frames:
            if frame.kind == "resume" and (found := places.get((frame.filename, frame.line))):
                frame.resumes = found[0]
                found[1].resumes.append(frame.id)


def _is_of(source: str, code: str, why: str) -> bool:
    """Whether a reason speaks of a guard: it repeats its code, or names its tensor without the ``L[...]``."""
    name = _LOCAL.sub(r"\1", source)
    return bool(code) and (code == why or f"tensor '{name}'" in why)


_AT_ONCE: frozenset[str] = frozenset({"str", "dynamo_start", "chromium_event"})

_OF_NONE = frozenset({"torch_version"})
"""What is about the whole run; anything else that names no compile belongs to the latest."""

_RULES: dict[str, Callable[[Filler, Happened], Any]] = {
    "str": Filler._string,
    "dynamo_start": Filler._start,
    "chromium_event": Filler._time,
    "dynamo_graph_break_reason": Filler._break,
    "dynamo_cpp_guards_str": Filler._guards,
    "recompile_reasons": Filler._reasons,
    "inductor_output_code": Filler._code,
    "create_symbol": Filler._symbol,
    "torch_version": Filler._version,
    "compilation_metrics": Filler._metrics,
    "bwd_compilation_metrics": Filler._metrics,
    "cutaway.kernel": Filler._kernel,
    "cutaway.refusal": Filler._refusal,
    "cutaway.pass": Filler._pass,
    "cutaway.bytecode": Filler._bytecode,
    "cutaway.steps": Filler._steps,
    "cutaway.message": Filler._message,
    "cutaway.autotuning": Filler._autotuned,
    "cutaway.cudagraphs": Filler._cudagraphs,
    **dict.fromkeys(("describe_source", "describe_tensor", "describe_storage"), Filler._described),
    **dict.fromkeys(GRAPHS, Filler._graph),
}
