"""The time of compiling by line of the user's code, and the times of a run: of its graphs, and of eager PyTorch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from compiler_core.records.artifacts import ItemId, Stage


@dataclass(slots=True)
class LineTime:
    """The nanoseconds that a stage spent on one line of the user's; `line` is None for what belongs to no line."""

    stage: Stage
    line: ItemId | None
    ns: int


@dataclass(slots=True)
class GraphTime:
    """The nanoseconds of the fastest run of a graph, from the call to the end of its last kernel."""

    graph: Literal["forward", "backward"]
    form: Literal["compiled", "eager"]
    ns: float
    timed_on: str
    """The target on which it was measured, one of `Record.devices`."""


@dataclass(slots=True)
class EagerTime:
    """The median nanoseconds that eager PyTorch takes for one node of the captured graph.

    `forward_ns` is the time of the operation, `backward_ns` that of the autograd functions that it added; 0 if it added
    none.
    """

    node: ItemId
    forward_ns: float
    backward_ns: float


class LineClock:
    """Measures how long a stage works on each line of the user's code."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._ns: dict[ItemId | None, int] = {}
        self._line: ItemId | None = None
        self._since: int | None = None

    def switch(self, line: ItemId | None) -> None:
        """The stage works on `line` from now on."""
        if line != self._line or self._since is None:
            self.stop()
            self._line, self._since = line, self._clock()

    def stop(self) -> None:
        """Ends the time of the current line."""
        if self._since is not None:
            self._ns[self._line] = self._ns.get(self._line, 0) + self._clock() - self._since
            self._since = None

    def add_to(self, times: list[LineTime], stage: Stage) -> None:
        """Stops, and adds the times to a record's list."""
        self.stop()
        known = {each.line: each for each in times if each.stage == stage}
        for line, ns in self._ns.items():
            if line in known:
                known[line].ns += ns
            else:
                times.append(LineTime(stage, line, ns))
        self._ns.clear()
