"""Times: of one call in several forms, which `compiler_core.time` measures; of a record's lines and graphs; of guards.

`verdict` says in one line whether compiling was worth it; `tools/timing/faster.py` has the rule by which a call
is called faster.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from compiler_core.records.artifacts import ItemId, Stage

Outcome = Literal["faster", "slower", "same", "unclear"]
"""How a call compares with another.  ``same``: no difference was measured; ``unclear``: the times vary too much."""
MIN_DIFFERENCE = 0.03
"""A smaller difference is none: the addresses of code and data alone cause as much."""
MAX_VARIATION = 3
"""The greatest ratio of the last decile to the first without a warning."""
MAX_LOAD = 1.2
"""From this load on, other programs take a share of the CPUs."""
MIN_CHANGE = 0.005
"""Changes of memory below this share of it count as none."""
MIN_BYTES = 4096
"""Less memory than this is not mentioned."""
MANY_TIMES = 10
"""From this factor on, a change of memory is given as both amounts."""


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

    @property
    def ratio_text(self) -> str:
        """How it compares with the reference: ``1.63x``."""
        outcome: Outcome = "unclear" if self.unclear else "faster" if self.differs else "same"
        text = comparison_text(self.speed, outcome)
        return (
            f"{text}, compiling again at each call" if self.differs and 2 * self.compiled_again >= self.rounds else text
        )


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

    def verdict(self, name: str) -> str:
        """Returns one line on a form, compared with the reference."""
        row = self[name]
        compiled = f"compiled in {time_text(row.compile_seconds)}{pays_off_text(row)}" if row.compile_seconds else ""
        parts = [self.speed_text(row), compiled, self.memory_text(row)]
        if row.problems is not None:
            parts.append(problems_text(row.problems))
        return " · ".join(filter(None, parts))

    def speed_text(self, row: Timing) -> str:
        """Returns both times, and how they compare."""
        first = self.rows[0]
        names = f"{first.name[:1].upper()}{first.name[1:]} {time_text(first.median)} → {row.name}"
        doubt = ", doubtful" if row.differs and not row.compiled_again and self.warnings() else ""
        return f"{names} {time_text(row.median)} ({row.ratio_text}{doubt})"

    def find_pays_off(self) -> None:
        """Fills `Timing.pays_off`."""
        is_doubtful = bool(self.warnings())
        for row in self.rows[1:]:
            gain = self.rows[0].median - row.median
            is_known = gain > 0 and row.differs and not row.compiled_again and not is_doubtful
            row.pays_off = math.ceil(row.compile_seconds / gain) if is_known else None

    def memory_text(self, row: Timing) -> str:
        """Returns how the peak memory compares; empty if hardly any is allocated."""
        peak = self.rows[0].peak_bytes
        if max(peak, row.peak_bytes) < MIN_BYTES:
            return ""
        if row.peak_bytes >= MANY_TIMES * peak:
            return f"peak memory {bytes_text(peak)} → {bytes_text(row.peak_bytes)}"
        change = row.peak_bytes / peak - 1
        sign = "+" if change > 0 else "\N{MINUS SIGN}"
        return f"peak memory {sign}{abs(change):.0%}" if abs(change) >= MIN_CHANGE else "the same peak memory"

    def warnings(self) -> list[str]:
        """Returns what makes the times doubtful, as sentences."""
        found = [
            f"{row.name} was compiled again {_times(row.compiled_again)} while it was timed: one call is not like the "
            "one before, so that its time contains compiles."
            for row in self.rows
            if row.compiled_again
        ]
        varying = [row.name for row in self.rows if row.high > MAX_VARIATION * row.low]
        if varying:
            found.append(
                f"The times of {' and '.join(varying)} vary more than {MAX_VARIATION}-fold: the machine is busy, or "
                "the calls do not all do the same."
            )
        if self.load > MAX_LOAD:
            busy = f"{self.load:.1f} threads for each CPU"
            found.append(f"Other programs keep this machine busy ({busy}): when it is idle, times and ratios differ.")
        return found

    def __str__(self) -> str:
        head = ("", "median", "10 % to 90 %", "speed", "compile", "peak memory")
        lines = table_lines([head, *map(self._cells, self.rows)])
        verdicts = [self.verdict(row.name) for row in self.rows[1:]]
        failed = [f"{name} was not timed: {reason}" for name, reason in self.failed.items()]
        return "\n".join([*verdicts, *lines, *failed, *self.warnings()])

    def _cells(self, row: Timing) -> tuple[str, ...]:
        is_first = row is self.rows[0]
        return (
            row.name, time_text(row.median), f"{time_text(row.low)} to {time_text(row.high)}",
            "" if is_first else row.ratio_text, time_text(row.compile_seconds) if row.compile_seconds else "",
            bytes_text(row.peak_bytes),
        )  # fmt: skip


def comparison_text(speed: float, outcome: Outcome) -> str:
    """Returns how many times as fast one call is as another, ``1.63x``, or why there is no such factor."""
    if outcome in ("same", "unclear"):
        return "no difference measured" if outcome == "same" else "not comparable: the times vary too much"
    digits = 2 if speed < 10 else 1 if speed < 100 else 0
    return f"{speed:,.{digits}f}x" if speed >= 0.1 else f"{speed:.2g}x"


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns one line for each row, with the columns aligned to the left; all rows have the same number of cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return [line.rstrip() for line in lines]


def pays_off_text(row: Timing) -> str:
    """Returns after how many calls the time of compiling is saved, as the end of a sentence; empty if not known."""
    if not row.pays_off:
        return ""
    return f", pays off after {row.pays_off:,} {plural('call', row.pays_off)}"


def problems_text(count: int) -> str:
    """Returns the number of problems that need an action: ``0 problems``."""
    return f"{count} {plural('problem', count)}"


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


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


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
    """The median nanoseconds that eager PyTorch takes for one node of the captured graph.

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


