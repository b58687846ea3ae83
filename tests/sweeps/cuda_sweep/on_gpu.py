"""Runs the sweep's kernels on a GPU and compares values and gradients with eager PyTorch.

    python -m tests.sweeps.cuda_sweep.on_gpu              some three minutes on an H100
    python -m tests.sweeps.cuda_sweep.on_gpu "usual: norm_of_a_sum 83333 768 float32 plain"

runs programs at sizes at which the size rules choose another kind of kernel, the strategies for big sizes at small
sizes, and tensors of more than 2**31 elements.  It prints the differences from eager (`forced.difference`); the exit
status is 1 if there are any.  A worker that dies is reported, and a new one continues.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from queue import Empty, Queue

import torch

import compiler_core
from compiler_core.loops.schedule.block_sizes import override_rules
from tests.sweeps.cuda_sweep.forced import RULES, Forced, difference, every, in_double, outcome
from tests.sweeps.cuda_sweep.programs import Point

WORKERS = 8
SECONDS = 170
MANY_ROWS = ((83_333, 768), (31_250, 2048), (16 * 1009, 96), (99_991, 64), (1_000_000, 16), (65_536, 257))
NORMS = ("norm_of_a_sum", "rms_norm_and_sum", "a_layer", "rows_and_columns", "scaled_residual_norm", "losses")
LONG_ROWS = ((2, 1 << 20), (64, 65_536), (257, 16_385), (3, 100_003), (1, 10**7))
OVER_ROWS = ("softmax_of_running", "running", "masked_softmax", "rows_and_columns", "sums", "largest", "variances")
OTHERS = (
    *("batch_norm_in_training 83333 768", "norms_of_images 83333 768", "norm_of_columns 83333 768"),
    *("rows_and_columns_across 700 4096", "rows_and_columns_across 96 8192", "cross_entropy_training 8192 50257"),
    *("cross_entropy_training 4096 32000", "smoothed_cross_entropy 1009 50257", "nll_with_ignored 83333 768"),
    *("extremes 83333 768", "truths 1000000 16", "whole_numbers 83333 768", "moved 83333 768", "put 31250 2048"),
    *("looked_up 31250 2048", "products_and_norms 1009 1000", "over_images 31250 2048", "pools 31250 2048"),
    *("adamw 31250 2048", "clipped 31250 2048", "broadcasts 1000000 16", "softmax_of_running 31250 2048"),
)
FAR = ("cos_chain", "largest", "bias_residual")
"""Programs for tensors of more than 2**31 elements, in bfloat16, compared with eager only."""


def points() -> Iterator[Forced]:
    """Yields what is run, the most informative first."""
    for name, size in itertools.product(NORMS, MANY_ROWS):
        yield Forced("usual", Point(name, *size))
    for name, size in itertools.product(OVER_ROWS, LONG_ROWS):
        yield Forced("usual", Point(name, *size))
    for text in OTHERS:
        yield Forced("usual", Point.parsed(f"{text} float32 plain"))
    for name in NORMS:
        yield Forced("usual", Point(name, 83_333, 768, torch.bfloat16))
        yield Forced("usual", Point(name, 83_333, 768, torch.float32, "turned"))
    yield from itertools.islice((item for item in every(7) if item.rules != "usual"), 600)


def differences(item: Forced) -> list[str]:
    point = item.point
    assert isinstance(point, Point)
    function = point.case().program
    torch.manual_seed(20261122)
    try:
        inputs = point.inputs("cuda")
        expected = outcome(function, inputs)
    except torch.OutOfMemoryError:
        raise
    except Exception:
        return []  # eager raises
    compiler_core.reset()
    with override_rules(RULES[item.rules]), compiler_core.record() as record:
        got = outcome(compiler_core.compile(function, strict=True, dynamic=False), inputs)
    failures = [f"failed: {f.stage}: {f.message}" for c in record.compiles for f in c.failures]
    exact = outcome(function, [in_double(t) for t in inputs])
    pairs = enumerate(zip(got, expected, exact, strict=True))
    return failures + [f"result {n}: {problem}" for n, three in pairs if (problem := difference(*three))]


def far_differences(name: str) -> list[str]:
    """Of more than 2**31 elements: row by row the same as eager's, whose last bits may differ."""
    point = Point(name, 70_000, 32_768, torch.bfloat16)
    function, wrong = point.case().program, []
    with torch.no_grad():
        inputs = [t.detach() for t in point.inputs("cuda")]
        compiler_core.reset()
        created, want = compiler_core.compile(function, strict=True, dynamic=False)(*inputs), function(*inputs)
        pairs = zip(*([t] if isinstance(t, torch.Tensor) else t for t in (created, want)), strict=True)
        for n, (ours, eager) in enumerate(pairs):
            for at in range(0, ours.shape[0], 5000):
                part = slice(at, at + 5000)
                if not torch.allclose(ours[part].float(), eager[part].float(), rtol=0.02, atol=0.02):
                    wrong.append(f"result {n} differs in rows {at} to {at + 5000}")
    return wrong


