"""Compares our kernels with eager PyTorch and stock Inductor, in one run.

    python -m tests.benchmarks.bench_kernels [--threads N] [--rounds N]

Prints the median time of each and the ratios.  Rounds are interleaved, so that a load on the machine slows all three.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from tests.cases.kernel_programs import compiled

Run = Callable[[], Any]
SIZES = (10**4, 10**5, 10**6, 10**7)
WIDTH = 1000


def gelu_mul_add(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.gelu(x) * y + b


def softmax(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def layer_norm(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (x.shape[-1],), b, b)


def medians(runs: Sequence[Run], rounds: int, seconds: float = 0.02) -> list[float]:
    """Returns the median seconds of one call of each function; each round times all of them."""
    times: list[list[float]] = [[] for _ in runs]
    counts = [_calls(run, seconds) for run in runs]
    for _ in range(rounds):
        for run, count, into in zip(runs, counts, times, strict=True):
            start = time.perf_counter()
            for _ in range(count):
                run()
            into.append((time.perf_counter() - start) / count)
    return [statistics.median(t) for t in times]


def _calls(run: Run, seconds: float) -> int:
    for _ in range(3):
        start = time.perf_counter()
        run()
        took = time.perf_counter() - start
    return max(1, int(seconds / took))


def compare(function: Callable[..., torch.Tensor], numel: int, rounds: int) -> list[float]:
    """Returns the seconds of eager, ours and Inductor."""
    torch.manual_seed(0)
    inputs = [torch.randn(numel // WIDTH, WIDTH), torch.randn(numel // WIDTH, WIDTH), torch.randn(WIDTH)]
    ours, _ = compiled(function, *inputs)
    torch._dynamo.reset()
    stock = torch.compile(function, dynamic=False)
    with torch.no_grad():
        torch.testing.assert_close(ours(inputs)[0], function(*inputs), rtol=1e-4, atol=1e-5)
        return medians([lambda: function(*inputs), lambda: ours(inputs), lambda: stock(*inputs)], rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{options.threads} threads; microseconds, then how many times faster than eager")
    print(f"{'case':14}{'numel':>10}{'eager':>11}{'ours':>11}{'inductor':>11}{'ours':>7}{'inductor':>9}")
    for function in (gelu_mul_add, softmax, layer_norm):
        for numel in SIZES:
            eager, ours, stock = compare(function, numel, options.rounds)
            times = "".join(f"{t * 1e6:11,.1f}" for t in (eager, ours, stock))
            print(f"{function.__name__:14}{numel:10}{times}{eager / ours:7.2f}{eager / stock:9.2f}", flush=True)


if __name__ == "__main__":
    main()
