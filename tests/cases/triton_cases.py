"""Programs for the Triton kernels, each compared with eager: on a GPU, or in Triton's interpreter.

    python tests/cases/triton_cases.py                         on a GPU
    TRITON_INTERPRET=1 python tests/cases/triton_cases.py      in the interpreter, on the CPU
    python tests/cases/triton_cases.py --candidate 3           with the third of autotuning's candidates for each kernel

prints a JSON object: case -> verdict.  The interpreter wants its variable before Triton is
imported, so tests start this as a process.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
import torch.fx as fx
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from compiler_core.autograd.trace import decompositions
from compiler_core.config import Options
from compiler_core.loops import ir
from compiler_core.loops.schedule.block_sizes import Blocks, shape_for_triton
from compiler_core.pipeline import graph as graph_stages
from compiler_core.records import Compile, Record
from compiler_core.tools.timing import autotune
from compiler_core.tools.timing.autotune import candidate_blocks
from tests.cases import triton_interpreter

ON_BOTH: ir.Languages = {"cpu": "triton", "cuda": "triton"}
"""The interpreter runs Triton kernels on the CPU."""
Case = tuple[Callable[..., Any], Callable[[Callable[..., torch.Tensor]], tuple[torch.Tensor, ...]]]
CASES: dict[str, Case] = {}


def case(inputs: Callable[[Callable[..., torch.Tensor]], tuple[torch.Tensor, ...]]) -> Callable[[Any], Any]:
    """Register the program below with what makes its inputs from ``rand(*size)``."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        CASES[function.__name__] = function, inputs
        return function

    return register


@case(lambda rand: (rand(37, 53), rand(53), rand(37, 53)))
def gelu_of_a_sum(x: torch.Tensor, b: torch.Tensor, y: torch.Tensor) -> Any:
    return F.gelu(x + b) * y


@case(lambda rand: (rand(8, 40), rand(3, 40)))
def layers(x: torch.Tensor, weight: torch.Tensor) -> Any:
    for row in weight:
        x = torch.softmax(x * row, -1) @ torch.eye(40, device=x.device)
    return x