def verdict(text: str, tries: int = 4) -> list[str]:
    """Returns the difference or an empty text; retries while other workers use too much memory."""
    try:
        name = text.removeprefix("far: ")
        return far_differences(name) if name != text else differences(Forced.parsed(text))
    except torch.OutOfMemoryError as error:
        if tries == 1:
            return [f"{error}"]
    except Exception:
        return [traceback.format_exc(limit=-5)]
    finally:
        torch.cuda.empty_cache()
    time.sleep(10)
    return verdict(text, tries - 1)


# ---- workers -------------------------------------------------------------------------------


def work() -> None:
    """Reads cases from standard input and writes verdicts as lines of JSON."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of programs must not mix with the verdicts
    for line in sys.stdin:
        print(json.dumps(verdict(line.strip())), file=answers, flush=True)


class Crew:
    """Runs workers in separate processes, since an invalid memory access ends a process's use of the GPU."""

    def __init__(self, items: Iterable[str], seconds: float) -> None:
        self.wrong: dict[str, list[str]] = {}
        self.done = 0
        self._items: Queue[str] = Queue()
        for item in items:
            self._items.put(item)
        self._end = time.monotonic() + seconds

    def run(self, workers: int) -> None:
        threads = [threading.Thread(target=self._one) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _one(self) -> None:
        worker = self._hired()
        while time.monotonic() < self._end:
            try:
                item = self._items.get_nowait()
            except Empty:
                break
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write(f"{item}\n")
            worker.stdin.flush()
            answer = worker.stdout.readline()
            problems = json.loads(answer) if answer else [f"the process died with status {worker.wait()}"]
            if not answer or any("CUDA error" in p for p in problems):
                worker.kill()
                worker = self._hired()
            self._note(item, problems)
        worker.kill()

    def _hired(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "ignore", "-m", "tests.sweeps.cuda_sweep.on_gpu", "--work"]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def _note(self, item: str, problems: list[str]) -> None:
        self.done += 1
        if problems:
            self.wrong[item] = problems
            print(item, *problems, sep="\n    ", flush=True)


def main() -> None:
    if sys.argv[1:] == ["--work"]:
        work()
        return
    if not torch.cuda.is_available():
        sys.exit("this runs on a machine with a GPU")
    given = sys.argv[1:]
    alone = Crew([] if given else [f"far: {name}" for name in FAR], 60)
    alone.run(1)
    crew = Crew(given or [item.text() for item in points()], SECONDS)
    crew.run(min(WORKERS, os.cpu_count() or 1))
    wrong = alone.wrong | crew.wrong
    print(f"{alone.done + crew.done} programs on {torch.cuda.get_device_name()}, {len(wrong)} differ from eager")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
