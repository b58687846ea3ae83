# mypy: ignore-errors
# ruff: noqa
"""Programs whose backward is part of the graph: losses, accumulation, shared gradients, histories that are freed.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import functools

import pytest
import torch
import torch.nn as nn

import compiler_core
from compiler_core.tools.testing import same_as_eager

FREED = "Trying to backward through the graph a second time"
whole = functools.partial(same_as_eager, graphs=1, breaks=[], backend="cpp", tolerance=1e-5, capture_backward=True)
partly = functools.partial(same_as_eager, backend="cpp", tolerance=1e-5, capture_backward=True)
leaf = lambda: (torch.randn(3, requires_grad=True),)
leaves = lambda: tuple(torch.randn(3, requires_grad=True) for _ in range(2))


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)), torch.randn(5, 3)


@whole(inputs=leaves)
def test_two_losses(w, v):
    h = w * 3
    first, second = h.sum(), (h.detach() * v).sum()
    first.backward()
    second.backward()
    return h, first, second


@whole(inputs=leaves)
def test_unused_leaves(w, u):
    y = (w * 2 + u.detach()).sum()
    first = torch.autograd.grad(y, [w, u], retain_graph=True, allow_unused=True)
    y.backward()
    return first


@whole(inputs=lambda: (*net(), torch.randn(3, requires_grad=True)))
def test_gradients_of_some_leaves(m, x, w):
    loss = (m(x * w) * w.exp().sum()).sum()
    loss.backward(inputs=[w, m[0].weight], retain_graph=True)
    loss.backward(inputs=m[2].bias)
    return m[0].bias.grad, loss.detach()


def smooth():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.LayerNorm(4), nn.Linear(4, 1)), torch.randn(5, 3)


@whole(inputs=smooth)
def test_a_gradient_penalty_of_the_weights(m, x):
    loss = m(x).exp().mean()
    gradients = torch.autograd.grad(loss, list(m.parameters()), create_graph=True)
    (loss + sum(g.pow(2).sum() for g in gradients)).backward()
    return loss


@whole(inputs=leaf)
def test_a_gradient_whose_history_is_freed(w):
    y = w.exp().sum()
    (g,) = torch.autograd.grad(y, w, create_graph=True, retain_graph=False)
    return g, y


# ---------------------------------------------------------------- what breaks


@partly(breaks=["backward", "sparse tensor"], inputs=lambda: (nn.Embedding(5, 3, sparse=True), torch.tensor([1, 2, 1])))
def test_sparse_gradient(m, x):
    m(x).sum().backward()
    return m.weight.grad.to_dense()


@partly(breaks=["backward"], inputs=lambda: (torch.randn(3, requires_grad=True) * 2,))
def test_history_from_before(y):
    (y * y).sum().backward(retain_graph=True)
    return y.detach()


@partly(breaks=["backward"], inputs=lambda: (torch.randn(2, 1, 3, requires_grad=True), nn.GRU(3, 4)))
def test_a_gradient_of_a_gradient_of_a_recurrent_layer(x, m):
    (g,) = torch.autograd.grad(m(x)[0].sum(), x, create_graph=True)
    return g


@partly(breaks=["backward"], inputs=leaf)
def test_gradients_of_a_computed_tensor(w):
    y = w * 2
    y.sum().backward(inputs=[y, w])
    return y.detach()


@partly(breaks=["backward"], inputs=leaf)
def test_a_gradient_that_keeps_a_history(w):
    """Eager PyTorch warns of the cycle that this makes."""
    w.exp().sum().backward(create_graph=True)
    return w.grad.detach()


@partly(breaks=["exception"], inputs=leaf)
def test_backward_through_a_freed_graph(w):
    loss = w.exp().sum()
    loss.backward()
    try:
        loss.backward()
    except RuntimeError as error:
        return str(error)


# ---------------------------------------------------------------- what no single call shows


def _step(w):
    loss = w.exp().sum()
    loss.backward()
    return loss


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "cpp"])
def test_accumulation_over_calls(backend):
    w = torch.zeros(3, requires_grad=True)
    compiled = compiler_core.compile(_step, backend=backend, capture_backward=True)
    for i in range(1, 4):
        loss = compiled(w)
        torch.testing.assert_close(w.grad, torch.full((3,), float(i)))
        assert loss.requires_grad and not loss.is_leaf
        with pytest.raises(RuntimeError, match=FREED):
            loss.backward()
    w.grad = None
    compiled(w)
    torch.testing.assert_close(w.grad, torch.ones(3))


def test_hooks_that_come_later_break():
    w, seen = torch.zeros(3, requires_grad=True), []
    compiled = compiler_core.compile(_step, backend="cpp", capture_backward=True)
    compiled(w)
    w.grad = None
    handle = w.register_hook(lambda gradient: seen.append(1) or gradient * 3)
    compiled(w)
    torch.testing.assert_close(w.grad, torch.full((3,), 3.0))
    handle.remove()
    compiled(w)
    w.grad = None
    handle = w.register_hook(lambda gradient: seen.append(1) or gradient * 5)
    compiled(w)
    torch.testing.assert_close(w.grad, torch.full((3,), 5.0))
    handle.remove()
    w.grad = None
    w.register_post_accumulate_grad_hook(lambda p: seen.append(2))
    compiled(w)
    assert seen == [1, 1, 2]
    torch.testing.assert_close(w.grad, torch.ones(3))


def test_a_hook_of_the_frame_runs():
    def program(w):
        w.register_hook(lambda gradient: gradient * 3)
        w.sum().backward()

    w = torch.zeros(3, requires_grad=True)
    compiler_core.compile(program, backend="cpp", capture_backward=True)(w)
    torch.testing.assert_close(w.grad, torch.full((3,), 3.0))


def test_a_gradient_is_not_the_memory_of_another():
    a, b = torch.zeros(3, requires_grad=True), torch.zeros(3, requires_grad=True)
    gradient = torch.ones(3)
    compiler_core.compile(lambda a, b, g: (a + b).backward(g), backend="cpp", capture_backward=True)(a, b, gradient)
    assert len({t.data_ptr() for t in (a.grad, b.grad, gradient)}) == 3
