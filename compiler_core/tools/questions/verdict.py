"""Whether compiling was worth it, in one line, and times in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from compiler_core.records.timings import (
    COMPILED,
    Timing,
    Timings,
    Verdict,
    bytes_text,
    plural,
    table_lines,
    time_text,
)

Outcome = Literal["faster", "slower", "same", "unclear"]
"""How a call compares with another.  ``same``: no difference was measured; ``unclear``: the times vary too much."""
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
    found.warnings = doubts(timings) + [f"{name} was not timed: {why}" for name, why in timings.failed.items()]
    row = next((row for row in timings.rows if row.name == COMPILED), None)
    if row is None:
        return found
    found.speed, found.change = speed_text(timings, row), _change(row, timings)
    if found.compile:
        found.compile += pays_off_text(row)
    found.memory = memory_text(timings, row)
    return found


def _change(row: Timing, timings: Timings) -> Literal["", "faster", "slower", "same"]:
    if row.unclear or doubts(timings):
        return ""
    if not row.differs:
        return "same"
    return "faster" if row.speed > 1 else "slower"


def line_on(timings: Timings, name: str) -> str:
    """Returns one line on a form, compared with the reference."""
    row = timings[name]
    compiled = f"compiled in {time_text(row.compile_seconds)}{pays_off_text(row)}" if row.compile_seconds else ""
    parts = [speed_text(timings, row), compiled, memory_text(timings, row)]
    if row.problems is not None:
        parts.append(problems_text(row.problems))
    return " · ".join(filter(None, parts))


def speed_text(timings: Timings, row: Timing) -> str:
    """Returns both times, and how they compare."""
    first = timings.rows[0]
    names = f"{first.name[:1].upper()}{first.name[1:]} {time_text(first.median)} → {row.name}"
    doubt = ", doubtful" if row.differs and not row.compiled_again and doubts(timings) else ""
    return f"{names} {time_text(row.median)} ({ratio_text(row)}{doubt})"


def find_pays_off(timings: Timings) -> None:
    """Fills `Timing.pays_off`."""
    is_doubtful = bool(doubts(timings))
    for row in timings.rows[1:]:
        gain = timings.rows[0].median - row.median
        is_known = gain > 0 and row.differs and not row.compiled_again and not is_doubtful
        row.pays_off = math.ceil(row.compile_seconds / gain) if is_known else None


def memory_text(timings: Timings, row: Timing) -> str:
    """Returns how the peak memory compares; empty if hardly any is allocated."""
    peak = timings.rows[0].peak_bytes
    if max(peak, row.peak_bytes) < MIN_BYTES:
        return ""
    if row.peak_bytes >= MANY_TIMES * peak:
        return f"peak memory {bytes_text(peak)} → {bytes_text(row.peak_bytes)}"
    change = row.peak_bytes / peak - 1
    sign = "+" if change > 0 else "\N{MINUS SIGN}"
    return f"peak memory {sign}{abs(change):.0%}" if abs(change) >= MIN_CHANGE else "the same peak memory"


def doubts(timings: Timings) -> list[str]:
    """Returns what makes the times doubtful, as sentences."""
    found = [
        f"{row.name} was compiled again {_times(row.compiled_again)} while it was timed: one call is not like the "
        "one before, so that its time contains compiles."
        for row in timings.rows
        if row.compiled_again
    ]
    return found + doubts_of({row.name: (row.low, row.high) for row in timings.rows}, timings.load)


def doubts_of(ranges: Mapping[str, tuple[float, float]], load: float) -> list[str]:
    """Returns what makes times doubtful, as sentences.

    Args:
        ranges: the first and the last decile of the times, by name.
        load: how many threads are ready to run for each CPU.
    """
    found = []
    varying = [name for name, (low, high) in ranges.items() if high > MAX_VARIATION * low]
    if varying:
        found.append(
            f"The times of {' and '.join(varying)} vary more than {MAX_VARIATION}-fold: the machine is busy, or "
            "the calls do not all do the same."
        )
    if load > MAX_LOAD:
        busy = f"{load:.1f} threads for each CPU"
        found.append(f"Other programs keep this machine busy ({busy}): when it is idle, times and ratios differ.")
    return found


def timings_text(timings: Timings) -> str:
    """Returns the verdicts, a table of the times, and what makes them doubtful."""
    head = ("", "median", "10 % to 90 %", "speed", "compile", "peak memory")
    lines = table_lines([head, *(_cells(row, row is timings.rows[0]) for row in timings.rows)])
    verdicts = [line_on(timings, row.name) for row in timings.rows[1:]]
    failed = [f"{name} was not timed: {reason}" for name, reason in timings.failed.items()]
    return "\n".join([*verdicts, *lines, *failed, *doubts(timings)])


def _cells(row: Timing, is_first: bool) -> tuple[str, ...]:
    return (
        row.name, time_text(row.median), f"{time_text(row.low)} to {time_text(row.high)}",
        "" if is_first else ratio_text(row), time_text(row.compile_seconds) if row.compile_seconds else "",
        bytes_text(row.peak_bytes),
    )  # fmt: skip


def ratio_text(row: Timing) -> str:
    """How it compares with the reference: ``1.63x``."""
    outcome: Outcome = "unclear" if row.unclear else "faster" if row.differs else "same"
    text = comparison_text(row.speed, outcome)
    return f"{text}, compiling again at each call" if row.differs and 2 * row.compiled_again >= row.rounds else text


def comparison_text(speed: float, outcome: Outcome) -> str:
    """Returns how many times as fast one call is as another, ``1.63x``, or why there is no such factor."""
    if outcome in ("same", "unclear"):
        return "no difference measured" if outcome == "same" else "not comparable: the times vary too much"
    digits = 2 if speed < 10 else 1 if speed < 100 else 0
    return f"{speed:,.{digits}f}x" if speed >= 0.1 else f"{speed:.2g}x"


def pays_off_text(row: Timing) -> str:
    """Returns after how many calls the time of compiling is saved, as the end of a sentence; empty if not known."""
    if not row.pays_off:
        return ""
    return f", pays off after {row.pays_off:,} {plural('call', row.pays_off)}"


def problems_text(count: int) -> str:
    """Returns the number of problems that need an action: ``0 problems``."""
    return f"{count} {plural('problem', count)}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
