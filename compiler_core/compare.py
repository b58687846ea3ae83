"""Two runs side by side, aligned by the user's lines: plain data.

    compare(record, record)     two engines; before and after an edit of the code; two ranks of a job
    compare(compile, compile)   a compile and its recompile

For each line: what stands there on one side, on the other, and whether that is the same, added, removed or changed.
Where the code was edited, lines that stayed are found again by their text.  It takes time linear in the records, and in
the number of lines of each file times its edits.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from compiler_core.differences import Aspect, Comparison, Difference, State, Total
from compiler_core.record import Compile, ItemId, Record

BEFORE = " (before)"
"""Stands after the name of a file whose line is gone on the second side."""
Place = tuple[str, int]
"""A file and a line of it, as the second side counts it; ("", 0) where no line is known."""


def compare(before: Record | Compile, after: Record | Compile) -> Comparison:
    """Both sides are records, or compiles that belong to records."""
    one, other = _Side(before), _Side(after)
    if one.title == other.title:
        one.title, other.title = f"{one.title} (before)", f"{other.title} (after)"
    moved = _moves(one, other)
    lines = []
    for aspect, found in _ASPECTS.items():
        left = _by_place(found(one), lambda place: moved.get(place, place))
        right = _by_place(found(other), lambda place: place)
        for place in sorted({*left, *right}):
            text = other.text(place) or one.text((place[0].removesuffix(BEFORE), place[1]))
            lines.append(_difference(aspect, place, text, left.get(place, []), right.get(place, [])))
    return Comparison(one.title, other.title, _totals(one, other), lines)


def _difference(aspect: Aspect, place: Place, text: str, before: list[str], after: list[str]) -> Difference:
    same = Counter(before) == Counter(after)
    state: State = "same" if same else "added" if not before else "removed" if not after else "changed"
    return Difference(aspect, *place, text, state, before, after)


def _by_place(found: Iterable[tuple[Place, str]], moved: Callable[[Place], Place]) -> dict[Place, list[str]]:
    places: dict[Place, list[str]] = {}
    for place, text in found:
        places.setdefault(moved(place), []).append(text)
    return places


@dataclass
class _Side:
    """One record or compile, and where its items stand."""

    of: Record | Compile
    compiles: list[Compile] = field(init=False)
    record: Record | None = field(init=False)
    title: str = field(init=False)

    def __post_init__(self) -> None:
        self.record = self.of if isinstance(self.of, Record) else self.of._record
        self.compiles = self.of.compiles if isinstance(self.of, Record) else [self.of]
        self.title = self.of.id if isinstance(self.of, Compile) else self.of.title or self.of.engine
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

    def file_lines(self) -> dict[str, list[tuple[int, str]]]:
        files: dict[str, list[tuple[int, str]]] = {}
        for (file, number), text in self._texts.items():
            files.setdefault(file, []).append((number, text))
        return files

    def text(self, place: Place) -> str:
        return self._texts.get(place, "")

    def place(self, item: ItemId | None) -> Place:
        """The user's line that an item came from, the first if there are several."""
        path = []
        while item is not None and item not in self._places:
            path.append(item)
            artifact, _, key = item.partition("#")
            if artifact in self._files:
                self._places[item] = (self._files[artifact], int(key) if key.isdigit() else 0)
                break
            self._places[item] = ("", 0)  # also where edges go round in circles
            item = next(iter(self._above.get(item, ())), None)
        found = self._places.get(path[-1] if item is None and path else item or "", ("", 0))
        for each in path:
            self._places[each] = found
        return found


def _breaks(side: _Side) -> Iterator[tuple[Place, str]]:
    for compile_ in side.compiles:
        for each in compile_.breaks:
            at = each.stack[-1] if each.stack else None
            yield ((at.filename, at.lineno) if at else ("", 0)), each.kind


def _guards(side: _Side) -> Iterator[tuple[Place, str]]:
    for compile_ in side.compiles:
        for guard in compile_.guards:
            yield side.place(guard.line), guard.code


def _operations(pane: str) -> Callable[[_Side], Iterator[tuple[Place, str]]]:
    def found(side: _Side) -> Iterator[tuple[Place, str]]:
        for compile_ in side.compiles:
            for artifact in compile_.artifacts:
                if artifact.pane == pane and artifact.graph:
                    for node in artifact.graph.nodes:
                        if node.op.startswith("call_"):
                            yield side.place(artifact.item(node.key)), operation(node.target)

    return found


