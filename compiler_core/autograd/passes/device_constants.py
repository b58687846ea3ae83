"""Makes on a GPU what a graph computes on the CPU from numbers alone, and reads on the GPU only.

A copy from the CPU waits for the host, and no CUDA graph can contain it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from compiler_core.support.operator_facts import is_pure, is_view, may_raise
from compiler_core.support.operators import Fact, facts, is_pointwise
from compiler_core.torch_private import disable_current_modes

aten = torch.ops.aten


def make_constants_on_gpus(graph: fx.Graph) -> None:
    """Moves constants to the devices that read them::

        i = aten.arange(8, device=cpu);  j = aten._to_copy(i, device=cuda)      j = aten.arange(8, device=cuda)
        c = aten.full([], 4.0, device=cpu);  y = aten.mul(x, aten.sqrt(c))      y = aten.mul(x, 2.0)

    If something else reads the constant on the CPU, it is made on both devices.
    """
    constants: set[fx.Node] = set()
    moved: dict[tuple[fx.Node, torch.device], fx.Node] = {}
    for node in list(graph.nodes):
        if _is_constant(node, constants):
            constants.add(node)
            continue
        value = node.meta.get("val")
        found = [n for n in node.all_input_nodes if n in constants]
        if not found or not isinstance(value, torch.Tensor) or not value.is_cuda:
            continue
        if Fact.TAKES_CPU_NUMBERS in facts(node.target):
            node.args = tuple(_number(node, a) if a in found else a for a in node.args)
        elif Fact.TAKES_CPU_TENSORS in facts(node.target):
            for constant in found:
                node.replace_input_with(constant, _made_on(constant, value.device, moved))


def _is_constant(node: fx.Node, constants: set[fx.Node]) -> bool:
    """Returns whether a node computes a tensor on the CPU from numbers and `constants` alone."""
    value, target = node.meta.get("val"), node.target
    if node.op != "call_function" or not isinstance(value, torch.Tensor) or value.device.type != "cpu":
        return False
    if not is_pure(node) or may_raise(node) or node.kwargs.get("pin_memory"):
        return False
    if not all(n in constants for n in node.all_input_nodes):
        return False
    if not node.all_input_nodes:
        return Fact.CREATION in facts(target)
    return target is aten._to_copy.default or is_view(node) or is_pointwise(target)


def _number(node: fx.Node, constant: fx.Node) -> Any:
    """Returns the number that `constant` has, if the result of `node` has the same type with it, else `constant`."""
    if not _is_number(constant):
        return constant
    with disable_current_modes():
        number = _evaluated(constant).item()
    given: Any = [number if a is constant else a.meta["val"] if isinstance(a, fx.Node) else a for a in node.args]
    return number if torch.result_type(*given) == node.meta["val"].dtype else constant


def _is_number(constant: fx.Node) -> bool:
    """Returns whether a constant has no dimensions, and is computed from such constants alone."""
    return constant.meta["val"].dim() == 0 and all(map(_is_number, constant.all_input_nodes))


def _evaluated(constant: Any) -> Any:
    """Returns the tensor that a constant is."""
    target: Any = constant.target
    args, kwargs = fx.map_arg((constant.args, constant.kwargs), _evaluated)
    return target(*args, **kwargs)


def _made_on(node: fx.Node, device: torch.device, moved: dict[tuple[fx.Node, torch.device], fx.Node]) -> fx.Node:
    """Returns the node that computes on another device what `node`, a constant, computes."""
    if (node, device) not in moved:
        inputs = {n: _made_on(n, device, moved) for n in node.all_input_nodes}
        with node.graph.inserting_after(node):
            made = node.graph.node_copy(node, inputs.__getitem__)
        if not inputs or "device" in node.kwargs:
            made.kwargs = {**made.kwargs, "device": device}
        value = node.meta["val"]
        made.meta["val"] = value.new_empty_strided(value.shape, value.stride(), device=device)
        moved[node, device] = made
    return moved[node, device]
