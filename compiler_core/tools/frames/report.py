"""The Python frames that ran in a compiled call, as a table and as a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from compiler_core.records.record import SeenFrame
from compiler_core.records.timings import plural, table_lines

MAX_LINES = 60
"""Lines of the table and of the tree that are printed."""
_ORDER = ("compiled", "inlined", "plain", "skipped")


@dataclass(frozen=True)
class FrameReport:
    """The frames of a record as a table and as a tree; `str` prints both."""

    frames: Sequence[SeenFrame]
    """`Record.seen`: the functions that ran, under each caller; callers come before what they call."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Names to show in place of file names (`Record.labels`)."""

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Returns a row for each function and fate: name, place, number of calls, outcome."""
        found: dict[tuple[str, str, str], int] = {}
        for frame in sorted(self.frames, key=lambda frame: _ORDER.index(frame.fate)):
            key = frame.name, self._place(frame), frame.outcome
            found[key] = found.get(key, 0) + frame.calls
        return [(name, place, f"{calls:,}", outcome) for (name, place, outcome), calls in found.items()]

    def table(self) -> str:
        """Returns the rows as text."""
        rows = self.rows()
        shown = [("function", "file", "calls", "outcome"), *rows[:MAX_LINES]]
        return "\n".join([*table_lines(shown), *_more(len(rows), "functions")])

    def tree(self) -> str:
        """Returns the functions below their callers; of skipped code that called only skipped code, its calls are
        counted."""
        lines = list(self._tree_lines())
        return "\n".join([*lines[:MAX_LINES], *_more(len(lines), "lines")])

    def __str__(self) -> str:
        return f"{self.table()}\n\n{self.tree()}" if self.frames else "no frames: nothing was compiled"

    def _tree_lines(self) -> Iterator[str]:
        called: dict[int | None, list[int]] = {}
        for i, frame in enumerate(self.frames):
            called.setdefault(frame.caller, []).append(i)
        inside = self._calls_inside()
        waiting = [(i, 0) for i in reversed(called.get(None, []))]
        while waiting:
            at, depth = waiting.pop()
            frame = self.frames[at]
            times = f" x{frame.calls:,}" if frame.calls > 1 else ""
            folded = inside[at]
            more = f" (and {folded:,} {plural('call', folded)} inside)" if folded else ""
            yield f"{'  ' * depth}{frame.name}{times}  {self._place(frame)}  {frame.outcome}{more}"
            if folded is None:
                waiting += [(i, depth + 1) for i in reversed(called.get(at, []))]

    def _calls_inside(self) -> list[int | None]:
        """Returns for each frame the number of calls below it, or None if some code in or below it was not skipped.

        Callers come before what they call.
        """
        inside: list[int | None] = [0 if frame.fate == "skipped" else None for frame in self.frames]
        for i in range(len(self.frames) - 1, -1, -1):
            frame, here = self.frames[i], inside[i]
            if frame.caller is not None:
                there = inside[frame.caller]
                inside[frame.caller] = None if here is None or there is None else there + here + frame.calls
        return inside

    def _place(self, frame: SeenFrame) -> str:
        name = self.labels.get(frame.filename) or "/".join(frame.filename.replace("\\", "/").split("/")[-2:])
        return f"{name}:{frame.line}"


def _more(count: int, what: str) -> list[str]:
    return [f"... and {count - MAX_LINES:,} more {what}"] if count > MAX_LINES else []
