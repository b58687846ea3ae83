# mypy: ignore-errors
# ruff: noqa
"""What stock captures as one graph and ours does not, yet; `test_snippets` has the reasons."""

import collections
import random
import weakref

import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.while_loop import while_loop

from tests.sweeps.snippets.corpus import program

X = lambda: (torch.randn(4, 4),)


@program(X)
def numbers_of_random(x):
    rng = random.Random(3)
    return x[: random.randint(1, 3)] * random.uniform(0.5, 1.5) + rng.random()


@program(X)
def greatest_of_tensors(x):
    return max(x[0, 0].sin(), x[0, 1].cos())


@program(X)
def namedtuple_class(x):
    Pair = collections.namedtuple("Pair", ["a", "b"])
    p = Pair(x.sin(), x.cos())
    return p.a + p.b


@program(X)
def branches_that_draw(x):
    return torch.cond(x.sum() > 0, lambda x: F.dropout(x, 0.5), lambda x: x * 2, (x,))


@program(X, grad=False)
def branches_of_other_shapes(x):
    return torch.cond(x.sum() > 0, lambda x: x[:2].clone(), lambda x: x[:3].clone(), (x,))


@program(X)
def loop_with_gradients(x):
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x.sin()), (torch.tensor(0), x))


@program(lambda: (nn.Linear(4, 4), torch.randn(4, 4)))
def data_of_a_parameter(m, x):
    m.weight.data = m.weight.data.clamp(-0.1, 0.1)
    return m(x)


class Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, m):
        return m(x) * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2, None


@program(lambda: (torch.randn(4, 4), nn.Linear(4, 4)))
def module_in_a_function(x, m):
    return Through.apply(x, m)


@program(X, grad=False)
def versions_and_identities(x):
    y = x.sin()
    y.add_(1)
    cache = {id(x): y}
    return cache[id(x)] * y._version, weakref.ref(x)() is x
