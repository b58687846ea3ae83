"""Times the ten training steps of `tests/training_steps.py`, each in one graph, beside eager PyTorch and stock.

    python -m tests.benchmarks.bench_whole_step [--device cuda] [--size real] [PROGRAM ...]

*ours* is `compile(step, capture_backward=True, mode="reduce-overhead")` with the fused kernels of the optimizer, *of
lists* the same with the optimizer as PyTorch makes it.  *eager* has the fused kernels.  *stock* is the best of four:
the step compiled in the default mode and with CUDA graphs, and the modules compiled with CUDA graphs, with the fused
kernels or with a compiled optimizer.  *by hand* is a CUDA graph of the eager step, which the program records itself;
where that fails, there is none.  Milliseconds are lower quartiles of 11 rounds that take turns, since a machine with
other users runs Python at two speeds.  Errors are the largest relative ones of the losses of 5 steps, beside float64.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

import compiler_core
from compiler_core.api.compile import record_of
from tests.training_steps import PROGRAMS, Training

ROUNDS, CALLS, LOSSES = 11, 20, 5


class Way:
    """One way to run a step, with its own modules and optimizers."""

    def __init__(self, training: Training, batch: list[torch.Tensor], step: Callable[..., torch.Tensor]) -> None:
        self.training, self.batch, self.step = training, batch, step

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


def ways(name: str, size: str, device: str, batch: list[torch.Tensor]) -> dict[str, Way]:
    """Returns each way to run the step."""
    graphs = "reduce-overhead"
    step = PROGRAMS[name].step

    def made(**options: Any) -> Training:
        return Training(name, size, device=device, **options)

    def of_compiled_modules(training: Training) -> Training:
        for module in training.modules:
            module.compile(mode=graphs)
        return training

    found = {"eager": Way(made(fused=True), batch, step)}
    for way, mode in (("stock 1", "default"), ("stock 2", graphs)):
        found[way] = Way(made(), batch, torch.compile(step, mode=mode))
    found["stock 3"] = Way(of_compiled_modules(made(fused=True)), batch, step)
    training = of_compiled_modules(made())
    for optimizer in training.optimizers:
        optimizer.step = torch.compile(optimizer.step)  # type: ignore[assignment, method-assign]
    found["stock 4"] = Way(training, batch, step)
    if device == "cuda":
        found["recorded"] = Recorded(made(fused=True, capturable=True), batch, step)
    for way, options in (("ours", {"fused": True}), ("of lists", {})):
        found[way] = Way(made(**options), batch, compiler_core.compile(step, capture_backward=True, mode=graphs))
    return found


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def row(name: str, size: str, device: str) -> str:
    """Returns a row of the table."""
    exact = Training(name, size, torch.float64, device)
    batch = Training(name, size, device=device).batch()
    wide = [each.double() if each.is_floating_point() else each for each in batch]
    wanted = losses(Way(exact, wide, exact.program.step))
    found, errors = ways(name, size, device, batch), {}
    for way, run in list(found.items()):
        try:
            errors[way] = max(abs(a / b - 1) for a, b in zip(losses(run), wanted, strict=True))
        except Exception as error:
            print(f"{name}, {way}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
            del found[way]
    times: dict[str, list[float]] = {way: [] for way in found}
    for _ in range(ROUNDS):
        for way, run in found.items():
            run()
            synchronize(device)
            began = time.perf_counter()
            for _ in range(CALLS):
                run()
            synchronize(device)
            times[way].append((time.perf_counter() - began) / CALLS * 1e3)
    ms = {way: statistics.quantiles(each, n=4)[0] for way, each in times.items()}
    print(name, {way: round(each, 3) for way, each in ms.items()}, file=sys.stderr, flush=True)
    stock = min((value for way, value in ms.items() if way.startswith("stock")), default=float("nan"))
    by_hand = ms.get("recorded", float("nan"))
    record = record_of(found["ours"].step)
    graphs = f"{len(record.compiles)} / {sum(len(c.breaks) for c in record.compiles)}"
    return (
        f"| {name} | {ms['eager']:.3f} | {stock:.3f} | {by_hand:.3f} | {ms['ours']:.3f} | {ms['of lists']:.3f} | "
        f"{stock / ms['ours']:.2f} | {by_hand / ms['ours']:.2f} | "
        f"{graphs} | {errors['eager']:.0e} | {errors['ours']:.0e} |"
    )


def losses(run: Way) -> list[float]:
    """Returns the losses of some steps, which draw the same random numbers for each way."""
    torch.manual_seed(1)
    return [run().item() for _ in range(LOSSES)]


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", choices=("small", "real"), default="real")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", default=list(PROGRAMS))
    options = parser.parse_args()
    heading = "step | eager | stock | by hand | ours | of lists | stock / ours | by hand / ours | compiles / breaks"
    print(f"| {heading} | error of eager | of ours |")
    print("|---" * 11 + "|")
    for name in options.programs:
        print(row(name, options.size, options.device), flush=True)
        torch._dynamo.reset()


if __name__ == "__main__":
    main()
