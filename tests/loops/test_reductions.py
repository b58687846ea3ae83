"""Argmax, argmin and scans in C++ kernels, compared with eager: ties, NaN, all types and layouts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from compiler_core.loops import ir
from compiler_core.loops.fuse.rules import fuse
from compiler_core.loops.lower import lower
from tests.cases.kernel_programs import check, compiled, trace
from tests.sampling import always, sample


def special() -> torch.Tensor:
    """Returns a tensor with a row with two NaN, a row of -inf, an inf, and ties."""
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


@pytest.mark.parametrize("layout", sample(LAYOUTS, 2))
def test_argmax_and_argmin(layout: str) -> None:
    def program(x: torch.Tensor) -> Any:
        return x.argmax(-1), x.argmin(0), x.argmax(), x.argmin(1, keepdim=True), *x.max(0), *x.min(-1, keepdim=True)

    torch.manual_seed(0)
    check(program, LAYOUTS[layout]())


def test_argmax_of_a_permuted_tensor() -> None:
    x = torch.randint(0, 3, (4, 5, 6)).float()
    check(lambda x: (x.argmax(1), x.permute(2, 0, 1).argmax(), x.argmax(), (x + 1).permute(1, 2, 0).argmax(0)), x)


def test_extremes_of_a_scalar() -> None:
    check(lambda x: (x.argmax(), *x.max(0)), torch.tensor(3.0))


def test_max_and_argmax_share_a_kernel() -> None:
    program = fuse(lower(trace(lambda x: (*x.max(1), x.abs().amax(1)), torch.randn(40, 50)), "forward")).program
    (loops,) = program.steps
    assert isinstance(loops, ir.Loops)
    assert [s.op for s in loops.body if isinstance(s, ir.Reduce)].count("max") == 2


def running(x: torch.Tensor, dim: int) -> Any:
    shares = x.cumsum(dim).float().softmax(dim)
    return x.cumsum(dim), (x * 2).cumsum(dim) + 1, shares, (x.cumsum(dim) * 2).sum(dim), x.float().sin().cumprod(dim)


@pytest.mark.parametrize("layout", always(LAYOUTS, [*LAYOUTS][1::2].__contains__))
def test_scans_along_each_dimension(layout: str) -> None:
    torch.manual_seed(0)
    x = LAYOUTS[layout]()
    for dim in range(x.dim()):
        check(functools.partial(running, dim=dim), x)


def test_scans_of_scalars_and_masks() -> None:
    check(lambda x: (x.cumsum(0), x.cumprod(0)), torch.tensor(3.0))
    check(lambda x: (x.cumsum(1), x.t().cumsum(1), x.cumsum(0).sum()), torch.randn(20, 30) > 0)


def test_a_scan_is_fused_with_producers_and_consumers() -> None:
    program = fuse(lower(trace(lambda x: (x * 0.5).softmax(1).cumsum(1) + 1, torch.randn(40, 50)), "forward")).program
    (loops,) = program.steps
    assert isinstance(loops, ir.Loops)
    assert len(loops.scans) == 1


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.cumsum(1).flip(1) * 2,
        lambda x: x.flip(1).cumsum(1) * 2,
        lambda x: x.flatten().cumsum(0).view(20, 300) + 1,
        lambda x: x.cumsum(1).t() * 2,
        lambda x: x.cumsum(1).view(20, 30, 10).sum(2),
        lambda x: x.cumsum(1).view(20, 30, 10).sum(1),
        lambda x: x.cumsum(1)[:, 5:] - x.cumsum(1)[:, :-5],
        lambda x: x.cumsum(1).cumsum(0).cumsum(1),
        lambda x: x.cumsum(1, dtype=torch.float64),
        lambda x: x.view(20, 30, 10).permute(1, 0, 2).cumsum(2) + 1,
    ],
)
def test_scans_keep_their_order(program: Callable[..., Any]) -> None:
    check(program, torch.randn(20, 300))


def test_long_scans_are_as_accurate_as_eager() -> None:
    x = torch.rand(3, 200_000)
    run, _ = compiled(lambda x: x.cumsum(1), x)
    exact = x.double().cumsum(1)
    ours, expected = ((got.double() - exact).norm() for got in (run([x])[0], x.cumsum(1)))
    assert ours <= 2 * expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_scans_of_special_values(dtype: torch.dtype) -> None:
    inf, nan, most = float("inf"), float("nan"), torch.finfo(dtype).max / 8
    rows = [[most, most, -most, -most], [inf, 1, -1, 2], [1, -inf, inf, 3], [nan, 0, 1, inf], [-0.0, -0.0, 0.0, -0.0]]
    x = torch.tensor([[*row, *([0.0] * 20), *row] for row in rows], dtype=dtype)
    check(lambda x: (x.cumsum(-1), torch.signbit(x.cumsum(-1))), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(3, 33), (33, 3), (4, 40), (20, 70)])
def test_extremes_of_zeros_are_those_at_the_index(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = torch.zeros(shape, dtype=dtype).copysign(torch.randn(shape))
    check(lambda x: [torch.signbit(f(x, dim).values) for f in (torch.max, torch.min) for dim in (0, 1)], x)


def test_gradients_of_scans() -> None:
    def gradient(x: torch.Tensor, g: torch.Tensor) -> Any:
        return g.flip(1).cumsum(1).flip(1) * x

    check(gradient, torch.randn(20, 300), torch.randn(20, 300))
