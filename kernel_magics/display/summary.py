"""Summaries of a record as text, for terminals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from compiler_core.records import (
    Compile,
    Failure,
    Frame,
    GraphBreak,
    Partition,
    Problem,
    Record,
    StackLine,
    Symbol,
    costly_and_expected,
    limits,
)
from compiler_core.records.capture import is_of_contexts, library_of
from compiler_core.records.problems import ProblemKind
from compiler_core.records.recompiles import readable
from compiler_core.records.steps import Steps
from compiler_core.records.timings import COMPILED, bytes_text
from compiler_core.tools.questions.problems import break_id
from compiler_core.tools.questions.queries import first_inaccurate, users_first_line
from compiler_core.tools.questions.verdict import line_on
from kernel_magics.display.answers import memory_lines

MAX_VALUES_EXPLAINED = 3
"""How many saved tensors, and how many kernel times, a summary lists."""


@dataclass(frozen=True)
class OutlineLine:
    """One line of the outline, indented by `depth` levels."""

    depth: int
    text: str


def text(record: Record) -> str:
    """Returns the summary for a terminal."""
    return "\n".join("  " * line.depth + line.text for line in outline(record))


def outline(record: Record) -> list[OutlineLine]:
    """Returns the summary as lines: the headline, failures, each frame with its compiles, what holds the memory at its
    peak, then notes."""
    problems, explained = _problems(record), set[str]()
    lines = [line for frame in record.frames for line in _frame_lines(record, frame, problems, explained)]
    memory = [OutlineLine(1, line) for line in memory_lines(record)]
    notes = [OutlineLine(1, f"note: {note}") for note in record.notes]
    top = [OutlineLine(0, headline(record)), *_timing_lines(record), *_failure_lines(record)]
    return [*top, *_truncated(lines), *memory, *_truncated(notes)]


def _timing_lines(record: Record) -> Iterator[OutlineLine]:
    """Lists the verdict on each form that the cell was timed in, and what makes the times doubtful."""
    if record.timings is None or record.verdict is None:
        return
    others = [row.name for row in record.timings.rows[1:] if row.name != COMPILED]
    verdicts = [str(record.verdict), *(line_on(record.timings, name) for name in others), *record.verdict.warnings]
    yield from (OutlineLine(1, text) for text in verdicts)


def _truncated(lines: list[OutlineLine]) -> list[OutlineLine]:
    """Returns the first lines, up to `limits.LINES`, and a line that gives the total if there are more."""
    if len(lines) <= limits.LINES:
        return lines
    return [*lines[: limits.LINES], OutlineLine(1, f"showing the first {limits.LINES:,} of {len(lines):,} lines")]


def operations(compile_: Compile) -> int:
    """Returns the number of operations in the captured graph."""
    nodes = [n for a in compile_.artifacts if a.pane == "captured" and a.graph for n in a.graph.nodes]
    return sum(n.op.startswith("call_") for n in nodes)


def headline(record: Record) -> str:
    """Returns the counts of frames, graphs, problems and kernels, and the time of compiling."""
    failures = [problem for problem in record.problems if problem.kind == "failure"]
    refused = sum(problem.grade == "costly" for problem in failures)
    breaks, more_breaks = costly_and_expected(record.problems, "graph break")
    recompiles, more_recompiles = costly_and_expected(record.problems, "recompile")
    counted = ((len(failures) - refused, "failure"), (refused, "refusal"))
    parts = [f"it raised {record.raised}"] if record.raised else []
    parts += [count_text(count, name) for count, name in counted if count]
    parts += [
        count_text(len([f for f in record.frames if f.compiles]), "frame"),
        count_text(sum(len(c.captured_graphs) for c in record.compiles), "graph"),
        count_text(breaks, "graph break") + more_breaks,
        count_text(recompiles, "recompile") + more_recompiles,
        count_text(sum(len(c.generated_kernels) for c in record.compiles), "kernel"),
    ]
    took = record.compile_ns / 1e9
    return f"Cutaway{' of ' + record.title if record.title else ''}: {', '.join(parts)}; compiled in {took:.2f} s"


_WHAT_FAILED = {
    "bug": "failed in",
    "tool": "a tool is missing for",
    "refusal": "not compiled, by",
    "pass": "graph pass not applied, in",
    "backend": "raised in",
}


def _failures(record: Record) -> list[Failure]:
    """Returns the failures; the same failure at the same line is listed once, however many compiles had it."""
    all_ = [failure for compile_ in record.compiles for failure in compile_.failures]
    return list({(f.stage, f.message, f.filename, f.lineno): f for f in reversed(all_)}.values())[::-1]


def _failure_lines(record: Record) -> Iterator[OutlineLine]:
    failures = _failures(record)
    for failure in failures[: limits.FAILURES]:
        at = f" at {location(record, failure.filename, failure.lineno)}" if failure.lineno else ""
        cause = failure.message.partition("\n")[0]
        word = "REFUSAL" if failure.kind == "refusal" else "FAILURE"
        yield OutlineLine(1, f"{word}{at}: {_WHAT_FAILED[failure.kind]} {failure.stage}: {cause}")
        if text := record.line_text(failure.line):
            yield OutlineLine(2, text)
        if failure.meaning:
            yield OutlineLine(2, failure.meaning)
    if len(failures) > limits.FAILURES:
        yield OutlineLine(1, f"showing the first {limits.FAILURES:,} of {len(failures):,} failures")


def _problems(record: Record) -> dict[tuple[ProblemKind, str], Problem]:
    """Returns the problems by their kind, and by each break, else each compile, that they count."""
    found: dict[tuple[ProblemKind, str], Problem] = {}
    for problem in record.problems:
        for id_ in problem.breaks or problem.compiles:
            found.setdefault((problem.kind, id_), problem)
    return found


def _frame_lines(
    record: Record, frame: Frame, problems: Mapping[tuple[ProblemKind, str], Problem], explained: set[str]
) -> Iterator[OutlineLine]:
    place = f"{frame.title}, {location(record, frame.filename, frame.line)}"
    if library_of(frame.filename) and (line := users_first_line(record, frame)):
        at = location(record, *line)
        place = f"{frame.name}, {at}" if is_of_contexts(frame.filename) else f"{at}, called by {place}"
    if frame.kind == "resume":
        place = f"resumes after {f'the graph break of {frame.resumes}' if frame.resumes else 'a graph break'}: {place}"
    if frame.skipped:
        yield OutlineLine(1, f"{place}: runs as plain Python, {frame.skipped}")
    elif not frame.compiles:
        yield OutlineLine(1, f"{place}: not reached")
    else:
        yield OutlineLine(1, place)
    for compile_ in frame.compiles:
        yield from _compile_lines(record, compile_, problems, explained)


def _compile_lines(
    record: Record, compile_: Compile, problems: Mapping[tuple[ProblemKind, str], Problem], explained: set[str]
) -> Iterator[OutlineLine]:
    if compile_.outcome == "compiled":
        backend = f" by {compile_.backend}" if compile_.backend else ""
        sizes = f"{count_text(operations(compile_), 'operation')}, {count_text(len(compile_.guards), 'guard')}"
        yield OutlineLine(2, f"{compile_.id} compiled{backend} in {compile_.duration_ns / 1e9:.2f} s: {sizes}")
    else:
        yield OutlineLine(2, f"{compile_.id} {compile_.outcome}: {compile_.reason or 'no reason given'}")
    recompile = problems.get(("recompile", compile_.id))
    yield from (
        OutlineLine(line.depth + 2, line.text) for line in _recompile_lines(record, compile_, recompile, explained)
    )
    for break_ in compile_.breaks:
        problem = problems.get(("graph break", break_id(compile_, break_)))
        yield from (OutlineLine(line.depth + 2, line.text) for line in _break_lines(break_, problem, explained))
    slow = problems.get(("slow compile", compile_.id))
    if slow is not None:
        yield OutlineLine(3, f"slow compile: {slow.cause}")
        yield from (OutlineLine(4, text) for text in (slow.advice, slow.checked))
    changed = problems.get(("changed graph", compile_.id))
    if changed is not None:
        first, *nodes = changed.cause.splitlines()
        yield from (OutlineLine(3, f"changed graph: {first}"), *(OutlineLine(4, node) for node in nodes))
    yield from (OutlineLine(3, text) for text in dict.fromkeys(map(_symbol_text, compile_.symbols)))
    if compile_.partition and compile_.partition.values:
        yield OutlineLine(3, saved_text(compile_.partition))
    if compile_.kernels:
        yield OutlineLine(3, _kernels_text(compile_))
    measured = (_times_text(compile_), _accuracy_text(compile_), *_tuning_texts(compile_), *_cuda_graph_texts(compile_))
    yield from (OutlineLine(3, text) for text in measured if text)
    if compile_.steps:
        yield OutlineLine(3, _steps_text(compile_.steps))
    for failure in compile_.failures:
        cause = failure.message.partition("\n")[0]
        yield OutlineLine(3, f"{_WHAT_FAILED[failure.kind]} {failure.stage}, and continued without it: {cause}")


def _symbol_text(symbol: Symbol) -> str:
    name = symbol.name or readable(symbol.source)
    if symbol.became is None:
        return f"symbolic: {name} ({symbol.why})"
    because = f" ({readable(symbol.condition)})" if symbol.condition else ""
    return f"made static: {name} is {readable(symbol.became)}{because}"


def _recompile_lines(
    record: Record, compile_: Compile, problem: Problem | None, explained: set[str]
) -> Iterator[OutlineLine]:
    """Lists the cause of a recompile, and for the first one of a problem the user's line and the advice."""
    cause = compile_.cause
    if cause is None:
        return
    yield OutlineLine(1, f"recompile: {cause.text}")
    yield OutlineLine(2, f"guard that failed: {cause.guard}")
    if problem is None or problem.compiles[0] in explained:
        return
    explained.add(problem.compiles[0])
    line = (record.line_text(problem.line) or "").strip()
    shown = f"line {problem.lineno}: {line}" if line else ""
    texts = (shown, problem.advice, problem.checked if problem.tried else "")
    yield from (OutlineLine(2, text) for text in texts if text)


