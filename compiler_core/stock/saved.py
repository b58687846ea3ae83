"""What stock's partitioner saved for the backward and what it computes again, read off its graphs."""

from __future__ import annotations

from collections.abc import Iterable

from compiler_core.records import Partition, Value
from compiler_core.stock.kernels import Graphs
from compiler_core.stock.read.graph_text import Readable


def partition_of(parts: Iterable[Graphs]) -> Partition | None:
    """Of all parts of a compile together; None where there is no backward."""
    found = [_of_part(graphs) for graphs in parts if "forward" in graphs and "backward" in graphs]
    if not found:
        return None
    whole, *more = found
    for each in more:
        whole.values += each.values
        for name in ("saved_count", "saved_bytes", "default_saved_count", "default_saved_bytes"):
            setattr(whole, name, getattr(whole, name) + getattr(each, name))
    return whole


def _of_part(graphs: Graphs) -> Partition:
    artifact, forward = graphs["forward"]
    _, backward = graphs["backward"]
    size = {node.key: node.bytes or 0 for node in forward.graph.nodes}
    saved = [name for name in dict.fromkeys(forward.outputs) if _is_saved(forward, name)]
    inputs = {node.key for node in backward.graph.nodes if node.op == "placeholder"}
    computed = {node.key for node in forward.graph.nodes if node.op.startswith("call_")}
    again = [n.key for n in backward.graph.nodes if n.key in computed and n.key not in inputs]
    values = [Value(artifact.item(n), "saved", size[n], "the min-cut keeps it for the backward") for n in saved]
    values += [Value(artifact.item(n), "recomputed", size[n], "the backward computes it again") for n in again]
    default = _default(graphs["joint"][1]) if "joint" in graphs else {name: size[name] for name in saved}
    return Partition(values, len(saved), sum(size[n] for n in saved), len(default), sum(default.values()))


def _is_saved(forward: Readable, name: str) -> bool:
    return forward.roles.get(f"output:{name}", "").startswith("SavedForBackward")


def _default(joint: Readable) -> dict[str, int]:
    """What the backward reads of the forward where nothing is computed again, and its bytes."""
    size = {node.key: node.bytes or 0 for node in joint.graph.nodes}
    readers: dict[str, list[str]] = {}
    for source, to in joint.graph.edges:
        readers.setdefault(source, []).append(to)
    backward = {node.key for node in joint.graph.nodes if node.key.startswith("tangents_")}
    work = list(backward)
    while work:
        for reader in readers.get(work.pop(), ()):
            if reader not in backward and reader != "output":
                backward.add(reader)
                work.append(reader)
    # what the backward alone needs, though no tangent goes in, belongs to it too
    needed = {source for source, to in joint.graph.edges if to in backward and source not in backward}
    return {name: size[name] for name in size if name in needed}
