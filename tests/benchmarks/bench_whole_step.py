"""Times the ten training steps of `tests/training_steps.py`, each in one graph, beside eager PyTorch and stock.

    python -m tests.benchmarks.bench_whole_step [--device cuda] [--size real] [--rounds 11] [PROGRAM ...]

*ours* is `compile(step, capture_backward=True, mode="reduce-overhead")` with the fused kernels of the optimizer, *of
lists* the same with the optimizer as PyTorch makes it.  *eager* has the fused kernels.  *stock* is the best of four:
the step compiled in the default mode and with CUDA graphs, and the modules compiled with CUDA graphs, with the fused
kernels or with a compiled optimizer.  *by hand* is a CUDA graph of the eager step, which the program records itself;
where that fails, there is none.

First each way, in a separate process with empty caches, gives the seconds of its first two steps (the second has
gradients and states of optimizers, so it is often compiled again) and the MB that PyTorch has reserved at the peak;
`stock` is that of the fastest of the four.  Then one process for each program times all ways in rounds that take turns,
while the other processes stand still: milliseconds of wall time, lower quartiles, since a machine with other users runs
Python at two speeds.  Errors are the largest relative ones of the losses of 5 steps, beside float64.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
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
WAYS = ("eager", *STOCK, "by hand", "ours", "of lists")


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
    if way == "by hand":
        fused["capturable"] = True
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


def losses(run: Way) -> list[float]:
    """Returns the losses of some steps, which draw the same random numbers for each way."""
    torch.manual_seed(1)
    return [run().item() for _ in range(LOSSES)]


def first_steps(name: str, way: str, options: argparse.Namespace) -> dict[str, Any]:
    """Returns seconds, memory and graphs of one way, measured in this process."""
    run = made(name, way, options.size, options.device)
    began = time.perf_counter()
    for _ in range(2):
        run().item()
    found: dict[str, Any] = {"first": time.perf_counter() - began}
    losses(run)
    found["reserved"] = torch.cuda.max_memory_reserved() / 1e6 if options.device == "cuda" else 0.0
    if way in ("ours", "of lists"):
        compiles = record_of(run.step).compiles
        found |= {
            "graphs": f"{len(compiles)} / {sum(len(c.breaks) for c in compiles)}",
            "launched": sorted({graph.reason for c in compiles for graph in c.cuda_graphs if graph.reason}),
            "failures": [f.message[:200] for c in compiles for f in c.failures],
        }
    return found


def interleaved(name: str, ways: Iterable[str], options: argparse.Namespace) -> dict[str, Any]:
    """Times ways in this process, and compares their losses with those of float64."""
    exact = Training(name, options.size, torch.float64, options.device)
    wanted = losses(Way(exact, exact.program.step))
    del exact
    found, errors = {}, {}
    for way in ways:
        run = made(name, way, options.size, options.device)
        errors[way] = max(abs(a / b - 1) for a, b in zip(losses(run), wanted, strict=True))
        found[way] = run
        torch._dynamo.reset()
    times: dict[str, list[float]] = {way: [] for way in found}
    with alone(options.lock):
        for _ in range(options.rounds):
            for way, run in found.items():
                run().item()
                began = time.perf_counter()
                for _ in range(CALLS):
                    result = run()
                result.item()
                times[way].append((time.perf_counter() - began) / CALLS * 1e3)
    return {"times": {way: statistics.quantiles(each, n=4)[0] for way, each in times.items()}, "errors": errors}


def row(name: str, apart: dict[str, Any], found: dict[str, Any]) -> str:
    """Returns a row of the table."""
    ms = {way: found["times"].get(way, math.nan) for way in WAYS}
    best = min((way for way in STOCK if way in found["times"]), key=ms.__getitem__)
    firsts, reserved = (
        ", ".join(f"{apart[way].get(fact, math.nan):{form}}" for way in (best, "ours"))
        for fact, form in (("first", ".1f"), ("reserved", ",.0f"))
    )
    numbers = [ms["eager"], ms[best], ms["by hand"], ms["ours"], ms["of lists"]]
    gains = ms[best] / ms["ours"], ms["by hand"] / ms["ours"]
    errors = " | ".join(f"{found['errors'][way]:.0e}" for way in ("eager", "ours"))
    cells = [name, *(f"{n:.3f}" for n in numbers), *(f"{n:.2f}" for n in gains), reserved, firsts]
    return f"| {' | '.join(cells)} | {apart['ours'].get('graphs')} | {errors} |"


def in_process(name: str, ways: Iterable[str], caches: Path, lock: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measures one way, or times all of them, in a separate process."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.benchmarks.bench_whole_step", name]
    command += ["--ways", *ways, "--device", options.device, "--size", options.size]
    command += ["--rounds", str(options.rounds), "--lock", str(lock)]
    caches.mkdir(exist_ok=True)
    environment = os.environ | dict.fromkeys(CACHES, str(caches)) | {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
    environment |= {"OMP_NUM_THREADS": "1", "PYTORCH_CUDA_ALLOC_CONF": ""} if options.device == "cuda" else {}
    return figures_of(command, environment, options.limit)


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", choices=("small", "real"), default="real")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of one process")
    parser.add_argument("--ways", nargs="+", help="measure one program in this process")
    parser.add_argument("--lock", default=os.devnull, help="the file that those hold who are timed")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", default=list(PROGRAMS))
    options = parser.parse_args()
    if options.ways:
        measure = interleaved if len(options.ways) > 1 else first_steps
        given = options.ways if len(options.ways) > 1 else options.ways[0]
        print(json.dumps(measure(options.programs[0], given, options)))
        return
    heading = ["step", "eager", "stock", "by hand", "ours", "of lists", "stock / ours", "by hand / ours", "MB", "first"]
    heading += ["compiles / breaks", "error of eager", "of ours"]
    print(f"| {' | '.join(heading)} |\n{'|---' * len(heading)}|", flush=True)
    gains = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.processes) as pool:
        lock = Path(folder, "lock")
        lock.touch()

        def caches(name: str, way: str) -> Path:
            return Path(folder, f"{name} {way}".replace(" ", "_"))

        def start(name: str, way: str) -> dict[str, Any]:
            return in_process(name, [way], caches(name, way), lock, options)

        def time_all(name: str, ways: Iterable[str]) -> dict[str, Any]:
            for way in ways:  # so that nothing is built again
                shutil.copytree(caches(name, way), caches(name, ""), dirs_exist_ok=True)
            return in_process(name, ways, caches(name, ""), lock, options)

        ways = [way for way in WAYS if way != "by hand" or options.device == "cuda"]
        started = {(name, way): pool.submit(start, name, way) for name in options.programs for way in ways}
        apart = {name: {way: started[name, way].result() for way in ways} for name in options.programs}
        timed = {
            name: pool.submit(time_all, name, [way for way in ways if "problem" not in each[way]])
            for name, each in apart.items()
        }
        for name, future in timed.items():
            found = future.result()
            for way, each in (*apart[name].items(), ("all", found)):
                for fact in ("problem", "launched", "failures"):
                    if each.get(fact):
                        print(f"{name}, {way}: {fact}: {each[fact]}", file=sys.stderr, flush=True)
            if "times" in found:
                print(found["times"], file=sys.stderr)
                print(row(name, apart[name], found), flush=True)
                gains.append(
                    min(found["times"][way] for way in STOCK if way in found["times"]) / found["times"]["ours"]
                )
    if gains:
        print(f"Geometric mean of stock / ours {statistics.geometric_mean(gains):.2f}, least {min(gains):.2f}")


if __name__ == "__main__":
    main()
