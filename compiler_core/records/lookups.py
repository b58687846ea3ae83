"""Lookups in the caches of compiled graphs: their keys, field by field, and which fields of two keys differ."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

CacheName = Literal["graph cache", "FX graph cache", "AOTAutograd cache"]
"""The caches of compiled graphs: ours, and two of PyTorch's."""

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_NAMED = re.compile(r"(\w+)=")


@dataclass(slots=True)
class KeyField:
    """A field of a cache's key: a configuration option, an input, the graph, a version."""

    name: str
    text: str
    digest: str = ""
    """What the key holds of the field if its text may not be the whole value; empty: the text itself."""


@dataclass(slots=True)
class CacheLookup:
    """One lookup of a compiled graph in a cache."""

    cache: CacheName
    name: str
    """What was looked up: ``forward``, ``backward``, or empty for both."""
    outcome: Literal["hit", "miss", "not cached"]
    key: str = ""
    fields: list[KeyField] = field(default_factory=list)
    """What the key is a digest of; empty if the cache does not report it."""
    reason: str = ""
    """Why there is no key, or why an entry that was found is not used."""


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field that differs between two keys, with what differs in its text on both sides."""

    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]


def changed_fields(before: CacheLookup, after: CacheLookup) -> Iterator[FieldChange]:
    """Yields the fields in which the keys of two lookups differ, in the order of the first one's fields."""
    old, new = ({each.name: each for each in lookup.fields} for lookup in (before, after))
    for name in dict.fromkeys([*old, *new]):
        left, right = old.get(name), new.get(name)
        if left is None or right is None:
            yield FieldChange(name, (left.text,) if left else (), (right.text,) if right else ())
        elif ((left.digest, right.digest) == ("", "") and left.text != right.text) or left.digest != right.digest:
            yield FieldChange(name, *_different_parts(left.text, right.text))


def _different_parts(before: str, after: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns what differs between two texts: lines of long ones, named values of ``Tensor(shape=..., dtype=...)``."""
    if before == after:  # only the digests differ
        return (before,), (after,)
    if "\n" in before or "\n" in after:
        return _only_in(before.split("\n"), after.split("\n")), _only_in(after.split("\n"), before.split("\n"))
    left, right = _named_values(before), _named_values(after)
    only = _only_in(left, right), _only_in(right, left)
    return only if left and right and only != ((), ()) else ((before,), (after,))


def _only_in(parts: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    known = set(others)
    return tuple(part.strip() for part in parts if part not in known)


def _named_values(text: str) -> list[str]:
    """Returns the parts of ``Name(a=1, b=(2, 3))``, such as ``a=1``; none for a text of another form."""
    opened = text.find("(")
    if opened < 0 or not text.endswith(")") or not text[:opened].isidentifier():
        return []
    parts: list[str] = []
    depth: list[str] = []
    start = opened + 1
    for position in range(start, len(text) - 1):
        character = text[position]
        if character in _CLOSING:
            depth.append(_CLOSING[character])
        elif depth and character == depth[-1]:
            depth.pop()
        elif character == "," and not depth:
            parts.append(text[start:position].strip())
            start = position + 1
    parts.append(text[start:-1].strip())
    return parts if all(_NAMED.match(part) for part in parts) else []
