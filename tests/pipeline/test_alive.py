"""What a compile leaves behind once the compiled program is dropped: nothing that grows with each program."""

from __future__ import annotations

import gc
import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
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
    while gc.collect():  # what one collection frees may have kept other circles
        pass
    return Counter(type(o).__name__ for o in gc.get_objects() if type(o).__name__ in HEAVY)


def growth(make: Callable[[], Any], backend: str) -> dict[str, int]:
    """How many more objects of each kind there are after three programs."""
    before = alive()
    for _ in range(3):
        compiled_and_dropped(make, backend)
    return {name: count - before[name] for name, count in alive().items() if count - before[name] >= 3}


def still_growing(make: Callable[[], Any], backend: str) -> list[dict[str, int]]:
    """What grew in each of up to four measures; the last is empty if nothing grows for good.

    What leaks grows each time; bounded caches of PyTorch's may fill in between.
    """
    for _ in range(2):
        compiled_and_dropped(make, backend)  # what is made once for all programs
    measures: list[dict[str, int]] = []
    while len(measures) < 4 and {} not in measures:
        measures.append(growth(make, backend))
    return measures


PROGRAMS = (module, attention, function, dynamic)
BACKENDS = ("eager", "aot_eager", "cpp")


@pytest.fixture(scope="module")
def measured() -> dict[str, list[dict[str, int]]]:
    """The measures of all programs, in a process of their own: what other tests left cannot count."""
    path = [str(Path(compiler_core.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))}
    ran = subprocess.run([sys.executable, __file__], env=env, capture_output=True, text=True, timeout=400, check=False)
    assert ran.returncode == 0, ran.stderr
    result: dict[str, list[dict[str, int]]] = json.loads(ran.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", PROGRAMS)
def test_nothing_is_left_of_a_dropped_program(
    measured: dict[str, list[dict[str, int]]], make: Callable[[], Any], backend: str
) -> None:
    measures = measured[f"{make.__name__} {backend}"]
    assert {} in measures


if __name__ == "__main__":
    found = {f"{make.__name__} {b}": still_growing(make, b) for make, b in itertools.product(PROGRAMS, BACKENDS)}
    print(json.dumps(found))
