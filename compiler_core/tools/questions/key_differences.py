"""The fields in which the cache keys of two runs differ: why the second did not find what the first had kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import NamedTuple

from compiler_core.records import Compile
from compiler_core.records.differences import Difference
from compiler_core.records.item_lines import LineRef
from compiler_core.records.lookups import CacheLookup, CacheName, FieldChange, changed_fields
from compiler_core.tools.questions.line_facts import ComparedRun

_Lookups = dict[tuple[str, str, str, str], list[tuple[Compile, CacheLookup]]]
_INPUT = re.compile(r"(?:example_)?inputs\[(\d+)\]$")
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
    keys: list[tuple[str, _Change]] = []
    """The compiles with a key that differs in fields that are not reported, and the whole keys."""
    old, new = _lookups(before), _lookups(after)
    for name in (each for each in old if each in new):
        for (was_in, was), (compile_, lookup) in zip(old[name], new[name], strict=False):
            one, other = _Side(before, was_in, was, moved), _Side(after, compile_, lookup, lambda line: line)
            for change in _changes(one, other):
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
        self.lookup = lookup
        self.start = moved(run.first_line(compile_))
        self._run, self._moved = run, moved
        panes = [lookup.name] if lookup.name in _GRAPH_PANES else ["captured"]
        self._graphs = [artifact for artifact in compile_.artifacts if artifact.pane in panes and artifact.graph]

    def input_name(self, field: str) -> str:
        """Adds to the name of a field of an input the name that the graph gives it."""
        found = _INPUT.match(field)
        graph = self._graphs[0].graph if self._graphs else None
        names = [node.key for node in graph.nodes if node.op == "placeholder"] if graph else []
        position = int(found[1]) if found else len(names)
        return f"{field} {names[position]}" if position < len(names) else field

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
    for change in changed_fields(one, other):
        if change.name == "graph":
            yield from _graph_changes(old, new, change)
        else:
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
