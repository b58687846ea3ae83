"""Times: of one call in several forms, which `compiler_core.time` measures; of a record's lines and graphs.

`tools/questions/verdict.py` says in one line whether compiling was worth it; `tools/timing/faster.py` has the rule by
which a call is called faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from compiler_core.instruments import tool
from compiler_core.records.artifacts import ItemId, Stage

MIN_DIFFERENCE = 0.03
"""A smaller difference is none: the addresses of code and data alone cause as much."""


@dataclass(slots=True)
class Timing:
    """The time of one form of a call.  Times are in seconds."""

    name: str
    median: float
    """The median time of a call."""
    low: float
    """The first decile of the times."""
    high: float
    """The last decile of the times."""
    rounds: int
    """How often it was timed."""
    compile_seconds: float
    """How much longer the first call took than the median call; 0 if that is no more than calls vary."""
    peak_bytes: int
    """The most memory that one call held at a time, of what it allocated itself."""
    speed: float = 1.0
    """How many times as fast as the reference it is: the median of the ratios of all rounds."""
    differs: bool = False
    """Whether it is faster than the reference, or slower, by the rule of `tools/timing/faster.py`."""
    compiled_again: int = 0
    """How many compiles there were while it was timed; a call that always compiles is not a fair comparison."""
    pays_off: int | None = None
    """After how many calls the time of compiling is saved; None if never, or if it is not known."""
    problems: int | None = None
    """The number of costly and blocking problems in the record of its compiles; None if there is no record."""
    unclear: bool = False
    """Whether the times vary too much to say how it compares with the reference."""


@dataclass(slots=True)
class Timings:
    """The times of all forms of a call, the first of which is the reference; `str` prints them."""

    rows: list[Timing] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Why a form could not be timed, by its name."""
    load: float = 0.0
    """How many threads of all programs were ready to run when the timing began, for each CPU."""

    def __getitem__(self, name: str) -> Timing:
        return next(row for row in self.rows if row.name == name)

    def __str__(self) -> str:
        text = tool("timings_text")
        return str(text(self) if text else self.rows)


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns one line for each row, with the columns aligned to the left; all rows have the same number of cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return [line.rstrip() for line in lines]


def bytes_text(number: float) -> str:
    """Returns a number of bytes with a unit."""
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.4g} {unit}"
        number /= 1024
    return f"{number:.4g} GiB"


def plural(noun: str, count: int) -> str:
    """Returns the noun for this many: ``call`` or ``calls``."""
    return noun if count == 1 else f"{noun}s"


def time_text(seconds: float) -> str:
    """Returns a time with a unit, in three digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= 0.9995 * size:
            digits = f"{seconds / size:.3g}" if seconds < 999.5 * size else f"{seconds / size:,.0f}"
            return f"{digits} {unit}"
    return f"{seconds * 1e9:.0f} ns"


@dataclass(slots=True)
class LineTime:
    """The nanoseconds that a stage spent on one line of the user's; `line` is None for what belongs to no line."""

    stage: Stage
    line: ItemId | None
    ns: int


@dataclass(slots=True)
class GraphTime:
    """The nanoseconds of the fastest run of a graph, from the call to the end of its last kernel."""

    graph: Literal["forward", "backward"]
    form: Literal["compiled", "eager"]
    ns: float
    timed_on: str
    """The target on which it was measured, one of `Record.devices`."""


@dataclass(slots=True)
class EagerTime:
    """The nanoseconds that eager PyTorch takes for one node of the captured graph.

    `forward_ns` is the time of the operation, `backward_ns` that of the autograd functions that it added; 0 if it added
    none.
    """

    node: ItemId
    forward_ns: float
    backward_ns: float


class LineClock:
    """Measures how long a stage works on each line of the user's code."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._ns: dict[ItemId | None, int] = {}
        self._line: ItemId | None = None
        self._since: int | None = None

    def switch(self, line: ItemId | None) -> None:
        """The stage works on `line` from now on."""
        if line != self._line or self._since is None:
            self.stop()
            self._line, self._since = line, self._clock()

    def stop(self) -> None:
        """Ends the time of the current line."""
        if self._since is not None:
            self._ns[self._line] = self._ns.get(self._line, 0) + self._clock() - self._since
            self._since = None

    def add_to(self, times: list[LineTime], stage: Stage) -> None:
        """Stops, and adds the times to a record's list."""
        self.stop()
        known = {each.line: each for each in times if each.stage == stage}
        for line, ns in self._ns.items():
            if line in known:
                known[line].ns += ns
            else:
                times.append(LineTime(stage, line, ns))
        self._ns.clear()


COMPILED = "compiled"
"""The name of the form that is compiled as the record was."""


@dataclass(slots=True)
class Verdict:
    """The parts of the line, each empty if nothing is known; `str` joins them."""

    speed: str = ""
    """Both times, and how they compare; empty if the call was not timed."""
    change: Literal["", "faster", "slower", "same"] = ""
    """How the compiled call compares with plain PyTorch; empty if it was not timed, or if the times are doubtful."""
    compile: str = ""
    """The time of compiling, and after how many calls it is saved."""
    memory: str = ""
    problems: str = ""
    warnings: list[str] = field(default_factory=list)
    """What makes the times doubtful, as sentences."""

    def __str__(self) -> str:
        return " · ".join(filter(None, [self.speed, self.compile, self.memory, self.problems]))
