"""Operators that write to an argument although their schema does not say so: the running statistics of a batch norm.

Functionalisation goes by schemas, so such a write would be lost.  In a functional run each of these operators becomes
one that computes the same and whose schema tells what it writes to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensorMode

from compiler_core.errors import CutawayError

aten = torch.ops.aten


class HiddenWrite(CutawayError):
    """An operator writes to an argument, and there is no functional form of it."""


def _statistics(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    """The three results of a batch norm, whose update of the running statistics the schema of this operator tells."""
    if not training or mean is None or var is None:
        return NotImplemented
    return aten._native_batch_norm_legit(x, weight, bias, mean, var, training, momentum, eps)


def _of_cudnn(x: torch.Tensor, *args: Any) -> Any:
    """The same, and the memory that cuDNN's kernel keeps for the backward: ours needs none."""
    results = _statistics(x, *args)
    return results if results is NotImplemented else (*results, x.new_zeros((0,), dtype=torch.uint8))


def _refused(name: str) -> Callable[..., Any]:
    def refuse(x: torch.Tensor, *args: Any) -> Any:
        raise HiddenWrite(f"{name} writes to running statistics")

    return refuse


_REFUSED = ("batch_norm_update_stats", "batch_norm_gather_stats", "batch_norm_gather_stats_with_counts")
RULES: dict[Any, Callable[..., Any]] = {
    aten.native_batch_norm.default: _statistics,
    aten.miopen_batch_norm.default: _statistics,
    aten.cudnn_batch_norm.default: _of_cudnn,
    **{getattr(aten, name).default: _refused(name) for name in _REFUSED},
}
"""For each operator what takes its place; where that gives NotImplemented, nothing is written."""


class VisibleWrites(FunctionalTensorMode):  # type: ignore[no-untyped-call]
    """Functionalisation that sees these writes too."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (rule := RULES.get(func)) is not None:
            names = [a.name for a in func._schema.arguments]
            given = dict(zip(names, args, strict=False)) | (kwargs or {})
            with self:
                made = rule(*(given[name] for name in names))
            if made is not NotImplemented:
                return made
        return super().__torch_dispatch__(func, types, args, kwargs)
