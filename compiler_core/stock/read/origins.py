"""Which nodes of one graph the nodes of the next came from, as far as names, operations and user lines tell."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from compiler_core.records import Artifact, Node, limits
from compiler_core.records.line_facts import operation
from compiler_core.stock.read.graph_text import Place, Readable

_INDEX = re.compile(r"AOTInput\((?:.*\b)?idx=(\d+)\)")

MOST = 8
"""Where more nodes might be meant, only the line is said."""


class Origins:
    """Looks nodes up in one graph that was recorded."""

    def __init__(self, artifact: Artifact, read: Readable) -> None:
        self.artifact = artifact
        self._targets = {node.key: operation(node.target) for node in read.graph.nodes}
        self._order = {name: i for i, name in enumerate(self._targets)}
        self._of_operation: dict[str, list[str]] = {}
        for name, target in self._targets.items():
            self._of_operation.setdefault(target, []).append(name)
        self._inputs = [node.key for node in read.graph.nodes if node.op == "placeholder"]
        self._places = read.places
        self._files = {place.filename for place in read.places.values()}
        self._alike = _alike(read)
        self._at: dict[tuple[str, int], list[str]] = {}
        for name, place in read.places.items():
            self._at.setdefault((place.filename, place.lineno), []).append(name)

    def of(self, read: Readable) -> Iterator[tuple[Node, list[str]]]:
        """Each node of `read`, a graph that came later, and the items that it was made from; none where only
        its line is known."""
        nth: Counter[tuple[Place, str]] = Counter()
        counts = {group: len(names) for group, names in _alike(read).items()}
        for node in read.graph.nodes:
            place = read.places.get(node.key)
            group = (place, operation(node.target)) if place else None
            names = self._names(node, read, group, nth[group] if group else 0, counts)
            if group:
                nth[group] += 1
            yield node, [self.artifact.item(name) for name in names]

    def items(self, names: Iterable[str]) -> list[str]:
        return [self.artifact.item(name) for name in names if name in self._targets]

    def by_operation(self, operations: Iterable[str]) -> list[str]:
        """The nodes whose operation is among these, or as many as `limits.LINKS` allows."""
        groups = (self._of_operation.get(each, [])[: limits.LINKS] for each in dict.fromkeys(operations))
        return sorted((name for names in groups for name in names), key=self._order.__getitem__)[: limits.LINKS]

    def operation_of(self, name: str) -> str:
        return self._targets.get(name, "")

    def _names(
        self, node: Node, read: Readable, group: tuple[Place, str] | None, nth: int, counts: dict[Any, int]
    ) -> list[str]:
        place = group[0] if group else None
        known = self._targets.get(node.key) == operation(node.target)
        # a text from PyTorch's cache may name the lines of whoever filled it
        if known and (place is None or self._places.get(node.key) == place or place.filename not in self._files):
            return [node.key]
        if node.op == "placeholder":
            index = _INDEX.search(read.roles.get(node.key, ""))
            at = int(index[1]) if index else len(self._inputs)
            return self._inputs[at : at + 1]
        if group is None or place is None:
            return []
        same = self._alike.get(group, [])
        if same and len(same) == counts[group]:
            return [same[nth]]
        there = same or self._at.get((place.filename, place.lineno), [])
        return there if len(there) <= MOST else []


def _alike(read: Readable) -> dict[tuple[Place, str], list[str]]:
    """The nodes of each operation of each line, in order."""
    found: dict[tuple[Place, str], list[str]] = {}
    for node in read.graph.nodes:
        if place := read.places.get(node.key):
            found.setdefault((place, operation(node.target)), []).append(node.key)
    return found
