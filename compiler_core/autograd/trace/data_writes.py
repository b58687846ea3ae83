"""Writes through ``.data``: ``p.data.lerp_(q.data, 0.1)`` changes the memory of ``p`` unseen by autograd.

Such a write is made at the end of the forward, as others are, and is not counted in the version of the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch.fx as fx

from compiler_core.support.tensors import storage_id, tensors_in


def is_data_read(node: fx.Node) -> bool:
    """Returns whether the node is ``x.data``."""
    return node.target is getattr and node.args[1] == "data"


class DataWrites:
    """Which memory ``.data`` shows, and which nodes of a captured graph write to it.

    Args:
        nodes: the nodes of the captured graph, in order.
        values: the value of each node.
        written: for each node that writes, the argument that it writes to, by the memory.
    """

    def __init__(
        self, nodes: Sequence[fx.Node], values: Mapping[fx.Node, Any], written: Mapping[fx.Node, Mapping[int, fx.Node]]
    ) -> None:
        self._nodes, self._values, self._written = nodes, values, written
        self._through_data: set[fx.Node] = set()
        """Nodes whose value is ``.data`` of a tensor, or a view of that."""
        for node in nodes[:-1]:
            viewed = self._through_data.intersection(node.all_input_nodes)
            if is_data_read(node) or not self._memory(viewed).isdisjoint(self._memory([node])):
                self._through_data.add(node)

    def _memory(self, nodes: Iterable[fx.Node]) -> set[int]:
        return {storage_id(t) for n in nodes for t in tensors_in(self._values[n])}

    def all_unseen(self, memory: int) -> bool:
        """Returns whether all writes to this memory are made through ``.data``."""
        written = [by_memory[memory] for by_memory in self._written.values() if memory in by_memory]
        return bool(written) and self._through_data.issuperset(written)

    def has_history(self, memory: int) -> bool:
        """Returns whether ``.data`` of this memory got an autograd history by a write, which its tensor does not
        get."""
        values = [t for n in self._through_data for t in tensors_in(self._values[n])]
        return any(t.requires_grad and storage_id(t) == memory for t in values)
