"""Gradients whose formula PyTorch chooses by looking at values.

On fake tensors PyTorch takes another formula than on real ones.  These functions compute the gradients as PyTorch does
for real tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def prod(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """``x.prod(dim, keepdim, dtype=...)``.  For its gradient PyTorch checks whether there are zeros."""
    given = dict(zip(("dim", "keepdim"), args, strict=False)) | kwargs
    known = given.keys() <= {"dim", "keepdim", "dtype"} and isinstance(given.get("dim", 0), int)
    differentiated = x.requires_grad and torch.is_grad_enabled() and x.is_floating_point()
    if not known or not differentiated or not x.dim() or 0 in x.shape:
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


FUNCTIONS: dict[Any, Callable[..., Any]] = {torch.prod: prod}
METHODS: dict[str, Callable[..., Any]] = {"prod": prod}
