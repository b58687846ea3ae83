"""Half types in C++ kernels: the bits that eager has, for every half and for floats around each of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.kernel_programs import assert_same, compiled

HALVES = (torch.bfloat16, torch.float16)
Program = Callable[[torch.Tensor], torch.Tensor]


def every(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)


def same_bits(program: Program, x: torch.Tensor) -> None:
    """What is NaN in one is in the other; anything else has the same bits, the sign of zero too."""
    found, expected = compiled(program, x)[0]([x])[0], program(x)
    bits = torch.int16 if expected.element_size() == 2 else torch.int32
    numbers = ~expected.isnan()
    assert torch.equal(found.isnan(), ~numbers)
    assert torch.equal(found.view(bits)[numbers], expected.view(bits)[numbers])


@pytest.mark.parametrize("dtype", HALVES)
def test_floats_are_rounded_to_the_nearest_half(dtype: torch.dtype) -> None:
    around = every(dtype).float().view(torch.int32)
    near = [around + step for step in (-1, 0, 1, 0xFFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001)]
    anything = torch.randint(-(2**31), 2**31, (2**18,)).to(torch.int32)
    x = torch.cat([*near, anything]).view(torch.float32)
    same_bits(lambda x: x.to(dtype), x)
    same_bits(lambda x: x.to(dtype).float() * 1, x)
    same_bits(lambda x: torch.where(x > 0, x.to(dtype), -2.0) * 3, x)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("program", [lambda x: x + x, lambda x: x * x - 1, lambda x: x.abs().float(), lambda x: -x])
def test_every_half(dtype: torch.dtype, program: Program) -> None:
    x = every(dtype)
    # of any length, across memory, and with steps
    for some in (x, x[5:], x[:7], x[:301:3], x.view(256, 256), x.view(256, 256).t(), x[:1000].view(4, 250)[:, 3:]):
        same_bits(program, some)


@pytest.mark.parametrize("dtype", HALVES)
def test_what_is_only_moved_keeps_its_bits(dtype: torch.dtype) -> None:
    x = every(dtype)

    def moved(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.flip(0), torch.zeros_like(x), x.view(256, 256).t().reshape(-1)])

    assert torch.equal(compiled(moved, x)[0]([x])[0].view(torch.int16), moved(x).view(torch.int16))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("length", [1, 15, 16, 127, 128, 129, 1000])
def test_rows_and_columns_of_any_length(dtype: torch.dtype, length: int) -> None:
    x = torch.randn(40, length).to(dtype)

    def sums(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.softmax(-1), x.float().sum(0), (x * 2).amax(0), x.amax(-1), x.cumsum(-1), (x + 1).softmax(0) * x

    for mine, theirs in zip(compiled(sums, x)[0]([x]), sums(x), strict=True):
        assert_same(mine, theirs)


@pytest.mark.parametrize("dtype", HALVES)
def test_sign_bits(dtype: torch.dtype) -> None:
    x = every(dtype)
    assert torch.equal(compiled(torch.signbit, x)[0]([x])[0], torch.signbit(x))


@pytest.mark.parametrize("dtype", HALVES)
def test_rows_that_lie_where_indices_say(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, ...]:
        gradient = torch.ops.aten.embedding_dense_backward(x * 2, at, 40, -1, False)
        return gradient, x.new_zeros(40, 301).index_put((at,), x + 1), x.new_ones(40, 301).index_add(0, at, x * x)

    x, at = torch.randn(40, 301).to(dtype), torch.randperm(40)
    run, _ = compiled(program, x, at)
    for found, expected in zip(run([x, at]), program(x, at), strict=True):
        assert torch.equal(found, expected)
