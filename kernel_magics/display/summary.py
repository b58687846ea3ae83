"""A record in words: what a terminal prints, and what a notebook shows where it may run no script."""

from __future__ import annotations

import html as escaping
import math
from collections.abc import Iterator
from dataclasses import dataclass

from compiler_core.records import Compile, Failure, Frame, GraphBreak, Partition, Record, StackLine, Symbol, limits
from compiler_core.records.steps import Steps

LARGEST = 3
"""So many values kept for the backward are explained."""


@dataclass(frozen=True)
class Line:
    """A sentence, `depth` levels into the outline."""

    depth: int
    text: str


def text(record: Record) -> str:
    """The summary for a terminal."""
    return "\n".join("  " * line.depth + line.text for line in outline(record))


def html(record: Record) -> str:
    """The same as static HTML; every word of the record is escaped."""
    head, *rest = outline(record)
    items = "".join(
        f'<div style="margin-left:{2 * (line.depth - 1)}em">{escaping.escape(line.text)}</div>' for line in rest
    )
    return f'<div style="font-family:monospace"><strong>{escaping.escape(head.text)}</strong>{items}</div>'


def explanation(record: Record) -> str:
    """The short answer: what failed, graphs, operations, breaks with reasons and lines, guards, recompiles, what is
    kept and why."""
    compiles = record.compiles
    breaks = [b for c in compiles for b in c.breaks]
    head = [Line(0, _headline(record)), *_failed(record)]
    lines = [Line(1, f"graph {c.id}: {_count(operations(c), 'operation')}") for c in compiles if graphs(c)]
    explained: set[str] = set()
    for break_ in breaks:
        lines += _break(break_, explained)
    for compile_ in compiles:
        lines += [Line(1, f"guard {compile_.id}: {guard.code}") for guard in compile_.guards]
        lines += _recompile(compile_)
        lines += _largest_kept(compile_)
    return "\n".join("  " * line.depth + line.text for line in [*head, *_first(lines)])


def _largest_kept(compile_: Compile) -> list[Line]:
    """The largest values kept for the backward, why, and what dropping them would cost."""
    values = compile_.partition.values if compile_.partition else []
    saved = sorted((v for v in values if v.decision == "saved"), key=lambda v: -v.bytes)
    lines = [Line(1, f"{_saved(compile_.partition)}; the largest:")] if compile_.partition and saved else []
    for value in saved[:LARGEST]:
        drop = "" if value.drop_ns is None else f"; dropping it would cost {value.drop_ns / 1000:.4g} us"
        lines.append(Line(2, f"{value.node.rpartition('#')[2]}: {value.reason}{drop}"))
    return lines


def outline(record: Record) -> list[Line]:
    """The record in sentences; the first says it all, then what failed, the rest frame by frame."""
    explained: set[str] = set()
    lines = [line for frame in record.frames for line in _frame(record, frame, explained)]
    notes = [Line(1, f"note: {note}") for note in record.notes]
    return [Line(0, _headline(record)), *_failed(record), *_first(lines), *_first(notes)]


def _first(lines: list[Line]) -> list[Line]:
    """As many as a summary has, and how many there are."""
    if len(lines) <= limits.LINES:
        return lines
    return [*lines[: limits.LINES], Line(1, f"showing the first {limits.LINES:,} of {len(lines):,} lines")]


def graphs(compile_: Compile) -> int:
    """How many graphs the compile captured: one, or none where it found nothing to compute."""
    return sum(a.pane == "captured" for a in compile_.artifacts) if operations(compile_) else 0


def operations(compile_: Compile) -> int:
    """Operations in the captured graph."""
    nodes = [n for a in compile_.artifacts if a.pane == "captured" and a.graph for n in a.graph.nodes]
    return sum(n.op.startswith("call_") for n in nodes)


def seconds(compile_: Compile) -> float:
    """From the start of the first step to the end of the last, without what ran in between."""
    steps = [(e.start, e.end) for e in compile_.events if e.end is not None and e.stage != "run"]
    total, until = 0, 0
    for start, end in sorted(steps):
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total / 1e9


