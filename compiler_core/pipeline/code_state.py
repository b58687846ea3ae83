"""The state of a code object in a region, and of each compile of it that is in use."""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.break_kinds import Earlier
from compiler_core.capture.made_state import StateMaker
from compiler_core.capture.values.arrays import ARRAY
from compiler_core.capture.values.cached_calls import CacheChanges
from compiler_core.guards import GuardSpec, GuardTree
from compiler_core.guards.lifetimes import WeakBox, on_death
from compiler_core.guards.sources import LocalSource, Scope
from compiler_core.hook.frame_hook import FrameInfo
from compiler_core.hook.skip_rules import is_library_file
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
    makes: frozenset[str] = frozenset()
    """The sources of what it makes if it is the first step of a training (`SideEffects.written_sources`)."""
    makers: tuple[StateMaker, ...] = ()
    """How its capture made what the first step of a training makes."""


@dataclass
class CodeState:
    """The state of one code object in a region."""

    frame: Frame
    record: Record
    entries: list[InstalledCode] = field(default_factory=list)
    expired: set[str] = field(default_factory=set)
    """Compiles that were dropped because an object that they refer to died; they count towards the recompile limit."""
    stack_names: dict[str, str] = field(default_factory=dict)
    """For a resume function: what the user wrote, by its parameters for values of the stack."""
    earlier: Earlier = field(default_factory=Earlier)
    """For a resume function: what may have been done before it."""
    loop_break: CaptureBreak | None = None
    """For a resume function that starts with a loop: the break in the loop because of which Python runs all of it."""
    cache_changes: CacheChanges = field(default_factory=CacheChanges)
    makes_cached_calls: bool = False
    """Whether a compile calls functions with a cache."""
    has_operations: bool = False
    """Whether a compile of it has operations on tensors."""
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


_MAX_OBJECTS = 1000
_WITH_TENSORS = tuple(filter(None, (torch.Tensor, torch.nn.Module, ARRAY)))
_NOT_FOLLOWED = (type, types.ModuleType, types.FunctionType, types.CodeType, types.FrameType)


def may_have_tensors(info: FrameInfo) -> bool:
    """Whether a frame may have tensors, arrays or modules: among its arguments, or what these refer to.

    It is asked without running code of the program, and answered with True if that would take long.
    """
    pending, known = [*info.f_locals.values(), *gc.get_referents(*info.closure.values())], set[int]()
    while pending:
        obj = pending.pop()
        if id(obj) in known or issubclass(type(obj), _NOT_FOLLOWED):
            continue
        known.add(id(obj))
        if len(known) > _MAX_OBJECTS or issubclass(type(obj), _WITH_TENSORS):
            return True
        pending += gc.get_referents(obj)
    return False


def plain_entry(info: FrameInfo, compile_id: str, drop: Callable[[weakref.ref[Any]], None]) -> InstalledCode | None:
    """Returns what runs a frame's own code for calls with the same module; None if it is not a ``forward`` of a
    library.

    The modules of a library share code that says little: each ``nn.Sequential`` has the same ``forward``.  What cannot
    be captured for one, such as a hook of a child, need not be there for another.  So for a ``forward`` of a library
    the decision holds for calls with the same module, for as many modules as a frame may be recompiled; for other code
    it holds for all calls.

    Args:
        info: the frame.
        compile_id: the id of the compile that could not capture it.
        drop: called when the module dies.
    """
    code = info.code
    if code.co_name == "forward" and is_library_file(code.co_filename):
        name = code.co_varnames[0]
        module = info.f_locals.get(name)
        if isinstance(module, torch.nn.Module):
            box = WeakBox(module, type(module).__qualname__)
            guards = [GuardSpec("ID_MATCH", LocalSource(name), box)]
            manager = GuardTree(Scope(info.f_locals, info.f_globals, info.closure), code).build(guards)
            return InstalledCode(compile_id, code, code, True, guards, manager, on_death([box], drop), is_plain=True)
    return None
