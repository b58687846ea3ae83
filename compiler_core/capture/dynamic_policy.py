"""Which sizes and numbers are symbolic: those that were seen to differ, and those that somebody marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from compiler_core.errors import UsageError
from compiler_core.guards.sources import Attribute, Item, Local, Source
from compiler_core.support.fx_symbols import LARGEST


@dataclass(frozen=True)
class Wanted:
    """Why a size is to be symbolic, and in which range; `marked`: it must stay so."""

    why: str
    low: int = 2
    high: int | None = None
    marked: bool = False


@dataclass
class Seen:
    """The sizes and strides that the tensor at one source had; None where it had several."""

    sizes: list[int | None]
    strides: list[Any]


class Policy:
    """What the compiles of one code object were given, by source.

    `dynamic` True: every size is symbolic at once, and every number among the arguments; False: none ever is
    that is not marked; None: a size or number is from its second value on.
    """

    def __init__(self, dynamic: bool | None) -> None:
        self.dynamic = dynamic
        self._seen: dict[str, Seen] = {}
        self._numbers: dict[str, Any] = {}

    def sizes(self, real: torch.Tensor, source: Source) -> list[Wanted | None]:
        """For each dimension of the tensor at `source`, why it is symbolic; None where it is not."""
        found = self._unmarked(real, source)
        for dim in getattr(real, "_dynamo_weak_dynamic_indices", ()):
            found[dim] = Wanted("it may be dynamic, by its mark")
        for dim in _static_dims(real):
            found[dim] = None
        for dim in getattr(real, "_dynamo_dynamic_indices", ()):
            found[dim] = _marked(real, dim, source)
        return found

    def strides(self, source: Source) -> list[bool]:
        """For each stride, whether it was seen to be one that sizes do not explain, and then another."""
        seen = self._seen.get(source.text)
        return [] if seen is None else [stride is None for stride in seen.strides]

    def _unmarked(self, real: torch.Tensor, source: Source) -> list[Wanted | None]:
        if self.dynamic is False or _belongs_to_module(real, source):
            return [None] * real.dim()
        if self.dynamic:
            return [Wanted("dynamic=True")] * real.dim()
        seen, new = self._seen.get(source.text), Seen(list(real.shape), _own_strides(real))
        if seen is not None and len(seen.sizes) == real.dim():
            new = Seen(_merged(seen.sizes, new.sizes), _merged(seen.strides, new.strides))
        self._seen[source.text] = new
        return [Wanted("it had another value before") if size is None else None for size in new.sizes]

    def number(self, value: int | float, source: Source) -> str | None:
        """Why the number at `source` is symbolic; a float is not while it is 0, which is two numbers, or not
        finite; an int is not where it is huge."""
        if self.dynamic is False:
            return None
        known = self._numbers.setdefault(source.text, value)
        if known is not None and known != value:
            self._numbers[source.text] = None
        is_odd = value == 0 or not math.isfinite(value) if isinstance(value, float) else abs(value) > LARGEST
        if is_odd:
            return None
        if self._numbers[source.text] is None:
            return "it had another value before"
        return "dynamic=True" if self.dynamic and _is_argument(source) and value not in (0, 1) else None


def _merged(old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    return [a if a == b else None for a, b in zip(old, new, strict=True)]


def _own_strides(real: torch.Tensor) -> list[Any]:
    """The strides; one that the size and stride of another dimension explain, by that dimension."""
    spans = {size * stride: f"of {i}" for i, (size, stride) in enumerate(zip(real.shape, real.stride(), strict=True))}
    return [stride if stride in (0, 1) else spans.get(stride, stride) for stride in real.stride()]


def _belongs_to_module(real: torch.Tensor, source: Source) -> bool:
    """Whether it is a parameter or buffer, whose sizes do not change."""
    table = source.table if isinstance(source, Attribute) else None
    return isinstance(real, torch.nn.Parameter) or table in ("_parameters", "_buffers")


def _is_argument(source: Source) -> bool:
    while isinstance(source, Item):
        source = source.base
    return isinstance(source, Local)


def _static_dims(real: torch.Tensor) -> Any:
    whole = getattr(real, "_dynamo_static_input_type", None)
    return range(real.dim()) if whole else getattr(real, "_dynamo_static_indices", ())


def _marked(real: torch.Tensor, dim: int, source: Source) -> Wanted:
    ranges = {r.dim: r for r in getattr(real, "_dynamo_dynamic_range", ())}
    low, high = (ranges[dim].min, ranges[dim].max) if dim in ranges else (None, None)
    size = real.size(dim)
    if not (low or 0) <= size <= (size if high is None else high):
        raise UsageError(f"{source.text} was marked dynamic, size({dim}) from {low} to {high}, but it is {size}")
    if size in (0, 1):
        raise UsageError(f"{source.text} was marked dynamic, but size({dim}) is {size}, which is compiled for itself")
    return Wanted("it was marked dynamic", max(low or 2, 2), high, marked=True)
