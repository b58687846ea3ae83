# mypy: ignore-errors
# (the programs stand for users' code, which has no annotations)
"""Conditions on tensors that guard an exception: the graph takes for granted that it is not raised.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

import compiler_core as cc
from compiler_core.api.compile import record_of
from compiler_core.tools.testing import same_as_eager

one_graph = functools.partial(same_as_eager, graphs=1, breaks=[])


def positive():
    return (torch.rand(4) + 0.1,)


def negative():
    return (-torch.rand(4) - 0.1,)


def asserts(x):
    y = x * 2
    assert y.sum() > 0, f"not positive: {y.shape}"
    return y.sin()


def raises(x):
    if (x < 0).any() or x.isnan().any():
        name = type(x).__name__
        raise ValueError(f"{name} of {len(x)} negative numbers")
    return x.sqrt()


def raises_otherwise(x):
    if x.min() > 0:
        return x.log()
    raise ArithmeticError("log")


def in_a_with_block(x):
    with torch.no_grad():
        assert x.sum() > 0
    return x * 3


def in_a_loop(x):
    for i in range(3):
        assert (x > i - 1).all(), i
        x = x + 1
    return x


def by_torch(x):
    torch._assert(x.sum() > 0, "by torch")
    return x * 3


class Checked(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(()))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        self.seen += 1
        x = self.linear(x + torch.rand(4))
        if not torch.isfinite(x).all():
            raise FloatingPointError("not finite")
        return x.relu()


def module(x):
    torch.manual_seed(0)
    return Checked()(x)


PROGRAMS = [asserts, raises, raises_otherwise, in_a_with_block, in_a_loop, by_torch]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_one_graph(program):
    one_graph(inputs=positive)(program)()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_the_exception_is_the_programs(program):
    one_graph(inputs=negative)(program)()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "cpp", lambda gm, examples: gm.forward])
def test_both_in_turns(backend):
    compiled = cc.compile(asserts, backend=backend, strict=True)
    for x in (*positive(), *negative(), *positive(), *negative()):
        if x.sum() > 0:
            torch.testing.assert_close(compiled(x), asserts(x))
        else:
            with pytest.raises(AssertionError, match=r"not positive: torch.Size\(\[4\]\)") as caught:
                compiled(x)
            assert [entry.name for entry in caught.traceback][-1] == "asserts"
    record = record_of(compiled)
    assert [len(c.breaks) + len(c.failures) for c in record.compiles] == [0]


@pytest.mark.parametrize("value", [1.0, float("nan")])
def test_state_of_a_module(value):
    """What the module did before the exception is done once."""
    found = []
    for run in (lambda net: net, lambda net: cc.compile(net, strict=True)):
        torch.manual_seed(1)
        net = Checked()
        runs = run(net)
        try:
            result = runs(torch.full((4,), value))
        except FloatingPointError as error:
            result = torch.tensor(len(str(error)))
        found.append((result, net.calls, net.seen.clone(), torch.get_rng_state()))
    torch.testing.assert_close(found[1], found[0])


@same_as_eager(breaks=["assertion"], inputs=positive)
def test_in_a_try(x):
    try:
        assert x.sum() > 10
    except AssertionError:
        return x + 1
    return x
