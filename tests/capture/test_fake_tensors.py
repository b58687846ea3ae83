"""Fake tensors have the shapes, strides and types that PyTorch's kernels give, whatever the layouts of the inputs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from compiler_core.capture.tensors.fake_tensors import FakeMode
from tests.sweeps.gpu.worker import without_expecttest

aten = torch.ops.aten
KNOWN = {"aten._fft_r2c.default", "aten._fft_c2c.default", "aten._embedding_bag_forward_only.default"}
"""Operators with other fake results: of tensors whose elements share memory; and sizes of bags, which nothing reads."""


def _layouts(x: torch.Tensor) -> Iterator[torch.Tensor]:
    back = tuple(range(x.dim() - 1, -1, -1))
    yield x
    if x.dim():
        yield x.permute(back).contiguous().permute(back)
        yield x[:1].expand(x.shape)
        yield torch.stack([x, x], -1).flatten(-2)[..., ::2]
        yield x.new_ones(sum(x.shape) + 1).as_strided(x.shape, (1,) * x.dim())
    if x.dim() > 1:
        yield x.transpose(0, 1).contiguous().transpose(0, 1)
    if x.dim() in (4, 5):
        yield x.contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)


def _is_strided(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def _facts(result: Any) -> list[Any]:
    """Returns the type, shape, and strides that count, of each tensor."""
    return [
        (t.dtype, t.shape, [s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1 and t.numel()])
        for t in tree_leaves(result)
        if _is_strided(t)
    ]


class _Compared(TorchDispatchMode):
    """Runs each operator on fake tensors, too; `different` has the operators whose results differ."""

    def __init__(self) -> None:
        super().__init__()
        self.different: dict[str, str] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        mode = FakeMode(allow_non_fake_inputs=True)

        def fake(value: Any) -> Any:
            return mode.from_tensor(value.detach(), static_shapes=True) if torch.is_tensor(value) else value

        result = func(*args, **(kwargs or {}))
        if func._schema.is_mutable or any(r.alias_info for r in func._schema.returns):
            return result
        try:
            with mode:
                found = func(*tree_map(fake, args), **tree_map(fake, kwargs or {}))
        except Exception:  # it has no fake results
            return result
        if _facts(found) != _facts(result):
            self.different.setdefault(str(func), f"{_facts(args)} gives {_facts(result)}, not {_facts(found)}")
        return result


def _difference(function: Callable[..., Any], *arguments: Any) -> dict[str, str]:
    compared = _Compared()
    for place in (*range(len(arguments)), None):
        for number in range(7):
            given = [
                dict(enumerate(_layouts(a.detach()))).get(number, a) if place in (i, None) and _is_strided(a) else a
                for i, a in enumerate(arguments)
            ]
            given = [a.requires_grad_() if _is_strided(a) and a.is_floating_point() else a for a in given]
            with contextlib.suppress(Exception), compared:  # it takes no such layout
                _backward(function(*given), given, number)
    return compared.different


def _backward(result: Any, inputs: Sequence[Any], layout: int) -> None:
    """Computes the gradients of the inputs, with tangents of that layout."""
    results = [t for t in tree_leaves(result) if _is_strided(t) and t.requires_grad]
    tangents = [dict(enumerate(_layouts(torch.ones_like(t)))).get(layout) for t in results]
    leaves = [a for a in inputs if _is_strided(a) and a.requires_grad]
    if results:
        torch.autograd.grad(results, leaves, tangents, allow_unused=True)


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
    assert _difference(*OPERATORS[name]) == {}


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore")
def test_results_of_all_operators() -> None:
    without_expecttest()
    from torch.testing._internal.common_methods_invocations import op_db

    different: dict[str, str] = {}
    for operator in op_db:
        if torch.float32 not in operator.dtypes:
            continue
        for sample in list(operator.sample_inputs("cpu", torch.float32))[:8]:
            call = functools.partial(operator, **sample.kwargs)
            different |= _difference(call, sample.input, *sample.args)
    assert {name: text for name, text in different.items() if name not in KNOWN} == {}
