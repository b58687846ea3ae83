"""The record: what one run of the compiler did, as plain data.

    Record
      sources                 the user's files and cells, one artifact each
      frames                  one for each code object that the frame hook compiled or refused
        compiles              "0/0"; "0/1" is a recompile and names the guard that failed
          events              the stages in order, with time and outcome
          artifacts           texts (bytecode, graphs, kernels ...), with the span of each item
          guards, breaks, expansions, partition, fusions, refusals, kernels
          edges               provenance: ``made <- sources, rule``
          steps               every step of the symbolic interpreter, where that was asked for (`steps.py`)

Whatever can be pointed at is an *item*: a line of source, an instruction, a guard, a graph
node, a line of a kernel.  Its id is ``"<artifact id>#<key>"``.  Every linked view is computed
from the edges between items, in both directions (`Record.linked`).

Nothing here holds a tensor, a module or any other live object; this module needs nothing but
the standard library, and a record read from JSON is checked against the types below before
anything is made of it, so one from a stranger is safe to open.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import sys
import time
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from compiler_core.differences import Comparison
from compiler_core.steps import Replay, Steps

SCHEMA_VERSION = 2
MAX_JSON_BYTES = 512 * 1024 * 1024

ItemId = str
"""``"<artifact id>#<key>"``, unique in its record."""

Stage = Literal[
    "capture", "guards", "bytecode", "joint", "partition", "lower", "fuse", "codegen", "build", "backend", "run"
]
"""A named part of the pipeline, in the order in which a compile visits them."""

Pane = Literal[
    "source",  # what the user wrote
    "bytecode",  # the frame's bytecode before
    "generated",  # the bytecode installed in its place
    "decompiled",  # the same as Python statements
    "guards",  # the guards as one Python function
    "captured",  # the FX graph
    "pregrad",  # stock: the graph before and after the passes that come before autograd
    "joint",  # forward and backward as one graph
    "forward",
    "backward",
    "postgrad",  # stock: the graphs before and after the passes that come after autograd
    "passes",  # stock: a graph after each pass that changed it
    "fusion",  # loops grouped into kernels
    "kernel",  # C++ or Triton source
    "wrapper",  # Python that launches the kernels
    "machine",  # assembly, PTX, SASS and what lies between
    "other",  # stock: whatever else PyTorch wrote
]
Language = Literal["python", "bytecode", "cpp", "triton", "asm", "ptx", "sass", "mlir", "llvm", "text"]
Outcome = Literal["running", "ok", "failed"]


class RecordError(ValueError):
    """A text is not a record that this version can read; the message says where and why."""


@dataclass(slots=True)
class Span:
    """Lines ``first..last`` (from 1, inclusive) of an artifact's text are the item `key`."""

    key: str
    first: int
    last: int


@dataclass(slots=True)
class Node:
    """A node of an FX graph.  `shape` and `dtype` are of its (first) tensor, `bytes` of all."""

    key: str
    op: str
    target: str
    shape: list[int | str] | None = None
    dtype: str | None = None
    device: str | None = None
    bytes: int | None = None
    module: str | None = None
    role: str | None = None
    """``primal``, ``tangent``, ``saved``, ``output``, ``gradient`` ... where it has one."""


@dataclass(slots=True)
class Graph:
    """The artifact's text as nodes and ``[from, to]`` pairs of node keys."""

    nodes: list[Node]
    edges: list[list[str]]


@dataclass(slots=True)
class Artifact:
    """One text that the compiler made or read."""

    id: str
    pane: Pane
    name: str
    language: Language
    text: str
    spans: list[Span] = field(default_factory=list)
    graph: Graph | None = None

    def item(self, key: str) -> ItemId:
        return f"{self.id}#{key}"

    def lines(self, span: Span) -> str:
        """The text of one span."""
        return "\n".join(self.text.split("\n")[span.first - 1 : span.last])


@dataclass(slots=True)
class Edge:
    """Item `made` came from `sources` by `rule` (``capture``, ``autograd``, a lowering ...)."""

    made: ItemId
    sources: list[ItemId]
    rule: str


