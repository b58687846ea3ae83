"""What became of a graph's operations: kernels, their cost here and elsewhere, their memory, how they are launched."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from compiler_core.records.artifacts import ItemId


@dataclass(slots=True)
class Fusion:
    """Graph nodes that became one kernel; `bytes_saved` is the traffic that fusing avoided, where that is known."""

    key: str
    kind: str
    nodes: list[ItemId]
    kernel: str | None
    bytes_saved: int | None


@dataclass(slots=True)
class FusionRefusal:
    """Two groups that stayed apart."""

    kind: str
    first: str
    second: str
    reason: str


@dataclass(slots=True)
class Kernel:
    """A generated kernel or a call to one of PyTorch's own (`language` "extern")."""

    key: str
    name: str
    language: Literal["cpp", "triton", "extern"]
    graph: Literal["forward", "backward"]
    item: ItemId | None
    bytes_read: int | None = None
    bytes_written: int | None = None
    time_ns: float | None = None
    """What it takes, where that was measured (`Record.measure`)."""
    operations: int | None = None
    """What it computes, counted in additions (an exponential is several)."""
    timed_on: str | None = None
    """The target that the time is of, one of `Record.devices`."""
    device: str | None = None
    """Where it runs: on the GPU, if some of what it reads or writes lies on one."""
    reason: str = ""
    """Why a call of PyTorch's is none of our kernels, where there is a rule for such."""


@dataclass(slots=True)
class Device:
    """A device that kernels were timed on."""

    target: str
    name: str
    copy: float
    """Bytes that a plain copy of much memory reads and writes there in a nanosecond."""
    operations: float
    """Additions in a nanosecond, by its maker's word (`roofline.PEAKS`)."""


@dataclass(slots=True)
class Accuracy:
    """How far what a kernel left in memory lies from eager PyTorch's value in float64."""

    node: ItemId
    """Of the forward or backward graph."""
    error: float | None
    """The greatest difference as a share of the greatest value, of other than floats the share of wrong elements;
    None: a NaN or an infinity where there should be none."""
    eager: float | None
    """The same of eager PyTorch in the graph's own types."""


@dataclass(slots=True)
class KernelResources:
    """What a kernel's machine code takes of a target."""

    kernel: str
    target: str
    registers: int
    shared_bytes: int
    spilled_bytes: int


@dataclass(slots=True)
class PlannedBuffer:
    """Memory that a graph's program asks for, from step `first` to step `last`; `takes`: the dead buffer in whose
    place it lies."""

    name: str
    bytes: int
    first: int
    last: int | None
    """None for a result."""
    takes: str | None = None
    kept: bool = False
    """Whether the next run finds it still there."""


@dataclass(slots=True)
class MemoryPlan:
    """The most bytes that a graph's own buffers take at one time, and would take, were each kept to the end."""

    graph: Literal["forward", "backward"]
    peak_before: int
    peak: int
    buffers: list[PlannedBuffer]


@dataclass(slots=True)
class Tried:
    """One way to share out a kernel's work that autotuning tried."""

    kernel: str
    how: str
    """Block sizes, warps, stages."""
    time_ns: float | None = None
    registers: int | None = None
    spilled_bytes: int | None = None
    why_not: str = ""
    """Why it cannot run, if it cannot."""
    chosen: bool = False
    cached: bool = False
    """It was tried in an earlier run."""


@dataclass(slots=True)
class Tuning:
    """What became of the wish to tune a graph's kernels (``tune=True``)."""

    graph: Literal["forward", "backward"]
    target: str = ""
    reason: str = ""
    """Why nothing was tried, if nothing was."""
    tried: list[Tried] = field(default_factory=list)
    """The usual way first, for each kernel."""


@dataclass(slots=True)
class CudaGraph:
    """What became of the wish to replay a graph's launches (``mode="reduce-overhead"``)."""

    graph: Literal["forward", "backward"]
    reason: str = ""
    """Why its launches are not replayed, if they are not."""
    recorded: int = 0
    """How often they were recorded so far."""
    copied: int = 0
    """How many of its inputs are copied for a replay, since they lie elsewhere at each call."""
