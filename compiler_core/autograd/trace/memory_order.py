"""Keeps the order in memory of tensors that are written to in place.

The functional form of an in-place operator, such as ``masked_fill_``, may return another order than the tensor has.
What is made like the tensor later would then have it, too, and random numbers would be drawn in another order than in
eager mode.
"""

from __future__ import annotations

import torch

from compiler_core.support.fx_symbols import hint
from compiler_core.torch_private import FunctionalTensor


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
