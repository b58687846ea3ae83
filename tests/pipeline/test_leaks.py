"""Memory leaks: the number of live objects must not grow with each compiled and dropped program."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.graph_module import _loader

import compiler_core
from tests import warm_python
from tests.sampling import pairs

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


def compile_and_drop(make: Callable[[], Any], backend: str) -> None:
    program, arguments = make()
    fn = compiler_core.compile(program, backend=backend, dynamic=True if make is dynamic else None)
    for _ in range(2):
        result = fn(*arguments)
        result = result[0] if isinstance(result, tuple) else result
        result.sum().backward()


def live_objects() -> Counter[str]:
    while gc.collect():  # objects that one collection frees may have kept other cycles
        pass
    live = Counter(type(o).__name__ for o in gc.get_objects() if type(o).__name__ in HEAVY)
    live["source of a graph"] = len(_loader.eval_cache)
    return live


def growth(make: Callable[[], Any], backend: str) -> dict[str, int]:
    """Returns how many more objects of each type there are after three programs."""
    before = live_objects()
    for _ in range(3):
        compile_and_drop(make, backend)
    return {name: count - before[name] for name, count in live_objects().items() if count - before[name] >= 3}


def measure_growth(make: Callable[[], Any], backend: str) -> list[dict[str, int]]:
    """Returns the growth in each of up to four measurements; the last is empty if nothing leaks.

    A leak grows in each measurement; bounded caches of PyTorch may grow in some.
    """
    for _ in range(2):
        compile_and_drop(make, backend)  # makes the objects that are made once for all programs
    measures: list[dict[str, int]] = []
    while len(measures) < 4 and {} not in measures:
        measures.append(growth(make, backend))
    return measures


PROGRAMS = (module, attention, function, dynamic)
BACKENDS = ("eager", "aot_eager", "cpp")
CASES = pairs(PROGRAMS, BACKENDS, 3)


@pytest.mark.parametrize(("make", "backend"), CASES)
def test_nothing_is_left_of_a_dropped_program(make: Callable[[], Any], backend: str) -> None:
    """Measured in a separate process, so that objects of other tests do not count."""
    ran = warm_python.run([__file__, make.__name__, backend], env=os.environ | {"PYTHONPATH": str(warm_python.ROOT)})
    assert ran.returncode == 0, ran.stderr
    assert {} in json.loads(ran.stdout.splitlines()[-1])


if __name__ == "__main__":
    gc.freeze()  # what was imported is not counted
    print(json.dumps(measure_growth(globals()[sys.argv[1]], sys.argv[2])))
