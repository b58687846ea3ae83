"""Small programs in the manner of how people write models: what stock captures as one graph, ours does, too."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.tools.testing import Comparison, Exact, ObservedRun, observe
from tests.sampling import sample
from tests.sweeps.snippets.corpus import PROGRAMS, Program

for path in sorted(Path(__file__).with_name("snippets").glob("*.py")):
    importlib.import_module(f"tests.sweeps.snippets.{path.stem}")

STOCK_ONLY = {
    "generation.greedy": "inference mode is entered: outputs of the graph would have to be inference tensors",
}
"""Programs that stock captures as one graph and ours does not, with the reason.  At most ten."""

IN_EACH_RUN = 40
"""Each of so many programs is in every run of the suite."""


@pytest.mark.parametrize("name", sample(PROGRAMS, IN_EACH_RUN))
@pytest.mark.filterwarnings("ignore")
def test_captured_whole_if_stock_does(name: str) -> None:
    program = PROGRAMS[name]
    want = _run(program, program.function)
    assert want.raised is None
    got = _run(program, compiler_core.compile(program.function, backend="eager", fullgraph=True, strict=True))
    if got.raised is None:
        assert name not in STOCK_ONLY, "ours captures it now"
        assert Comparison(Exact()).compare("", want, got) is None
        return
    torch._dynamo.reset()
    stock = _run(program, torch.compile(program.function, backend="eager", fullgraph=True))
    assert stock.raised is None, f"neither engine captures it: {got.raised}"
    assert name in STOCK_ONLY, got.raised


def test_few_are_left_to_stock() -> None:
    assert len(STOCK_ONLY) <= 10
    assert STOCK_ONLY.keys() <= PROGRAMS.keys()


def _run(program: Program, function: Callable[..., Any]) -> ObservedRun:
    return observe(function, program.inputs, 0, program=program.function, grad=program.grad)
