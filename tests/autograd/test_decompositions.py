"""Tests of our decompositions, beside the operators that they stand for."""

from __future__ import annotations

import pytest
import torch

from compiler_core.autograd.trace.decompositions import weight_norm, weight_norm_backward

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
