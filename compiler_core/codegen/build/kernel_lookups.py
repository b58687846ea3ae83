"""The lookups of kernels in caches while a graph is built: the outcome, and the key, field by field."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from compiler_core.records import limits
from compiler_core.records.kernels import CacheLookup, CacheName, KeyField

MAX_PART = 2_000
"""Characters of a part of a kernel's key that the record has; the source itself is an artifact."""

_noted: ContextVar[tuple[list[CacheLookup], str] | None] = ContextVar("_noted", default=None)


@contextmanager
def noted_lookups(lookups: list[CacheLookup], name: str) -> Iterator[None]:
    """Context manager in which lookups are added to a list; `name` is the graph's."""
    token = _noted.set((lookups, name))
    try:
        yield
    finally:
        _noted.reset(token)


def note_lookup(cache: CacheName, key: str, parts: Mapping[str, Sequence[str]], is_hit: bool) -> None:
    """Adds a lookup of a graph's library to the list of the graph that is built, if there is one.

    Args:
        cache: the cache.
        key: the whole key.
        parts: what it was made of, by the names of its fields.
        is_hit: whether the cache had it.
    """
    if (noted := _noted.get()) is not None:
        fields = [key_field(field, " ".join(texts), MAX_PART) for field, texts in parts.items()]
        noted[0].append(CacheLookup(cache, noted[1], "hit" if is_hit else "miss", key, fields))


def add_lookup(lookup: CacheLookup) -> None:
    """Adds a lookup to the list of the graph that is built, if there is one."""
    if (noted := _noted.get()) is not None:
        noted[0].append(lookup)


def key_field(name: str, text: str, most: int = limits.TEXT) -> KeyField:
    """Returns a field of a key; of a text of more than `most` characters, the first part, and a digest of the whole."""
    shown = limits.truncate(text, most)
    return KeyField(name, shown, "" if shown == text else hashlib.sha256(text.encode()).hexdigest())
