"""How the layouts of two tensors differ: rank, sizes and strides."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from compiler_core.records.recompiles.facts import Mismatch

Extents = Sequence[int | None]
"""Sizes or strides; None for any."""


def layout_differences(shape: Extents, stride: Extents, got_shape: Extents, got_stride: Extents) -> Iterator[Mismatch]:
    """Yields how the rank, the sizes and the strides of a tensor differ from what is expected; None allows any."""
    if len(shape) != len(got_shape):
        yield Mismatch("rank", str(len(shape)), str(len(got_shape)))
        return
    sizes = _different(shape, got_shape)
    if sizes:
        is_broadcast = any(each in (0, 1) for i in sizes for each in (shape[i], got_shape[i]))
        yield Mismatch("size", _shown(shape, sizes), _shown(got_shape, sizes), sizes, is_broadcast=is_broadcast)
    strides = _different(stride, got_stride) if math.prod(size or 2 for size in got_shape) > 1 else []
    if strides and not (sizes and _order(shape, stride) == _order(got_shape, got_stride)):
        yield Mismatch("stride", str(tuple(stride)), str(tuple(got_stride)), strides)


def _different(expected: Extents, got: Extents) -> list[int]:
    return [i for i, (a, b) in enumerate(zip(expected, got, strict=True)) if a is not None and a != b]


def _shown(extents: Extents, dims: Sequence[int]) -> str:
    """Returns the one size that differs, or the whole shape."""
    return str(extents[dims[0]]) if len(dims) == 1 else str(tuple(extents)).replace("None", "any")


def _order(shape: Extents, stride: Extents) -> list[int] | None:
    """Returns the dimensions in the order of their strides if the tensor has no gaps, else None."""
    order = sorted(range(len(shape)), key=lambda i: (-(stride[i] or 0), i))
    step: int | None = 1
    for i in reversed(order):
        if shape[i] != 1 and None not in (step, stride[i]) and stride[i] != step:
            return None
        step = None if step is None or shape[i] is None else step * max(shape[i] or 1, 1)
    return order
