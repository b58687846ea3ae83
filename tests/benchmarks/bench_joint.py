"""Compares joint graph and partition with stock PyTorch's, in one run.

make bench ARGS='-k joint'                                the limits
python -m tests.benchmarks.bench_joint saved|steps|layers       one table
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.fx as fx
from torch import nn
from torch._functorch.aot_autograd import aot_module_simplified
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext, detect_fake_mode, tracing

import compiler_core
from compiler_core.autograd.joint import JointGraph, output_nodes, trace_joint
from compiler_core.autograd.mincut import bytes_of
from compiler_core.autograd.partition import partition
from compiler_core.backends.registry import boxed_function
from compiler_core.records import Compile, Record
from compiler_core.support.fx_graphs import record_graph
from compiler_core.support.node_facts import view_base
from tests.cases.training_models import MODELS, leaves

WIDTH, ROUNDS = 128, 200
LAYERS = (1, 4, 16, 24, 64)


# ---- what is saved -------------------------------------------------------------------------


@dataclass(frozen=True)
class Saved:
    """What one partition saves for the backward, and the times of its two graphs with PyTorch's kernels."""

    count: int
    bytes: int
    seconds: float = 0.0


@pytest.mark.parametrize("name", MODELS)
def test_joint_saves_no_more_and_takes_no_longer(name: str) -> None:
    ours, stock = saved(name)
    assert (ours.count <= stock.count, ours.bytes <= stock.bytes) == (True, True)
    assert ours.seconds <= 1.05 * stock.seconds


def saved(name: str) -> tuple[Saved, Saved]:
    """Partitions the same joint graph with our and with PyTorch's partitioner; prints a line."""
    torch.manual_seed(0)
    function, inputs = MODELS[name](WIDTH)
    gm, fakes, reals = captured(function, inputs)
    joint, compile_ = joint_of(gm, fakes)
    actual = partition(joint, compile_)
    assert actual.backward is not None
    expected = min_cut_rematerialization_partition(_copy(joint), None, num_fwd_outputs=len(joint.outputs))
    primals = [t.detach() for t in reals]
    with torch.no_grad():
        runs = [_step(joint, *graphs, primals) for graphs in ((actual.forward, actual.backward), expected)]
        times = _least(runs)
    kept = _kept(joint, expected[0])
    ours, stock = Saved(len(actual.saved), actual.saved_bytes, times[0]), Saved(*kept, times[1])
    counts = f"{ours.count:5} {stock.count:6} {ours.bytes:12,} {stock.bytes:12,}"
    ratio = f"{ours.seconds / stock.seconds:6.2f}"
    print(f"\n{name:18} {counts} {ours.seconds * 1e3:9.3f} {stock.seconds * 1e3:9.3f} {ratio}", end="", flush=True)
    return ours, stock


def captured(
    function: Callable[..., Any], inputs: Sequence[torch.Tensor]
) -> tuple[fx.GraphModule, list[torch.Tensor], list[torch.Tensor]]:
    """Returns the single graph of a call, with its fake and its real inputs."""
    found: list[Any] = []

    def backend(gm: fx.GraphModule, fakes: list[torch.Tensor]) -> Callable[..., Any]:
        def run(*reals: torch.Tensor) -> Any:
            found.append((gm, fakes, list(reals)))
            return gm(*reals)

        return run

    compiler_core.compile(function, backend=backend, strict=True)(*inputs)
    (only,) = found
    return only  # type: ignore[no-any-return]


def joint_of(gm: fx.GraphModule, fakes: Sequence[torch.Tensor]) -> tuple[JointGraph, Compile]:
    compile_ = Record().compile(Record().frame("f", "f.py", 1, "root"))
    record_graph(compile_, "captured", "captured", gm)
    return trace_joint(gm, fakes, compile_), compile_


def _copy(joint: JointGraph) -> fx.GraphModule:
    graph, copied = fx.Graph(), dict[fx.Node, fx.Node]()
    graph.output(graph.graph_copy(joint.gm.graph, copied))
    for node, result in copied.items():
        result.meta = dict(node.meta)
    return fx.GraphModule(joint.gm, graph)


def _kept(joint: JointGraph, forward: fx.GraphModule) -> tuple[int, int]:
    """Returns count and bytes of the values that PyTorch's forward keeps alive; a saved view keeps its base alive."""
    nodes = {n.name: n for n in joint.gm.graph.nodes}
    names = [n.name for n in output_nodes(forward.graph)[len(joint.outputs) :]]
    bases = {view_base(nodes[n]) for n in names}
    return len(bases), sum(map(bytes_of, bases))


