"""The large fields of a record's compiles, which can be freed, and are read again when one of them is used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

LARGE_FIELDS = frozenset({
    "artifacts", "guards", "edges", "steps", "partition", "expansions", "fusions", "refusals", "kernels", "resources",
    "accuracy", "memory", "cache_lookups", "line_times", "graph_times", "eager_times",
})  # fmt: skip
"""The fields of a compile that take memory.  Compiled code writes to none of them when it runs."""


class HasLargeFields(Protocol):
    """The part of `Compile` that is used here."""

    id: str
    _freed: FreedFields | None

    def free(self, freed: FreedFields) -> None:
        """Frees the large fields; `freed` reads them again when one is used."""


class HasCompiles(Protocol):
    """The part of `Record` that is used here."""

    _freed: FreedFields | None

    @property
    def compiles(self) -> Sequence[HasLargeFields]:
        """Its compiles."""


class FreedFields:
    """The large fields of one record's compiles while they are stored elsewhere.

    The record and its compiles stay the same objects.  Lists that were taken from them before are not affected.
    """

    def __init__(
        self, record: HasCompiles, compiles: Sequence[HasLargeFields], read: Callable[[], HasCompiles]
    ) -> None:
        """Frees the large fields of these compiles; `read` returns a record that has them."""
        self.read: Callable[[], HasCompiles] | None = read
        """None once they are in memory again."""
        self._lock = threading.RLock()
        self._compiles = compiles
        with self._lock:  # another thread, which has the page's messages, may read one meanwhile
            for compile_ in self._compiles:
                compile_.free(self)
            record._freed = self

    def read_again(self) -> None:
        """Gives the compiles their fields again."""
        with self._lock:
            if self.read is not None:
                stored = {each.id: each for each in self.read().compiles}
                for compile_ in self._compiles:
                    for name in LARGE_FIELDS:
                        setattr(compile_, name, getattr(stored[compile_.id], name))
                self.read, self._compiles = None, []


def freed_fields(record: HasCompiles) -> FreedFields | None:
    """Returns the fields of a record that are stored elsewhere; None if all are in memory."""
    freed = record._freed
    return freed if freed is not None and freed.read is not None else None


def read_field(compile_: HasLargeFields, name: str) -> Any:
    """Returns a field of a compile that was freed; called where Python finds no attribute of this name."""
    if name not in LARGE_FIELDS or compile_._freed is None:
        raise AttributeError(f"'{type(compile_).__name__}' object has no attribute {name!r}", name=name, obj=compile_)
    compile_._freed.read_again()
    return object.__getattribute__(compile_, name)
