"""The facts that a run or a compile has at each of the user's lines; `compare` aligns those of two runs."""

from __future__ import annotations

import re
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from compiler_core.records import Compile, Event, Kernel, KernelResources, Record, Stage, problem_count
from compiler_core.records.differences import Aspect
from compiler_core.records.timings import time_text
from compiler_core.records.user_lines import UNKNOWN_LINE, ItemLines, LineRef

_ADDRESS = re.compile(r"(_id\(.*?, |\bid\(.*?\) == )\d+|( at )0x[0-9a-f]+")
"""The address of an object, which has a meaning in its own process only."""


@dataclass(frozen=True, slots=True)
class LineFact:
    """A fact about a line, as text: a guard, an operation, a kernel, a time."""

    line: LineRef
    text: str
    body: tuple[str, ...] = ()
    """Further lines that are compared, and shown where they differ: a kernel's code."""
    ns: float | None = None
    """The nanoseconds if the fact is a time."""


class ComparedRun(ItemLines):
    """One side of a comparison: a record or a compile, with the lines of its items.

    Attributes:
        in_detail: whether both sides have the same engine, so that names and texts specific to an engine are compared
            too.
        same_process: whether both sides are known to be from one process, so that addresses of objects can be compared.
    """

    def __init__(self, source: Record | Compile) -> None:
        super().__init__(source)
        self.title = source.id if isinstance(source, Compile) else source.title or source.engine
        self.engine = self.record.engine if self.record else "core"
        self.in_detail = False
        self.same_process = True
        self._kernel_texts = {a.id: a.text for c in self.compiles for a in c.artifacts if a.pane == "kernel"}

    def kernel_text(self, kernel: Kernel) -> str:
        """Returns the text of a generated kernel; empty for one of PyTorch's own."""
        return self._kernel_texts.get((kernel.item or "").rpartition("#")[0], "")


def operation(target: str) -> str:
    """Returns the common name of an operation: ``cos`` for ``aten.cos.default`` and for ``torch.Tensor.cos``."""
    parts = target.removesuffix(".default").split(".")
    name = parts[1] if parts[0] in ("aten", "prims") and len(parts) > 1 else parts[-1]
    return name.strip("_")


def stage_ns(events: Iterable[Event]) -> Counter[str]:
    """Returns the nanoseconds of each stage.

    The time of a nested step counts for its own stage only.  Gaps between steps and the stage ``run`` do not count.
    """
    spent: Counter[str] = Counter()
    ended = [(e.start, e.end, e.stage) for e in events if e.end is not None and e.stage != "run"]
    running: list[tuple[int, str]] = []
    at = 0
    for start, end, stage in sorted(ended, key=lambda e: (e[0], -e[1])):
        at = _close(running, start, at, spent)
        if running:
            spent[running[-1][1]] += max(0, start - at)
        at = max(at, start)
        running.append((end, stage))
    _close(running, None, at, spent)
    return spent


def _close(running: list[tuple[int, str]], until: int | None, at: int, spent: Counter[str]) -> int:
    """Removes the steps that ended by `until` (None: all); returns the time up to which everything is counted."""
    while running and (until is None or running[-1][0] <= until):
        end, stage = running.pop()
        spent[stage] += max(0, end - at)
        at = max(at, end)
    return at


def _breaks(side: ComparedRun) -> Iterator[LineFact]:
    for compile_ in side.compiles:
        for each in compile_.breaks:
            at = each.place
            yield LineFact((at.filename, at.lineno) if at else UNKNOWN_LINE, each.kind)


def _guards(side: ComparedRun) -> Iterator[LineFact]:
    settings: dict[str, None] = {}
    for compile_ in side.compiles:
        for guard in compile_.guards:
            if guard.kind == "GLOBAL_STATE":
                settings |= dict.fromkeys(guard.expected.split(", "))
                continue
            code = guard.code if side.same_process else _ADDRESS.sub(r"\1\2...", guard.code)
            yield LineFact(side.line_of(guard.line), code)
    yield from (LineFact(UNKNOWN_LINE, setting) for setting in settings)


def _operations(pane: str) -> Callable[[ComparedRun], Iterator[LineFact]]:
    def facts(side: ComparedRun) -> Iterator[LineFact]:
        for artifact in (a for c in side.compiles for a in c.artifacts if a.pane == pane):
            for node in artifact.graph.nodes if artifact.graph else ():
                if node.op.startswith("call_"):
                    sizes = "" if node.shape is None else f" {node.dtype}[{', '.join(map(str, node.shape))}]"
                    text = operation(node.target) + (sizes if side.in_detail else "")
                    yield LineFact(side.line_of(artifact.item(node.key)), text)

    return facts


def _saved(side: ComparedRun) -> Iterator[LineFact]:
    for compile_ in side.compiles:
        for value in compile_.partition.values if compile_.partition else ():
            if value.decision == "saved":
                yield LineFact(side.line_of(value.node), f"{value.bytes:,} bytes")