@dataclass(slots=True)
class Event:
    """One step of a stage; times are nanoseconds since the record was opened."""

    stage: Stage
    name: str
    start: int
    end: int | None = None
    outcome: Outcome = "running"
    detail: str = ""


@dataclass(slots=True)
class Failure:
    """Something in the compiler failed and the program went on without it."""

    stage: Stage
    message: str
    detail: str = ""
    """The traceback, for whoever mends it."""


@dataclass(slots=True)
class Guard:
    """One condition under which a compile may be reused."""

    key: str
    kind: str
    source: str
    """Python expression of the value that is looked at, e.g. ``L['x'].shape``."""
    code: str
    """The whole check as a Python expression."""
    expected: str
    line: ItemId | None = None
    """The user's line that made the compiler look."""
    cost_ns: float | None = None
    """What checking it by itself costs, measured when the code was installed; together they share ways.
    Of stock's: its share of what all cost, estimated."""
    dropped: bool = False
    """A guard_filter took it out: it is not checked."""
    sizes: list[int | None] | None = None
    """Of a tensor's guard: the size that each dimension must have, None where it may have others."""


@dataclass(slots=True)
class Symbol:
    """A size, stride or number that may be another in a later call, or was to be: which line made it static?"""

    key: str
    source: str
    """Where it is read, e.g. ``L['x'].size()[0]``."""
    value: float
    """What it was when this was compiled."""
    why: str
    """Why it is symbolic."""
    low: float | None = None
    high: float | None = None
    """The values for which the compiled code holds, as far as a range says it."""
    line: ItemId | None = None
    """The user's line that looked at it first."""
    became: str | None = None
    """What it was specialised to: a number, or an expression of other symbols that it must equal."""
    condition: str | None = None
    """The condition that did that, or narrowed the range first."""
    condition_line: ItemId | None = None
    """The user's line that asked."""


@dataclass(slots=True)
class StackLine:
    """One line of the user's stack; `line` links it where its file is among the sources."""

    filename: str
    lineno: int
    function: str
    text: str
    line: ItemId | None = None


@dataclass(slots=True)
class GraphBreak:
    """Why a graph ended before its frame did.  `resumes` are ids of resume functions' frames."""

    key: str
    kind: str
    explanation: str
    hint: str
    stack: list[StackLine]
    instruction: ItemId | None = None
    resumes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Recompile:
    """The guard of compile `of` that failed, and what it saw."""

    of: str
    guard: str
    source: str
    expected: str
    got: str
    line: ItemId | None = None


@dataclass(slots=True)
class Expansion:
    """What one captured operation became: nodes of the joint graph (of the forward, where there is no backward)."""

    node: ItemId
    target: str
    forward: list[ItemId]
    backward: list[ItemId]
    """What autograd added for it, by its `functions`, such as ``CosBackward0``."""
    functions: list[str]
    decomposed: list[str]
    """Operators that were taken apart on the way."""


@dataclass(slots=True)
class Value:
    """What the partition decided for one value of the forward graph, and why."""

    node: ItemId
    decision: Literal["saved", "recomputed", "neither"]
    bytes: int
    reason: str
    cut: list[str] | None = None
    """The edge of the flow network that was cut here, as two node names."""
    drop_ns: int | None = None
    """Of a saved value: the estimated time that the backward would spend more, were it not saved; None
    where it could not be computed again (an input, a random number)."""


@dataclass(slots=True)
class BudgetPoint:
    """What a memory budget (a share of the plain cut's bytes) gives: bytes saved, and the estimated time that
    the backward spends on computing again."""

    budget: float
    saved_bytes: int
    again_ns: int
    saved: list[ItemId] = field(default_factory=list)
    """The joint graph's nodes that are saved then."""


@dataclass(slots=True)
class Partition:
    """The min-cut beside the default, which saves all that the backward reads."""

    values: list[Value]
    saved_count: int
    saved_bytes: int
    default_saved_count: int
    default_saved_bytes: int
    again_ns: int = 0
    """The estimated time that the backward spends on what the forward has computed already."""
    curve: list[BudgetPoint] = field(default_factory=list)
    """Other memory budgets, from 1 to 0, where they were asked for."""


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


