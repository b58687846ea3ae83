"""What a region knows of a code object, and of each compile of it that is in use."""

from __future__ import annotations

import types
import weakref
from dataclasses import dataclass, field
from typing import Any

from compiler_core.guards import GuardSpec
from compiler_core.records import Frame, Record


class Same:
    """A code object as a key by identity: equal ones may be of functions with different globals."""

    def __init__(self, code: types.CodeType) -> None:
        self.code = code

    def __hash__(self) -> int:
        return id(self.code)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.code is other.code


@dataclass(frozen=True)
class Installed:
    """One compile in use: the frame's code, what runs in its place, and the guards in both their forms."""

    id: str
    code: types.CodeType
    made: types.CodeType
    breaks: bool
    guards: list[GuardSpec]
    manager: Any
    refers_to: tuple[weakref.ref[Any], ...] = ()
    """To what it must not outlive: it is dropped when one of them dies."""


@dataclass
class CodeState:
    """What a region knows of one code object."""

    frame: Frame
    record: Record
    resumes: str | None = None
    entries: list[Installed] = field(default_factory=list)
    outlived: set[str] = field(default_factory=set)
    """Compiles that were dropped because something that they refer to has died; they count towards the limit."""
    left_alone: bool = False
    """It runs as plain Python from now on (the frame hook keeps that in mind only where stock cannot meet it)."""

    @property
    def times_compiled(self) -> int:
        """What is held against the limit of recompiles."""
        return len({entry.id for entry in self.entries} | self.outlived)
