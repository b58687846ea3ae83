"""Tests of Triton kernels: their source, and their results in Triton's interpreter."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import compiler_core
from compiler_core.codegen.source import KernelSource
from compiler_core.codegen.triton import module as triton_module
from compiler_core.codegen.triton import printer as triton
from compiler_core.codegen.triton import toolchain
from compiler_core.codegen.triton.ops import literal
from compiler_core.config import Options
from compiler_core.errors import BuildError
from compiler_core.loops import ir
from compiler_core.loops.fuse.program_passes import fuse_mix_order_reductions
from compiler_core.loops.fuse.rewriter import FusionRequests
from compiler_core.loops.fuse.rules import fuse
from compiler_core.loops.ir import Address, Compute, Literal, Load, Loops, Reduce, Store
from compiler_core.loops.lower import lower
from compiler_core.loops.schedule.block_sizes import choose_blocks, shape_for_triton
from compiler_core.loops.schedule.splitting import split_passes, split_reductions
from compiler_core.pipeline import graph as graph_stages
from compiler_core.support.size_expr import Int, symbol
from compiler_core.tools.machine_code import compiled_forms
from tests.cases import triton_cases
from tests.cases.interpreter import verdicts_of
from tests.sampling import sample

pytestmark = pytest.mark.slow

f32 = torch.float32


@pytest.fixture(scope="module")
def verdicts(request: pytest.FixtureRequest) -> dict[str, str]:
    """The verdicts on the cases that are tested, run in the interpreter in one process."""
    tests = [item for item in request.session.items if isinstance(item, pytest.Function)]
    tested = [str(item.callspec.params["name"]) for item in tests if item.function is test_same_values_as_eager]
    return verdicts_of(triton_cases, *tested, "load_outside", "absent_gradient")


@pytest.mark.parametrize("name", sample(triton_cases.CASES, 5))
def test_same_values_as_eager(name: str, verdicts: dict[str, str]) -> None:
    assert verdicts[name] == "ok"


def test_a_gradient_that_is_absent_is_not_read(verdicts: dict[str, str]) -> None:
    assert verdicts["absent_gradient"] == "ok"


def test_an_access_outside_of_tensors_is_found(verdicts: dict[str, str]) -> None:
    assert "outside the memory of the kernel's tensors" in verdicts["load_outside"]


@pytest.mark.parametrize("name", sample(triton_cases.CASES, 9))
def test_compiles_for_a_gpu_that_is_not_here(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for kernel in triton_module.load(code_of(name).text).values():
        compiled = triton_module.compile_kernel(kernel, compiled_forms.triton_target("sm_90"))
        assert f".entry {kernel.function.__name__}(" in compiled.asm["ptx"]


def test_minimum_and_maximum_let_nan_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter always propagates NaN; hardware only if the kernel requests it."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    result = triton_module.load(code_of("nan").text).values()
    ptx = "".join(triton_module.compile_kernel(k, compiled_forms.triton_target("sm_90")).asm["ptx"] for k in result)
    assert "max.NaN.f32" in ptx
    assert "min.NaN.f32" in ptx
    assert not re.search(r"\b(max|min)\.(ftz\.)?f32", ptx)


def code_of(name: str) -> KernelSource:
    inputs = triton_cases.inputs_of(name, "cpu")
    lowered = lower(triton_cases.graph_of(name, inputs), "forward", triton_cases.ON_BOTH)
    program = fuse_mix_order_reductions(fuse(lowered), FusionRequests()).program
    return triton.generate(split_reductions(split_passes(program)))


def softmax(rows: int, columns: int) -> Loops:
    row = Address((columns, 1))
    body = (
        Load("x", f32, "x", row),
        Reduce("amax", f32, "max", "x"),
        Compute("v0", f32, "sub", ("x", "amax")),
        Compute("exp", f32, "exp", ("v0",)),
        Reduce("sum_1", f32, "sum", "exp"),
        Compute("div", f32, "div", ("exp", "sum_1")),
        Store("buf0", row, "div"),
    )
    return Loops("softmax", (rows,), (columns,), body)


def buffer(name: str) -> ir.Buffer:
    return ir.Buffer(name, f32, (8,), (1,), torch.device("cuda", 0), "input")


def generate(*loops: Loops) -> KernelSource:
    names = dict.fromkeys(name for step in loops for name in step.arguments)
    buffers = {name: buffer(name) for name in names}
    for step in loops:
        ir.check(step)
    return triton.generate(ir.Program("forward", buffers, (), loops, ()))


def printed(code: KernelSource, statement: int) -> list[str]:
    """Returns the lines that were printed from a statement."""
    text = code.text.splitlines()
    return [text[line.number - 1].strip() for line in code.lines if statement in line.statements]


def test_a_row_that_fits_is_read_once() -> None:
    code = generate(softmax(32, 128))
    assert printed(code, 0) == ["x = tl.load(x_ptr + 128*i0 + j0)"]
    assert printed(code, 1) == ["amax = tl.reduce(x, 1, _maximum, keep_dims=True)"]
    assert printed(code, 6) == ["tl.store(buf0_ptr + 128*i0 + j0, div)"]
    assert "mask" not in code.text


def test_a_row_that_does_not_fit_is_swept() -> None:
    code = generate(softmax(3, 100_000))
    assert len(printed(code, 0)) == 2, "one load for maximum and sum, which take one sweep, and one for the results"
    assert len(printed(code, 6)) == 1
    start, step, end = printed(code, 4)
    assert start.startswith("sum_1_acc = tl.full([BLOCK_J], 0.0")
    assert step.startswith("sum_1_acc = sum_1_acc * _exp_below(amax_acc, amax_next)")
    assert end == "sum_1 = tl.sum(sum_1_acc * libdevice.exp(amax_acc - amax), 0)"


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16])
def test_denormal_numbers_are_kept_and_casts_wrap_around(
    dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    index = Address((1,))
    body = (
        *(Load("x", f32, "x", index), Compute("y", f32, "ceil", ("x",)), Compute("z", dtype, "cast", ("y",))),
        Store("out", index, "z"),
    )
    buffers = {"x": buffer("x"), "out": dataclasses.replace(buffer("out"), dtype=dtype)}
    code = triton.generate(ir.Program("forward", buffers, (), (Loops("round_up", (64,), (), body),), ()))
    (kernel,) = triton_module.load(code.text).values()
    ptx = triton_module.compile_kernel(kernel, compiled_forms.triton_target("sm_90")).asm["ptx"]
    assert ".ftz" not in ptx
    assert "cvt.rzi.s32.f32" in ptx


def test_squared_deviations_of_a_number_are_cut_in_parts() -> None:
    number = Literal(-1.5, f32)
    body = (
        *(Reduce("total", f32, "sum", number), Compute("mean", f32, "div", ("total", Literal(2.0**22, f32)))),
        *(Compute("distance", f32, "sub", (number, "mean")), Compute("square", f32, "mul", ("distance", "distance"))),
        *(Reduce("squares", f32, "sum", "square"), Store("out", Address((0,)), "squares")),
    )
    program = ir.Program("forward", {"out": buffer("out")}, (), (), ())
    steps = split_reductions(program.with_steps([Loops("variance", (), (2**22,), body)])).steps
    assert len(steps) == 2
    for loops in steps:
        assert isinstance(loops, Loops)
        ir.check(loops)


@pytest.mark.parametrize("inner", [(), (5,)])
def test_a_number_is_a_position_where_a_mask_holds(
    inner: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pointers are one, and the mask is a block."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    index = Address((1,) * (1 + len(inner)))
    place = ir.Position("p", ir.Literal(0, torch.int64), 1, (), (ir.Range(index, 1),))
    load = Load("x", f32, "x", Address((0,) * (1 + len(inner)), 0, (("p", 1),)), (), (ir.Range(index, 1),))
    code = generate(Loops("take", (3,), inner, (place, load, Store("out", index, "x"))))
    (kernel,) = triton_module.load(code.text).values()
    assert "ld.global" in triton_module.compile_kernel(kernel, compiled_forms.triton_target("sm_90")).asm["ptx"]


def test_masks_only_where_blocks_do_not_divide() -> None:
    code = generate(softmax(33, 100))
    assert "mask=i_mask & j_mask" in code.text
    assert 'tl.where(j_mask, x, float("-inf"))' in code.text
    assert "mask" not in generate(softmax(4096, 4096)).text


@pytest.mark.parametrize("size", [100_003, symbol("n", least=2, hint=1000)])
def test_accesses_are_wide_though_the_size_is_odd(size: Int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    half = torch.bfloat16
    body = (
        *(Load("x", half, "x", Address((1,))), Compute("y", f32, "cast", ("x",))),
        *(Compute("z", half, "cast", ("y",)), Store("out", Address((1,)), "z")),
    )
    buffers = {name: dataclasses.replace(buffer(name), dtype=half) for name in ("x", "out")}
    code = triton.generate(ir.Program("forward", buffers, (), (Loops("copy", (size,), (), body),), ()))
    (kernel,) = triton_module.load(code.text).values()
    ptx = triton_module.compile_kernel(kernel, compiled_forms.triton_target("sm_90")).asm["ptx"]
    # each thread has eight elements
    assert "ld.global.v4.b32" in ptx
    assert "st.global.v4.b32" in ptx


def test_every_line_of_a_kernel_is_claimed_by_it() -> None:
    code = generate(softmax(32, 128), dataclasses.replace(softmax(3, 100_000), name="swept"))
    text = code.text.splitlines()
    for name in ("softmax", "swept"):
        numbers = [line.number for line in code.lines if line.kernel == name]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert text[numbers[0] - 1].startswith(f"# {name}: for i0 < ")
        assert text[numbers[-1] - 1].strip().startswith("tl.store")


def test_kernels_that_differ_by_names_alone_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    other = dataclasses.replace(softmax(32, 128), name="other")
    code = generate(softmax(32, 128), other, dataclasses.replace(softmax(16, 128), name="fewer"))
    (line,) = (line for line in code.lines if line.kernel == "other")
    assert code.text.splitlines()[line.number - 1] == "other = softmax  # the same kernel"
    result = triton_module.load(code.text)
    assert result["other"].function is result["softmax"].function is not result["fewer"].function
    assert result["other"].grid == result["softmax"].grid != result["fewer"].grid
    (ptx,) = (stage for stage in compiled_forms.compiled_forms(code.text, "sm_90") if stage.name == "ptx")
    assert re.findall(r"\.visible \.entry (\w+)", ptx.text) == ["softmax", "fewer"]
    (sass,) = (stage for stage in compiled_forms.compiled_forms(code.text, "sm_90") if stage.resources)
    assert [used.kernel for used in sass.resources] == ["softmax", "other", "fewer"]


def test_a_transpose_goes_in_tiles() -> None:
    body = (Load("x", f32, "x", Address((1, 4096))), Store("out", Address((8192, 1)), "x"))
    code = generate(Loops("transpose", (4096, 8192), (), body))
    assert printed(code, 0) == ["x = tl.load(x_ptr + i0 + 4096*j0)"]
    assert "j0 = tl.program_id(0) % 128 * BLOCK_J" in code.text
    assert '"transpose": {"grid": 8192' in code.text


def test_the_flattened_index_is_used_where_it_will_do() -> None:
    body = (Load("x", f32, "x", Address((12, 1))), Load("b", f32, "b", Address((0, 1))))
    sums = (Compute("y", f32, "add", ("x", "b")), Store("out", Address((12, 1)), "y"))
    code = generate(Loops("add", (40, 12), (), body + sums))
    assert printed(code, 0) == ["x = tl.load(x_ptr + i, mask=i_mask)"]
    assert printed(code, 1) == ["b = tl.load(b_ptr + i1, mask=i_mask)"]
    assert "i0 =" not in code.text


def test_a_reduction_of_much_to_little_is_cut_in_parts() -> None:
    body = (
        Load("x", f32, "x", Address((1,))),
        Compute("y", f32, "exp", ("x",)),
        Reduce("s", f32, "sum", "y"),
        Compute("mean", f32, "div", ("s", Literal(2.0**22, f32))),
        Store("out", Address((0,)), "mean"),
    )
    program = ir.Program("forward", {name: buffer(name) for name in ("x", "out")}, (), (), ())
    parts, rest = split_reductions(program.with_steps([Loops("mean", (), (2**22,), body)])).steps
    assert isinstance(parts, Loops)
    assert isinstance(rest, Loops)
    for loops in (parts, rest):
        ir.check(loops)
    assert (parts.outer, parts.inner) == ((512,), (2**13,))
    assert (rest.outer, rest.inner) == ((), (512,))
    assert rest.text().splitlines()[1:] == [
        "    s_part: f32 = load s_part[j0]",
        "    s: f32 = sum over j of s_part",
        "    mean: f32 = div(s, 4194304.0)",
        "    store out[0] = mean",
    ]


def test_a_few_long_rows_are_gone_through_in_kernels_of_their_own() -> None:
    program = ir.Program("forward", {name: buffer(name) for name in ("x", "buf0")}, (), (softmax(4, 2**20),), ())
    result = split_passes(program)
    for loops in result.steps:
        assert isinstance(loops, ir.Loops)
        ir.check(loops)
    assert [(s.name, s.outer, s.inner) for s in result.steps if isinstance(s, ir.Loops)] == [
        ("softmax_stage0", (4,), (2**20,)),
        ("softmax_stage1", (4,), (2**20,)),
        ("softmax", (4, 2**20), ()),
    ]
    assert result.steps[-1].reads == ("x", "amax_of_row", "sum_1_of_row")
    assert split_passes(program.with_steps([softmax(4, 30_000)])).steps == (softmax(4, 30_000),)


def test_a_variance_of_few_long_rows_reads_them_once() -> None:
    code = code_of("variances")
    kernels = [k for k in code.text.split("@triton.jit")[1:] if "_parts(" in k]
    assert len(kernels) == 3, "x, y and z"
    assert [len(re.findall(r"tl.load\(arg", k)) for k in kernels] == [1, 1, 1]
    assert [len(re.findall(r"tl.store\(", k)) for k in kernels] == [2, 2, 2], "the sum and the squared distances"


def test_what_belongs_to_a_row_is_loaded_once_for_it() -> None:
    body = (Load("x", f32, "x", Address((256, 1))), Load("b", f32, "b", Address((1, 0))))
    sums = (Compute("y", f32, "add", ("x", "b")), Store("out", Address((256, 1)), "y"))
    code = generate(Loops("add", (400, 256), (), body + sums))
    assert printed(code, 1) == ["b = tl.load(b_ptr + i0)"]
    assert "i0 = tl.program_id(0) // 1 * BLOCK_I + tl.arange(0, BLOCK_I)[:, None]\n" in code.text


@pytest.mark.parametrize("strides", [(1, 9), (512, 1)])
def test_weights_are_turned_in_tiles(strides: tuple[int, int]) -> None:
    """A 3 x 3 filter has few elements, but one program for each would access all memory nine times."""
    other = {(1, 9): (512, 1), (512, 1): (1, 9)}[strides]
    body = Load("x", f32, "x", Address((4608, *strides))), Store("out", Address((4608, *other)), "x")
    code = generate(Loops("turn", (512, 9, 512), (), body))
    assert "BLOCK_I: tl.constexpr = 64" in code.text
    assert "BLOCK_J: tl.constexpr = 64" in code.text


def test_reductions_that_keep_a_gpu_busy_stay_whole() -> None:
    program = ir.Program("forward", {name: buffer(name) for name in ("x", "buf0")}, (), (), ())
    for loops in (softmax(4, 100_000), softmax(4096, 4096)):
        assert split_reductions(program.with_steps([loops])).steps == (loops,)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("name", triton_cases.CASES)
def test_same_values_as_eager_on_a_gpu(name: str) -> None:
    assert triton_cases.verdict(name, "cuda") == "ok"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_the_build_says_so() -> None:
    with pytest.raises(BuildError, match="need a GPU, and PyTorch finds none"):
        triton_module.launchers(triton_module.load(generate(softmax(32, 128)).text))


def test_target_without_a_gpu_and_the_way_back() -> None:
    inputs = triton_cases.inputs_of("softmax", "cpu")
    compile_ = triton_cases.new_compile()
    gm = triton_cases.graph_of("softmax", inputs)
    graph_stages.compile_kernels(gm, "forward", compile_, Options(target="sm_90"))()
    record = compile_._record
    assert record is not None
    names = [a.name for a in compile_.artifacts]
    assert {"forward.cpp", "forward.py", "forward.sm_90.ttir", "forward.sm_90.ptx", "forward.sm_90.sass"} <= {*names}
    ptx = compile_.find("forward.sm_90.ptx")
    lines = ptx.text.splitlines()
    exponential = next(s for s in ptx.spans if any("ex2.approx" in line for line in lines[s.first - 1 : s.last]))
    loops = compile_.find("forward.loops")
    texts = loops.text.splitlines()
    reached = record.linked(ptx.item(exponential.key))
    statements = [texts[s.first - 1] for s in loops.spans if loops.item(s.key) in reached and s.first == s.last]
    assert any("exp(" in text for text in statements)


def test_far_addresses_are_64_bits_wide() -> None:
    def copy(size: int, stride: int) -> str:
        body = (Load("x", f32, "x", Address((stride,))), Store("out", Address((1,)), "x"))
        return generate(Loops("copy", (size,), (), body)).text

    assert "int64" not in copy(2**20, 2**10)
    assert "tl.program_id(0).to(tl.int64)" in copy(2**20, 2**11)
    assert "tl.program_id(0).to(tl.int64)" in copy(2**31, 1)


def test_names_of_values_give_way_to_those_of_the_kernel() -> None:
    body = (Load("tl", f32, "x", Address((1,))), Compute("i0", f32, "mul", ("tl", Literal(2.0, f32))))
    code = generate(Loops("k", (8,), (), (*body, Store("out", Address((1,)), "i0"))))
    assert printed(code, 0) == ["tl_ = tl.load(x_ptr + i0)"]
    assert printed(code, 1) == ["i0_ = tl_ * 2.0"]


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.10000000149011612, torch.float32, "0.1"),
        (1 / 3, torch.float64, "tl.full([], 0.3333333333333333, tl.float64)"),
        (float("-inf"), torch.float32, 'float("-inf")'),
        (1e-40, torch.float32, "tl.full([], 1e-40, tl.float32)"),
        (torch.finfo(torch.float32).max, torch.float32, "tl.full([], 3.4028235e+38, tl.float32)"),
        (16777216.0, torch.float32, "16777216.0"),
        (3, torch.int64, "tl.full([], 3, tl.int64)"),
        (True, torch.bool, "True"),
    ],
)
def test_literals_are_exact(value: float, dtype: torch.dtype, text: str) -> None:
    assert literal(Literal(value, dtype)) == text


@pytest.mark.parametrize("dtype", sample([torch.bfloat16, torch.float32, torch.float16, torch.int32], 4))
def test_the_edges_of_a_type_do_not_make_a_kernel_compute_in_float64(
    dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attention masks, for instance, are the least number where a token is hidden, and 0 elsewhere."""
    info = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    edges = [info.min, info.max, *([info.tiny, info.tiny / 8] if isinstance(info, torch.finfo) else [])]

    def masks(x: torch.Tensor) -> list[torch.Tensor]:
        hidden = torch.zeros_like(x, dtype=dtype)
        return [(hidden.masked_fill(x > 0, edge) + x).softmax(-1) for edge in edges]

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    with compiler_core.record() as record:
        compiler_core.compile(masks, target="sm_90", strict=True)(torch.randn(8, 64))
    forms = [a.text for a in record.compiles[0].artifacts if a.name.endswith("ttir")]
    assert forms
    assert not any("f64" in form for form in forms)


