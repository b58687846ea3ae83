"""Tests of C++ kernels for short rows: when they are used, and that results equal eager mode's."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import compiler_core
from compiler_core.records import Compile
from tests.cases.kernel_programs import check, compiled
from tests.sampling import pairs


def text(compile_: Compile) -> str:
    return next(a.text for a in compile_.artifacts if a.pane == "kernel")


def special(*shape: int) -> torch.Tensor:
    """Random numbers; some rows have NaN or infinities, or are constant."""
    x = torch.randn(shape)
    rows = x.reshape(-1, shape[-1])
    rows[1::11, -1], rows[2::11, 0], rows[3::11, 0] = float("nan"), float("inf"), float("-inf")
    rows[4::11], rows[5::11] = float("-inf"), 0.0
    return x


def standardised(x: torch.Tensor) -> Any:
    mean = x.mean(-1, keepdim=True)
    var = (x - mean).square().mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt(var + 1e-5), mean, var


def masked(x: torch.Tensor) -> Any:
    top = x.amax(-1, keepdim=True)
    few = (x > top - 1).sum(-1, keepdim=True) < 4  # a boolean per row
    return torch.where(few, (x - top).exp(), x).sum(-1), few


def divided_late(x: torch.Tensor) -> Any:
    """Divides a float sum two sweeps after it was computed."""
    total = x.sum(-1, keepdim=True)
    size = (x - total).abs().amax(-1, keepdim=True)
    return x * (total / size), size


PROGRAMS = [lambda x: x.softmax(-1), lambda x: F.log_softmax(x * 2, -1), standardised, masked, divided_late]


@pytest.mark.parametrize(("program", "size"), pairs(PROGRAMS, itertools.product((8, 37), (1, 16, 100, 257, 513)), 3))
def test_rows_of_any_number_and_length(program: Any, size: tuple[int, int]) -> None:
    rows, length = size
    check(program, special(rows, length))


@pytest.mark.parametrize(("program", "dtype"), pairs(PROGRAMS, [torch.float64, torch.float16, torch.bfloat16], 2))
def test_other_types(program: Any, dtype: torch.dtype) -> None:
    check(program, torch.randn(21, 60).to(dtype))


def test_rows_of_several_dimensions() -> None:
    def normed(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
        return F.group_norm(x, 4, w, b), F.softmax(x[:, :, 1:], 2), F.layer_norm(x.transpose(0, 1), x.shape[2:])

    check(normed, torch.randn(5, 12, 33), torch.randn(12), torch.randn(12))


def test_rows_without_elements() -> None:
    check(lambda x: (x.softmax(-1), x.sum(-1)), torch.empty(20, 0))
    check(lambda x: x.softmax(-1), torch.empty(0, 20))


def test_a_few_rows_go_through_one_sweep_before_the_next_one() -> None:
    def shape(program: Any, *size: int) -> str:
        return text(check(program, torch.randn(size)))

    softmax = shape(lambda x: x.softmax(-1), 50, 100)
    assert softmax.count("for (i64 i0 = i0_tile; i0 < (i0_tile + 8 < 50 ? i0_tile + 8 : 50); ++i0) {") == 3
    assert "f32 amax_few[8];" in softmax
    assert "exp_row[100*(i0 - i0_tile) + j0] = exp;" in softmax
    for length, few in ((128, 8), (129, 4), (257, 2), (512, 2)):
        assert f"i0_tile += {few}" in shape(lambda x: x.softmax(-1), 50, length)
    for others in (shape(lambda x: x.softmax(-1), 50, 513), shape(lambda x: x.softmax(-1), 5, 100)):
        assert "i0_tile" not in others
    assert "i0_tile" not in shape(lambda x: x * x.sum(-1, keepdim=True), 50, 100)  # two sweeps


def test_threads_share_out_what_is_taken_together() -> None:
    compile_ = check(lambda x: x.softmax(-1), special(7003, 100))
    assert "#pragma omp parallel for schedule(static)\n  for (i64 i0_tile = 0;" in text(compile_)


def test_any_number_of_rows() -> None:
    softmax = compiler_core.compile(lambda x: torch.softmax(x, -1), dynamic=True)
    for rows in (20, 1, 8, 9000, 0, 3):
        x = special(rows, 60) if rows else torch.empty(0, 60)
        torch.testing.assert_close(softmax(x), torch.softmax(x, -1), equal_nan=True)


def test_positions_in_rows() -> None:
    def picked(x: torch.Tensor, at: torch.Tensor) -> Any:
        return F.log_softmax(x, 1).gather(1, at[:, None]), x.softmax(1)

    x, at = torch.randn(19, 40), torch.randint(40, (19,))
    assert "_few" in text(check(picked, x, at))
    run, _ = compiled(picked, x, at)
    at[13] = 40
    with pytest.raises(IndexError):
        run([x, at])
