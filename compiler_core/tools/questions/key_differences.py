"""The fields in which the cache keys of two runs differ: why the second did not find what the first had kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple

from compiler_core.records import Compile
from compiler_core.records.differences import Difference
from compiler_core.records.kernels import CacheLookup, CacheName
from compiler_core.records.user_lines import LineRef
from compiler_core.tools.questions.line_facts import ComparedRun
from compiler_core.tools.questions.queries import users_name

_Lookups = dict[tuple[str, str, str, str], list[tuple[Compile, CacheLookup]]]
_INPUT = re.compile(r"(?:example_)?inputs\[(\d+)\]$")
_NUMBERED = re.compile(r"\[\d+\]$")
_OF_KERNELS: tuple[CacheName, ...] = ("kernel cache", "Triton cache")
_PRINTED = ("source", "first line", "signature", "constants", "attributes")
"""The fields of a kernel's key that follow from the graph."""
_GRAPH_PANES = ("captured", "forward", "backward", "joint", "postgrad")


def key_differences(
    before: ComparedRun, after: ComparedRun, moved: Callable[[LineRef], LineRef]
) -> Iterator[Difference]:
    """Yields a difference for each field that differs between the keys of two runs of one engine.

    The lookups of one function in one cache are paired in their order.  What differs in a graph is at the user's lines,
    any other field at the first line of the function; one that differs in the same way in several keys is there once.
    """
    found: dict[_Change, list[str]] = {}
    explained: set[str] = set()
    """The compiles of the second run with a field that differs."""
    of_graphs: set[str] = set()
    """Those with a field that differs in the key of a graph."""
    keys: list[tuple[str, _Change]] = []
    """The compiles with a key that differs in fields that are not reported, and the whole keys."""
    old, new = _lookups(before), _lookups(after)
    for name in sorted((each for each in old if each in new), key=lambda name: name[2] in _OF_KERNELS):
        for (was_in, was), (compile_, lookup) in zip(old[name], new[name], strict=False):
            one, other = _Side(before, was_in, was, moved), _Side(after, compile_, lookup, lambda line: line)
            for change in _changes(one, other):
                if name[2] not in _OF_KERNELS:
                    of_graphs.add(compile_.id)
                elif compile_.id in of_graphs and change.field in _PRINTED:
                    continue
                explained.add(compile_.id)
                found.setdefault(change, []).append(lookup.name)
            if "" != was.key != lookup.key != "":
                keys.append((compile_.id, _Change(other.start, lookup.cache, "key", was.key, lookup.key)))
    found |= {change: [] for compile_id, change in keys if compile_id not in explained}
    once: dict[tuple[str, ...], LineRef] = {}
    for change, names in sorted(found.items(), key=lambda each: each[0].line):
        text = after.text(change.line) or before.text(change.line)
        texts = [_text(change, part, names) for part in (change.before, change.after)]
        if once.setdefault(tuple(texts), change.line) == change.line:
            yield Difference("cache key", *change.line, text, "changed", [texts[0]], [texts[1]])


class _Change(NamedTuple):
    """What differs between two keys at one of the user's lines."""

    line: LineRef
    cache: CacheName
    field: str
    before: str
    after: str


def _text(change: _Change, part: str, names: list[str]) -> str:
    which = " and ".join(dict.fromkeys(filter(None, names)))
    return f"{change.field} = {part or 'nothing'} ({change.cache}{f', {which}' if which else ''})"


def _lookups(side: ComparedRun) -> _Lookups:
    frames = {frame.id: frame for frame in (side.record.frames if side.record else ())}
    found: _Lookups = {}
    for compile_ in side.compiles:
        frame = frames.get(compile_.frame)
        where = (frame.name, PurePath(frame.filename).name) if frame else ("", "")
        for lookup in compile_.cache_lookups:
            found.setdefault((*where, lookup.cache, lookup.name), []).append((compile_, lookup))
    return found


class _Side:
    """A lookup of one run, with the lines and texts of the nodes in its graph."""

    def __init__(
        self, run: ComparedRun, compile_: Compile, lookup: CacheLookup, moved: Callable[[LineRef], LineRef]
    ) -> None:
        self.lookup, self._compile = lookup, compile_
        self.start = moved(run.first_line(compile_))
        self._run, self._moved = run, moved
        panes = [lookup.name] if lookup.name in _GRAPH_PANES else ["captured"]
        self._graphs = [artifact for artifact in compile_.artifacts if artifact.pane in panes and artifact.graph]

    def input_name(self, field: str) -> str:
        """Adds to the name of a field of an input the user's name for it, or that of the graph."""
        found = _INPUT.match(field)
        artifact = self._graphs[0] if self._graphs else None
        nodes = artifact.graph.nodes if artifact and artifact.graph else []
        inputs = [artifact.item(node.key) for node in nodes if artifact and node.op == "placeholder"]
        position = int(found[1]) if found else len(inputs)
        return f"{field} {users_name(self._compile, inputs[position])[0]}" if position < len(inputs) else field

    def node(self, line: str) -> tuple[LineRef, str]:
        """Returns the user's line of a node that a line of a graph computes, and the node's text in the record."""
        name = line.partition(" = ")[0].strip()
        for artifact in self._graphs:
            span = next((each for each in artifact.spans if each.key == name), None)
            if span is not None:
                at = self._moved(self._run.line_of(artifact.item(name)))
                return at if at[1] else self.start, artifact.statement(span)
        return self.start, line


def _changes(old: _Side, new: _Side) -> Iterator[_Change]:
    one, other = old.lookup, new.lookup
    changed = list(changed_fields(one, other))
    is_other_graph = any(change.name == "graph" for change in changed)
    for change in changed:
        is_extra = not (change.before and change.after) and _NUMBERED.search(change.name)
        if change.name == "graph":
            yield from _graph_changes(old, new, change)
        elif not (is_other_graph and is_extra):  # one of the graphs has more inputs
            name = new.input_name(change.name)
            yield _Change(new.start, other.cache, name, ", ".join(change.before), ", ".join(change.after))
    if one.reason != other.reason:
        was, now = (f"{each.outcome}: {each.reason}" if each.reason else each.outcome for each in (one, other))
        yield _Change(new.start, other.cache, "lookup", was, now)


def _graph_changes(old: _Side, new: _Side, change: FieldChange) -> Iterator[_Change]:
    lines: dict[LineRef, tuple[list[str], list[str]]] = {}
    for side, texts, which in ((old, change.before, 0), (new, change.after, 1)):
        for text in texts:
            at, shown = side.node(text)
            lines.setdefault(at, ([], []))[which].append(shown)
    for at, (was, now) in lines.items():
        left, right = ("; ".join(text for text in one if text not in other) for one, other in ((was, now), (now, was)))
        yield _Change(at, new.lookup.cache, "graph", left, right)


# ---------------------------------------------------------------- two keys


_CLOSING = {"(": ")", "[": "]", "{": "}"}
_NAMED = re.compile(r"(\w+)=")


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
            is_shown = left.text != right.text
            yield FieldChange(
                name, *(_different_parts(left.text, right.text) if is_shown else ((left.digest,), (right.digest,)))
            )


def _different_parts(before: str, after: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns what differs between two texts: lines of long ones, named values of ``Tensor(shape=..., dtype=...)``."""
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
