"""The state of a code object in a region, and of each compile of it that is in use."""

from __future__ import annotations

import types
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.cached_calls import CacheChanges
from compiler_core.guards import GuardSpec
from compiler_core.records import Frame, Record

if TYPE_CHECKING:
    from compiler_core.pipeline.frame import CaptureBreak


class CodeKey:
    """A dict key that compares code objects by identity: equal code objects may have different globals."""

    def __init__(self, code: types.CodeType) -> None:
        self.code = code

    def __hash__(self) -> int:
        return id(self.code)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CodeKey) and self.code is other.code


@dataclass(frozen=True)
class InstalledCode:
    """One compile in use: the frame's code, the code that replaces it, and its guards.

    The guards are there as `guards`, which can be explained, and as `manager`, PyTorch's tree of C++ guards.
    """

    id: str
    code: types.CodeType
    replacement: types.CodeType
    breaks: bool
    guards: list[GuardSpec]
    manager: Any
    refers_to: tuple[weakref.ref[Any], ...] = ()
    """Objects that the code refers to weakly; the compile is dropped when one of them dies."""
    is_plain: bool = False
    """Whether the frame could not be captured: its own code runs while the guards hold."""


@dataclass
class CodeState:
    """The state of one code object in a region."""

    frame: Frame
    record: Record
    resumed_compile: str | None = None
    entries: list[InstalledCode] = field(default_factory=list)
    expired: set[str] = field(default_factory=set)
    """Compiles that were dropped because an object that they refer to died; they count towards the recompile limit."""
    stack_names: dict[str, str] = field(default_factory=dict)
    """For a resume function: what the user wrote, by its parameters for values of the stack."""
    loop_break: CaptureBreak | None = None
    """For a resume function that starts with a loop: the break in the loop because of which Python runs all of it."""
    cache_changes: CacheChanges = field(default_factory=CacheChanges)
    makes_cached_calls: bool = False
    """Whether a compile calls functions with a cache."""
    runs_eagerly: bool = False
    """Whether it runs as plain Python from now on.

    The frame hook stores that decision in the code object only where it cannot affect stock torch.compile.
    """

    @property
    def plain_count(self) -> int:
        """The number of compiles that could not capture the frame, each for another module."""
        return len({entry.id for entry in self.entries if entry.is_plain})

    @property
    def compile_count(self) -> int:
        """The number of compiles that counts towards the recompile limit."""
        return len({entry.id for entry in self.entries if not entry.is_plain} | self.expired)
