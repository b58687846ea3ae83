"""Reproducers: a stand-alone file with the smallest graph and inputs that show a fault of a compiler."""

from __future__ import annotations

import dataclasses
import math
import random
import re
import runpy
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import compiler_core
from compiler_core.errors import CompilerBug, UsageError
from compiler_core.pipeline import graph as graph_stages
from tests.sampling import sample

pytestmark = pytest.mark.usefixtures("fresh_stock")

SCALE = 3


def model(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    h = (x @ w).relu()
    h = h.sin() + h.mean(-1, keepdim=True)
    return torch.softmax(h * 2, -1).cos(), h.sum()


def arguments() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(64, 32), torch.randn(32, 32)


def takes_sine_for_cosine(gm: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
    """A backend with a fault."""
    for node in gm.graph.nodes:
        if node.target in ("sin", torch.sin):
            node.target = "cos" if node.op == "call_method" else torch.cos
    gm.recompile()
    return gm.forward


def calls(text: str) -> list[str]:
    """Returns the operations of the graph in a file."""
    body = text.partition("):\n")[2].partition("return")[0]
    return [line.strip() for line in body.splitlines() if "=" in line]


def run(text: str, capsys: pytest.CaptureFixture[str]) -> float:
    """Runs a file, and returns the greatest difference that it prints."""
    exec(compile(text, "fault.py", "exec"), {"__name__": "__main__"})
    return max(float(line.rpartition(" ")[2]) for line in capsys.readouterr().out.splitlines())


def test_a_wrong_value_of_stock(capsys: pytest.CaptureFixture[str]) -> None:
    torch._dynamo.register_backend(takes_sine_for_cosine, name="faulty_for_a_test")
    text = compiler_core.reproducer(model, *arguments(), engine="torch", backend="faulty_for_a_test")
    assert [line.partition(" = ")[2] for line in calls(text)] == ["h.sin()"]
    assert "random_tensor((1, 1)" in text
    assert run(text, capsys) > 0.1


def test_a_compile_that_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lower = graph_stages.lower  # type: ignore[attr-defined]

    def fails_at_softmax(gm: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        if any("exp.default" in str(node.target) for node in gm.graph.nodes):
            raise CompilerBug("planted")
        return lower(gm, *args, **kwargs)

    monkeypatch.setenv("CUTAWAY_CACHE_DIR", str(tmp_path))
    with monkeypatch.context() as planted:
        planted.setattr(graph_stages, "lower", fails_at_softmax)
        text = compiler_core.reproducer(model, *arguments())
    assert len(calls(text)) == 1
    assert "softmax" in calls(text)[0]
    assert run(text, capsys) < 1e-5, "the fault is not planted any more"


def test_any_fault_of_a_graph() -> None:
    def has_a_mean(gm: torch.fx.GraphModule, _: Sequence[Any]) -> bool:
        return any(node.op == "call_method" and node.target == "mean" for node in gm.graph.nodes)

    text = compiler_core.reproducer(model, *arguments(), fails=has_a_mean)
    assert len(calls(text)) == 1
    assert ".mean(-1, keepdim=True)" in text


def test_a_fault_that_needs_the_very_values() -> None:
    def has_a_large_value(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
        adds = any(node.op == "call_function" for node in gm.graph.nodes)
        return adds and any(float(each.max()) > 1000 for each in inputs if isinstance(each, torch.Tensor))

    text = compiler_core.reproducer(lambda x: x + 1, torch.tensor([1.0, 2000.0]), fails=has_a_large_value)
    assert "torch.tensor([1.0, 2000.0], dtype=torch.float32, device='cpu')" in text


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([1.0, math.nan, -math.inf]),
        torch.tensor([1 + 2j, complex(math.nan, math.inf)]),
    ],
    ids=["real", "complex"],
)
def test_a_fault_that_needs_values_that_are_not_finite(value: torch.Tensor) -> None:
    def has_nan(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
        return any(bool(each.isnan().any()) for each in inputs if isinstance(each, torch.Tensor))

    file: dict[str, Any] = {}
    exec(compiler_core.reproducer(lambda x: x + 1, value, fails=has_nan), file)
    assert torch.view_as_real(file["inputs"]()[0] + 0j).isnan().any()


def test_a_call_without_a_fault() -> None:
    with pytest.raises(UsageError, match="none of the 1 graphs of this call shows a fault"):
        compiler_core.reproducer(model, *arguments(), backend="eager")


# ---------------------------------------------------------------- slow kernels and crashes


def test_a_slow_graph(capsys: pytest.CaptureFixture[str]) -> None:
    def sleeps_at_a_sine(gm: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        has_sine = any("sin" in str(node.target) for node in gm.graph.nodes)

        def run(*inputs: Any) -> Any:
            if has_sine:  # sleep(0) would take long, too, on a busy machine
                time.sleep(0.01)
            return gm.forward(*inputs)

        return run

    torch._dynamo.register_backend(sleeps_at_a_sine, name="slow_for_a_test")
    text = compiler_core.reproducer(model, *arguments(), of="slow", engine="torch", backend="slow_for_a_test")
    assert [line.partition(" = ")[2] for line in calls(text)] == ["h.sin()"]
    exec(compile(text, "slow.py", "exec"), {"__name__": "__main__"})
    assert len(capsys.readouterr().out.splitlines()) == 2  # the times of both, which depend on the machine


@pytest.mark.sweep
def test_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, torch\n"
        "def crashes(gm, _):\n"
        "    return (lambda *_: os.abort()) if 'cos' in gm.code else gm.forward\n"
        "torch._dynamo.register_backend(crashes, name='crashing_for_a_test')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    text = compiler_core.reproducer(
        lambda x: x.sin().cos() + 1, torch.ones(4), of="crash", engine="torch", backend="crashing_for_a_test"
    )
    assert [line.partition(" = ")[2] for line in calls(text)] == ["sin.cos()"]


# ---------------------------------------------------------------- graph breaks


def scaled(x: torch.Tensor) -> torch.Tensor:
    y = x * SCALE + math.pi
    print("called")
    return y


def breaking(x: torch.Tensor, w: torch.Tensor, times: int) -> torch.Tensor:
    h = torch.relu(x @ w)
    for i in range(times):
        h = h + i
    h = scaled(h)
    if h.sum() > 0:
        h = h * 2
    return h.mean()


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 4), nn.ReLU())
        self.limit, self.weight = 100, nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> Any:
        y = self.layers(x) * self.weight
        if y.max() > self.limit:
            y = -y
        return y.sum() + 1


@pytest.mark.parametrize(("engine", "kind"), [("core", "print (print())"), ("torch", "Failed to trace builtin")])
def test_a_break_in_a_function(engine: Any, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    x, w, times = *arguments(), 3
    text = compiler_core.reproducer(breaking, x, w, times, of="break", engine=engine)
    assert text.startswith(f'"""A graph break of {"Cutaway" if engine == "core" else "torch.compile"}: {kind}')
    program = text.partition("def inputs")[0]
    assert "def scaled(x):\n    print('called')\n" in program
    assert not re.search(r"SCALE|math|for i|mean|if h", program)
    assert "random_tensor((1, 1), (1, 1), torch.float32, 'cpu')" in text
    exec(compile(text, "broken.py", "exec"), {"__name__": "__main__"})
    assert kind in capsys.readouterr().out


@pytest.mark.parametrize("engine", sample(["core", "torch"], 2))
def test_a_break_in_a_module(engine: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = compiler_core.reproducer(Branching(), torch.randn(8, 16), of="break", engine=engine)
    assert "y.max() > self.limit" in text
    assert "y.sum()" not in text
    (tmp_path / "broken.py").write_text(text)
    runpy.run_path(str(tmp_path / "broken.py"), run_name="__main__")
    assert "data-dependent branch" in capsys.readouterr().out.lower()


@dataclasses.dataclass
class State:
    hidden: torch.Tensor
    scale: float = math.pi

    def scaled(self, times: int) -> torch.Tensor:
        return self.hidden * self.scale if times == 0 else self.scaled(times - 1)


def item(state: State, times: int) -> Any:  # has the name of a method that it calls, and calls itself
    if times == 0:
        return round(state.scaled(2).sum().item())
    return item(state, times - 1)


def test_a_break_with_a_dataclass_and_functions_that_call_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    text = compiler_core.reproducer(item, State(torch.ones(3)), 2, of="break", engine="core")
    assert "State(hidden=" in text
    exec(compile(text, "broken.py", "exec"), {"__name__": "__main__"})
    assert "tensor value read" in capsys.readouterr().out


def test_what_has_no_break_or_no_text() -> None:
    with pytest.raises(UsageError, match="the call has no graph break"):
        compiler_core.reproducer(model, *arguments(), of="break")
    with pytest.raises(UsageError, match="a Random cannot be written as Python text"):
        compiler_core.reproducer(drawing, torch.ones(2), random.Random(0), of="break")


def drawing(x: Any, generator: Any) -> Any:
    return x * generator.random() if x.sum() > 0 else x
