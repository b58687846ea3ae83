# mypy: ignore-errors
# (the programs stand for users' code, which has no annotations)
"""Functions of TorchScript, which are inlined as the Python functions that they were made of."""

from __future__ import annotations

import warnings

import torch

from compiler_core.tools.testing import same_as_eager


def script(function):
    with warnings.catch_warnings(action="ignore"):  # it is deprecated
        return torch.jit.script(function)


@script
def bias_gelu(x, bias):
    y = x + bias
    return y * 0.5 * (1.0 + torch.tanh(0.79788456 * y * (1 + 0.044715 * y * y)))


@script
def scaled(x, times: int = 2, by: float = 0.5):
    for i in range(times):
        x = x * by + i
    return x


def matrix():
    return (torch.randn(3, 4),)


@same_as_eager(breaks=["unsupported call"], inputs=matrix)
def test_a_number_of_another_type(x):
    try:
        return scaled(x, 2.5)
    except RuntimeError as error:
        return x, type(error)


@same_as_eager(breaks=["unsupported call"], inputs=matrix)
def test_a_number_for_a_tensor(x):
    return bias_gelu(x, 2.0)