def verdict(timings: Timings | None, compile_ns: int, problems: int, raised: str = "") -> Verdict:
    """Returns the verdict on a record.

    Args:
        timings: the times, if it was timed: first those of plain PyTorch.
        compile_ns: the nanoseconds in the steps of all its compiles.
        problems: the number of costly and blocking problems.
        raised: the exception with which the program ended; empty if it did not.
    """
    counted = problems_text(problems) if problems or not raised else ""
    found = Verdict(problems=", ".join(filter(None, [f"it raised {raised}" if raised else "", counted])))
    if compile_ns:
        found.compile = f"compiled in {time_text(compile_ns / 1e9)}"
    if timings is None:
        return found
    found.warnings = timings.warnings() + [f"{name} was not timed: {why}" for name, why in timings.failed.items()]
    row = next((row for row in timings.rows if row.name == COMPILED), None)
    if row is None:
        return found
    found.speed, found.change = timings.speed_text(row), _change(row, timings)
    if found.compile:
        found.compile += pays_off_text(row)
    found.memory = timings.memory_text(row)
    return found


def _change(row: Timing, timings: Timings) -> Literal["", "faster", "slower", "same"]:
    if row.unclear or timings.warnings():
        return ""
    if not row.differs:
        return "same"
    return "faster" if row.speed > 1 else "slower"


STEP_NS = 5.0
"""What an access step usually costs."""
KIND_NS = {
    "ID_MATCH": 2.0, "TYPE_MATCH": 1.0, "EQUALS_MATCH": 2.0, "LENGTH_CHECK": 3.0, "DICT_CONTAINS": 8.0,
    "DIMENSION_DYNAMIC_MARKING_GUARD": 13.0, "LAMBDA_GUARD": 33.0, "TENSOR_MATCH": 70.0,
}  # fmt: skip
"""What a check of each kind usually costs: checks of one value divide the cost of its part of the tree in these ratios.
``make bench ARGS='-k kind_of_guard'`` measures them again."""
