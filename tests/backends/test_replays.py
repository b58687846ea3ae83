"""Replays of recorded launches, without a GPU: a recording of PyTorch's operators stands for a CUDA graph.

As a CUDA graph does, it reads and writes the tensors that it was recorded with.  `tests/programs/test_cuda.py` has the
same with real ones.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import compiler_core
from compiler_core.backends import cuda_graphs
from compiler_core.records import CudaGraph
from compiler_core.support.tensors import storage_id, tensors_in


class RecordedOperators:
    """Operators that were called while it was active, which `replay` calls again with the same tensors."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def replay(self) -> None:
        for function, args, kwargs, results in self.calls:
            given = {storage_id(t) for t in tensors_in([*args, *kwargs.values()])}
            again = function(*args, **kwargs)
            for result, value in zip(tensors_in(results), tensors_in(again), strict=True):
                if storage_id(result) not in given:
                    result.copy_(value)


class Recorder(TorchDispatchMode):
    def __init__(self, graph: RecordedOperators) -> None:
        super().__init__()
        self._graph = graph

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = [t.clone() for t in tensors_in(args)] if function._schema.is_mutable else []
        results = function(*args, **(kwargs or {}))
        self._graph.calls.append((function, args, kwargs or {}, results))
        for tensor, before in zip(tensors_in(args) if inputs else [], inputs, strict=True):
            tensor.copy_(before)  # what is recorded does not run
        return results


@pytest.fixture(autouse=True)
def emulated_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records PyTorch's operators on the CPU where launches on a GPU would be recorded."""

    @contextlib.contextmanager
    def record(graph: RecordedOperators, **_: Any) -> Iterator[None]:
        with Recorder(graph):
            yield

    def no_device(*_: Any) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    obstacle = cuda_graphs.replay_obstacle
    monkeypatch.setattr(
        cuda_graphs, "replay_obstacle", lambda p: "" if "need CUDA tensors" in obstacle(p) else obstacle(p)
    )
    stream = type("Stream", (), {"wait_stream": lambda self, other: None})
    fakes = {"CUDAGraph": RecordedOperators, "graph": record, "Stream": stream, "current_stream": stream}
    fakes |= {"MemPool": type("MemPool", (), {"id": (0, 1)}), "use_mem_pool": no_device, "empty_cache": no_device}
    fakes |= {"device": no_device, "stream": no_device, "is_current_stream_capturing": lambda: False}
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch.random, "fork_rng", no_device)


def replayed(program: Any) -> Any:
    return compiler_core.compile(program, backend="triton", mode="reduce-overhead", strict=True)


def graphs(record: compiler_core.Record) -> list[CudaGraph]:
    return [graph for compile_ in record.compiles for graph in compile_.cuda_graphs]


class Counting(nn.Module):
    """Has buffers of several types, one of which another one's new value depends on."""

    total: torch.Tensor
    calls: torch.Tensor
    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6))
        self.register_buffer("total", torch.zeros(6, dtype=torch.float64))
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("seen", torch.zeros(3, 6).t())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.total += x.detach().sum(0) * self.calls
        self.seen[:, 1] = self.total
        return (x * self.weight + self.seen.sum(1)).sin()


