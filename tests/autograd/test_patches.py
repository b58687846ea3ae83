"""Tests of convolutions as matrix products of the windows: values, gradients, layouts, and when they are chosen."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from compiler_core.autograd.trace import patches

aten = torch.ops.aten
NO_GROUPS = (False, [0, 0], 1)


@pytest.mark.parametrize(
    ("image", "weight"),
    [
        ((2, 3, 8, 12), (5, 3, 4, 4)),
        ((1, 1, 6, 6), (4, 1, 2, 3)),
        ((3, 2, 12), (4, 2, 3)),
        ((2, 3, 4, 8, 6), (5, 3, 2, 4, 3)),
    ],
)
def test_products_of_windows_are_the_convolution(
    image: tuple[int, ...], weight: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patches, "_is_faster_as_product", lambda *_: True)
    x, w, b = torch.randn(image), torch.randn(weight), torch.randn(weight[0])
    n = len(image) - 2
    how: Any = (list(weight[2:]), [0] * n, [1] * n, False, [0] * n, 1)
    for bias in (b, None):
        expected = aten.convolution(x, w, bias, *how)
        found = patches.convolution(x, w, bias, *how)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        assert found.stride() == expected.stride()
    gradient = torch.randn_like(expected)
    for wanted in ([True, True, True], [False, True, False]):
        exact = aten.convolution_backward(gradient, x, w, [weight[0]], *how, wanted)
        got = patches.convolution_backward(gradient, x, w, [weight[0]], *how, wanted)
        for found, expected in zip(got, exact, strict=True):
            if expected is None:
                assert found is None
                continue
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
            assert found.stride() == expected.stride()


def chosen(
    image: tuple[int, ...], weight: tuple[int, ...], *how: Any, dtype: Any = torch.bfloat16, **moved: Any
) -> bool:
    with FakeTensorMode():
        layout = moved.get("layout", torch.contiguous_format)
        x = torch.empty(image, dtype=dtype, device=moved.get("device", "cuda"), memory_format=layout)
        w = torch.empty(weight, dtype=dtype, device=x.device)
        return patches._is_faster_as_product(x, w, *how)


def test_only_windows_of_few_channels_that_do_not_overlap() -> None:
    stride, none, one = [16, 16], [0, 0], [1, 1]
    image, weight = (4, 3, 224, 224), (768, 3, 16, 16)
    assert chosen(image, weight, stride, none, one, *NO_GROUPS)
    assert chosen(image, weight, stride, none, one, *NO_GROUPS, dtype=torch.float32)
    assert not chosen((4, 4, 32, 32), (64, 4, 2, 2), [2, 2], none, one, *NO_GROUPS), "windows of 16 elements"
    assert not chosen(image, weight, [8, 8], none, one, *NO_GROUPS), "windows overlap"
    assert not chosen(image, weight, stride, [1, 1], one, *NO_GROUPS)
    assert not chosen(image, weight, stride, none, [2, 2], *NO_GROUPS)
    assert not chosen(image, (3, 768, 16, 16), stride, none, one, True, [0, 0], 1)
    assert not chosen((4, 3, 230, 224), weight, stride, none, one, *NO_GROUPS), "rows are left over"
    assert not chosen((4, 64, 32, 32), (64, 64, 2, 2), [2, 2], none, one, *NO_GROUPS), "cuDNN is fast"
    assert not chosen(image, weight, stride, none, one, *NO_GROUPS, dtype=torch.float64)
    assert not chosen(image, weight, stride, none, one, *NO_GROUPS, device="cpu")
    assert not chosen(image, weight, stride, none, one, *NO_GROUPS, layout=torch.channels_last)
