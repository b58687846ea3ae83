# mypy: ignore-errors
# ruff: noqa
"""Classes and functions that a program makes before a graph break: they and what they close over are freed with it.

PYTEST_DONT_REWRITE: the programs are users' code.
"""

from __future__ import annotations

import collections
import dataclasses
import functools

import torch

from compiler_core.tools.testing import same_as_eager


@same_as_eager()
def test_properties_and_kinds_of_methods(x):
    class P:
        def __init__(self):
            self.a = x

        @property
        def v(self):
            return x * 2 if __class__ is P else x

        @staticmethod
        def s(a):
            return a + x

        @classmethod
        def c(cls, a):
            return a * x

    p = P()
    print("-")
    return p.v + p.s(x) + P.c(x) + p.c(x)


@same_as_eager()
def test_module(x):
    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.l = torch.nn.Linear(3, 3)

        def forward(self, y):
            return self.l(y) + x

    m = M()
    print("-")
    return m(x).sum() * 0


@same_as_eager()
def test_dataclass(x):
    @dataclasses.dataclass
    class D:
        a: object

        def go(self):
            return self.a + x

    d = D(x)
    print("-")
    return d.go()


@same_as_eager()
def test_named_tuple(x):
    N = collections.namedtuple("N", "a b")
    n = N(x, 2)
    print("-")
    return n.a * n.b, N(x, x).a


@same_as_eager()
def test_function_with_a_default(x):
    def g(y, k=lambda z: z * x):
        return k(y) + x

    print("-")
    h = functools.partial(g, x)
    print("-")
    return h()


@same_as_eager()
def test_cached_function(x):
    @functools.lru_cache
    def g(n):
        return n + x.shape[0]

    print("-")
    return x * g(2)


@same_as_eager()
def test_autograd_function(x):
    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    print("-")
    return F.apply(x) + x


@same_as_eager()
def test_metaclass(x):
    class Me(type):
        def __call__(cls, *a):
            return super().__call__(*a)

        def size(cls):
            return x

    class C(metaclass=Me):
        def go(self):
            return x * 3

    c = C()
    print("-")
    return c.go() + C.size()


@same_as_eager()
def test_generator_method(x):
    class G:
        def __iter__(self):
            yield x
            yield x + 1

    g = G()
    print("-")
    return list(g)
