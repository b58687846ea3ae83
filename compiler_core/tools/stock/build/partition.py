"""Reads from stock's graphs which values its partitioner saved for the backward and which it recomputes."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from compiler_core.records import Partition, ValueDecision
from compiler_core.tools.stock.build.kernels import RecordedGraphs
from compiler_core.tools.stock.read.graph_text import ParsedGraph


def read_partition(subgraphs: Iterable[RecordedGraphs]) -> Partition | None:
    """Returns the partition of a compile, summed over its subgraphs; None if none of them has a backward."""
    partitions = [_of_subgraph(graphs) for graphs in subgraphs if "forward" in graphs and "backward" in graphs]
    return functools.reduce(Partition.joined, partitions) if partitions else None


def _of_subgraph(graphs: RecordedGraphs) -> Partition:
    artifact, forward = graphs["forward"]
    _, backward = graphs["backward"]
    size = {node.key: node.bytes or 0 for node in forward.graph.nodes}
    saved = [name for name in dict.fromkeys(forward.outputs) if _is_saved(forward, name)]
    inputs = {node.key for node in backward.graph.nodes if node.op == "placeholder"}
    computed = {node.key for node in forward.graph.nodes if node.op.startswith("call_")}
    again = [n.key for n in backward.graph.nodes if n.key in computed and n.key not in inputs]
    values = [ValueDecision(artifact.item(n), "saved", size[n], "the min-cut keeps it for the backward") for n in saved]
    values += [ValueDecision(artifact.item(n), "recomputed", size[n], "the backward computes it again") for n in again]
    default = _saved_by_default(graphs["joint"][1]) if "joint" in graphs else {name: size[name] for name in saved}
    return Partition(values, len(saved), sum(size[n] for n in saved), len(default), sum(default.values()))


def _is_saved(forward: ParsedGraph, name: str) -> bool:
    return forward.comments.get(f"output:{name}", "").startswith("SavedForBackward")


def _saved_by_default(joint: ParsedGraph) -> dict[str, int]:
    """Returns the values that the backward reads if nothing is recomputed, with their bytes."""
    size = {node.key: node.bytes or 0 for node in joint.graph.nodes}
    readers: dict[str, list[str]] = {}
    for source, to in joint.graph.edges:
        readers.setdefault(source, []).append(to)
    outputs = {node.key for node in joint.graph.nodes if node.op == "output"}
    backward = {node.key for node in joint.graph.nodes if node.key.startswith("tangents_")}
    work = list(backward)
    while work:
        for reader in readers.get(work.pop(), ()):
            if reader not in backward and reader not in outputs:
                backward.add(reader)
                work.append(reader)
    # This includes values that only the backward needs although they depend on no tangent.
    needed = {source for source, to in joint.graph.edges if to in backward and source not in backward}
    return {name: size[name] for name in size if name in needed}
