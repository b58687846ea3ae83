"""The notebook that opens, compares and changes what was compiled, run from top to bottom: its answers hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from kernel_magics import demo
from tests.sampling import sample

pytestmark = pytest.mark.slow

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "02_opening_and_changing.ipynb"


SMALLER = {"(1, 1, 1, 2, 2, 4, 4, 8, 8)": "(1, 1, 2)", "nn.Linear(8 * width": "nn.Linear(2 * width"}
"""A residual network of two blocks in the place of ResNet-18's eight."""
PARAMETERS = {"smaller": 20, "whole": 62}


@pytest.fixture(scope="module", params=sample(PARAMETERS, 2))
def size(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def printed(size: str, warm_kernels: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The text that each cell printed, by the cell's id.  Its timings are shorter than in the notebook."""
    copy = tmp_path_factory.mktemp("opening") / NOTEBOOK.name
    text = NOTEBOOK.read_text().replace("seconds=0.4", "seconds=0.1")
    for whole, smaller in (SMALLER if size == "smaller" else {}).items():
        assert whole in text
        text = text.replace(whole, smaller)
    copy.write_text(text)
    return {cell["id"]: _text(cell) for cell in demo.execute(copy) if cell["cell_type"] == "code"}


def _text(cell: Any) -> str:
    outputs = (o for o in cell["outputs"] if o.get("name") != "stderr")  # there PyTorch warns of what the machine lacks
    return "".join(o.get("text") or o.get("data", {}).get("text/plain", "") for o in outputs)


def test_the_committed_notebook_has_no_outputs() -> None:
    cells = [c for c in nbformat.read(NOTEBOOK, as_version=4).cells if c.cell_type == "code"]
    assert not any(c.outputs or c.execution_count for c in cells)


def test_two_sizes_become_one_symbolic_size_on_both_engines(printed: dict[str, str]) -> None:
    core, stock = printed["walk-run"].split("torch\n")
    for engine in (core, stock):
        compiles = re.findall(r"(root|resume) +(\S+) +sizes \[(\S+)\] +\d+ guards", engine)
        assert [(kind, id_) for kind, id_, _ in compiles] == [
            ("root", "0/0"), ("root", "0/1"), ("resume", "1/0"), ("resume", "1/1"),
        ]  # fmt: skip
        assert [size.startswith("'s") for *_, size in compiles] == [False, True, False, True]
        assert engine.count("since ") == 2


def test_entries_have_guards_decompiled_code_and_kernels(printed: dict[str, str]) -> None:
    text = printed["entries-show"]
    assert text.count("def guards(L, G):") == 2
    assert re.search(r"check_tensor\(L\['a'\].*# \d+ ns; return torch\.add\(a, b\)\.relu\(\)", text)
    assert "__graph_out = graph_" in text
    assert "__compiled_fn_" in text
    assert printed["entries-kernel"].startswith('extern "C" void forward_0(')


def test_the_folder_has_all_and_its_files_run(printed: dict[str, str]) -> None:
    files = {*printed["files-save"].split()}
    assert {f"0_0/{name}" for name in ("guards.py", "decompiled.py", "captured.py", "forward.cpp")} <= files
    assert "0_0/run_forward.py" in files


def test_symbolic_trace(printed: dict[str, str]) -> None:
    traced, ours = printed["symbolic-module"].strip().splitlines()
    assert {"call_module", "call_function", "call_method", "get_attr"} <= {*re.findall(r"\w+", traced)}
    assert "call_module" not in ours
    branch = printed["symbolic-branch"]
    assert "cannot be used as inputs to control flow" in branch
    assert len(re.findall(r":captured ", branch)) == 3


def test_concrete_args_fix_a_value_and_ours_guards_it(printed: dict[str, str]) -> None:
    text = printed["symbolic-concrete"]
    assert "if " not in text
    assert "ours, with True and False: [2.0, 2.0, 2.0] [1.0, 1.0, 1.0]" in text


def test_a_backend_removes_dropout(printed: dict[str, str]) -> None:
    before, after = printed["backend-dropout"].strip().splitlines()
    assert "dropout" in before
    assert "dropout" not in after.partition("[")[2]
    assert "linear" in after


def test_naive_and_planned(printed: dict[str, str]) -> None:
    text = printed["graphs-saved"]
    assert "save everything  2 tensors  1,000 bytes" in text
    assert "minimum cut      1 tensor     500 bytes" in text
    assert "class Compiled(torch.autograd.Function):" in text
    plans = printed["graphs-plans"].splitlines()
    assert [line.partition(":")[0] for line in plans[:3]] == ["save everything", "default", "minimum cut"]


def test_why_there_is_no_cuda_graph(printed: dict[str, str]) -> None:
    assert re.match(r"forward (not replayed: CUDA graphs need CUDA tensors|replayed)", printed["cuda-graphs-why"])


def test_frames(printed: dict[str, str]) -> None:
    text = printed["frames-show"]
    assert re.search(r"helper +In\[\d+\]:1 +1 +inlined into", text)
    assert re.search(r"calls +In\[\d+\]:\d+ +1 +compiled as", text)
    assert re.search(r"log +In\[\d+\]:\d+ +1 +skipped: ", text)


def test_what_can_be_compiled(printed: dict[str, str]) -> None:
    assert [line.split()[0] for line in printed["ways-all"].splitlines()] == [
        "function",
        "decorator",
        "module",
        "method",
    ]


def test_bar_as_a_table(printed: dict[str, str]) -> None:
    assert printed["table-bar"].count("opcode ") == 3


@pytest.mark.parametrize(("cell", "calls"), [("fair-time", 1), ("resnet-time", 2), ("vit-time", 1)])
def test_times(printed: dict[str, str], cell: str, calls: int) -> None:
    found = re.findall(r"^core +[\d.]+ \ws +[\d.]+ \ws to [\d.]+ \ws", printed[cell], re.MULTILINE)
    assert len(found) == calls
    assert printed[cell].count("0 problems") >= calls


def test_resnet_is_exported(printed: dict[str, str], size: str) -> None:
    assert re.match(rf"\d+ nodes; {PARAMETERS[size]} parameters", printed["resnet-export"])


def test_an_edited_kernel_is_tried(printed: dict[str, str]) -> None:
    assert "forward_0: the same values" in printed["edit-right"]
    assert "In the cell: the values of plain PyTorch" in printed["edit-right"]
    assert "more than rounding" in printed["edit-wrong"]
    assert "out of range: it stores 48 bytes outside of out_add, 352 bytes after its end" in printed["edit-wrong"]
    assert "tanh: f32 = tanh(mul)" in printed["edit-wrong"]
    assert "forward_0.loops: WRONG" in printed["edit-wrong"]
    assert "Nothing is edited" in printed["edit-revert"]


def test_what_if(printed: dict[str, str]) -> None:
    assert re.search(r"kernels +1 +2", printed["what-if-apart"])
    assert "values: the same" in printed["what-if-apart"]
    assert "kernel time" in printed["what-if-split"]
    assert "float32[s" in printed["what-if-dynamic"]


def test_a_graph_break_becomes_a_file(printed: dict[str, str]) -> None:
    core, stock = printed["reproduce-break"].split('"""A graph break of torch.compile')
    for text in (core, stock):
        assert "if x.sum() > 0:" in text
        assert "x.sin()" not in text
        assert "random_tensor((1, 1)" in text
