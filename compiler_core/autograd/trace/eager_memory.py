"""The memory of a run in eager PyTorch: which tensors share it, and what autograd saves for the backward.

What a graph returns must share memory as eager's results do, since the program may write to it: `copy_shared_outputs`
and `copy_shared_gradients` copy what would share more.  A write to what eager saved makes a difference: eager then
raises an error, or computes with the new values.  And a second backward raises an error if it reaches a node that saved
anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.fx as fx

from compiler_core.support.interrupts import safe_point
from compiler_core.support.node_facts import is_view, view_base, view_source
from compiler_core.support.opaque_ops import OpaqueFunction
from compiler_core.support.tensors import tensors_in
from compiler_core.torch_private import OpOverload

aten = torch.ops.aten


@dataclass(frozen=True)
class EagerMemory:
    """The memory of each tensor of a run in eager PyTorch.  Tensors with equal numbers share it."""

    inputs: tuple[int | None, ...] = ()
    """Memory of the primals, then of the tangents; None for numbers."""
    outputs: tuple[int, ...] = ()
    gradients: tuple[int | None, ...] = ()
    """Memory of each primal's gradient; None if it has none."""
    objects: tuple[int, ...] = ()
    """For each primal's gradient, the identity of the tensor object."""
    viewed_tangents: tuple[int, ...] = ()
    """The primals whose gradient is a tangent of which another gradient is a view."""
    saved: tuple[frozenset[int], ...] = ()
    """For each tangent, the memory that eager's autograd saves behind its output."""


def after_accumulation(
    memory: EagerMemory, primals: Sequence[fx.Node], gradients: Sequence[fx.Node | None]
) -> EagerMemory:
    """Returns the memory of the gradients that eager PyTorch accumulates into leaves.

    AccumulateGrad copies a gradient that something else still holds: the node that makes a view of it for another
    leaf.  It does not copy the view, unless its strides are not those of the leaf.

    Args:
        memory: the memory of the gradients that autograd computes.
        primals: the nodes of the inputs, in the graph as it was traced.
        gradients: the nodes of their gradients.
    """
    owners, tangents = list(memory.gradients), set[int]()
    for primal, node in zip(primals, gradients, strict=True):
        if node is None or primal.meta["val"].stride() != node.meta["val"].stride():
            continue
        while is_view(node):
            node = view_source(node)
            for i in (i for i, other in enumerate(gradients) if other is node):
                if node.op == "placeholder":
                    tangents.add(i)
                else:
                    owners[i] = -i - 1
    return replace(memory, gradients=tuple(owners), viewed_tangents=tuple(sorted(tangents)))


def copy_shared_outputs(graph: fx.Graph, count: int) -> None:
    """Copies those of the first `count` outputs that share memory with an input or an earlier output::

    t = aten.t(x);  return [t]      t = aten.t(x);  c = aten.clone(t);  return [c]
    """
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


