"""Times thirty programs with our kernels, eager and stock Inductor, and a plain copy, in one run.

    python -m tests.benchmarks.bench_cases [--device cuda] [--dtype bfloat16] [--rows N --columns N] [--only softmax]
    python -m tests.benchmarks.bench_cases --others

Times are medians of interleaved rounds, and a speedup is the median over the rounds of the quotient of two times
measured one after the other.  With --least (for a machine that others use) times are minima, and a speedup is the
quotient of two minima.  Errors are relative to float64;
an error of more than twice eager's is reported.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

import compiler_core
from tests.benchmarks.cases import CASES, Case, Make
from tests.benchmarks.other_cases import OTHERS

Run = Callable[[], Any]


def runner(program: Callable[..., Any], inputs: Sequence[torch.Tensor], trains: bool) -> Run:
    """Returns a function that runs a program once and returns its outputs, or its gradients if it trains."""
    if not trains:

        def infer() -> Any:
            with torch.no_grad():
                return program(*inputs)

        return infer
    wanted = [t for t in inputs if t.is_floating_point()]
    seed = torch.randn_like(program(*inputs))
    return lambda: torch.autograd.grad(program(*inputs), wanted, seed)


def flat(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


def error(found: Any, exact: Any) -> float:
    """Returns the largest relative error of any result, in the 2-norm."""
    pairs = zip(flat(found), flat(exact), strict=True)
    errors = (float((a.double() - b.double()).norm() / b.double().norm().clamp(min=1e-30)) for a, b in pairs)
    return max(errors)


def seconds(run: Run, device: str, calls: int) -> float:
    """Returns the seconds of one call; on a GPU measured with events, after clearing its cache."""
    if device == "cpu":
        start = time.perf_counter()
        for _ in range(calls):
            run()
        return (time.perf_counter() - start) / calls
    from triton.testing import do_bench

    found: float = do_bench(run, warmup=10, rep=40, return_mode="median")
    return found / 1000


def rounds_of(runs: Sequence[Run], device: str, rounds: int, stretch: float = 0.02) -> list[list[float]]:
    """Returns the seconds of each function in interleaved rounds of about `stretch` seconds."""
    calls = []
    for run in runs:
        for _ in range(3):
            run()
        start = time.perf_counter()
        run()
        calls.append(max(1, min(1000, int(stretch / (time.perf_counter() - start)))))
    return [[seconds(run, device, n) for run, n in zip(runs, calls, strict=True)] for _ in range(rounds)]


def measure(each: Case, make: Make, rounds: int, least: bool) -> tuple[list[list[float]], str, int]:
    """Returns the seconds of eager, ours and Inductor by round; an error of our result; the least bytes to move."""
    torch.manual_seed(20261121)
    compiler_core.reset()
    torch._dynamo.reset()
    inputs = [t.requires_grad_(each.trains and t.is_floating_point()) for t in each.inputs(make)]
    programs = [each.program, compiler_core.compile(each.program), torch.compile(each.program, dynamic=False)]
    runs = []
    for program in programs:
        torch.manual_seed(1)
        runs.append(runner(program, inputs, each.trains))
    eager, ours, _ = (run() for run in runs)
    note = "" if each.random else _accuracy(each, inputs, eager, ours)
    moved = sum(t.nbytes for t in inputs) + sum(t.nbytes for t in flat(eager))
    # short rounds, so that some are not disturbed by other processes
    return rounds_of(runs, make.device, rounds, 0.002 if least else 0.02), note, moved


def _accuracy(each: Case, inputs: Sequence[torch.Tensor], eager: Any, ours: Any) -> str:
    doubled = [t.detach().double().requires_grad_(t.requires_grad) if t.is_floating_point() else t for t in inputs]
    torch.manual_seed(1)
    if each.trains:  # the incoming gradient was drawn in the inputs' type
        seed = torch.randn_like(each.program(*inputs)).double()
        wanted = [t for t in doubled if t.is_floating_point()]
        exact: Any = torch.autograd.grad(each.program(*doubled), wanted, seed)
    else:
        exact = each.program(*doubled)
    actual, expected = error(ours, exact), error(eager, exact)
    return "" if actual <= 2 * expected + 1e-9 else f"error {actual:.1e}, eager's {expected:.1e}"


def copy_speed(make: Make, rounds: int) -> float:
    """Returns the bytes per second of a plain copy."""
    x = make.matrix()
    y = torch.empty_like(x)
    took = statistics.median(second for (second,) in rounds_of([lambda: y.copy_(x)], make.device, rounds))
    return 2 * x.nbytes / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--least", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--others", action="store_true", help="programs that no kernel was tuned with")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    make = Make(options.rows, options.columns, getattr(torch, options.dtype), options.device)
    where = torch.cuda.get_device_name() if make.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    copied = copy_speed(make, options.rounds)
    print(
        f"{where}, torch {torch.__version__}, {options.dtype} {make.rows} x {make.columns}; us; copy {copied:.3g} B/s"
    )
    print(f"{'case':24}{'eager':>11}{'ours':>11}{'Inductor':>11}{'x eager':>9}{'x Induct':>9}{'of copy':>9}")
    ratios = []
    for each in OTHERS if options.others else CASES:
        if options.only in each.name:
            rounds, note, moved = measure(each, make, options.rounds, options.least)
            took = [min(column) if options.least else statistics.median(column) for column in zip(*rounds, strict=True)]
            times = "".join(f"{t * 1e6:11,.1f}" for t in took)
            faster = [
                took[other] / took[1] if options.least else statistics.median(row[other] / row[1] for row in rounds)
                for other in (0, 2)
            ]
            ratios.append(faster[1])
            of_copy = "" if each.trains else f"{moved / took[1] / copied:9.2f}"
            print(f"{each.name:24}{times}{faster[0]:9.2f}{faster[1]:9.2f}{of_copy}  {note}", flush=True)
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    print(f"geometric mean of Inductor / ours {mean:.3f}, least {min(ratios):.2f}, {len(ratios)} cases")


if __name__ == "__main__":
    main()
