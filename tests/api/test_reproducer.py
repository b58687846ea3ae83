"""Reproducers: a stand-alone file with the smallest graph and inputs that show a fault of a compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.errors import CompilerBug, UsageError
from compiler_core.pipeline import graph as pipeline

pytestmark = pytest.mark.usefixtures("fresh_stock")


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
    lower = pipeline.lower  # type: ignore[attr-defined]

    def fails_at_softmax(gm: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        if any("exp.default" in str(node.target) for node in gm.graph.nodes):
            raise CompilerBug("planted")
        return lower(gm, *args, **kwargs)

    monkeypatch.setenv("CUTAWAY_CACHE_DIR", str(tmp_path))
    with monkeypatch.context() as planted:
        planted.setattr(pipeline, "lower", fails_at_softmax)
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


def test_a_call_without_a_fault() -> None:
    with pytest.raises(UsageError, match="none of the 1 graphs of this call shows a fault"):
        compiler_core.reproducer(model, *arguments(), backend="eager")
