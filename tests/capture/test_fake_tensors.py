"""Fake tensors have the shapes, strides and types that PyTorch's kernels give, whatever the layouts of the inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.sweeps import layouts

aten = torch.ops.aten
T, G = torch.randn(2, 3, 4, 5), torch.rand(2, 3, 4, 2)
OPERATORS: dict[str, tuple[Any, ...]] = {
    "grid_sample": (lambda x, grid: aten.grid_sampler_2d(x, grid, 0, 0, False), T, G),
    "normal": (aten.normal.Tensor_Tensor, T, T.abs()),
    "normal of a mean": (lambda x: aten.normal.Tensor_float(x, 2.0), T),
    "normal of a deviation": (lambda x: aten.normal.float_Tensor(2.0, x), T.abs()),
    "binary_cross_entropy": (lambda x, y: aten.binary_cross_entropy(x, y, None, 0), T.sigmoid(), T.sigmoid()),
    "its gradient": (lambda g, x: aten.binary_cross_entropy_backward(g, x, x, None, 0), T, T.sigmoid()),
    "reflection_pad3d": (lambda x: aten.reflection_pad3d(x, [1] * 6), T),
    "replication_pad3d": (lambda x: aten.replication_pad3d(x, [1] * 6), torch.randn(2, 3, 4, 5, 6)),
    "max_unpool2d": (lambda x: aten.max_unpool2d(x, torch.zeros_like(x).long(), [8, 10]), T),
    "channel_shuffle": (lambda x: aten.channel_shuffle(x, 2), torch.randn(2, 4, 5, 6)),
    "native_channel_shuffle": (lambda x: aten.native_channel_shuffle(x, 2), torch.randn(2, 4, 5, 6)),
    "poisson": (aten.poisson, T.abs()),
    "angle": (aten.angle, torch.complex(T, T)),
    "rrelu": (lambda x: aten.rrelu_with_noise(x, torch.empty_like(x)), T),
    "rrelu_functional": (lambda x: aten.rrelu_with_noise_functional(x, torch.empty_like(x)), T),
    "interpolate": (lambda x: torch.nn.functional.interpolate(x, size=(7, 3), mode="bilinear"), T),
    "gradient of layer_norm": (lambda x: torch.nn.functional.layer_norm(x, [4, 5]), T),
    "gradient of replication_pad2d": (lambda x: aten.replication_pad2d(x, [1] * 4), T),
    "gamma": (aten._standard_gamma, T.abs()),
    "gradient of glu": (lambda x: aten.glu_backward(x[..., :2], x, -1), torch.randn(2, 3, 5, 4)),
    "gradient of mse_loss": (lambda x, y: torch.nn.functional.mse_loss(x, y), T, T + 1),
    "gradient of smooth_l1_loss": (lambda x, y: torch.nn.functional.smooth_l1_loss(x, y), T, T + 1),
    "gradient of huber_loss": (lambda x, y: torch.nn.functional.huber_loss(x, y), T, T + 1),
    "gradient of logit": (aten.logit, G),
    "gradient of log_softmax": (lambda x: x.log_softmax(1), T),
    "isin": (lambda x: aten.isin(x, x[:1]), T),
    "isin of a number": (lambda x: aten.isin(x, 1.0), T),
    "ldexp": (aten.ldexp, T, T),
    "xlog1py": (aten.special_xlog1py, T, T.abs()),
    "log_sigmoid": (aten.log_sigmoid_forward, T),
    "diagonal_scatter": (lambda x: aten.diagonal_scatter(x, torch.ones(4, 5, 2)), T),
    "roll": (lambda x: aten.roll(x, [1], [2]), T),
    "index": (lambda x: aten.index(x, [None, torch.tensor([[0, 1]]).t()]), T),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_results_of_inputs_of_all_layouts(name: str) -> None:
    assert layouts.differences(*OPERATORS[name]) == {}
