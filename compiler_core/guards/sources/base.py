"""The base class of sources, and the names that a frame can read."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compiler_core.records.recompiles import INTERMEDIATE

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.guards import GuardTree


# The C++ tree skips a guard on a number in a dict while the dict's version is the same.  In CPython 3.13.0 storing an
# attribute of an object does not change the version of its __dict__ (python/cpython#125608).
VERSIONS_ARE_STALE = (3, 13) <= sys.version_info < (3, 13, 1)


@dataclass(frozen=True)
class Scope:
    """The names that a frame can read at its entry."""

    f_locals: dict[str, Any]
    f_globals: dict[str, Any]
    closure: dict[str, types.CellType]
    """Free variables of the frame's function, by name."""


class Source:
    """Base class of sources, which are frozen dataclasses.  Sources with the same path are equal."""

    loads_new_object = False
    """Whether each load makes a new object."""
    _hash: int

    def __init_subclass__(cls) -> None:
        cls.__hash__ = Source.__hash__  # type: ignore[method-assign]  # `dataclass` would define one that is not stored

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:  # stored, because hashing a long path takes many calls
            found = self.__dict__["_hash"] = hash((type(self), *vars(self).values()))
            return found

    @property
    def text(self) -> str:
        """The path as a Python expression."""
        raise NotImplementedError

    @property
    def shown(self) -> str:
        """The path as the user would write it."""
        return self.text

    def fetch(self, scope: Scope) -> Any:
        """Returns the value at the source in a frame; raises what Python raises if there is none."""
        raise NotImplementedError

    def load(self, emit: Emitter) -> None:
        """Emits bytecode that pushes the value."""
        raise NotImplementedError

    def manager(self, tree: GuardTree) -> Any:
        """Makes the guard manager of the source in the C++ tree."""
        raise NotImplementedError


def shown_name(name: str) -> str:
    """Returns the name of a local as the user would write it.  A parameter that a resume function has for a value of
    the stack has no name in the user's code."""
    return INTERMEDIATE if name.startswith(("__stack", "__callee")) else name


def path(source: Source | None) -> Iterator[Source]:
    """Yields a source, what it is read from, and so on to a local, a global or a constant."""
    while source is not None:
        yield source
        source = getattr(source, "base", None)


def root_source(source: Source) -> Source:
    """Returns the source at which the path starts: a local, a global or a constant."""
    *_, root = path(source)
    return root
