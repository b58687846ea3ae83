"""Records a graph that a pass or a backend of the user changed, linked to the graph before.

New nodes are linked to the nodes that are gone at the same place, that is between the same neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch.fx as fx

from compiler_core.records import Compile
from compiler_core.support.fx_graphs import node_signature, record_graph


def differs(after: fx.GraphModule, before: fx.GraphModule) -> bool:
    """Returns whether two graphs differ in their nodes, or in the objects that they hold."""
    nodes, others = after.graph.nodes, before.graph.nodes
    return len(nodes) != len(others) or any(
        node_signature(node) != node_signature(other) or _held(after, node) is not _held(before, other)
        for node, other in zip(nodes, others, strict=True)
    )


def record_change(compile_: Compile, before: fx.GraphModule, after: fx.GraphModule, name: str) -> None:
    """Records `after` as an artifact called `name`, with links to the nodes of `before`."""
    _link(after.graph, before.graph, name)
    record_graph(compile_, "passes", name, after)
    compile_.changes.append(name)


def new_nodes(after: fx.Graph, before: fx.Graph) -> list[fx.Node]:
    """Returns the nodes that are new or changed, in order."""
    known = set(map(node_signature, before.nodes))
    return [n for n in after.nodes if n.op not in ("placeholder", "output") and node_signature(n) not in known]


def _held(gm: fx.GraphModule, node: fx.Node) -> Any:
    """Returns the tensor or module of `gm` that a node reads or calls, or None."""
    if node.op not in ("get_attr", "call_module"):
        return None
    held: Any = gm
    for name in str(node.target).split("."):
        held = getattr(held, name, None)
    return held


def _link(after: fx.Graph, before: fx.Graph, name: str) -> None:
    """Links the nodes of both graphs: equal ones, and new ones to those that were removed at the same place."""
    kept = {n.name: n for n in before.nodes}
    new = set(new_nodes(after, before)) - {n for n in after.nodes if n.name in kept}
    removed = set(before.nodes) - {kept[n.name] for n in after.nodes if n.name in kept}
    places = [(group, _neighbours(group)) for group in _connected(removed)]
    for node in after.nodes:
        if node.name in kept:
            node.meta = {**node.meta, **_origin([kept[node.name]], name)}
    for group in _connected(new):
        around = _neighbours(group)
        best = max(places, key=lambda place: len(place[1] & around), default=(set(), set()))
        for node in group:
            node.meta.update(_origin(best[0] if best[1] & around else (), name))


def _origin(nodes: Iterable[fx.Node], name: str) -> dict[str, Any]:
    items = tuple(sorted(n.meta["item"] for n in nodes if "item" in n.meta))
    return {"origin": items, "rule": name}


def _connected(nodes: set[fx.Node]) -> list[set[fx.Node]]:
    """Returns the connected groups of `nodes`."""
    groups, left = [], set(nodes)
    while left:
        group, todo = set(), [left.pop()]
        while todo:
            node = todo.pop()
            group.add(node)
            near = left.intersection((*node.all_input_nodes, *node.users))
            left -= near
            todo += near
        groups.append(group)
    return groups


def _neighbours(group: set[fx.Node]) -> set[str]:
    """Returns the names of the nodes around a group."""
    return {n.name for node in group for n in (*node.all_input_nodes, *node.users)} - {n.name for n in group}
