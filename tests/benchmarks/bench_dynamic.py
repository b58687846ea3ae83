"""Times kernels for symbolic and for static sizes, and their compiles, in one run.

    python -m tests.benchmarks.bench_dynamic [--threads N] [--rounds N]

Calls include guards, reading of sizes, allocation and kernels.  Times are the minimum over interleaved rounds.
"""

from __future__ import annotations

import argparse
import functools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import compiler_core

Make = Callable[[int], tuple[Any, ...]]


def gelu_mul_add(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.gelu(x) * x + b


def softmax(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def layer_norm(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], b, b)


def column_means(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (x * b).mean(0)


def transposed_sum(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (x.t() + x.sum(1)).exp()


POINTWISE = (gelu_mul_add, softmax, layer_norm, column_means, transposed_sum)
SIZES = ((10, 64), (100, 100), (1000, 1000), (4000, 1000))


def encoder() -> nn.Module:
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, dropout=0.0)


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 256))


def least(runs: Sequence[Callable[[], Any]], rounds: int, seconds: float = 0.003) -> list[float]:
    """Returns the least seconds of one call of each function, to exclude the load of other processes."""
    best = [float("inf")] * len(runs)
    for _ in range(rounds):
        for i, run in enumerate(runs):
            count, start = 0, time.perf_counter()
            while count < 3 or time.perf_counter() - start < seconds:
                run()
                count += 1
            best[i] = min(best[i], (time.perf_counter() - start) / count)
    return best


def step(module: Callable[..., torch.Tensor], x: torch.Tensor) -> None:
    module(x).square().mean().backward()


def kernels(rounds: int) -> None:
    print(
        f"{'program':16}{'rows x columns':>16}{'eager us':>12}{'static us':>12}{'dynamic us':>12}{'dynamic/static':>16}"
    )
    for function in POINTWISE:
        dynamic = compiler_core.compile(function, backend="cpp", dynamic=True, strict=True)
        for n, m in SIZES:
            x, b = torch.randn(n, m), torch.randn(m)
            static = compiler_core.compile(function, backend="cpp", dynamic=False, strict=True)
            torch.testing.assert_close(dynamic(x, b), static(x, b))
            runs = [functools.partial(f, x, b) for f in (function, static, dynamic)]
            _row(function.__name__, f"{n} x {m}", least(runs, rounds))
    for make in (mlp, encoder):
        module = make()
        dynamic = compiler_core.compile(module, backend="cpp", dynamic=True, strict=True)
        for n, m in ((2, 16), (8, 128)):
            x = torch.randn(n, m, 256)
            static = compiler_core.compile(module, backend="cpp", dynamic=False, strict=True)
            runs = [functools.partial(step, f, x) for f in (module, static, dynamic)]
            _row(f"{make.__name__}, training", f"{n} x {m}", least(runs, rounds))


def _row(name: str, size: str, times: list[float]) -> None:
    eager, static, dynamic = (t * 1e6 for t in times)
    print(f"{name:18}{size:>16}{eager:15.1f}{static:15.1f}{dynamic:15.1f}{dynamic / static:15.2f}", flush=True)


def compiling(rounds: int) -> None:
    print(f"\n{'compile':20}{'static s':>10}{'dynamic s':>10}{'dynamic/static':>16}   without the C++ compiler")
    for make in (mlp, encoder):
        times: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(rounds):
            for dynamic, into in times.items():
                into.append(_compile_time(make(), dynamic))
        static, dynamic_ = map(min, times.values())
        print(f"{make.__name__:20}{static:10.2f}{dynamic_:10.2f}{dynamic_ / static:16.2f}", flush=True)


def _compile_time(module: nn.Module, dynamic: bool) -> float:
    """Returns the processor seconds until the first gradients, without the C++ compiler's process."""
    compiler_core.reset()
    compiled = compiler_core.compile(module, backend="cpp", dynamic=dynamic, strict=True)
    before = time.process_time()
    step(compiled, torch.randn(4, 24, 256))
    return time.process_time() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    kernels(options.rounds)
    compiling(3)


if __name__ == "__main__":
    main()
