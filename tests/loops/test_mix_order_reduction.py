"""Mix-order reductions: which loops are joined, the resulting kernels, and values equal to eager's."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

import compiler_core
from compiler_core.codegen.build import compilers as build
from compiler_core.codegen.cpp import printer as cpp
from compiler_core.errors import CompilerBug
from compiler_core.loops import ir
from compiler_core.loops.fuse import program_passes
from compiler_core.loops.fuse.program_passes import fuse_horizontally, fuse_mix_order_reductions
from compiler_core.loops.fuse.rewriter import FusionRequests, FusionResult
from compiler_core.loops.fuse.rules import fuse
from compiler_core.loops.lower import lower
from compiler_core.loops.schedule.block_sizes import DEFAULT_RULES, choose_blocks, shape_for_triton
from compiler_core.loops.schedule.gpu import blocks_of, schedule
from compiler_core.loops.schedule.splitting import split_passes, split_reductions
from compiler_core.records import Record
from compiler_core.tools.timing.autotune import candidate_blocks
from tests.cases.kernel_programs import check, trace
from tests.sampling import pairs

pytestmark = pytest.mark.slow


def joined(program: Callable[..., Any], *inputs: torch.Tensor) -> FusionResult:
    done = fuse_mix_order_reductions(
        fuse(lower(trace(program, *inputs), "forward", {"cpu": "triton"})), FusionRequests()
    )
    for step in done.program.steps:
        if isinstance(step, ir.Loops):
            ir.check(step)
    return done


def mix_order_kernels(done: FusionResult) -> list[ir.Loops]:
    return [s for s in done.program.steps if isinstance(s, ir.Loops) and s.column_stores]


def test_the_gradient_of_a_norm_reads_its_inputs_once() -> None:
    def gradient(x: torch.Tensor, w: torch.Tensor, g: torch.Tensor) -> Any:
        mean, rstd = x.mean(1, keepdim=True), torch.rsqrt(x.var(1, keepdim=True) + 1e-6)
        return torch.ops.aten.native_layer_norm_backward(g, x, [96], mean, rstd, w, w, [True, True, True])

    done = joined(gradient, torch.randn(512, 96), torch.randn(96), torch.randn(512, 96))
    (kernel,) = mix_order_kernels(done)
    assert (kernel.outer, kernel.inner, len(kernel.column_stores)) == ((64, 8), (96,), 2)
    readers = [s for s in done.program.steps if isinstance(s, ir.Loops) and "g_1" in s.reads]
    assert readers == [kernel]
    (note,) = [r for r in done.rewrites if r.rule == "columns"]
    assert note.bytes_saved >= 512 * 96 * 4
    assert note in done.rewrites_by_loops[kernel.name]
    assert "store sum_" in kernel.text()
    assert " = sum over i of " in kernel.text()


@pytest.mark.parametrize("size", [(130_771, 768), (31_250, 2048)])
def test_a_mix_order_kernel_is_not_split_again(size: tuple[int, int]) -> None:
    """Its column sums need all rows of a part, so neither its rows nor its sweeps become separate kernels."""
    with FakeTensorMode():
        done = joined(lambda x, w: ((x * w).softmax(1), x.sum(0)), torch.empty(size), torch.empty(size[1]))
    (kernel,) = mix_order_kernels(done)
    assert split_reductions(split_passes(done.program)).steps == done.program.steps
    assert kernel.outer[0] < DEFAULT_RULES.enough_programs


def test_a_mix_order_kernel_with_any_blocks_has_a_schedule() -> None:
    """Autotuning tries blocks of one row, too, over which a program's loop takes steps of 1."""
    done = joined(lambda x, g: (x.softmax(1), (x * g).sum(0)), torch.randn(512, 96), torch.randn(512, 96))
    loops = shape_for_triton(mix_order_kernels(done)[0])
    tried = {replace(blocks, i=i) for blocks in candidate_blocks(loops) for i in (1, blocks.i)}
    assert {blocks.i for blocks in tried} > {1}
    for blocks in tried:
        assert blocks_of(schedule(loops, blocks).nest) == blocks


@pytest.mark.parametrize("length", [3, 700, 5000])
def test_a_mix_order_kernel_processes_whole_rows(length: int) -> None:
    """This holds for any strides: the column sums are complete after one sweep over a part."""
    for strides in ((length * 16, length, 1), (16, 1, 4096)):
        load = ir.Load("x", torch.float32, "x", ir.Address(strides))
        over = ir.Store("s", ir.Address((length, 0, 1)), "x", reduction="sum")
        assert choose_blocks(ir.Loops("walk", (256, 16), (length,), (load, over))).j >= length


