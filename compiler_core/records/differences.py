"""The differences between two runs as plain data, made by `compare` and stored in the record of one of them; and what
came of trying an advice, which is such a difference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from compiler_core.instruments import tool

State = Literal["same", "added", "removed", "changed"]
Aspect = Literal[
    "graph break",
    "guard",
    "captured",
    "forward",
    "backward",
    "saved",
    "kernel",
    "cache key",
    "kernel time",
    "compile time",
]


@dataclass(slots=True)
class Difference:
    """What each side has at one of the user's lines, for one aspect."""

    aspect: Aspect
    file: str
    line: int
    """The line number on the second side; 0 if unknown."""
    text: str
    state: State
    before: list[str]
    after: list[str]


@dataclass(slots=True)
class Total:
    """One number for each side."""

    name: str
    before: float | None
    """None if it was not measured or does not exist."""
    after: float | None


@dataclass(slots=True)
class SourceEdit:
    """A change of the user's code: lines of a file, and those that take their place."""

    title: str
    file: str
    first: int
    """The number of the first line that is replaced."""
    removed: list[str]
    added: list[str]
    in_cell: bool = True
    """Whether the file is the cell that ran, not another one that defines what it calls."""


TrialOutcome = Literal["helps", "does not help", "wrong", "not tried"]
COMPILES, GRAPHS, SECONDS = "compiles", "graphs", "compile seconds"
"""The names of totals of a trial."""


@dataclass(slots=True)
class AdviceTrial:
    """One change that the advice on a problem stands for, and what it did to the calls that were recorded."""

    change: str
    """In few words: ``torch.where in place of the branch``."""
    outcome: TrialOutcome
    why: str = ""
    """What differs from plain PyTorch, if it is wrong; why it was not tried."""
    remedies: list[str] = field(default_factory=list)
    """The parts of the advice that it stands for, by their keys."""
    totals: list[Total] = field(default_factory=list)
    """Compiles, graph breaks, graphs and seconds of compiling, before and after."""
    is_timed: bool = False
    """Whether it is the time of compiling that it should reduce: of each, one run is known."""

    @property
    def is_refuted(self) -> bool:
        """Whether the trial showed that the change is of no use here."""
        return self.outcome in ("does not help", "wrong")

    def __str__(self) -> str:
        if self.outcome == "not tried":
            return f"Not tried here: {self.why}"
        same = ", same values" if self.outcome == "helps" else ""
        return f"{self.change}: {self.why or self.numbers()}{same}"

    def numbers(self) -> str:
        """Returns what became of compiles, graph breaks and graphs: ``6 compiles became 1``."""
        return _text("trial_numbers", self)


@dataclass(slots=True)
class Comparison:
    """Totals, and the differences at each line for which either run has an entry."""

    before: str
    """The title of the first side."""
    after: str
    totals: list[Total]
    lines: list[Difference]
    values: dict[str, str] | None = None
    """How the values of variables differ, by name; None if values were not compared."""
    shared: list[str] = field(default_factory=list)
    """Objects that both runs used, because they could not be copied."""
    notes: list[str] = field(default_factory=list)
    """Why some numbers of the two sides cannot be compared."""
    edit: SourceEdit | None = None
    """The change of the code that was tried in the second run, if that is what differs."""
    random: str = ""
    """Why values may differ although both runs are right: random numbers were drawn, each run its own."""

    def of(self, state: State, aspect: Aspect | None = None) -> list[Difference]:
        """Returns the differences in this state, of one aspect or of all."""
        return [each for each in self.lines if each.state == state and aspect in (None, each.aspect)]

    def brief(self) -> str:
        """Returns the main totals in one line, how values differ, and the notes; `str` has everything."""
        return _text("comparison_text", self, "brief")

    def changes(self) -> str:
        """Returns the totals and the lines that changed, except for compile times, and how values differ."""
        return _text("comparison_text", self, "changes")

    def __str__(self) -> str:
        return _text("comparison_text", self, "all")


def _text(name: str, *args: Any) -> str:
    text: Any = tool(name)
    return str(text(*args))
