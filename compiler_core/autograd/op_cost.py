"""What a value of a graph costs: bytes to keep it, time to compute it again.

The time is a roofline estimate: the bytes that its operation reads and writes, or its floating-point
operations (counted by PyTorch's ``flop_counter``), whichever takes a device of its kind longer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.fx as fx
from torch.utils.flop_counter import flop_registry

from compiler_core.support.fx_graphs import tensor_bytes
from compiler_core.support.fx_symbols import hint


class Rates(NamedTuple):
    """What a device does in a nanosecond."""

    bytes: float
    operations: float


RATES = {"cpu": Rates(10.0, 50.0), "cuda": Rates(3000.0, 50_000.0)}
"""One core of a server's processor; a data-centre GPU in float32."""


def bytes_of(node: fx.Node) -> int:
    """Bytes of the tensors in a node's value."""
    value = node.meta.get("val")
    tensors = value if isinstance(value, (list, tuple)) else [value]
    return sum(tensor_bytes(t) for t in tensors if isinstance(t, torch.Tensor))


def tensor_of(node: fx.Node) -> torch.Tensor | None:
    """A node's value where it is one tensor."""
    value = node.meta.get("val")
    return value if isinstance(value, torch.Tensor) else None


def nanoseconds(node: fx.Node) -> float:
    """The time to compute a node from its inputs, which lie in memory."""
    moved = bytes_of(node) + sum(map(bytes_of, node.all_input_nodes))
    tensor = next((t for n in (node, *node.all_input_nodes) if (t := tensor_of(n)) is not None), None)
    rates = RATES.get(tensor.device.type if tensor is not None else "cpu", RATES["cpu"])
    return max(moved / rates.bytes, _operations(node) / rates.operations)


_COUNTED_AS: dict[Any, Any] = {torch.ops.aten._addmm_activation: torch.ops.aten.addmm}


def _operations(node: fx.Node) -> int:
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    return operations(node.target, args, kwargs, node.meta.get("val")) or 0


def operations(target: Any, args: Any, kwargs: Any, value: Any) -> int | None:
    """The multiplications and additions of an operator; None where PyTorch does not count them."""
    packet = getattr(target, "overloadpacket", None)
    count = flop_registry.get(_COUNTED_AS.get(packet, packet))
    return None if count is None else int(hint(count(*args, **kwargs, out_val=value)))
