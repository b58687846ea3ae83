"""Compares our own gradient formulas with eager's."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from compiler_core.tools.testing import check
from tests.sampling import pairs

nan, inf = math.nan, math.inf
ROWS = [
    *([2.0, 3, 4, 5], [0.0, 3, 4, 5], [0.0, 3, 0, 5], [-0.0, 1, 2, 3]),
    *([nan, 3, 4, 5], [nan, 0, 4, 5], [nan, 0, 0, 5]),
    *([inf, 0, 4, 5], [inf, 3, 4, 5], [inf, nan, 0, 1], [inf, -inf, 0.0, 0]),
]
PROD_ROWS = [ROWS, ROWS[:1], ROWS[4:5] * 2 + ROWS[8:9]]
"""All rows, one, and some without zeros."""


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_prod_of_all(row: list[float]) -> None:
    check(lambda x: x.prod(), lambda: (torch.tensor(row),), grad=True, backend="cpp", tolerance=1e-6)


@pytest.mark.parametrize(("rows", "dtype"), pairs(PROD_ROWS, [torch.float32, torch.float64, torch.bfloat16], 3))
def test_prod_along_a_dimension(rows: list[list[float]], dtype: torch.dtype) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.prod(1), torch.prod(x, -1, keepdim=True), x.prod(dim=1, dtype=torch.float64), x[:, :1].prod(1)

    check(program, lambda: (torch.tensor(rows, dtype=dtype),), grad=True, backend="cpp", tolerance=1e-6)


PRODUCTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "all": lambda x: x.prod(),
    "first": lambda x: x.prod(0),
    "first, then all": lambda x: x.prod(0).prod(),
}


@pytest.mark.parametrize(
    ("name", "shape"), pairs(PRODUCTS, [(), (1,), (7, 1), (5, 19), (0, 3), (3, 0), (2, 3, 4)], 2), ids=str
)
def test_prod_of_shapes(name: str, shape: tuple[int, ...]) -> None:
    check(PRODUCTS[name], lambda: (torch.randn(shape),), grad=True, backend="cpp", tolerance=1e-5)


PICKS = ["max", "min", "median", "nanmedian"]


@pytest.mark.parametrize(("name", "backend"), pairs(PICKS, ["aot_eager", "cpp"], 2))
def test_values_picked_from_all_elements(name: str, backend: str) -> None:
    """Ties, values that are NaN, and gradients that are."""

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        value = getattr(x, name)()
        return value * 2, getattr(torch, name)(x[:1] + 1), (value - value).sqrt()

    rows = [[1.0, 3, 3, 2], [-1.0, -1, -1, 5], [nan, 3, nan, 1], [inf, 3, -inf, inf], [nan] * 4]
    inputs = [lambda row=row: (torch.tensor([row, row]),) for row in rows]
    check(program, inputs, grad=True, backend=backend, tolerance=1e-6)
