"""Times the ten training steps of `tests/training_steps.py`, each in one graph, beside eager PyTorch and stock.

    python -m tests.benchmarks.bench_whole_step [--device cuda] [--size real] [--rounds 11] [PROGRAM ...]

*ours* is `compile(step, capture_backward=True, mode="reduce-overhead")` with the fused kernels of the optimizer, *of
lists* the same with the optimizer as PyTorch makes it.  *eager* has the fused kernels.  *stock* is the best of four:
the step compiled in the default mode and with CUDA graphs, and the modules compiled with CUDA graphs, with the fused
kernels or with a compiled optimizer.  *by hand* is a CUDA graph of the eager step, which the program records itself;
where that fails, there is none.

Each way runs in a separate process with empty caches.  *first* are the seconds of its first two steps (the second has
gradients and states of optimizers, so it is often compiled again), *MB* what PyTorch has reserved at the peak, of
stock's fastest way and ours.  While one process is timed, the others stand still: milliseconds of wall time, lower
quartiles of rounds.  Errors are the largest relative ones of the losses of 5 steps, beside float64.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

import compiler_core
from compiler_core.api.compile import record_of
from tests.benchmarks.bench_networks import alone, figures_of
from tests.benchmarks.bench_transformers import CACHES
from tests.training_steps import PROGRAMS, Training

CALLS, LOSSES = 20, 5
STOCK = ("stock 1", "stock 2", "stock 3", "stock 4")
WAYS = ("ours", *STOCK, "of lists", "eager", "by hand", "float64")


class Way:
    """One way to run a step, with its own modules and optimizers."""

    def __init__(self, training: Training, step: Callable[..., torch.Tensor]) -> None:
        self.training, self.step, self.batch = training, step, training.batch()

    def __call__(self) -> torch.Tensor:
        return self.step(self.training, *self.batch)


class Recorded(Way):
    """A CUDA graph of the eager step."""

    graph: torch.cuda.CUDAGraph | None = None
    calls = 0

    def __call__(self) -> torch.Tensor:
        self.calls += 1
        if self.calls <= 3:
            with torch.cuda.stream(torch.cuda.Stream()):
                result = super().__call__()
            torch.cuda.synchronize()
            return result
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.result = super().__call__()
        self.graph.replay()
        return self.result


def made(name: str, way: str, size: str, device: str) -> Way:
    """Returns a way to run a step."""
    step: Any = PROGRAMS[name].step
    fused: dict[str, Any] = {} if way in ("stock 1", "stock 2", "stock 4", "of lists") else {"fused": True}
    if way == "by hand" and PROGRAMS[name].optimizer(torch.nn.Linear(1, 1)).defaults.get("capturable") is False:
        fused["capturable"] = True
    if way == "float64":
        fused["dtype"] = torch.float64
    training = Training(name, size, device=device, **fused)
    if way == "by hand":
        return Recorded(training, step)
    if way in ("ours", "of lists"):
        step = compiler_core.compile(step, capture_backward=True, mode="reduce-overhead")
    elif way in ("stock 1", "stock 2"):
        step = torch.compile(step, mode="default" if way == "stock 1" else "reduce-overhead")
    elif way in ("stock 3", "stock 4"):
        for module in training.modules:
            module.compile(mode="reduce-overhead")
        for optimizer in training.optimizers if way == "stock 4" else ():
            optimizer.step = torch.compile(optimizer.step)  # type: ignore[assignment, method-assign]
    return Way(training, step)


def measured(name: str, way: str, options: argparse.Namespace) -> dict[str, Any]:
    """Returns the figures of one way, measured in this process; those of float64 are losses only."""
    run = made(name, way, options.size, options.device)
    torch.manual_seed(1)  # the same random numbers for each way
    began = time.perf_counter()
    found: dict[str, Any] = {"losses": [run().item(), run().item()], "first": time.perf_counter() - began}
    found["losses"] += [run().item() for _ in range(LOSSES - 2)]
    times = []
    with alone(options.lock):
        for _ in range(0 if way == "float64" else options.rounds):
            run().item()
            began = time.perf_counter()
            for _ in range(CALLS):
                result = run()
            result.item()
            times.append((time.perf_counter() - began) / CALLS * 1e3)
    found["ms"] = statistics.quantiles(times, n=4)[0] if len(times) > 1 else math.nan
    found["reserved"] = torch.cuda.max_memory_reserved() / 1e6 if options.device == "cuda" else 0.0
    if way in ("ours", "of lists"):
        compiles = record_of(run.step).compiles
        found |= {
            "graphs": f"{len(compiles)} / {sum(len(c.breaks) for c in compiles)}",
            "launched": sorted({graph.reason for c in compiles for graph in c.cuda_graphs if graph.reason}),
            "failures": [f.message[:200] for c in compiles for f in c.failures],
        }
    return found


def in_process(name: str, way: str, folder: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measures one way in a separate process."""
    caches = Path(folder, f"{name} {way}".replace(" ", "_"))  # g++ gets the path from Inductor, unquoted
    caches.mkdir()
    command = [sys.executable, "-W", "ignore", "-m", "tests.benchmarks.bench_whole_step", name, "--way", way]
    command += ["--device", options.device, "--size", options.size, "--rounds", str(options.rounds)]
    command += ["--lock", str(Path(folder, "lock"))]
    environment = os.environ | dict.fromkeys(CACHES, str(caches)) | {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
    environment |= {"OMP_NUM_THREADS": "1", "PYTORCH_CUDA_ALLOC_CONF": ""} if options.device == "cuda" else {}
    return figures_of(command, environment, options.limit)


def row(name: str, found: dict[str, dict[str, Any]]) -> tuple[str, float]:
    """Returns a row of the table, and stock's time divided by ours."""

    def of(way: str, fact: str) -> Any:
        return found.get(way, {}).get(fact, math.nan)

    def error(way: str) -> str:
        pairs = zip(found[way]["losses"], found["float64"]["losses"], strict=True)
        return f"{max(abs(a / b - 1) for a, b in pairs):.0e}"

    best = min(STOCK, key=lambda way: math.inf if math.isnan(ms := of(way, "ms")) else ms)
    gains = [of(way, "ms") / of("ours", "ms") for way in (best, "by hand")]
    cells = [name, *(f"{of(way, 'ms'):.3f}" for way in ("eager", best, "by hand", "ours", "of lists"))]
    cells += [*(f"{gain:.2f}" for gain in gains), best.removeprefix("stock ")]
    cells += [
        ", ".join(f"{of(way, fact):,.{n}f}" for way in (best, "ours")) for fact, n in (("reserved", 0), ("first", 1))
    ]
    cells += [of("ours", "graphs"), error("eager"), error("ours")]
    return f"| {' | '.join(cells)} |", gains[0]


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", choices=("small", "real"), default="real")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of one process")
    parser.add_argument("--way", choices=WAYS, help="measure one way in this process")
    parser.add_argument("--lock", default=os.devnull, help="the file that those hold who are timed")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", default=list(PROGRAMS))
    options = parser.parse_args()
    if options.way:
        print(json.dumps(measured(options.programs[0], options.way, options)))
        return
    heading = ["step", "eager", "stock", "by hand", "ours", "of lists", "stock / ours", "by hand / ours", "which"]
    heading += ["MB", "first", "compiles / breaks", "error of eager", "of ours"]
    print(f"| {' | '.join(heading)} |\n{'|---' * len(heading)}|", flush=True)
    ways = [way for way in WAYS if way != "by hand" or options.device == "cuda"]
    waiting: dict[str, dict[str, Any]] = {name: {} for name in options.programs}
    gains = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.processes) as pool:
        Path(folder, "lock").touch()
        started = {pool.submit(in_process, name, way, folder, options): (name, way) for name in waiting for way in ways}
        for future in as_completed(started):
            name, way = started[future]
            found = waiting[name][way] = future.result()
            for fact in ("problem", "launched", "failures"):
                if found.get(fact):
                    print(f"{name}, {way}: {fact}: {found[fact]}", file=sys.stderr, flush=True)
            if len(waiting[name]) == len(ways) and all("problem" not in waiting[name][w] for w in ("float64", "ours")):
                text, gain = row(name, {w: f for w, f in waiting[name].items() if "problem" not in f})
                print(text, flush=True)
                gains.append(gain)
    if gains:
        print(f"Geometric mean of stock / ours {statistics.geometric_mean(gains):.2f}, least {min(gains):.2f}")


if __name__ == "__main__":
    main()