def _headline(record: Record) -> str:
    compiles = [c for c in record.compiles if c.outcome == "compiled"]
    failed = len(_failures(record))
    parts = [_count(failed, "failure")] if failed else []
    parts += [
        _count(len([f for f in record.frames if f.compiles]), "frame"),
        _count(sum(map(graphs, compiles)), "graph"),
        _count(len(record.break_places), "graph break"),
        _count(sum(c.cause is not None for c in compiles), "recompile"),
        _count(sum(k.language != "extern" for c in compiles for k in c.kernels), "kernel"),
    ]
    took = sum(map(seconds, record.compiles))
    return f"Cutaway{' of ' + record.title if record.title else ''}: {', '.join(parts)}; compiled in {took:.2f} s"


_WHAT_FAILED = {"bug": "failed in", "tool": "a tool is missing for", "refusal": "not compiled, by"}


def _failures(record: Record) -> list[Failure]:
    """What failed, each cause once for each of the user's lines, however many compiles met it."""
    all_ = [failure for compile_ in record.compiles for failure in compile_.failures]
    return list({(f.stage, f.message, f.filename, f.lineno): f for f in reversed(all_)}.values())[::-1]


def _failed(record: Record) -> Iterator[Line]:
    failures = _failures(record)
    for failure in failures[: limits.FAILURES]:
        at = f" at {_place(record, failure.filename, failure.lineno)}" if failure.lineno else ""
        cause = failure.message.partition("\n")[0]
        yield Line(1, f"FAILURE{at}: {_WHAT_FAILED[failure.kind]} {failure.stage}: {cause}")
        if failure.line is not None:
            yield Line(2, record.text(failure.line).strip())
        if failure.meaning:
            yield Line(2, failure.meaning)
    if len(failures) > limits.FAILURES:
        yield Line(1, f"showing the first {limits.FAILURES:,} of {len(failures):,} failures")


def _frame(record: Record, frame: Frame, explained: set[str]) -> Iterator[Line]:
    place = f"{frame.name}, {_place(record, frame.filename, frame.line)}"
    if frame.kind == "resume":
        place = f"resumes after {f'the graph break of {frame.resumes}' if frame.resumes else 'a graph break'}: {place}"
    if frame.skipped:
        yield Line(1, f"{place}: runs as plain Python, {frame.skipped}")
    elif not frame.compiles:
        yield Line(1, f"{place}: not reached")
    else:
        yield Line(1, place)
    for compile_ in frame.compiles:
        yield from _compile(compile_, explained)


def _compile(compile_: Compile, explained: set[str]) -> Iterator[Line]:
    if compile_.outcome == "compiled":
        backend = f" by {compile_.backend}" if compile_.backend else ""
        sizes = f"{_count(operations(compile_), 'operation')}, {_count(len(compile_.guards), 'guard')}"
        yield Line(2, f"{compile_.id} compiled{backend} in {seconds(compile_):.2f} s: {sizes}")
    else:
        yield Line(2, f"{compile_.id} {compile_.outcome}: {compile_.reason or 'no reason given'}")
    yield from (Line(3, line.text) for line in _recompile(compile_))
    for break_ in compile_.breaks:
        yield from (Line(line.depth + 2, line.text) for line in _break(break_, explained))
    for symbol in compile_.symbols:
        yield Line(3, _symbol(symbol))
    if compile_.partition and compile_.partition.values:
        yield Line(3, _saved(compile_.partition))
    if compile_.kernels:
        yield Line(3, _kernels(compile_))
    measured = (_times(compile_), _least_exact(compile_), *_tunings(compile_), *_cuda_graphs(compile_))
    yield from (Line(3, text) for text in measured if text)
    if compile_.steps:
        yield Line(3, _steps(compile_.steps))
    for failure in compile_.failures:
        cause = failure.message.partition("\n")[0]
        yield Line(3, f"{_WHAT_FAILED[failure.kind]} {failure.stage}, and went on without it: {cause}")


def _symbol(symbol: Symbol) -> str:
    if symbol.became is None:
        return f"symbolic: {symbol.source} ({symbol.why})"
    return f"made static: {symbol.source} is {symbol.became} ({symbol.condition})"


def _recompile(compile_: Compile) -> list[Line]:
    cause = compile_.cause
    if cause is None:
        return []
    why = f"recompile of {cause.of}: {cause.source} was expected to be {cause.expected} and is {cause.got}"
    return [Line(1, why), Line(2, f"guard that failed: {cause.guard}")]


