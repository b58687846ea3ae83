"""Measures how long the parts of a program take on the device, while the whole program runs repeatedly.

Each part is timed within the program, so that it finds the caches as the parts before it left them.  On a GPU the
launches are queued behind a waiting kernel, so that the time is that of the GPU's work without Python's.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Hashable, Sequence
from statistics import median
from typing import Any

import torch

from compiler_core.tools.in_turn import in_turn
from compiler_core.torch_private import cuda_sleep

WARM_UP = 3
MIN_PASSES, MAX_PASSES = 10, 200
"""The limits for the number of timed runs of the program."""
ENOUGH_S = 0.3
"""After this time, a program is run no more often than `MIN_PASSES`."""
MAX_WAIT_NS = 50_000_000
CYCLES_IN_NS = 2
"""The approximate, and highest, number of clock cycles of a GPU in a nanosecond."""
EMPTY_PART = "nothing"
WHOLE = "whole"


class Clock:
    """Times parts on the CPU: `begin` and `end` are called before and after each part, with its name."""

    quantile = 0.0
    """Which of the times of a part counts: the fastest, since a busy machine may disturb most runs of each part."""

    def __init__(self) -> None:
        self._times: dict[Hashable, list[float]] = {}
        self._began = 0

    def begin(self, part: Hashable) -> None:
        self._began = time.perf_counter_ns()

    def end(self, part: Hashable) -> None:
        self._note(part, time.perf_counter_ns() - self._began)

    def one_pass(self, run: Callable[[], Any], likely_ns: float) -> None:
        self.time_nothing()
        run()

    def typical_times(self) -> dict[Hashable, float]:
        """Returns the time of each part in nanoseconds, minus the overhead of the clock."""
        found = {part: _quantile(times[WARM_UP:], self.quantile) for part, times in self._times.items()}
        own = found.pop(EMPTY_PART)
        return {part: max(0.0, ns - own) for part, ns in found.items()}

    def time_nothing(self) -> None:
        self.begin(EMPTY_PART)
        self.end(EMPTY_PART)

    def _note(self, part: Hashable, ns: float) -> None:
        self._times.setdefault(part, []).append(ns)


class CudaClock(Clock):
    """Times parts on the current GPU, by events in its stream; the median, since other programs rarely disturb it."""

    def __init__(self, quantile: float = 0.5) -> None:
        super().__init__()
        self.quantile = quantile
        self._events: list[tuple[Hashable, Any, Any]] = []

    def begin(self, part: Hashable) -> None:
        self._events.append((part, _cuda_event(), _cuda_event()))
        self._events[-1][1].record()

    def end(self, part: Hashable) -> None:
        self._events[-1][2].record()

    def one_pass(self, run: Callable[[], Any], likely_ns: float) -> None:
        cuda_sleep(int(min(MAX_WAIT_NS, 1.5 * likely_ns)) * CYCLES_IN_NS)
        super().one_pass(run, likely_ns)
        torch.cuda.synchronize()
        for part, began, ended in self._events:
            self._note(part, began.elapsed_time(ended) * 1e6)
        self._events.clear()


class MixedClock(Clock):
    """Times the parts `on_cpu` on the CPU, all others on the current GPU."""

    def __init__(self, on_cpu: Collection[Hashable]) -> None:
        super().__init__()
        self._on_cpu, self._cpu, self._gpu = on_cpu, Clock(), CudaClock()

    def begin(self, part: Hashable) -> None:
        (self._cpu if part in self._on_cpu else self._gpu).begin(part)

    def end(self, part: Hashable) -> None:
        (self._cpu if part in self._on_cpu else self._gpu).end(part)

    def one_pass(self, run: Callable[[], Any], likely_ns: float) -> None:
        self._cpu.time_nothing()
        self._gpu.one_pass(run, likely_ns)

    def typical_times(self) -> dict[Hashable, float]:
        return self._cpu.typical_times() | self._gpu.typical_times()


def _quantile(times: list[float], quantile: float) -> float:
    return median(times) if quantile == 0.5 else sorted(times)[int(quantile * len(times))]


def _cuda_event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def time_parts(
    run: Callable[[Clock], Any], *, cuda: bool, on_cpu: Collection[Hashable] = (), quantile: float = 0.5
) -> dict[Hashable, float]:
    """Returns the time of each part of a program in nanoseconds.

    Args:
        run: runs the program once, and calls `begin` and `end` of the clock around each part.
        cuda: whether parts are timed on the current GPU.
        on_cpu: the parts that are timed on the CPU even so.
        quantile: which of the times on a GPU counts, 0 to 1.
    """
    clock = Clock()
    if cuda:
        clock = MixedClock(on_cpu) if on_cpu else CudaClock(quantile)
    _run_in_turn([(run, clock)])
    return clock.typical_times()


def time_wholes(runs: Sequence[Callable[[Clock], Any]]) -> list[float]:
    """Returns the nanoseconds of programs as a whole, which are run in turn; each times itself as the part `WHOLE`."""
    clocks = [Clock() for _ in runs]
    _run_in_turn(list(zip(runs, clocks, strict=True)))
    return [clock.typical_times()[WHOLE] for clock in clocks]


def _run_in_turn(programs: Sequence[tuple[Callable[[Clock], Any], Clock]]) -> None:
    """Runs programs in turn, each with its clock."""
    took_ns: dict[Clock, int] = {}

    def one_pass(run: Callable[[Clock], Any], clock: Clock) -> None:
        began = time.perf_counter_ns()
        clock.one_pass(lambda: run(clock), took_ns.get(clock, 0))
        took_ns[clock] = time.perf_counter_ns() - began

    passes = [functools.partial(one_pass, run, clock) for run, clock in programs]
    in_turn(passes, 0.0, least=WARM_UP, most=WARM_UP)
    in_turn(passes, ENOUGH_S * len(passes), least=MIN_PASSES, most=MAX_PASSES)