def _saved(side: _Side) -> Iterator[tuple[Place, str]]:
    for compile_ in side.compiles:
        for value in compile_.partition.values if compile_.partition else ():
            if value.decision == "saved":
                yield side.place(value.node), f"{value.bytes:,} bytes"


def _kernels(side: _Side) -> Iterator[tuple[Place, str]]:
    for compile_ in side.compiles:
        nodes = {fusion.kernel: fusion.nodes for fusion in compile_.fusions}
        for kernel in compile_.kernels:
            places = [side.place(node) for node in nodes.get(kernel.key) or nodes.get(kernel.name) or ()]
            lines = sorted({line for _, line in places if line})
            over = f" over lines {', '.join(map(str, lines))}" if len(lines) > 1 else ""
            place = min((p for p in places if p[1]), default=side.place(kernel.item))
            yield place, f"{kernel.graph} {kernel.language}{over}"


_ASPECTS: dict[Aspect, Callable[[_Side], Iterator[tuple[Place, str]]]] = {
    "graph break": _breaks,
    "guard": _guards,
    "captured": _operations("captured"),
    "forward": _operations("forward"),
    "backward": _operations("backward"),
    "saved": _saved,
    "kernel": _kernels,
}


def operation(target: str) -> str:
    """What an operation is called in every dialect: ``aten.cos.default`` and ``torch.Tensor.cos`` are ``cos``."""
    parts = target.split(".")
    name = parts[1] if parts[0] in ("aten", "prims") and len(parts) > 1 else parts[-1]
    return name.strip("_")


def _moves(one: _Side, other: _Side) -> dict[Place, Place]:
    """Where the lines of one side's files stand in the other's, where the text changed around them.  A line that was
    edited is the line in its place; one that is gone belongs to the file as it was."""
    moved: dict[Place, Place] = {}
    after = other.file_lines()
    for file, before in one.file_lines().items():
        if file in after and before != after[file]:
            for old, new in _counterparts(before, after[file]):
                moved[file, old] = (file, new) if new else (file + BEFORE, old)
    return moved


def _counterparts(before: Sequence[tuple[int, str]], after: Sequence[tuple[int, str]]) -> Iterator[tuple[int, int]]:
    """Each line's number before and after, 0 for one that is gone."""
    matcher = difflib.SequenceMatcher(None, [t for _, t in before], [t for _, t in after], autojunk=False)
    for _, first, last, there, end in matcher.get_opcodes():
        for i in range(first, last):
            now = i + end - last  # of lines that changed together, the last ones are paired
            yield before[i][0], after[now][0] if now >= there else 0


def _totals(one: _Side, other: _Side) -> list[Total]:
    return [Total(name, count(one), count(other)) for name, count in _COUNTS.items()]


def _graphs(side: _Side) -> float:
    captured = [a.graph for c in side.compiles for a in c.artifacts if a.pane == "captured" and a.graph]
    return sum(any(node.op.startswith("call_") for node in graph.nodes) for graph in captured)


def _seconds(side: _Side) -> float:
    """Compile time: what the steps of each compile cover, without what ran in between."""
    total = 0
    for compile_ in side.compiles:
        until = 0
        for start, end in sorted((e.start, e.end) for e in compile_.events if e.end is not None and e.stage != "run"):
            total += max(0, end - max(start, until))
            until = max(until, end)
    return total / 1e9


_COUNTS: dict[str, Callable[[_Side], float]] = {
    "compiles": lambda side: sum(c.outcome == "compiled" for c in side.compiles),
    "graphs": _graphs,
    "graph breaks": lambda side: len({place for place, _ in _breaks(side)}),
    "recompiles": lambda side: sum(c.cause is not None for c in side.compiles),
    "guards": lambda side: sum(len(c.guards) for c in side.compiles),
    "captured operations": lambda side: sum(1 for _ in _operations("captured")(side)),
    "saved bytes": lambda side: sum(c.partition.saved_bytes for c in side.compiles if c.partition),
    "kernels": lambda side: sum(k.language != "extern" for c in side.compiles for k in c.kernels),
    "calls of PyTorch's kernels": lambda side: sum(k.language == "extern" for c in side.compiles for k in c.kernels),
    "compile seconds": _seconds,
}
