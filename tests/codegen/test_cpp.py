"""Tests of C++ kernels: each kind of kernel, threads, names, the wrapper, and links from kernel to user lines."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import compiler_core
from compiler_core.codegen.build import compilers as build
from compiler_core.codegen.cpp import printer as cpp
from compiler_core.codegen.cpp.ops import ARITHMETIC, MATH, TEXTS, expression, literal
from compiler_core.config import Options
from compiler_core.errors import BuildError
from compiler_core.loops import ir
from compiler_core.loops.fuse.matching import structural_key
from compiler_core.loops.fuse.rules import fuse
from compiler_core.loops.lower import lower
from compiler_core.pipeline.graph import compile_kernels
from compiler_core.records import Compile, Record
from tests.cases.kernel_programs import check, compiled, trace


def source(program: Any, *inputs: torch.Tensor) -> str:
    code = cpp.generate(fuse(lower(trace(program, *inputs), "forward")).program, build.simd_math())
    return code.text


def test_sine_beside_cosine_is_computed_on_vectors(tmp_path: Path) -> None:
    kernel, assembly = tmp_path / "kernel.cpp", tmp_path / "kernel.s"
    kernel.write_text(source(lambda x: x.sin() * x.cos(), torch.randn(64)))
    command = build.compile_command(build.toolchain(), kernel, assembly, ("-S", "-w"))
    subprocess.run(command, check=True)
    assert "sincos" not in assembly.read_text()


def test_masks_do_not_keep_a_loop_from_being_vectorised(tmp_path: Path) -> None:
    if not {"cos"} & set(build.simd_math()):
        pytest.skip("this machine's mathematical library has no functions of vectors")

    def masked(x: torch.Tensor, m: torch.Tensor) -> Any:
        kept = (x > 0) & m
        return kept, x.cos() * kept.to(x.dtype), torch.where(m, x, 0)

    kernel, assembly = tmp_path / "kernel.cpp", tmp_path / "kernel.s"
    kernel.write_text(source(masked, torch.randn(64), torch.randn(64) > 0))
    subprocess.run(build.compile_command(build.toolchain(), kernel, assembly, ("-S", "-w")), check=True)
    assert not re.search(r"\bcosf\b", assembly.read_text())  # but _ZGV..._cosf


def test_the_exponential_is_about_as_exact_as_eagers() -> None:
    edges = [0.0, -0.0, 88.7228, 88.73, -87.4, -103.9, -104.1, 1e-40, 3e38, -3e38, *map(float, ("inf", "-inf", "nan"))]
    x = torch.cat([torch.linspace(-104, 88.7, 100_003), torch.randn(10_000), torch.tensor(edges)])
    run, _ = compiled(lambda x: x.exp() * 1, x)
    (ours,), expected, exact = run([x]), x.exp(), x.double().exp()
    normal = x.abs() < 87
    assert torch.equal(ours.isnan(), x.isnan())
    assert torch.equal(ours.isinf(), expected.isinf())
    assert (ours - expected)[x < -87].abs().max() < 3e-45  # the least float is 1.4e-45
    errors = [(y / exact - 1)[normal].abs() for y in (ours, expected)]
    assert errors[0].norm() < 1.25 * errors[1].norm()
    assert errors[0].max() < 2 * errors[1].max()


def test_every_kind_of_float_has_its_exponential() -> None:
    edges = [0x42B17217, 0x42B17218, 0x42B1FFFF, 0x42B20000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF]
    patterns = torch.arange(0, 0x7F800000, 10_007, dtype=torch.int32)  # floats of all exponents
    positive = torch.cat([patterns, torch.randint(0x42800000, 0x42D40000, (20_000,), dtype=torch.int32)]).sort()[0]
    bits = torch.cat([positive, torch.tensor(edges, dtype=torch.int32)])
    x = torch.cat([bits, bits | -(2**31)]).view(torch.float32)  # processors produce NaN with the sign bit set
    run, _ = compiled(lambda x: x.exp() * 1, x)
    (ours,), exact = run([x]), x.double().exp()
    assert torch.equal(ours.isnan(), x.isnan())
    assert torch.equal(ours.isinf(), x >= torch.tensor(0x42B17218, dtype=torch.int32).view(torch.float32))
    assert not ours.signbit()[~x.isnan()].any()
    finite = ours.isfinite()
    unit = torch.frexp(exact[finite]).exponent.clamp(min=-125).double().sub(24).exp2()
    assert ((ours.double() - exact)[finite].abs() / unit).max() < 1.2  # 0.9 with fused multiply-add


def test_the_error_function_is_exact_to_two_units_in_the_last_place() -> None:
    patterns = torch.arange(0, 0x7F800000, 20_011, dtype=torch.int32)  # floats of all exponents
    edges = torch.tensor([0.0, 0.9218749, 0.921875, 3.9, 4.0, float("inf"), float("nan")])
    x = torch.cat([patterns.view(torch.float32), edges])
    run, _ = compiled(lambda x: x.erf() * 1, x)
    (ours,), (negative,) = run([x]), run([-x])
    exact, infinity = x.double().erf(), torch.tensor(float("inf"))
    unit = (torch.nextafter(exact.float(), infinity) - exact.float()).double()
    assert torch.equal(ours.isnan(), x.isnan())
    assert torch.equal(
        ours.view(torch.int32)[:-1] ^ negative.view(torch.int32)[:-1], torch.full((len(x) - 1,), -(2**31))
    )
    assert ((ours - exact).abs() / unit)[:-1].max() <= 2


def test_no_header_and_no_fast_math() -> None:
    assert "#include" not in source(lambda x: F.gelu(x), torch.randn(8))
    assert not {"-ffast-math", "-Ofast", "-funsafe-math-optimizations"} & set(build.FLAGS)


SHAPES: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "one element": (lambda x: x.exp(), (torch.randn(1),)),
    "elements": (lambda x, y: F.gelu(x) * y, (torch.randn(40, 30), torch.randn(30))),
    "many elements": (lambda x, y: x.exp() + y, (torch.randn(1000, 301), torch.randn(301))),
    "tiles": (lambda x, y: x.t() * 2 + y, (torch.randn(301, 203), torch.randn(203, 301))),
    "tiles of a batch": (lambda x: x.permute(0, 2, 1).contiguous().exp(), (torch.randn(5, 301, 203),)),
    "channels last": (lambda x: x.permute(0, 2, 3, 1).contiguous() + 1, (torch.randn(3, 130, 20, 30),)),
    "tiles that are written across": (lambda x, y: (x + 1, x.t() * y), (torch.randn(301, 203), torch.randn(203, 301))),
    "few long rows of elements": (lambda x, y: x.exp() + y, (torch.randn(3, 100_003), torch.randn(100_003))),
    "short rows": (lambda x: F.softmax(x, -1), (torch.randn(50, 7),)),
    "kept rows": (lambda x: F.softmax(x, -1), (torch.randn(50, 1000),)),
    "rows too long to keep": (lambda x: F.softmax(x, -1), (torch.randn(3, 10_001),)),
    "one long row": (lambda x: F.softmax(x, -1), (torch.randn(200_003),)),
    "many rows": (lambda x: F.layer_norm(x, (301,)), (torch.randn(1000, 301),)),
    "a sum of everything": (lambda x: (x * x).sum(), (torch.randn(300_001),)),
    "extremes of everything": (lambda x: (x.max(), x.min(), (x > 9).any()), (torch.randn(300_001),)),
    "rows of two sizes": (lambda x: x.mean((0, 2)), (torch.randn(9, 20, 30).transpose(0, 2),)),
    "short rows of rows": (lambda x: ((x * x).sum((0, 2)), x.amax((0, 2))), (torch.randn(37, 50, 13),)),
    "many short rows of rows": (lambda x: (x.mean((0, 2)), x.any(2).all(0)), (torch.randn(300, 5, 13),)),
    "updates at computed positions": (
        lambda x: torch.zeros(20).index_add(0, (x * 20).long(), x.exp()),
        (torch.rand(1000),),
    ),
    # loads under a condition, of which g++ 12 mixed up those of several neighbours in memory
    "pixels with a margin": (
        lambda x: F.pad(x, (1, 1, 1, 1)),
        (torch.randn(2, 3, 9, 8).to(memory_format=torch.channels_last),),
    ),
    "pairs with a margin": (
        lambda x: torch.stack([F.pad(x[:, 0], (1, 2)), F.pad(x[:, 1], (1, 2))], -1) * 2,
        (torch.randn(100, 2),),
    ),
    "lanes": (lambda x: x.sum(0), (torch.randn(50, 130),)),
    "many lanes": (lambda x: F.softmax(x.sin(), 0), (torch.randn(600, 600),)),
    "lanes of a batch": (lambda x: x.var(1), (torch.randn(4, 30, 70),)),
    "lanes and rows": (lambda x: (x.sum(0), x.sum(1)), (torch.randn(70, 90),)),
    "lanes beside a mask of rows": (
        lambda x, keep: (x * keep[..., None]).sum(1),
        (torch.randn(4, 301, 64), torch.randn(4, 301) > 0),
    ),
    "lanes with a store": (lambda x: ((y := x.exp()), y.sum(0), y.amax(0)), (torch.randn(70, 90),)),
    "lanes with values before": (
        lambda x, y: ((x - y.exp()).sum(0), x.amin(0)),
        (torch.randn(70, 90), torch.randn(90)),
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shape_of_kernel(name: str) -> None:
    program, inputs = SHAPES[name]
    torch.manual_seed(0)
    check(program, *inputs)


@pytest.mark.parametrize("width", [2, 7, 17, 63, 127, 515])
def test_ends_of_rows(width: int) -> None:
    torch.manual_seed(width)
    check(lambda x: (F.softmax(x, -1), x.sum(-1), x.argmax(-1), x.amin(-1), (x > 2).any(-1)), torch.randn(9, width))


def test_the_shapes_are_those_meant() -> None:
    texts = {name: source(program, *inputs) for name, (program, inputs) in SHAPES.items()}
    assert "parallel" not in texts["elements"] + texts["short rows"] + texts["lanes"]
    for name in ("many elements", "few long rows of elements", "many rows", "many lanes", "a sum of everything"):
        assert "#pragma omp parallel for" in texts[name], name
    for name in ("tiles", "tiles of a batch"):
        assert "_tile += 128" in texts[name], name
    assert "exp_row[1000]" in texts["kept rows"]
    assert "_row[" not in texts["rows too long to keep"] + texts["one long row"]
    assert "_lane[256]" in texts["many lanes"]
    assert "_lane[64]" in texts["lanes beside a mask of rows"]
    assert "j0_tile += 512" in texts["one long row"]


def test_so_many_lanes_that_the_narrowest_elements_fill_a_vector() -> None:
    for x, y, lanes in (
        (torch.randn(9, 300), torch.randn(9, 300), 16),
        (torch.randn(9, 300).bfloat16(), torch.randn(9, 300), 32),
        (torch.randn(9, 300), torch.randn(9, 300) > 0, 64),
        (torch.randn(9, 300).double(), torch.randn(9, 300), 16),
    ):
        assert re.findall(r"each<(\d+)>\((?!rest)", source(lambda x, y: (x * y).sum(1), x, y)) == [str(lanes)]
        check(lambda x, y: (x * y).sum(1), x, y)


@pytest.mark.parametrize("columns", [100, 2500, 100_003])
def test_sums_are_about_as_exact_as_eager_ones(columns: int) -> None:
    x = torch.randn(64, columns, generator=torch.Generator().manual_seed(columns))
    for program in (lambda x: x.sum(-1), lambda x: x[:, ::2].sum(-1), lambda x: (x + 1).mean(-1)):
        run, _ = compiled(program, x)
        exact = program(x.double())
        eager, ours = ((results.double() - exact).norm() / exact.norm() for results in (program(x), *run([x])))
        assert ours <= 2 * eager + 2**-24  # half a unit in the last place, for rounding the exact sum


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_do_not_change_the_result(threads: int) -> None:
    x = torch.randn(300, 1001, generator=torch.Generator().manual_seed(0))
    run, _ = compiled(lambda x: (x.exp() * 2, F.softmax(x, -1), x.sum(0), x.amax(), x.sum()), x)
    expected = run([x])
    torch.set_num_threads(threads)
    for ours, reference in zip(run([x]), expected, strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-6, atol=1e-6)


def test_names_that_are_words_of_cpp() -> None:
    def program(double: torch.Tensor, this: torch.Tensor, lane: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return double + this, (lane * double).sum(0)

    gm = trace(program, *(torch.randn(20, 20) for _ in range(3)))
    for node, name in zip(gm.graph.nodes, ("double", "this", "lane", "float", "new", "i0"), strict=False):
        node._rename(name)
    text = cpp.generate(fuse(lower(gm, "forward")).program).text
    assert build.load(text)


def test_a_kernel_named_as_a_node_is_renamed() -> None:
    gm = trace(lambda x: x + 1, torch.randn(3))
    gm.graph.find_nodes(op="placeholder")[0]._rename("forward_0")
    (step,) = fuse(lower(gm, "forward")).program.steps
    assert step.name == "forward_1"


def layers(x: torch.Tensor, rows: torch.Tensor) -> list[torch.Tensor]:
    x, created = x[rows], []
    for _ in range(3):
        x = torch.softmax(x, -1)[rows].sort().values  # PyTorch sorts
        created.append(x)
    return created


@pytest.mark.parametrize("dynamic", [False, True])
def test_kernels_that_differ_by_names_alone_are_one(dynamic: bool) -> None:
    rows = torch.randint(9, (9,))
    with compiler_core.record() as record:
        fast = compiler_core.compile(layers, dynamic=dynamic)
        for size in (9, 11):
            x = torch.randn(size, 5)
            for ours, expected in zip(fast(x, rows), layers(x, rows), strict=True):
                torch.testing.assert_close(ours, expected)
    text = next(a.text for a in record.artifacts if a.name == "forward.cpp")
    names = [s.name for s in build.signatures(text) if "_to_" not in s.name]
    text = text.partition("_to_")[0]
    assert [len(re.findall(rf"\b{name}\(", text)) for name in names] == [1, 1, 2, 2, 1, 1]  # the first gathers x
    with pytest.raises(IndexError):
        fast(x, rows + 99)


ALL_DIFFER: list[tuple[Any, torch.Tensor]] = [
    *((lambda x: x + 1, t) for t in (torch.randn(6, 5), torch.randn(7, 6), torch.randn(6, 5).double())),
    *((f, torch.randn(6, 6)) for f in (lambda x: x + 2, lambda x: x * 0.0, lambda x: x * -0.0)),
    *((f, torch.randn(6, 6)) for f in (lambda x: x[1:].exp(), lambda x: x[:5].exp(), lambda x: x + x.t())),
    *((f, torch.randn(6, 6)) for f in (lambda x: x.sum(1), lambda x: x.sum(0), lambda x: x.amax(1))),
]


def test_kernels_are_alike_where_only_names_differ() -> None:
    graphs = [trace(program, x) for program, x in ALL_DIFFER]
    forms = list(map(form, graphs))
    assert len(set(forms)) == len(forms)
    for gm in graphs:
        for node, name in zip(gm.graph.nodes, ("out", "y", "x", "z"), strict=False):
            node._rename(name)
    assert list(map(form, graphs)) == forms


def form(gm: torch.fx.GraphModule) -> Any:
    program = fuse(lower(gm, "forward")).program
    (loops,) = program.steps
    assert isinstance(loops, ir.Loops)
    return structural_key(loops, program.buffers)


def test_every_operation_has_an_expression() -> None:
    for op, (arity, _) in ir.OPS.items():
        if op == "uniform":  # GPUs only
            with pytest.raises(BuildError, match="by Triton kernels only"):
                expression(op, torch.float32, ["a"] * arity, torch.int32)
            continue
        of = (
            torch.int32
            if op in ("floordiv", "truncdiv", "lshift", "rshift", "and", "or", "xor", "not")
            else torch.float32
        )
        dtype = torch.bool if op in ir.COMPARISONS else of
        assert expression(op, dtype, ["a", "b", "c"][:arity], of)
    assert (MATH | TEXTS.keys() | ARITHMETIC.keys()) <= ir.OPS.keys()


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1, torch.float32, "1.0f"),
        (-0.0, torch.float64, "(-0.0)"),
        (float("-inf"), torch.float32, "(-__builtin_inff())"),
        (-(2**63), torch.int64, "(i64)(-9223372036854775807 - 1)"),
        (True, torch.bool, "true"),
        (1.0, torch.bfloat16, "(bf16)0x3f80"),
    ],
)
def test_numbers(value: float, dtype: torch.dtype, text: str) -> None:
    assert literal(value, dtype) == text


# -- the wrapper -------------------------------------------------------------------------------


def test_the_wrapper_is_what_runs() -> None:
    _, compile_ = compiled(lambda x, y: ((x @ y).relu(), x.t()[1:]), torch.randn(4, 4), torch.randn(4, 4))
    assert compile_.find("forward.wrapper").text == (
        "aten_mm = torch.mm\n"
        "\n"
        "\n"
        "def run_forward(inputs):\n"
        "    x_1, y_1 = inputs\n"
        "    mm = aten_mm(x_1, y_1)\n"
        "    if not mm.is_contiguous(): mm = restrided(mm, (4, 4), (4, 1))\n"
        "    relu = empty((4, 4), (4, 1), f32)\n"
        "    forward_0(mm, relu)\n"
        "    return [relu, x_1.as_strided((3, 4), (1, 4), x_1.storage_offset() + 1)]\n"
        "\n"
        "\n"
        "def random_inputs():\n"
        "    return [\n"
        "        random_tensor((4, 4), (4, 1), f32, 'cpu'),  # x_1\n"
        "        random_tensor((4, 4), (4, 1), f32, 'cpu'),  # y_1\n"
        "    ]\n"
    )


def test_names_of_nodes_do_not_hide_those_of_the_wrapper() -> None:
    gm = trace(lambda x, y: ((x.t() @ y) + 1, torch.full((2,), 1.0)), torch.randn(4, 4), torch.randn(4, 4))
    for node, name in zip(gm.graph.nodes, ("empty", "window", "torch", "aten_mm", "f32"), strict=False):
        node._rename(name)
    record = Record()
    compile_ = record.compile(record.frame("f", "f.py", 1, "root"))
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    got, ones = compile_kernels(gm, "forward", compile_, Options())()([x, y])
    torch.testing.assert_close(got, x.t() @ y + 1)
    torch.testing.assert_close(ones, torch.ones(2))


def test_saved_values_may_have_other_strides_than_when_traced() -> None:
    gm = trace(lambda saved, x: (x.cos() * saved).exp(), torch.randn(4, 5), torch.randn(4, 5))
    gm.graph.find_nodes(op="placeholder")[1]._rename("tangents_1")
    record = Record()
    run = compile_kernels(gm, "backward", record.compile(record.frame("f", "f.py", 1, "root")), Options())()
    x = torch.randn(4, 5)
    for saved in (torch.randn(5, 4).t(), torch.ones(()).expand(4, 5), torch.randn(4, 10)[:, ::2]):
        torch.testing.assert_close(run([saved, x])[0], (x.cos() * saved).exp())


# -- the record --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def noted() -> Compile:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.softmax(x * 2, -1) @ y, x.exp().sum(0)

    return compiled(program, torch.randn(20, 30), torch.randn(30, 4))[1]


def test_each_kernel_line_leads_to_graph_nodes_and_back(noted: Compile) -> None:
    record = noted._record
    assert record is not None
    kernel = noted.find("forward.cpp")
    lines = kernel.text.splitlines()
    at = next(n for n, line in enumerate(lines, 1) if "exp_f32(sub" in line)
    linked = record.linked(kernel.item(str(at)))
    assert "0/0:forward#exp" in linked
    assert kernel.item(str(at)) in record.linked("0/0:forward#exp")
    wrapper = noted.find("forward.wrapper")
    launch = next(n for n, line in enumerate(wrapper.text.splitlines(), 1) if "forward_0(" in line)
    assert wrapper.item(str(launch)) in record.linked("0/0:forward#exp")


def test_every_item_that_is_linked_exists(noted: Compile) -> None:
    items = {a.item(s.key) for a in noted.artifacts for s in a.spans}
    for edge in noted.edges:
        assert edge.made in items
        assert set(edge.sources) <= items
    for artifact in noted.artifacts:
        count = len(artifact.text.splitlines())
        assert all(1 <= s.first <= s.last <= count for s in artifact.spans), artifact.name
        assert len({s.key for s in artifact.spans}) == len(artifact.spans), artifact.name


def test_every_node_that_is_not_a_view_leads_to_the_wrapper(noted: Compile) -> None:
    record = noted._record
    assert record is not None
    for node in noted.find("forward").graph.nodes:  # type: ignore[union-attr]
        if node.op == "call_function" and "view" not in node.target:
            linked = record.linked(f"0/0:forward#{node.key}")
            assert any(":forward.wrapper#" in item for item in linked), node.key


def test_kernels_fusions_and_refusals_are_noted(noted: Compile) -> None:
    ours = [k for k in noted.kernels if k.language == "cpp"]
    assert [k.name for k in noted.kernels if k.language == "extern"] == ["aten.mm.default"]
    assert len(ours) == 2
    assert ours[0].bytes_written == 20 * 30 * 4
    assert {f.kernel for f in noted.fusions} <= {k.name for k in ours}
    assert all((f.bytes_saved or 0) > 0 and len(f.nodes) > 1 for f in noted.fusions)
    assert [(r.kind, r.second) for r in noted.refusals] == [("call", "mm"), ("columns", "forward_1")]
    assert [e.stage for e in noted.events if e.name == "forward"] == ["lower", "fuse", "codegen", "build"]
    assert all(e.outcome == "ok" for e in noted.events)
    assert noted._record is not None
    assert Record.from_json(noted._record.to_json()) == noted._record


def test_only_lines_of_code_are_attributed(noted: Compile) -> None:
    kernel = noted.find("forward.cpp")
    lines = kernel.text.splitlines()
    results = {e.made for e in noted.edges}
    start = next(n for n, line in enumerate(lines) if line.startswith('extern "C" void forward'))
    for number_, line in enumerate(lines[start:], start + 1):
        if re.match(r"\s+const f32 \w+ = ", line):
            assert kernel.item(str(number_)) in results, line