@case(lambda rand: (rand(7, 1, 9), rand(5, 1), rand(1)))
def broadcast(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
    return x * y + z, (x - 0.1) * 2


@case(lambda rand: (rand(40, 30).t(), rand(30, 80)[:, ::2], rand(1).expand(30, 40)))
def strided_inputs(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
    return torch.cos(x) + y * z


@case(lambda rand: (rand(1025)[1:], rand(64, 33)[:, 1:]))
def unaligned_inputs(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x + 1, torch.softmax(y, 1), x.view(32, 32) * 2


@case(lambda rand: (rand(6, 5, 4),))
def views(x: torch.Tensor) -> Any:
    return x.permute(2, 0, 1)[1:] + 1, x[2:, :, ::2].exp(), x.flatten(1).t() * 2, torch.cat([x, x + 1], 1)


@case(lambda rand: (rand(200),))
def constants(x: torch.Tensor) -> Any:
    half = torch.full_like(x, 0.5)
    return half.sin(), half.sum(dtype=torch.float64), torch.ones_like(x, dtype=torch.bool) * 6


@case(lambda rand: (rand(3, 130), rand(130)))
def picked_by_row(x: torch.Tensor, y: torch.Tensor) -> Any:
    return y.gather(-1, x.max(1).indices), y.gather(-1, y[1:].argmax(keepdim=True))


@case(lambda rand: (rand(11, 200), rand(4, 700)))
def softmax(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.softmax(x, 1), torch.log_softmax(y, -1), torch.softmax(x, 0)


@case(lambda rand: (rand(7, 65), rand(127, 600)))
def element_put_among_results_of_rows(x: torch.Tensor, y: torch.Tensor) -> Any:
    return tuple(torch.select_scatter((t - t.mean(-1, keepdim=True)).square().mean(-1), t[0, 0], 0, 2) for t in (x, y))


@case(lambda rand: (rand(300, 4), rand(5, 3000)))
def small_whole_numbers_wrap(x: torch.Tensor, y: torch.Tensor) -> Any:
    tens = [(t * 40).to(torch.int8) for t in (x, y)]
    sums = [t.sum(-1, dtype=torch.int8).double() for t in tens]
    return *sums, *(t.to(torch.uint8).cumsum(-1, dtype=torch.uint8) for t in tens)


@case(lambda rand: (rand(5, 20000), rand(5, 20000)))
def online_softmax(x: torch.Tensor, y: torch.Tensor) -> Any:
    """Rows of infinities and NaN, rows of -inf alone, and blocks of -inf alone."""
    number = torch.arange(20000, device=x.device)
    x = x * y * 30 + torch.where(number < 9000, -torch.inf, 0.0)
    odd = torch.tensor([0.0, torch.inf, -torch.inf, torch.nan, 0.0], device=x.device)[:, None]
    x = torch.where(number == 12345, x + odd, x)
    x = torch.where(odd == -torch.inf, odd, x)
    return x.logsumexp(1), torch.softmax(x, 1), F.cross_entropy(x, number[:5] + 10000, reduction="none")


@case(lambda rand: ((rand(2, 20_000) * 4).round() / 1024,))
def softmax_of_a_running_sum(x: torch.Tensor) -> Any:
    """A running sum of exact values: the last one of a block starts the next, so the row is read a second time."""
    return torch.log_softmax(x.cumsum(1), 1)


@case(lambda rand: (rand(3, 20000),))
def running_sums_that_overflow(x: torch.Tensor) -> Any:
    number = torch.arange(20000, device=x.device)
    huge = torch.where(number % 5000 == 100, 3e38, 0.0) * torch.where(number < 12000, 1.0, -1.0)
    return (x.round() + huge).cumsum(1), (x.round().abs() + 1).cumprod(1)


@case(lambda rand: (rand(2, 20000), rand(2, 20000)))
def softmax_in_sweeps(x: torch.Tensor, y: torch.Tensor) -> Any:
    y = torch.softmax(x * y, 1)
    return y, y.sum(1)


@case(lambda rand: (rand(2, 140_000), rand(50, 3, 3000)))
def few_long_rows(x: torch.Tensor, y: torch.Tensor) -> Any:
    normed = (y - y.mean((0, 2), keepdim=True)) * torch.rsqrt(y.var((0, 2), keepdim=True) + 1e-5)
    return torch.softmax(x, 1), x.argmax(1), normed.relu(), y.var((0, 2))


@case(lambda rand: (rand(300_000) + 100, rand(8, 3, 20_000) - 10, rand(9000, 4, 8).transpose(1, 2)))
def variances(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
    """Each read once: what is far from zero loses no digits."""
    return x.var(), x.std(correction=0), *torch.var_mean(y, (0, 2)), (z - z.mean((0, 1))) / z.std((0, 1))


@case(lambda rand: (rand(50, 30, 128), rand(50, 30, 1), rand(30, 1), rand(9, 192), rand(9, 1)))
def values_of_rows(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, v: torch.Tensor, w: torch.Tensor) -> Any:
    return x * torch.rsqrt(y.abs() + 1) + z, v / (w.exp() + 1)


@case(lambda rand: (rand(3, 5, 96), rand(96), rand(96)))
def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
    return F.layer_norm(x, (96,), w, b), F.layer_norm(x, (5, 96))


@case(lambda rand: (rand(9, 128), rand(128)))
def rms_norm(x: torch.Tensor, w: torch.Tensor) -> Any:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w


@case(lambda rand: (rand(4, 6, 70), rand(300, 33) / 4))  # the partial sums of 300 numbers round by less than 2e-6
def reductions(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x.sum((0, 2)), x.amax(1), x.mean(), x.sum((1, 2), keepdim=True), y.sum(0), y.amin(0), x.var(-1), x[0].prod(1)


@case(lambda rand: (rand(40, 1500), rand(20000, 6), rand(1500)))
def reductions_in_parts(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> Any:
    error = x.exp() - w
    return (error * error).mean(), x.amax(), (y * 2).sum(0), error, y.abs().sum(0, keepdim=True) / 3


@case(lambda rand: (with_nan(rand(40, 30)), rand(2, 20000), integers(rand(20, 31)), rand(12, 6).bfloat16()))
def scans(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, h: torch.Tensor) -> Any:
    floats = (x * 2).cumsum(1) + 1, x[20:].cumsum(0), y.abs().cumsum(1), y.softmax(1).cumsum(1) - 1, h.cumsum(-1)
    return (
        *floats,
        z.cumsum(0),
        (z > 3).cumsum(1),
        x[20:].cos().cumprod(1),
        y.abs().cumsum(1).amax(1),
        h.float().cumsum(0),
    )


@case(lambda rand: (with_nan(rand(40, 30)), rand(3, 20000), integers(rand(20, 31)), rand(12, 6).bfloat16()))
def places(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, h: torch.Tensor) -> Any:
    floats = x.argmax(1), x.argmin(0), x.argmax(), y.argmax(1), x.abs().argmin(1, keepdim=True), h.argmax(-1)
    return *floats, *x.max(1), *x.min(0), *z.max(1), z.argmin(0), x.amax(1), (h * 2).t().argmax()


@case(lambda rand: (rand(180, 96), rand(180, 96), rand(96), rand(128, 1500), with_nan(rand(160, 1100)).bfloat16()))
def rows_and_columns(x: torch.Tensor, g: torch.Tensor, w: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
    normed = x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-6)
    gradient = (g * w * normed).sum(1, keepdim=True) * normed
    shares = torch.softmax(y, 1)
    extremes = z - z.amax(1, keepdim=True), (z * 2).amax(0), (z > 2).any(0)
    return gradient, (g * normed).sum(0), g.sum(0).bfloat16(), shares, shares.sum(0) / 128, *extremes


@case(lambda rand: (rand(50, 20), rand(50, 20)))
def comparisons(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x > y, torch.where(x < 0, y, 0.25), (x > 0) & ~(y > 0), x.clamp(-0.5, 0.5), x.sign(), (x == y) | (x != x)


@case(lambda rand: (with_nan(rand(40, 30)), rand(40, 30)))
def nan(x: torch.Tensor, y: torch.Tensor) -> Any:
    pointwise = torch.relu(x), torch.maximum(x, y), torch.minimum(y, x), x.clamp(min=0.0), x.isnan(), x.isinf()
    return *pointwise, x.amax(1), x.amin(0), x.sum(0), x.sign(), x > y, x.nan_to_num()


@case(lambda rand: (rand(20, 33).bfloat16(), rand(33).bfloat16(), rand(20, 33).half()))
def half_types(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
    return x * y + 1, F.gelu(x), torch.softmax(z, -1), x.sum(1), z.float() + x, (z * 0.1).bfloat16()


@case(lambda rand: (rand(30, 17).double(), rand(17).double()))
def double(x: torch.Tensor, y: torch.Tensor) -> Any:
    x = x + 0.1
    of_float = (x * 0 + 0.1).float().double() > 0.1
    others = torch.softmax(x, 1), x.float(), x.sqrt(), x.amax(), of_float
    return x / y, torch.where(x > 0, x, 0.3), x.clamp(max=0.1), *others


@case(lambda rand: (integers(rand(20, 31)), integers(rand(20, 31)).int(), integers(rand(31)).to(torch.int8)))
def whole_numbers(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
    quotients = x // 7, x // -7, x % 7, x % -7, torch.div(x, 3, rounding_mode="trunc"), torch.fmod(x, -5)
    others = x + y, y * 3 - z, x & 12, ~y, x << 2, y >> 1, x.sum(), z.amax(), x.abs(), -z, x.float() / 3, x / 7
    return *quotients, *others


@case(lambda rand: ((rand(20, 31) > 0), rand(20, 31)))
def booleans(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x.any(1), x.all(0), x.sum(), x.to(torch.float32) * y, ~x, y.bool(), x ^ (y > 0), (y > 9).any(), x.amax(0)


@case(lambda rand: (rand(700) * 9, rand(700) * 3))
def float_division(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (
        x // y,
        x % y,
        torch.fmod(x, y),
        x // 0.7,
        x % -0.7,
        torch.div(x, y, rounding_mode="trunc"),
        1 / x,
        1 / (x * 0).neg(),
    )


@case(lambda rand: (rand(600), rand(600).abs() + 0.1))
def functions(x: torch.Tensor, y: torch.Tensor) -> Any:
    plain = x.exp(), y.log(), y.sqrt(), y.rsqrt(), x.sin(), x.cos(), torch.erf(x), x.exp2(), y.log2(), x.sigmoid()
    library = x.tanh(), x.expm1(), y.log1p(), y.log10(), x.tan(), x.atan(), torch.erfc(x), x.sinh(), x.cosh(), x.asinh()
    rounded = x.floor(), x.ceil(), x.trunc(), (x * 3).round(), x.frac(), torch.copysign(x, y), torch.copysign(y, -1)
    return *plain, *library, *rounded, y**2.5, y**x, 2.0**x, x**3, torch.atan2(x, y), F.silu(x), F.softplus(x), x.neg()


@case(lambda rand: (rand(600).clamp(-0.9, 0.9), rand(64)))
def made_from_nothing(x: torch.Tensor, y: torch.Tensor) -> Any:
    results = torch.arange(64, device=x.device) * y, torch.full((3, 5), 0.1, device=x.device) + y[0]
    return *results, x.asin(), x.acos(), x.atanh(), torch.ones_like(y), torch.tril(y.view(8, 8))


@case(lambda rand: (rand(()), rand(1, 1), rand(5)))
def single_elements(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
    return x + 1, y.sum(), x * z, z.sum() + x, torch.softmax(z, 0), z.amax() - z


@case(lambda rand: (rand(50, 70), integers(rand(40, 3)) % 50, integers(rand(50, 20)) % 70))
def reads_at_indices(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> Any:
    rows = F.embedding(i, x) * 2, x[i, i - 50], x.index_select(0, i[:, 0].to(torch.int32)).bfloat16()
    return *rows, x.gather(1, j).sum(1), torch.softmax((x * 2)[i[:, 1]], -1), x[:, i[:, 2]].amax(0), x.flip(0, 1) + 1


@case(lambda rand: (rand(50, 700), integers(rand(50)) % 700))
def picks_one_of_a_row(x: torch.Tensor, i: torch.Tensor) -> Any:
    return F.cross_entropy(x, i), F.cross_entropy(x * 2, i, reduction="none"), x.flip(1).sum(0)


@case(lambda rand: (rand(20, 48), rand(20, 16), rand(33)))
def parts(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
    turned = x * y.repeat(1, 3).cos() + torch.cat([-x[:, 24:], x[:, :24]], 1) * x.sin()
    joined = torch.cat([x, y.exp(), z[:20, None]], 1) * 2, torch.cat([x.relu(), x + 1]), torch.stack([x, x * 2], 1)
    reduced = torch.softmax(torch.cat([x, y * 3], 1), 1), torch.cat([x, x * 3]).sum(0), torch.cat([z, z]).sum()
    wide = (
        torch.cat([z.expand(5, 33), x[:5, :1]], 1) + 1,
        torch.cat([z[:, None].expand(33, 4), y[:1, :1].expand(33, 1)], 1),
    )
    padded = F.pad(x * 2, (1, 2, 0, 3), value=2.0) + 1, F.pad(x, (-1, 2, 1, -2)), x.roll(5, 1).cos(), x.roll(-3, 0)
    written = torch.slice_scatter(x, y * 2, 1, 16, 32), torch.select_scatter(x, z[:20], 1, 7).relu()
    return turned, *joined, *reduced, *wide, *padded, *written


@case(lambda rand: (with_nan(rand(40, 31 * 32)).view(5, 8, 31, 32), rand(2, 16, 12, 12).half()))
def pooling(x: torch.Tensor, y: torch.Tensor) -> Any:
    rows = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    padded = [F.max_pool2d(t, 3, 2, 1, return_indices=True) for t in (x, rows)]
    others = F.max_pool2d(x, (2, 3), ceil_mode=True), F.max_pool2d(rows, 2) + 1, F.max_pool2d(x, 2, 1, 0, 3)
    means = F.avg_pool2d(rows, 3, 2, 1), F.avg_pool2d(x, 2, divisor_override=3), F.adaptive_avg_pool2d(y, (4, 3))
    return *padded[0], *padded[1], *others, *means, F.max_pool2d(y[0], 3, 2, 1), F.avg_pool2d(y.relu(), 5, 1, 2)


@case(lambda rand: (rand(20, 70), integers(rand(50)) % 20, integers(rand(20, 90)) % 70, rand(50, 70)))
def writes_at_indices(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor, s: torch.Tensor) -> Any:
    added = x.index_add(0, i, s * 2), x.scatter_add(1, j, j.float()), x.index_put((i, i), s[:, 0], accumulate=True)
    backward = torch.ops.aten.embedding_dense_backward(s.bfloat16(), i, 20, 3, False)
    of_integers = j.index_put((i - 20,), i[:, None] * 2, accumulate=True), i.scatter_add(0, j[:, 0] % 50, j[:, 1])
    put = x.index_put((i,), x[0]) + 1, x.scatter(1, (j[:, :1] + torch.arange(9, device=j.device)) % 70, 0.5)
    return *added, backward, *of_integers, *put, x.index_put((x > 0,), x[0, 0])


def with_nan(x: torch.Tensor) -> torch.Tensor:
    x[3, 4], x[5, 6], x[7, 8], x[9, 10] = float("nan"), float("inf"), float("-inf"), -0.0
    return x


def integers(x: torch.Tensor) -> torch.Tensor:
    return (x * 20).to(torch.int64)


def inputs_of(name: str, device: str) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(20261121)
    result = CASES[name][1](lambda *size: torch.randn(*size, generator=generator))
    return tuple(t.to(device) for t in result)


def graph_of(name: str, inputs: tuple[torch.Tensor, ...]) -> fx.GraphModule:
    """The case as a functional graph of aten operations with flat outputs."""

    def flat(*args: torch.Tensor) -> list[torch.Tensor]:
        out = CASES[name][0](*args)
        return list(out) if isinstance(out, tuple) else [out]

    return make_fx(flat, decomposition_table=decompositions.decomposition_table(), tracing_mode="fake")(*inputs)


def new_compile() -> Compile:
    record = Record()
    return record.compile(record.frame("case", "triton_cases.py", 1, "root"))


def verdict(name: str, device: str) -> str:
    """``ok``, or how the kernels' results differ from eager's."""
    inputs = inputs_of(name, device)
    gm = graph_of(name, inputs)
    try:
        run = graph_stages.compile_kernels(gm, "forward", new_compile(), Options(tune=True), ON_BOTH)()
        results = run([*inputs])
    except Exception:
        return traceback.format_exc()
    expected = gm(*inputs)
    for at, (got, want) in enumerate(zip(results, expected, strict=True)):
        if (got.shape, got.stride(), got.dtype) != (want.shape, want.stride(), want.dtype):
            return f"output {at}: {got.shape} {got.stride()} {got.dtype} for {want.shape} {want.stride()} {want.dtype}"
        # a program compiled as a whole rounds fewer times than one run operation by operation
        tight = {torch.float32: 2e-6, torch.float64: 1e-12, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}
        tolerance = tight.get(want.dtype, 0)
        try:
            torch.testing.assert_close(got, want, rtol=tolerance * 4, atol=tolerance, equal_nan=True)
        except AssertionError as error:
            return f"output {at}: {error}"
    return "ok"


def load_outside() -> str:
    """Returns the interpreter's verdict on a kernel that reads one element too many."""
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator]
    def kernel(source: Any, target: Any, size: tl.constexpr) -> None:
        places = tl.arange(0, size)
        tl.store(target + places, tl.load(source + places))

    x = torch.ones(16)
    try:
        kernel[(1,)](x[:15].clone(), x, 16)
    except Exception as error:
        return str(error)
    return "ok"


def absent_gradient() -> str:
    """``ok``, if kernels take a gradient whose flag is False for zeros, and do not read it."""

    def backward(saved: torch.Tensor, tangents_1: torch.Tensor, tangents_2: torch.Tensor) -> list[torch.Tensor]:
        total = tangents_1 * saved + tangents_2
        return [total.cos(), total.sum(1), tangents_2.t() * 2]

    saved, first, second = (torch.randn(70, 5) for _ in range(3))
    gm = make_fx(backward, tracing_mode="fake")(saved, first, second)
    for node, name in zip(gm.graph.find_nodes(op="placeholder"), ("saved", "tangents_1", "tangents_2"), strict=True):
        node._rename(name)
        last = node
    flags = torch.tensor(False), torch.tensor(True)
    with gm.graph.inserting_after(last):
        gm.graph.placeholder("given_2").meta["val"] = last.meta["val"].new_empty((), dtype=torch.bool)
    run = graph_stages.compile_kernels(gm, "backward", new_compile(), Options(), ON_BOTH)()
    for flag, given, value in ((flags[1], second, second), (flags[0], flags[0], torch.zeros(70, 5))):
        found = run([saved, first, given, flag])
        for got, expected in zip(found, backward(saved, first, value), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    executable = run.executable  # type: ignore[attr-defined]
    assert executable.optional == {"tangents_2": "given_2"}
    assert "torch.tensor(True, device='cpu'),  # given_2" in executable.text
    return "ok"


def choose(number: int) -> None:
    """Have the kernels made with the candidate of this number, or the last one."""

    def chosen(program: ir.Program, *_: object) -> dict[str, Blocks]:
        loops = [step for step in program.steps if isinstance(step, ir.Loops)]
        return {each.name: (candidate_blocks(shape_for_triton(each))[: number + 1])[-1] for each in loops}

    patch.object(autotune, "tune", chosen).start()


if __name__ == "__main__":
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if interpreted:
        triton_interpreter.extend()
    where = "cpu" if interpreted else "cuda"
    options = argparse.ArgumentParser()
    options.add_argument("--candidate", type=int, default=0, help="0: the usual blocks")
    options.add_argument("names", nargs="*", help="all, if none is given")
    given = options.parse_args()
    choose(given.candidate)
    others = {"load_outside": load_outside, "absent_gradient": absent_gradient}
    names = given.names or [*CASES, *(others if interpreted else [])]
    verdicts = {name: others[name]() if name in others else verdict(name, where) for name in names}
    json.dump(verdicts, sys.stdout, indent=1)
