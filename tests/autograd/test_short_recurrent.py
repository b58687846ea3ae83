"""Tests of short recurrent layers on a CPU, which are traced as their operations and fused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import compiler_core
from compiler_core.records import Record
from compiler_core.support import opaque_ops

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "gru": lambda: nn.GRU(4, 5),
    "gru of two layers, both ways": lambda: nn.GRU(4, 5, 2, bidirectional=True, batch_first=True),
    "gru without bias": lambda: nn.GRU(4, 5, bias=False),
    "gru in evaluation": lambda: nn.GRU(4, 5, 2, dropout=0.4).eval(),
    "rnn": lambda: nn.RNN(4, 5, 2, bidirectional=True),
    "rnn of relu": lambda: nn.RNN(4, 5, nonlinearity="relu", batch_first=True),
    "gru of float64": lambda: nn.GRU(4, 5, dtype=torch.float64),
}


class Tagger(nn.Module):
    """A layer within a network, which gives it a state."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> Any:
        y, last = self.layer(x.relu() * 2, h)
        return y.tanh(), last, y[-1].sin()


def left(run: Callable[..., Any], net: Tagger, x: torch.Tensor, h: torch.Tensor) -> list[Any]:
    """Returns all that a training step leaves, and the layouts of results and gradients."""
    leaves = [t.detach().clone().requires_grad_() for t in (x, h)]
    results = tree_leaves(run(net, *leaves))
    sum((t * torch.linspace(-1, 1, t.numel(), dtype=t.dtype).view(t.shape)).sum() for t in results).backward()
    found = [*results, *(t.grad for t in leaves), *(p.grad for p in net.parameters())]
    return [found, [(t.dtype, t.stride()) for t in found]]


def inputs(net: Tagger, batch: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    layer: Any = net.layer
    dtype = layer.weight_hh_l0.dtype
    ways = layer.num_layers * (2 if layer.bidirectional else 1)
    return torch.randn(batch, batch, 4, dtype=dtype), torch.randn(ways, batch, 5, dtype=dtype)


def kernels_of_pytorch(record: Record) -> set[str]:
    return {k.name for c in record.compiles for k in c.kernels if k.language == "extern"}


def forward(net: nn.Module, *args: torch.Tensor) -> Any:
    return net(*args)


@pytest.mark.parametrize("name", LAYERS)
def test_values_and_gradients(name: str) -> None:
    torch.manual_seed(0)
    net = Tagger(LAYERS[name]())
    x, h = inputs(net)
    wanted, layouts = left(forward, copy.deepcopy(net), x, h)
    with compiler_core.record() as record:
        found, of_found = left(compiler_core.compile(forward, strict=True), net, x, h)
    torch.testing.assert_close(found, wanted)
    assert layouts == of_found
    assert not any("gru" in each or "rnn" in each or "tape" in each for each in kernels_of_pytorch(record))


OPAQUE: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "many steps": lambda: (nn.GRU(4, 5), torch.randn(opaque_ops.MAX_CELLS + 1, 3, 4)),
    "many layers": lambda: (nn.RNN(4, 5, 9), torch.randn(4, 3, 4)),
    "a large state": lambda: (nn.GRU(4, 100), torch.randn(2, 41, 4)),
    "dropout": lambda: (nn.GRU(4, 5, 2, dropout=0.5), torch.randn(3, 3, 4)),
    "half precision": lambda: (nn.GRU(4, 5, dtype=torch.bfloat16), torch.randn(3, 3, 4, dtype=torch.bfloat16)),
    "lstm": lambda: (nn.LSTM(4, 5), torch.randn(3, 3, 4)),
}


@pytest.mark.parametrize("name", OPAQUE)
def test_what_stays_opaque(name: str) -> None:
    net, x = OPAQUE[name]()
    with compiler_core.record() as record:
        compiler_core.compile(forward, strict=True)(net, x)[0].sum().backward()
    assert kernels_of_pytorch(record) & {"aten.gru.input", "aten.rnn_tanh.input", "aten.lstm.input"}


def test_lengths_that_change_stay_opaque() -> None:
    """Each length would be compiled."""
    net = nn.GRU(4, 5)
    run = compiler_core.compile(forward, strict=True)
    with compiler_core.record() as record:
        for steps in range(2, 8):
            x = torch.randn(steps, 3, 4)
            torch.testing.assert_close(run(net, x), net(x))
    assert len(record.compiles) == 2
