"""The comparison with eager finds every difference: each case is a program and one that differs in one thing."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from compiler_core.tools import testing
from compiler_core.tools.testing.value_checks import float64_difference

Fn = Callable[..., Any]
NORM = nn.BatchNorm1d(4)
KEPT: list[torch.Tensor] = []
COUNT = [0]


def differs(eager: Fn, other: Fn, grad: bool = True) -> str | None:
    """Compares `eager` with `other`, as if that were its compiled function; returns the difference."""

    def make() -> list[torch.Tensor]:
        return [torch.arange(16.0).view(4, 4), torch.ones(4, 4)]

    want, got = (testing.observe(fn, make, 0, program=eager, grad=grad) for fn in (eager, other))
    found = testing.Comparison(testing.Exact()).compare("", want, got)
    runs = [(testing.watch_tensors(want), testing.watch_tensors(got))]
    del want, got
    kept = testing.leaked_tensors(runs)
    return found or (f"alive: {kept}" if kept else None)


class OneBuffer(torch.autograd.Function):
    """A sum whose gradients share memory."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        (g,) = gradients
        result = g.clone()
        return result.view_as(g), result.view_as(g)


class Again(torch.autograd.Function):
    """A square that saves its input on `ctx`, so that a second backward works without `retain_graph`."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.x = x.detach()
        return x * x

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0] * 2 * ctx.x


def does(*actions: Callable[[], object]) -> Fn:
    """Returns a program that also calls these actions."""

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for action in actions:
            action()
        return x * y

    return program


def plain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * y


def with_norm(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    normed: torch.Tensor = NORM(x)
    return normed * y


def without_statistics(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.batch_norm(x, None, None, NORM.weight, NORM.bias, True) * y


def raises(text: str) -> Fn:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        raise ValueError(text)

    return program


def keeps(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    KEPT.append(x)
    return x * y


def switches(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = x * y
    torch.set_grad_enabled(False)
    return z


def writes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    y.data.add_(1)
    return x * (y - 1)


CASES: dict[str, tuple[Fn, Fn, str]] = {
    "gradients that share memory": (lambda x, y: x + y, OneBuffer.apply, ".accumulated"),
    "a second backward pass": (lambda x, y: x * x, lambda x, y: Again.apply(x), ".raised_backward"),
    "values": (plain, lambda x, y: x * y * 2, ".result"),
    "the sign of a zero": (lambda x, y: x * 0, lambda x, y: x * -0.0, ".result"),
    "no gradient": (plain, lambda x, y: (x * y).detach(), ".result.requires_grad"),
    "the gradient alone": (plain, lambda x, y: x * y.detach(), ".gradients"),
    "strides": (lambda x, y: (x * y).t(), lambda x, y: (x * y).t().contiguous(), ".result: strides"),
    "results that are one": (lambda x, y: [x * y] * 2, lambda x, y: [x * y, x * y], "another object"),
    "results that share memory": (
        lambda x, y: (lambda z: [z, z[0]])(x * y),
        lambda x, y: (lambda z: [z, z[0].clone()])(x * y),
        "share memory",
    ),
    "a result that is an argument's memory": (lambda x, y: x[0], lambda x, y: x[0].clone(), "share memory"),
    "an argument afterwards": (plain, writes, ".arguments[1]"),
    "type of an exception": (raises("a"), does(lambda: 1 // 0), ".raised"),
    "text of an exception": (raises("a"), raises("b"), ".raised"),
    "a warning": (does(lambda: warnings.warn("w", stacklevel=2)), plain, ".warnings"),
    "a warning of PyTorch's": (does(lambda: torch.ones(1).std()), plain, ".warnings"),
    "printed": (does(lambda: print("here")), plain, ".printed"),
    "printed as an error": (does(lambda: print("here", file=sys.stderr)), plain, ".errors"),
    "PyTorch's random state": (does(lambda: torch.rand(1)), plain, ".random['cpu']"),
    "Python's random state": (does(random.random), plain, ".random['python']"),
    "NumPy's random state": (does(np.random.rand), plain, ".random['numpy']"),
    "buffers of a module outside": (with_norm, without_statistics, ".outside['NORM']"),
    "a mode that stays on": (switches, plain, ".modes['grad']"),
    "what is kept alive": (plain, keeps, "alive"),
}


@pytest.mark.parametrize("name", CASES)
def test_sees_a_difference(name: str) -> None:
    eager, other, where = CASES[name]
    found = differs(eager, other)
    assert found is not None
    assert where in found
    KEPT.clear()


@pytest.mark.parametrize("name", CASES)
def test_sees_none_where_there_is_none(name: str) -> None:
    eager = CASES[name][0]
    assert differs(eager, eager) is None


def test_external_state_is_restored() -> None:
    statistics = NORM.get_buffer("running_mean")
    before = statistics.clone()
    assert differs(with_norm, with_norm) is None
    assert torch.equal(statistics, before)
    assert NORM.weight.grad is None


def test_float64_error() -> None:
    exact = torch.linspace(1, 2, 100, dtype=torch.float64) / 3
    eager = [exact.float() * (1 + 1e-6)]
    assert float64_difference("x", exact.float() * (1 - 1.9e-6), eager, exact) is None
    assert "against float64" in str(float64_difference("x", exact.float() * (1 - 4e-6), eager, exact))
    assert "against float64" in str(float64_difference("x", exact.float() / 0, eager, exact))


@pytest.mark.parametrize("how", ["raises", "observed"])
def test_float64_error_without_a_run_in_float64(how: str) -> None:
    def fails() -> Any:
        if how == "raises":
            raise RuntimeError("expected Float32 or BFloat16")
        return testing.ObservedRun(raised="RuntimeError: expected Float32 or BFloat16")

    want = [torch.tensor([1.0, 100.0]), torch.tensor([1, 2])]
    for got, differs in ((0.005, False), (0.02, True)):
        check = testing.Float64Error(fails)
        found = testing.Comparison(check).compare("", want, [want[0] + got, want[1]])
        assert bool(found) == differs
        assert "Float32 or BFloat16" in check.failed
    assert testing.Comparison(testing.Float64Error(fails)).compare("", want, [want[0], want[1] + 1])


def test_float64_error_allows_a_share_of_outliers() -> None:
    """One gradient of a hundred may have more than twice eager's error; not two, nor one that is far off."""
    eager = [torch.tensor([1.0 + 1e-4]) for _ in range(100)]
    exact = [torch.ones(1, dtype=torch.float64) for _ in range(100)]

    def found(errors: dict[int, float]) -> str | None:
        check = testing.Float64Error(lambda: exact, outliers=0.01)
        got = [torch.tensor([1.0 + errors.get(i, 1e-4)]) for i in range(100)]
        return testing.Comparison(check).compare("", eager, got)

    assert found({}) is None
    assert found({7: 1e-3}) is None
    assert "[9]" in str(found({7: 1e-3, 9: 1e-3}))
    assert "[7]" in str(found({7: 1e-2}))


