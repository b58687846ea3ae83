"""The cost of guards per call, for a model of 100 submodules whose compiled body does nothing."""

from __future__ import annotations

import statistics
import timeit
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

import compiler_core

CALLS = 10_000
ROUNDS = 10


class Add(torch.nn.Module):
    def __init__(self, i: int) -> None:
        super().__init__()
        self.i = i

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.i


class Hundred(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fs = torch.nn.ModuleList([Add(i) for i in range(100)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for f in self.fs:
            x = f(x)
        return x


def test_hundred_modules() -> None:
    """Takes at most half of stock's time with guards, and at most a hundredth of it when pinned, in one run.

    The ratios are medians of those of each round: another process that slows down some rounds does not decide.
    """
    model, x = Hundred(), torch.tensor([2])
    core = compiler_core.compile(model.forward, backend=_nothing, strict=True)
    stock = torch.compile(model.forward, backend=_nothing)
    core(x), stock(x)
    calls = {"core": core, "pinned": compiler_core.pin(core), "stock": stock, "eager": model}
    rounds = []
    for _ in range(ROUNDS):
        # the minimum of many short measurements
        numbers = {name: CALLS // 100 if name != "eager" else 10 for name in calls}
        rounds.append({name: _per_call(fn, [x], numbers[name]) * CALLS for name, fn in calls.items()})
    ratios = {name: statistics.median(each[name] / each["stock"] for each in rounds) for name in ("core", "pinned")}
    seconds = {name: min(each[name] for each in rounds) for name in calls}
    print(f"\n{CALLS} calls  " + "  ".join(f"{n} {s:.4f} s" for n, s in seconds.items()), end="  ")
    print("  ".join(f"{n} / stock {r:.4f}" for n, r in ratios.items()))
    assert ratios["core"] <= 0.5
    assert ratios["pinned"] <= 0.01


def _nothing(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    out = (torch.zeros(1),)
    return (lambda x: out) if len(inputs) == 1 else lambda *args: out


def _per_call(fn: Callable[..., Any], inputs: Sequence[torch.Tensor], number: int) -> float:
    names = {f"x{i}": each for i, each in enumerate(inputs)}
    timer = timeit.Timer(f"fn({', '.join(names)})", globals={"fn": fn, **names})
    return min(timer.repeat(10, number)) / number


def three_matrices(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return x + y * z.shape[0] if x.shape[0] > 4 else z


def test_symbolic_sizes() -> None:
    """Guards on six symbolic sizes cost no more than stock's; static sizes are measured for comparison."""
    inputs = [torch.ones(6, 7) for _ in range(3)]
    calls: dict[str, Any] = {}
    for dynamic in (False, True):
        kind, own = (
            "symbolic" if dynamic else "static",
            types.FunctionType(three_matrices.__code__.replace(), globals()),
        )
        calls[f"core {kind}"] = compiler_core.compile(three_matrices, backend=_nothing, dynamic=dynamic, strict=True)
        calls[f"stock {kind}"] = torch.compile(own, backend=_nothing, dynamic=dynamic)
    for fn in calls.values():
        fn(*inputs)
    seconds: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, fn in calls.items():
            seconds[name] = min(seconds.get(name, 1e9), _per_call(fn, inputs, CALLS // 100) * CALLS)
    print(f"\n{CALLS} calls  " + "  ".join(f"{n} {s:.4f} s" for n, s in seconds.items()))
    assert seconds["core symbolic"] <= seconds["stock symbolic"]
