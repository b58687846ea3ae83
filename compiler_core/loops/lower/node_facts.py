"""What lowering needs to know of a graph node: its effects, and whether loops can hold its tensors."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx as fx

from compiler_core.loops import ir
from compiler_core.records import ItemId
from compiler_core.support import opaque_ops
from compiler_core.support.fx_symbols import SizeConverter, hint, is_symbolic
from compiler_core.support.operator_facts import has_effects, is_collective, is_random, must_run, runs_to_raise
from compiler_core.support.size_expr import prod
from compiler_core.support.tensors import tensors_in
from compiler_core.torch_private import OpOverload

aten = torch.ops.aten
UNSAFE_VIEWS = {aten._unsafe_view.default}
"""Operators that alias their input, although their schema does not declare it."""
WITH_MEMORY = ("cpu", "cuda")
"""The devices on which tensors are treated as strided views of buffers; on others, PyTorch's operators make views."""


def unsupported(node: fx.Node, languages: ir.Languages, for_gpu: bool, sizes: SizeConverter) -> str:
    """Returns why loops cannot hold the tensors of a node; empty if they can.

    Loops have strided tensors of real numbers, with at least one element, all on one device that has kernels.

    Args:
        languages: the device types that have kernels.
        for_gpu: whether the graph has a tensor on a GPU.
        sizes: converts PyTorch's sizes.
    """
    inputs = [n.meta.get("val") for n in node.all_input_nodes]
    result = node.meta.get("val")
    result = result if isinstance(result, (tuple, list)) else (result,)
    values: list[Any] = [*result, *(v for v in inputs if not is_symbolic(v))]
    if not all(isinstance(v, torch.Tensor) for v in values):
        return "its values are not all tensors"
    devices = list(dict.fromkeys(v.device for v in values))
    if len(devices) > 1:
        return f"its tensors are on several devices: {', '.join(map(str, devices))}"
    if devices[0].type not in languages:
        return f"there are no kernels for {devices[0].type}, only for {' and '.join(languages)}"
    if not all(map(is_plain, values)):
        return "not all of its tensors are plain strided ones"
    other_types = [str(v.dtype) for v in values if v.dtype not in ir.SHORT]
    if other_types:
        return f"the loop IR has no {other_types[0].removeprefix('torch.')}"
    shapes = [tuple(map(sizes.convert, v.shape)) for v in values]
    if for_gpu and devices[0].type == "cpu" and all(prod(shape) == 1 for shape in shapes):
        return "it is a single number on the CPU in a graph for a GPU, so no C++ kernel is built for it"
    return "one of its tensors is empty" if any(0 in shape for shape in shapes) else ""


def is_plain(value: Any) -> bool:
    """Whether `value` is a tensor that is fully described by its memory, sizes and strides.

    It is not sparse, nested or quantised, has no conjugate or negative bit, and is on a device of `WITH_MEMORY`.
    """
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.device.type not in WITH_MEMORY:
        return False
    return not (value.is_nested or value.is_quantized or value.is_conj() or value.is_neg())


def is_view(node: fx.Node) -> bool:
    """Whether a node is a view operator on plain tensors of one type."""
    target = node.target
    if not isinstance(target, OpOverload) or not (target.is_view or target in UNSAFE_VIEWS):
        return False
    base = node.args[0].meta.get("val") if node.args and isinstance(node.args[0], fx.Node) else None
    value = node.meta.get("val")
    outs = value if isinstance(value, (list, tuple)) else [value]
    values = [v for v in (base, *outs) if isinstance(v, torch.Tensor)]
    return all(map(is_plain, values)) and len(values) == 1 + len(outs) and len({v.dtype for v in values}) == 1


def call_effects(node: fx.Node) -> tuple[bool, bool]:
    """Whether a call is `ordered` and whether it is a `barrier`; see `ir.Call`."""
    target = node.target
    if target is operator.getitem or is_symbolic(node.meta.get("val")) or target is opaque_ops.tape_gradients:
        return False, False
    if opaque_ops.opaque_operator(node) is not None:
        return must_run(node), False
    if not isinstance(target, OpOverload):
        return True, True
    if is_collective(node):
        return True, True
    ordered = is_random(node) or has_effects(node) or runs_to_raise(node)
    return ordered, target._schema.is_mutable or not target._schema.returns


def has_cuda_result(node: fx.Node) -> bool:
    """Whether a result of the node is a tensor on a GPU."""
    return any(tensor.is_cuda for tensor in tensors_in(node.meta.get("val")))


def is_drawn_by_us(node: fx.Node) -> bool:
    """Whether a ``bernoulli`` draws from the CPU's default generator into contiguous memory.

    Only the shape of its argument matters.
    """
    value = node.meta["val"]
    return value.device.type == "cpu" and value.is_contiguous() and node.kwargs.get("generator") is None


def unused_bytes(node: fx.Node) -> int:
    """Returns the bytes of the tensors in the node's tuple result that no other node reads."""
    value = node.meta.get("val")
    taken = {user.args[1] for user in node.users if user.target is operator.getitem}
    left = [t for i, t in enumerate(value) if i not in taken] if isinstance(value, (tuple, list)) else []
    return sum(hint(t.numel()) * t.dtype.itemsize for t in left if isinstance(t, torch.Tensor))


def origin_of(node: fx.Node) -> tuple[ItemId, ...]:
    """Returns the items of the record that a node comes from."""
    item = node.meta.get("item")
    return (item,) if item else tuple(node.meta.get("origin", ()))
