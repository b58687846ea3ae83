"""Ways to divide a joint graph into forward and backward: what each saves, and a drawing of it for Graphviz."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler_core.records import Artifact, Compile, Graph, Node, Record

_COLOURS = {"saved": "#f6c453", "recomputed": "#cfe3ff"}


@dataclass(frozen=True)
class PartitionPlan:
    """One way to divide a joint graph."""

    name: str
    graph: Graph
    saved: tuple[str, ...]
    """The nodes whose values the forward keeps for the backward."""
    bytes: int
    recomputed: tuple[str, ...]
    """The nodes that the backward computes again."""

    def __str__(self) -> str:
        recomputed = f", {len(self.recomputed)} recomputed" if self.recomputed else ""
        return f"{self.name}: {len(self.saved)} saved, {self.bytes:,} bytes{recomputed}"

    def dot(self) -> str:
        """Returns the graph as text for Graphviz: forward above backward, saved and recomputed values filled."""
        sides = _Sides(self.graph)
        lines = ["digraph {", "  node [shape=box, fontsize=10, height=0.2, style=filled, fillcolor=white]"]
        for title, keys in (("forward", sides.forward), ("backward", sides.backward)):
            lines += [f"  subgraph cluster_{title} {{", f'    label="{title}"; fontsize=10; color="#999999"']
            lines += [f"    {self._node(sides.nodes[key])}" for key in keys]
            lines.append("  }")
        shown = {*sides.forward, *sides.backward}
        lines += [f"  {_quoted(a)} -> {_quoted(b)}" for a, b in self.graph.edges if {a, b} <= shown]
        return "\n".join([*lines, "}"]) + "\n"

    def _node(self, node: Node) -> str:
        kind = "saved" if node.key in self.saved else "recomputed" if node.key in self.recomputed else ""
        label = "\\n".join(filter(None, [node.key, f"{node.bytes:,} B" if node.bytes else "", kind]))
        colour = f", fillcolor={_quoted(_COLOURS[kind])}" if kind else ""
        return f"{_quoted(node.key)} [label={_quoted(label)}{colour}]"


def partition_plans(of: Record | Compile) -> list[PartitionPlan]:
    """Returns the ways to divide the first joint graph: save everything, the default, the minimum cut, and budgets.

    The default saves each value of the forward that the backward reads.  Budgets are those of the memory curve
    (``memory_curve=True``) that save something else.

    Args:
        of: a record or a compile of the core engine.

    Returns:
        A plan for each way: the saved values, their bytes, and the nodes that the backward computes again.  An empty
        list if no joint graph was partitioned.

    Example::

        for plan in compiler_core.partition_plans(record):
            print(plan)
            print(plan.dot())
    """
    compiles = of.compiles if isinstance(of, Record) else [of]
    for compile_ in compiles:
        joint = next((a for a in compile_.artifacts if a.name == "joint" and a.graph), None)
        if joint is not None and compile_.partition is not None:
            return list(_plans(compile_, joint))
    return []


def _plans(compile_: Compile, joint: Artifact) -> Iterator[PartitionPlan]:
    assert joint.graph is not None
    partition = compile_.partition
    assert partition is not None
    sides = _Sides(joint.graph)
    yield sides.plan("save everything", [key for key in sides.forward if sides.nodes[key].bytes])
    yield sides.plan("default", sides.read_by_backward())
    cut = [value.node.rpartition("#")[2] for value in partition.values if value.decision == "saved"]
    yield sides.plan("minimum cut", [key for key in cut if key in sides.nodes])
    seen = {frozenset(cut)}
    for point in partition.curve:
        saved = [item.rpartition("#")[2] for item in point.saved]
        if frozenset(saved) not in seen:
            seen.add(frozenset(saved))
            yield sides.plan(f"budget {point.budget:.1f}", saved)


class _Sides:
    """The nodes of a joint graph: those of the forward, inputs included, and those that only gradients need."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.nodes = {node.key: node for node in graph.nodes if node.op != "output"}
        self.sources: dict[str, list[str]] = {key: [] for key in self.nodes}
        for source, key in graph.edges:
            if key in self.sources:
                self.sources[key].append(source)
        outputs = [node.key for node in graph.nodes if node.role == "output"]
        needed = self.before(outputs, set())
        self.forward = [key for key, node in self.nodes.items() if key in needed or node.role == "primal"]
        self.backward = [key for key in self.nodes if key not in self.forward]

    def before(self, keys: list[str], ends: set[str]) -> set[str]:
        """Returns what `keys` are computed from, themselves included; nothing beyond `ends`."""
        found: set[str] = set()
        work = list(keys)
        while work:
            key = work.pop()
            if key not in found:
                found.add(key)
                work += [] if key in ends else self.sources[key]
        return found

    def read_by_backward(self) -> list[str]:
        read = {source for key in self.backward for source in self.sources[key]}
        return [key for key in self.forward if key in read and self.nodes[key].bytes]

    def plan(self, name: str, saved: list[str]) -> PartitionPlan:
        used = self.before(self.backward, set(saved))
        again = [
            key for key in self.forward if key in used and key not in saved and self.nodes[key].op != "placeholder"
        ]
        size = sum(self.nodes[key].bytes or 0 for key in saved)
        return PartitionPlan(name, self._graph, tuple(saved), size, tuple(again))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', "'") + '"'
