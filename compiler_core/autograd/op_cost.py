"""Cost estimates of graph nodes: the bytes to save a value, the time to recompute it.

The time is a roofline estimate: the bytes that the operation reads and writes, or its floating-point operations
(counted by PyTorch's ``flop_counter``), whichever takes longer on a device of that kind.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.fx as fx
from torch.utils.flop_counter import flop_registry

from compiler_core.support.fx_graphs import tensor_bytes
from compiler_core.support.fx_symbols import hint
from compiler_core.support.tensors import tensors_in


class Rates(NamedTuple):
    """What a device does in a nanosecond."""

    bytes: float
    operations: float


RATES = {"cpu": Rates(10.0, 50.0), "cuda": Rates(3000.0, 50_000.0)}
"""One core of a server CPU; a data-centre GPU in float32."""


def bytes_of(node: fx.Node) -> int:
    """Returns the bytes of the tensors in a node's value."""
    return sum(map(tensor_bytes, tensors_in(node.meta.get("val"))))


def tensor_of(node: fx.Node) -> torch.Tensor | None:
    """Returns a node's value if it is a tensor, else None."""
    value = node.meta.get("val")
    return value if isinstance(value, torch.Tensor) else None


def estimated_ns(node: fx.Node) -> float:
    """Returns the time to compute a node, in nanoseconds, from inputs that are in memory."""
    moved = bytes_of(node) + sum(map(bytes_of, node.all_input_nodes))
    tensor = next((t for n in (node, *node.all_input_nodes) if (t := tensor_of(n)) is not None), None)
    rates = RATES.get(tensor.device.type if tensor is not None else "cpu", RATES["cpu"])
    return max(moved / rates.bytes, _node_operations(node) / rates.operations)


_COUNTED_AS: dict[Any, Any] = {torch.ops.aten._addmm_activation: torch.ops.aten.addmm}


def _node_operations(node: fx.Node) -> int:
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    return count_operations(node.target, args, kwargs, node.meta.get("val")) or 0


def count_operations(target: Any, args: Any, kwargs: Any, value: Any) -> int | None:
    """Returns the multiplications and additions of an operator; None if PyTorch does not count them.

    PyTorch's formulas assert what they were written for, and raise for some calls that its kernels take.
    """
    packet = getattr(target, "overloadpacket", None)
    count = flop_registry.get(_COUNTED_AS.get(packet, packet))
    if count is None:
        return None
    try:
        return int(hint(count(*_with_all_heads(packet, args), **kwargs, out_val=value)))
    except Exception:
        return None


def _with_all_heads(packet: Any, args: Any) -> Any:
    """Returns the arguments of attention with as many heads of keys and values as of queries; others unchanged.

    Grouped heads are read by several heads of the queries, so they do the same work, but the formulas of PyTorch 2.11
    to 2.13 do not take them in all operators.
    """
    name = str(packet)
    if "scaled_dot_product" not in name:
        return args
    query = 1 if name.endswith("_backward") else 0
    changed = list(args)
    for at in (query + 1, query + 2):
        batch, _, *inner = changed[at].shape
        sizes = map(hint, (batch, changed[query].shape[1], *inner))
        changed[at] = torch.empty(tuple(sizes), device="meta")
    return changed
