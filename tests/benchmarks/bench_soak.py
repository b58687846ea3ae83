"""Measures resident memory in a long session: compiles and resets of a function, and cells of a notebook kernel.

    make soak COMPILES=5000 CELLS=500

Prints the memory in MB after each tenth of the session.  It stays flat after the first if nothing leaks.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import compiler_core

PARTS = 10
KINDS = ("compiles", "cells", "plain")


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def soaked(step: Callable[[int], object], count: int) -> list[float]:
    """Runs `step` `count` times; returns the memory after each tenth."""
    measured = []
    for part in range(PARTS):
        for number in range(part * count // PARTS, (part + 1) * count // PARTS):
            step(number)
        gc.collect()
        measured.append(resident_mb())
    return measured


def compiles() -> Callable[[int], object]:
    """Returns a step that resets and recompiles the same function, forward and backward."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return ((x * 2 + 1).sin() * x.shape[0]).sum()

    compiled = compiler_core.compile(program, dynamic=False)

    def step(number: int) -> None:
        x = torch.ones(2 + number % 5, 3, requires_grad=True)
        compiled(x).backward()
        compiler_core.reset()

    return step


CELLS = (
    "%%compile\nx = torch.ones(5, 3)\n(x * 2).sin().sum()",
    "%%compile\ndef f(t):\n    return t.cos() + 1\ny = f(torch.ones(4))\nprint(y.shape)\ny.sum()",
    "%%compile\nnet = torch.nn.Linear(3, 2)\nloss = net(torch.ones(2, 3)).square().sum()\nloss.backward()\nloss",
)
"""A notebook of three cells, which run repeatedly."""


def cells(magic: bool = True) -> Callable[[int], object]:
    """Returns a step that runs a cell in the shell of a kernel without a browser."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    shell: Any = InteractiveShell.instance(config=config)
    shell.kernel = object()
    shell.displayhook.cache_size = 0  # Out[...] belongs to the user and keeps values alive
    shell.run_line_magic("load_ext", "kernel_magics")
    shell.user_ns["torch"] = torch

    def step(number: int) -> None:
        text = CELLS[number % len(CELLS)]
        with capture_output():
            done = shell.run_cell(text if magic else f"#{text}", True, cell_id=f"cell {number % len(CELLS)}")
        done.raise_error()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--compiles", type=int, default=5000)
    parser.add_argument("--cells", type=int, default=500)
    parser.add_argument("--kind", choices=KINDS, help="this soak only, in this process")
    arguments = parser.parse_args()
    counts = {"compiles": arguments.compiles, "cells": arguments.cells, "plain": arguments.cells}
    if arguments.kind is None:
        sizes = ["--compiles", str(arguments.compiles), "--cells", str(arguments.cells)]
        for kind in KINDS:
            subprocess.run([sys.executable, "-m", "tests.benchmarks.bench_soak", "--kind", kind, *sizes], check=True)
        return
    step = compiles() if arguments.kind == "compiles" else cells(arguments.kind == "cells")
    began = time.monotonic()
    measured = soaked(step, counts[arguments.kind])
    tenths = " ".join(f"{mb:.0f}" for mb in measured)
    print(f"{arguments.kind:9} {counts[arguments.kind]:6} in {time.monotonic() - began:4.0f} s; MB by tenth: {tenths}")


if __name__ == "__main__":
    main()
