"""Builds a record from the trace events of stock `torch.compile`.

The same code serves a compile that runs (`observer`) and a log (`trace_logs`).  Events that are cheap to write are
written at once, so that progress shows.  Events with long texts wait until the record is closed, so that parsing them
does not slow down the compile.
"""

from __future__ import annotations

import re
import traceback
from array import array
from collections import defaultdict

from compiler_core.records import Record, limits
from compiler_core.tools.stock.build.event_handlers import write_event
from compiler_core.tools.stock.build.memory_budget import COMPILE_BYTES, MemoryBudget
from compiler_core.tools.stock.build.partial_record import PartialRecord
from compiler_core.tools.stock.read.placeholders import Placeholders, is_deferred
from compiler_core.tools.stock.read.trace_event import TraceEvent

_JSON_EVENTS = frozenset({"chromium_event", "recompile_reasons", "torch_version"})
"""Events whose payload is parsed as JSON, which may take twenty times its length in memory."""
_BEGINS = re.compile(r'\{\s*"name": "dynamo",[^{}]*(?:\{[^{}]*\}[^{}]*)?"ph": "B"')
"""The phase in which everything of a compile is, as it begins."""
_IMMEDIATE_EVENTS = frozenset({"str", "dynamo_start", "chromium_event"})
_MAX_FRAMES = 1_000_000
"""Frames beyond keep PyTorch's numbers."""
_RUN_EVENTS = frozenset({"str", "torch_version", "cutaway.given_up"})
"""Events about the whole run; any other event without a compile id belongs to the latest compile."""


class _Numbers:
    """Small numbers by frame, four bytes each: a log may have a million frames."""

    def __init__(self) -> None:
        self._items = array("i")

    def __getitem__(self, frame: int) -> int:
        return self._items[frame] if frame < len(self._items) else -1

    def __setitem__(self, frame: int, number: int) -> None:
        self._items.extend([-1] * (frame + 1 - len(self._items)))
        self._items[frame] = number


class _FrameNumbers:
    """The numbers of frames.  PyTorch counts from 0 again after `torch._dynamo.reset`; a record does not."""

    def __init__(self) -> None:
        self._numbers = _Numbers()
        """The numbers in the record, by PyTorch's since the latest reset that is known."""
        self._next = 0
        self._latest = defaultdict[tuple[int | None, str], _Numbers](_Numbers)
        """The compile of a frame that has begun last, by number in compiled autograd and kind of event."""

    def renumber(self, event: TraceEvent) -> None:
        """Gives an event the number that its frame has in the record: another one if a compile begins again."""
        if event.frame_id is None or not 0 <= event.frame_id < _MAX_FRAMES or self._next >= _MAX_FRAMES:
            return
        frame, compile_ = self._numbers[event.frame_id], event.frame_compile_id or 0
        latest = self._latest[event.compiled_autograd_id, event.name] if _is_start(event) else None
        if frame < 0 or (latest is not None and latest[frame] >= compile_):
            frame = event.frame_id if frame < 0 and event.frame_id >= self._next else self._next
            self._numbers[event.frame_id] = frame
            self._next = max(self._next, frame + 1)
        if latest is not None:
            latest[frame] = min(compile_, _MAX_FRAMES)
        event.frame_id = frame


def _is_start(event: TraceEvent) -> bool:
    """Whether an event is the first one of a compile; `dynamo_start` is not far behind."""
    if event.name == "chromium_event":
        return _BEGINS.match(event.payload) is not None
    return event.name == "dynamo_start" and not event.attempt


class RecordBuilder:
    """Decides which events are kept and when they are written to the record."""

    def __init__(
        self, record: Record, start_ns: int | None, read_files: bool = True, budget: int | None = None
    ) -> None:
        """
        Args:
            record: the record to fill.
            start_ns: when it was opened, in nanoseconds since the epoch; None: at the time of the first event.
            read_files: whether source files may be read on this machine.
            budget: bytes that the record may take; `limits.MEMORY` by default.
        """
        self.budget = MemoryBudget(budget)
        self.deferred = Placeholders()
        self._partial = PartialRecord(record, start_ns, read_files, self.budget)
        self._kept_compiles: set[str] = set()
        self.latest_compile = ""
        """The id of the compile that the latest event with one belongs to."""
        self._compiles_left_out = 0
        self._frame_numbers = _FrameNumbers()
        self._pending: list[TraceEvent] = []

    def add_strings(self, strings: dict[int, str]) -> None:
        """Adds file names by the numbers that stand for them in the trace."""
        self._partial.strings.update(strings)

    def add(self, event: TraceEvent) -> None:
        """Adds an event: it is written now, or waits, or is counted as left out."""
        self._frame_numbers.renumber(event)
        self.latest_compile = event.compile_id or self.latest_compile
        if not event.name or self._is_left_out(event):
            return
        if event.name in _JSON_EVENTS and len(event.payload) > limits.TEXT // 4:
            self.budget.left_out["long entries"] += 1
            return
        deferred = is_deferred(event.payload)  # its size becomes known when it is printed
        has_compile = bool(event.compile_id or self._partial.compiles)
        if event.name in _IMMEDIATE_EVENTS and (has_compile or event.name in _RUN_EVENTS):
            self._write(event)
        elif deferred or self._partial.accepts(event):
            self._pending.append(event)

    def process_pending(self) -> None:
        """Writes the events that have waited."""
        pending, self._pending = self._pending, []
        for event in pending:
            if event.compile_id or self._partial.compiles or event.name in _RUN_EVENTS:
                self._write(event)

    def close(self) -> None:
        """Writes what is left, finishes the compiles, and adds notes about what was left out."""
        self.process_pending()
        self._partial.close()
        notes = self._partial.record.notes
        if self._compiles_left_out:
            kept = len(self._partial.compiles)
            notes.append(f"The first {kept:,} of {kept + self._compiles_left_out:,} compiles are kept.")
        if note := self.budget.note():
            notes.append(note)
        self._partial.record.find_problems()

    def _is_left_out(self, event: TraceEvent) -> bool:
        """Whether the event's compile does not fit; the first event of a compile takes the memory for it."""
        if not event.compile_id or event.compile_id in self._kept_compiles or event.name in _RUN_EVENTS:
            return False
        if len(self._kept_compiles) < limits.FRAMES and self.budget.reserve(COMPILE_BYTES):
            self._kept_compiles.add(event.compile_id)
            return False
        if event.name == "dynamo_start" and not event.attempt:
            self._compiles_left_out += 1
        return True

    def _write(self, event: TraceEvent) -> None:
        """Writes an event; a failure is noted in the record."""
        try:
            if is_deferred(event.payload):
                event.payload = self._partial.truncate(self.deferred.resolve(event.payload))
                if not self._partial.accepts(event):
                    return
            write_event(self._partial, event)
        except Exception as error:
            self._note_failure(event, error)

    def _note_failure(self, event: TraceEvent, error: Exception) -> None:
        reason = f"{type(error).__name__}: {limits.truncate(str(error))}"
        message = f"the event {event.name} of PyTorch's trace could not be read: {reason}"
        builder = self._partial.compiles.get(event.compile_id)
        if builder is None:
            self._partial.note(message)
        elif len(builder.compile.failures) < limits.NOTES:
            builder.compile.fail("backend", message, traceback.format_exc(limit=-5))
        else:
            self.budget.left_out["failures to read it"] += 1
