"""Decides which sizes and numbers are symbolic: those that differed between calls, and those that the user marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from compiler_core.errors import UsageError
from compiler_core.guards.sources import AttrSource, GetItemSource, LocalSource, Source
from compiler_core.support.fx_symbols import MAX_SYMBOLIC_INT


@dataclass(frozen=True)
class DynamicDim:
    """A symbolic size: the reason, its range, and whether the user marked it, so that it must stay symbolic."""

    why: str
    low: int = 2
    high: int | None = None
    marked: bool = False


@dataclass
class ObservedShape:
    """The sizes and strides that the tensor at one source had; None for one that had several values."""

    sizes: list[int | None]
    strides: list[Any]


class DynamicPolicy:
    """Which sizes and numbers are symbolic in the compiles of one code object, by source.

    If `dynamic` is True, every size and every number among the arguments is symbolic from the first compile on.  If it
    is False, only marked sizes are.  If it is None, a size or number is symbolic from its second value on.
    """

    def __init__(self, dynamic: bool | None) -> None:
        self.dynamic = dynamic
        self._shapes: dict[str, ObservedShape] = {}
        self._numbers: dict[str, Any] = {}

    def dynamic_dims(self, real: torch.Tensor, source: Source) -> list[DynamicDim | None]:
        """Returns, for each dimension of the tensor at `source`, why it is symbolic; None if it is not."""
        found = self._unmarked(real, source)
        for dim in getattr(real, "_dynamo_weak_dynamic_indices", ()):
            found[dim] = DynamicDim("it was marked as possibly dynamic")
        whole = getattr(real, "_dynamo_static_input_type", None)
        for dim in range(real.dim()) if whole else getattr(real, "_dynamo_static_indices", ()):
            found[dim] = None
        for dim in getattr(real, "_dynamo_dynamic_indices", ()):
            found[dim] = _marked_dim(real, dim, source)
        return found

    def dynamic_strides(self, source: Source) -> list[bool]:
        """Returns, for each stride, whether it is symbolic: it had several values that sizes do not explain."""
        seen = self._shapes.get(source.text)
        return [] if seen is None else [stride is None for stride in seen.strides]

    def _unmarked(self, real: torch.Tensor, source: Source) -> list[DynamicDim | None]:
        if self.dynamic is False or _belongs_to_module(real, source):
            return [None] * real.dim()
        if self.dynamic:
            return [DynamicDim("dynamic=True")] * real.dim()
        seen, new = self._shapes.get(source.text), ObservedShape(list(real.shape), _unexplained_strides(real))
        if seen is not None and len(seen.sizes) == real.dim():
            new = ObservedShape(_merged(seen.sizes, new.sizes), _merged(seen.strides, new.strides))
        self._shapes[source.text] = new
        return [DynamicDim("it had another value before") if size is None else None for size in new.sizes]

    def symbol_reason(self, value: int | float, source: Source) -> str | None:
        """Returns why the number at `source` is symbolic, or None if it is not.

        A float is never symbolic while it is not finite, or 0, because 0.0 and -0.0 differ.  An int is not if it does
        not fit in 64 bits.
        """
        if self.dynamic is False:
            return None
        known = self._numbers.setdefault(source.text, value)
        if known is not None and known != value:
            self._numbers[source.text] = None
        if _is_never_symbolic(value):
            return None
        if self._numbers[source.text] is None:
            return "it had another value before"
        return "dynamic=True" if self.dynamic and _is_argument(source) else None


def _is_never_symbolic(value: int | float) -> bool:
    if isinstance(value, float):
        return value == 0 or not math.isfinite(value)
    return abs(value) > MAX_SYMBOLIC_INT


def _merged(old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    return [a if a == b else None for a, b in zip(old, new, strict=True)]


def _unexplained_strides(real: torch.Tensor) -> list[Any]:
    """Returns the strides; for one that equals size times stride of a dimension, the name of that dimension instead."""
    spans = {size * stride: f"of {i}" for i, (size, stride) in enumerate(zip(real.shape, real.stride(), strict=True))}
    return [stride if stride in (0, 1) else spans.get(stride, stride) for stride in real.stride()]


def _belongs_to_module(real: torch.Tensor, source: Source) -> bool:
    """Whether a tensor is a parameter or buffer, whose sizes do not change."""
    table = source.table if isinstance(source, AttrSource) else None
    return isinstance(real, torch.nn.Parameter) or table in ("_parameters", "_buffers")


def _is_argument(source: Source) -> bool:
    while isinstance(source, GetItemSource):
        source = source.base
    return isinstance(source, LocalSource)


def _marked_dim(real: torch.Tensor, dim: int, source: Source) -> DynamicDim | None:
    ranges = {r.dim: r for r in getattr(real, "_dynamo_dynamic_range", ())}
    low, high = (ranges[dim].min, ranges[dim].max) if dim in ranges else (None, None)
    size = real.size(dim)
    if not (low or 0) <= size <= (size if high is None else high):
        raise UsageError(f"{source.text} was marked dynamic, size({dim}) from {low} to {high}, but it is {size}")
    if size in (0, 1):  # they stay numbers
        return None
    return DynamicDim("it was marked dynamic", max(low or 2, 2), high, marked=True)
