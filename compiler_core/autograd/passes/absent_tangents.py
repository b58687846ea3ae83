"""Masks values that are computed from absent tangents.

A backward takes zeros for the tangent of an output that gets no gradient.  Eager PyTorch computes nothing there, while
zero times an infinite slope is NaN.  So where a value is combined with one that is computed from other tangents, it is
replaced by zero if all tangents that it depends on are absent, as in the backward of ``y = x * 2; return y, y.log()``::

    div = aten.div(tangents_2, y)          div = aten.div(tangents_2, y)
    add = aten.add(tangents_1, div)        where = where(given_2, div, 0)
                                           add = aten.add(tangents_1, where)

``given_2`` is True unless ``tangents_2`` is absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx

from compiler_core.support.fx_graphs import dependencies
from compiler_core.support.operator_facts import is_view
from compiler_core.support.operators import Fact, facts

aten = torch.ops.aten
Given = Mapping[str, tuple[int, ...]]
"""From the name of a flag to the tangents of which it tells whether any is given."""


def mask_absent(graph: fx.Graph, tangents: Sequence[str]) -> Given:
    """Masks values in the backward `graph`, which gets an input for each flag, after its `tangents`."""
    if len(tangents) < 2:
        return {}
    sources = dependencies(graph, tangents)
    flags: dict[tuple[tuple[int, ...], torch.device], fx.Node] = {}
    masked: dict[fx.Node, fx.Node] = {}
    zeros: set[fx.Node] = set()  # what is zero if all tangents that it comes from are
    for node in list(graph.nodes):
        if node.name in tangents:
            zeros.add(node)
        if node.op != "call_function":  # gradients are dropped elsewhere
            continue
        for value in node.all_input_nodes:
            if not sources[value] or sources[value] == sources[node] or value in zeros or not _is_tensor(value):
                continue
            if value not in masked:
                indices = tuple(i for i, tangent in enumerate(tangents) if tangent in sources[value])
                key = indices, value.meta["val"].device
                flags[key] = flags.get(key) or _flag(graph, *key)
                masked[value] = _mask(graph, flags[key], value)
                zeros.add(masked[value])
            node.replace_input_with(value, masked[value])
        keeps_zeros = Fact.ZERO_OF_ZEROS in facts(node.target) or is_view(node)
        if sources[node] and keeps_zeros and all(n in zeros for n in node.all_input_nodes if _is_tensor(n)):
            zeros.add(node)
    return {flag.name: indices for (indices, _), flag in flags.items()}


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _flag(graph: fx.Graph, indices: tuple[int, ...], device: torch.device) -> fx.Node:
    inputs = graph.find_nodes(op="placeholder")
    tangent = next(n for n in inputs if n.name == f"tangents_{indices[0] + 1}")
    elsewhere = [] if device == tangent.meta["val"].device else [str(device).replace(":", "")]
    with graph.inserting_after(list(inputs)[-1]):
        flag = graph.placeholder("_".join(["given", *(str(i + 1) for i in indices), *elsewhere]))
    value = tangent.meta["val"].new_empty((), dtype=torch.bool, device=device)
    flag.meta = {**tangent.meta, "val": value}
    return flag


def _mask(graph: fx.Graph, flag: fx.Node, value: fx.Node) -> fx.Node:
    full: Any = aten.full.default
    where: Any = aten.where.self
    like = value.meta["val"]
    with graph.inserting_before(value.next):
        zero = graph.call_function(full, ([], 0), {"dtype": like.dtype, "device": like.device})
        masked = graph.call_function(where, (flag, value, zero))
    zero.meta = {**value.meta, "val": like.new_empty(())}
    masked.meta = {**value.meta, "val": where(flag.meta["val"], like, zero.meta["val"])}
    return masked
