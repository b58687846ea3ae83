"""Operators that may get images in channels_last compute the same values for both layouts, on the device of the run.

PyTorch has separate kernels for the layouts, and the compiler chooses layouts that eager would not have.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

from compiler_core.autograd.passes import gpu_rewrites
from compiler_core.support.operators import Fact, operators_with

aten = torch.ops.aten
SIZE = (2, 3, 7, 9)
Call = tuple[Any, ...]


def image(*size: int) -> torch.Tensor:
    return torch.randn(size or SIZE, dtype=torch.float64)


def like(result: Any) -> torch.Tensor:
    """Returns a gradient of a result."""
    return torch.randn_like(tree_leaves(result)[0])


def average_pools() -> Iterator[Call]:
    for size, step, padding, ceil, include in itertools.product((2, 3), (1, 2), (0, 1), (False, True), (False, True)):
        x, given = image(), ([size, size], [step, step], [padding, padding], ceil, include, None)
        y = aten.avg_pool2d(x, *given)
        yield aten.avg_pool2d.default, x, *given
        yield aten.avg_pool2d_backward.default, like(y), x, *given
    yield aten.avg_pool2d.default, image(), [3, 2], [1, 2], [1, 0], False, True, 5
    yield aten.avg_pool2d_backward.default, image(2, 3, 7, 4), image(), [3, 2], [1, 2], [1, 0], False, True, 5


def maximum_pools() -> Iterator[Call]:
    for size, step, padding, dilation, ceil in itertools.product((2, 3), (1, 2), (0, 1), (1, 2), (False, True)):
        x, given = image(), ([size, size], [step, step], [padding, padding], [dilation, dilation], ceil)
        y, places = aten.max_pool2d_with_indices(x, *given)
        yield aten.max_pool2d_with_indices.default, x, *given
        yield aten.max_pool2d_with_indices_backward.default, like(y), x, *given, places


def adaptive_pools() -> Iterator[Call]:
    for size in ([1, 1], [3, 3], [4, 5], [7, 9], [10, 12]):
        x = image()
        yield aten._adaptive_avg_pool2d.default, x, size
        yield aten._adaptive_avg_pool2d_backward.default, like(aten._adaptive_avg_pool2d(x, size)), x


def upsampling() -> Iterator[Call]:
    for size in ([14, 18], [5, 11], [7, 9]):
        y = image(2, 3, *size)
        yield aten.upsample_nearest2d.default, image(), size
        yield aten.upsample_nearest2d_backward.default, y, size, list(SIZE)
        for align in (False, True):
            yield aten.upsample_bilinear2d.default, image(), size, align
            yield aten.upsample_bilinear2d_backward.default, y, size, list(SIZE), align


def reductions() -> Iterator[Call]:
    yield aten.sum.default, image()
    yield aten.mean.default, image()
    for op in (aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.amin.default):
        for dims, keep in itertools.product(([0], [1], [2, 3], [0, 2, 3], [-1]), (False, True)):
            yield op, image(), dims, keep


def copies() -> Iterator[Call]:
    yield aten.clone.default, image()
    yield aten._to_copy.default, image()
    yield aten.where.self, image() > 0, image(), image()
    yield aten.cat.default, [image(), image()], 1
    yield aten.cat.default, [image(), image(2, 3, 2, 9)], 2
    yield aten.constant_pad_nd.default, image(), [1, 2, 0, -1], 0.5
    yield aten.squeeze.dims, image(2, 3, 7, 1), [3]
    yield aten.unsqueeze.default, image(), 2
    yield aten.expand.default, image(2, 3, 1, 1), list(SIZE)


def convolutions() -> Iterator[Call]:
    for size, step, dilation, groups in itertools.product((1, 2, 3), (1, 2), (1, 2), (1, 3)):
        x, w = image(), image(6, 3 // groups, size, size)
        given = ([step, step], [size // 2] * 2, [dilation, dilation], False, [0, 0], groups)
        y = aten.convolution(x, w, None, *given)
        yield aten.convolution.default, x, w, None, *given
        yield aten.convolution_backward.default, like(y), x, w, None, *given, [True, True, False]


FAMILIES = (convolutions, average_pools, maximum_pools, adaptive_pools, upsampling, reductions, copies)


@pytest.mark.parametrize("family", FAMILIES)
def test_both_layouts_give_the_same_values(family: Any) -> None:
    for op, *arguments in family():
        if gpu_rewrites.is_wrong_in_channels_last(op, arguments):
            continue
        want = tree_leaves(op(*arguments))
        got = tree_leaves(op(*tree_map(_channels_last, arguments)))
        for a, b in zip(got, want, strict=True):
            if a is None:
                continue
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10, msg=f"{op} of {arguments[1:]}")


def test_every_operator_is_compared() -> None:
    compared = {op for family in FAMILIES for op, *_ in family()}
    assert compared >= {*operators_with(Fact.ANY_LAYOUT), *gpu_rewrites.IMAGE_ARGUMENTS}


def _channels_last(value: Any) -> Any:
    is_image = isinstance(value, torch.Tensor) and value.dim() == 4
    return value.contiguous(memory_format=torch.channels_last) if is_image else value
