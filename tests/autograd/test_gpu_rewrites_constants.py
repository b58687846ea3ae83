"""Tests that constants are made on the device that reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from compiler_core.autograd.passes.gpu_rewrites import make_constants_on_gpus

aten = torch.ops.aten
Program = Callable[[torch.Tensor], Any]


def traced(program: Program, dtype: torch.dtype = torch.float32) -> fx.GraphModule:
    """Returns the graph of `program` for a fake tensor on a GPU, after the rewrite."""
    with FakeTensorMode():
        gm = make_fx(program)(torch.empty(8, dtype=dtype, device="cuda"))
    make_constants_on_gpus(gm.graph)
    gm.graph.eliminate_dead_code()
    gm.graph.lint()
    return gm


def on_cpu(gm: fx.GraphModule) -> list[str]:
    """Returns the operators whose results are on the CPU."""
    return [str(n.target) for n in gm.graph.nodes if n.op != "output" and n.meta["val"].device.type == "cpu"]


def run(gm: fx.GraphModule, x: torch.Tensor) -> Any:
    """Runs the graph on the CPU."""
    for node in gm.graph.nodes:
        node.args, node.kwargs = fx.node.map_aggregate(
            (node.args, node.kwargs), lambda v: torch.device("cpu") if isinstance(v, torch.device) else v
        )
    gm.recompile()
    return gm(x)


def copied(x: torch.Tensor) -> Any:
    return torch.arange(8).to(x.device) + x, torch.full((), 3).to(x.device)


def of_several_operators(x: torch.Tensor) -> Any:
    angles = (1.0 / (100.0 ** (torch.arange(0, 8, 2).float() / 8)))[:, None].expand(4, 2).reshape(8)
    return x * angles.to(x.device, torch.float64), x + angles.to(x.device)


def shared(x: torch.Tensor) -> Any:
    places = torch.arange(8)
    return (
        x + places.to(x.device),
        x * (places * 2).to(x.device),
        aten.index(x, [places]),
        aten.index_put(x, [places], x),
    )


def selected(x: torch.Tensor) -> Any:
    return torch.where(x > 0, x, torch.full((), -2.0)), torch.where(torch.ones((), dtype=torch.bool), x, -x)


def with_numbers(x: torch.Tensor) -> Any:
    half = torch.full((), 0.3)
    scale = torch.sqrt(torch.full((), 64, dtype=torch.float32) * 3)
    return x * half, half + x, x / torch.full((), 7), torch.sub(x, half, alpha=2), x / scale


@pytest.mark.parametrize("program", [copied, of_several_operators, shared, selected, with_numbers])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nothing_is_left_on_the_cpu(program: Program, dtype: torch.dtype) -> None:
    gm, x = traced(program, dtype), torch.randn(8).to(dtype)
    assert not on_cpu(gm)
    torch.testing.assert_close(run(gm, x), program(x), rtol=0, atol=0)


def test_what_stays_on_the_cpu() -> None:
    def returned(x: torch.Tensor) -> Any:
        places = torch.arange(8)
        return places, x + places.to(x.device)

    def wider(x: torch.Tensor) -> Any:
        return x * torch.full((), 0.3, dtype=torch.float64)  # with a number, an integer would become float32

    def drawn(x: torch.Tensor) -> Any:
        return x + torch.rand(8).to(x.device)

    def from_input(x: torch.Tensor) -> Any:
        return x + (x.cpu() + torch.arange(8)).to(x.device)

    def raising(x: torch.Tensor) -> Any:
        return x + (torch.arange(8) // torch.zeros(8, dtype=torch.int64)).to(x.device)  # on a GPU it does not raise

    assert len(on_cpu(traced(raising))) == 3
    assert on_cpu(traced(returned)) == ["aten.arange.default"]
    assert on_cpu(traced(wider)) == []
    assert on_cpu(traced(wider, torch.int64)) == ["aten.full.default"]
    assert on_cpu(traced(drawn)) == ["aten.rand.default"]
    assert len(on_cpu(traced(from_input))) == 3


def test_numbers_keep_their_precision() -> None:
    """Eager's kernels for GPUs read a number on the CPU unrounded, as a Python number."""
    gm = traced(with_numbers, torch.bfloat16)
    numbers = [a for n in gm.graph.nodes if n.op == "call_function" for a in n.args if isinstance(a, float)]
    assert numbers == pytest.approx([0.3, 0.3, 0.3, 192**0.5])
