"""Gradients whose formula PyTorch chooses by looking at values.

On fake tensors PyTorch takes another formula than on real ones.  These functions compute the gradients as PyTorch does
for real tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from compiler_core.support.transform_levels import is_wrapped


def prod(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """``x.prod(dim, keepdim, dtype=...)``.  For its gradient PyTorch checks whether there are zeros."""
    given = dict(zip(("dim", "keepdim"), args, strict=False)) | kwargs
    known = given.keys() <= {"dim", "keepdim", "dtype"} and isinstance(given.get("dim", 0), int)
    differentiated = x.requires_grad and torch.is_grad_enabled() and x.is_floating_point()
    if not known or not differentiated or not x.dim() or 0 in x.shape or is_wrapped(x):
        return torch.prod(x, *args, **kwargs)
    return Prod.apply(x, given)  # type: ignore[no-untyped-call]


class Prod(torch.autograd.Function):
    """The product of a tensor's elements, or of the elements along a dimension."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, given: dict[str, Any]) -> torch.Tensor:
        result = torch.prod(x, **given)
        ctx.save_for_backward(x, result)
        ctx.given = given
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Divides the product by each element if none is zero; otherwise multiplies the other elements, or returns
        zeros if two elements of the whole product are zero."""
        x, result = ctx.saved_tensors
        wide = x.to(gradient.dtype)
        zeros = (wide == 0).sum()
        if "dim" not in ctx.given:
            others = torch.where(zeros > 1, 0, gradient * _product_of_others(wide.flatten(), 0).view(x.shape))
        else:
            dim = ctx.given["dim"]
            if not ctx.given.get("keepdim"):
                gradient, result = gradient.unsqueeze(dim), result.unsqueeze(dim)
            others = gradient * _product_of_others(wide, dim)
        return torch.where(zeros == 0, gradient * (result / wide), others).to(x.dtype), None


def _product_of_others(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Returns, for each element, the product of the elements before and after it."""
    count, one = x.shape[dim], torch.ones_like(x.narrow(dim, 0, 1))
    before = torch.cat([one, x.narrow(dim, 0, count - 1)], dim).cumprod(dim)
    after = torch.cat([one, x.narrow(dim, 1, count - 1).flip(dim)], dim).cumprod(dim).flip(dim)
    return before * after


class PickedValue(torch.autograd.Function):
    """A value that ``max()``, ``min()``, ``median()`` or ``nanmedian()`` picks from all elements of a CPU tensor."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, pick: Callable[..., torch.Tensor]) -> torch.Tensor:
        result = pick(x)
        ctx.save_for_backward(x, result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Distributes the gradient evenly over the elements that are equal to the value, or NaN as it is.

        PyTorch's formula for GPUs and fake tensors finds no element for NaN, and multiplies all others by zero.
        """
        x, result = ctx.saved_tensors
        picked = torch.where(result.isnan(), x.isnan(), x == result)
        return torch.where(picked, gradient / picked.sum(), 0), None


def _picking(pick: Callable[..., Any]) -> Callable[..., Any]:
    def picked(*args: Any, **kwargs: Any) -> Any:
        x = args[0] if len(args) == 1 and not kwargs else None
        if x is None or x.device.type != "cpu" or not (x.requires_grad and torch.is_grad_enabled()) or is_wrapped(x):
            return pick(*args, **kwargs)
        return PickedValue.apply(x, pick)  # type: ignore[no-untyped-call]

    return picked


_PICKING = {name: _picking(getattr(torch, name)) for name in ("max", "min", "median", "nanmedian")}
FUNCTIONS: dict[Any, Callable[..., Any]] = {torch.prod: prod} | {getattr(torch, n): f for n, f in _PICKING.items()}
METHODS: dict[str, Callable[..., Any]] = {"prod": prod} | _PICKING
