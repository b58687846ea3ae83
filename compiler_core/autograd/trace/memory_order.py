"""Keeps the order in memory of tensors that are written to in place.

The functional form of an in-place operator, such as ``masked_fill_``, may return another order than the tensor has.
What is made like the tensor later would then have it, too, and random numbers would be drawn in another order than in
eager mode.
"""

from __future__ import annotations

import torch
from torch._subclasses.functional_tensor import FunctionalTensor

from compiler_core.support.fx_symbols import hint
from compiler_core.support.tensors import is_dense


def keep_order_in_memory(tensor: torch.Tensor) -> None:
    """Gives the functional value of a tensor that was written to the strides that the tensor has.

    Tensors with gaps or shared elements, and those that ``out=`` has resized, are left as they are.
    """
    if not isinstance(tensor, FunctionalTensor) or not is_dense(tensor):
        return
    value = tensor.from_functional()
    resized = list(map(hint, value.shape)) != list(map(hint, tensor.shape))
    if resized or _strides(value) == _strides(tensor):
        return
    order = sorted(range(tensor.dim()), key=lambda dim: -hint(tensor.stride(dim)))
    dense = value.permute(order).clone(memory_format=torch.contiguous_format)
    tensor.replace_(dense.permute([order.index(dim) for dim in range(tensor.dim())]))
    tensor.commit_update()
    tensor.sync()


def _strides(tensor: torch.Tensor) -> list[int]:
    """Returns the strides that count, without asking about symbols."""
    return [hint(s) for n, s in zip(tensor.shape, tensor.stride(), strict=True) if hint(n) > 1]
