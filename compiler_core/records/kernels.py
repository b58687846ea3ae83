"""Kernels of a compile: fusion, cost, accuracy, machine resources, memory, tuning and CUDA graphs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from compiler_core.records.artifacts import ItemId


@dataclass(slots=True)
class Fusion:
    """Graph nodes that became one kernel.  `bytes_saved`: bytes of memory traffic avoided by fusion; None: unknown."""

    key: str
    kind: str
    nodes: list[ItemId]
    kernel: str | None
    bytes_saved: int | None


@dataclass(slots=True)
class FusionRefusal:
    """Two groups of nodes that were not fused, with the reason and its kind."""

    kind: str
    first: str
    second: str
    reason: str


@dataclass(slots=True)
class Kernel:
    """A generated kernel, or a call of one of PyTorch's own kernels (`language` is ``extern``)."""

    key: str
    name: str
    language: Literal["cpp", "triton", "extern"]
    graph: Literal["forward", "backward"]
    item: ItemId | None
    bytes_read: int | None = None
    bytes_written: int | None = None
    time_ns: float | None = None
    """Median nanoseconds of one run; None if it was not measured (`compiler_core.measure`)."""
    operations: int | None = None
    """The work of one run, counted in additions (an exponential is several)."""
    timed_on: str | None = None
    """The target on which the time was measured, one of `Record.devices`."""
    device: str | None = None
    """The device it runs on: a GPU if it reads or writes any memory there."""
    reason: str = ""
    """Why PyTorch's kernel is called although there is a lowering for the operation."""


@dataclass(slots=True)
class Device:
    """A device that kernels were timed on."""

    target: str
    name: str
    copy: float
    """Bytes per nanosecond that copying a large tensor reads and writes."""
    operations: float
    """Additions per nanosecond according to the manufacturer (`roofline.PEAKS`)."""


@dataclass(slots=True)
class Accuracy:
    """The error of a value that a kernel wrote, compared with eager PyTorch in float64."""

    node: ItemId
    """The value's node in the forward or backward graph."""
    error: float | None
    """Floats: the greatest difference relative to the greatest value.  Other types: the share of wrong elements.
    None: a NaN or an infinity where there should be none."""
    eager: float | None
    """The same error for eager PyTorch in the graph's own types."""
    index: list[int] = field(default_factory=list)
    """The element with the greatest error; empty if there is none, and for a number without dimensions."""
    value: str = ""
    """The element as the kernel wrote it; empty if no element differs."""
    expected: str = ""
    """The element in float64."""


@dataclass(slots=True)
class KernelResources:
    """The registers and memory that a kernel's machine code uses on a target."""

    kernel: str
    target: str
    registers: int
    shared_bytes: int
    spilled_bytes: int


@dataclass(slots=True)
class PlannedBuffer:
    """A buffer of a graph's program, in use from step `first` to step `last`.  `takes`: the dead buffer whose memory
    it reuses."""

    name: str
    bytes: int
    first: int
    last: int | None
    """None for a result."""
    takes: str | None = None
    kept: bool = False
    """Whether it stays allocated for the next run."""


@dataclass(slots=True)
class PlannedMemory:
    """The peak memory of a graph's buffers in bytes; `peak_before`: if each were kept to the end of the run."""

    graph: Literal["forward", "backward"]
    peak_before: int
    peak: int
    buffers: list[PlannedBuffer]
    released: dict[str, int] = field(default_factory=dict)
    """For each saved value that the backward takes: the step after which it is released."""


@dataclass(slots=True)
class TuningTrial:
    """One configuration of a kernel that autotuning tried."""

    kernel: str
    how: str
    """Block sizes, warps, stages."""
    time_ns: float | None = None
    registers: int | None = None
    spilled_bytes: int | None = None
    why_not: str = ""
    """Why it cannot run; empty if it can."""
    chosen: bool = False
    cached: bool = False
    """Whether the time is from an earlier run."""


@dataclass(slots=True)
class Tuning:
    """The autotuning of a graph's kernels (``tune=True``)."""

    graph: Literal["forward", "backward"]
    target: str = ""
    reason: str = ""
    """Why nothing was tried; empty if something was."""
    tried: list[TuningTrial] = field(default_factory=list)
    """The configurations tried; for each kernel the default comes first."""


@dataclass(slots=True)
class CudaGraph:
    """The CUDA graph of a graph's launches (``mode="reduce-overhead"``)."""

    graph: Literal["forward", "backward"]
    reason: str = ""
    """Why its launches are not replayed; empty if they are."""
    recorded: int = 0
    """How many times the launches were recorded so far."""
    copied: int = 0
    """How many inputs are copied for each replay, since their addresses change from call to call."""
