"""Compares compile times of growing programs with stock torch.compile, on the CPU, each in a new process.

    python -m tests.benchmarks.bench_growth [--sizes 16 32 64] [--only writes] [--training] [--limit 120]

The programs, of n operations, are in `tests/cases/growing_programs.py`.  Seconds are processor time of the process and
of the compilers it starts, with empty caches, from the call to its results (with `--training`: to its gradients).
*Ratio* is our time divided by stock's at the largest size that both finished; *growth* is the exponent of n between the
two largest sizes, 1 for linear time.  The exit status is 1 if a ratio is over 3.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.benchmarks.cold_compile import ENGINES, Clock
from tests.cases.growing_programs import KINDS, example

MOST = 3.0
"""The greatest allowed ratio of our time to stock's."""


def compile_once(engine: str, kind: str, n: int, training: bool) -> float:
    """Returns the processor seconds of a first call, in this process."""
    torch.set_num_threads(1)
    warm_up = ENGINES[engine](lambda x: x + 1)
    warm_up(torch.zeros(3))  # imports modules
    x = example().requires_grad_(training)
    clock = Clock()
    result = ENGINES[engine](KINDS[kind](n))(x)
    if training:
        results = result if isinstance(result, list) else [result]
        torch.autograd.backward(results, [torch.ones_like(t) for t in results])
    return clock.read()[1]


def measured(engine: str, kind: str, n: int, training: bool, limit: float) -> float:
    """Runs `compile_once` in a separate process; NaN if it took longer than `limit` seconds or failed."""
    with tempfile.TemporaryDirectory() as caches:
        places = {"CUTAWAY_CACHE_DIR": caches, "TORCHINDUCTOR_CACHE_DIR": caches, "OMP_NUM_THREADS": "1"}
        places |= {"PYTHONPATH": str(Path(__file__).parents[2]), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        command = [sys.executable, "-m", "tests.benchmarks.bench_growth", "--one", engine, kind, str(n)]
        command += ["--training"] if training else []
        try:
            run = subprocess.run(
                command, env=os.environ | places, capture_output=True, text=True, timeout=limit, check=True
            )
        except subprocess.TimeoutExpired:
            return math.nan
        except subprocess.CalledProcessError as error:
            print(f"{engine}, {kind} of {n}: {error.stderr[-300:]}", file=sys.stderr, flush=True)
            return math.nan
        return float(run.stdout.split()[-1])


def growth(sizes: Sequence[int], times: Sequence[float]) -> float:
    """Returns the exponent of n between the last two sizes measured; NaN if there are fewer."""
    known = [(n, t) for n, t in zip(sizes, times, strict=True) if not math.isnan(t)][-2:]
    if len(known) < 2:
        return math.nan
    (few, fast), (many, slow) = known
    return math.log(slow / fast) / math.log(many / few)


def row(kind: str, sizes: Sequence[int], training: bool, limit: float) -> float:
    """Prints the times of one program and returns the ratio."""
    times = {e: [measured(e, kind, n, training, limit) for n in sizes] for e in ENGINES}
    pairs = [(ours, stock) for ours, stock in zip(*times.values(), strict=True) if not math.isnan(ours + stock)]
    ratio = pairs[-1][0] / pairs[-1][1] if pairs else math.nan
    cells = " ".join(
        " ".join(f"{t:7.2f}" for t in found) + f" {growth(sizes, found):6.2f} |" for found in times.values()
    )
    print(f"{kind:20} {cells} {ratio:6.2f}", flush=True)
    return ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--only", default="", help="programs with this in their name")
    parser.add_argument("--training", action="store_true", help="forward and backward")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that one compile may take")
    parser.add_argument("--one", nargs=3, metavar=("ENGINE", "KIND", "N"), help="measure one, in this process")
    options = parser.parse_args()
    if options.one:
        engine, kind, n = options.one
        print(compile_once(engine, kind, int(n), options.training))
        return
    head = " ".join(f"{n:7}" for n in options.sizes) + " growth |"
    print(f"{'ours | stock, s':20} {head} {head}  ratio", flush=True)
    chosen = [kind for kind in KINDS if options.only in kind]
    over = [k for k in chosen if row(k, options.sizes, options.training, options.limit) > MOST]
    if over:
        sys.exit(f"more than {MOST:g} times stock's time: {', '.join(over)}")


if __name__ == "__main__":
    main()
