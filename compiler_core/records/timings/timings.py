"""The times of one call in several forms, such as plain PyTorch and compiled; `compiler_core.time` measures them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from compiler_core.records.timings.faster import Comparison, Outcome

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
    """Whether it is faster than the reference, or slower, by the rule of `timings.faster`."""
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
        text = Comparison(self.speed, outcome).text
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
