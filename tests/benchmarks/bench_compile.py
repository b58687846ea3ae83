"""Cold compile time compared with stock torch.compile, and the cost of a hooked call compared with plain Python."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

ROUNDS = 3


@pytest.mark.parametrize("program", ["walk_through", "resnet", "transformer"])
def test_cold_and_warm_compile(program: str, tmp_path: Path) -> None:
    """With empty caches at most a third of stock's time; with kernels already built at most half."""
    for start, bar in (("cold", 1 / 3), ("warm", 1 / 2)):
        runs: dict[str, list[tuple[float, float]]] = {"core": [], "stock": []}
        for i in range(ROUNDS if program == "walk_through" else 1):
            for engine, found in runs.items():
                found.append(_compile(engine, program, tmp_path / f"{engine}{i}"))
        (core, cpu), (stock, stock_cpu) = (_medians(found) for found in runs.values())
        print(f"\n{start} {program}: core {core:.2f} s ({cpu:.2f} of processor time)  ", end="")
        print(f"stock {stock:.2f} s ({stock_cpu:.2f})  ratio {core / stock:.3f} ({cpu / stock_cpu:.3f})")
        assert cpu / stock_cpu <= bar


def _medians(runs: list[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(wall for wall, _ in runs), statistics.median(cpu for _, cpu in runs)


def _compile(engine: str, program: str, caches: Path) -> tuple[float, float]:
    """Returns wall and processor time; stock compiles kernels in this process, so that all its time counts."""
    places = {"CUTAWAY_CACHE_DIR": str(caches), "TORCHINDUCTOR_CACHE_DIR": str(caches)}
    places |= {"PYTHONPATH": str(Path(__file__).parents[2]), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    command = [sys.executable, "-m", "tests.benchmarks.cold_compile", engine, program]
    run = subprocess.run(command, env=os.environ | places, capture_output=True, text=True, check=True)
    wall, cpu = map(float, run.stdout.split()[-2:])
    return wall, cpu


def test_time_is_linear_in_the_size_of_a_training_graph() -> None:
    """A round of two operations, forward and backward, costs at most 1.5 times as much among 800 as among 100."""
    _training_graph(10)  # imports modules
    few, many = _training_graph(100) / 100, _training_graph(800) / 800
    print(f"\na round of two operations: {few * 1e3:.1f} ms among 100, {many * 1e3:.1f} ms among 800")
    assert many <= 1.5 * few


def _training_graph(rounds: int) -> float:
    """Returns the processor time of a compile."""
    import compiler_core

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(rounds):
            x = x.sin() * y
        return x

    x, y = (torch.randn(8, 8, requires_grad=True) for _ in "xy")
    start = time.process_time()
    compiler_core.compile(program, strict=True)(x, y)
    return time.process_time() - start


def test_hooked_call() -> None:
    """A call with guards on two tensors costs at most 1.5 times the plain call plus 2 microseconds."""
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