def test_every_call_is_compared() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def backend(gm: Any, examples: Any) -> Fn:
        def call(*inputs: torch.Tensor) -> Any:
            COUNT[0] += 1
            return tuple(t + (COUNT[0] == 3) for t in gm(*inputs))

        return call

    with pytest.raises(AssertionError, match="call 2"):
        testing.check(program, backend=backend)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.norm(self.conv(x)).relu()
        return out


def test_training_compares_buffers() -> None:
    net, arguments = Net(), {"x": torch.randn(2, 3, 8, 8)}

    def lost(model: nn.Module) -> Fn:
        model.get_submodule("norm").momentum = 0.0  # type: ignore[assignment] # running statistics do not change
        return model

    want = testing.observe_training(net, arguments, lambda model: model)
    same = testing.observe_training(net, arguments, lambda model: model)
    assert testing.Comparison(testing.Exact()).compare("", want, same) is None
    other = testing.observe_training(net, arguments, lost)
    found = testing.Comparison(testing.Exact()).compare("", want, other)
    assert found is not None
    assert "running_mean" in found


def test_of_a_large_tensor_the_first_element_that_differs_is_named() -> None:
    want = torch.arange(200.0).view(20, 10)
    got = want.clone()
    got[3, 4:6] += 0.5
    how = testing.difference({"x": want}, {"x": got}, 1e-3)
    assert how is not None
    assert how.endswith(": 2 of 200 elements differ; at [3, 4]: 34.5, not 34"), how
    assert ", not tensor(" in str(testing.difference(want[0], got[0] + 1, 1e-3)), "few elements are shown"
