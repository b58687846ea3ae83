"""Timing kernels: each has a time or a reason why not, and no state of the user changes."""

from __future__ import annotations

import functools
import gc
import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import compiler_core
from compiler_core.errors import UsageError
from compiler_core.records import Kernel, Record
from compiler_core.tools import measure as timing
from compiler_core.tools.accuracy import check_accuracy
from compiler_core.tools.measure import measure
from compiler_core.tools.timing.device_timer import WHOLE, Clock, time_parts, time_wholes

pytestmark = pytest.mark.slow


def recorded(program: Any, *inputs: Any, **options: Any) -> Record:
    with compiler_core.record() as result:
        value = compiler_core.compile(program, strict=True, **options)(*inputs)
        if isinstance(value, torch.Tensor) and value.requires_grad:
            value.sum().backward()
    return result


def kernels(record: Record) -> list[Kernel]:
    return [k for c in record.compiles for k in c.kernels]


def all_timed(record: Record) -> None:
    assert record.notes == []
    assert kernels(record)
    assert all(k.time_ns is not None and k.time_ns > 0 and k.timed_on == "cpu" for k in kernels(record))


def program(x: torch.Tensor, w: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(F.gelu(x.t() @ w), (8,))[at].sum(0)


INPUTS = torch.randn(16, 6), torch.randn(16, 8, requires_grad=True), torch.tensor([0, 5, 5])

WIDE = torch.randn(16, 6), torch.randn(6, 8, requires_grad=True)


def test_every_kernel_and_call_of_both_graphs_is_timed() -> None:
    record = recorded(program, *INPUTS)
    assert {(k.graph, k.language == "extern") for k in kernels(record)} == {
        ("forward", True), ("forward", False), ("backward", True), ("backward", False),
    }  # fmt: skip
    assert all(k.time_ns is None for k in kernels(record)), "never on the way of a plain run"
    measure(record)
    all_timed(record)
    (device,) = record.devices
    assert device.target == "cpu"
    assert device.copy > 0.1
    assert Record.from_json(record.to_json()) == record


def test_a_run_is_timed_as_a_whole_and_in_eager_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = recorded(program, *INPUTS)
    in_turn: list[int] = []

    def counted(runs: list[Any]) -> list[float]:
        in_turn.append(len(runs))
        return time_wholes(runs)

    monkeypatch.setattr(timing, "time_wholes", counted)
    measure(record)
    assert in_turn == [4], "forward and backward of both forms are timed in turn"
    (compile_,) = record.compiles
    wholes = {(each.graph, each.form): each.ns for each in compile_.graph_times}
    assert wholes.keys() == {(graph, form) for graph in ("forward", "backward") for form in ("compiled", "eager")}
    for graph in ("forward", "backward"):
        parts = [getattr(each, f"{graph}_ns") for each in compile_.eager_times]
        assert 0 < sum(parts) <= wholes[graph, "eager"] * 1.001
    captured = compile_.find("captured").graph
    assert captured is not None
    operations = {node.key for node in captured.nodes if node.op.startswith("call_")}
    assert {each.node.rpartition("#")[2] for each in compile_.eager_times} == operations
    trace = json.loads(compiler_core.save_trace(record, tmp_path / "a.trace.json").read_text())["traceEvents"]
    run = [event for event in trace if event["pid"] == 2 and event["ph"] == "X"]
    assert {event["name"] for event in run} == {k.name for k in kernels(record)} | operations


@pytest.mark.parametrize(
    ("fn", "inputs", "options"),
    [
        (lambda x, n: (x * n).cos().reshape(-1, x.shape[0]), (torch.randn(6, 4), 3), {"dynamic": True}),
        (lambda x: F.dropout(x.tanh(), 0.5), (torch.randn(8, requires_grad=True),), {}),
        (lambda x, at: F.embedding(at, x).relu_(), (torch.randn(8, 4, requires_grad=True), torch.tensor([7])), {}),
        (lambda x: x.add_(1).sum(), (torch.randn(8),), {}),
    ],
    ids=["symbolic sizes", "random", "in place", "writes to an input"],
)
def test_eager_pytorch_is_timed_for_graphs_of_all_kinds(fn: Any, inputs: Any, options: dict[str, Any]) -> None:
    record = recorded(fn, *inputs, **options)
    measure(record)
    assert record.notes == []
    assert all(compile_.eager_times for compile_ in record.compiles)


def test_a_whole_step_is_timed_in_eager_pytorch() -> None:
    """The backward in the graph is timed by the operations that it belongs to."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return x.sum()

    record = recorded(step, torch.randn(6, 4), capture_backward=True)
    measure(record)
    assert record.notes == []
    (compile_,) = record.compiles
    assert {(each.graph, each.form) for each in compile_.graph_times} == {
        ("forward", "compiled"),
        ("forward", "eager"),
    }
    (whole,) = (each.ns for each in compile_.graph_times if each.form == "eager")
    times = {each.node.rpartition("#")[2]: each for each in compile_.eager_times}
    assert all(times[name].backward_ns > 0 for name in ("linear", "relu", "square"))
    assert "grad" not in times
    assert sum(each.forward_ns + each.backward_ns for each in times.values()) <= whole * 1.001


def test_programs_are_timed_as_wholes_in_turn() -> None:
    order: list[int] = []

    def run(which: int, clock: Clock) -> None:
        order.append(which)
        clock.begin(WHOLE)
        clock.end(WHOLE)

    time_wholes([functools.partial(run, which) for which in range(2)])
    assert {*zip(order[::2], order[1::2], strict=True)} == {(0, 1), (1, 0)}


def test_no_state_of_the_user_changes() -> None:
    x, w, at = (t.detach().clone() for t in INPUTS)
    record = recorded(program, x, w.requires_grad_(), at)
    kept, state = [t.clone() for t in (x, w, at)], torch.get_rng_state()
    assert w.grad is not None
    gradient = w.grad.clone()
    measure(record)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip((x, w, at), kept, strict=True))
    assert torch.equal(w.grad, gradient)


def test_no_tensor_is_left() -> None:
    record = recorded(program, *INPUTS)
    gc.collect()

    def tensors() -> int:
        return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())

    gc.disable()
    try:
        before = tensors()
        measure(record)
        check_accuracy(record)
        assert tensors() <= before
    finally:
        gc.enable()


def test_a_record_from_a_file_is_refused(tmp_path: Path) -> None:
    result = recorded(program, *INPUTS)
    for artifact in result.compiles[0].artifacts:
        if artifact.name.endswith(".wrapper"):
            artifact.text += f"open({str(tmp_path / artifact.name)!r}, 'w').close()\n"
    read = Record.from_json(result.to_json())
    for run in (measure, check_accuracy):
        with pytest.raises(UsageError, match="was read from a file"):
            run(read)
    assert list(tmp_path.iterdir()) == []
    measure(result)
    assert len(list(tmp_path.iterdir())) == 2, "a record of ours does run its texts"


def test_times_are_those_of_the_kernels() -> None:
    inputs = torch.randn(1 << 20), torch.randn(16), torch.randn(512, 512)
    record = recorded(lambda x, y, m: (x.sin(), y.sin(), m @ m), *inputs)
    measure(record)
    large, small, product = (
        next(k.time_ns or 0 for k in kernels(record) if test(k))
        for test in (
            lambda k: k.bytes_read == 1 << 22,
            lambda k: k.bytes_read == 64,
            lambda k: k.language == "extern",
        )
    )
    assert large > 20 * small
    assert product > 20 * small


def test_the_fastest_run_is_what_nothing_disturbs() -> None:
    calls = itertools.count()

    def run(clock: Clock) -> None:
        clock.begin("copy")
        time.sleep(0.02 if next(calls) % 3 else 0)  # most runs are disturbed
        clock.end("copy")

    assert time_parts(run, cuda=False)["copy"] < 0.01e9


@pytest.mark.parametrize(
    ("made_from", "inputs"),
    [
        (lambda x, n: (x + n).sum(0) @ x.t(), (torch.randn(5, 7), 3)),
        (lambda t, at: F.embedding(at - 3, t).sin(), (torch.randn(9, 4), torch.tensor([4, 8]))),
        (lambda x, y: F.cross_entropy(x, y), (torch.randn(6, 3), torch.tensor([0, 1, 2, 0, -100, 1]))),
        (lambda x: x * torch.tensor([1.0, 2.0]), (torch.randn(3, 2),)),
        (lambda x: x.sin() * torch.arange(20.0), (torch.randn(20),)),
        (lambda x: F.dropout(x, 0.5).sort().values, (torch.randn(20),)),
        (lambda x: x[[0, 2, 1] * 9].cumsum(0), (torch.randn(4, 3),)),
    ],
    ids=["symbols", "positions", "ignored", "constant", "arange", "random", "indices"],
)
def test_inputs_match_the_compile(made_from: Any, inputs: tuple[Any, ...]) -> None:
    record = recorded(made_from, *inputs, dynamic=True)
    measure(record)
    all_timed(record)


def test_graphs_that_cannot_run_have_a_note() -> None:
    record = recorded(lambda x: x.softmax(-1), torch.randn(5, 7), target="sm_90")
    for compile_ in record.compiles:
        for kernel in compile_.kernels:
            kernel.language = "triton"
    if torch.cuda.is_available():
        pytest.skip("here they can run")
    measure(record)
    assert [k.time_ns for k in kernels(record)] == [None]
    (note,) = record.notes
    assert "the kernels of forward.wrapper were not timed: Triton kernels need a GPU" in note
    measure(record)
    assert record.notes == [note], "noted once"


def test_kernels_of_stock() -> None:
    torch._dynamo.reset()
    with compiler_core.record(engine="torch") as result:
        torch.compile(lambda x, w: F.layer_norm(F.gelu(x @ w), (8,)).sum(0))(*WIDE).sum().backward()
    measure(result)
    check_accuracy(result)
    all_timed(result)
    assert {(k.graph, k.language == "extern") for k in kernels(result)} == {
        ("forward", True), ("forward", False), ("backward", True), ("backward", False),
    }  # fmt: skip
    compared = [a for c in result.compiles for a in c.accuracy]
    assert {a.node.partition(":")[2].partition(".")[0] for a in compared} == {"forward", "backward"}
    assert all(a.error is not None and a.error < 1e-5 for a in compared)
