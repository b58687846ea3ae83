"""How long parts of a program take on the device, while the whole program runs again and again.

Each part is timed where it stands, so that it finds in the caches what the parts before it left there.  On a GPU the
launches wait in a queue until all are in it: what is timed is the GPU's work, without Python between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable
from statistics import median
from typing import Any

import torch

WARM_UP = 3
LEAST, MOST = 10, 200
"""Passes over the program."""
ENOUGH_NS = 300_000_000
"""After so long there are no more passes than the least."""
LONGEST_WAIT_NS = 50_000_000
CYCLES_IN_NS = 2
"""Of a GPU, about, and at most."""
NOTHING = "nothing"


class Clock:
    """Times parts on the CPU: `begin` and `end` are called around each, with what it is called."""

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

    def medians(self) -> dict[Hashable, float]:
        """What each part takes, without what the clock itself does."""
        found = {part: median(times[WARM_UP:]) for part, times in self._times.items()}
        own = found.pop(NOTHING)
        return {part: max(0.0, ns - own) for part, ns in found.items()}

    def time_nothing(self) -> None:
        self.begin(NOTHING)
        self.end(NOTHING)

    def _note(self, part: Hashable, ns: float) -> None:
        self._times.setdefault(part, []).append(ns)


class CudaClock(Clock):
    """The same on the current GPU, by events in its stream."""

    def __init__(self) -> None:
        super().__init__()
        self._events: list[tuple[Hashable, Any, Any]] = []

    def begin(self, part: Hashable) -> None:
        self._events.append((part, _event(), _event()))
        self._events[-1][1].record()

    def end(self, part: Hashable) -> None:
        self._events[-1][2].record()

    def one_pass(self, run: Callable[[], Any], likely_ns: float) -> None:
        torch.cuda._sleep(int(min(LONGEST_WAIT_NS, 1.5 * likely_ns)) * CYCLES_IN_NS)  # type: ignore[no-untyped-call]
        super().one_pass(run, likely_ns)
        torch.cuda.synchronize()
        for part, began, ended in self._events:
            self._note(part, began.elapsed_time(ended) * 1e6)
        self._events.clear()


class BothClocks(Clock):
    """Parts `on_cpu` are timed there, all others on the current GPU."""

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

    def medians(self) -> dict[Hashable, float]:
        return self._cpu.medians() | self._gpu.medians()


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def time_parts(run: Callable[[Clock], Any], *, cuda: bool, on_cpu: Collection[Hashable] = ()) -> dict[Hashable, float]:
    """The median time of each part in nanoseconds; `run` runs the program once and tells the clock of its parts.

    With `cuda` they are parts of the GPU's work, but for those `on_cpu`.
    """
    clock = (BothClocks(on_cpu) if on_cpu else CudaClock()) if cuda else Clock()
    since, took = time.perf_counter_ns(), 0
    for done in range(WARM_UP + MOST):
        began = time.perf_counter_ns()
        if done >= WARM_UP + LEAST and began - since > ENOUGH_NS:
            break
        clock.one_pass(lambda: run(clock), took if done > 1 else 0)
        took = time.perf_counter_ns() - began if done <= 1 else took
    return clock.medians()
