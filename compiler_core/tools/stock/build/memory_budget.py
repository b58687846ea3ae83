"""Limits the memory that a record of stock `torch.compile` takes: which trace events are kept.

Each event counts with an estimate of the bytes that it takes in the record.  Events are kept by priority, by leaving a
share of the budget free: texts without a pane leave some to those with one, all texts leave some to the times and
outcomes of whole compiles, and these leave some to compiles and frames themselves.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from compiler_core.records import limits
from compiler_core.tools.stock.read.trace_event import TraceEvent

COMPILE_BYTES = 4000
"""Bytes of a compile and its frame."""
PHASE_BYTES, OBJECT_BYTES, EDGE_BYTES = 300, 2000, 160
"""Bytes of the time of a phase, of an event without a payload, and of an edge of a graph."""


@dataclass(frozen=True)
class Cost:
    """How events of one kind are counted: their name in notes, and the bytes that each line of a payload adds."""

    label: str = "other texts"
    bytes_per_line: int = 0
    reserve: float = 0.3
    """The share of the budget that these events leave free for others."""


class MemoryBudget:
    """Bytes left for a record, and counts of what did not fit."""

    def __init__(self, total: int | None = None) -> None:
        """`total`: bytes of the budget; `limits.MEMORY` by default."""
        self._total = limits.MEMORY if total is None else total
        self._left = self._total
        self.left_out: Counter[str] = Counter()

    def reserve(self, size: int, keep_free: float = 0.0) -> bool:
        """Takes `size` bytes if the share `keep_free` of the budget stays free; returns whether it did."""
        if self._left - size < keep_free * self._total:
            return False
        self._left -= size
        return True

    def charge(self, size: int) -> None:
        """Takes bytes that became known only after they were used; the budget may become negative."""
        self._left -= size

    def accepts(self, event: TraceEvent, cost: Cost) -> bool:
        """Takes the bytes of `event` if they fit; otherwise counts it as left out and returns False."""
        fits = self.reserve(_estimated_bytes(event, cost), cost.reserve)
        if not fits:
            self.left_out[cost.label] += 1
        return fits

    def note(self) -> str:
        """Returns a sentence that lists what was left out; empty if nothing was."""
        counts = ", ".join(f"{number:,} {label}" for label, number in sorted(self.left_out.items()) if number)
        limit = f"beyond {self._total / limits.MIB:,.4g} MiB, or another limit"
        return f"Left out of PyTorch's trace ({limit}): {counts}." if counts else ""


def _estimated_bytes(event: TraceEvent, cost: Cost) -> int:
    if event.name == "chromium_event":
        return PHASE_BYTES
    if not event.payload:
        return OBJECT_BYTES + 10 * event.metadata_size
    # __sizeof__, since a character takes one to four bytes
    lines = event.payload.count("\n") + 1
    return OBJECT_BYTES // 4 + event.payload.__sizeof__() + cost.bytes_per_line * lines
