"""Tests of our decompositions, beside the operators that they stand for."""

from __future__ import annotations

import itertools

import pytest
import torch

import compiler_core
from compiler_core.autograd.trace.decompositions import (
    im2col,
    pixel_shuffle,
    pixel_unshuffle,
    weight_norm,
    weight_norm_backward,
)

aten = torch.ops.aten


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("shape", "dim"), [((4, 6), 0), ((4, 6), 1), ((5, 4, 3), 0), ((5, 4, 3), 2)])
def test_weight_norm(shape: tuple[int, ...], dim: int, dtype: torch.dtype) -> None:
    v = torch.randn(shape, dtype=dtype)
    g = torch.randn([size if d == dim else 1 for d, size in enumerate(shape)], dtype=dtype)
    scaled, norm = aten._weight_norm_interface(v, g, dim)
    gradient = torch.randn_like(scaled)
    expected = scaled, norm, *aten._weight_norm_interface_backward(gradient, v, g, norm, dim)
    found = *weight_norm(v, g, dim), *weight_norm_backward(gradient, v, g, norm, dim)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 2e-2)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    assert [t.stride() for t in found] == [t.stride() for t in expected]


def test_weight_norm_of_a_vector_is_left_to_eager() -> None:
    v, g = torch.randn(4), torch.randn(4)
    assert weight_norm(v, g, 0) is NotImplemented
    assert weight_norm_backward(v, v, g, g, 0) is NotImplemented


def test_windows_and_shuffled_pixels() -> None:
    for shape, kernel, dilation, padding, stride in itertools.product(
        ((2, 3, 9, 8), (3, 9, 8)), ((3, 2), (1, 1)), ((1, 1), (2, 1)), ((0, 0), (2, 1)), ((1, 1), (1, 2))
    ):
        x = torch.randn(shape)
        arguments = (x, kernel, dilation, padding, stride)
        torch.testing.assert_close(im2col(*arguments), aten.im2col(*arguments), rtol=0, atol=0)
    for shape in ((8, 4, 6), (2, 8, 4, 6), (1, 2, 4, 4, 6)):
        x = torch.randn(shape)
        for ours, eager in ((pixel_shuffle, aten.pixel_shuffle), (pixel_unshuffle, aten.pixel_unshuffle)):
            torch.testing.assert_close(ours(x, 2), eager(x, 2), rtol=0, atol=0)
            assert ours(x, 2).is_contiguous()
    for x in (torch.randn(2, 8, 3, 5).to(memory_format=torch.channels_last), torch.empty(2, 4, 0, 6)):
        assert pixel_shuffle(x, 2) is NotImplemented
    assert im2col(torch.ones(1, 1, 4, 4).long(), (2, 2), (1, 1), (0, 0), (1, 1)) is NotImplemented


@pytest.mark.parametrize(
    ("weights", "compiles"), [((0.9, 0.6, 0.3, 0.01, -0.2), 1), ((0.1, 0.01, 0.3), 1), ((0.1, 0.9, 0.3), 2)]
)
def test_a_weight_of_lerp_that_changes(weights: tuple[float, ...], compiles: int) -> None:
    """The first ones are those of an average of weights that warms up."""
    x, y = torch.randn(50), torch.randn(50)
    with compiler_core.record() as record:
        compiled = compiler_core.compile(lambda w: torch.lerp(x, y, w), fullgraph=True, dynamic=True)
        for weight in weights:
            torch.testing.assert_close(compiled(weight), torch.lerp(x, y, weight))
    assert len(record.compiles) == compiles
