"""The classes `Record`, `Frame` and `Compile`: the tree that holds all data of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from compiler_core.instruments import tool
from compiler_core.records import limits
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
from compiler_core.records.capture import GraphBreak, Guard, StackLine, Symbol
from compiler_core.records.differences import Comparison
from compiler_core.records.kernels import (
    Accuracy,
    CacheLookup,
    Collective,
    CudaGraph,
    Device,
    Expansion,
    Fusion,
    FusionRefusal,
    Kernel,
    KernelResources,
    Partition,
    PlannedMemory,
    Schedule,
    Tuning,
)
from compiler_core.records.plain import (
    json_text,
    to_plain,
    without_gc,
)
from compiler_core.records.problems import SLOW_COMPILE_S, Problem, needing_action
from compiler_core.records.recompiles import Recompile
from compiler_core.records.steps import Steps
from compiler_core.records.timings import EagerTime, GraphTime, LineTime, Timings, Verdict

if TYPE_CHECKING:
    from compiler_core.tools.questions.step_states import Replay

SCHEMA_VERSION = 3
LARGE_FIELDS = frozenset({
    "artifacts", "guards", "edges", "steps", "partition", "expansions", "fusions", "refusals", "schedules", "kernels",
    "resources", "accuracy", "memory", "cache_lookups", "line_times", "graph_times", "eager_times",
})  # fmt: skip
"""The fields of a compile that take memory.  Compiled code writes to none of them when it runs."""


Fate = Literal["compiled", "inlined", "skipped", "plain"]
_TEXTS = {"compiled": "compiled", "inlined": "inlined", "plain": "plain Python", "skipped": "skipped"}
_COMPILES = {"compiled": " as {}", "inlined": " into {}"}


_OF_KERNELS = ("fusion", "schedule", "kernel")
"""The panes of kernels and of what they were made from."""


@dataclass(slots=True)
class SeenFrame:
    """The calls of one function by one caller.

    `fate`: ``compiled`` if code of the compile `compile` ran in place of the function's; ``inlined`` if its operations
    are part of that compile, so that it ran without a frame; ``skipped`` if the frame hook never compiles such code;
    ``plain`` if it could be compiled and ran as plain Python.
    """

    name: str
    filename: str
    line: int
    calls: int
    """The number of calls; of a generator, how many were started."""
    fate: Fate
    compile: str | None = None
    """The id of the compile in this record; None also for code that was compiled before the call."""
    reason: str = ""
    """Why it was skipped, or ran as plain Python; for a compiled resume function, what it resumes."""
    caller: int | None = None
    """The index of the caller in `Record.seen`; None for a function that was called from outside the compiled call."""

    @property
    def outcome(self) -> str:
        """The fate, the compile and the reason, as text."""
        text = _TEXTS[self.fate]
        if self.compile is not None:
            text += _COMPILES.get(self.fate, "").format(self.compile)
        return f"{text}: {self.reason}" if self.reason else text


@dataclass(slots=True)
class Compile:
    """One compile of one frame.  Stages append to it with the methods below; nothing is removed."""

    id: str
    frame: int
    cause: Recompile | None = None
    outcome: Literal["running", "compiled", "skipped", "failed"] = "running"
    reason: str = ""
    """Why it was skipped or failed; empty for a compile that was installed."""
    raised: str = ""
    """The type of the exception that ended it; empty if none did."""
    raised_at: StackLine | None = None
    """Where the user's code was then; None if that is not known."""
    caller: StackLine | None = None
    """For a frame of a library: the user's line that called it, directly or not."""
    backend: str = ""
    events: list[Event] = field(default_factory=list)
    artifacts: list[Artifact] = field(default_factory=list)
    guards: list[Guard] = field(default_factory=list)
    symbols: list[Symbol] = field(default_factory=list)
    """Its symbolic sizes and numbers, and those that were specialised."""
    no_symbols: Literal["", "dynamic=False", "backend"] = ""
    """Why all sizes and numbers are constants of it, besides sizes that are marked: an option, or a backend that takes
    no symbols; empty if they need not be."""
    guards_ns: float | None = None
    """Nanoseconds of checking all guards in a call, measured in the tree that is checked and with the values of the
    call that was compiled.  In a record of logs: what PyTorch logged, which it measures once, with empty caches."""
    breaks: list[GraphBreak] = field(default_factory=list)
    expansions: list[Expansion] = field(default_factory=list)
    partition: Partition | None = None
    changes: list[str] = field(default_factory=list)
    """The names of the graphs that a pass or a backend of the user changed."""
    fusions: list[Fusion] = field(default_factory=list)
    refusals: list[FusionRefusal] = field(default_factory=list)
    schedules: list[Schedule] = field(default_factory=list)
    """The schedule of each kernel that has a loop nest."""
    kernels: list[Kernel] = field(default_factory=list)
    resources: list[KernelResources] = field(default_factory=list)
    """For each kernel and each target whose machine code was requested."""
    accuracy: list[Accuracy] = field(default_factory=list)
    """For each value that a kernel wrote to memory, after `compiler_core.check_accuracy`."""
    memory: list[PlannedMemory] = field(default_factory=list)
    tunings: list[Tuning] = field(default_factory=list)
    cuda_graphs: list[CudaGraph] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    steps: list[Steps] = field(default_factory=list)
    """The attempts to capture it, recorded with ``steps=True``; the result of the last one is used."""
    cache_lookups: list[CacheLookup] = field(default_factory=list)
    """Each lookup of what it was compiled to in a cache, with the fields of the key."""
    line_times: list[LineTime] = field(default_factory=list)
    """The time of compiling by line, in the stages that work on one line after another."""
    graph_times: list[GraphTime] = field(default_factory=list)
    """The times of its graphs, compiled and eager, after `compiler_core.measure`."""
    eager_times: list[EagerTime] = field(default_factory=list)
    """The times of eager PyTorch's operations, after `compiler_core.measure`."""
    _record: Record | None = field(default=None, repr=False, compare=False)
    _ids: set[ArtifactId] = field(default_factory=set, repr=False, compare=False)
    """Ids of `artifacts`; out of date if the lengths differ."""
    _freed: FreedFields | None = field(default=None, repr=False, compare=False)
    """The large fields, while they are stored elsewhere."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in LARGE_FIELDS and self._freed is not None:
                self._freed.read_again()
            return object.__getattribute__(self, name)

    def free(self, freed: FreedFields) -> None:
        """Frees the large fields; `freed` reads them again when one is used."""
        self._freed, self._ids = freed, self._artifact_ids()
        for name in LARGE_FIELDS:
            delattr(self, name)

    def has_artifact(self, id: ArtifactId) -> bool:
        """Whether one of its texts has this id; known also while they are stored elsewhere."""
        return id in (self._ids if self._freed else self._artifact_ids())

    def _artifact_ids(self) -> set[ArtifactId]:
        if len(self._ids) != len(self.artifacts):
            self._ids = {a.id for a in self.artifacts}
        return self._ids

    def artifact(
        self,
        pane: Pane,
        name: str,
        language: Language,
        text: str,
        spans: Iterable[Span] = (),
        graph: Graph | None = None,
    ) -> Artifact:
        """Adds a text with the id ``"<compile id>:<name>"``; ValueError if the compile has that name already."""
        artifact = Artifact(f"{self.id}:{name}", pane, name, language, text, list(spans), graph)
        if artifact.id in self._artifact_ids():
            raise ValueError(f"compile {self.id} already has an artifact named {name!r}")
        self._ids.add(artifact.id)
        self.artifacts.append(artifact)
        return artifact

    def add_subgraph(self, name: str, part: Compile, is_stage: bool = False) -> None:
        """Adds what the record of a subgraph has, which was compiled by itself: its failures, and its texts, kernels,
        fusions and symbols, named ``<name>.<text>``.

        The texts of kernels, and of what they were made from, stay in their panes; the others are in that of subgraphs.
        `is_stage`: it is a part of the captured graph itself, not the function of an operator: all of its texts stay in
        their panes, and what it saves for the backward is the graph's.
        """
        old, new = f"{part.id}:", f"{self.id}:{name}."

        def renamed(item: ItemId) -> ItemId:
            return new + item.removeprefix(old) if item.startswith(old) else item

        for each in part.artifacts:
            pane = each.pane if is_stage or each.pane in _OF_KERNELS else "subgraphs"
            self.artifacts.append(replace(each, id=renamed(each.id), pane=pane, name=f"{name}.{each.name}"))
        self.symbols += [replace(symbol, key=f"{name}.{symbol.key}") for symbol in part.symbols]
        self.edges += [Edge(renamed(e.made), list(map(renamed, e.sources)), e.rule) for e in part.edges]
        self.failures += part.failures
        kernels = {kernel.name: f"{name}.{kernel.name}" for kernel in part.kernels}
        for kernel in part.kernels:
            item = kernel.item and renamed(kernel.item)
            self.kernels.append(replace(kernel, key=f"{name}.{kernel.key}", name=kernels[kernel.name], item=item))
        for fusion in part.fusions:
            kernel_name = fusion.kernel and f"{name}.{fusion.kernel}"
            nodes = list(map(renamed, fusion.nodes))
            self.fusions.append(replace(fusion, key=f"{name}.{fusion.key}", kernel=kernel_name, nodes=nodes))
        for refusal in part.refusals:
            first, second = (kernels.get(each, each) for each in (refusal.first, refusal.second))
            self.refusals.append(replace(refusal, first=first, second=second))
        for schedule in part.schedules:
            like = schedule.like and f"{name}.{schedule.like}"
            self.schedules.append(replace(schedule, kernel=f"{name}.{schedule.kernel}", like=like))
        self.resources += [replace(each, kernel=f"{name}.{each.kernel}") for each in part.resources]
        if not is_stage:
            return
        for made in part.expansions:
            forward, backward = list(map(renamed, made.forward)), list(map(renamed, made.backward))
            self.expansions.append(replace(made, forward=forward, backward=backward))
        if part.partition is not None:
            values = [replace(value, node=renamed(value.node)) for value in part.partition.values]
            curve = [replace(point, saved=list(map(renamed, point.saved))) for point in part.partition.curve]
            own = replace(part.partition, values=values, curve=curve)
            self.partition = own if self.partition is None else self.partition.joined(own)

    def find(self, name: str) -> Artifact:
        """Returns the artifact called `name`; the KeyError for an unknown name lists the known ones."""
        for artifact in self.artifacts:
            if artifact.name == name:
                return artifact
        raise KeyError(f"no artifact {name!r} in compile {self.id}; it has {[a.name for a in self.artifacts]}")

    def link(self, made: ItemId, sources: Iterable[ItemId], rule: str) -> None:
        """Adds a link from the item `made` to the items it was made from; does nothing without sources."""
        unique = list(dict.fromkeys(s for s in sources if s != made))
        if unique:
            self.edges.append(Edge(made, unique, rule))

    def replay(self, attempt: int = -1) -> Replay:
        """Returns the states of the symbolic interpreter in one attempt, the last by default.

        Raises ValueError if no steps were recorded.
        """
        if not self.steps:
            raise ValueError(
                f"compile {self.id} has no steps: they are recorded with --steps, or compile(..., steps=True)"
            )
        line = self._record.line if self._record else lambda filename, lineno: None
        replay: Any = tool("Replay")
        states: Replay = replay(self.steps[attempt], line, lambda at: f"{self.id}:bytecode#{at}")
        return states

    @property
    def captured_graphs(self) -> list[Artifact]:
        """Its captured graphs that compute something: what is counted as graphs wherever they are counted."""
        return [each for each in self.artifacts if each.pane == "captured" and each.graph and each.graph.computes]

    @property
    def has_whole_step(self) -> bool:
        """Whether its graph is a whole training step, which computes gradients itself and is recorded as a forward."""
        calls = (node.target for each in self.captured_graphs if each.graph for node in each.graph.nodes)
        return "torch.autograd.grad" in calls

    @property
    def generated_kernels(self) -> list[Kernel]:
        """Its kernels, without the calls of PyTorch's: what is counted as kernels wherever they are counted."""
        return [kernel for kernel in self.kernels if kernel.language != "extern"]

    @property
    def is_broken(self) -> bool:
        """Whether its last graph break ended it with an error, as under ``fullgraph=True``."""
        return self.outcome == "failed" and self.raised in ("FullGraphError", "Unsupported")

    @property
    def duration_ns(self) -> int:
        """The nanoseconds in the compile's steps, without the time between them."""
        steps = [(e.start, e.end) for e in self.events if e.end is not None and e.stage != "run"]
        total, until = 0, 0
        for start, end in sorted(steps):
            total += max(0, end - max(start, until))
            until = max(until, end)
        return total

    def fail(self, stage: Stage, message: str, detail: str = "") -> None:
        """Adds a failure; `detail` is its traceback."""
        self.failures.append(Failure(stage, message, detail))

    @contextmanager
    def step(self, stage: Stage, name: str = "") -> Iterator[Event]:
        """Context manager that times a step.  An exception marks the step as failed and is raised again."""
        clock = self._record.clock if self._record else time.perf_counter_ns
        event = Event(stage, name or stage, clock())
        self.events.append(event)
        self.notify(event)
        try:
            yield event
        except BaseException as error:
            event.end, event.outcome = clock(), "failed"
            event.detail = event.detail or f"{type(error).__name__}: {error}"
            self.notify(event)
            raise
        event.end, event.outcome = clock(), "ok"
        self.notify(event)

    def notify(self, event: Event) -> None:
        """Calls the record's listeners with an event that started or ended."""
        if self._record:
            self._record.notify(self, event)