def _step(
    joint: JointGraph, forward: fx.GraphModule, backward: fx.GraphModule, primals: list[torch.Tensor]
) -> Callable[[], Any]:
    """Returns a function that runs both graphs eagerly, forward and backward."""
    first, second = boxed_function(forward), boxed_function(backward)
    count = len(joint.outputs)
    takes = {n.name for n in forward.graph.find_nodes(op="placeholder")}
    given = [p for p, name in zip(primals, joint.primals, strict=True) if name in takes]

    def run() -> Any:
        results = first(given)
        tangents = [torch.ones_like(r) for r, d in zip(results, joint.differentiable, strict=False) if d]
        return second([*results[count:], *tangents])

    return run


def _least(runs: Sequence[Callable[[], Any]]) -> list[float]:
    """Returns the least processor time of one call of each function; they alternate, in both orders."""
    least = [math.inf] * len(runs)
    for i in range(ROUNDS + 1):
        for at in list(range(len(runs)))[:: 1 if i % 2 else -1]:
            start = time.process_time()
            runs[at]()
            if i:
                least[at] = min(least[at], time.process_time() - start)
    return least


# ---- a step of training --------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_joint_steps(name: str) -> None:
    """Compares forward and backward with the kernels of each engine."""
    ours, stock = steps(name)
    assert ours <= 1.05 * stock


def steps(name: str) -> tuple[float, float]:
    """Returns the seconds of forward and backward, compiled by us and by stock torch.compile; prints a line."""
    torch.manual_seed(0)
    function, inputs = MODELS[name](WIDTH)
    wanted = leaves(function, inputs)

    def step(call: Callable[..., torch.Tensor]) -> Callable[[], Any]:
        def run() -> Any:
            output = call(*inputs)
            return torch.autograd.grad(output, wanted, torch.ones_like(output))

        return run

    engines = (compiler_core.compile(function, strict=True), torch.compile(function), function)
    ours, stock, eager = _least([step(engine) for engine in engines])
    times = f"{ours * 1e3:9.3f} {stock * 1e3:9.3f} {eager * 1e3:9.3f}"
    print(f"\n{name:18} {times} {ours / stock:6.2f}", end="", flush=True)
    return ours, stock


# ---- how long it takes ---------------------------------------------------------------------


def test_joint_of_many_layers() -> None:
    """24 layers take at most stock's time, and the time grows no faster than n log n."""
    found = {n: layers(n) for n in LAYERS}
    assert found[24][0] <= found[24][1]
    for small, large in ((4, 16), (16, 64)):
        allowed = large * math.log(large) / (small * math.log(small))
        assert found[large][0] <= allowed * found[small][0]


def layers(count: int, rounds: int = 3) -> tuple[float, float]:
    """Returns the median processor seconds of joint graph and partition, ours and stock's."""
    times: dict[Callable[..., Any], list[float]] = {_ours: [], _stock: []}
    for _ in range(rounds):
        for engine, into in times.items():
            model = nn.Sequential(*(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) for _ in range(count)))
            gm, fakes, _ = captured(model, [torch.randn(2, 8, 32)])
            start = time.process_time()
            engine(gm, fakes)
            into.append(time.process_time() - start)
    ours, stock = (statistics.median(found) for found in times.values())
    each = f"{ours / count * 1e3:8.0f} ms a layer"
    print(
        f"\n{count:3} layers  ours {ours:7.2f} s  stock {stock:7.2f} s  ratio {ours / stock:5.2f}  {each}",
        end="",
        flush=True,
    )
    return ours, stock


def _ours(gm: fx.GraphModule, fakes: list[torch.Tensor]) -> None:
    partition(*joint_of(gm, fakes))


def _stock(gm: fx.GraphModule, fakes: list[torch.Tensor]) -> None:
    """Runs what `torch.compile` does between capture and Inductor, with the same partitioner and decompositions."""
    from torch._inductor.decomposition import select_decomp_table

    def as_it_is(gm: fx.GraphModule, example_inputs: Any) -> Any:
        call: Any = boxed_function(gm)
        call._boxed_call = True
        return call

    with tracing(TracingContext(detect_fake_mode(fakes))):
        aot_module_simplified(
            gm, fakes, as_it_is, as_it_is,
            decompositions=select_decomp_table(), partition_fn=min_cut_rematerialization_partition,
        )  # fmt: skip


def main(table: str) -> None:
    torch.set_num_threads(1)
    if table == "saved":
        print(
            f"{'':18} {'saved':>5} {'stock':>6} {'bytes':>12} {'stock':>12} {'ms':>9} {'stock':>9} {'ratio':>6}", end=""
        )
        for name in MODELS:
            saved(name)
    elif table == "steps":
        print(f"{'':18} {'ours ms':>9} {'stock':>9} {'eager':>9} {'ratio':>6}", end="")
        for name in MODELS:
            steps(name)
    else:
        for n in (1, *LAYERS):  # the first fills PyTorch's caches
            layers(n)
    print()


if __name__ == "__main__":
    main(sys.argv[1])
