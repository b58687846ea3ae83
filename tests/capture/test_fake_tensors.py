"""Fake tensors have the shapes, strides and types that PyTorch's kernels give, whatever the layouts of the inputs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import compiler_core
from compiler_core.capture.tensors.fake_tensors import FakeMode
from tests.sampling import sample
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


@pytest.mark.parametrize("name", sample(OPERATORS, 8))
def test_results_of_inputs_of_all_layouts(name: str) -> None:
    assert layouts.differences(*OPERATORS[name]) == {}


SHAPES_WITH_ONE = [(1,), (1, 3), (3, 1), (1, 3, 4), (2, 1, 3, 1)]


def with_strides(shape: Sequence[int]) -> Iterator[torch.Tensor]:
    """Tensors of a shape: row-major, in the reversed order, with other strides where it is 1, with gaps, expanded."""
    x = torch.randn(tuple(shape))
    yield x
    yield torch.randn(tuple(shape[::-1])).permute(*reversed(range(len(shape))))
    yield x.as_strided(shape, [7 if size == 1 else stride for size, stride in zip(shape, x.stride(), strict=True)])
    yield torch.randn([size + 2 for size in shape])[tuple(slice(size) for size in shape)]
    yield torch.randn([1, *shape[1:]]).expand(shape)


def of_one_tensor(x: torch.Tensor) -> list[Any]:
    return [
        *(aten.sin(x), aten.relu(x), aten.logical_not(x), x * 2, x + torch.tensor(2.0), aten.rsub(x, 1), x > 0.5),
        *(aten.clamp(x, 0, 1), aten.pow(x, 2), aten.gelu(x), x.to(torch.float64), x.clone(), aten.zeros_like(x)),
        *(aten.rand_like(x), x.flip(0), aten.masked_fill(x, x > 0, 1.0), aten.remainder(x, 2), aten.lerp(x, x, 0.5)),
        *(
            x.softmax(0),
            x.cumsum(0),
            x.sum(0, keepdim=True),
            torch.cat([x, x]),
            *aten.sort(x),
            torch.where(x > 0, x, 0),
        ),
        *(aten.native_layer_norm(x, [x.shape[-1]], None, None, 1e-5)[0], x.amax(-1), torch.stack([x, x]), x.roll(1, 0)),
        *([aten.triu(x)] if x.dim() > 1 else []),
    ]


def of_two_tensors(x: torch.Tensor, y: torch.Tensor) -> list[Any]:
    return [
        *(x + y, aten.logical_and(x, y), aten.maximum(x, y), x == y, aten.addcmul(x, x, y), torch.where(x > 0, x, y)),
        *([aten.threshold_backward(x, y, 0)] if x.shape == y.shape else []),
    ]


@pytest.mark.parametrize("shape", SHAPES_WITH_ONE)
def test_strides_of_dimensions_of_size_one(shape: tuple[int, ...]) -> None:
    """PyTorch's own fake tensors have other strides there in some two of a hundred cases."""

    def strides(mode: FakeMode | None, function: Any, *tensors: torch.Tensor) -> list[tuple[int, ...]]:
        made = [mode.from_tensor(tensor) if mode else tensor for tensor in tensors]
        with mode or contextlib.nullcontext():
            return [result.stride() for result in function(*made)]

    def check(function: Any, *tensors: torch.Tensor) -> None:
        laid = [tensor.stride() for tensor in tensors]
        assert strides(FakeMode(), function, *tensors) == strides(None, function, *tensors), laid

    wider = [5 if size == 1 else size for size in shape]
    for x in with_strides(shape):
        check(of_one_tensor, x)
        for y in (*with_strides(shape), torch.randn(wider), torch.randn(shape[-1:])):
            check(of_two_tensors, x, y)


@pytest.mark.parametrize("shape", [(1, 3), (2, 1, 3, 1)])
def test_strides_of_compiled_results(shape: tuple[int, ...]) -> None:
    """Also of results whose operators are decomposed, and of what follows them."""

    def program(x: torch.Tensor) -> list[torch.Tensor]:
        y = x.sin().transpose(0, -1)
        results = [y * 2, y.relu(), y.softmax(0), y.softmax(0) * 2, y.clone() + y, y.to(torch.float64), y > 0]
        return [*results, y.sum(0, keepdim=True).transpose(0, -1) * 2, F.gelu(y), y.unsqueeze(0).transpose(0, 1) + 1]

    for x in with_strides(shape):
        compiled = compiler_core.compile(program, backend="cpp", dynamic=False)
        assert [r.stride() for r in compiled(x)] == [r.stride() for r in program(x)], x.stride()
