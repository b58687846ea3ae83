"""Records which captured node caused each node of a graph that PyTorch traces, in the forward and in the backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from compiler_core.records import ItemId, LineClock
from compiler_core.support.tensors import gradient_function


class Provenance:
    """Sets ``meta["origin"]`` and ``meta["rule"]`` on the nodes of a graph while it grows."""

    def __init__(self, graph: fx.Graph) -> None:
        self._last = self._newest(graph)
        self._graph = graph
        self._grad_owner: dict[Any, fx.Node] = {}
        self._hooks: list[Any] = []
        self._source: fx.Node | None = None
        self._rule = ""
        self.line_clock = LineClock()

    @staticmethod
    def _newest(graph: fx.Graph) -> fx.Node:
        return graph._root._prev

    def attribute_inputs(self, captured: Sequence[fx.Node]) -> None:
        """Attributes the graph's placeholders so far to those of the captured graph, in order."""
        for node, source in zip(self._graph.find_nodes(op="placeholder"), captured, strict=True):
            node.meta |= {"origin": _item_of(source), "rule": "primal"}

    def attribute_to(self, source: fx.Node | None, rule: str = "") -> None:
        """Attributes nodes from now on to `source`; those since the last call belong to the source given there."""
        self.line_clock.switch(None if source is None else _line_of(source))
        node = self._last._next
        while node is not self._graph._root:
            if self._source is not None:
                node.meta["origin"] = _item_of(self._source)
                node.meta["decomposed"] = _decomposed_operator(node)
                node.meta["rule"] = self._rule or _forward_rule(node)
                node.meta["module"] = self._source.meta.get("module")
            node = node._next
        self._last, self._source, self._rule = self._newest(self._graph), source, rule

    def attribute_gradients(self, owner: fx.Node, tensors: Sequence[torch.Tensor]) -> None:
        """Attributes the gradient functions behind `tensors` that have not been seen before to `owner`."""
        work = [function for t in tensors if (function := gradient_function(t)) is not None]
        while work:
            function = work.pop()
            if function in self._grad_owner:
                continue
            self._grad_owner[function] = owner
            self._hooks.append(function.register_prehook(self._prehook(owner, f"autograd {function.name()}")))
            work.extend(next_ for next_, _ in function.next_functions if next_ is not None)

    def remove_hooks(self) -> None:
        """Removes the hooks: gradient functions and what their hooks refer to would keep each other alive."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._grad_owner.clear()

    def _prehook(self, owner: fx.Node, rule: str) -> Callable[[Any], None]:
        return lambda grads: self.attribute_to(owner, rule)


def _item_of(node: fx.Node) -> tuple[str, ...]:
    return (node.meta["item"],) if "item" in node.meta else ()


def _line_of(node: fx.Node) -> ItemId | None:
    """Returns the item of the user's line that a captured node came from, if the record has it."""
    return next((item for item in node.meta.get("origin", ()) if item.startswith("src:")), None)


def _forward_rule(node: fx.Node) -> str:
    if node.op == "get_attr":
        return "constant"
    return f"decompose {node.meta['decomposed']}" if node.meta["decomposed"] else "trace"


def _decomposed_operator(node: fx.Node) -> str | None:
    """Returns the operator whose decomposition contains this node, or None."""
    # compared by name: while tracing, PyTorch has more than one object for an operator
    original = str(node.meta.get("original_aten") or node.target)
    return None if node.op == "get_attr" or original == str(node.target) else original
