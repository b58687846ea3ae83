"""From what stock `torch.compile` told to the record: a method for each thing that can happen.

The same code fills records while a compile runs (`observer`) and from a log (`logs`).  Cheap things are written at
once, so that progress shows; texts are read when the record closes, which costs the compile nothing.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from compiler_core.records import Compile, Frame, GraphBreak, Record, limits
from compiler_core.records.plain import MOST_INT, RecordError, echo
from compiler_core.stock.code import record_bytecode
from compiler_core.stock.deferred_text import Later
from compiler_core.stock.graphs import GRAPHS, Opened
from compiler_core.stock.guard_costs import estimate
from compiler_core.stock.kernels import Kernels
from compiler_core.stock.memory_budget import COMPILE, Cost, Room
from compiler_core.stock.read.guard_tree import read_guards
from compiler_core.stock.read.lines import Lines
from compiler_core.stock.read.messages import read_break, read_reason
from compiler_core.stock.read.trace_event import Happened

_RESUME = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)$")
_SILENT = frozenset({""})


class Filler:
    """Writes what it is told into one record."""

    def __init__(self, record: Record, began: int | None, files: bool = True, budget: int | None = None) -> None:
        """`began`: when the record was opened, in nanoseconds since the epoch; None: with the first thing told.
        `budget`: the bytes that the record may take, `limits.MEMORY` if not said."""
        self.record = record
        self.lines = Lines(record, files)
        self.later = Later()
        self.strings: dict[int, str] = {}
        self._began = began
        self.room = Room(budget)
        self._with_room: set[str] = set()
        """The compiles that are kept."""
        self._compiles_left_out = 0
        self._frames: dict[int, Frame] = {}
        self._opened: dict[str, Opened] = {}
        self._waiting: list[Happened] = []

    def hear(self, told: Happened) -> None:
        """Something happened: written now if that is cheap, else when the record closes."""
        if told.name in _SILENT or self._is_left_out(told):
            return
        if told.name in _JSON and len(told.payload) > limits.TEXT // 4:
            self.room.left_out["long entries"] += 1
            return
        is_mark = "\x00" in told.payload  # whose text is looked at when it is made
        if told.name in _AT_ONCE and (told.compile_id or self._opened or told.name == "str"):
            self._safely(told)
        elif is_mark or self._keeps(told):
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
        _resumes(self.record, self._opened.values())
        self.lines.flush()
        if self._compiles_left_out:
            kept = len(self._opened)
            self.record.notes.append(f"The first {kept:,} of {kept + self._compiles_left_out:,} compiles are kept.")
        if note := self.room.note():
            self.record.notes.append(note)

    def _is_left_out(self, told: Happened) -> bool:
        """Whether it belongs to a compile for which there is no room; the first thing that is told of one takes it."""
        if not told.compile_id or told.compile_id in self._with_room or told.name in _OF_NO_COMPILE:
            return False
        if len(self._with_room) < limits.FRAMES and self.room.fits(COMPILE):
            self._with_room.add(told.compile_id)
            return False
        self._compiles_left_out += told.name == "dynamo_start" and not told.attempt
        return True

    def _keeps(self, told: Happened) -> bool:
        cost = _COSTS.get(told.name, Cost())
        if told.name == "chromium_event" and '"entire_' in told.payload:
            cost = Cost("times of whole compiles", spare=0.15)
        kept = self.room.keeps(told, cost)
        if not kept and told.name == "dynamo_cpp_guards_str":
            self._of(told).compile.outcome = "compiled"
        return kept

    def _safely(self, told: Happened) -> None:
        try:
            if "\x00" in told.payload:
                told.payload = self._cut(self.later.whole(told.payload))
                if not self._keeps(told):
                    return
            _RULES.get(told.name, Filler._other)(self, told)
        except Exception as error:
            self._failed(told, error)

    def _cut(self, text: str) -> str:
        self.room.left_out["ends of long texts"] += len(text) > limits.TEXT
        return limits.cut(text, limits.TEXT)

    def _failed(self, told: Happened, error: Exception) -> None:
        message = f"what PyTorch told ({told.name}) could not be read: {type(error).__name__}: {limits.cut(str(error))}"
        opened = self._opened.get(told.compile_id)
        if opened is None:
            self._note(message)
        elif len(opened.compile.failures) < limits.NOTES:
            opened.compile.fail("backend", message, traceback.format_exc(limit=-5))
        else:
            self.room.left_out["failures to read it"] += 1

    def _note(self, note: str) -> None:
        if len(self.record.notes) < limits.NOTES:
            self.record.notes.append(note)
        else:
            self.room.left_out["notes"] += 1

    def _of(self, told: Happened) -> Opened:
        """The compile that something belongs to; what names none belongs to the latest."""
        id_ = told.compile_id or next(reversed(self._opened), "")
        if id_ not in self._opened:
            frame = self._frame(told)
            made = Compile(id_ or "0/0", frame.id, _record=self.record)
            frame.compiles.append(made)
            frame.calls += 1
            self._opened[id_] = Opened(made, Kernels(made), self.lines, self.room)
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
            text = limits.cut(str(text))
            if self.room.fits(2 * len(text) + 200):
                self.strings[int(number)] = text
            else:
                self.room.left_out["names of files"] += 1

    def _start(self, told: Happened) -> None:
        opened, frame = self._of(told), self._frame(told)
        stack = told.about.get("stack") if isinstance(told.about, dict) else None
        if not stack or frame.filename:
            return
        at = stack[-1]
        frame.name, frame.line = limits.cut(str(at.get("name", "?"))), int(at.get("line") or 0)
        frame.filename = limits.cut(str(at.get("file") or self.strings.get(at.get("filename"), "?")))
        if resume := _RESUME.match(frame.name):
            frame.name, frame.kind, frame.line = resume[1], "resume", int(resume[2])
        opened.compile.outcome = "running"
        self.lines.item(frame.filename, frame.line)

    def _time(self, told: Happened) -> None:
        """A phase begins (B), ends (E), or a moment is noted (i)."""
        moment = json.loads(told.payload) if told.payload else told.about
        if moment.get("ph") != "E" and not self._keeps(told):  # an end takes no room
            return
        self._began = self._began or int(moment["ts"] * 1000)
        at = int(moment["ts"] * 1000) - self._began
        if abs(at) > MOST_INT:
            raise RecordError(f"the time of {limits.cut(str(moment['name']))} is {echo(moment['ts'])}")
        self._of(told).phase(moment, at)

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
        place = (made.kind, *((line.filename, line.lineno, line.function, line.text) for line in stack))
        if place not in opened.break_places:  # an attempt that starts again tells it again
            opened.break_places.add(place)
            opened.compile.breaks.append(made)
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
        cause = None if compile_.cause else read_reason(told.payload)
        if cause is not None:
            before = self._opened.get(cause.of)
            guard = before.guard_of(cause.guard) if before else None
            if guard is not None:
                cause.guard, cause.source, cause.line = guard.code, guard.source, guard.line
            compile_.cause = cause
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
        self._of(told).symbol(told.about)

    def _metrics(self, told: Happened) -> None:
        compile_, about = self._of(told).compile, told.about
        text = json.dumps(about, indent=1, default=str)
        if self.room.fits(2 * len(text), Cost().spare):
            self._of(told).text(told.name, self._cut(text), told.attempt)
        else:
            self.room.left_out["other texts"] += 1
        if reason := about.get("cudagraph_skip_reason"):
            self._without_cudagraphs(compile_, reason)
        if about.get("fail_type"):
            reason = limits.cut(f"{about['fail_type']}: {about.get('fail_reason')}")
            compile_.outcome, compile_.reason = "failed", reason
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
        note = f"{compile_.id}: CUDA graphs were skipped: {limits.cut(str(reason))}"
        if note not in self.record.notes:
            self._note(note)

    def _version(self, told: Happened) -> None:
        self.record.versions["torch"] = str(json.loads(told.payload).get("pytorch_version"))

    def _other(self, told: Happened) -> None:
        text = told.payload or (json.dumps(told.about, indent=1, default=str) if told.about else "")
        if text:
            self._of(told).text(told.name, self._cut(text), told.attempt)

    def _end(self, opened: Opened) -> None:
        try:
            opened.close(self.strings)
        except Exception as error:
            opened.compile.fail("backend", f"{type(error).__name__}: {error}", traceback.format_exc())


def _resumes(record: Record, compiles: Iterable[Opened]) -> None:
    """Which break each resume function goes on after."""
    places: dict[tuple[str, int], tuple[str, GraphBreak]] = {}
    for opened in compiles:
        for break_ in opened.compile.breaks:
            if break_.stack:
                at = break_.stack[-1]
                places.setdefault((at.filename, at.lineno), (opened.compile.id, break_))
    for frame in record.frames:
        if frame.kind == "resume" and (found := places.get((frame.filename, frame.line))):
            frame.resumes = found[0]
            found[1].resumes.append(frame.id)


_JSON = frozenset({"chromium_event", "recompile_reasons", "torch_version"})
"""What is read as JSON, which may take twenty times its length."""
_OF_NO_COMPILE = frozenset({"str", "torch_version"})

_AT_ONCE: frozenset[str] = frozenset({"str", "dynamo_start", "chromium_event"})

_OF_NONE = frozenset({"torch_version"})
"""What is about the whole run; anything else that names no compile belongs to the latest."""

_COSTS: dict[str, Cost] = {
    **dict.fromkeys([*GRAPHS, "cutaway.pass"], Cost("graphs", line=700, spare=0.2)),
    "inductor_output_code": Cost("codes", line=400, spare=0.2),
    "dynamo_cpp_guards_str": Cost("lists of guards", line=800, spare=0.2),
    "dynamo_graph_break_reason": Cost("graph breaks", line=600, spare=0.2),
    "recompile_reasons": Cost("reasons for recompiles", spare=0.2),
    "chromium_event": Cost("times"),
    **dict.fromkeys(("compilation_metrics", "bwd_compilation_metrics"), Cost("outcomes", spare=0.15)),
    "create_symbol": Cost("symbols", spare=0.2),
    **dict.fromkeys(("cutaway.bytecode", "cutaway.steps"), Cost("bytecode and steps", spare=0.2)),
    **dict.fromkeys(("cutaway.kernel", "cutaway.refusal", "cutaway.autotuning"), Cost("kernels", spare=0.2)),
}
"""What is not of the other texts."""

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