def _break_lines(break_: GraphBreak, problem: Problem | None, explained: set[str]) -> list[OutlineLine]:
    """Lists a graph break: location and kind, and for the first break of each kind its explanation and remedy."""
    at = break_.place
    lines = [OutlineLine(1, f"graph break{_break_location(at)}: {break_.kind}")]
    if at and at.text.strip():
        lines.append(OutlineLine(2, at.text.strip()))
    is_tried = problem is not None and bool(problem.tried)
    if break_.kind not in explained or is_tried:
        advice = [problem.advice, problem.checked if is_tried else ""] if problem else [break_.hint]
        lines += [OutlineLine(2, line) for text in (break_.explanation, *advice) for line in text.splitlines()]
    explained.add(break_.kind)
    return lines


def _break_location(line: StackLine | None) -> str:
    return f" at line {line.lineno} in {line.function}" if line else ""


def _steps_text(attempts: list[Steps]) -> str:
    counts = [count_text(len(steps.call), "step") for steps in attempts]
    return f"symbolic interpreter: {', restarted: '.join(counts)}"


def saved_text(partition: Partition) -> str:
    """Returns how much is saved for the backward, and how much PyTorch's default partition would save."""
    ours = f"{count_text(partition.saved_count, 'value')}, {bytes_text(partition.saved_bytes)}"
    default = f"{count_text(partition.default_saved_count, 'value')}, {bytes_text(partition.default_saved_bytes)}"
    return f"saved for the backward: {ours} (PyTorch's default partition: {default})"


