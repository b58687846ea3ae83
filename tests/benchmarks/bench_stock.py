"""The overhead of observing stock torch.compile, the speed of reading logs, and both engines on 13 architectures."""

from __future__ import annotations

import gc
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.utils import fresh_cache

import compiler_core
from compiler_core.tools.questions.compare import compare
from tests.cases.architectures import FIRST, MODELS
from tests.tools.stock.test_stock_logs import write_log

ROUNDS = 15
MOST = 1.05

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(1800)]


READ = """
import resource, sys, time
from compiler_core.tools.stock.trace_logs import read_logs

start = time.process_time()
read_logs(sys.argv[1])
print(time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def _compile(name: str, around: Callable[[], AbstractContextManager[Any]]) -> tuple[float, float]:
    """Returns the processor seconds of a compile with empty Dynamo caches, and of closing its record."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, arguments = MODELS[name]()
    compiled = torch.compile(model.eval())
    gc.collect()
    start = time.process_time()
    with around(), torch.no_grad():
        compiled(**arguments)
        done = time.process_time()
    return done - start, time.process_time() - done


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_observing_costs_little(name: str) -> None:
    """Measures the worst case: Inductor runs again, but its kernels, most of a compile's time, are built already.

    Observed and plain compiles alternate, also in order; each time is compared with that of its neighbor."""
    ways: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "without": nullcontext,
        "with": lambda: compiler_core.record(engine="torch"),
    }
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    with fresh_cache(), torch._inductor.config.patch(fx_graph_cache=False):
        for around in ways.values():
            _compile(name, around)  # imports modules, and precompiles headers
        for turn in range(ROUNDS):
            for way in sorted(ways, reverse=turn % 2 == 0):
                found[way].append(_compile(name, ways[way]))
    ratios = [with_ / without for (without, _), (with_, _) in zip(found["without"], found["with"], strict=True)]
    without, with_ = (statistics.median(seconds for seconds, _ in found[way]) for way in ways)
    closing = statistics.median(seconds for _, seconds in found["with"])
    ratio, (low, high) = statistics.median(ratios), _interval(ratios)
    print(
        f"\n{name}: {without:.2f} s, with a record {with_:.2f} s, ratio {ratio:.3f} ({low:.3f} to {high:.3f}), ", end=""
    )
    print(f"closing {closing:.2f} s")
    assert ratio <= MOST


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Returns a 95 percent confidence interval of the median, for any distribution."""
    n = len(values)
    below = [sum(math.comb(n, i) for i in range(k + 1)) / 2**n for k in range(n // 2)]
    left_out = sum(p <= 0.025 for p in below)
    return sorted(values)[left_out], sorted(values)[n - 1 - left_out]


def test_a_gigabyte_of_log(tmp_path: Path) -> None:
    """Runs in a separate process, whose memory is that of reading the log."""
    text = write_log(tmp_path / "log").read_text()
    log = tmp_path / "long.log"
    with log.open("w") as file:
        frame = 0
        while file.tell() < 1e9:
            frame += 1
            file.write(text.replace('"frame_id": ', f'"frame_id": {frame}'))
    done = subprocess.run([sys.executable, "-c", READ, str(log)], capture_output=True, text=True, check=True)
    seconds, megabytes = map(float, done.stdout.split())
    rate = log.stat().st_size / 1e6 / seconds
    size = log.stat().st_size / 1e6
    print(f"\n{size:.0f} MB in {seconds:.1f} s of process time, {rate:.0f} MB/s, {megabytes:.0f} MB of memory")
    assert megabytes < 500
    assert rate > 50


@pytest.mark.parametrize("name", FIRST)
def test_both_engines(name: str) -> None:
    """Prints a row of the table: ours / stock, forward and backward.  All caches are empty, except for kernels."""
    result, values = {}, {}
    for engine in ("core", "torch"):
        torch._dynamo.reset()
        torch.manual_seed(0)
        model, arguments = MODELS[name]()
        through = compiler_core.compile if engine == "core" else torch.compile
        with torch._inductor.config.patch(fx_graph_cache=False), compiler_core.record(engine, engine=engine) as record:
            outputs = dict(through(model.eval())(**arguments))
            tensors = [value for value in outputs.values() if isinstance(value, torch.Tensor)]
            torch.stack([tensor.float().sum() for tensor in tensors if tensor.requires_grad]).sum().backward()
        result[engine] = record
        values[engine] = [*tensors, *(p.grad for p in model.parameters())]
    found = compare(result["core"], result["torch"])
    print(f"\n| {name} | " + " | ".join(f"{t.before:,.4g} / {t.after:,.4g}" for t in found.totals) + " |")
    torch.testing.assert_close(values["core"], values["torch"], rtol=1e-3, atol=1e-3)
