"""Which results of a joint graph have memory of their own: those whose tensors have it in eager PyTorch.

own_outputs     no output shares memory with an input or another output
own_gradients   no gradient shares memory with anything, unless eager's does
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from compiler_core.support.operator_facts import is_view, view_base, view_source

aten = torch.ops.aten


@dataclass(frozen=True)
class Memory:
    """Which memory each tensor of a run has in eager PyTorch: tensors with equal numbers share it."""

    inputs: tuple[int | None, ...] = ()
    """Of the primals, then of the tangents; None for numbers."""
    outputs: tuple[int, ...] = ()
    gradients: tuple[int | None, ...] = ()
    """Of each primal's gradient; None where it has none."""
    objects: tuple[int, ...] = ()
    """For each primal's gradient, which tensor object it is."""
    saved: tuple[frozenset[int], ...] = ()
    """For each tangent, what eager's autograd saves behind its output."""


def own_outputs(graph: fx.Graph, count: int) -> None:
    """Copy those of the first `count` outputs that share memory with an input or an earlier one."""
    output: Any = graph.output_node()
    values = list(output.args[0])
    claimed = {n for n in graph.nodes if n.op in ("placeholder", "get_attr")}
    for i, node in enumerate(values[:count]):
        base = view_base(node)
        if base in claimed:
            with graph.inserting_before(output):
                values[i] = graph.call_function(aten.clone.default, (node,))
            values[i].meta = dict(node.meta) | {"rule": "trace"}
        claimed.add(base)
    output.args = (values,)


def own_gradients(graph: fx.Graph, memory: Memory) -> tuple[int, ...]:
    """Give each gradient memory of its own where the graph's values share some that eager's tensors do not share;
    which gradients share memory with an earlier one all the same, being another view of it.

    Whoever writes to a gradient in place (accumulation, clipping, hooks) must change that gradient alone.  Equal
    operations are merged all the same: a copy costs less than computing twice, and joins the kernel that computes.
    """
    output: Any = graph.output_node()
    values, first = list(output.args[0]), len(memory.outputs)
    holders: dict[fx.Node, set[int | None]] = {n: set() for n in graph.find_nodes(op="get_attr")}
    objects: dict[fx.Node, int] = {}
    first_of: dict[int | None, int] = {}
    known = [*graph.find_nodes(op="placeholder"), *values[:first]]
    for node, owner in zip(known, (*memory.inputs, *memory.outputs), strict=True):
        holders.setdefault(view_base(node), set()).add(owner)
    for at, (owner, one) in enumerate(zip(memory.gradients, memory.objects, strict=True), first):
        node = values[at]
        if node is None:
            continue
        if owner not in holders.get(view_base(node), {owner}):
            node = view_again(graph, node)
        elif objects.get(node, one) != one:
            node = view_again(graph, node, aten.alias.default)
        holders.setdefault(view_base(node), set()).add(owner)
        objects[node], values[at] = one, node
        first_of.setdefault(owner, one)
    output.args = (values,)
    pairs = enumerate(zip(memory.gradients, memory.objects, strict=True))
    return tuple(i for i, (owner, one) in pairs if owner is not None and first_of[owner] != one)


def view_again(graph: fx.Graph, node: fx.Node, of: torch._ops.OpOverload = aten.clone.default) -> fx.Node:
    """The same view as `node`, of a copy (or an alias) of what that is a view of, made at the end of `graph`."""
    views: list[fx.Node] = []
    while is_view(node):
        views.append(node)
        node = view_source(node)
    with graph.inserting_before(graph.output_node()):
        made = graph.call_function(of, (node,))
        made.meta = dict(node.meta) | {"rule": "trace"}
        for view in reversed(views):
            copied = graph.node_copy(view, {n: n for n in view.all_input_nodes}.__getitem__)
            copied.replace_input_with(view_source(view), made)
            copied.meta, made = dict(view.meta), copied
    return made
