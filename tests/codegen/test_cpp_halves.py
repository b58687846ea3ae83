"""Tests of half types in C++ kernels: bits equal eager mode's, for every half and for floats near each of them."""

from __future__ import annotations

import itertools
import platform
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import compiler_core
from compiler_core.codegen.build import compilers as build
from compiler_core.codegen.cpp import printer as cpp
from compiler_core.loops.fuse.rules import fuse
from compiler_core.loops.lower import lower
from tests.cases.kernel_programs import assert_same, compiled, trace
from tests.sampling import always, pairs

HALVES = (torch.bfloat16, torch.float16)
Program = Callable[[torch.Tensor], torch.Tensor]


def every(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)


def same_bits(program: Program, x: torch.Tensor) -> None:
    """Compares bits, including the sign of zero; NaN equals any NaN."""
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


@pytest.mark.parametrize(
    ("dtype", "program"),
    pairs(HALVES, [lambda x: x + x, lambda x: x * x - 1, lambda x: x.abs().float(), lambda x: -x], 2),
)
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


@pytest.mark.parametrize(("dtype", "length"), pairs(HALVES, (1, 15, 16, 127, 128, 129, 1000), 2))
def test_rows_and_columns_of_any_length(dtype: torch.dtype, length: int) -> None:
    x = torch.randn(40, length).to(dtype)

    def sums(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.softmax(-1), x.float().sum(0), (x * 2).amax(0), x.amax(-1), x.cumsum(-1), (x + 1).softmax(0) * x

    for ours, expected in zip(compiled(sums, x)[0]([x]), sums(x), strict=True):
        assert_same(ours, expected)


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


@pytest.mark.parametrize(("dtype", "shape"), pairs(HALVES, [(5, 7), (3, 129), (64, 31), (2, 1000)], 2))
def test_chains_that_are_rounded_on_the_way(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    def program(x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, ...]:
        product = x * y
        kept = torch.where(mask & (product > x), product, y + x) * mask
        whole = (x[:, 1:] + y[:, :-1]).clamp(-9, 9).to(torch.int32).to(dtype) * y[:, 1:]
        sums = (product.nan_to_num(0, 9, -9) * 2).clamp(-1, 1).round().sum(1, keepdim=True)
        return product + y, product.float() + 1, kept, x[:, at] * 2 + 1 - y, whole, sums - product, (x + y).t() * 2

    x, y = (torch.randn(shape).mul(300).to(dtype) for _ in range(2))  # products overflow float16
    x.view(-1)[::13], x.view(-1)[5::17], y.view(-1)[3::11] = float("inf"), float("nan"), 1e-7
    args = [x, y, torch.rand(shape) > 0.5, torch.randint(shape[1], (shape[1],))]
    run, _ = compiled(program, *args)
    for found, expected in zip(run(args), program(*args), strict=True):
        assert torch.equal(found.nan_to_num(7), expected.nan_to_num(7))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the names of processors are those of x86")
@pytest.mark.parametrize("processor", ["haswell", "skylake-avx512", "rocketlake", "sapphirerapids", "znver3"])
def test_float16_stays_in_registers_between_a_rounding_and_the_next(processor: str, tmp_path: Path) -> None:
    x = torch.randn(64, 64).half()
    program = fuse(lower(trace(lambda x: (x + 1) * x - 2, x), "forward")).program
    kernel, assembly = tmp_path / "kernel.cpp", tmp_path / "kernel.s"
    kernel.write_text(cpp.generate(program).text)
    tools = build.toolchain()
    command = build.compile_command(tools, kernel, assembly, ("-S", "-w", "-std=c++17", f"-march={processor}"))
    if subprocess.run(command, check=False, stderr=subprocess.PIPE).returncode:
        pytest.skip(f"{tools.version} does not know this processor")
    stores = re.findall(r"vmov[au]p[sd]\s+%[xyz]mm\d+, .*\((?:%rsp|%rbp)", assembly.read_text())
    assert not stores


MIXED: dict[str, Callable[..., torch.Tensor]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "pow": lambda x, y: x.abs() ** y,
    "fmod": lambda x, y: torch.fmod(x, y),
    "remainder": lambda x, y: x % y,
    "comparison": lambda x, y: x > y,
}
OTHERS = [
    torch.tensor(3.3),
    torch.tensor(0.7, dtype=torch.float64),
    torch.tensor(690_000),
    torch.tensor(1e-9),
    3.3,
    0.7,
]
IN_TURNS = list(zip(itertools.cycle(HALVES), MIXED, strict=False))[::3]


@pytest.mark.parametrize(("dtype", "name"), always(itertools.product(HALVES, MIXED), lambda case: case in IN_TURNS))
def test_with_what_has_another_type_and_no_dimensions(name: str, dtype: torch.dtype) -> None:
    """Eager mode rounds a Python number to the half type, except as a factor or divisor."""
    x = torch.randn(1000).to(dtype)
    for other in OTHERS:
        for program in (MIXED[name], lambda x, y: MIXED[name](y, x)):
            if isinstance(other, float) and program is not MIXED[name] and name in ("div", "fmod", "pow"):
                continue  # division of a number is a product with a reciprocal; the others take no number
            got, want = compiler_core.compile(program, backend="cpp")(x, other), program(x, other)
            assert got.dtype == want.dtype
            torch.testing.assert_close(got, want, rtol=0 if name != "pow" else 1e-2, atol=0, equal_nan=True)