def test_literals_take_the_type_of_what_they_are_added_to() -> None:
    assert literal(Literal(0.1, torch.float64), "add", beside_value=True) == "0.1"


def test_triton_does_not_read_its_library_for_its_cache_key(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.runtime import cache

    of_triton = cache.triton_key
    digest = toolchain._triton_key()
    with toolchain.with_sealed_cache():
        assert digest is not None
        assert cache.triton_key() == digest
    assert cache.triton_key is of_triton
    monkeypatch.setattr(toolchain, "_triton_key", functools.cache(toolchain._triton_key.__wrapped__))
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: SimpleNamespace(files=None))
    with toolchain.with_sealed_cache():  # a library that no wheel has brought
        assert cache.triton_key is of_triton


def test_a_thread_that_keeps_rows_does_not_make_too_many_accesses() -> None:
    def of(count: int) -> ir.Loops:
        inputs = [f"x{n}" for n in range(count)]
        loads = [ir.Load(f"v{n}", f32, x, ir.Address((1, 4096))) for n, x in enumerate(inputs)]
        sums = [ir.Compute(f"s{n}", f32, "add", (f"s{n - 1}" if n > 1 else "v0", f"v{n}")) for n in range(1, count)]
        last = f"s{count - 1}" if count > 1 else "v0"
        total, store = ir.Reduce("total", f32, "sum", last), ir.Store("out", ir.Address((1, 0)), "total")
        return ir.Loops("columns", (4096,), (64,), (*loads, *sums, total, store))

    found = [choose_blocks(shape_for_triton(of(count))) for count in (1, 4, 12)]
    assert len({(each.i, each.j) for each in found}) == 1
    assert [each.num_warps for each in found] == [1, 1, 2]