@dataclass(slots=True)
class Frame:
    """A code object that the frame hook compiled or refused.

    `kind`: ``root`` if the user called it, ``called`` if compiled code did, ``resume`` for a resume function.
    """

    id: int
    name: str
    filename: str
    line: int
    kind: Literal["root", "resume", "called"]
    resumes: str | None = None
    """For a resume function: the id of the compile with the graph break before it."""
    carried: list[str] = field(default_factory=list)
    """For the body of a loop, and for resume functions in it: the locals that a round passes on to the next one."""
    calls: int = 0
    """Calls that compiled it or ran a compile of it for the first time; 0: it was never called."""
    skipped: str = ""
    """Why it runs as plain Python; empty if it does not."""
    skipped_line: int = 0
    """The line for which it does; 0 if it is no single line."""
    limit_reached: bool = False
    """Whether it reached the limit of compiles, so that calls that none covers run as plain Python."""
    compiles: list[Compile] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Its name in texts: the code of a cell or a script itself has none."""
        return "top level" if self.name == "<module>" else self.name


@dataclass(slots=True)
class View:
    """A view of a record that is presented to others: a title, panes from left to right, and the pinned items."""

    title: str
    panes: list[str]
    pinned: list[ItemId] = field(default_factory=list)
    compile: str = ""
    """The id of the compile; empty: the one shown is kept."""


class FreedFields(Protocol):
    """The large fields of a record's compiles while they are stored elsewhere.

    The record and its compiles stay the same objects.  Lists that were taken from them before are not affected.
    """

    def read_again(self) -> None:
        """Gives the compiles their fields again."""


Listener = Callable[[Compile, Event], None]
"""Called with each event of a compile as it starts and as it ends."""


@dataclass(slots=True, weakref_slot=True)
class Record:
    """The data of one run of the compiler.  `compiler_core.record()` opens one."""

    schema_version: int = SCHEMA_VERSION
    engine: Literal["core", "torch"] = "core"
    title: str = ""
    created: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    sources: list[Artifact] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    """Names to show for files whose own names mean nothing to the user: ``In[3]`` for a notebook cell."""
    frames: list[Frame] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    """What cost time or failed, graded; `find_problems` fills it, with the tools."""
    verdict: Verdict | None = None
    """Whether compiling was worth it, in one line; `find_verdict` makes it."""
    timings: Timings | None = None
    """The times of the call as plain PyTorch and compiled, if it was timed."""
    notes: list[str] = field(default_factory=list)
    """Messages for the user that belong to no compile (no C++ compiler, recompile limit)."""
    raised: str = ""
    """The type of the exception that the cell raised; empty if it raised none."""
    devices: list[Device] = field(default_factory=list)
    """The devices that kernels were timed on."""
    seen: list[SeenFrame] = field(default_factory=list)
    """The Python frames that ran, if `compiler_core.frames` or ``%frames`` watched the call."""
    collectives: list[Collective] = field(default_factory=list)
    """The collectives that ran while it was open, in compiled code or not, in their order."""
    comparison: Comparison | None = None
    """The comparison with another run, if any: two engines on one cell, before and after an edit, two ranks."""
    covered: list[str] = field(default_factory=list)
    """The panes that viewers cover until their user has predicted what is in them (``--cover``)."""
    views: list[View] = field(default_factory=list)
    """The views to present, in order."""
    _made_here: bool = field(default=False, repr=False, compare=False)
    """Whether its texts were made by a compiler in this process, and may therefore be run."""
    _opened: int = field(default_factory=time.perf_counter_ns, repr=False, compare=False)
    _listeners: list[Listener] = field(default_factory=list, repr=False, compare=False)
    _by_name: dict[str, Artifact] = field(default_factory=dict, repr=False, compare=False)
    """`sources` by file name; out of date if the lengths differ."""
    _frames_left_out: int = field(default=0, repr=False, compare=False)
    _freed: FreedFields | None = field(default=None, repr=False, compare=False)

    def clock(self) -> int:
        """Returns the nanoseconds since this record was opened."""
        return time.perf_counter_ns() - self._opened

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Calls `listener` as each event starts and ends; returns a function that removes it.

        A listener that raises an exception is removed, and a note says so: it must not fail a compile.
        """
        self._listeners.append(listener)
        return lambda: self._remove(listener)

    def _remove(self, listener: Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def notify(self, compile_: Compile, event: Event) -> None:
        """Calls all listeners with an event of `compile_`."""
        for listener in list(self._listeners):
            try:
                listener(compile_, event)
            except Exception as error:
                self._remove(listener)
                self.notes.append(f"A listener of this record raised {type(error).__name__} and was removed: {error}")

    def frame(self, name: str, filename: str, line: int, kind: Literal["root", "resume", "called"]) -> Frame:
        """Opens a frame.  Beyond `limits.FRAMES` it is not added to the record, and a note counts it."""
        frame = Frame(len(self.frames) + self._frames_left_out, name, filename, line, kind)
        if len(self.frames) < limits.FRAMES:
            self.frames.append(frame)
        else:
            self._frames_left_out += 1
            self._count_frames()
        return frame

    def _count_frames(self) -> None:
        start = f"The first {limits.FRAMES:,} of "
        note = f"{start}{limits.FRAMES + self._frames_left_out:,} frames are kept."
        at = next((i for i, known in enumerate(self.notes) if known.startswith(start)), None)
        if at is None:
            self.notes.append(note)
        else:
            self.notes[at] = note

    def compile(self, frame: Frame, backend: str = "") -> Compile:
        """Opens the next compile of `frame`.  Its id is ``frame/number``, as in PyTorch."""
        compile_ = Compile(f"{frame.id}/{len(frame.compiles)}", frame.id, backend=backend, _record=self)
        frame.compiles.append(compile_)
        return compile_

    @property
    def compiles(self) -> list[Compile]:
        """The compiles of all frames."""
        return [c for f in self.frames for c in f.compiles]

    @property
    def artifacts(self) -> list[Artifact]:
        """All texts: the sources, then those of each compile."""
        return self.sources + [a for c in self.compiles for a in c.artifacts]

    def has_artifact(self, id: ArtifactId) -> bool:
        """Whether a source or a text of a compile has this id."""
        return any(each.id == id for each in self.sources) or any(each.has_artifact(id) for each in self.compiles)

    def find_problems(self, slow_compile_s: float = SLOW_COMPILE_S) -> None:
        """Fills `problems` and `verdict` from everything that the record has so far.

        A compile of repeated blocks is a problem if it took `slow_compile_s` seconds.  If the search fails, a note says
        so: the program that was recorded must not fail with it.
        """
        if find_problems := tool("find_problems"):
            try:
                self.problems = find_problems(self, slow_compile_s)
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                self.notes.append(f"Problems are missing, since Cutaway failed to find them ({why}).")
                return  # a verdict would be one without problems
        self.find_verdict()

    @property
    def compile_ns(self) -> int:
        """The nanoseconds of compiling: of the steps of all compiles, without the time between them."""
        return sum(compile_.duration_ns for compile_ in self.compiles)

    def find_verdict(self) -> None:
        """Makes `verdict` from the problems, the times and the compiles, with the tools."""
        if verdict := tool("verdict"):
            self.verdict = verdict(self.timings, self.compile_ns, len(needing_action(self.problems)), self.raised)

    def source(self, filename: str, first: int, lines: Sequence[str]) -> Artifact:
        """Adds lines of a file, numbered from `first`; the key of a line's item is its number."""
        return self.source_lines(filename, {first + i: line.rstrip("\n") for i, line in enumerate(lines)})

    def source_lines(self, filename: str, lines: dict[int, str]) -> Artifact:
        """Adds lines of a file by their numbers."""
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

    def _source_that_ends(self, filename: str) -> Artifact | None:
        if filename.startswith(("/", "<")):
            return None
        found = [each for each in self.sources if each.name.endswith(f"/{filename}")]
        return found[0] if len(found) == 1 else None

    def line(self, filename: str, lineno: int) -> ItemId | None:
        """Returns the item of a line of the user's code; None if the line is not among the sources.

        `filename` is the file's path or, if one source only ends with it, the end of it: ``model.py``.
        """
        artifact = self._source(filename) or self._source_that_ends(filename)
        if artifact is None or all(s.key != str(lineno) for s in artifact.spans):
            return None
        return artifact.item(str(lineno))

    def text(self, item: ItemId) -> str:
        """Returns the text of `item`; KeyError if the record has no such item."""
        for artifact in self.artifacts:
            if item.startswith(f"{artifact.id}#"):
                for span in artifact.spans:
                    if artifact.item(span.key) == item:
                        return artifact.lines(span)
        raise KeyError(f"the record has no item {item!r}")

    def line_text(self, item: ItemId | None) -> str:
        """Returns the text of a line without its indentation; empty if a record that was read lacks the line."""
        try:
            return self.text(item).strip() if item else ""
        except KeyError:
            return ""

    def search(self, text: str, pane: Pane | None = None) -> list[ItemId]:
        """Returns the items whose text contains `text`, in one pane or in all, in the record's order."""
        artifacts = [a for a in self.artifacts if pane in (None, a.pane)]
        return [item for artifact in artifacts for item in _items_with(artifact, text)]

    def label(self, filename: str) -> str:
        """Returns the name to show for a file."""
        return self.labels.get(filename) or Path(filename).name

    def linked(self, item: ItemId) -> set[ItemId]:
        """Returns `item`, all items it was made from, and all items made from it, directly or not."""
        sources: dict[ItemId, list[ItemId]] = {}
        results: dict[ItemId, list[ItemId]] = {}
        for compile_ in self.compiles:
            for edge in compile_.edges:
                sources.setdefault(edge.made, []).extend(edge.sources)
                for source in edge.sources:
                    results.setdefault(source, []).append(edge.made)
        return _reachable(item, sources) | _reachable(item, results)

    def to_json(self, indent: int | None = None) -> str:
        """Returns the record as JSON."""
        return without_gc(lambda: json_text(to_plain(self), indent))

    def save(self, path: str | Path) -> Path:
        """Writes the record as JSON to `path`."""
        path = Path(path)
        path.write_text(self.to_json(), encoding="utf-8")
        return path

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Reads a record from JSON and checks it.

        Raises RecordError for a wrong text, with the path to the fault, and for a text of more than `limits.JSON`.
        """
        return _read("record_from_json", text)

    @classmethod
    def from_plain(cls, plain: object) -> Record:
        """Reads a record from `plain` data, as `json.loads` returns it, and checks it.

        Raises RecordError for wrong data, with the path to the fault, and for a record of another version.
        """
        return _read("record_from_plain", plain)

    @classmethod
    def load(cls, path: str | Path) -> Record:
        """Reads a record from a file; RecordError if it is not one."""
        return _read("record_from_file", path)


def _read(name: str, source: object) -> Record:
    read: Any = tool(name)
    record: Record = read(source)
    return record


def _items_with(artifact: Artifact, text: str) -> Iterator[ItemId]:
    lines = artifact.text.split("\n")
    for span in artifact.spans:
        if text in "\n".join(lines[span.first - 1 : span.last]):
            yield artifact.item(span.key)


def _reachable(start: ItemId, links: dict[ItemId, list[ItemId]]) -> set[ItemId]:
    seen, work = {start}, [start]
    while work:
        for item in links.get(work.pop(), ()):
            if item not in seen:
                seen.add(item)
                work.append(item)
    return seen