_LANGUAGE_NAMES = {"cpp": "C++", "triton": "Triton"}


def _kernels_text(compile_: Compile) -> str:
    parts = []
    for graph in ("forward", "backward"):
        kernels = [k for k in compile_.kernels if k.graph == graph]
        generated = [k for k in kernels if k.language != "extern"]
        if kernels:
            languages = "/".join(sorted({_LANGUAGE_NAMES[k.language] for k in generated}))
            counts = [count_text(len(generated), f"{languages} kernel".strip())] if generated else []
            if calls := len(kernels) - len(generated):
                counts.append(count_text(calls, "PyTorch kernel call"))
            name = "step" if compile_.has_whole_step else graph
            parts.append(f"{name} {' and '.join(counts)}")
    return "; ".join(parts)


def _times_text(compile_: Compile) -> str:
    """Returns the total time of the kernels and the slowest ones, if they were timed."""
    timed = sorted((k for k in compile_.kernels if k.time_ns is not None), key=lambda k: -(k.time_ns or 0))
    total = sum(k.time_ns or 0 for k in timed)
    if not total:
        return ""
    slowest = (
        f"{k.name} {_microseconds(k.time_ns or 0)} ({(k.time_ns or 0) / total:.0%})"
        for k in timed[:MAX_VALUES_EXPLAINED]
    )
    return f"kernels take {_microseconds(total)} on {timed[0].timed_on}; the slowest: {', '.join(slowest)}"


def _accuracy_text(compile_: Compile) -> str:
    """Returns the value with the largest error, if values were compared with float64."""
    if not compile_.accuracy:
        return ""
    worst = max(compile_.accuracy, key=lambda each: math.inf if each.error is None else each.error)
    ours, eager = ("not finite" if e is None else f"{e:.1e}" for e in (worst.error, worst.eager))
    count = count_text(len(compile_.accuracy), "value")
    node = worst.node.rpartition("#")[2]
    text = f"{count} compared with float64, on random inputs; the largest error: {node} {ours} (eager PyTorch: {eager})"
    first = first_inaccurate(compile_)
    if first is None:
        return text
    line = f" of line {first.lines[0].rpartition('#')[2]}" if first.lines else ""
    why = "of its precision: eager PyTorch has it, too" if first.is_eagers else "of the kernel"
    return f"{text}; the first large error: {first.node.rpartition('#')[2]}{line}, {why}"


def _tuning_texts(compile_: Compile) -> Iterator[str]:
    for tuning in compile_.tunings:
        if tuning.reason:
            yield f"no kernel tuned in the {tuning.graph}: {tuning.reason}"
        for best in (each for each in tuning.tried if each.chosen):
            own = [each for each in tuning.tried if each.kernel == best.kernel]
            took = f"{_microseconds(best.time_ns or 0)}, untuned {_microseconds(own[0].time_ns or 0)}"
            yield f"tuned {best.kernel}: {best.how}, {took}; {count_text(len(own), 'configuration')} tried"


def _cuda_graph_texts(compile_: Compile) -> Iterator[str]:
    for graph in compile_.cuda_graphs:
        if graph.reason:
            yield f"no CUDA graph of the {graph.graph}: {graph.reason}"


def _microseconds(ns: float) -> str:
    return f"{ns / 1000:,.1f} us"


def location(record: Record, filename: str, line: int) -> str:
    """Returns a line of a file or cell, by the name that the user knows."""
    return f"line {line}" if filename.startswith("<") else f"{record.label(filename)} line {line}"


def count_text(number: int, noun: str) -> str:
    """Returns a number and a noun: ``1 graph``, ``2 graphs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
