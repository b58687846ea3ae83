# mypy: ignore-errors
# (the programs stand for users' code, which has no annotations)
"""Functions of TorchScript, which are inlined as the Python functions that they were made of."""

from __future__ import annotations

import functools
import warnings

import torch
from torch import nn

from compiler_core.tools.testing import same_as_eager

one_graph = functools.partial(same_as_eager, graphs=1, breaks=[])


def script(function):
    with warnings.catch_warnings(action="ignore"):  # it is deprecated
        return torch.jit.script(function)


def traced():
    with warnings.catch_warnings(action="ignore"):
        return torch.jit.trace(lambda x: x.sin() + 1, torch.ones(2))


@script
def bias_gelu(x, bias):
    y = x + bias
    return y * 0.5 * (1.0 + torch.tanh(0.79788456 * y * (1 + 0.044715 * y * y)))


@script
def scaled(x, times: int = 2, by: float = 0.5):
    for i in range(times):
        x = x * by + i
    return x


@script
def swish(x, inplace: bool = False):
    return x.mul_(x.sigmoid()) if inplace else x.mul(x.sigmoid())


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.act = nn.Linear(4, 4, bias=False), swish
        self.bias = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.act(bias_gelu(self.linear(x), self.bias))


def matrix():
    return (torch.randn(3, 4),)


@one_graph(grad=True, inputs=lambda: (Mlp(), *matrix()), tolerance=1e-5)  # TorchScript fuses what it has profiled
def test_activations(net, x):
    return net(x)


@one_graph(grad=True, inputs=matrix)
def test_defaults_and_keywords(x):
    return scaled(x), scaled(x, 3), scaled(x, by=0.25), swish(x * 2, inplace=True)


@same_as_eager(breaks=["unsupported call"], inputs=matrix)
def test_a_number_of_another_type(x):
    try:
        return scaled(x, 2.5)
    except RuntimeError as error:
        return x, type(error)


@same_as_eager(breaks=["unsupported call"], inputs=matrix)
def test_a_number_for_a_tensor(x):
    return bias_gelu(x, 2.0)


@same_as_eager(inputs=lambda: (traced(), *matrix()))
def test_a_traced_function(function, x):
    return function(x) * 2
