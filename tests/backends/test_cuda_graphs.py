"""Which launches cannot be recorded, tested without a GPU; `test_cuda.py` tests replays."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.backends.cuda_graphs import ReplayLayout, replay_obstacle, with_replay
from compiler_core.backends.replay_memory import GraphMemory
from compiler_core.codegen.wrapper.executable import Executable
from compiler_core.errors import UsageError
from compiler_core.loops.ir import Program
from compiler_core.loops.lower import lower
from compiler_core.records import CudaGraph, Record, from_plain, to_plain
from tests.cases.kernel_programs import trace

X = torch.randn(8, 8)


def on_gpu(program: Any, *devices: str) -> Program:
    """Lowers `program` for tensors on CUDA devices."""
    lowered = lower(trace(program, X), "forward")
    places = [torch.device(devices[min(i, len(devices) - 1)]) for i in range(len(lowered.buffers))]
    moved = zip(lowered.buffers.items(), places, strict=True)
    return replace(lowered, buffers={name: replace(b, device=place) for (name, b), place in moved})


@pytest.mark.parametrize(
    ("program", "devices", "says"),
    [
        (lambda x: x.sin() @ x, ("cuda:0",), ""),
        (lambda x: x.t(), ("cuda:0",), "launches no kernel"),
        (lambda x: torch.rand_like(x.sin()), ("cuda:0",), ""),
        (lambda x: x.sigmoid().bernoulli(generator=torch.Generator()), ("cuda:0",), "random numbers"),
        (lambda x: x.sin() @ x, ("cuda:0", "cuda:1"), "on several devices"),
        (lambda x: x.sin() @ x, ("cuda:0", "cpu"), "some are on cpu"),
        (lambda x: x.index_put((x == x,), x.flatten().cumsum(0)), ("cuda:0",), "how many elements a mask picks"),
    ],
)
def test_obstacles(program: Any, devices: tuple[str, ...], says: str) -> None:
    try:
        lowered = on_gpu(program, *devices)
    except NotImplementedError as error:  # PyTorch 2.11
        pytest.skip(f"make_fx takes no generator: {error}")
    reason = replay_obstacle(lowered)
    assert says in reason
    assert bool(says) == bool(reason)


def test_the_layout_of_replays_can_be_stored() -> None:
    """It is part of an entry of the disk cache."""
    program = on_gpu(lambda x: x.sin(), "cuda:1")
    executable = Executable("forward", "run", "", {}, {}, False, False, None)

    def run(inputs: list[Any]) -> list[Any]:
        raise AssertionError

    run.executable = executable  # type: ignore[attr-defined]
    compile_ = Record().compile(Record().frame("f", "f.py", 1, "root"))
    replayed: Any = with_replay(run, program, [None], CudaGraph("forward"), compile_, GraphMemory())
    stored = from_plain(json.loads(json.dumps(to_plain(replayed.layout))), ReplayLayout, "layout")
    assert stored == replayed.layout
    assert stored.device == "cuda:1"


def test_on_the_cpu_the_record_has_the_reason_and_kernels_run() -> None:
    with compiler_core.record() as record:
        fast = compiler_core.compile(lambda x: x.sin().exp(), mode="reduce-overhead", strict=True)
        torch.testing.assert_close(fast(X), X.sin().exp())
    ((graph,),) = (c.cuda_graphs for c in record.compiles)
    assert (graph.graph, graph.recorded) == ("forward", 0)
    assert graph.reason == "CUDA graphs need CUDA tensors, and some are on cpu"


def test_an_unknown_mode_lists_the_modes() -> None:
    with pytest.raises(UsageError, match="mode must be one of default, reduce-overhead, not 'fast'"):
        compiler_core.compile(torch.nn.Identity(), mode="fast")
