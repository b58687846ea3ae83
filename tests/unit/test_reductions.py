"""Reductions with places, through C++ kernels, against eager: ties, NaN, every type and layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from compiler_core import ir
from compiler_core.fuse import fuse
from compiler_core.lower import lower
from tests.kernel_programs import check, trace


def special() -> torch.Tensor:
    """NaN twice in a row, a row of -inf, one inf, ties."""
    x = torch.randn(20, 300)
    x[3, 4] = x[3, 9] = float("nan")
    x[5], x[6, 7], x[7] = float("-inf"), float("inf"), 1.0
    return x


LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "float32": special,
    "float64": lambda: special().double(),
    "bfloat16": lambda: special().bfloat16(),
    "float16": lambda: special().half(),
    "int64": lambda: torch.randint(-5, 5, (20, 300)),
    "uint8": lambda: torch.randint(0, 4, (20, 300)).to(torch.uint8),
    "transposed": lambda: special().t(),
    "sliced": lambda: special()[:, ::3],
    "one row": lambda: torch.randn(1, 7),
    "one column": lambda: torch.randn(8, 1),
    "long rows": lambda: torch.randn(3, 40_000),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_places_of_extremes(layout: str) -> None:
    def program(x: torch.Tensor) -> Any:
        return x.argmax(-1), x.argmin(0), x.argmax(), x.argmin(1, keepdim=True), *x.max(0), *x.min(-1, keepdim=True)

    torch.manual_seed(0)
    check(program, LAYOUTS[layout]())


def test_the_place_in_a_permuted_tensor_is_the_logical_one() -> None:
    x = torch.randint(0, 3, (4, 5, 6)).float()
    check(lambda x: (x.argmax(1), x.permute(2, 0, 1).argmax(), x.argmax(), (x + 1).permute(1, 2, 0).argmax(0)), x)


def test_extremes_of_a_single_number() -> None:
    check(lambda x: (x.argmax(), *x.max(0)), torch.tensor(3.0))


def test_an_extreme_and_its_place_share_a_kernel() -> None:
    program = fuse(lower(trace(lambda x: (*x.max(1), x.abs().amax(1)), torch.randn(40, 50)), "forward")).program
    (loops,) = program.steps
    assert isinstance(loops, ir.Loops)
    assert [s.op for s in loops.body if isinstance(s, ir.Reduce)].count("max") == 2
