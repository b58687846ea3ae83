"""Tests of scans in C++ kernels: with operations before and after, rows of any length, special values."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from tests.cases.kernel_programs import check
from tests.sampling import sample

PROGRAMS: dict[str, Any] = {
    "between others": lambda x: torch.cumsum(x * 0.5, -1) + 1,
    "a product": lambda x: torch.cumprod(x.clamp(0.9, 1.1), -1) - x,
    "two": lambda x: torch.cumsum(x, -1) * torch.cumsum(x.abs(), -1) + x,
    "one of another": lambda x: torch.cumsum(torch.cumsum(x * 0.01, -1).sin(), -1) + x,
    "reduced": lambda x: (torch.cumsum(x, -1).amax(-1), x.exp().cumsum(-1) / x.exp().sum(-1, keepdim=True)),
    "for another run through the row": lambda x: x.cumsum(-1) * x.sum(-1, keepdim=True),
    "of masks": lambda x: ((x > 0).cumsum(-1), torch.where(x > 0, x.cumsum(-1), x)),
    "along columns": lambda x: x.cumsum(0) * 2,
}


@pytest.mark.parametrize(
    ("name", "dtype", "shape"),
    sample(itertools.product(PROGRAMS, [torch.float32, torch.float16], [(5, 7), (3, 1200)]), 3),
)
def test_scan(name: str, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    check(PROGRAMS[name], torch.rand(shape, generator=torch.Generator().manual_seed(0)).sub(0.5).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_special_values(dtype: torch.dtype) -> None:
    inf, nan, most = float("inf"), float("nan"), torch.finfo(dtype).max / 8
    rows = [[most, most, -most, -most], [inf, 1, -1, 2], [1, -inf, inf, 3], [nan, 0, 1, inf], [-0.0, -0.0, 0.0, -0.0]]
    x = torch.tensor([[*row, *([0.0] * 20), *row] for row in rows], dtype=dtype)
    check(lambda x: (x.cumsum(-1), torch.signbit(x.cumsum(-1))), x)
