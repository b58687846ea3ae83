"""Sweeps of many models that are killed and resumed, the same sweep and under other executors.

    python -m tests.benchmarks.bench_many [--models 200] [--kills 2] [--every 120] [--executors dask ray ...]

The models are small and generated: networks of random layers, every tenth with a graph break, every fiftieth raises.
A sweep is killed with its workers (SIGKILL to the process group) so many times, some seconds after each start.  Under
each executor one worker is killed while it has a model.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import nn

from compiler_core.tools.sweep.cases import Case
from compiler_core.tools.sweep.store import Store
from compiler_core.tools.sweep.sweeping import sweep
from tests.tools import test_sweep_executors as executors

VARYING = {
    "compile_seconds", "first_seconds", "eager_seconds", "compiled_seconds", "speed", "peak_bytes", "seconds",
    "attempts", "traceback", "record",
}  # fmt: skip
"""Columns that are measured, that say how often a case was tried, or where its record is."""


class Printing(nn.Module):
    """A layer that breaks the graph."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("a layer that prints", file=sys.stderr)
        return x


def make(number: int) -> tuple[Any, tuple[Any, ...]]:
    """Makes the network of this number."""
    if number % 50 == 49:
        raise ValueError(f"there is no model {number}")
    draw, width, layers = random.Random(number), 16, list[nn.Module]()
    for _ in range(draw.randint(1, 6)):
        layers.append(draw.choice((nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(), nn.ReLU(), nn.Softmax(-1))))
    if number % 10 == 0:
        layers.insert(len(layers) // 2, Printing())
    torch.manual_seed(number)
    return nn.Sequential(*layers), (torch.randn(4, width),)


def run(path: Path, models: int, executor: Any = None) -> Any:
    """Sweeps the first models; returns the result."""
    cases = [Case(f"model {number}", make, (number,)) for number in range(models)]
    settings: dict[str, Any] = {"engine": "core", "options": {"backend": "eager"}, "seconds": 0.0, "workers": 2}
    return sweep(cases, path, executor=executor, progress=False, **settings)


def killed_and_resumed(path: Path, models: int, kills: int, every: float) -> None:
    """Runs a sweep that is killed several times; prints what was lost and what ran twice."""
    began = time.monotonic()
    for number in range(kills + 1):
        command = [sys.executable, "-m", __spec__.name, "--child", str(path), "--models", str(models)]
        process = subprocess.Popen(command, start_new_session=True)
        try:
            process.wait(every if number < kills else None)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        rows = len(Store(path).finished())
        print(f"run {number + 1}: {rows} rows after {time.monotonic() - began:.0f} s, exit {process.returncode}")
    store = Store(path)
    ended = Counter(name for name, state in store.runs() if state == "ok")
    states = Counter(row["state"] for row in store.rows())
    twice = [name for name, count in ended.items() if count > 1]
    print(f"{len(store.rows())} rows of {models}: {dict(states)}; {len(store.runs())} runs")
    print(f"finished twice: {twice or 'none'}")


def compared(path: Path, folder: Path, names: list[str], models: int) -> None:
    """Runs the sweep under each executor and compares its rows with those of the first sweep."""
    right = _table(Store(path).rows()[:models])
    for name in names:
        began, file = time.monotonic(), folder / f"{name}.sqlite"
        with getattr(executors, f"{name}_workers")(folder) as executor:
            killer = threading.Thread(target=_kill_a_worker, args=(file,), daemon=True)
            killer.start()
            found = _table(run(file, models, executor).rows)
        pairs = list(zip(right, found, strict=True))
        count = sum(row != other for row, other in pairs)
        columns = sorted({key for row, other in pairs for key in row if row[key] != other[key]})
        taken = time.monotonic() - began
        print(f"{name}: {len(found)} rows in {taken:.0f} s, {count} differ {columns or ''}", flush=True)


def _kill_a_worker(path: Path) -> None:
    """Kills the worker that has a model once a quarter of the models is finished."""
    query = "SELECT cases.name, owner FROM cases LEFT JOIN rows USING (name) WHERE owner != '' AND state IS NULL"
    while True:
        time.sleep(0.5)
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db,
        ):
            done, of = (db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("rows", "cases"))
            running = db.execute(query).fetchone() if of and done >= of / 4 else None
            if running:
                print(f"killed the worker that had {running[0]!r}, {running[1]}, after {done} rows", flush=True)
                os.kill(int(running[1].split(":")[1]), signal.SIGKILL)
                return


def _table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in VARYING} for row in rows]


def main() -> None:
    """Reads the arguments and runs the parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--every", type=float, default=120.0)
    parser.add_argument("--executors", nargs="*", default=[])
    parser.add_argument("--child", type=Path)
    given = parser.parse_args()
    if given.child:
        run(given.child, given.models)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sweep.sqlite"
        killed_and_resumed(path, given.models, given.kills, given.every)
        compared(path, Path(folder), given.executors, given.models)
    print(f"peak memory of a process {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
