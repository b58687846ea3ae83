"""What one run, or one compile, has at each of the user's lines: what `compare` sets side by side."""

from __future__ import annotations

import re
import typing
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from compiler_core.records import Compile, Event, ItemId, Kernel, Record, Stage
from compiler_core.records.differences import Aspect

Place = tuple[str, int]
"""A file and a line of it."""
NOWHERE = ("", 0)
"""Stands for a line that is not known."""
_ADDRESS = re.compile(r"(_id\(.*?, )\d+|( at )0x[0-9a-f]+")
"""Where an object lies: the number says nothing outside of its process."""


@dataclass(frozen=True, slots=True)
class Found:
    """Something that stands at a line."""

    place: Place
    text: str
    body: tuple[str, ...] = ()
    """Lines that are compared too, and shown where they differ: a kernel's code."""
    ns: float | None = None
    """How long it takes, where it is a time; times are compared roughly."""


@dataclass
class Side:
    """One record or compile, and where its items stand."""

    of: Record | Compile
    compiles: list[Compile] = field(init=False)
    record: Record | None = field(init=False)
    title: str = field(init=False)
    engine: str = field(init=False)
    in_detail: bool = False
    """Whether both sides are of one engine, so that what each names and writes in its own way is compared too."""
    same_process: bool = True
    """Whether the other side is known to be of the same process."""

    def __post_init__(self) -> None:
        self.record = self.of if isinstance(self.of, Record) else self.of._record
        self.compiles = self.of.compiles if isinstance(self.of, Record) else [self.of]
        self.title = self.of.id if isinstance(self.of, Compile) else self.of.title or self.of.engine
        self.engine = self.record.engine if self.record else "core"
        sources = self.record.sources if self.record else []
        self._files = {artifact.id: artifact.name for artifact in sources}
        self._texts = {
            (a.name, int(span.key)): line
            for a in sources
            for span, line in zip(a.spans, a.text.split("\n"), strict=False)
        }
        self._above: dict[ItemId, list[ItemId]] = {}
        for compile_ in self.compiles:
            for edge in compile_.edges:
                self._above.setdefault(edge.made, []).extend(edge.sources)
        self._places: dict[ItemId, Place] = {}

    def file_lines(self) -> dict[str, dict[int, str]]:
        """The lines of each file that the record has."""
        files: dict[str, dict[int, str]] = {}
        for (file, number), text in self._texts.items():
            files.setdefault(file, {})[number] = text
        return files

    def text(self, place: Place) -> str:
        return self._texts.get(place, "")

    def place(self, item: ItemId | None) -> Place:
        """The user's line nearest above an item: by the fewest edges, the first where several are as near."""
        if item is None:
            return NOWHERE
        if item not in self._places:
            self._places[item] = self._nearest(item)
        return self._places[item]

    def _nearest(self, item: ItemId) -> Place:
        seen = {item}
        work = deque(seen)
        while work:
            artifact, _, key = (at := work.popleft()).partition("#")
            if artifact in self._files:
                return self._files[artifact], int(key) if key.isdigit() else 0
            new = [source for source in self._above.get(at, ()) if source not in seen]
            seen.update(new)
            work.extend(new)
        return NOWHERE

    def begins(self, compile_: Compile) -> Place:
        """The first line of what was compiled."""
        frames = self.record.frames if self.record else []
        frame = next((f for f in frames if f.id == compile_.frame), None)
        return (frame.filename, frame.line) if frame else NOWHERE

    def kernel_places(self) -> Iterator[tuple[Compile, Kernel, list[Place]]]:
        """Each kernel, and the lines of all that it computes."""
        for compile_ in self.compiles:
            nodes = {fusion.kernel: fusion.nodes for fusion in compile_.fusions}
            for kernel in compile_.kernels:
                places = {self.place(node) for node in nodes.get(kernel.key) or nodes.get(kernel.name) or ()}
                known = sorted(place for place in places if place[1])
                yield compile_, kernel, known or [self.place(kernel.item)]


def operation(target: str) -> str:
    """What an operation is called in every dialect: ``aten.cos.default`` and ``torch.Tensor.cos`` are ``cos``."""
    parts = target.split(".")
    name = parts[1] if parts[0] in ("aten", "prims") and len(parts) > 1 else parts[-1]
    return name.strip("_")


def stage_ns(events: Iterable[Event]) -> Counter[str]:
    """The time of each stage, without that of the steps inside that belong to another and without what ran between."""
    spent: Counter[str] = Counter()
    ended = [(e.start, e.end, e.stage) for e in events if e.end is not None and e.stage != "run"]
    opened: list[tuple[int, str]] = []
    at = 0
    for start, end, stage in sorted(ended, key=lambda e: (e[0], -e[1])):
        at = _close(opened, start, at, spent)
        if opened:
            spent[opened[-1][1]] += max(0, start - at)
        at = max(at, start)
        opened.append((end, stage))
    _close(opened, None, at, spent)
    return spent


def _close(opened: list[tuple[int, str]], until: int | None, at: int, spent: Counter[str]) -> int:
    """Take off the steps that ended by `until`, all if it is None; gives the time up to which all is counted."""
    while opened and (until is None or opened[-1][0] <= until):
        end, stage = opened.pop()
        spent[stage] += max(0, end - at)
        at = max(at, end)
    return at


