# mypy: ignore-errors
# (the programs stand for users' code, which has no annotations)
"""Tensors of wrapper subclasses as inputs and results: values, gradients, guards, and writes that are undone."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.two_tensor import TwoTensor

import compiler_core as cc

TWO = TwoTensor(torch.randn(3, 4), torch.randn(3, 4))


def two(grad=True):
    return TwoTensor(TWO.a.clone(), TWO.b.clone()).requires_grad_(grad)


def jagged(lengths=(2, 3), grad=False):
    rows = [torch.linspace(-1, 1, 4 * n).view(n, 4) for n in lengths]
    return torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=grad)


def parts(tensor):
    """Returns the plain tensors in a wrapper, and everything else that its class says of it."""
    if not hasattr(tensor, "__tensor_flatten__"):
        return [tensor]
    names, context = tensor.__tensor_flatten__()
    inner = [part for name in names for part in parts(getattr(tensor, name))]
    return [type(tensor), names, context, tensor.requires_grad, tensor.is_leaf, *inner]


def training(function, wrapper):
    x = torch.linspace(0, 1, 12).view(3, 4).requires_grad_()
    results = function(wrapper, x)
    for result in results:
        total = (result.values() if result.is_nested else result).sum()
        total.backward(torch.ones_like(total.detach()), retain_graph=True)
    return [part for tensor in (*results, wrapper.grad, x.grad) for part in parts(tensor)]


def elementwise(t, x):
    y = x.cos() * 3
    with torch.no_grad():
        shift = t * 2
    return (t * y.detach() + shift).sin(), y * 2, t.a.detach().relu() + y


def wrapped_again(t, x):
    t = t.view(4, 3).t()
    return (t[1:] @ t.t()).softmax(-1), F.layer_norm(x, (4,)).sigmoid()


def ragged(t, x):
    h = F.linear(t, x).relu()
    assert h.shape[:2] == t.shape[:2]
    h = h.view(*t.shape[:2], 3)
    return ((h.values().tanh() * 2).exp(),)


@pytest.mark.parametrize("program", [elementwise, wrapped_again, ragged])
def test_gradients_are_the_class_s(program):
    make = (lambda: jagged(grad=True)) if program is ragged else two
    with cc.record() as record:
        compiled = cc.compile(program, backend="cpp", fullgraph=True, strict=True)
        for _ in range(2):
            for got, want in zip(training(compiled, make()), training(program, make()), strict=True):
                assert type(got) is type(want)
                torch.testing.assert_close(got, want) if isinstance(got, torch.Tensor) else None
                assert isinstance(got, torch.Tensor) or got == want
    (compile_,) = record.compiles
    assert compile_.kernels, "what computes with plain tensors gets kernels"


def test_what_is_guarded():
    def program(t):
        return t.sin().cos()

    compiled = cc.compile(program, fullgraph=True, strict=True)
    others = [
        two(False),
        two(True),
        TwoTensor(two(False), two(False)),
        TWO.a,
        TWO.to(torch.float64),
        jagged(),
        two()[0],
    ]
    with cc.record() as record:
        for count, tensor in enumerate(others, 1):
            for _ in range(2):
                assert type(compiled(tensor)) is type(tensor)
                assert len(record.compiles) == count


def test_lengths_of_jagged_tensors():
    def program(t):
        return (t * 2).values().sin(), t.to_padded_tensor(0.0)

    compiled = cc.compile(program, fullgraph=True, strict=True)
    with cc.record() as record:
        for lengths in [(2, 3), (4, 5), (3, 7), (6, 2), (2, 9, 3), (4, 4, 2, 8), (2, 2, 9, 9, 3)]:
            for got, want in zip(compiled(jagged(lengths)), program(jagged(lengths)), strict=True):
                torch.testing.assert_close(got, want)
    assert len(record.compiles) in (2, 3), [c.cause for c in record.compiles]  # 2 before PyTorch 2.12


def test_writes_are_undone_before_the_frame_runs_again():
    def program(t, x, i):
        y = x.cos() + 1
        t.view(-1).mul_(3)
        t.a.add_(1)
        return y, x[i]

    compiled = cc.compile(program, fullgraph=True, strict=True)
    for index in (0, 5):
        wanted, got = (two(False), two(False))
        for function, t in ((program, wanted), (compiled, got)):
            try:
                function(t, torch.ones(2), torch.tensor(index))
            except IndexError:
                assert index == 5
        assert torch.equal(got.a, wanted.a)
        assert torch.equal(got.b, wanted.b)
