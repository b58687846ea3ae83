"""What the page shows while a cell compiles: stages, the latest steps, the kernels built, and the record so far."""

from __future__ import annotations

from collections import deque
from typing import Any

from compiler_core.records import Compile, Event, Frame, Record
from compiler_core.tools.questions.problems import find_problems
from kernel_magics.display.packing import pack, packed_size
from kernel_magics.display.record_view import cell_labels

MAX_STEPS = 14
"""How many of the latest steps are shown."""
STOCK_KERNEL_STEPS = ("compile_file", "triton_compile")
"""Steps of stock in each of which one file of kernels is built."""


PARTIAL_AFTER_S = 1.0
"""How long a compile takes before the record so far is shown."""
PARTIAL_PAUSE_S = 0.2
"""The least time between two such records."""
PARTIAL_SHARE = 0.05
"""The share of the time that packing the record so far may take."""
MAX_PARTIAL = 4 * 2**20
"""The characters of a packed record above which the page gets no more of it before the end."""


MAX_MESSAGES = 200
"""The most messages in a second: Jupyter's server drops all output of a kernel that sends more than 1,000."""


class MessageRate:
    """Limits how often progress is sent to the page."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._second = self._count = 0

    def allows_one(self) -> bool:
        """Counts a message; returns whether it is within the limit."""
        second = self._record.clock() // 10**9
        self._count = self._count + 1 if second == self._second else 1
        self._second = second
        return self._count <= MAX_MESSAGES


class PartialRecord:
    """Packs a record that is being written, from time to time."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._due_ns = int(PARTIAL_AFTER_S * 1e9)
        self._texts = ("", 0)

    def if_due(self, current: Compile) -> dict[str, Any] | None:
        """Returns the packed record so far, if the last one is old enough and had not all texts of `current`."""
        start, texts = self._record.clock(), (current.id, len(current.artifacts))
        if start < self._due_ns or texts == self._texts:
            return None
        try:
            self._record.labels |= cell_labels(self._record)
            self._record.problems = find_problems(self._record)
            packed = pack(self._record)
        except (ValueError, RuntimeError):  # another thread of the compiler is writing to it
            return None
        end = self._record.clock()
        self._due_ns = end + max(int(PARTIAL_PAUSE_S * 1e9), int((end - start) / PARTIAL_SHARE))
        self._texts = texts
        if packed_size(packed) > MAX_PARTIAL:
            self._due_ns = 2**63
            return None
        return packed


class Progress:
    """Follows a record that is being written."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._frames: dict[int, Frame] = {}
        self._done: deque[dict[str, Any]] = deque(maxlen=MAX_STEPS)
        self._stages: dict[str, _StageTime] = {}
        self._compile = ""
        self._compiles: set[str] = set()
        self._kernels = 0

    def after(self, compile_: Compile, event: Event) -> dict[str, Any]:
        """Returns what to show after an event of a compile has started or ended."""
        record = self._record
        self._frames.update((frame.id, frame) for frame in record.frames[len(self._frames) :])
        if compile_.id != self._compile:
            self._compile, self._stages = compile_.id, {}
            self._compiles.add(compile_.id)
        self._stages.setdefault(event.stage, _StageTime()).count(event)
        is_running = event.end is None
        if not is_running:
            self._done.append(_step(event))
            self._kernels += _kernels_built(compile_, event)
        frame = self._frames.get(compile_.frame)
        return {
            "compile": compile_.id,
            "frame": frame.name if frame else "",
            "stage": event.stage if is_running else "",
            "name": event.name if is_running else "",
            "elapsed": record.clock() / 1e9,
            "done": list(self._done),
            "stages": [{"stage": name, **time.shown()} for name, time in self._stages.items()],
            "compiles": len(self._compiles),
            "kernels": self._kernels,
        }


def _kernels_built(compile_: Compile, event: Event) -> int:
    """Returns how many kernels a step that ended has built: of our engine those of a graph, of stock a file."""
    if event.stage != "build" or event.outcome != "ok":
        return 0
    if event.name in STOCK_KERNEL_STEPS:
        return 1
    return sum(kernel.graph == event.name and kernel.language != "extern" for kernel in compile_.kernels)


class _StageTime:
    """The time in one stage of a compile, whose steps may be nested."""

    def __init__(self) -> None:
        self._open = self._since = self._ns = 0

    def count(self, event: Event) -> None:
        """Counts a step that started or ended."""
        if event.end is None:
            self._since = event.start if not self._open else self._since
            self._open += 1
        elif self._open:
            self._open -= 1
            self._ns += 0 if self._open else event.end - self._since

    def shown(self) -> dict[str, Any]:
        """Returns the milliseconds, and whether the stage is running."""
        return {"ms": round(self._ns / 1e6, 1), "running": bool(self._open)}


def _step(event: Event) -> dict[str, Any]:
    ms = ((event.end or event.start) - event.start) / 1e6
    return {"stage": event.stage, "name": event.name, "ms": round(ms, 2), "outcome": event.outcome}
