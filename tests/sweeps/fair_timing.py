"""Times equal calls against each other: none may be called faster.  ``python -m tests.sweeps.fair_timing [RUNS]``

Each run compares a function with itself by every way that compares times: `compiler_core.time`, and the trial of an
edited kernel, wrapper or graph, whose rounds `seconds_in_rounds` makes.  The first half runs on the machine as it is,
the second half beside processes that keep all CPUs busy.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

import compiler_core
from compiler_core.tools.in_turn import seconds_in_rounds
from compiler_core.tools.timing.faster import compare

_BUSY = "while True: pass"


def _small(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def _medium(x: torch.Tensor) -> torch.Tensor:
    return (x.repeat(8, 8).sin() * 2).sum(0)


def _large(x: torch.Tensor) -> torch.Tensor:
    return x.repeat(64, 64).cos().sum()


CALLS: list[Callable[[torch.Tensor], torch.Tensor]] = [_small, _medium, _large]


def by_time(call: Callable[[torch.Tensor], Any], x: torch.Tensor) -> str:
    """Returns the outcome of `compiler_core.time` for a function beside itself."""
    found = compiler_core.time(call, x, engines={"one": call, "other": call}, seconds=0.2)
    row = found["other"]
    return "unclear" if row.unclear else "faster" if row.differs else "same"


def by_trial(call: Callable[[torch.Tensor], Any], x: torch.Tensor) -> str:
    """Returns the outcome of a trial's rounds for a function beside itself."""
    before, after = seconds_in_rounds([lambda: call(x), lambda: call(x)], lambda: None)
    return compare(after, before).outcome


@contextmanager
def busy_machine(is_busy: bool) -> Iterator[None]:
    """Context manager that keeps all CPUs busy, with `is_busy`."""
    loops = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(os.cpu_count() or 1) if is_busy]
    try:
        yield
    finally:
        for each in loops:
            each.kill()
            each.wait()


def main() -> int:
    """Runs the comparisons; returns 1 if a call was called faster than itself."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("runs", nargs="?", type=int, default=200)
    runs = parser.parse_args().runs
    x, wrong = torch.randn(16, 16), 0
    for is_busy in (False, True):
        found: dict[str, Counter[str]] = {"time": Counter(), "trial": Counter()}
        with busy_machine(is_busy):
            for number in range(runs // 2):
                call = CALLS[number % len(CALLS)]
                found["time"][by_time(call, x)] += 1
                found["trial"][by_trial(call, x)] += 1
        for name, outcomes in found.items():
            print(f"{name} {'beside busy processes' if is_busy else 'as it is'}: {dict(outcomes)}", flush=True)
            wrong += outcomes["faster"] + outcomes["slower"]
    print(f"{wrong} of {2 * (runs // 2) * 2} comparisons of equal calls found a difference")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