@dataclass(slots=True)
class Compile:
    """One compile of one frame.  Append-only; stages write through the methods below."""

    id: str
    frame: int
    cause: Recompile | None = None
    outcome: Literal["running", "compiled", "skipped", "failed"] = "running"
    reason: str = ""
    """Why it was skipped or failed; empty for a compile that was installed."""
    backend: str = ""
    events: list[Event] = field(default_factory=list)
    artifacts: list[Artifact] = field(default_factory=list)
    guards: list[Guard] = field(default_factory=list)
    symbols: list[Symbol] = field(default_factory=list)
    """What is symbolic in it, and what is no longer."""
    guards_ns: float | None = None
    """What checking them all costs a call."""
    breaks: list[GraphBreak] = field(default_factory=list)
    expansions: list[Expansion] = field(default_factory=list)
    partition: Partition | None = None
    fusions: list[Fusion] = field(default_factory=list)
    refusals: list[FusionRefusal] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    resources: list[KernelResources] = field(default_factory=list)
    """Of each kernel on each target whose machine code was asked for."""
    accuracy: list[Accuracy] = field(default_factory=list)
    """Of each value that a kernel left in memory, where that was asked for (`Record.check_accuracy`)."""
    memory: list[MemoryPlan] = field(default_factory=list)
    tunings: list[Tuning] = field(default_factory=list)
    cuda_graphs: list[CudaGraph] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    steps: list[Steps] = field(default_factory=list)
    """The attempts to capture it, the one that counts last; recorded on demand."""
    _record: Record | None = field(default=None, repr=False, compare=False)

    def artifact(
        self,
        pane: Pane,
        name: str,
        language: Language,
        text: str,
        spans: Iterable[Span] = (),
        graph: Graph | None = None,
    ) -> Artifact:
        """Add a text; its id is ``"<compile id>:<name>"`` and `name` is unique in the compile."""
        made = Artifact(f"{self.id}:{name}", pane, name, language, text, list(spans), graph)
        if any(a.id == made.id for a in self.artifacts):
            raise ValueError(f"compile {self.id} already has an artifact named {name!r}")
        self.artifacts.append(made)
        return made

    def find(self, name: str) -> Artifact:
        """The artifact called `name`; KeyError names those that there are."""
        for artifact in self.artifacts:
            if artifact.name == name:
                return artifact
        raise KeyError(f"no artifact {name!r} in compile {self.id}; it has {[a.name for a in self.artifacts]}")

    def link(self, made: ItemId, sources: Iterable[ItemId], rule: str) -> None:
        """Note that `made` came from `sources`; nothing is noted where there are none."""
        unique = list(dict.fromkeys(s for s in sources if s != made))
        if unique:
            self.edges.append(Edge(made, unique, rule))

    def replay(self, attempt: int = -1) -> Replay:
        """The symbolic interpreter's state after any step of one attempt, the one that counts if not said."""
        if not self.steps:
            raise ValueError(
                f"compile {self.id} has no steps: they are recorded with --steps, or compile(..., steps=True)"
            )
        line = self._record.line if self._record else lambda filename, lineno: None
        return Replay(self.steps[attempt], line, lambda at: f"{self.id}:bytecode#{at}")

    def fail(self, stage: Stage, message: str, detail: str = "") -> None:
        self.failures.append(Failure(stage, message, detail))

    @contextmanager
    def step(self, stage: Stage, name: str = "") -> Iterator[Event]:
        """Time one step.  An exception marks it failed and goes on to the caller."""
        clock = self._record.clock if self._record else time.perf_counter_ns
        event = Event(stage, name or stage, clock())
        self.events.append(event)
        self._tell(event)
        try:
            yield event
        except BaseException as error:
            event.end, event.outcome = clock(), "failed"
            event.detail = event.detail or f"{type(error).__name__}: {error}"
            self._tell(event)
            raise
        event.end, event.outcome = clock(), "ok"
        self._tell(event)

    def _tell(self, event: Event) -> None:
        if self._record:
            self._record._tell(self, event)


