"""What holds the memory at its peak: the owner by its name in the program, the line, and the inputs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import compiler_core
from compiler_core.records import Record
from compiler_core.tools.questions.counts import count
from compiler_core.tools.questions.line_facts import ComparedRun
from compiler_core.tools.questions.memory import Held, Peak, kept_in, memory_peak
from compiler_core.tools.stock.hooks.trace_file import write_trace
from compiler_core.tools.stock.trace_logs import read_logs
from kernel_magics.command.text import record_text

pytestmark = pytest.mark.slow
KEPT: list[torch.Tensor] = []
LATEST: torch.Tensor | None = None


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 512), nn.Linear(512, 64)
        self.kept: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.up(x).sigmoid()
        self.kept = h * 2
        result: torch.Tensor = self.down(h)
        return result


def trained(engine: Any, backend: str, model: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> Record:
    torch._dynamo.reset()
    compiler_core.reset()
    compile_: Callable[..., Any] = torch.compile if engine == "torch" else compiler_core.compile
    with compiler_core.record("training", engine=engine) as record:
        compile_(model, backend=backend)(*inputs).sum().backward()
    return record


def peak_of(record: Record) -> Peak:
    peak = memory_peak(record.compiles[0])
    assert peak is not None
    return peak


def line(record: Record, held: Held) -> str:
    run = ComparedRun(record)
    return run.text(run.line_of(held.node)).strip()


@pytest.mark.parametrize(("engine", "backend"), [("core", "cpp"), ("core", "aot_eager"), ("torch", "aot_eager")])
def test_a_models_memory_has_owners_and_lines(engine: Any, backend: str, tmp_path: Path) -> None:
    stop = write_trace(tmp_path / "trace.log")
    try:
        record = trained(engine, backend, Block(), torch.randn(600, 64))
    finally:
        stop()
    records = [record, Record.from_json(record.to_json())]
    records += read_logs(tmp_path) if engine == "torch" else []
    for each in records:
        peak = peak_of(each)
        assert peak.is_peak == bool(each.compiles[0].backend), "a log has no name of a backend"
        assert peak.bytes >= 2 * 600 * 512 * 4
        lines = {(held.kind, line(each, held)) for held in peak.held if held.bytes == 600 * 512 * 4}
        assert ("saved", "h = self.up(x).sigmoid()") in lines
        assert ("result", "self.kept = h * 2") in lines
        assert ("self.up.weight", 64 * 512 * 4) in peak.inputs
        assert peak.inputs[0] == ("x", 600 * 64 * 4)
        kept = [held.owner for held in peak.held if line(each, held) == "self.kept = h * 2" and held.kind == "result"]
        assert kept == ["self.kept"]  # of stock's by its line
        text = record_text(each, count(each))
        of_peak = r"at its peak, step \d+ of the (forward|backward \(if it runs\))"
        when = of_peak if peak.is_peak else "at the end of the forward"
        assert re.search(rf"memory: {when} of 0/0, \S+:\d+ forward holds ", text)
        assert "besides, its inputs take " in text


@pytest.mark.parametrize(("engine", "backend"), [("core", "cpp"), ("core", "aot_eager"), ("torch", "aot_eager")])
def test_gradients_are_named_by_their_parameters(engine: Any, backend: str) -> None:
    """A matrix with few rows of input: at the peak of the backward, there are mostly gradients."""
    peak = peak_of(
        trained(engine, backend, nn.Sequential(nn.Linear(400, 300), nn.Linear(300, 500)), torch.ones(2, 400))
    )
    assert peak.which == "backward"
    owners = {held.owner: held.bytes for held in peak.held if held.owner}
    names = {re.sub(r"self\.|_modules|[\[\]'\"]", "", name): size for name, size in owners.items()}
    assert 400 * 300 * 4 in names.values()
    assert any(name.startswith("the gradient of ") and name.endswith("weight") for name in names), names


def appended(x: torch.Tensor) -> torch.Tensor:
    global LATEST
    y = x.cos()
    KEPT.append(y)
    LATEST = y * 3
    return LATEST.sum()


@pytest.mark.parametrize(("line", "owner"), [
    ("self.kept = h * 2", "self.kept"),
    ("self.kept.append(h.detach())  # for the loss", "self.kept"),
    ("cache['h'] = h", "cache['h']"),
    ("self.total += loss", "self.total"),
    ("return h * 2", ""),
    ("h = self.up(x)", ""),
    ("self.log(h)", ""),
])  # fmt: skip
def test_a_line_says_what_keeps_its_value(line: str, owner: str) -> None:
    assert kept_in(line) == owner


def test_lists_and_globals_are_named() -> None:
    peak = peak_of(trained("core", "cpp", appended, torch.ones(1000, requires_grad=True)))
    assert {"KEPT", "LATEST"} <= {held.owner for held in peak.held}
    KEPT.clear()


class Rollout(nn.Module):
    """A module that keeps its outputs, which the backward uses, too."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(32, 32)
        self.outputs: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(6):
            x = self.cell(x).tanh()
            self.outputs.append(x)
        return x


