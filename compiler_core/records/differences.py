"""The differences between two runs as plain data, made by `compare` and stored in the record of one of them; and what
came of trying an advice, which is such a difference."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from compiler_core.records.timings import time_text

MAX_TEXT = 160
"""Characters printed of one side of a difference."""

_MAIN_TOTALS = ("graphs", "graph breaks", "recompiles", "kernels", "kernel microseconds", "compile seconds")
_TIMES = ("compile seconds", "of these in ")

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
        counts = [total for total in self.totals if total.name != SECONDS and (total.before or total.after)]
        changed = [each for each in counts if each.before != each.after]
        main = [each for each in changed if each.name != GRAPHS]
        shown = [_became(each) for each in main or changed or counts[:1]]
        if self.is_timed:
            times = [total for total in self.totals if total.name == SECONDS]
            shown = [
                f"compiling took {time_text(t.before or 0)} in one run, {time_text(t.after or 0)} in another"
                for t in times
            ] + shown
        return ", ".join(shown)


def _became(total: Total) -> str:
    before, after = f"{total.before or 0:.0f}", f"{total.after or 0:.0f}"
    name = total.name.removesuffix("s") if before == "1" else total.name
    return f"{before} {name} {'stayed' if before == after else 'became'} {after}"


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

    def of(self, state: State, aspect: Aspect | None = None) -> list[Difference]:
        """Returns the differences in this state, of one aspect or of all."""
        return [each for each in self.lines if each.state == state and aspect in (None, each.aspect)]

    def brief(self) -> str:
        """Returns the main totals in one line, how values differ, and the notes; `str` has everything."""
        totals = [t for t in self.totals if t.name in _MAIN_TOTALS and (t.before or t.after)]
        numbers = ", ".join(" ".join([name, before, "/", after]) for name, before, after in map(_shown, totals))
        return "\n".join([f"{self.before} / {self.after}: {numbers}", *self._remarks()])

    def _remarks(self) -> list[str]:
        rows = [f"{name} differs: {how}" for name, how in (self.values or {}).items()]
        rows += ["values: the same"] if self.values == {} else []
        rows += [f"not copied, both runs used it: {name}" for name in self.shared]
        return rows + [f"note: {note}" for note in self.notes]

    def changes(self) -> str:
        """Returns the totals and the lines that changed, except for compile times, and how values differ."""
        totals = [t for t in self.totals if t.before != t.after and not t.name.startswith(_TIMES)]
        lines = [each for each in self.lines if each.aspect != "compile time"]
        text = self._table(totals, lines)
        return text if totals or len(text.splitlines()) > 2 else f"{text}\nnothing else changed"

    def __str__(self) -> str:
        return self._table(self.totals, self.lines)

    def _table(self, totals: list[Total], lines: list[Difference]) -> str:
        shown = list(map(_shown, totals))
        width = max((len(name) for name, _, _ in shown), default=0)
        rows = [f"{'':{width}}  {self.before:>14}  {self.after:>14}"]
        rows += [f"{name:{width}}  {before:>14}  {after:>14}" for name, before, after in shown]
        for each in lines:
            if each.state != "same":
                at = f"line {each.line}: {each.text.strip()}" if each.line else "no line"
                rows += [f"{each.aspect} {each.state}, {at}"]
                sides = ((self.before, each.before, each.after), (self.after, each.after, each.before))
                rows += [f"    {title}: {_short(_only_in(texts, others))}" for title, texts, others in sides]
        return "\n".join(rows + self._remarks())


def _shown(total: Total) -> tuple[str, str, str]:
    """Returns the name of a total, and both sides as text; a time has the unit that fits it."""
    name = total.name
    if name.endswith(" microseconds"):
        return f"{name.removesuffix('microseconds')}time", _time(total.before, 1e-6), _time(total.after, 1e-6)
    if name.startswith(_TIMES):
        return name.replace("seconds", "time"), _time(total.before, 1.0), _time(total.after, 1.0)
    return name, _count(total.before), _count(total.after)


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _time(value: float | None, unit: float) -> str:
    return "" if value is None else time_text(value * unit)


def _only_in(texts: list[str], others: list[str]) -> list[str]:
    """Returns the texts that the other side does not have as often; all if there is none, so that order differs."""
    return list((Counter(texts) - Counter(others)).elements())


def _short(texts: list[str]) -> str:
    text = " ".join(", ".join(texts).split()) or "nothing"
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} ... ({len(texts)})"