@pytest.mark.parametrize("strides", [(0, 0, 0, 1), (16, 4, 4, 1), (0, 4, 0, 1), (4, 0, 4, 1)])
def test_a_column_store_is_over_the_last_outer_indices(strides: tuple[int, ...]) -> None:
    load = ir.Load("x", torch.float32, "x", ir.Address((64, 16, 4, 1)))
    for given, match in ((strides, "a store over an index"), ((16, 4, 0, 1), ""), ((4, 0, 0, 1), "")):
        loops = ir.Loops("walk", (4, 4, 4), (4,), (load, ir.Store("s", ir.Address(given), "x", reduction="sum")))
        with pytest.raises(CompilerBug, match=match) if match else contextlib.nullcontext():
            ir.check(loops)


@pytest.mark.parametrize(
    ("program", "size"),
    [
        (lambda x: (F.softmax(x, 1), x.t().sum(0)), (512, 512)),  # both over rows
        (lambda x: x.sum(1), (512, 512)),  # alone, of a square
        (lambda x: (F.softmax(x, 1), (x + 1).sum(0)), (509, 96)),  # a prime number of rows
        (lambda x: (F.softmax(x, 1) + x.sum(0), x), (512, 96)),  # the sums are needed first
        (lambda x: (F.softmax(x, 1), F.softmax(x, 0)), (512, 96)),  # the columns are gone through again
        (lambda x: (F.softmax(x, 1), x.sum(0)), (512, 20_000)),  # more sums than registers
        (lambda x: (F.softmax(x.t(), 1), x.t().sum(0)), (96, 512)),  # rows lie across memory
        (lambda x: (F.softmax(x, 1), x.sum(0)), (16 * 1009, 96)),  # 16 programs for much work
    ],
)
def test_refusals(program: Callable[..., Any], size: tuple[int, int]) -> None:
    assert not mix_order_kernels(joined(program, torch.randn(size)))


def test_columns_of_some_of_the_row_indices() -> None:
    """As for a softmax with a bias for each row of a window: rows of different windows are added, no others."""
    done = joined(lambda x: (F.softmax(x, 3), x.sum(0), x.sum((0, 1, 2))), torch.randn(512, 2, 5, 40))
    (kernel,) = mix_order_kernels(done)
    assert (kernel.outer, kernel.inner, kernel.sequential_rank) == ((32, 10, 16), (40,), 1)
    each, all_ = kernel.column_stores
    assert (each.address.strides, all_.address.strides) == ((400, 40, 0, 1), (400, 40, 0, 1))
    assert kernel.reads == ("x_1",)


def test_columns_of_rows_that_are_rearranged() -> None:
    """Rows of several indices have parts of several indices; conditions of loads do not matter."""

    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x.roll(1, 0) + y.view(16, 8, 8, 8, 96).transpose(1, 2).reshape(x.shape)
        return F.softmax(z, 1), z.sum(0)

    (kernel,) = mix_order_kernels(joined(program, torch.randn(8192, 96), torch.randn(8192, 96)))
    assert len(kernel.column_stores) == 1
    assert (kernel.outer, kernel.sequential_rank) == ((16, 8, 4, 2, 8), 2)


def test_small_reductions_of_the_same_sizes_share_a_launch() -> None:
    apart = joined(lambda x, y: (x.sum(0), y.amax(0)), torch.randn(64, 32), torch.randn(64, 32))
    assert len(apart.program.steps) == 2
    assert len(fuse_horizontally(apart, FusionRequests()).program.steps) == 1


def test_row_results_that_others_need_are_stored() -> None:
    def program(x: torch.Tensor) -> Any:
        shares = F.softmax(x, 1)
        return shares, shares.sum(0)

    (kernel,) = mix_order_kernels(joined(program, torch.randn(512, 96)))
    assert len(kernel.writes) == 2
    assert len(kernel.reads) == 1


# -- on the CPU --------------------------------------------------------------------------------


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w


CPU_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
CPU_PROGRAMS: dict[str, Callable[..., Any]] = {
    "layer norm": lambda x, w, b: F.layer_norm(F.gelu(x), w.shape, w, b),
    "rms norm": lambda x, w, b: (rms_norm(x, w), b * 2),
    "softmax and the gradient of a bias": lambda x, w, b: torch.softmax(x * w + b, -1),
    "log softmax": lambda x, w, b: F.log_softmax(x + b, -1) * w,
    "of what both read": lambda x, w, b: (x.softmax(-1) * w, x.amin(0) * b, x.amax(0), x.sum(0), x.sum(1)),
}


