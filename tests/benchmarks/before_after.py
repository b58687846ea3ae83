"""Compares the speed of two checkouts: kernels, calls, capture, joint graphs and whole compiles.

    python -m tests.benchmarks.before_after OLD NEW [--rounds 4] [--only calls]

OLD and NEW are folders with a checkout each, such as worktrees of git; the Python that runs this must have their
dependencies.  They are measured in turns, each round in new processes, and of each figure the minimum counts, because
other work on the machine only adds time.  Times of compiling are processor time.  Prints a table for RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Figure = tuple[str, float]
"""What was measured, and microseconds."""

# ---- in a process whose modules are those of one checkout


def calls() -> Iterator[Figure]:
    """Calls of compiled functions with 4 elements, whose time is that of guards and launches."""
    import torch

    import compiler_core
    from tests.benchmarks import bench_guards

    x, y, trained = torch.randn(4), torch.randn(4), torch.randn(4, requires_grad=True)
    add = compiler_core.compile(lambda x, y: x + y, backend="eager")
    relu = compiler_core.compile(lambda x, y: (x * y).relu(), backend="cpp")
    loss = compiler_core.compile(lambda x, y: (x * y).relu().sum(), backend="cpp")
    layer = compiler_core.compile(torch.nn.Linear(4, 4).requires_grad_(False), backend="eager")
    hundred = compiler_core.compile(bench_guards.Hundred(), backend=bench_guards._nothing)
    sizes = compiler_core.compile(bench_guards.three_matrices, backend=bench_guards._nothing, dynamic=True)
    three, one = [torch.ones(6, 7) for _ in range(3)], torch.tensor([2])
    yield "a function, backend eager", least(lambda: add(x, y))
    yield "a function, one kernel", least(lambda: relu(x, y))
    yield "a training step, two kernels", least(lambda: loss(trained, y).backward())
    yield "a module, backend eager", least(lambda: layer(x))
    yield "guards of 100 modules", least(lambda: hundred(one))
    yield "guards of six symbolic sizes", least(lambda: sizes(*three))


def kernels(rows: int = 100, columns: int = 100) -> Iterator[Figure]:
    """Calls of the thirty programs of `cases.py`, kernels included."""
    import torch

    import compiler_core
    from tests.benchmarks.bench_cases import runner
    from tests.benchmarks.cases import CASES, Make

    make = Make(rows, columns, torch.float32, "cpu")
    for case in CASES:
        torch.manual_seed(0)
        inputs = [t.requires_grad_(case.trains and t.is_floating_point()) for t in case.inputs(make)]
        yield case.name, least(runner(compiler_core.compile(case.program), inputs, case.trains))


def large_kernels() -> Iterator[Figure]:
    """The same with a million elements."""
    return kernels(1000, 1000)


def capture() -> Iterator[Figure]:
    """The first calls of programs with 200 operations, modules, arguments ...: the time of each of these."""
    from tests.benchmarks.bench_capture import MANY, _breaks, _per_unit

    for many in MANY:
        yield many.__name__, min(_per_unit(many, 200) for _ in range(4))
    yield "graph breaks", min(_breaks(10) for _ in range(4))


def joint_graphs() -> Iterator[Figure]:
    """Joint graph and partition of transformer layers."""
    import torch

    from tests.benchmarks.bench_joint import _ours, captured

    def once(count: int) -> float:
        layers = (torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) for _ in range(count))
        graph, fakes, _ = captured(torch.nn.Sequential(*layers), [torch.randn(2, 8, 32)])
        start = time.process_time()
        _ours(graph, fakes)
        return (time.process_time() - start) * 1e6

    for count in (1, 4):
        yield f"{count} layers", min(once(count) for _ in range(3))


def compiles() -> Iterator[Figure]:
    """Whole compiles in a new process, cold and with kernels that are built, the C++ compiler included."""
    for program in ("walk_through", "transformer"):
        with tempfile.TemporaryDirectory() as caches:
            for state in ("cold", "warm"):
                command = [sys.executable, "-m", "tests.benchmarks.cold_compile", "core", program]
                environment = os.environ | {"CUTAWAY_CACHE_DIR": caches}
                run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
                yield f"{program}, {state}", float(run.stdout.split()[-1]) * 1e6


GROUPS = (calls, kernels, large_kernels, capture, joint_graphs, compiles)


def least(run: Callable[[], Any]) -> float:
    """Returns the least time of a call: the minimum of up to 200 short measurements."""
    for _ in range(3):
        run()
    start = time.perf_counter()
    run()
    number = max(1, min(500, int(0.001 / (time.perf_counter() - start))))
    best, end = math.inf, time.perf_counter() + 0.25
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(number):
            run()
        best = min(best, (time.perf_counter() - start) / number)
    return best * 1e6


def measure(group: str) -> None:
    """Prints the figures of a group as JSON."""
    import torch

    torch.set_num_threads(1)
    (found,) = (each for each in GROUPS if each.__name__ == group)
    print(json.dumps(list(found())))


# ---- in the process that compares


def figures(checkout: Path, group: str) -> dict[str, float]:
    """Returns the figures of one group, measured in a new process with the modules of `checkout`."""
    environment = os.environ | {"PYTHONPATH": str(checkout), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, __file__, "--measure", group]
    run = subprocess.run(command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(run.stdout.splitlines()[-1]))


def compare(old: Path, new: Path, rounds: int, only: str) -> None:
    """Prints the least of each figure, then a table of the groups with the geometric mean of their ratios."""
    summary = ["| group | figures | old / new, geometric mean | least | of |", "|---|---|---|---|---|"]
    print("| group | figure | old us | new us | old / new |\n|---|---|---|---|---|")
    for group in (each.__name__ for each in GROUPS if only in each.__name__):
        best: tuple[dict[str, float], dict[str, float]] = {}, {}
        for number in range(2 * rounds):
            side = (number + number // 2) % 2  # old, new, new, old ...
            for name, found in figures((old, new)[side], group).items():
                best[side][name] = min(found, best[side].get(name, math.inf))
        ratios = {name: best[0][name] / found for name, found in best[1].items()}
        for name, ratio in ratios.items():
            print(f"| {group} | {name} | {best[0][name]:,.2f} | {best[1][name]:,.2f} | {ratio:.2f} |", flush=True)
        mean, least_of = math.exp(statistics.fmean(map(math.log, ratios.values()))), min(ratios, key=ratios.__getitem__)
        summary.append(f"| {group} | {len(ratios)} | {mean:.2f} | {ratios[least_of]:.2f} | {least_of} |")
    print("\n" + "\n".join(summary))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, nargs="?")
    parser.add_argument("new", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", default="", help="measure the groups with this in their name: " + _group_names())
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
    elif options.old and options.new:
        compare(options.old.resolve(), options.new.resolve(), options.rounds, options.only)
    else:
        parser.error("name two checkouts")


def _group_names() -> str:
    return ", ".join(each.__name__ for each in GROUPS)


if __name__ == "__main__":
    main()
