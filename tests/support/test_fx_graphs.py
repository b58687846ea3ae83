"""Tests of graphs as text: forward and backward are functions that a user can copy and run."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from compiler_core.autograd.joint import trace_joint
from compiler_core.autograd.partition import partition
from compiler_core.support.fx_graphs import graph_text
from tests.cases.captured import capture, fresh
from tests.cases.training_models import MODELS
from tests.sampling import sample


def function_of(text: str, name: str) -> Callable[..., Any]:
    """Returns the function that a text defines, executed without other globals."""
    scope: dict[str, Any] = {"__builtins__": __builtins__}
    exec(text, scope)
    result: Callable[..., Any] = scope[name]
    return result


def run_texts_as_eager(function: Callable[..., Any], inputs: list[torch.Tensor]) -> dict[str, str]:
    """Runs the texts of all graphs on new inputs, compares them with eager, and returns them."""
    captured = capture(function, *inputs)
    parts = partition(trace_joint(captured.gm, captured.inputs, captured.compile), captured.compile)
    texts = {a.name: a.text for a in captured.compile.artifacts}
    values = fresh(captured)
    torch.manual_seed(1)
    wanted = captured.gm(*[v.clone() for v in values])
    torch.manual_seed(1)
    same(function_of(texts["captured"], "captured")(*[v.clone() for v in values]), wanted)
    tangents = [torch.randn_like(w) for w in wanted if w.requires_grad]
    gradients = torch.autograd.grad(
        [w for w in wanted if w.requires_grad], [v for v in values if v.requires_grad], tangents, allow_unused=True
    )
    torch.manual_seed(1)
    with torch.no_grad():
        results = function_of(texts["forward"], "forward")(*values)
        count = len(parts.joint.outputs)
        saved = results[count:]
        found = function_of(texts["backward"], "backward")(*saved, *tangents)
    assert len(parts.joint.mutations) + len(wanted) == count
    same(results[: len(wanted)], wanted)
    same([g for g, v in zip(found, values, strict=True) if v.requires_grad], gradients)
    return texts


def same(found: Any, wanted: Any) -> None:
    assert len(found) == len(wanted)
    for ours, eager in zip(found, wanted, strict=True):
        assert (ours is None) == (eager is None)
        if eager is not None:
            torch.testing.assert_close(ours, eager, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", sample(MODELS, 5))
def test_texts_of_models_run_as_they_stand(name: str) -> None:
    torch.manual_seed(0)
    function, inputs = MODELS[name](16)
    run_texts_as_eager(function, inputs)


def test_the_names_that_a_text_needs_are_imported() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.masked_fill(torch.ones(4, 4, dtype=torch.bool).triu(1), -math.inf).softmax(-1)
        return (F.gelu(y) + torch.tensor([1.0, math.inf, math.nan, 4.0])).nan_to_num(0.5, 2.0).double()

    texts = run_texts_as_eager(function, [torch.randn(4, 4, requires_grad=True)])
    head, _, _ = texts["forward"].partition("def forward(")
    assert head.split("\n") == [
        "import torch",
        "from torch import device",
        "from math import inf",
        "from math import nan",
        "aten = torch.ops.aten",
        "",
        "",
    ]
    assert "torch.tensor([1.0, inf, nan, 4.0], dtype=torch.float32)" in texts["forward"]


def test_large_constants_are_attributes_of_the_first_parameter() -> None:
    numbers = list(range(100))
    captured = capture(lambda x: x * torch.tensor(numbers), torch.randn(100, requires_grad=True))
    joint = trace_joint(captured.gm, captured.inputs, captured.compile)
    text, spans = graph_text(joint.gm.graph, "joint")
    lines = text.split("\n")
    assert "    self," in lines
    assert {lines[s.first - 1].strip().split(":")[0].split(" ")[0] for s in spans} >= {"primals_1", "mul", "return"}
    x, tangent = torch.randn(100), torch.randn(100)
    result, gradient = function_of(text, "joint")(joint.gm, x, tangent)
    torch.testing.assert_close(result, x * torch.arange(100))
    torch.testing.assert_close(gradient, tangent * torch.arange(100))