def outcome(program: Callable[..., Any], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Returns values and gradients."""
    leaves = [t.clone().requires_grad_() for t in inputs]
    result = program(*leaves)
    values = result if isinstance(result, tuple) else (result,)
    return [*values, *torch.autograd.grad([v.sin().sum() for v in values], leaves)]


def matrix_and_vectors(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.randn(size, dtype=dtype) for size in ((rows, columns), (columns,), (columns,))]


def rules_of(record: Record) -> set[str]:
    return {rule for c in record.compiles for f in c.fusions for rule in f.kind.split(" + ")}


def assert_no_worse(got: list[torch.Tensor], eager: list[torch.Tensor], exact: list[torch.Tensor]) -> None:
    """Checks that errors are at most twice eager's, with NaN and infinities at the same indices."""
    for ours, expected, right in zip(got, eager, exact, strict=True):
        assert ours.dtype == expected.dtype
        assert torch.equal(ours.isnan(), expected.isnan())
        assert torch.equal(ours.isinf(), expected.isinf())
        error, allowed = (torch.nan_to_num(t.double() - right, 0, 0, 0).norm() for t in (ours, expected))
        assert error <= 2 * allowed + 1e-7 * torch.nan_to_num(right, 0, 0, 0).norm()


@pytest.mark.parametrize(("name", "dtype"), pairs(CPU_PROGRAMS, CPU_DTYPES, 4))
def test_on_the_cpu_values_and_gradients(name: str, dtype: torch.dtype) -> None:
    program, inputs = CPU_PROGRAMS[name], matrix_and_vectors(520, 260, dtype)
    with compiler_core.record() as record:
        fast = compiler_core.compile(program, strict=True)
        for value in (0.5, float("nan"), float("inf")):
            inputs[0][3, 5] = value
            got, again = outcome(fast, inputs), outcome(fast, inputs)
            for first, second in zip(got, again, strict=True):
                torch.testing.assert_close(first, second, rtol=0, atol=0, equal_nan=True)
            assert_no_worse(got, outcome(program, inputs), outcome(program, [t.double() for t in inputs]))
    assert len(record.compiles) == 1
    assert "columns" in rules_of(record)


@pytest.mark.usefixtures("settings")
def test_on_the_cpu_sums_are_the_same_with_any_number_of_threads() -> None:
    program, inputs = CPU_PROGRAMS["layer norm"], matrix_and_vectors(512, 512)
    found = []
    for threads in (1, 2, 3, 1):
        torch.set_num_threads(threads)
        found.append(outcome(compiler_core.compile(program, strict=True), inputs))
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


def test_on_the_cpu_the_sums_of_a_row_stay_in_registers(tmp_path: Path) -> None:
    program = fuse(lower(trace(lambda x: (x.sum(1), x.sum(0)), torch.randn(512, 512)), "forward"))
    text, assembly = tmp_path / "kernel.cpp", tmp_path / "kernel.s"
    text.write_text(cpp.generate(fuse_mix_order_reductions(program, FusionRequests()).program).text)
    subprocess.run(build.compile_command(build.toolchain(), text, assembly, ("-S", "-std=c++17", "-w")), check=True)
    assert "few_array" in text.read_text()
    assert not re.search(r"\bv?addps\s+-?\d*\(%r[sb]p\)", assembly.read_text())


@pytest.fixture
def _join_small_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(program_passes.CPU_LIMITS, max_parts=4, min_parts=2, min_rows=1, min_elements=0)
    monkeypatch.setattr(program_passes, "CPU_LIMITS", small)


SMALL: dict[str, Callable[..., Any]] = {
    "sums": lambda x, w: ((x * w).softmax(1), x.sum(0), (x * x).sum(0)),
    "of what is made": lambda x, w: (y := (x * w).softmax(1), y.sum(0), (y * x).amax(0)),
    "extremes and products": lambda x, w: (x - x.mean(1, keepdim=True), x.amin(0), x.amax(0), (x * 0.1 + 1).prod(0)),
    "truths": lambda x, w: (x / x.sum(1, keepdim=True), (x > w).any(0), (x > -3).all(0)),
    "whole numbers": lambda x, w: (x.softmax(1), (x * 9).to(torch.int64).sum(0), (x * 9).to(torch.int32).amax(0)),
    "running sums": lambda x, w: (x.cumsum(1) * x.sum(1, keepdim=True), (x * w).sum(0)),
    "rows that are looked up": lambda x, w: (y := x[(w[:, None] * 0).long() + torch.arange(8)][:, 3], y.softmax(1)),
    "twice through a row": lambda x, w: (
        (x - x.mean(1, keepdim=True)).square().mean(1),
        x.var(1, correction=0),
        x.sum(0),
    ),
    "after another half": lambda x, w: ((x.half() * 2).float().softmax(1), x.half().amax(0), x.bfloat16().sum(0)),
}


SIZES = [(12, 2), (272, 3), (90, 31), (64, 513), (6, 1030), (1, 40), (40, 1), (0, 7), (7, 0)]
OF_SOMETHING = (
    "extremes and products",
    "whole numbers",
    "of what is made",
    "after another half",
    "twice through a row",
)


@pytest.mark.usefixtures("_join_small_matrices")
@pytest.mark.parametrize(("name", "size"), pairs(SMALL, SIZES, 5))
def test_on_the_cpu_in_all_sizes(name: str, size: tuple[int, int]) -> None:
    program, inputs = SMALL[name], [torch.randn(size), torch.randn(size[1])]
    if 0 in size and name in OF_SOMETHING:
        pytest.skip("there is no greatest of nothing")
    if name == "rows that are looked up":
        inputs = [torch.randn(8, size[1]), torch.randn(size[0])]
    check(program, *inputs)


def test_on_the_cpu_a_square_alone() -> None:
    for size in (8, 400):
        for program in (lambda x: x.sum(0), lambda x: x.sum(1), lambda x: (x.softmax(1), x.t().sum(0))):
            assert not check(program, torch.randn(size, size)).failures


@pytest.mark.usefixtures("_join_small_matrices")
def test_on_the_cpu_small_matrices_are_joined_by_test_limits() -> None:
    for name, program in SMALL.items():
        if name != "rows that are looked up":
            done = check(program, torch.randn(90, 31), torch.randn(31))
            assert any("columns" in f.kind for f in done.fusions), name


@pytest.mark.parametrize(
    ("program", "size", "why"),
    [
        (lambda x: (x.softmax(1), x.sum(0)), (300, 20), "fewer than 8,192 elements"),
        (lambda x: (x.softmax(1), x.sum(0)), (509, 400), "509 rows cannot be divided into 16 or more parts"),
        (lambda x: (x.softmax(1), x.sum(0)), (128, 1200), "128 rows cannot be divided into 16 or more parts"),
        (lambda x: (x.softmax(1), x.sum(0)), (256, 20_000), "more than 16,384 sums"),
    ],
)
def test_on_the_cpu_refusals_have_a_reason(program: Callable[..., Any], size: tuple[int, int], why: str) -> None:
    done = check(program, torch.randn(size))
    assert len(done.kernels) == 2
    assert not any("columns" in f.kind for f in done.fusions)
    (refusal,) = done.refusals
    assert refusal.kind == "columns"
    assert why in refusal.reason


def test_on_the_cpu_symbolic_sizes_are_refused() -> None:
    with compiler_core.record() as record:
        fast = compiler_core.compile(lambda x: (x.softmax(1), x.sum(0)), dynamic=True)
        got = fast(torch.ones(512, 512))
    assert torch.equal(got[1], torch.full((512,), 512.0))
    assert {r.reason for c in record.compiles for r in c.refusals} == {"the numbers of rows and columns are symbolic"}


def test_on_the_cpu_requests_take_precedence() -> None:
    def program(x: torch.Tensor) -> Any:
        return x.softmax(1), x.sum(0)

    def kinds(*size: int, **requests: Any) -> tuple[set[str], list[str]]:
        with compiler_core.record() as record:
            compiler_core.compile(program, **requests)(torch.randn(size))
        return rules_of(record), [r.kind for c in record.compiles for r in c.refusals]

    together, refused = kinds(96, 64, force_fuse=(("div", "sum_2"),))
    assert ("columns" in together, refused) == (True, [])
    apart, refused = kinds(512, 512, keep_apart=(("div", "sum_2"),))
    assert ("columns" in apart, refused) == (False, ["asked"])


def test_on_the_cpu_lines_are_linked_and_traffic_is_counted() -> None:
    def program(x: torch.Tensor) -> Any:
        return x - x.mean(1, keepdim=True), (x * x).sum(0)

    done = check(program, torch.randn(1024, 256))
    kernel, rest = done.kernels
    part = 64 * 256 * 4
    assert (kernel.bytes_read, kernel.bytes_written) == (1024 * 256 * 4, 1024 * 256 * 4 + part)
    assert (rest.bytes_read, rest.bytes_written) == (part, 256 * 4)
    assert kernel.operations == 4 * 1024 * 256 + 4 * 1024, "two sums, a product, a difference; a division a row"
    code, loops = done.find("forward.cpp"), done.find("forward.loops")
    (squares,) = (n for n, line in enumerate(code.text.splitlines(), 1) if "_few[j0] += " in line)
    ((linked,),) = (edge.sources for edge in done.edges if edge.made == code.item(str(squares)))
    (span,) = (s for s in loops.spans if loops.item(s.key) == linked)
    assert "sum over i of mul" in loops.lines(span)


def test_a_joined_kernel_has_machine_code() -> None:
    with compiler_core.record() as record:
        compiler_core.compile(lambda x: (x.softmax(1), x.sum(0)), target="x86-64-v3")(torch.randn(512, 256))
    (compile_,) = record.compiles
    assert not compile_.failures
    assert "forward_0" in compile_.find("forward.x86-64-v3.asm").text
