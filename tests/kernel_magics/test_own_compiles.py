"""A cell that uses stock `torch.compile` itself runs as written, and the record has what that did."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import kernel_magics
from compiler_core.records import Record
from kernel_magics.display.record_view import RecordView

pytestmark = pytest.mark.usefixtures("fresh_stock")

SETUP = """
import torch
from torch import nn
calls = []
def own(graph, inputs):
    calls.append(len(graph.graph.nodes))
    return graph.forward
def f(x, n):
    if x.sum() > 0:
        return x * n
    return x - n
def make(fn):
    return torch.compile(fn, backend=own)
class Trainer:
    def __init__(self, model):
        self.model = model
class Step:
    def __init__(self, fn):
        self.fn = fn
    def __call__(self, x):
        return self.fn(x, 2)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 2)
    def forward(self, x):
        return self.linear(x).relu()
x = torch.linspace(-1, 2, 6)
compiled = torch.compile(f, backend=own)
net = torch.compile(Net(), backend=own)
compiled_in_place = Net()
compiled_in_place.compile(backend=own)
whole = nn.Sequential(nn.Identity(), torch.compile(Net(), backend=own))
trainer = Trainer(net)
step = Step(compiled)
class Loop:
    def __init__(self):
        self.compile = list
loop = Loop()
import re
"""


def ran(shell: InteractiveShell, cell: str) -> tuple[Record, Any]:
    """Runs a cell; returns its record and its value."""
    with capture_output():
        if "compiled_in_place" not in shell.user_ns:
            shell.run_cell(SETUP)
        result = shell.run_cell(cell)
    assert result.success
    record = kernel_magics.last_record()
    assert isinstance(record, Record)
    return record, result.result


def is_as_written(record: Record) -> bool:
    return any("so it ran as written" in note for note in record.notes)


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ("@torch.compile(backend=own)\ndef g(x):\n    return x + 1\ng(x)", ["g"]),
        ("h = torch.compile(f, backend=own)\nfor n in range(3):\n    h(x, n)", ["f"]),
        ("from torch import compile as c\nimport torch as t\nh = t.compile(f, backend=own)\nh(x, 3)", ["f"]),
        ("make(f)(x, 3)", ["f"]),
        ("compiled(x, 3)", ["f"]),
        ("net(x).sum().backward()", ["forward"]),
        ("compiled_in_place(x)", ["forward"]),
        ("whole(x)", ["forward"]),
        ("trainer.model(x)", ["forward"]),
        ("step(x)", ["f"]),
        ("new = Net()\nnew.compile(backend=own)\nnew(x)", ["forward"]),
    ],
)
def test_what_torch_compile_does_in_a_cell_is_recorded_as_written(
    magics: InteractiveShell, cell: str, names: list[str]
) -> None:
    record, _ = ran(magics, f"%%compile\n{cell}")
    assert is_as_written(record)
    assert record.engine == "torch"
    found = {
        frame.name for frame in record.frames if frame.compiles and not frame.name.startswith("torch_dynamo_resume")
    }
    assert found == set(names)
    assert magics.user_ns["calls"]  # the user's backend made the graphs
    assert magics.user_ns["calls"] == [len(graph.nodes) for graph in captured(record)]


def captured(record: Record) -> list[Any]:
    return [
        artifact.graph
        for compile_ in record.compiles
        for artifact in compile_.artifacts
        if artifact.pane == "captured" and artifact.graph is not None
    ]


@pytest.mark.parametrize(
    "cell",
    [
        "f(x, 2)",
        "re.compile('a')",
        "loop.compile(x)",
        "import torch as t\nt.compiler.is_compiling()",
        "def g(x):\n    return x.cos()\ng(x)",
        "torch.compiler.disable(f)(x, 2)",
    ],
)
def test_other_cells_are_compiled_whole(magics: InteractiveShell, cell: str) -> None:
    record, _ = ran(magics, f"%%compile\n{cell}")
    assert not is_as_written(record)
    assert record.engine == "core"


@pytest.mark.parametrize("option", ["--engine core", "--backend eager", "--dynamic", "--engine torch --backend eager"])
def test_an_option_that_says_how_to_compile_compiles_the_whole_cell(magics: InteractiveShell, option: str) -> None:
    record, _ = ran(magics, f"%%compile {option}\ny = compiled(x, 2) + 1")
    assert not is_as_written(record)
    assert "<module>" in {frame.name for frame in record.frames}


def test_a_note_names_what_was_compiled_before(magics: InteractiveShell) -> None:
    ran(magics, "%%compile\ncompiled(x, 2)")
    record, _ = ran(magics, "%%compile\ncompiled(x, 2)")
    assert not record.compiles
    assert "`compiled`, which is compiled by torch.compile" in record.notes[-1]
    assert "compiled nothing in it" in record.notes[-1]


def test_it_is_timed_beside_plain_pytorch(magics: InteractiveShell) -> None:
    cell = "seen = []\ndef own2(graph, inputs):\n    seen.append(1)\n    return graph.forward\n"
    record, _ = ran(magics, f"%%compile --time\n{cell}torch.compile(lambda x: x.cos() + 1, backend=own2)(x)")
    assert is_as_written(record)
    assert record.timings is not None
    assert [row.name for row in record.timings.rows] == ["eager", "compiled"]


def test_plain_runs_of_it_do_not_compile(magics: InteractiveShell) -> None:
    record, _ = ran(magics, "%%compile\nvalue = compiled(x, 2)")
    calls = list(magics.user_ns["calls"])
    assert len(record.compiles) == len(calls)
    view = RecordView.latest
    assert view is not None
    assert view.experiments is not None
    made = view.experiments.run("core", None, lambda text, share: None)
    assert made.record.engine == "core"
    assert not made.record.comparison.values  # type: ignore[union-attr]
    # of the three runs only that of the core engine, which leaves the function to stock, may compile
    assert magics.user_ns["calls"] == calls


def test_advice_on_it_is_tried(magics: InteractiveShell) -> None:
    record, _ = ran(magics, "%%compile --try-advice\nfor i in range(3):\n    compiled(x, i + 2)")
    assert is_as_written(record)
    advised = [trial for problem in record.problems for trial in problem.tried]
    assert any(trial.outcome == "helps" and "torch.where" in trial.change for trial in advised)


@pytest.mark.parametrize("change", ["--dynamic", "--backend eager", "--mode default"])
def test_what_its_own_arguments_say_is_not_changed_from_outside(magics: InteractiveShell, change: str) -> None:
    ran(magics, "%%compile\nvalue = compiled(x, 2)")
    with capture_output() as output:
        result = magics.run_cell(f"%what_if {change}")
    assert not result.success
    assert "the cell uses torch.compile itself: change its arguments there" in str(result.error_in_exec) + output.stderr
    with capture_output():
        assert magics.run_cell("%what_if --mark-dynamic x:0").success
