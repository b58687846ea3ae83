"""Which captured node caused each node of a graph that PyTorch traces, in the forward and in the backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx


class Provenance:
    """Writes meta origin and rule on the nodes of a graph while the graph grows."""

    def __init__(self, graph: fx.Graph) -> None:
        self._last = self._newest(graph)
        self._graph = graph
        self._grad_owner: dict[Any, fx.Node] = {}
        self._hooks: list[Any] = []
        self._source: fx.Node | None = None
        self._rule = ""

    @staticmethod
    def _newest(graph: fx.Graph) -> fx.Node:
        return graph._root._prev

    def name_inputs(self, captured: Sequence[fx.Node]) -> None:
        """The graph's placeholders so far stand for those of the captured graph, in order."""
        for node, source in zip(self._graph.find_nodes(op="placeholder"), captured, strict=True):
            node.meta |= {"origin": _items(source), "rule": "primal"}

    def stamp(self, source: fx.Node | None, rule: str = "") -> None:
        """Nodes made since the last call came from the source named then; those to come, from this."""
        node = self._last._next
        while node is not self._graph._root:
            if self._source is not None:
                node.meta["origin"] = _items(self._source)
                node.meta["decomposed"] = _decomposed(node)
                node.meta["rule"] = self._rule or _forward_rule(node)
                node.meta["module"] = self._source.meta.get("module")
            node = node._next
        self._last, self._source, self._rule = self._newest(self._graph), source, rule

    def own_gradients(self, owner: fx.Node, tensors: Sequence[torch.Tensor]) -> None:
        """Gradient functions reachable from `tensors` and not seen before were made by `owner`."""
        work = [t.grad_fn for t in tensors if t.grad_fn is not None]
        while work:
            function = work.pop()
            if function in self._grad_owner:
                continue
            self._grad_owner[function] = owner
            self._hooks.append(function.register_prehook(self._prehook(owner, f"autograd {function.name()}")))
            work.extend(next_ for next_, _ in function.next_functions if next_ is not None)

    def let_go(self) -> None:
        """Take the hooks off: gradient functions and what their hooks refer to would keep one another alive."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._grad_owner.clear()

    def _prehook(self, owner: fx.Node, rule: str) -> Callable[[Any], None]:
        return lambda grads: self.stamp(owner, rule)


def _items(node: fx.Node) -> tuple[str, ...]:
    return (node.meta["item"],) if "item" in node.meta else ()


def _forward_rule(node: fx.Node) -> str:
    if node.op == "get_attr":
        return "constant"
    return f"decompose {node.meta['decomposed']}" if node.meta["decomposed"] else "trace"


def _decomposed(node: fx.Node) -> str | None:
    """The operator that was taken apart into this node and others."""
    # by name: while tracing, PyTorch hands out more than one object for an operator
    original = str(node.meta.get("original_aten") or node.target)
    return None if node.op == "get_attr" or original == str(node.target) else original