def _breaks(side: Side) -> Iterator[Found]:
    for compile_ in side.compiles:
        for each in compile_.breaks:
            at = each.stack[-1] if each.stack else None
            yield Found((at.filename, at.lineno) if at else NOWHERE, each.kind)


def _guards(side: Side) -> Iterator[Found]:
    for compile_ in side.compiles:
        for guard in compile_.guards:
            code = guard.code if side.same_process else _ADDRESS.sub(r"\1\2...", guard.code)
            yield Found(side.place(guard.line), code)


def _operations(pane: str) -> Callable[[Side], Iterator[Found]]:
    def found(side: Side) -> Iterator[Found]:
        for artifact in (a for c in side.compiles for a in c.artifacts if a.pane == pane):
            for node in artifact.graph.nodes if artifact.graph else ():
                if node.op.startswith("call_"):
                    sizes = "" if node.shape is None else f" {node.dtype}[{', '.join(map(str, node.shape))}]"
                    text = operation(node.target) + (sizes if side.in_detail else "")
                    yield Found(side.place(artifact.item(node.key)), text)

    return found


def _saved(side: Side) -> Iterator[Found]:
    for compile_ in side.compiles:
        for value in compile_.partition.values if compile_.partition else ():
            if value.decision == "saved":
                yield Found(side.place(value.node), f"{value.bytes:,} bytes")


def _kernels(side: Side) -> Iterator[Found]:
    for compile_, kernel, places in side.kernel_places():
        lines = f" over lines {', '.join(str(line) for _, line in places)}" if len(places) > 1 else ""
        body: tuple[str, ...] = ()
        if side.in_detail:
            lines = f" {kernel.name}{lines}"
            body = tuple(_code(compile_, kernel).split("\n"))
        yield Found(places[0], f"{kernel.graph} {kernel.language}{lines}", body)


def _code(compile_: Compile, kernel: Kernel) -> str:
    """The text of a kernel that was generated; none of one of PyTorch's own."""
    artifact = (kernel.item or "").rpartition("#")[0]
    return next((a.text for a in compile_.artifacts if a.id == artifact and a.pane == "kernel"), "")


def _kernel_times(side: Side) -> Iterator[Found]:
    """A kernel of several lines is shared out among them."""
    for _, kernel, places in side.kernel_places():
        for place in places if kernel.time_ns is not None else ():
            share = (kernel.time_ns or 0) / len(places)
            yield Found(place, f"{kernel.graph} {kernel.name} {duration(share)}", ns=share)


def _compile_times(side: Side) -> Iterator[Found]:
    """The phases work on a graph as a whole, so their time stands at the first line of what was compiled."""
    spent: dict[Place, Counter[str]] = {}
    for compile_ in side.compiles:
        spent.setdefault(side.begins(compile_), Counter()).update(stage_ns(compile_.events))
    for place, stages in spent.items():
        yield from (Found(place, f"{stage} {duration(ns)}", ns=ns) for stage, ns in stages.items() if ns)


def duration(ns: float) -> str:
    for unit in ("ns", "us", "ms"):
        if ns < 1000:
            return f"{ns:.3g} {unit}"
        ns /= 1000
    return f"{ns:.3g} s"


ASPECTS: dict[Aspect, Callable[[Side], Iterator[Found]]] = {
    "graph break": _breaks,
    "guard": _guards,
    "captured": _operations("captured"),
    "forward": _operations("forward"),
    "backward": _operations("backward"),
    "saved": _saved,
    "kernel": _kernels,
    "kernel time": _kernel_times,
    "compile time": _compile_times,
}


TIMES = frozenset[Aspect]({"kernel time", "compile time"})


def _graphs(side: Side) -> float:
    captured = [a.graph for c in side.compiles for a in c.artifacts if a.pane == "captured" and a.graph]
    return sum(any(node.op.startswith("call_") for node in graph.nodes) for graph in captured)


def _kernel_microseconds(side: Side) -> float | None:
    """Of a call of each; None where they were not all timed."""
    times = [k.time_ns for c in side.compiles for k in c.kernels]
    known = [time for time in times if time is not None]
    return sum(known) / 1e3 if known and len(known) == len(times) else None


def _spent(side: Side) -> Counter[str]:
    return sum((stage_ns(c.events) for c in side.compiles), Counter())


def _stage_seconds(stage: Stage) -> Callable[[Side], float | None]:
    return lambda side: _spent(side)[stage] / 1e9 or None


COUNTS: dict[str, Callable[[Side], float | None]] = {
    "compiles": lambda side: sum(c.outcome == "compiled" for c in side.compiles),
    "graphs": _graphs,
    "graph breaks": lambda side: len({found.place for found in _breaks(side)}),
    "recompiles": lambda side: sum(c.cause is not None for c in side.compiles),
    "guards": lambda side: sum(len(c.guards) for c in side.compiles),
    "captured operations": lambda side: sum(1 for _ in _operations("captured")(side)),
    "saved bytes": lambda side: sum(c.partition.saved_bytes for c in side.compiles if c.partition),
    "kernels": lambda side: sum(k.language != "extern" for c in side.compiles for k in c.kernels),
    "calls of PyTorch's kernels": lambda side: sum(k.language == "extern" for c in side.compiles for k in c.kernels),
    "kernel microseconds": _kernel_microseconds,
    "compile seconds": lambda side: sum(_spent(side).values()) / 1e9,
    **{f"of these in {stage}": _stage_seconds(stage) for stage in typing.get_args(Stage) if stage != "run"},
}
