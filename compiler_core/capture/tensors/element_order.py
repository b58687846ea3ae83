"""The strides of the results of elementwise operators, as PyTorch's TensorIterator chooses them.

Fake tensors choose others where a dimension has size 1.  The rules are those of ``TensorIteratorBase::build``: operands
of one shape that are all contiguous, or all in one dense order, give their order to the result; otherwise the
dimensions are sorted by the strides of the operands, of which the first that can tell decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from compiler_core.support.fx_symbols import hint
from compiler_core.torch_private import OpOverload, is_non_overlapping_and_dense_or_false

Sizes = Sequence[Any]
_NUMBERS = (int, float, complex, torch.SymInt, torch.SymFloat, torch.SymBool)
_NUMBER = torch.empty(())
_WRAPPED = ("self", "other")
"""The names of numbers that kernels take as tensors without a dimension."""


def operands_of(func: OpOverload, args: Sequence[Any]) -> list[torch.Tensor]:
    """Returns what an elementwise operator's kernel reads, in order."""
    found = []
    for argument, value in zip(func._schema.arguments, args, strict=False):
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, _NUMBERS) and (str(argument.type) == "Tensor" or argument.name in _WRAPPED):
            found.append(_NUMBER)
    return found[::-1] if func is torch.ops.aten.threshold_backward.default else found


def strides_like(tensor: torch.Tensor) -> list[Any]:
    """Returns the strides of ``torch.empty_like(tensor)``."""
    if is_non_overlapping_and_dense_or_false(tensor):
        return list(tensor.stride())
    return strides_in_order(_order([tensor], tensor.shape), tensor.shape)


def is_ambiguous(result: Any) -> bool:
    """Whether the result of an operator is a tensor with a dimension of size 1, whose stride is any number."""
    is_strided = isinstance(result, torch.Tensor) and result.layout is torch.strided
    return is_strided and any(isinstance(size, int) and size == 1 for size in result.shape)


def result_strides(operands: Sequence[torch.Tensor], shape: Sizes) -> list[Any]:
    """Returns the strides of a result with this shape; operands that were numbers are tensors without a dimension."""
    if all(list(each.shape) == list(shape) for each in operands):
        if (fast := _strides_of_all(operands)) is not None:
            return fast
    return strides_in_order(_order(operands, shape), shape)


def _strides_of_all(operands: Sequence[torch.Tensor]) -> list[Any] | None:
    first = operands[0]
    if all(each.is_contiguous() for each in operands):
        return strides_in_order(range(first.dim() - 1, -1, -1), first.shape)
    if first.dim() == 4 and all(each.is_contiguous(memory_format=torch.channels_last) for each in operands):
        return strides_in_order([1, 3, 2, 0], first.shape)
    is_dense = all(is_non_overlapping_and_dense_or_false(each) for each in operands)
    return list(first.stride()) if is_dense and all(each.stride() == first.stride() for each in operands) else None


def strides_in_order(order: Sequence[int], shape: Sizes) -> list[Any]:
    """Returns the strides of a dense tensor whose dimensions are in this order in memory, the fastest first."""
    strides, reached = [1] * len(shape), 1
    for dim in order:
        strides[dim] = reached
        reached = reached * shape[dim]
    return strides


def _order(operands: Sequence[torch.Tensor], shape: Sizes) -> list[int]:
    sizes = [hint(size) for size in shape]
    strides = [_aligned_strides(each, sizes) for each in operands]
    order = list(range(len(sizes) - 1, -1, -1))
    for i in range(1, len(order)):  # an insertion sort: the comparison may not tell
        at = i
        for before in range(i - 1, -1, -1):
            comparison = _compare(strides, sizes, order[before], order[at])
            if comparison > 0:
                order[before], order[at] = order[at], order[before]
                at = before
            elif comparison < 0:
                break
    return order


def _aligned_strides(operand: torch.Tensor, sizes: Sequence[int]) -> list[int]:
    """Returns an operand's strides by dimension of the result, 0 where it is repeated."""
    new = len(sizes) - operand.dim()
    own = [
        0 if hint(size) == 1 and sizes[new + i] != 1 else hint(stride)
        for i, (size, stride) in enumerate(zip(operand.shape, operand.stride(), strict=True))
    ]
    return [0] * new + own


def _compare(strides: Sequence[Sequence[int]], sizes: Sequence[int], first: int, second: int) -> int:
    """Returns 1 if the first dimension comes after the second one, -1 if before, and 0 if no operand tells."""
    for each in strides:
        if each[first] == 0 or each[second] == 0:
            continue
        if each[first] != each[second]:
            return 1 if each[first] > each[second] else -1
        if sizes[first] > sizes[second]:
            return 1
    return 0
