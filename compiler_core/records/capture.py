"""What capturing a frame noted: under which conditions it holds, where the graph broke, why it is a recompile."""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler_core.records.artifacts import ItemId


@dataclass(slots=True)
class Guard:
    """One condition under which a compile may be reused."""

    key: str
    kind: str
    source: str
    """Python expression of the value that is looked at, e.g. ``L['x'].shape``."""
    code: str
    """The whole check as a Python expression."""
    expected: str
    line: ItemId | None = None
    """The user's line that made the compiler look."""
    cost_ns: float | None = None
    """What checking it by itself costs, measured when the code was installed; together they share ways.
    Of stock's: its share of what all cost, estimated."""
    dropped: bool = False
    """A guard_filter took it out: it is not checked."""
    sizes: list[int | None] | None = None
    """Of a tensor's guard: the size that each dimension must have, None where it may have others."""


@dataclass(slots=True)
class Symbol:
    """A size, stride or number that may be another in a later call, or was to be: which line made it static?"""

    key: str
    source: str
    """Where it is read, e.g. ``L['x'].size()[0]``."""
    value: float
    """What it was when this was compiled."""
    why: str
    """Why it is symbolic."""
    low: float | None = None
    high: float | None = None
    """The values for which the compiled code holds, as far as a range says it."""
    line: ItemId | None = None
    """The user's line that looked at it first."""
    became: str | None = None
    """What it was specialised to: a number, or an expression of other symbols that it must equal."""
    condition: str | None = None
    """The condition that did that, or narrowed the range first."""
    condition_line: ItemId | None = None
    """The user's line that asked."""


@dataclass(slots=True)
class StackLine:
    """One line of the user's stack; `line` links it where its file is among the sources."""

    filename: str
    lineno: int
    function: str
    text: str
    line: ItemId | None = None


@dataclass(slots=True)
class GraphBreak:
    """Why a graph ended before its frame did.  `resumes` are ids of resume functions' frames."""

    key: str
    kind: str
    explanation: str
    hint: str
    stack: list[StackLine]
    instruction: ItemId | None = None
    resumes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Recompile:
    """The guard of compile `of` that failed, and what it saw."""

    of: str
    guard: str
    source: str
    expected: str
    got: str
    line: ItemId | None = None
