"""How much of a log is kept: each thing counts with about the bytes that it takes as a record.

What has no pane of its own leaves a part of the room to what has one; all that leaves some for the times and outcomes
of whole compiles, and those for compiles and their frames.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from compiler_core.records import limits
from compiler_core.stock.read.trace_event import Happened

COMPILE = 4000
"""Bytes of a compile and its frame."""
EVENT, OBJECT, EDGE = 300, 2000, 160
"""Bytes of a phase's time, of a thing that is told without a text, and of an edge of a graph."""


@dataclass(frozen=True)
class Cost:
    """What a text is called in a note, and the bytes that each of its lines takes once it is read."""

    what: str = "other texts"
    line: int = 0
    spare: float = 0.3
    """The share of the room that it leaves to others."""


class Room:
    """Counts down what is left of a budget, and counts what there was no room for."""

    def __init__(self, whole: int | None = None) -> None:
        self._whole = self._left = limits.MEMORY if whole is None else whole
        self.left_out: Counter[str] = Counter()

    def fits(self, size: int, spare: float = 0.0) -> bool:
        """Whether there is room for so many bytes beside the share that is spared; if so, they are taken."""
        if self._left - size < spare * self._whole:
            return False
        self._left -= size
        return True

    def charge(self, size: int) -> None:
        """Take what was found out later."""
        self._left -= size

    def keeps(self, told: Happened, cost: Cost) -> bool:
        """Whether there is room for something told; it is counted where there is none."""
        kept = self.fits(_size(told, cost), cost.spare)
        if not kept:
            self.left_out[cost.what] += 1
        return kept

    def note(self) -> str:
        """A sentence on what was left out; empty where nothing was."""
        parts = ", ".join(f"{number:,} {what}" for what, number in sorted(self.left_out.items()) if number)
        of = f"of what PyTorch told, which is kept up to about {self._whole / limits.MIB:,.4g} MiB"
        return f"Left out {of}: {parts}." if parts else ""


def _size(told: Happened, cost: Cost) -> int:
    if told.name == "chromium_event":
        return EVENT
    if not told.payload:
        return OBJECT + 10 * told.size
    # a character takes one to four bytes
    return OBJECT // 4 + told.payload.__sizeof__() + cost.line * (told.payload.count("\n") + 1)
