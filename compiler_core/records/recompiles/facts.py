"""Why a frame was compiled again, as facts: what differs from what each compile expects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from compiler_core.records.artifacts import ItemId

GuardAspect = Literal[
    "class", "dtype", "device", "requires_grad", "rank", "size", "stride", "dispatch keys", "value", "length", "key",
    "keys", "items", "order", "identity", "aliasing", "attribute", "relation", "setting", "function", "result", "other",
]  # fmt: skip
"""What of an object a guard compares."""


@dataclass(slots=True)
class FailedGuard:
    """One fact of a guard that did not hold for a call: what was compared, what was expected, and what was found."""

    kind: str
    """The guard's kind; empty if it is not known."""
    guard: str
    """The whole check as a Python expression."""
    source: str
    """Python expression of the value that was checked, e.g. ``L['self'].calls``."""
    name: str
    """The object in the user's words: ``self.calls``."""
    aspect: GuardAspect
    expected: str
    got: str
    """Empty if it is not known."""
    line: ItemId | None = None
    """The user's line for which the value was read."""
    dims: list[int] = field(default_factory=list)
    """The dimensions whose size or stride differs."""
    item: str = ""
    """The key, attribute, function or setting; the other object of two that are compared."""
    is_specialised: bool = False
    """Whether the program needs the number itself, so that no symbol can stand for it."""
    is_broadcast: bool = False
    """Whether a size was or is 0 or 1, which are compiled separately, since they broadcast."""
    place: Literal["argument", "global", "attribute"] = "argument"
    """Where the value is: an argument or an item of one, a global, or an attribute of an object."""
    type: str = ""
    """The type of the object that was found; empty if it is not known."""
    subject: str = ""
    """What differs, as a noun: ``the dtype of x``."""
    caller: ItemId | None = None
    """If `line` is a library's: the user's line that calls it."""

    def __post_init__(self) -> None:
        self.subject = self.subject or _subject(self)


def _subject(failed: FailedGuard) -> str:
    name, aspect = failed.name, failed.aspect
    if aspect == "key":
        return f"the key {failed.item} of {name}"
    if aspect == "attribute":
        return f"the attribute {failed.item} of {name}"
    if aspect == "setting":
        return f"the {failed.item}"
    if aspect == "aliasing":
        return f"the identity of {name} and {failed.item}"
    if aspect == "result":
        return f"the result of {name}()"
    if aspect == "relation":
        return f"the condition {failed.item}"
    if aspect == "function":
        return f"{name}.{failed.item}"
    if aspect in ("value", "other"):
        return name
    if aspect == "identity":
        return f"the object {name}"
    return f"the {'type' if aspect == 'class' else aspect} of {name}"


@dataclass(slots=True)
class MissedEntry:
    """A compile that did not serve a call, and the guards of it that failed: all of them, or for stock those known."""

    compile: str
    failed: list[FailedGuard]


@dataclass(slots=True)
class Recompile(FailedGuard):
    """Why a call compiled its frame again: a guard of the nearest compile, the one with the fewest that failed."""

    of: str = ""
    """The nearest compile."""
    besides: list[FailedGuard] = field(default_factory=list)
    """What else differs from what the nearest compile expects."""
    others: list[MissedEntry] = field(default_factory=list)
    """The other compiles of the frame, the nearest first."""
    text: str = ""
    """What happened, in sentences that follow from the facts (`advice.recompile`)."""
    is_confirmed: bool = False
    """Whether all other guards of the nearest compile were checked and hold, so that the call would have used it if
    this one had held."""


class Mismatch(NamedTuple):
    """One fact for which a guard does not hold; the fields are those of `records.FailedGuard`."""

    aspect: GuardAspect
    expected: str
    got: str
    dims: Sequence[int] = ()
    item: str = ""
    is_specialised: bool = False
    is_broadcast: bool = False
    of: Any = None
    """The source of the object, where it is not the guard's."""