def _kernels(side: ComparedRun) -> Iterator[LineFact]:
    for kernel, lines in side.kernel_lines():
        text = f"{kernel.graph} {kernel.language}"
        body: tuple[str, ...] = ()
        if side.in_detail:
            text += f" {kernel.name}"
            body = tuple(side.kernel_text(kernel).split("\n"))
        if len(lines) > 1:
            text += f" over lines {', '.join(str(number) for _, number in lines)}"
        yield LineFact(lines[0], text, body)


def _kernel_times(side: ComparedRun) -> Iterator[LineFact]:
    """The time of a kernel is divided equally among its lines."""
    for kernel, lines in side.kernel_lines():
        for line in lines if kernel.time_ns is not None else ():
            share = (kernel.time_ns or 0) / len(lines)
            yield LineFact(line, f"{kernel.graph} {kernel.name} {time_text(share / 1e9)}", ns=share)


def _compile_times(side: ComparedRun) -> Iterator[LineFact]:
    """A phase works on a whole graph, so its time belongs to the first line of the compiled function."""
    spent: dict[LineRef, Counter[str]] = {}
    for compile_ in side.compiles:
        spent.setdefault(side.first_line(compile_), Counter()).update(stage_ns(compile_.events))
    for line, stages in spent.items():
        yield from (LineFact(line, f"{stage} {time_text(ns / 1e9)}", ns=ns) for stage, ns in stages.items() if ns)


FACTS: dict[Aspect, Callable[[ComparedRun], Iterator[LineFact]]] = {
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
"""The facts of each aspect."""

TIMES = frozenset[Aspect]({"kernel time", "compile time"})


def _kernel_microseconds(side: ComparedRun) -> float | None:
    """Returns the sum over one run of each kernel; None unless all were timed."""
    times = [k.time_ns for c in side.compiles for k in c.kernels]
    known = [time for time in times if time is not None]
    return sum(known) / 1e3 if known and len(known) == len(times) else None


def _spent(side: ComparedRun) -> Counter[str]:
    return sum((stage_ns(c.events) for c in side.compiles), Counter())


def _stage_seconds(stage: Stage) -> Callable[[ComparedRun], float | None]:
    return lambda side: _spent(side)[stage] / 1e9 or None


_CACHE_HITS = ("autograd_cache_hit", "fx_graph_cache_hit")
"""Stock's events for a graph that was taken from its cache on disk."""
_COMPILER = "compile_file"
"""Stock's event for a run of the C++ compiler, which also a graph from the cache may need."""


def from_cache(compile_: Compile) -> bool | None:
    """Whether kernels were taken from a cache on disk and not built; None if there was nothing to build."""
    if any(e.name == _COMPILER for e in compile_.events):
        return False
    is_ours = any(each.cache == "graph cache" and each.outcome == "hit" for each in compile_.cache_lookups)
    if is_ours or any(e.name in _CACHE_HITS for e in compile_.events):
        return True
    return False if any(e.stage == "build" for e in compile_.events) else None


def _resources(side: ComparedRun) -> list[KernelResources]:
    """Returns what kernels use on the target of a run; empty without one."""
    return [each for c in side.compiles for each in c.resources]


def _graph_breaks(side: ComparedRun) -> float:
    """Returns how many there are, as problems are counted: one for each line and kind."""
    if isinstance(side.source, Record):
        return problem_count(side.source.problems, "graph break")
    return len({(fact.line, fact.text) for fact in _breaks(side)})


COUNTS: dict[str, Callable[[ComparedRun], float | None]] = {
    "compiles": lambda side: sum(c.outcome == "compiled" for c in side.compiles),
    "graphs": lambda side: sum(len(c.captured_graphs) for c in side.compiles),
    "graph breaks": _graph_breaks,
    "recompiles": lambda side: sum(c.cause is not None for c in side.compiles),
    "guards": lambda side: sum(len(c.guards) for c in side.compiles),
    "captured operations": lambda side: sum(1 for _ in _operations("captured")(side)),
    "saved bytes": lambda side: sum(c.partition.saved_bytes for c in side.compiles if c.partition),
    "kernels": lambda side: sum(len(c.generated_kernels) for c in side.compiles),
    "calls of PyTorch's kernels": lambda side: sum(len(c.kernels) - len(c.generated_kernels) for c in side.compiles),
    "kernel microseconds": _kernel_microseconds,
    "most registers of a kernel": lambda side: max((r.registers for r in _resources(side)), default=None),
    "bytes spilled": lambda side: sum(r.spilled_bytes for r in _resources(side)) if _resources(side) else None,
    "bytes of shared memory": lambda side: sum(r.shared_bytes for r in _resources(side)) if _resources(side) else None,
    "compile seconds": lambda side: sum(_spent(side).values()) / 1e9,
    **{f"of these in {stage}": _stage_seconds(stage) for stage in typing.get_args(Stage) if stage != "run"},
}
