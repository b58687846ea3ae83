"""What a compile leaves behind once the compiled program is dropped: nothing that grows with each program."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import compiler_core

HEAVY = ("FakeTensor", "Parameter", "Tensor", "Node", "Graph", "GraphModule", "GraphModuleImpl", "Compile", "Record",
         "ShapeEnv", "FakeMode", "FunctionalTensor", "function", "cell")  # fmt: skip


def module() -> Any:
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2))
    return net, (torch.randn(3, 4),)


def attention() -> Any:
    net = nn.MultiheadAttention(8, 2)
    return net, (torch.randn(3, 1, 8, requires_grad=True),) * 3


def function() -> Any:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = F.softmax(x @ y, -1) * 2
        print(end="")
        z.add_(1)
        return z.sin().sum()

    return program, (torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True))


def dynamic() -> Any:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x.cumsum(0) * x.shape[0]).exp().mean()

    return program, (torch.randn(5, 3, requires_grad=True),)


def compiled_and_dropped(make: Callable[[], Any], backend: str) -> None:
    program, arguments = make()
    fn = compiler_core.compile(program, backend=backend, dynamic=True if make is dynamic else None)
    for _ in range(2):
        result = fn(*arguments)
        result = result[0] if isinstance(result, tuple) else result
        result.sum().backward()


def alive() -> Counter[str]:
    gc.collect()
    return Counter(type(o).__name__ for o in gc.get_objects() if type(o).__name__ in HEAVY)


def growth(make: Callable[[], Any], backend: str) -> dict[str, int]:
    """How many more objects of each kind there are after three programs."""
    before = alive()
    for _ in range(3):
        compiled_and_dropped(make, backend)
    return {name: count - before[name] for name, count in alive().items() if count - before[name] >= 3}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "cpp"])
@pytest.mark.parametrize("make", [module, attention, function, dynamic])
def test_nothing_is_left_of_a_dropped_program(make: Callable[[], Any], backend: str) -> None:
    for _ in range(2):
        compiled_and_dropped(make, backend)  # what is made once for all programs
    # what leaks grows each time; bounded caches of PyTorch's may fill in between
    assert {} in (growth(make, backend) for _ in range(4))
