"""Finds the nodes of an earlier graph that the nodes of a later graph came from.

PyTorch's texts do not state this, so nodes are matched by name, operation and the user's line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from compiler_core.records import Artifact, Node, limits
from compiler_core.tools.questions.line_facts import operation
from compiler_core.tools.stock.read.graph_text import ParsedGraph
from compiler_core.tools.stock.source_files import SourceLocation

_INDEX = re.compile(r"AOTInput\((?:.*\b)?idx=(\d+)\)")

MAX_CANDIDATES = 8
"""With more candidates than this, a node is linked to its source line only."""

_Group = tuple[SourceLocation, str]
"""A user's line, and an operation on it."""


class OriginIndex:
    """Looks up nodes of one recorded graph."""

    def __init__(self, artifact: Artifact, parsed: ParsedGraph) -> None:
        self.artifact = artifact
        self._operations = {node.key: operation(node.target) for node in parsed.graph.nodes}
        self._order = {name: i for i, name in enumerate(self._operations)}
        self._by_operation: dict[str, list[str]] = {}
        for name, each in self._operations.items():
            self._by_operation.setdefault(each, []).append(name)
        self._inputs = [node.key for node in parsed.graph.nodes if node.op == "placeholder"]
        self._locations = parsed.locations
        self._files = {location.filename for location in parsed.locations.values()}
        self._groups = _group_nodes(parsed)
        self._by_line: dict[tuple[str, int], list[str]] = {}
        for name, location in parsed.locations.items():
            self._by_line.setdefault((location.filename, location.lineno), []).append(name)

    def origins(self, later: ParsedGraph) -> Iterator[tuple[Node, list[str]]]:
        """Yields each node of a later graph with the items it came from; an empty list if only its line is known."""
        seen: Counter[_Group] = Counter()
        group_sizes = {group: len(names) for group, names in _group_nodes(later).items()}
        for node in later.graph.nodes:
            location = later.locations.get(node.key)
            group = (location, operation(node.target)) if location else None
            names = self._candidates(node, later, group, seen[group] if group else 0, group_sizes)
            if group:
                seen[group] += 1
            yield node, [self.artifact.item(name) for name in names]

    def items(self, names: Iterable[str]) -> list[str]:
        """Returns the items of those names that are nodes of the graph."""
        return [self.artifact.item(name) for name in names if name in self._operations]

    def by_operation(self, operations: Iterable[str], left_out: Counter[str]) -> list[str]:
        """Returns the nodes with one of these operations; see `first_nodes`."""
        groups = (self._by_operation.get(each, []) for each in dict.fromkeys(operations))
        return first_nodes(groups, self._order, left_out)

    def operation_of(self, name: str) -> str:
        """Returns the operation of a node; empty for an unknown name."""
        return self._operations.get(name, "")

    def _candidates(
        self, node: Node, later: ParsedGraph, group: _Group | None, position: int, group_sizes: dict[_Group, int]
    ) -> list[str]:
        """Returns the nodes that `node`, the one at `position` within its group, may have come from."""
        location = group[0] if group else None
        if self._operations.get(node.key) == operation(node.target) and self._may_be_at(node.key, location):
            return [node.key]
        if node.op == "placeholder":
            index = _INDEX.search(later.comments.get(node.key, ""))
            at = int(index[1]) if index else len(self._inputs)
            return self._inputs[at : at + 1]
        if group is None or location is None:
            return []
        same_group = self._groups.get(group, [])
        if same_group and len(same_group) == group_sizes[group]:
            return [same_group[position]]
        candidates = same_group or self._by_line.get((location.filename, location.lineno), [])
        return candidates if len(candidates) <= MAX_CANDIDATES else []

    def _may_be_at(self, name: str, location: SourceLocation | None) -> bool:
        """Whether a node of this name may be at `location`.

        A text from PyTorch's cache names the lines of the program that filled the cache, so a location in a file that
        this graph does not use proves nothing.
        """
        if location is None or location.filename not in self._files:
            return True
        return self._locations.get(name) == location


def _group_nodes(parsed: ParsedGraph) -> dict[_Group, list[str]]:
    """Groups nodes by line and operation, in order."""
    groups: dict[_Group, list[str]] = {}
    for node in parsed.graph.nodes:
        if location := parsed.locations.get(node.key):
            groups.setdefault((location, operation(node.target)), []).append(node.key)
    return groups


def first_nodes(groups: Iterable[list[str]], order: Mapping[str, int], left_out: Counter[str]) -> list[str]:
    """Returns the nodes of all groups in `order`, at most `limits.LINKS`; counts the others as left out."""
    listed = list(groups)
    nodes = (node for group in listed for node in group[: limits.LINKS])
    first = sorted(nodes, key=order.__getitem__)[: limits.LINKS]
    left_out["links of kernels to nodes"] += sum(map(len, listed)) - len(first)
    return first
