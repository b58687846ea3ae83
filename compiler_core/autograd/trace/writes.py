"""Writes for which PyTorch's functionalization alone is not enough.

VisibleWrites           those of operators whose schema does not tell them: the running statistics of a batch norm
DataWrites              those through ``.data``, which autograd does not see
keep_order_in_memory    those whose functional form returns another order in memory than eager's tensor keeps
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx

from compiler_core.support.fx_symbols import ASSUMPTION_FAILED, hint
from compiler_core.support.interrupts import safe_point
from compiler_core.support.node_facts import writes_statistics, written_tensors
from compiler_core.support.operators import Fact, facts
from compiler_core.support.tensors import storage_id, tensors_in
from compiler_core.torch_private import FunctionalTensor, FunctionalTensorMode

aten = torch.ops.aten


# ---- writes that schemas do not tell -------------------------------------------------------
# Functionalization relies on schemas, so such a write would be lost.  Each of these operators is replaced by one that
# computes the same and whose schema declares the write.


def _cudnn_batch_norm(x: torch.Tensor, *args: Any) -> Any:
    """Returns the results of a batch norm, and an empty tensor for the memory that cuDNN reserves for its backward."""
    return *aten._native_batch_norm_legit(x, *args), x.new_zeros((0,), dtype=torch.uint8)


FUNCTIONAL_FORMS: dict[Any, Callable[..., Any]] = {
    aten.native_batch_norm.default: aten._native_batch_norm_legit,
    aten.miopen_batch_norm.default: aten._native_batch_norm_legit,
    aten.cudnn_batch_norm.default: _cudnn_batch_norm,
}
"""The replacement of each operator.  Graphs with other operators that have hidden writes are refused."""


class VisibleWrites(FunctionalTensorMode):  # type: ignore[no-untyped-call]
    """Functionalization in which operators with hidden writes are replaced."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        safe_point()  # the autograd engine, which calls this in a backward, passes exceptions on
        if Fact.WRITES_STATISTICS in facts(func):
            names = [a.name for a in func._schema.arguments]
            given = dict(zip(names, args, strict=False)) | (kwargs or {})
            if writes_statistics(func, given):
                if func not in FUNCTIONAL_FORMS:
                    raise RuntimeError(f"{func.__name__} writes to running statistics")
                with self:
                    results = FUNCTIONAL_FORMS[func](*(given[name] for name in names))
                for name in ("running_mean", "running_var"):
                    given[name].mark_mutation_hidden_from_autograd()
                return results
        if func is aten._linalg_check_errors.default:  # of the CPU: the graph has the check, and raises no error
            with self:
                aten._assert_async.msg((args[0] == 0).all(), ASSUMPTION_FAILED)
            return None
        result = super().__torch_dispatch__(func, types, args, kwargs)
        for tensor in written_tensors(func, args, kwargs or {}):
            keep_order_in_memory(tensor)
        return result


# ---- writes through .data ------------------------------------------------------------------
# ``p.data.lerp_(q.data, 0.1)`` changes the memory of ``p`` unseen by autograd.  The write is made at the end of the
# forward, as others are, and is not counted in the version of the input.


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


# ---- the order in memory -------------------------------------------------------------------
# The functional form of an in-place operator, such as ``masked_fill_``, may return another order than the tensor has.
# What is made like the tensor later would then have it, too, and random numbers would be drawn in another order than
# in eager mode.


def keep_order_in_memory(tensor: torch.Tensor) -> None:
    """Gives the functional value of a tensor that was written to the strides that the tensor has.

    Tensors with gaps or shared elements, and those that ``out=`` has resized, are left as they are.
    """
    if not isinstance(tensor, FunctionalTensor) or (order := memory_order(tensor)) is None:
        return
    value = tensor.from_functional()
    resized = list(map(hint, value.shape)) != list(map(hint, tensor.shape))
    if resized or long_strides(value) == long_strides(tensor):
        return
    tensor.replace_(in_memory_order(value, order))
    tensor.commit_update()
    tensor.sync()


def in_memory_order(value: torch.Tensor, order: list[int]) -> torch.Tensor:
    """Returns a copy without gaps whose dimensions lie in memory in this order."""
    dense = value.permute(order).clone(memory_format=torch.contiguous_format)
    return dense.permute([order.index(d) for d in range(value.dim())])


def long_strides(tensor: torch.Tensor) -> list[int]:
    """Returns the strides of the dimensions that have several elements."""
    return [hint(stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if hint(size) > 1]


def differs_in_short_strides(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether only the strides of dimensions of size 1 differ."""
    shapes = [list(map(hint, each.shape)) for each in (tensor, other)]
    return shapes[0] == shapes[1] and long_strides(tensor) == long_strides(other) and tensor.stride() != other.stride()


def memory_order(tensor: torch.Tensor) -> list[int] | None:
    """Returns the dimensions by decreasing stride; None if the tensor has gaps or overlaps."""
    long = [d for d, n in enumerate(tensor.shape) if hint(n) > 1]
    order = sorted(long, key=lambda d: -hint(tensor.stride(d)))
    reached = 1
    for d in reversed(order):
        if hint(tensor.stride(d)) != reached:
            return None
        reached *= hint(tensor.shape[d])
    return [d for d in range(tensor.dim()) if d not in long] + order
