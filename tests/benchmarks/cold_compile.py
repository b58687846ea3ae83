"""One cold compile of the walk-through function, in a process of its own: prints the seconds.

    python tests/benchmarks/cold_compile.py core|stock

Two shapes, forward and backward, with whatever caches the environment names.  PyTorch is imported
before the clock starts; the compiler's own imports count, as they do for a person's first cell.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch

Inputs = dict[str, torch.Tensor]


def function(inputs: Inputs) -> torch.Tensor:
    x = inputs["x"]
    y = inputs["y"]
    x = x.cos().cos()
    if x.mean() > 0.5:
        x = x / 1.1
    return x * y


def compiled(engine: str) -> Callable[[Inputs], torch.Tensor]:
    import compiler_core

    made: Any = torch.compile(function) if engine == "stock" else compiler_core.compile(function, strict=True)
    return made  # type: ignore[no-any-return]


def main(engine: str) -> None:
    torch.manual_seed(0)
    made = [{k: torch.randn(n, requires_grad=True) for k in "xy"} for n in (10, 8)]
    start = time.perf_counter()
    fast = compiled(engine)
    for inputs in made:
        fast(inputs).sum().backward()
    print(time.perf_counter() - start)
    for inputs in made:
        found = [t.grad for t in inputs.values()]
        for tensor in inputs.values():
            tensor.grad = None
        function(inputs).sum().backward()
        for got, tensor in zip(found, inputs.values(), strict=True):
            torch.testing.assert_close(got, tensor.grad, atol=1e-6, rtol=1e-6)


if __name__ == "__main__":
    main(sys.argv[1])
