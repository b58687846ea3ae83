"""Pooling, compared with eager: bitwise equal values, indices and gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import compiler_core
from compiler_core.records import Compile, ValueDecision
from tests.sampling import pairs

WINDOWS: list[dict[str, Any]] = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": (3, 2), "stride": (1, 2), "padding": (1, 0)},
    {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": 2, "stride": 1, "dilation": 3},
    {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2},
    {"kernel_size": 6, "stride": 5},
]


def image(dtype: torch.dtype, channels_last: bool, special: bool = True) -> torch.Tensor:
    x = torch.randn(2, 3, 14, 17).to(dtype)
    if special:
        for value in (math.nan, math.inf, -math.inf, -0.0, 0.0, 7.0):
            x.view(-1)[torch.randint(x.numel(), (80,))] = value
        x[1, 2, 3:9, 4:10] = -math.inf
    return x.contiguous(memory_format=torch.channels_last) if channels_last else x


def calls(record: compiler_core.Record) -> list[str]:
    return [k.name for c in record.compiles for k in c.kernels if k.language == "extern"]


def same_bits(got: torch.Tensor, want: torch.Tensor) -> None:
    assert (got.shape, got.stride(), got.dtype) == (want.shape, want.stride(), want.dtype)
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(got.signbit() & ~got.isnan(), want.signbit() & ~want.isnan())


@pytest.mark.parametrize(
    ("window", "of"), pairs(WINDOWS, itertools.product((False, True), (torch.float32, torch.bfloat16)), 2), ids=str
)
def test_max_pooling_values_and_indices(window: dict[str, Any], of: tuple[bool, torch.dtype]) -> None:
    channels_last, dtype = of
    fast = compiler_core.compile(lambda x: F.max_pool2d(x, return_indices=True, **window), strict=True, dynamic=False)
    x = image(dtype, channels_last)
    for got, want in zip(fast(x), F.max_pool2d(x, return_indices=True, **window), strict=True):
        same_bits(got, want)
    same_bits(compiler_core.compile(lambda x: F.max_pool2d(x, **window))(x[0]), F.max_pool2d(x[0], **window))


def test_means_over_the_elements_in_the_image_are_loops() -> None:
    def smoothed(x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(x, (3, 4), 1, (1, 2), count_include_pad=False) - x[..., :-1, :].sum()

    x = image(torch.float32, False, special=False)
    with compiler_core.record() as record:
        torch.testing.assert_close(compiler_core.compile(smoothed, strict=True)(x), smoothed(x))
    assert not [k for c in record.compiles for k in c.kernels if "pool" in k.name]


@pytest.mark.parametrize("channels_last", [False, True])
def test_average_pooling(channels_last: bool) -> None:
    def means(x: torch.Tensor) -> list[torch.Tensor]:
        padded = F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)
        others = F.avg_pool2d(x, (2, 3), divisor_override=5), F.avg_pool2d(x, 3, 2, ceil_mode=True)
        return [*padded, *others, F.adaptive_avg_pool2d(x[..., :16], (7, 4)), F.adaptive_avg_pool2d(x, (5, 4))]

    x = image(torch.float32, channels_last, special=False)
    torch.testing.assert_close(compiler_core.compile(means, strict=True)(x), means(x))


def test_gradients_of_max_pooling() -> None:
    x = image(torch.float32, False, special=False).round().requires_grad_()  # many are equal
    fast = compiler_core.compile(lambda x: F.max_pool2d(x.sin(), 3, 2, 1).exp() + F.avg_pool2d(x, 2, 2, 1)[..., :7, :9])
    (got,) = torch.autograd.grad(fast(x).sum(), x)
    (want,) = torch.autograd.grad(
        (F.max_pool2d(x.sin(), 3, 2, 1).exp() + F.avg_pool2d(x, 2, 2, 1)[..., :7, :9]).sum(), x
    )
    torch.testing.assert_close(got, want)


POOLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "greatest": lambda x: F.max_pool2d(x, 3, 2, 1),
    "mean": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "adaptive greatest": lambda x: F.adaptive_max_pool2d(x, (4, 5)),
    "adaptive mean": lambda x: F.adaptive_avg_pool2d(x, (4, 5)),
    "greatest of three": lambda x: F.max_pool3d(x[None], 2)[0],
    "mean of three": lambda x: F.avg_pool3d(x[None], 2)[0],
    "adaptive greatest of three": lambda x: F.adaptive_max_pool3d(x[None], (1, 4, 5))[0],
    "adaptive mean of three": lambda x: F.adaptive_avg_pool3d(x[None], (1, 4, 5))[0],
}


@pytest.mark.parametrize(("name", "channels_last"), pairs(POOLS, [False, True], 2))
def test_the_input_is_not_saved_for_backward(name: str, channels_last: bool) -> None:
    """The gradient depends on its shape alone: it gets an uninitialised tensor, filled with NaN in this test."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return POOLS[name]((x * 2).sin())

    x = image(torch.float32, channels_last, special=False).requires_grad_()
    seed = torch.randn_like(program(x))
    (want,) = torch.autograd.grad(program(x), x, seed)
    with compiler_core.record() as record:
        out = compiler_core.compile(program)(x)
    assert [v.node for c in record.compiles for v in _saved(c) if v.node.endswith("#sin")] == []
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        (got,) = torch.autograd.grad(out, x, seed)
    finally:
        torch.use_deterministic_algorithms(False)
    assert got.stride() == want.stride()
    torch.testing.assert_close(got, want)


def _saved(compile_: Compile) -> list[ValueDecision]:
    assert compile_.partition is not None
    return [v for v in compile_.partition.values if v.decision == "saved"]


def test_pooling_is_fused_with_its_consumers() -> None:
    with compiler_core.record() as record, torch.no_grad():
        compiler_core.compile(lambda x: F.max_pool2d(x, 2).relu() + 1, strict=True)(image(torch.float32, True))
    assert calls(record) == []
    assert [k.language for c in record.compiles for k in c.kernels] == ["cpp"]


def test_symbolic_sizes() -> None:
    fast = compiler_core.compile(lambda x: F.max_pool2d(x, 2) * 2 + F.max_pool2d(x, 3, 2, 1), dynamic=True)
    for n in (8, 12, 30):
        x = torch.randn(2, 3, n, n)
        torch.testing.assert_close(fast(x), F.max_pool2d(x, 2) * 2 + F.max_pool2d(x, 3, 2, 1))