def copy_shared_gradients(graph: fx.Graph, memory: EagerMemory) -> tuple[int, ...]:
    """Copies gradients that share memory which they do not share in eager PyTorch.

    Returns the primals whose gradient still shares memory with an earlier one, as another view of it.

    A program that writes to a gradient in place (accumulation, clipping, hooks) must change only that gradient.  Equal
    operations are merged nevertheless: a copy costs less than computing twice, and fuses into the kernel that computes.
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
            node = replay_view(graph, node)
        elif objects.get(node, one) != one:
            node = replay_view(graph, node, aten.alias.default)
        holders.setdefault(view_base(node), set()).add(owner)
        objects[node], values[at] = one, node
        first_of.setdefault(owner, one)
    output.args = (values,)
    pairs = enumerate(zip(memory.gradients, memory.objects, strict=True))
    return tuple(i for i, (owner, one) in pairs if owner is not None and first_of[owner] != one)


def replay_view(graph: fx.Graph, node: fx.Node, of: OpOverload = aten.clone.default) -> fx.Node:
    """Applies the views that make `node` to a copy (or with `of` an alias) of their base, at the end of `graph`."""
    views: list[fx.Node] = []
    while is_view(node):
        views.append(node)
        node = view_source(node)
    with graph.inserting_before(graph.output_node()):
        result = graph.call_function(of, (node,))
        result.meta = dict(node.meta) | {"rule": "trace"}
        for view in reversed(views):
            copied = graph.node_copy(view, {n: n for n in view.all_input_nodes}.__getitem__)
            copied.replace_input_with(view_source(view), result)
            copied.meta, result = dict(view.meta), copied
    return result


_EIGENVECTORS = frozenset({"LinalgEigBackward0", "LinalgEighBackward0", "LinalgSvdBackward0"})
_OF_LISTS = "Foreach"
_OF_LISTS_SAVING_NOTHING = frozenset(
    f"Foreach{name}"
    for name in (
        *("CeilBackward0", "CloneBackward0", "FloorBackward0", "FracBackward0", "NegBackward0", "RoundBackward0"),
        *("SignBackward0", "TruncBackward0", "LerpBackward0Scalar"),
    )
)
"""Of the operators on lists; their nodes do not show what they saved."""


@dataclass(frozen=True)
class EagerSaves:
    """What eager PyTorch saves behind each output that has a tangent."""

    tensors: tuple[tuple[torch.Tensor, ...], ...] = ()
    """For each tangent, the tensors that were saved behind its output."""
    freed_together: tuple[tuple[int, ...], ...] = ()
    """For each tangent, the indices of the tangents (itself included) that cannot start a backward after this one
    has started one."""
    checking: tuple[str, ...] = ()
    """The nodes whose gradient checks values and may raise, which they do not on fake tensors."""

    @staticmethod
    def of(outputs: Sequence[torch.Tensor]) -> EagerSaves:
        """Collects what is saved behind `outputs`; called before a backward frees it."""
        saved: dict[Any, list[torch.Tensor]] = {}
        behind = [_saving_nodes(output, saved) for output in outputs]
        shared = tuple(tuple(j for j, other in enumerate(behind) if not other.isdisjoint(nodes)) for nodes in behind)
        tensors = tuple(tuple(t for node in nodes for t in saved[node]) for nodes in behind)
        # the gradient raises for a loss that depends on the phase of complex eigenvectors
        phased = (n for n, found in saved.items() if n.name() in _EIGENVECTORS and any(t.is_complex() for t in found))
        return EagerSaves(tensors, shared, tuple(node.name() for node in phased))


def _saving_nodes(output: torch.Tensor, saved: dict[Any, list[torch.Tensor]]) -> set[Any]:
    """Returns the autograd nodes behind `output` that saved something, and adds what each node saved to `saved`.

    A node for a write to a part of a tensor (CopySlices) counts, whatever it saves.
    """
    work = [torch.autograd.graph.get_gradient_edge(output).node]
    seen = set(work)
    while work:
        safe_point()
        node = work.pop()
        if node not in saved:
            saved[node] = list(_saved_by(node))
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                work.append(following)
    return {node for node in seen if saved[node] or _saves_unseen(node)}


def _saves_unseen(node: Any) -> bool:
    """Returns whether the node saves something that its attributes do not show."""
    name = node.name()
    is_of_lists = name.startswith(_OF_LISTS) and name not in _OF_LISTS_SAVING_NOTHING
    is_opaque = getattr(type(node), "_forward_cls", None) is OpaqueFunction  # keeps an autograd graph
    return is_of_lists or name.endswith("::CopySlices") or is_opaque


def _saved_by(node: Any) -> Iterator[torch.Tensor]:
    kind: Any = type(node)
    for name in _saved_attributes(kind):
        try:
            value = getattr(node, name)
        except RuntimeError:  # it was written to since: the backward raises, too
            continue
        yield from tensors_in(value)


_attributes_by_kind: WeakKeyDictionary[Any, tuple[str, ...]] = WeakKeyDictionary()
"""A user's `torch.autograd.Function` has its own type of node, which must be freed with it."""


def _saved_attributes(kind: Any) -> tuple[str, ...]:
    """Returns the attributes through which nodes of this type show what they saved."""
    found = _attributes_by_kind.get(kind)
    if found is None:
        found = tuple(name for name in dir(kind) if name.startswith("_saved_") or name == "saved_tensors")
        _attributes_by_kind[kind] = found
    return found
