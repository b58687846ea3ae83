"""The verdict: one line on top of a record that says whether compiling was worth it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from compiler_core.records.timings.timings import Timing, Timings, pays_off_text, problems_text, time_text

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
