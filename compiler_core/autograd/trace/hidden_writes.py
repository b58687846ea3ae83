"""Operators that write to an argument although their schema does not say so: the running statistics of a batch norm.

Functionalization relies on schemas, so such a write would be lost.  In a functional run each of these operators is
replaced by one that computes the same and whose schema declares the write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from compiler_core.autograd.trace.memory_order import keep_order_in_memory
from compiler_core.errors import CutawayError
from compiler_core.support.interrupts import safe_point
from compiler_core.support.operator_facts import writes_statistics, written_tensors
from compiler_core.support.operators import Fact, facts
from compiler_core.torch_private import FunctionalTensorMode

aten = torch.ops.aten


class HiddenWrite(CutawayError):
    """An operator writes to an argument, and has no functional form."""


def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    """Returns the three results of a batch norm by an operator whose schema declares the update of the running
    statistics."""
    return aten._native_batch_norm_legit(x, weight, bias, mean, var, training, momentum, eps)


def _cudnn_batch_norm(x: torch.Tensor, *args: Any) -> Any:
    """Returns the results of `_batch_norm`, and an empty tensor for the memory that cuDNN reserves for its backward."""
    return *_batch_norm(x, *args), x.new_zeros((0,), dtype=torch.uint8)


FUNCTIONAL_FORMS: dict[Any, Callable[..., Any]] = {
    aten.native_batch_norm.default: _batch_norm,
    aten.miopen_batch_norm.default: _batch_norm,
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
                    raise HiddenWrite(f"{func.__name__} writes to running statistics")
                with self:
                    results = FUNCTIONAL_FORMS[func](*(given[name] for name in names))
                for name in ("running_mean", "running_var"):
                    given[name].mark_mutation_hidden_from_autograd()
                return results
        result = super().__torch_dispatch__(func, types, args, kwargs)
        for tensor in written_tensors(func, args, kwargs or {}):
            keep_order_in_memory(tensor)
        return result
