"""Floats among a program's inputs as a tensor on the GPU, for launches that are replayed, tested without a GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.backends.cuda_graphs import replay_obstacle
from compiler_core.loops import ir
from compiler_core.loops.schedule.inputs import NumbersInput, numbers_in_memory
from compiler_core.pipeline import graph
from compiler_core.records import from_plain, to_plain
from compiler_core.support.size_expr import Real


def f(x: torch.Tensor, rate: float) -> torch.Tensor:
    return x * rate - (rate + 1)


@pytest.fixture(autouse=True)
def _empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUTAWAY_CACHE_DIR", str(tmp_path))


def program(device: str, monkeypatch: pytest.MonkeyPatch) -> ir.Program:
    """The program of `f` whose rate has changed, on a device."""
    seen: list[ir.Program] = []

    def look(program: ir.Program) -> tuple[ir.Program, None]:
        seen.append(program)
        return program, None

    monkeypatch.setattr(graph, "numbers_in_memory", look)
    run = compiler_core.compile(f, mode="reduce-overhead", backend="cpp")
    for rate in (0.5, 0.25):
        run(torch.ones(4), rate)
    buffers = {name: replace(b, device=torch.device(device)) for name, b in seen[-1].buffers.items()}
    return replace(seen[-1], buffers=buffers)


def test_a_float_becomes_an_element_of_the_last_input(monkeypatch: pytest.MonkeyPatch) -> None:
    before = program("cuda:0", monkeypatch)
    after, numbers = numbers_in_memory(before)
    assert replay_obstacle(before)
    assert not replay_obstacle(after)
    assert numbers is not None
    assert (numbers.tensors, after.inputs[-1]) == ([0], "numbers")
    assert "load numbers[0]" in after.text()
    assert from_plain(json.loads(json.dumps(to_plain(numbers))), NumbersInput, "") == numbers
    scope: dict[str, Any] = {"operator": __import__("operator")}
    exec(numbers.source, scope)
    assert sorted(scope["numbers"](["x", 0.25, 1.25][: len(before.inputs)])) == [0.25, 1.25]


def test_on_the_cpu_floats_stay_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    before = program("cpu", monkeypatch)
    assert numbers_in_memory(before) == (before, None)


def test_where_an_operator_of_pytorch_takes_a_number_too_they_stay_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    before = program("cuda:0", monkeypatch)
    (name,) = {n for s in before.steps if isinstance(s, ir.Loops) for n in s.scalars} & {before.inputs[1]}
    view = ir.TensorView(before.inputs[0], (4,), (1,))
    call = ir.Call("taken", torch.ops.aten.add.Scalar, (view, [Real(name)]), {}, (before.inputs[0],))
    assert numbers_in_memory(before.with_steps([*before.steps, call]))[1] is None
