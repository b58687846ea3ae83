"""Cold compile time and the cost of a hooked call, beside stock torch.compile and plain Python."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

ROUNDS = 3


def test_cold_compile(tmp_path: Path) -> None:
    """The walk-through function, both shapes, forward and backward, empty caches: at most a quarter of stock."""
    seconds: dict[str, list[float]] = {"core": [], "stock": []}
    for i in range(ROUNDS):
        for engine, found in seconds.items():
            found.append(_cold(engine, tmp_path / f"{engine}{i}"))
    medians = {engine: statistics.median(found) for engine, found in seconds.items()}
    ratio = medians["core"] / medians["stock"]
    print(f"\ncold compile  core {medians['core']:.2f} s  stock {medians['stock']:.2f} s  ratio {ratio:.3f}")
    assert ratio <= 0.25


def _cold(engine: str, caches: Path) -> float:
    root = Path(__file__).parents[2]
    places = {"CUTAWAY_CACHE_DIR": str(caches), "TORCHINDUCTOR_CACHE_DIR": str(caches), "PYTHONPATH": str(root)}
    script = Path(__file__).with_name("cold_compile.py")
    run = subprocess.run(
        [sys.executable, str(script), engine], env=os.environ | places, capture_output=True, text=True, check=True
    )
    return float(run.stdout.split()[-1])


def test_hooked_call() -> None:
    """A call that two tensor guards cover costs at most 1.5 times the plain call plus 2 microseconds."""
    import compiler_core

    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + y).relu()

    x, y = torch.randn(4), torch.randn(4)
    calls = {
        "plain": add,
        "core": compiler_core.compile(add, backend="eager"),
        "stock": torch.compile(add, backend="eager"),
    }
    micros: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(15):
        for name, fn in calls.items():
            micros[name].append(_per_call(fn, x, y))
    plain, core, stock = (min(micros[name]) for name in ("plain", "core", "stock"))
    print(f"\nhooked call  plain {plain:.2f} us  core {core:.2f} us  stock {stock:.2f} us  ", end="")
    print(f"core / (1.5 plain + 2 us) {core / (1.5 * plain + 2):.2f}  core / stock {core / stock:.2f}")
    assert core <= 1.5 * plain + 2


def _per_call(fn: Callable[..., torch.Tensor], x: torch.Tensor, y: torch.Tensor, number: int = 3000) -> float:
    fn(x, y)
    start = time.perf_counter()
    for _ in range(number):
        fn(x, y)
    return (time.perf_counter() - start) / number * 1e6
