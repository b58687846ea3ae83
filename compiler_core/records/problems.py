"""The problems of a record: what cost time here or stopped the compiler, how bad it is, and what to do about it.

Summaries, the explorer's bar, its overview and the marks in the source read them.  `tools/questions/problems.py`
finds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from compiler_core.records.artifacts import ItemId
from compiler_core.records.differences import AdviceTrial

ProblemKind = Literal[
    "failure", "graph break", "recompile", "plain Python", "no CUDA graph", "slow compile", "changed graph"
]
Grade = Literal["expected", "costly", "blocking"]
GRADES: tuple[Grade, ...] = ("blocking", "costly", "expected")
"""From the worst to the mildest."""


SLOW_COMPILE_S = 2.0
"""A compile that takes more seconds is slow, if it is long because of repetition."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an advice: what to do about one kind of cause."""

    text: str
    without: str = ""
    """What remains of it once it was tried and did not help."""


@dataclass(slots=True)
class Problem:
    """One problem; the same one at the same line is counted once for all compiles that have it."""

    kind: ProblemKind
    grade: Grade
    """``expected``: nothing needs to change.  ``costly``: it cost time.  ``blocking``: something runs as plain Python,
    or an error was raised."""
    title: str
    cause: str
    """Why, in one or a few lines."""
    advice: str
    """What to do about it; empty if nothing is known."""
    cost: str
    """The time and calls that it cost here, as a sentence; empty if it cost none."""
    count: int = 1
    """How many compiles have it."""
    ns: int = 0
    """Nanoseconds of compiling that it caused."""
    compiles: list[str] = field(default_factory=list)
    """The ids of the compiles that have it; the first one is that of which `cause` speaks."""
    filename: str = ""
    lineno: int = 0
    """The user's line; 0 if it belongs to no line."""
    line: ItemId | None = None
    """The item of that line, if it is among the sources."""
    remedies: list[str] = field(default_factory=list)
    """Of a recompile: the kinds of its advice, which are the keys of `advice.REMEDIES`."""
    breaks: list[str] = field(default_factory=list)
    """Of a graph break: the ids of those that it counts, as `break_id` makes them."""
    behind: str = ""
    """The line of a library that has it, as a sentence, where `line` is that of the user's which calls it."""
    is_training: bool = False
    """Whether it is a graph break of a step of training: the backward, or the optimizer."""
    lines: list[str] = field(default_factory=list)
    """Of a recompile: lines of Python that do what is advised, to run before each call."""
    tried: list[AdviceTrial] = field(default_factory=list)
    """What came of trying the advice; what did not help is no longer in `advice`."""
    checked: str = ""
    """How the advice was checked, as a sentence; empty if there is nothing to change."""
    _parts: dict[str, Part] = field(default_factory=dict, repr=False, compare=False)
    """The parts of the advice: of a recompile by remedy, else one."""
    _library: str = field(default="", repr=False, compare=False)
    """Of a graph break in code of a library that a line of the user's calls: whose code it is."""
    _causes: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    """Of a recompile: all that differed, in few words, in no order; of a graph break: which one it is."""
    _changed: str = field(default="", repr=False, compare=False)
    """Of a recompile: the difference that its title names, in few words."""
    _follows: list[str] = field(default_factory=list, repr=False, compare=False)
    """Of a recompile of the rest after a graph break: the compiles of what is before it that have the same cause."""
    _has_names: bool = field(default=True, repr=False, compare=False)
    """Whether the names in `lines` are known where the call is made: not those of the parameters of a library."""
    _proof: str | None = field(default=None, repr=False, compare=False)
    """What is known of the advice if it is not tried; None if there is nothing to try."""


def needing_action(problems: Iterable[Problem]) -> list[Problem]:
    """Returns the problems that are costly or blocking."""
    return [problem for problem in problems if problem.grade != "expected"]


def costly_and_expected(problems: Sequence[Problem], kind: ProblemKind) -> tuple[int, str]:
    """Returns how many problems of a kind cost something, and what follows their number: `` (and 2 expected)`` or
    nothing."""
    expected = problem_count((problem for problem in problems if problem.grade == "expected"), kind)
    number = problem_count(problems, kind)
    return number - expected, expected_text(number, expected)


def expected_text(number: int, expected: int) -> str:
    """Returns what follows the number of problems that cost something: of `number` in all, so many are expected."""
    return f" ({'and ' if number > expected else ''}{expected} expected)" if expected else ""


def problem_count(problems: Iterable[Problem], kind: ProblemKind) -> int:
    """Returns how many problems of a kind there are.

    A recompile counts once for each compile, any other problem once for each line.
    """
    return sum(p.count if kind == "recompile" else 1 for p in problems if p.kind == kind)
