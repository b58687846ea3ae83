"""What the stages after capture made and what ran of it: the partition, kernels, memory, collectives, cache lookups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from compiler_core.records.artifacts import ItemId


@dataclass(slots=True)
class Collective:
    """One call of a collective."""

    name: str
    """PyTorch's name of the operator, without a final underscore: ``allreduce``."""
    tensors: list[str] = field(default_factory=list)
    """Type and shape of each tensor that this rank passed: ``float32[8, 512]``."""
    ranks: int = 0
    """How many ranks take part; 0 if that is not known."""
    filename: str = ""
    """The innermost line of Python that is not PyTorch's; empty if there was none."""
    line: int = 0
    text: str = ""
    """The text of the line."""


@dataclass(slots=True)
class Expansion:
    """The nodes of the joint graph made from one captured operation (of the forward graph if there is no backward)."""

    node: ItemId
    target: str
    forward: list[ItemId]
    backward: list[ItemId]
    """Nodes that autograd added, by its `functions`, such as ``CosBackward0``."""
    functions: list[str]
    decomposed: list[str]
    """Operators that were decomposed."""


@dataclass(slots=True)
class ValueDecision:
    """The partition's decision for one value of the forward graph, with the reason."""

    node: ItemId
    decision: Literal["saved", "recomputed", "neither"]
    bytes: int
    reason: str
    cut: list[str] | None = None
    """The edge of the flow network that was cut here, as two node names."""
    drop_ns: int | None = None
    """For a saved value: the estimated nanoseconds by which the backward would be slower if it were recomputed; None
    if it cannot be recomputed (an input, a random number)."""


@dataclass(slots=True)
class BudgetPoint:
    """The result of one memory budget, a share of the bytes that the min-cut saves without a budget: the saved bytes,
    and the estimated nanoseconds that the backward spends on recomputation."""

    budget: float
    saved_bytes: int
    again_ns: int
    saved: list[ItemId] = field(default_factory=list)
    """The nodes of the joint graph that are saved with this budget."""


@dataclass(slots=True)
class Partition:
    """The result of the min-cut partition, compared with the default, which saves all that the backward reads."""

    values: list[ValueDecision]
    saved_count: int
    saved_bytes: int
    default_saved_count: int
    default_saved_bytes: int
    again_ns: int = 0
    """The estimated nanoseconds that the backward spends on recomputation."""
    curve: list[BudgetPoint] = field(default_factory=list)
    """Results of other memory budgets, from 1 to 0 (``memory_curve=True``)."""

    def joined(self, other: Partition) -> Partition:
        """Returns what two parts of a graph save together; the curve of budgets is that of no part."""
        return Partition(
            self.values + other.values,
            self.saved_count + other.saved_count,
            self.saved_bytes + other.saved_bytes,
            self.default_saved_count + other.default_saved_count,
            self.default_saved_bytes + other.default_saved_bytes,
            self.again_ns + other.again_ns,
        )


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
class NestLoop:
    """A loop of a kernel's loop nest: over ``start`` to before ``end``, or through one block of another loop."""

    line: int
    """The line of its heading, from 0."""
    parent: int
    """The number of the loop around it, among those of the nest; -1 if there is none."""
    index: str
    start: int | str
    end: int | str
    """A text if the size is symbolic."""
    block: str
    """The loop around this one over the first elements of blocks, if this loop runs through one block."""
    step: int
    size: int
    """The number of elements of that block."""
    lanes: int
    """The elements of a vector; 0 for as many as the C++ compiler takes."""
    is_threaded: bool
    is_vector: bool
    is_program: bool
    """GPU: whether the programs of the kernel share the loop, one iteration each."""
    is_block: bool
    """GPU: whether a program processes all elements of the loop at a time."""


@dataclass(slots=True)
class Rewrite:
    """A rewrite of a kernel's loop nest, and the nest after it."""

    text: str
    """The rewrite, such as ``split(i0, 128)``; empty for the nest that the schedule starts with."""
    reason: str
    nest: str
    statements: list[int]
    """For each line of `nest`, the number of its statement in the kernel's loops; -1 for a heading."""
    loops: list[NestLoop]


@dataclass(slots=True)
class Schedule:
    """How a kernel's loop nest was made: each rewrite in order."""

    kernel: str
    graph: Literal["forward", "backward"]
    like: str
    """The kernel with the same schedule, whose rewrites have the nests, if both differ only in names; else empty."""
    rewrites: list[Rewrite]


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
    """Nanoseconds of one run, the fastest or on a GPU the median; None if not measured (`compiler_core.measure`)."""
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
    first: ItemId | None = None
    """The first node, of those that a kernel computes the value from, at which eager's error is large; None if there
    is none."""


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
    within: str | None = None
    """The buffer in whose memory it lies: the workspace of several kernels, or a result that is not written yet."""


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


CacheName = Literal["graph cache", "FX graph cache", "AOTAutograd cache", "kernel cache", "Triton cache"]
"""The caches of compiled graphs, ours and two of PyTorch's; that of our C++ kernels; and that of Triton's kernels."""


@dataclass(slots=True)
class KeyField:
    """A field of a cache's key: a configuration option, an input, the graph, a version."""

    name: str
    text: str
    digest: str = ""
    """What the key holds of the field if its text may not be the whole value; empty: the text itself."""


@dataclass(slots=True)
class CacheLookup:
    """One lookup of a compiled graph, or of kernels, in a cache."""

    cache: CacheName
    name: str
    """What was looked up: ``forward``, ``backward``, or empty for both; of Triton, the name of the kernel."""
    outcome: Literal["hit", "miss", "not cached"]
    key: str = ""
    fields: list[KeyField] = field(default_factory=list)
    """What the key is a digest of; empty if the cache does not report it."""
    reason: str = ""
    """Why there is no key, or why an entry that was found is not used."""