def _break(break_: GraphBreak, explained: set[str]) -> list[Line]:
    """Where and why; what the kind means and what to do about it only where it is met first."""
    at = break_.stack[-1] if break_.stack else None
    lines = [Line(1, f"graph break{_at(at)}: {break_.kind}")]
    if at and at.text.strip():
        lines.append(Line(2, at.text.strip()))
    if break_.kind not in explained:
        lines += [Line(2, line) for text in (break_.explanation, break_.hint) for line in text.splitlines()]
    explained.add(break_.kind)
    return lines


def _at(line: StackLine | None) -> str:
    return f" at line {line.lineno} in {line.function}" if line else ""


def _steps(attempts: list[Steps]) -> str:
    counts = [_count(len(steps.call), "step") for steps in attempts]
    return f"symbolic interpreter: {', then again '.join(counts)}"


def _saved(partition: Partition) -> str:
    ours = f"{_count(partition.saved_count, 'value')}, {_bytes(partition.saved_bytes)}"
    default = f"{_count(partition.default_saved_count, 'value')}, {_bytes(partition.default_saved_bytes)}"
    return f"saved for the backward: {ours} (the default way: {default})"


def _kernels(compile_: Compile) -> str:
    parts = []
    for graph in ("forward", "backward"):
        kernels = [k for k in compile_.kernels if k.graph == graph]
        made = [k for k in kernels if k.language != "extern"]
        if kernels:
            languages = "/".join(sorted({{"cpp": "C++", "triton": "Triton"}[k.language] for k in made}))
            counts = [_count(len(made), f"{languages} kernel".strip())] if made else []
            if calls := len(kernels) - len(made):
                counts.append(f"{_count(calls, 'call')} of PyTorch's")
            parts.append(f"{graph} {' and '.join(counts)}")
    return "; ".join(parts)


def _times(compile_: Compile) -> str:
    """The kernels that take longest, where they were timed."""
    timed = sorted((k for k in compile_.kernels if k.time_ns is not None), key=lambda k: -(k.time_ns or 0))
    total = sum(k.time_ns or 0 for k in timed)
    if not total:
        return ""
    dearest = (f"{k.name} {_us(k.time_ns or 0)} ({(k.time_ns or 0) / total:.0%})" for k in timed[:LARGEST])
    return f"kernels take {_us(total)} on {timed[0].timed_on}; the dearest: {', '.join(dearest)}"


def _least_exact(compile_: Compile) -> str:
    """The value that lies furthest from float64, where values were compared."""
    if not compile_.accuracy:
        return ""
    worst = max(compile_.accuracy, key=lambda each: math.inf if each.error is None else each.error)
    ours, eager = ("no number" if e is None else f"{e:.1e}" for e in (worst.error, worst.eager))
    count = _count(len(compile_.accuracy), "value")
    return f"beside float64, {count}; the least exact: {worst.node.rpartition('#')[2]} {ours} (eager PyTorch: {eager})"


def _tunings(compile_: Compile) -> Iterator[str]:
    for tuning in compile_.tunings:
        if tuning.reason:
            yield f"nothing tuned in the {tuning.graph}: {tuning.reason}"
        for best in (each for each in tuning.tried if each.chosen):
            own = [each for each in tuning.tried if each.kernel == best.kernel]
            took = f"{_us(best.time_ns or 0)}, the usual way {_us(own[0].time_ns or 0)}"
            yield f"tuned {best.kernel}: {best.how}, {took}; {_count(len(own), 'way')} tried"


def _cuda_graphs(compile_: Compile) -> Iterator[str]:
    for graph in compile_.cuda_graphs:
        if graph.reason:
            yield f"no CUDA graph of the {graph.graph}: {graph.reason}"


def _us(ns: float) -> str:
    return f"{ns / 1000:,.1f} us"


def _place(record: Record, filename: str, line: int) -> str:
    """A line of a file or cell, by the name that the reader knows it by."""
    return f"line {line}" if filename.startswith("<") else f"{record.label(filename)} line {line}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _bytes(number: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.4g} {unit}"
        number /= 1024
    return f"{number:.4g} GiB"
