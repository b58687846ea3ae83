"""The host time of a graph of 200 small kernels that cannot fuse: kernel by kernel from Python, and as one call.

``python -m tests.benchmarks.bench_launch`` prints both, measured in turns, and how many tensors are allocated.
"""

from __future__ import annotations

import re
import timeit
from collections.abc import Callable, Sequence

import torch

import compiler_core
from compiler_core.records import Compile
from compiler_core.tools import replay

KERNELS = 200
ROUNDS = 200
CALLS = 5


def chain(x: torch.Tensor) -> torch.Tensor:
    """Returns what 200 kernels make, each from what the one before made."""
    for _ in range(KERNELS):
        x = x.cumsum(0).flip(0)
    return x


def sums(x: torch.Tensor) -> list[torch.Tensor]:
    """Returns a tensor of each of 200 kernels."""
    results = []
    for _ in range(KERNELS):
        x = x.cumsum(0).flip(0)
        results.append(x)
    return results


def host_times(function: Callable[..., object], inputs: Sequence[torch.Tensor]) -> dict[str, float]:
    """Returns microseconds: of the wrapper that calls kernel by kernel, of the one that runs, and of its kernels."""
    with compiler_core.record() as record, torch.no_grad():
        compiler_core.compile(function, backend="cpp", strict=True)(*inputs)
    compile_ = record.compiles[0]
    by_kernel, runs = (replay.load(compile_, compile_.find(f"forward.{name}")) for name in ("wrapper", "launch"))
    by_kernel.inputs[:] = runs.inputs[:] = inputs
    (run,) = re.findall(r"^ +(forward_\w+_to_\w+)\(", compile_.find("forward.launch").text, re.MULTILINE)
    arguments: list[tuple[object, ...]] = []
    observed = replay.load(compile_, compile_.find("forward.launch"))
    observed.observe_launches(run, arguments.append)
    observed.run()
    launch = runs._namespace[run]
    calls: dict[str, Callable[[], object]] = {
        "by kernel": lambda: by_kernel._run([*by_kernel.inputs]),
        "as runs": lambda: runs._run([*runs.inputs]),
        "kernels": lambda: launch(*arguments[0]),
    }
    return {"count": float(len(compile_.kernels)), **_times(calls), **_allocations(compile_)}


def _times(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Returns the minimum of rounds of each call, in turns, in microseconds."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            times[name].append(timeit.timeit(call, number=CALLS) / CALLS * 1e6)
    return {name: min(each) for name, each in times.items()}


def _allocations(compile_: Compile) -> dict[str, float]:
    """Returns how many tensors each wrapper allocates."""
    texts = {name: compile_.find(f"forward.{name}").text for name in ("wrapper", "launch")}
    return {f"allocations of the {name}": float(text.count(" = empty(")) for name, text in texts.items()}


def main() -> None:
    with torch.inference_mode():
        for function in (chain, sums):
            found = host_times(function, [torch.randn(8, 8)])
            before, after = (found[name] - found["kernels"] for name in ("by kernel", "as runs"))
            print(f"{function.__name__}: host time {before:.1f} -> {after:.1f} us ({after / before:.2f})")
            print("   ", ", ".join(f"{name} {value:.1f}" for name, value in found.items()))


if __name__ == "__main__":
    main()
