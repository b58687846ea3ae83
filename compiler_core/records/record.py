"""The record itself: its frames, and what each compile of a frame did."""

from __future__ import annotations

import json
import os
import time
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from compiler_core.records import limits, rules
from compiler_core.records.artifacts import (
    Artifact,
    ArtifactId,
    Edge,
    Event,
    Failure,
    Graph,
    ItemId,
    Language,
    Pane,
    Span,
    Stage,
)
from compiler_core.records.capture import GraphBreak, Guard, Recompile, Symbol
from compiler_core.records.differences import Comparison
from compiler_core.records.kernels import (
    Accuracy,
    CudaGraph,
    Device,
    Fusion,
    FusionRefusal,
    Kernel,
    KernelResources,
    MemoryPlan,
    Tuning,
)
from compiler_core.records.partition import Expansion, Partition
from compiler_core.records.plain import RecordError, echo, from_plain, to_plain
from compiler_core.records.steps import Replay, Steps

SCHEMA_VERSION = 2
MAX_JSON_BYTES = limits.JSON


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
    """Of each value that a kernel left in memory, where that was asked for (`accuracy.check_accuracy`)."""
    memory: list[MemoryPlan] = field(default_factory=list)
    tunings: list[Tuning] = field(default_factory=list)
    cuda_graphs: list[CudaGraph] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    steps: list[Steps] = field(default_factory=list)
    """The attempts to capture it, the one that counts last; recorded on demand."""
    _record: Record | None = field(default=None, repr=False, compare=False)
    _ids: set[ArtifactId] = field(default_factory=set, repr=False, compare=False)
    """Those of `artifacts`, as far as they are known."""

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
        if len(self._ids) != len(self.artifacts):
            self._ids = {a.id for a in self.artifacts}
        if made.id in self._ids:
            raise ValueError(f"compile {self.id} already has an artifact named {name!r}")
        self._ids.add(made.id)
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


@dataclass(slots=True, weakref_slot=True)
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
    _by_name: dict[str, Artifact] = field(default_factory=dict, repr=False, compare=False)
    """Of `sources`, as far as they are known."""
    _frames_left_out: int = field(default=0, repr=False, compare=False)

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
        """Open a frame.  Beyond `limits.FRAMES` it is none of the record's, whose notes count it."""
        made = Frame(len(self.frames) + self._frames_left_out, name, filename, line, kind)
        if len(self.frames) < limits.FRAMES:
            self.frames.append(made)
        else:
            self._frames_left_out += 1
            self._count_frames()
        return made

    def _count_frames(self) -> None:
        start = f"The first {limits.FRAMES:,} of "
        note = f"{start}{limits.FRAMES + self._frames_left_out:,} frames are kept."
        at = next((i for i, known in enumerate(self.notes) if known.startswith(start)), None)
        if at is None:
            self.notes.append(note)
        else:
            self.notes[at] = note

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
        artifact = self._source(filename)
        if artifact is None:
            artifact = Artifact(f"src:{len(self.sources)}", "source", filename, "python", "")
            self.sources.append(artifact)
            self._by_name[filename] = artifact
        known = dict(zip((int(s.key) for s in artifact.spans), artifact.text.split("\n"), strict=False))
        known.update(lines)
        numbers = sorted(known)
        artifact.text = "\n".join(known[n] for n in numbers)
        artifact.spans = [Span(str(n), i, i) for i, n in enumerate(numbers, 1)]
        return artifact

    def _source(self, filename: str) -> Artifact | None:
        if len(self._by_name) != len(self.sources):
            self._by_name = {a.name: a for a in reversed(self.sources)}
        return self._by_name.get(filename)

    def line(self, filename: str, lineno: int) -> ItemId | None:
        """The item of a line of the user's, or None where that line is not among the sources."""
        artifact = self._source(filename)
        if artifact is None or all(s.key != str(lineno) for s in artifact.spans):
            return None
        return artifact.item(str(lineno))

    def text(self, item: ItemId) -> str:
        """The lines that `item` is; KeyError where the record has no such item."""
        for artifact in self.artifacts:
            if item.startswith(f"{artifact.id}#"):
                for span in artifact.spans:
                    if artifact.item(span.key) == item:
                        return artifact.lines(span)
        raise KeyError(f"the record has no item {item!r}")

    def search(self, text: str, pane: Pane | None = None) -> list[ItemId]:
        """The items whose lines contain `text`, in one pane or in all, in the record's order."""
        artifacts = [a for a in self.artifacts if pane in (None, a.pane)]
        return [item for artifact in artifacts for item in _found(artifact, text)]

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
        except (ValueError, RecursionError) as error:  # a number of thousands of digits is a ValueError
            raise RecordError(f"not JSON: {error}") from None
        if not isinstance(plain, dict) or "schema_version" not in plain:
            raise RecordError("not a Cutaway record: it has no schema_version")
        version = plain["schema_version"]
        if version != SCHEMA_VERSION:
            raise RecordError(
                f"the record has schema version {echo(version)} and this Cutaway reads {SCHEMA_VERSION}; "
                "open it with the version of Cutaway that wrote it, or make it anew"
            )
        record = typing.cast(Record, from_plain(plain, Record, "record"))
        rules.check(record)
        for compile_ in record.compiles:
            compile_._record = record
        return record

    @classmethod
    def load(cls, path: str | Path) -> Record:
        most = 4 * MAX_JSON_BYTES  # as many bytes as a character has at most
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            read = file.read(most + 1) if size <= most else b""  # a device has no size
        if max(size, len(read)) > most:
            raise RecordError(f"the file has more than {most:,} bytes; at most {MAX_JSON_BYTES:,} characters are read")
        try:
            return cls.from_json(read.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise RecordError(f"not UTF-8: {error}") from None


def _found(artifact: Artifact, text: str) -> Iterator[ItemId]:
    lines = artifact.text.split("\n")
    for span in artifact.spans:
        if text in "\n".join(lines[span.first - 1 : span.last]):
            yield artifact.item(span.key)


def _reach(start: ItemId, step: dict[ItemId, list[ItemId]]) -> set[ItemId]:
    seen, work = {start}, [start]
    while work:
        for item in step.get(work.pop(), ()):
            if item not in seen:
                seen.add(item)
                work.append(item)
    return seen