@dataclass(slots=True)
class Frame:
    """One code object that the hook saw.  A resume function's frame names the break before it."""

    id: int
    name: str
    filename: str
    line: int
    kind: Literal["root", "resume", "called"]
    resumes: str | None = None
    """Id of the compile whose break this frame resumes."""
    calls: int = 0
    """Calls that compiled or ran compiled code for the first time; 0: never reached."""
    skipped: str = ""
    """Why it runs as plain Python, if it does."""
    compiles: list[Compile] = field(default_factory=list)


Listener = Callable[[Compile, Event], None]


@dataclass(slots=True)
class Record:
    """All that one run did.  Open one with `compiler_core.record()`."""

    schema_version: int = SCHEMA_VERSION
    engine: Literal["core", "torch"] = "core"
    title: str = ""
    created: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    sources: list[Artifact] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    """What to call a file whose name says nothing to the reader: a notebook cell is ``In[3]``."""
    frames: list[Frame] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Sentences for the reader that belong to no compile (no C++ compiler, recompile limit)."""
    devices: list[Device] = field(default_factory=list)
    """What kernels were timed on, where they were."""
    comparison: Comparison | None = None
    """With another run, where one was made: two engines on one cell, before and after an edit, two ranks."""
    _made_here: bool = field(default=False, repr=False, compare=False)
    """Its texts are those of a compiler in this process, and not a stranger's: they may run."""
    _opened: int = field(default_factory=time.perf_counter_ns, repr=False, compare=False)
    _listeners: list[Listener] = field(default_factory=list, repr=False, compare=False)

    def clock(self) -> int:
        """Nanoseconds since this record was opened."""
        return time.perf_counter_ns() - self._opened

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` as each event starts and ends; returns what takes it off again."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _tell(self, compile_: Compile, event: Event) -> None:
        for listener in list(self._listeners):
            listener(compile_, event)

    def frame(self, name: str, filename: str, line: int, kind: Literal["root", "resume", "called"]) -> Frame:
        made = Frame(len(self.frames), name, filename, line, kind)
        self.frames.append(made)
        return made

    def compile(self, frame: Frame, backend: str = "") -> Compile:
        """Open the next compile of `frame`; its id prints as PyTorch's do, ``frame/number``."""
        made = Compile(f"{frame.id}/{len(frame.compiles)}", frame.id, backend=backend, _record=self)
        frame.compiles.append(made)
        return made

    @property
    def compiles(self) -> list[Compile]:
        return [c for f in self.frames for c in f.compiles]

    @property
    def artifacts(self) -> list[Artifact]:
        """All texts: the sources, then those of each compile."""
        return self.sources + [a for c in self.compiles for a in c.artifacts]

    @property
    def break_places(self) -> set[tuple[str, int]]:
        """The user's lines (file and number) that broke a graph, however many compiles met them."""
        stacks = [b.stack for c in self.compiles for b in c.breaks if b.stack]
        return {(stack[-1].filename, stack[-1].lineno) for stack in stacks}

    def source(self, filename: str, first: int, lines: Sequence[str]) -> Artifact:
        """Add the lines ``first, first + 1 ...`` of a file; a line's key is its number there."""
        return self.source_lines(filename, {first + i: line.rstrip("\n") for i, line in enumerate(lines)})

    def source_lines(self, filename: str, lines: dict[int, str]) -> Artifact:
        """The same for lines here and there."""
        artifact = next((a for a in self.sources if a.name == filename), None)
        if artifact is None:
            artifact = Artifact(f"src:{len(self.sources)}", "source", filename, "python", "")
            self.sources.append(artifact)
        known = dict(zip((int(s.key) for s in artifact.spans), artifact.text.split("\n"), strict=False))
        known.update(lines)
        numbers = sorted(known)
        artifact.text = "\n".join(known[n] for n in numbers)
        artifact.spans = [Span(str(n), i, i) for i, n in enumerate(numbers, 1)]
        return artifact

    def line(self, filename: str, lineno: int) -> ItemId | None:
        """The item of a line of the user's, or None where that line is not among the sources."""
        for artifact in self.sources:
            if artifact.name == filename and any(s.key == str(lineno) for s in artifact.spans):
                return artifact.item(str(lineno))
        return None

    def text(self, item: ItemId) -> str:
        """The lines that `item` is; KeyError where the record has no such item."""
        for artifact in self.artifacts:
            for span in artifact.spans:
                if artifact.item(span.key) == item:
                    return artifact.lines(span)
        raise KeyError(f"the record has no item {item!r}")

    def search(self, text: str, pane: Pane | None = None) -> list[ItemId]:
        """The items whose lines contain `text`, in one pane or in all, in the record's order."""
        artifacts = [a for a in self.artifacts if pane in (None, a.pane)]
        return [a.item(span.key) for a in artifacts for span in a.spans if text in a.lines(span)]

    def label(self, filename: str) -> str:
        """What the reader calls a file."""
        return self.labels.get(filename) or Path(filename).name

    def linked(self, item: ItemId) -> set[ItemId]:
        """All that `item` came from and all that came from it, itself included."""
        above: dict[ItemId, list[ItemId]] = {}
        below: dict[ItemId, list[ItemId]] = {}
        for compile_ in self.compiles:
            for edge in compile_.edges:
                above.setdefault(edge.made, []).extend(edge.sources)
                for source in edge.sources:
                    below.setdefault(source, []).append(edge.made)
        return _reach(item, above) | _reach(item, below)

    def measure(self) -> None:
        """Time each kernel on the device that is here: `Kernel.time_ns` and `devices`; see `compiler_core.measure`.

        This runs the record's code, so it is refused (UsageError) for a record that was read and not made here.
        """
        importlib.import_module("compiler_core.measure").measure(self)

    def check_accuracy(self) -> None:
        """Compare what kernels compute with eager PyTorch in float64: `Compile.accuracy`; see `compiler_core.accuracy`.

        Refused as `measure` is.
        """
        importlib.import_module("compiler_core.accuracy").check_accuracy(self)

    def to_json(self, indent: int | None = None) -> str:
        text = json.dumps(to_plain(self), indent=indent, ensure_ascii=False, allow_nan=False)
        # half of a surrogate pair, as in the name of a file that is not UTF-8, is no character but an escape is JSON
        return text.encode("utf-8", "backslashreplace").decode("utf-8")

    def save(self, path: str | Path) -> Path:
        path = Path(path)
        path.write_text(self.to_json(), encoding="utf-8")
        return path

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Read a record; RecordError says what in the text is wrong, and where."""
        if len(text) > MAX_JSON_BYTES:
            raise RecordError(f"the text has {len(text):,} characters; at most {MAX_JSON_BYTES:,} are read")
        try:
            plain = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise RecordError(f"not JSON: {error}") from None
        if not isinstance(plain, dict) or "schema_version" not in plain:
            raise RecordError("not a Cutaway record: it has no schema_version")
        version = plain["schema_version"]
        if version != SCHEMA_VERSION:
            raise RecordError(
                f"the record has schema version {version!r} and this Cutaway reads {SCHEMA_VERSION}; "
                "open it with the version of Cutaway that wrote it, or make it anew"
            )
        record = typing.cast(Record, from_plain(plain, Record, "record"))
        for compile_ in record.compiles:
            compile_._record = record
        return record

    @classmethod
    def load(cls, path: str | Path) -> Record:
        return cls.from_json(Path(path).read_text(encoding="utf-8"))


def _reach(start: ItemId, step: dict[ItemId, list[ItemId]]) -> set[ItemId]:
    seen, work = {start}, [start]
    while work:
        for item in step.get(work.pop(), ()):
            if item not in seen:
                seen.add(item)
                work.append(item)
    return seen


def public_fields(cls: type) -> list[dataclasses.Field[Any]]:
    """The fields of a record class that are data (those with a leading underscore are not)."""
    return [f for f in dataclasses.fields(cls) if not f.name.startswith("_")]


@functools.cache
def _names(cls: type) -> tuple[str, ...] | None:
    """The names of a record class's fields; None for any other class."""
    return tuple(f.name for f in public_fields(cls)) if dataclasses.is_dataclass(cls) else None


def to_plain(value: Any) -> Any:
    """Dataclasses to dicts, all the way down."""
    if isinstance(value, (list, tuple)):
        return [to_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: to_plain(v) for k, v in value.items()}
    names = _names(value.__class__)
    return value if names is None else {name: to_plain(getattr(value, name)) for name in names}


class _Misfit(Exception):
    """A value is not of the type that its place wants; `path` leads to it from where reading began."""

    def __init__(self, message: str) -> None:
        self.message, self.path = message, ""

    def below(self, step: str) -> _Misfit:
        self.path = step + self.path
        return self


_Reader = Callable[[Any], Any]


def from_plain(plain: Any, want: Any, at: str) -> Any:
    """`plain` as the type `want`, or RecordError naming the place `at` where it is not one."""
    try:
        return _reader(want)(plain)
    except _Misfit as misfit:
        raise RecordError(f"{at}{misfit.path}: {misfit.message}") from None


@functools.cache
def _reader(want: Any) -> _Reader:
    """What makes the type `want` of plain values; it raises _Misfit."""
    origin = typing.get_origin(want)
    if dataclasses.is_dataclass(want):
        return _dataclass_reader(typing.cast(type, want))
    if origin is Literal:
        return _literal_reader(typing.get_args(want))
    if origin in (types.UnionType, typing.Union):
        return _union_reader([_reader(w) for w in typing.get_args(want) if w is not type(None)], want)
    if origin is list:
        return _list_reader(_reader(typing.get_args(want)[0]))
    if origin is dict:
        return _dict_reader(_reader(typing.get_args(want)[1]))
    return _plain_reader(want)


def _dataclass_reader(cls: type) -> _Reader:
    # made when it is first used: a type may speak of itself
    readers = functools.cache(lambda: {name: _reader(of) for name, of in _hints(cls).items()})

    def read(plain: Any) -> Any:
        if not isinstance(plain, dict):
            raise _unlike(plain, dict)
        fields, values = readers(), {}
        for name, value in plain.items():
            if name not in fields:
                raise _Misfit(f"unknown field {min(plain.keys() - fields.keys())!r}")
            try:
                values[name] = fields[name](value)
            except _Misfit as misfit:
                raise misfit.below(f".{name}") from None
        try:
            return cls(**values)
        except TypeError as error:
            raise _Misfit(str(error)) from None

    return read


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    """The types of a record class's fields."""
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in public_fields(cls)}


def _literal_reader(allowed: tuple[Any, ...]) -> _Reader:
    def read(plain: Any) -> Any:
        if plain not in allowed:
            raise _Misfit(f"{plain!r} is none of {allowed}")
        return plain

    return read


def _union_reader(options: Sequence[_Reader], want: Any) -> _Reader:
    takes_none = type(None) in typing.get_args(want)

    def read(plain: Any) -> Any:
        if plain is None and takes_none:
            return None
        misfits = []
        for option in options:
            try:
                return option(plain)
            except _Misfit as misfit:
                misfits.append(misfit)
        raise misfits[0]

    return read


def _list_reader(of: _Reader) -> _Reader:
    def read(plain: Any) -> Any:
        if not isinstance(plain, list):
            raise _unlike(plain, list)
        values = []
        for value in plain:
            try:
                values.append(of(value))
            except _Misfit as misfit:
                raise misfit.below(f"[{len(values)}]") from None
        return values

    return read


def _dict_reader(of: _Reader) -> _Reader:
    def read(plain: Any) -> Any:
        if not isinstance(plain, dict):
            raise _unlike(plain, dict)
        values = {}
        for key, value in plain.items():
            try:
                values[key] = of(value)
            except _Misfit as misfit:
                raise misfit.below(f"[{key!r}]") from None
        return values

    return read


def _plain_reader(want: type) -> _Reader:
    def read(plain: Any) -> Any:
        if want is float and type(plain) is int:
            return float(plain)
        # bool is an int to Python, but not to a reader of the record
        if not isinstance(plain, want) or (want is int and isinstance(plain, bool)):
            raise _unlike(plain, want)
        return plain

    return read


def _unlike(plain: Any, want: type) -> _Misfit:
    return _Misfit(f"expected {want.__name__}, got {'null' if plain is None else type(plain).__name__}")


class _Module(types.ModuleType):
    """`compiler_core.record()` opens a record: the package's function and this module share a name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return importlib.import_module("compiler_core.api").record(*args, **kwargs)


sys.modules[__name__].__class__ = _Module