MODULES: dict[str, Callable[[], nn.Module]] = {
    "batch norm": lambda: nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.BatchNorm1d(5)),
    "instance norm": lambda: nn.Sequential(nn.Unflatten(1, (2, 3)), nn.InstanceNorm1d(2, track_running_stats=True)),
    "buffers": Counting,
    "no state": lambda: nn.Sequential(nn.Linear(6, 5), nn.GELU()),
}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("how", ["trains", "infers", "trains in evaluation", "accumulates", "moves its buffers"])
def test_replays_leave_what_eager_leaves(name: str, how: str) -> None:
    torch.manual_seed(0)
    original = MODULES[name]().double().train(how != "trains in evaluation")
    model, plain = copy.deepcopy(original), copy.deepcopy(original)
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (model, plain) if [*m.parameters()]]
    with compiler_core.record() as record, torch.set_grad_enabled(how != "infers"):
        run = replayed(model)
        kept: list[Any] = []
        for step in range(9):
            x = torch.randn(4, 6, dtype=torch.float64)
            results = [run(x), plain(x)]
            kept.append(results)
            if results[0].requires_grad:
                for result in results:
                    result.square().sum().backward()
            if how != "accumulates" or step % 3 == 2:
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
            if how == "moves its buffers" and step % 4 == 3:
                for buffer in model.buffers():
                    buffer.data = buffer.data.clone()
            torch.testing.assert_close(dict(model.state_dict()), dict(plain.state_dict()))
            versions = [[b._version for b in m.buffers()] for m in (model, plain)]
            if "norm" not in name:  # PyTorch's batch norm does not count its writes
                assert versions[0] == versions[1]
    for ours, eagers in kept:
        torch.testing.assert_close(ours, eagers)
    assert {graph.reason for graph in graphs(record)} == {""}
    assert all(graph.recorded >= 1 for graph in graphs(record))


def test_an_input_that_moves_is_updated_too() -> None:
    """Its address is not in the recording, which updates a copy of it only."""

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        old = x.clone()
        x.copy_(y)
        y.mul_(2)
        return old + y

    with compiler_core.record() as record:
        run = replayed(program)
        for _ in range(8):
            x, y = torch.randn(3), torch.randn(3)
            ours, eagers = (x.clone(), y.clone()), (x, y)
            torch.testing.assert_close(run(*ours), program(*eagers))
            torch.testing.assert_close(ours, eagers)
    (graph,) = graphs(record)
    assert (graph.reason, graph.copied) == ("", 2)


def test_two_inputs_swapped_in_place() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> None:
        old = x.clone()
        x.copy_(y)
        y.copy_(old)

    x, y = torch.randn(3), torch.randn(3)
    run = replayed(program)
    for _ in range(6):
        before = x.clone(), y.clone()
        run(x, y)
        torch.testing.assert_close((y, x), before)


def test_results_that_are_inputs_views_or_nothing() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[Any, ...]:
        return x[1:], x, y.t(), (x * 2).sum(), x + y, (x + y)[:1]

    run = replayed(program)
    for _ in range(6):
        x, y = torch.randn(3, 3), torch.randn(3, 3)
        results, wanted = run(x, y), program(x, y)
        torch.testing.assert_close(results, wanted)
        assert [r.stride() for r in results] == [w.stride() for w in wanted]
        assert [storage_id(r) == storage_id(x) for r in results] == [storage_id(w) == storage_id(x) for w in wanted]


def test_results_that_are_kept_prevent_the_next_replay() -> None:
    weight = torch.randn(4, 4, requires_grad=True)
    run = replayed(lambda x: (x @ weight).sin().exp())
    for _ in range(6):
        a, b = torch.randn(2, 4), torch.randn(2, 4)
        (ours,) = torch.autograd.grad(run(a).sum() + run(b).sum(), weight)
        (eagers,) = torch.autograd.grad(torch.cat((a, b)).matmul(weight).sin().exp().sum(), weight)
        torch.testing.assert_close(ours, eagers)


def test_saved_tensors_that_a_hook_or_a_caller_keeps_prevent_the_next_replay() -> None:
    weight = torch.randn(4, 4, requires_grad=True)
    run = replayed(lambda x: (x @ weight).sin().exp())
    kept: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    for number in range(9):
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            result = run(torch.randn(2, 4))
        values = [t.clone() for t in kept]
        result.sum().backward()
        if number % 3:
            result = run(torch.randn(2, 4))
            assert result.grad_fn is not None
            kept += result.grad_fn.saved_tensors
            values = [t.clone() for t in kept]
            result.sum().backward()
        run(torch.randn(2, 4)).sum().backward()
        torch.testing.assert_close(kept, values)
        if number % 3 == 2:
            kept.clear()
