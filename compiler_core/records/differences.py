"""What differs between two runs, as plain data: a part of the record of one of them.  `compare` finds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

MOST_SHOWN = 160

State = Literal["same", "added", "removed", "changed"]
Aspect = Literal[
    "graph break", "guard", "captured", "forward", "backward", "saved", "kernel", "kernel time", "compile time"
]


@dataclass(slots=True)
class Difference:
    """What one line of the user's has on each side, for one aspect."""

    aspect: Aspect
    file: str
    line: int
    """As the second side counts it; 0 where no line is known."""
    text: str
    state: State
    before: list[str]
    after: list[str]


@dataclass(slots=True)
class Total:
    """One number of each side."""

    name: str
    before: float | None
    """None where it was not measured, or there is none."""
    after: float | None


@dataclass(slots=True)
class Comparison:
    """Totals, and every line that has something on either side."""

    before: str
    """What the first side is called."""
    after: str
    totals: list[Total]
    lines: list[Difference]
    values: dict[str, str] | None = None
    """The names whose values differ, and how; None where values were not compared."""
    shared: list[str] = field(default_factory=list)
    """What both runs used, because it could not be copied."""

    def of(self, state: State, aspect: Aspect | None = None) -> list[Difference]:
        return [each for each in self.lines if each.state == state and aspect in (None, each.aspect)]

    def __str__(self) -> str:
        width = max(len(total.name) for total in self.totals)
        rows = [f"{'':{width}}  {self.before:>14}  {self.after:>14}"]
        rows += [f"{t.name:{width}}  {_figure(t.before):>14}  {_figure(t.after):>14}" for t in self.totals]
        for each in self.lines:
            if each.state != "same":
                at = f"line {each.line}: {each.text.strip()}" if each.line else "no line"
                rows += [f"{each.aspect} {each.state}, {at}"]
                rows += [f"    {self.before}: {_short(each.before)}", f"    {self.after}: {_short(each.after)}"]
        rows += [f"{name} differs: {how}" for name, how in (self.values or {}).items()]
        rows += ["values: the same"] if self.values == {} else []
        rows += [f"not copied, both runs used it: {name}" for name in self.shared]
        return "\n".join(rows)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:,.6g}"


def _short(texts: list[str]) -> str:
    text = ", ".join(texts) or "nothing"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} ... ({len(texts)})"
