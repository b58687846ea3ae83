"""The table of symptoms in docs/site/how_to.md: each command runs, and prints what the table says."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import compiler_core
from compiler_core.config import CodeEdit, GraphPass
from compiler_core.records import Record
from compiler_core.tools.stock.hooks.trace_file import write_trace
from tests import warm_python
from tests.sampling import sample

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "site" / "how_to.md"
ROWS = re.findall(
    r"^\| ([^|]+) \| `(cutaway [^`]+)` \| ([^|]+) \|$", PAGE.read_text().partition("## From a terminal")[2], re.M
)
TRAIN = """
import torch

@torch.compile(backend="aot_eager")
def step(x, weight):
    for _ in range(3):
        x = (x @ weight).sin().cos()
    print("a break")
    return x.sum()

step(torch.ones(4096, 64), torch.full((64, 64), 0.1, requires_grad=True))  # saves nine times x for the backward
"""
SCALE = 2.0


def scaled(x: torch.Tensor) -> torch.Tensor:
    return ((x @ x) * SCALE).cos()


def with_dropout(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x.cos(), 0.5) + x.sin()


def edit_graph(gm: torch.fx.GraphModule) -> None:
    for node in gm.graph.nodes:
        if node.target is F.dropout:
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
        elif node.name == "add":
            with gm.graph.inserting_before(node):
                node.args = (node.args[0], gm.graph.call_function(torch.neg, (node.args[1],)))


def recorded_model() -> Record:
    """A model with a graph break and recompiles, that holds some MiB, and whose compile seems to have taken seconds."""
    model = nn.Sequential(nn.Linear(128, 512), nn.Tanh(), nn.Linear(512, 8))

    def step(x: torch.Tensor, mode: str) -> torch.Tensor:
        y = model(x)
        print("", end="", file=sys.stderr)
        result: torch.Tensor = y.sum() if mode == "sum" else y.mean()
        return result

    with compiler_core.record("a model") as record:
        compiled = compiler_core.compile(step, backend="cpp")
        for mode in ("sum", "mean"):
            compiled(torch.randn(1024, 128), mode).backward()
    for event in record.compiles[0].events:
        event.end = (event.end or 0) + 10_000_000_000
    return record


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Has the script and the records that the table names."""
    global SCALE
    folder = tmp_path_factory.mktemp("symptoms")
    (folder / "train.py").write_text(TRAIN)
    recorded_model().save(folder / "record.json")
    for name, value in (("yesterday", 2.0), ("today", 3.0)):
        SCALE = value
        compiler_core.reset()
        with compiler_core.record(name) as record:
            compiler_core.compile(scaled, backend="cpp")(torch.ones(4, 4))
        record.save(folder / f"{name}.json")
    (code,) = [each for each in record.compiles[0].artifacts if each.pane == "kernel"]
    name = record.compiles[0].generated_kernels[0].name
    original = next(code.lines(span) for span in code.spans if span.key == name)
    edit = CodeEdit(name, original, original.replace("3.0f", "4.0f"))
    with compiler_core.record("checked") as record:
        compiler_core.compile(scaled, backend="cpp", edits=[edit])(torch.ones(4, 4))
    compiler_core.check_accuracy(record)
    record.save(folder / "checked.json")
    with compiler_core.record("passes") as record:
        compiler_core.compile(with_dropout, passes=[GraphPass(edit_graph)])(torch.ones(4))
    record.save(folder / "passes.json")
    (folder / "traces").mkdir()
    torch._dynamo.reset()
    stop = write_trace(folder / "traces" / "rank_0.log")
    try:
        torch.compile(with_dropout, backend="aot_eager")(torch.ones(4))
    finally:
        stop()
    return folder


@pytest.mark.parametrize(("symptom", "command", "answer"), sample(ROWS, 3), ids=[row[0] for row in ROWS])
def test_a_symptom_is_answered_by_its_command(symptom: str, command: str, answer: str, folder: Path) -> None:
    program = ["-m", "kernel_magics.command", *shlex.split(command)[1:]]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = warm_python.run(program, cwd=folder, env=environment)
    promised = [each for each in re.findall(r"`([^`]+)`", answer) if not each.startswith("TORCH_TRACE")]
    printed = ran.stdout + ran.stderr
    assert [each for each in promised if each not in printed] == [], printed
    exit_codes = {"diff": 1, "run": 3 if "--fail-on" in program else 0}
    assert ran.returncode == exit_codes.get(program[2], ran.returncode)
    assert "Traceback" not in printed


def test_the_table_is_read() -> None:
    assert len(ROWS) >= 10
