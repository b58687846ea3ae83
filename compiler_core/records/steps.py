"""The steps of the symbolic interpreter, stored as differences.

A `Steps` is one attempt to capture a frame.  Step n is one instruction: instruction ``at[n]`` of call ``call[n]``,
which popped ``pops[n]`` values off the call's stack and pushed ``pushes[n]``.  Rare changes are in separate lists,
sorted by step.  A value is a number, an index into `values`; an object has one number everywhere, but its text may
change.

`tools/questions/step_states.py` gives the whole state after any step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(slots=True)
class StepCode:
    """A code object that was interpreted.  `lines`: the line of each instruction, 0 if it has none."""

    name: str
    filename: str
    instructions: list[str]
    lines: list[int]


@dataclass(slots=True)
class StepCall:
    """A call: the frame's own, or one that was inlined into the call `caller`."""

    code: int
    caller: int | None


@dataclass(slots=True)
class StepResult:
    """A change that a step made to the stack of another call, as a return does to its caller's stack."""

    step: int
    call: int
    pops: int
    pushes: list[int]


@dataclass(slots=True)
class StepStore:
    """An assignment to a local or cell; None: it was deleted."""

    step: int
    call: int
    name: str
    value: int | None


@dataclass(slots=True)
class StepText:
    """A new text for a value from this step on: a list grew, an iterator advanced."""

    step: int
    value: int
    text: str


@dataclass(slots=True)
class StepNote:
    """An addition of a step to the graph, the guards or the side effects, or the reason why the attempt ended."""

    step: int
    kind: Literal["node", "guard", "effect", "break"]
    text: str
    item: str | None = None


@dataclass(slots=True)
class Steps:
    """One attempt of the symbolic interpreter.  The last attempt of a compile is the one whose result is used."""

    outcome: Literal["captured", "broke"] = "captured"
    dropped: int = 0
    """The number of steps left out at the end of a very long attempt."""
    codes: list[StepCode] = field(default_factory=list)
    calls: list[StepCall] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    call: list[int] = field(default_factory=list)
    at: list[int] = field(default_factory=list)
    pops: list[int] = field(default_factory=list)
    pushes: list[list[int]] = field(default_factory=list)
    results: list[StepResult] = field(default_factory=list)
    stores: list[StepStore] = field(default_factory=list)
    texts: list[StepText] = field(default_factory=list)
    notes: list[StepNote] = field(default_factory=list)
