"""Tensors and numbers of a reproducer: their Python text, and smaller ones that show the same fault."""

from __future__ import annotations

import cmath
from collections.abc import Callable, Sequence
from typing import Any

import torch

MAX_ELEMENTS = 64
"""Tensors of at most this many elements are written with their values, if these matter."""


def tensor_text(tensor: torch.Tensor, exact: bool) -> str:
    """Returns an expression for a tensor of the same shape, strides, type and device.

    Args:
        tensor: the tensor.
        exact: write the values of a small tensor; otherwise it is a call of `random_tensor`.
    """
    dtype, device = tensor.dtype, repr(str(tensor.device))
    gradient = ".requires_grad_()" if tensor.requires_grad else ""
    if exact and tensor.numel() <= MAX_ELEMENTS:
        return f"torch.tensor({number_text(tensor.tolist())}, dtype={dtype}, device={device}){gradient}"
    is_integer = not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)
    below = f", {max(1, int(tensor.max()) + 1)}" if is_integer and tensor.numel() else ""
    return f"random_tensor({tuple(tensor.shape)}, {tuple(tensor.stride())}, {dtype}, {device}{below}){gradient}"


def number_text(value: Any) -> str:
    """Returns an expression for a number or a nested list of numbers, also for NaN and infinities."""
    if isinstance(value, list):
        return f"[{', '.join(map(number_text, value))}]"
    if not isinstance(value, (float, complex)) or cmath.isfinite(value):
        return repr(value)
    if isinstance(value, complex):
        return f"complex({number_text(value.real)}, {number_text(value.imag)})"
    return f"float({str(value)!r})"


def smaller_values(values: Sequence[Any], shows_fault: Callable[[list[Any]], bool]) -> list[Any]:
    """Returns the values with sizes of tensors halved as long as `shows_fault` holds for them."""
    found = list(values)
    sizes = {n for each in found if isinstance(each, torch.Tensor) for n in each.shape if n > 1}
    for size in sorted(sizes, reverse=True):
        while size > 1:
            halves = [_narrowed(each, size) for each in found]
            if not shows_fault(halves):
                break
            found, size = halves, size // 2
    return found


def _narrowed(value: Any, size: int) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_leaf or size not in value.shape:
        return value
    needs_gradient, value = value.requires_grad, value.detach()
    for dim in [dim for dim, n in enumerate(value.shape) if n == size]:
        value = value.narrow(dim, 0, size // 2)
    return value.clone(memory_format=torch.contiguous_format).requires_grad_(needs_gradient)
