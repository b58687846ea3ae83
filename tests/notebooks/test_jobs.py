"""Jobs for which people take a compiler: each on both engines, and as a section of a notebook.

`JOBS` has what each job shows, the tests that check it on our engine and on stock `torch.compile`, and its cell in a
notebook.  The tests of this file run a job on both engines where no other test does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import compiler_core
import kernel_magics
from compiler_core.errors import FullGraphError
from compiler_core.records import Record
from tests.benchmarks import bench_jobs

ROOT = Path(__file__).parents[2]
ENGINES = pytest.mark.parametrize("engine", ["core", "torch"])
HERE = "notebooks/test_jobs.py"
TOUR, QUESTIONS, OPENING = (f"notebooks/test_{name}.py" for name in ("tour", "questions", "opening_and_changing"))


class Job(NamedTuple):
    shows: str
    core: str
    """The tests on our engine: ``file::test``, under ``tests``."""
    stock: str
    """Those on stock; or why it does not apply, in parentheses."""
    cells: str
    """The notebook and its first cell."""


JOBS = {
    "A1": Job(
        "every guard of 100 modules, as Python with its line and cost",
        f"{HERE}::test_guards_of_100_modules",
        f"{HERE}::test_guards_of_100_modules",
        "01_questions guards-table",
    ),
    "A2": Job(
        "a folder of plain files of what was compiled before",
        f"{HERE}::test_a_folder_of_what_was_compiled_before",
        f"{HERE}::test_a_folder_of_what_was_compiled_before",
        "02_opening_and_changing files-save",
    ),
    "A3": Job(
        "10,000 calls guarded, pinned and eager",
        "benchmarks/bench_guards.py::test_hundred_modules",
        "tools/test_pin.py::test_stock_compiles_can_be_pinned",
        "01_questions dispatch-times",
    ),
    "B1": Job(
        "forward and backward graphs, drawn",
        f"{HERE}::test_forward_and_backward_are_drawn",
        f"{HERE}::test_forward_and_backward_are_drawn",
        "02_opening_and_changing graphs-compile",
    ),
    "B2": Job(
        "symbolic_trace of a module beside our graph",
        f"{HERE}::test_a_traced_module_has_calls_of_modules",
        f"{HERE}::test_a_traced_module_has_calls_of_modules",
        "02_opening_and_changing symbolic-module",
    ),
    "B3": Job(
        "CUDA graphs, or why not",
        f"{OPENING}::test_why_there_is_no_cuda_graph",
        "tools/stock/test_stock.py::test_reason_for_skipped_cuda_graphs",
        "02_opening_and_changing cuda-graphs-why",
    ),
    "C1": Job(
        "eager and compiled timed fairly",
        f"{OPENING}::test_times",
        f"{HERE}::test_times_side_by_side",
        "02_opening_and_changing fair-time",
    ),
    "C2": Job(
        "guards and code of each compile, decompiled",
        f"{OPENING}::test_entries_have_guards_decompiled_code_and_kernels",
        f"{HERE}::test_the_kernel_source_is_one_step_away",
        "02_opening_and_changing entries-show",
    ),
    "C3": Job(
        "ViT compiled and timed",
        f"{OPENING}::test_times",
        f"{HERE}::test_networks_are_timed_on_both_engines",
        "02_opening_and_changing vit-time",
    ),
    "C4": Job(
        "a backend that removes dropout; a pattern rewritten",
        f"{HERE}::test_a_backend_removes_dropout",
        f"{HERE}::test_a_backend_removes_dropout",
        "02_opening_and_changing backend-dropout",
    ),
    "C5": Job(
        "symbolic_trace fails on a branch, three graphs of ours",
        f"{HERE}::test_a_branch_makes_three_graphs",
        f"{HERE}::test_a_branch_makes_three_graphs",
        "02_opening_and_changing symbolic-branch",
    ),
    "C6": Job(
        "every frame that the hook sees",
        f"{OPENING}::test_frames",
        "tools/test_frames.py::test_frames_of_stock",
        "02_opening_and_changing frames-show",
    ),
    "D1": Job(
        "the walk-through: entries, resume functions, a size that becomes symbolic",
        f"{HERE}::test_the_walk_through",
        f"{HERE}::test_the_walk_through",
        "02_opening_and_changing walk-run",
    ),
    "D2": Job(
        "cos(cos(x)) saves one tensor, not two",
        f"{HERE}::test_what_a_backward_saves",
        f"{HERE}::test_what_a_backward_saves",
        "02_opening_and_changing graphs-saved",
    ),
    "D3": Job(
        "what each backend adds",
        f"{QUESTIONS}::test_backends",
        f"{HERE}::test_what_stock_backends_add",
        "01_questions backends-own",
    ),
    "E1": Job(
        "a function, a decorated function, a module",
        f"{HERE}::test_what_can_be_compiled",
        f"{HERE}::test_what_can_be_compiled",
        "02_opening_and_changing ways-all",
    ),
    "E2": Job(
        "ResNet-18, inference and training, timed",
        f"{OPENING}::test_times",
        f"{HERE}::test_networks_are_timed_on_both_engines",
        "02_opening_and_changing resnet-time",
    ),
    "E3": Job(
        "other ways of capturing: right, error or silently wrong",
        f"{HERE}::test_capture_methods",
        f"{HERE}::test_capture_methods",
        "01_questions capture-branch-compare",
    ),
    "E4": Job(
        "three graphs of bar, as tables",
        f"{HERE}::test_a_branch_makes_three_graphs",
        f"{HERE}::test_a_branch_makes_three_graphs",
        "02_opening_and_changing table-bar",
    ),
    "E5": Job(
        "explain, fullgraph and export",
        f"{HERE}::test_where_it_breaks",
        f"{HERE}::test_where_it_breaks",
        "01_questions breaks-explain",
    ),
}


def compiled_by(engine: str, fn: Any, backend: Any = "eager", **options: Any) -> Any:
    return (torch.compile if engine == "torch" else compiler_core.compile)(fn, backend=backend, **options)


def recorded(engine: Any, fn: Any, *calls: tuple[Any, ...], backend: Any = "eager") -> Record:
    torch._dynamo.reset()
    with compiler_core.record(engine=engine) as record:
        compiled = compiled_by(engine, fn, backend)
        for args in calls:
            compiled(*args)
    return record


def captured(record: Record) -> list[list[str]]:
    """The calls in each captured graph."""
    graphs = [a.graph for a in record.artifacts if a.name == "captured" and a.graph]
    return [[node.target for node in graph.nodes if node.op.startswith("call")] for graph in graphs]


@pytest.mark.parametrize("job", JOBS)
def test_the_tests_and_the_cell_of_a_job_exist(job: str) -> None:
    entry = JOBS[job]
    for test in (entry.core, entry.stock):
        if not test.startswith("("):
            file, _, name = test.partition("::")
            assert f"\ndef {name}(" in (ROOT / "tests" / file).read_text()
    notebook, cell = entry.cells.split()
    assert cell in {each["id"] for each in nbformat.read(ROOT / "notebooks" / f"{notebook}.ipynb", as_version=4).cells}


class Add(nn.Module):
    def __init__(self, i: int) -> None:
        super().__init__()
        self.i = i

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.i


class Hundred(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fs = nn.ModuleList([Add(i) for i in range(100)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for f in self.fs:
            x = f(x)
        return x


@ENGINES
def test_guards_of_100_modules(engine: str) -> None:
    record = recorded(engine, Hundred().forward, (torch.tensor([1]),))
    (compile_,) = record.compiles
    text = compiler_core.guards_text(record, compile_)
    compile(text, "<guards>", "exec")
    for i in range(100):
        of_module = [line for line in text.splitlines() if re.search(rf"\b(fs|_modules)\b.*\b{i}\b", line)]
        assert any(f"== {i}" in line for line in of_module), f"the guard on the {i}th number"
    assert len(compile_.guards) > 100
    assert all(guard.cost_ns is not None for guard in compile_.guards)
    assert text.count(" ns") >= len(compile_.guards)
    assert "x = f(x)" in text or "return x + self.i" in text


@ENGINES
def test_a_folder_of_what_was_compiled_before(engine: str, tmp_path: Path) -> None:
    torch._dynamo.reset()
    compiled = compiled_by(engine, bar, "inductor" if engine == "torch" else None)
    compiled(torch.randn(10), torch.ones(10))
    kernel_magics.save(compiler_core.already_compiled(compiled), f"{tmp_path}/")
    folders = {file.parent for file in tmp_path.rglob("guards.py")}
    assert len(folders) == 2, "of the function, and of the resume function"
    # PyTorch keeps no captured graph
    texts = {"guards.py", "decompiled.py", "forward.wrapper.py", *(["captured.py"] if engine == "core" else [])}
    for folder in folders:
        assert texts <= {file.name for file in folder.iterdir()}
        assert list(folder.glob("*.cpp"))
        compile((folder / "decompiled.py").read_text(), folder.name, "exec")
    assert re.search(r"return \w*resume_\w+\(", (tmp_path / "0_0/decompiled.py").read_text())


def two_cosines(x: torch.Tensor) -> torch.Tensor:
    return torch.cos(torch.cos(x))


@ENGINES
def test_forward_and_backward_are_drawn(engine: Any) -> None:
    """Both graphs are in the record with their edges, of which the explorer draws them (`tests/ui/test_graphs.py`)."""
    torch._dynamo.reset()
    w = torch.randn(5, requires_grad=True)
    with compiler_core.record(engine=engine) as record:
        compiled_by(engine, lambda x: (x * w).sin().sum(), "aot_eager")(torch.rand(5)).backward()
    for name, operations in (("forward", {"mul", "sin", "sum"}), ("backward", {"expand", "mul"})):
        graph = record.compiles[0].find(name).graph
        assert graph is not None
        calls = [node for node in graph.nodes if node.op.startswith("call")]
        assert operations <= {node.target.split(".")[1] for node in calls}
        assert {node.key for node in calls} <= {read_by for _, read_by in graph.edges}


@ENGINES
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # by Dynamo
def test_the_walk_through(engine: Any) -> None:
    """Two sizes, a hundred calls each: two entries with guards, a resume function, and a size that becomes symbolic."""
    torch._dynamo.reset()
    ten, eight = ({name: torch.randn(size, requires_grad=True) for name in "xy"} for size in (10, 8))
    with compiler_core.record(engine=engine) as record:
        compiled = compiled_by(engine, walk_through, "aot_eager")
        for _ in range(100):
            compiled(ten), compiled(eight)
    torch.testing.assert_close(compiled(ten), walk_through(ten))
    root, resumed, *_ = record.frames
    assert [len(frame.compiles) for frame in (root, resumed)] == [2, 2]
    for frame in (root, resumed):
        first, second = frame.compiles
        assert second.cause is not None
        assert ("10" in second.cause.expected, "8" in second.cause.got) == (True, True)
        sizes = [next(n.shape for n in each.find("captured").graph.nodes if n.shape) for each in (first, second)]  # type: ignore[union-attr]
        assert [str(size[0])[0] for size in sizes] == ["1", "s"]
        assert first.guards
    (broken,) = root.compiles[0].breaks
    assert broken.stack[-1].text.strip() == "if x.mean() > 0.5:"


def walk_through(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    x, y = inputs["x"].cos().cos(), inputs["y"]
    if x.mean() > 0.5:
        x = x / 1.1
    return x * y


@ENGINES
def test_what_a_backward_saves(engine: Any) -> None:
    torch._dynamo.reset()
    x = torch.randn(5, 5, 5, requires_grad=True)
    with compiler_core.record(engine=engine) as record:
        compiled_by(engine, two_cosines, "inductor" if engine == "torch" else None)(x).sum().backward()
    (compile_,) = record.compiles
    nodes = {name: compile_.find(name).graph.nodes for name in ("forward", "backward")}  # type: ignore[union-attr]
    targets = {name: [node.target for node in each] for name, each in nodes.items()}
    assert sum("aten.cos" in target for target in targets["forward"]) == 2
    assert sum("aten.cos" in target for target in targets["backward"]) == 1, "the inner cosine is computed again"
    assert sum("aten.sin" in target for target in targets["backward"]) == 2
    partition = compile_.partition
    assert partition is not None
    assert (partition.default_saved_count, partition.saved_count, partition.saved_bytes) == (2, 1, 500)
    leaf = x.detach().clone().requires_grad_()
    two_cosines(leaf).sum().backward()
    torch.testing.assert_close(x.grad, leaf.grad)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.linear(x) + x).relu()  # type: ignore[no-any-return]


@ENGINES
def test_a_traced_module_has_calls_of_modules(engine: str) -> None:
    model = Residual()
    traced = torch.fx.symbolic_trace(model)
    assert [node.op for node in traced.graph.nodes][1:-1] == ["call_module", "call_function", "call_method"]
    (calls,) = captured(recorded(engine, model, (torch.randn(2, 4),)))
    assert [call.rpartition(".")[2] for call in calls] == ["linear", "add", "relu"]
    beside = kernel_magics.Explorer(traced, beside=recorded(engine, model, (torch.randn(2, 4),)))
    assert beside.record is not None
    opened, ours = (a.graph for a in beside.record.artifacts if a.pane == "captured" and a.graph)
    assert {"linear", "relu"} <= {node.key for node in opened.nodes} & {node.key for node in ours.nodes}


def test_times_side_by_side() -> None:
    forms = {"eager": two_cosines, "stock": compiled_by("torch", two_cosines), "core": compiled_by("core", two_cosines)}
    timings = compiler_core.time(two_cosines, torch.randn(100), engines=forms, seconds=0.1)
    assert [row.name for row in timings.rows] == ["eager", "stock", "core"]
    assert all(0 < row.low <= row.median <= row.high and row.rounds >= 15 for row in timings.rows)
    assert not timings.failed


@pytest.mark.sweep
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore")  # of stock, while it compiles the training step
def test_networks_are_timed_on_both_engines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench_jobs", "--small", "--seconds", "0.2", "--device", "cpu"])
    bench_jobs.main()
    printed = capsys.readouterr().out
    assert [printed.count(name) for name in ("torch.add", "inference", "training step", "ViT")] == [1, 1, 1, 1]
    for engine in ("eager", "core", "stock"):
        assert len(re.findall(rf"^{engine} +[\d.]+ \w+ +[\d.]+ \w+ to ", printed, re.MULTILINE)) == 4


def test_the_kernel_source_is_one_step_away() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(two_cosines)
    x = torch.randn(3, 4)
    compiled(x)
    record = compiler_core.already_compiled(compiled)
    assert "cos()" in compiler_core.editable_text(record, "forward.wrapper")
    assert torch.equal(compiler_core.decompiled(compiled)(x), compiled(x))


@ENGINES
def test_a_backend_removes_dropout(engine: str) -> None:
    model, x = nn.Sequential(nn.Linear(100, 3), nn.Dropout(0.3)), torch.randn(10, 100)
    graphs = []

    def without_dropout(gm: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        graphs.append([str(node.target) for node in gm.graph.nodes])
        for node in gm.graph.find_nodes(op="call_function", target=F.dropout):
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
        torch.fx.replace_pattern(gm, lambda x, w, b: F.linear(x, w, b), lambda x, w, b: x @ w.T + b)
        gm.recompile()
        graphs.append([str(node.target) for node in gm.graph.nodes])
        return gm.forward

    record = recorded(engine, model, (x,), backend=without_dropout)
    torch.testing.assert_close(compiled_by(engine, model, without_dropout)(x), model[0](x))
    before, after = graphs[:2]
    assert any("dropout" in target for target in before)
    assert not any("dropout" in target or "linear" in target for target in after)
    assert any("dropout" in call for call in captured(record)[0]), "the record has the graph that the backend got"
    (made,) = (artifact for artifact in record.artifacts if artifact.name == "backend.without_dropout")
    assert made.graph is not None
    assert [node.target.rpartition(".")[2] for node in made.graph.nodes if node.op.startswith("call")] == [
        *("T" if engine == "torch" else "getattr", "matmul", "add")
    ]


def bar(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


@ENGINES
def test_a_branch_makes_three_graphs(engine: str) -> None:
    with pytest.raises(torch.fx.proxy.TraceError):
        torch.fx.symbolic_trace(bar)
    a, b = torch.randn(10), torch.ones(10)
    record = recorded(engine, bar, (a, b), (a, -b))
    graphs = sorted((len(calls), [call.rpartition(".")[2] for call in calls]) for calls in captured(record))
    assert [size for size, _ in graphs] == [1, 2, 5]
    assert graphs[0][1] == ["mul"]
    assert graphs[1][1] == ["mul", "mul"]
    compiled = compiled_by(engine, bar)
    assert torch.equal(compiled(a, b), bar(a, b))
    assert torch.equal(compiled(a, -b), bar(a, -b))


def test_what_stock_backends_add() -> None:
    found = {}
    for backend in ("eager", "aot_eager", "inductor"):
        torch._dynamo.reset()
        x = torch.randn(10, requires_grad=True)
        with compiler_core.record(engine="torch") as record:
            torch.compile(two_cosines, backend=backend)(x).sum().backward()
        panes = [artifact.name for artifact in record.compiles[0].artifacts]
        found[backend] = [n for n in ("captured", "joint", "forward", "backward", "forward.wrapper") if n in panes]
    graphs = ["captured", "joint", "forward", "backward"]
    assert found == {"eager": ["captured"], "aot_eager": graphs, "inductor": [*graphs, "forward.wrapper"]}


@ENGINES
def test_what_can_be_compiled(engine: str) -> None:
    compile_: Any = torch.compile if engine == "torch" else compiler_core.compile

    @compile_(backend="eager")  # type: ignore[untyped-decorator]
    def decorated(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + x.cos()

    model, x = nn.Sequential(nn.Linear(10, 4), nn.ReLU()), torch.randn(3, 10)
    assert torch.equal(decorated(x), x.sin() + x.cos())
    assert torch.equal(compile_(two_cosines, backend="eager")(x), two_cosines(x))
    assert torch.equal(compile_(model, backend="eager")(x), model(x))
    assert torch.equal(compile_(model.forward, backend="eager")(x), model(x))


def f1(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.sum() < 0:
        return -y
    return y


def f2(x: Any, y: Any) -> Any:
    return x + y


def f3(x: torch.Tensor) -> torch.Tensor:
    import scipy.fft

    x = x * 2
    return torch.from_numpy(scipy.fft.dct(x.numpy())) * 2


@pytest.mark.filterwarnings("ignore")
def test_capture_methods() -> None:
    x, y = torch.rand(5, 5), torch.randn(5, 5)
    wrong, error, right = "silently wrong", "error", "right"
    expected: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...], tuple[str, ...]]] = {
        # trace, script, symbolic_trace, the same with concrete_args, export, stock, ours
        "branch": (f1, (x, y), (-x, y), (wrong, right, error, wrong, error, right, right)),
        "number": (f2, (x, 3), (y, 3), (error, error, right, wrong, right, right, right)),
        "scipy": (f3, (x,), (y,), (wrong, error, error, wrong, error, right, right)),
    }
    for name, (fn, args, other, verdicts) in expected.items():
        found = compiler_core.capture_methods(fn, args, other)
        assert (name, *(row.verdict for row in found.rows)) == (name, *verdicts)
        assert all(row.message for row in found.rows if row.verdict != right), "the error, or the values that differ"


@ENGINES
def test_where_it_breaks(engine: Any) -> None:
    torch._dynamo.reset()
    a, b = torch.randn(10), torch.ones(10)
    text = str(compiler_core.explain(bar, a, b, engine=engine))
    assert text.startswith("graphs: 2, graph breaks: 1, operations: 6, guards: ")
    where, why = r"break in \d+/0 at .*test_jobs\.py:\d+  if b\.sum\(\) < 0:", r"(?i:data-dependent branch)"
    assert re.search(rf"{where}\n +{why}", text)
    with pytest.raises(
        FullGraphError if engine == "core" else torch._dynamo.exc.Unsupported, match=r"(?i)data-dependent"
    ):
        compiled_by(engine, bar, fullgraph=True)(a, b)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    images = torch.randn(2, 3, 8, 8)
    if engine == "core":
        exported: Any = compiler_core.export(model, images)
        with pytest.raises(FullGraphError, match="data-dependent"):
            compiler_core.export(bar, a, b)
    else:
        exported = torch.export.export(model, (images,)).module()
    torch.testing.assert_close(exported(images), model(images))