@pytest.mark.parametrize(("engine", "backend"), [("core", "cpp"), ("torch", "aot_eager")])
def test_what_the_program_keeps_is_held_until_the_end_of_the_backward(engine: Any, backend: str) -> None:
    peak = peak_of(trained(engine, backend, Rollout(), torch.randn(600, 32)))
    assert peak.which == "backward"
    kept = [held for held in peak.held if held.kind == "result" and held.bytes == 600 * 32 * 4]
    assert len(kept) == 6
    assert engine == "torch" or {held.owner for held in kept} == {"self.outputs"}


class Maps(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.maps: list[torch.Tensor] = []
        self.last: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = x @ x.t()
        attention = scores.softmax(-1)
        self.maps.append(attention)
        scores = attention * 2
        self.last = scores
        return scores.sum()


@pytest.mark.parametrize(("engine", "backend"), [("core", "cpp"), ("torch", "aot_eager")])
def test_a_later_line_that_keeps_a_value_names_its_owner(engine: Any, backend: str) -> None:
    peak = peak_of(trained(engine, backend, Maps(), torch.randn(600, 32, requires_grad=True)))
    owners = [held.owner for held in peak.held if held.kind == "result" and held.bytes == 600 * 600 * 4]
    assert sorted(owners) == ["self.last", "self.maps"]


def test_of_stocks_kernels_only_what_the_forward_leaves_is_known(tmp_path: Path) -> None:
    """Its kernels fuse operations, so that a sum of their results would be many times too large."""

    def model(x: torch.Tensor) -> torch.Tensor:
        y = (x @ x.t()).sin()
        for _ in range(3):
            y = (y * 2).cos().sum(1, keepdim=True) + y
        return y.sum()

    record = trained("torch", "inductor", model, torch.ones(600, 600, requires_grad=True))
    peak = peak_of(record)
    assert (peak.is_peak, {held.kind for held in peak.held}) == (False, {"saved", "result"})
    assert record.compiles[0].partition is not None
    assert peak.saved_bytes == record.compiles[0].partition.saved_bytes - 600 * 600 * 4, "without the argument"
    assert "memory: at the end of the forward of 0/0, " in record_text(record, count(record))


class Momentum:
    """An optimizer whose step is compiled."""

    def __init__(self, size: int) -> None:
        self.state = {"momentum": torch.zeros(size)}

    def step(self, gradient: torch.Tensor) -> torch.Tensor:
        return self.state["momentum"] * 0.9 + gradient


@pytest.mark.parametrize("engine", ["core", "torch"])
def test_the_states_of_an_optimizer_are_inputs_by_name(engine: Any) -> None:
    optimizer = Momentum(5000)
    compile_: Callable[..., Any] = torch.compile if engine == "torch" else compiler_core.compile
    with compiler_core.record(engine=engine) as record:
        compile_(optimizer.step, backend="aot_eager")(torch.ones(5000))
    assert sorted(peak_of(record).inputs) == [("gradient", 20_000), ("self.state['momentum']", 20_000)]


def test_parameters_and_states_of_stocks_optimizer_are_inputs() -> None:
    weight = torch.nn.Parameter(torch.ones(5000))
    weight.grad = torch.ones(5000)
    optimizer = torch.optim.Adam([weight])
    with compiler_core.record(engine="torch") as record:
        torch.compile(optimizer.step, backend="aot_eager")()
    (peak,) = [peak for each in record.compiles if (peak := memory_peak(each))]
    large = [name for name, size in peak.inputs if size == 20_000]
    assert len(large) == 4  # the gradient, the parameter and its two states


def test_a_record_without_graphs_has_no_peak() -> None:
    with compiler_core.record() as record:
        compiler_core.compile(lambda: 1)()
    assert all(memory_peak(each) is None for each in record.compiles)
    assert "memory:" not in record_text(record, count(record))
