# mypy: ignore-errors
# ruff: noqa
"""Classes and functions that a program makes before a graph break: they and what they close over are freed with it.

PYTEST_DONT_REWRITE: the programs are users' code.
"""

from __future__ import annotations

import dataclasses
import functools


import torch

from compiler_core.tools.testing import same_as_eager


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
def test_cached_function(x):
    @functools.lru_cache
    def g(n):
        return n + x.shape[0]

    print("-")
    return x * g(2)


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
