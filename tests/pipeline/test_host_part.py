"""The part of a GPU's graph that the CPU computes, tested on fake tensors; `test_cuda.py` runs such graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from compiler_core.pipeline.parts import HostPart, split_host_part
from compiler_core.torch_private import ConstantSource

aten = torch.ops.aten


def split(
    f: Callable[..., Any], *shapes_and_devices: tuple[tuple[int, ...], str], is_replayed: bool = False
) -> HostPart | None:
    with FakeTensorMode() as mode, mode:
        args = [torch.empty(shape, device=device) for shape, device in shapes_and_devices]
        gm = make_fx(f)(*args)
    output = gm.graph.output_node()
    output.args = (list(output.args[0]),)  # type: ignore[arg-type]
    return split_host_part(gm, is_replayed)


def targets(gm: fx.GraphModule) -> list[Any]:
    return [node.target for node in gm.graph.nodes if node.op == "call_function"]


GPU, NUMBER = ((4, 4), "cuda"), ((), "cpu")


def step(p: torch.Tensor, count: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, ...]:
    count = count + 1
    return p - g * (0.1 / (1 - 0.9 ** count.double())), count


def test_what_the_cpu_computes_is_a_graph_of_its_own() -> None:
    parts = split(step, GPU, NUMBER, GPU)
    assert parts is not None
    assert (parts.host_inputs, parts.device_inputs) == ([1], [0, 2])
    assert parts.results == [(False, 0), (True, parts.numbers)]
    assert targets(parts.device) == [aten.mul.Tensor, aten.sub.Tensor]
    assert parts.numbers == 1
    for each in (parts.host, parts.device):
        each.graph.lint()
        devices = {t.device.type for n in each.graph.nodes if isinstance(t := n.meta.get("val"), torch.Tensor)}
        assert len(devices) == 1
    *_, number = parts.device.graph.find_nodes(op="placeholder")
    assert isinstance(number.meta["val"], torch.SymFloat)


def test_the_function_of_the_whole_puts_the_results_together() -> None:
    parts = split(step, GPU, NUMBER, GPU)
    assert parts is not None
    p, count, g = torch.rand(4, 4), torch.tensor(2.0), torch.rand(4, 4)
    run = parts.joined(with_executable(parts.host), with_executable(parts.device))
    torch.testing.assert_close(run([p, count, g]), list(step(p, count, g)))


def with_executable(gm: fx.GraphModule) -> Any:
    from compiler_core.codegen.wrapper.executable import Executable

    def run(inputs: list[Any]) -> list[Any]:
        return list(gm(*inputs))

    run.executable = Executable("forward", "run", "", {}, {}, False, True, None)  # type: ignore[attr-defined]
    return run


def test_other_graphs_are_not_split() -> None:
    assert split(lambda p, g: [p - g], GPU, GPU) is None  # nothing on the CPU
    assert split(lambda p, c: [p + 1, c + 1], GPU, NUMBER) is None  # the GPU reads nothing of it
    assert split(lambda p, c: [p + c, c], ((4,), "cpu"), NUMBER) is None  # no GPU
    assert split(lambda p, c: [torch.where(p > 0, c, p)], GPU, NUMBER) is None  # not arithmetic
    assert split(lambda p, c: [p * c], ((), "cuda"), NUMBER) is None  # the result would have another type


def skips_a_layer(p: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return p.sin(), torch.rand([]) < 0.1


def test_random_numbers_of_the_cpu_are_separate_where_launches_are_replayed() -> None:
    assert split(skips_a_layer, GPU) is None
    parts = split(skips_a_layer, GPU, is_replayed=True)
    assert parts is not None
    assert (targets(parts.host), targets(parts.device)) == ([aten.rand.default, aten.lt.Scalar], [aten.sin.default])
    assert (parts.numbers, parts.results) == (0, [(False, 0), (True, 0)])
    moved = lambda p: [p.sum().cpu() + 1, torch.rand([])]  # noqa: E731
    assert split(moved, GPU, is_replayed=True) is not None
    read_later = lambda p: [torch.rand(2, 2) + p.sum().cpu()]  # noqa: E731
    assert split(read_later, GPU, is_replayed=True) is None
    drawn_late = lambda p: [torch.bernoulli(p.sum().cpu()), torch.rand(2, 2)]  # noqa: E731
    assert split(drawn_late, GPU, is_replayed=True) is None  # the numbers would be drawn in another order


def test_a_graph_with_a_symbol_beside_the_number_is_not_split() -> None:
    graph, env = fx.Graph(), ShapeEnv()
    with FakeTensorMode() as mode, mode:
        values: list[Any] = [torch.empty(4, device="cuda"), torch.empty(())]
    symbol = env.create_unspecified_symbol(0.5, ConstantSource("rate"), DimDynamic.DYNAMIC)
    values.append(env.create_symfloatnode(symbol, hint=0.5))
    p, c, rate = (graph.placeholder(name) for name in ("p", "c", "rate"))
    count = graph.call_function(aten.add.Tensor, (c, 1))
    result = graph.call_function(aten.add.Tensor, (p, count), {"alpha": rate})
    for node, value in zip((p, c, rate, count, result), (*values, values[1], values[0]), strict=True):
        node.meta["val"] = value
    graph.output([result])
    assert split_host_part(fx.GraphModule(torch.nn.Module(), graph)) is None
