# mypy: ignore-errors
# (the programs stand for users' code, which has no annotations)
"""Tensors made in the frame that the program sets to require gradients: attacks, penalties, second derivatives."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from compiler_core.tools.testing import same_as_eager

whole = functools.partial(same_as_eager, graphs=1, breaks=[], capture_backward=True, tolerance=1e-5)
BACKENDS = pytest.mark.parametrize("backend", ["eager", "cpp"])


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def batch():
    return network(), torch.randn(2, 3)


def two():
    return network(), torch.randn(2, 3), torch.randn(2, 3, requires_grad=True)


@whole(inputs=batch, grad=True)
def test_an_attack_by_one_step(net, x):
    near = x.detach().clone().requires_grad_(True)
    (grad,) = torch.autograd.grad(net(near).sum(), near)
    return net(x + 0.1 * grad.sign()).sum()


@whole(inputs=two, grad=True, backend="cpp")
def test_a_gradient_penalty(net, real, fake):
    share = torch.rand(real.shape[0], 1)
    between = (share * real + (1 - share) * fake.detach()).requires_grad_(True)
    scores = net(between)
    (grad,) = torch.autograd.grad(scores, between, torch.ones_like(scores), create_graph=True, retain_graph=True)
    return ((grad.norm(2, dim=1) - 1) ** 2).mean() + net(fake).mean()


@whole(inputs=batch, grad=True)
def test_what_is_known_of_a_new_leaf(net, x):
    near = x.detach() + 1
    near.requires_grad = True
    facts = near.requires_grad, near.is_leaf, (near * 2).requires_grad, near.requires_grad_() is near
    with torch.no_grad():
        near_again = (x.detach() * 2).requires_grad_()
        facts += near_again.requires_grad, (near_again * 2).requires_grad
    return facts, (near * 3).detach(), near_again.detach()


# ---- what leaves the graph: autograd would not know its history


leaving = functools.partial(same_as_eager, breaks=["requires_grad"], capture_backward=True, tolerance=1e-5)


@same_as_eager(breaks=["requires_grad", "print", "backward"], inputs=lambda: (torch.randn(3),), capture_backward=True)
def test_a_new_leaf_across_a_break(x):
    near = (x * 2).requires_grad_()
    y = near.sin()
    print(y.requires_grad)
    return torch.autograd.grad(y.sum(), near)[0].cos()


@same_as_eager(
    breaks=["requires_grad"], inputs=lambda: (torch.randn(3, requires_grad=True),), capture_backward=True, grad=True
)
def test_the_gradient_of_a_new_leaf_is_read(x):
    near = (x.detach() * 2).requires_grad_()
    (near.sin().sum() + F.relu(x).sum()).backward()
    return near.grad * 2


@leaving(inputs=lambda: (torch.randn(3), torch.zeros(3)))
def test_a_tensor_from_outside_gets_the_history_of_a_new_leaf(x, log):
    near = (x * 2).requires_grad_()
    log.copy_(near.sin())
    return x + 1, log.requires_grad
