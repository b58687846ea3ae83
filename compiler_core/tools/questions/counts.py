"""Counts the graphs, graph breaks, recompiles and failures of a record, with the line and the reason of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from compiler_core.records import Problem, Record, problem_count, to_plain
from compiler_core.records.problems import expected_text
from compiler_core.records.timings import plural


@dataclass(slots=True)
class CountedProblem:
    """A graph break, a recompile or a failure, at the user's line."""

    kind: str
    """The kind of graph break; what changed, of a recompile; what failed."""
    file: str
    line: int
    """0 if it belongs to no line."""
    text: str
    """The text of the line."""
    reason: str
    hint: str
    grade: str
    """``expected``, ``costly`` or ``blocking``."""
    count: int = 1
    problem: str = ""
    """``graph break``, ``recompile``, ``failure``, ``slow compile``, ``changed graph`` ..."""
    checked: str = ""
    """How the hint was checked."""

    def __str__(self) -> str:
        at = f"{self.file}:{self.line}: " if self.line else ""
        rows = [f"{at}{self.kind}" + (f" ({self.count} times)" if self.count > 1 else "")]
        rows += [f"    {text}".replace("\n", "\n    ") for text in (self.text, self.reason.strip()) if text]
        if self.hint:
            rows.append(f"    hint: {self.hint}".replace("\n", "\n    "))
        if self.checked:
            rows.append(f"    {self.checked}")
        return "\n".join(rows)


@dataclass(slots=True)
class Counts:
    """What one record has, as numbers and lists; `as_json` returns it for ``json.dumps``."""

    title: str
    engine: str
    frames: int
    graphs: int
    graph_breaks: int
    """One for each line and kind, however many compiles have it."""
    recompiles: int
    failures: int
    plain_python: int
    """Frames that run as plain Python."""
    kernels: int
    compile_seconds: float
    breaks: list[CountedProblem] = field(default_factory=list)
    recompiled: list[CountedProblem] = field(default_factory=list)
    failed: list[CountedProblem] = field(default_factory=list)
    others: list[CountedProblem] = field(default_factory=list)
    """Functions that run as plain Python, slow compiles, graphs that a pass or a backend changed, no CUDA graph."""
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Returns dicts, lists, texts and numbers only."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    def line(self) -> str:
        """Returns the numbers as one line."""
        expected_breaks = sum(each.grade == "expected" for each in self.breaks)
        expected_recompiles = sum(each.count for each in self.recompiled if each.grade == "expected")
        found = [
            (self.graphs, 0, "graph"), (self.graph_breaks, expected_breaks, "graph break"),
            (self.recompiles, expected_recompiles, "recompile"), (self.failures, 0, "failure"),
            (self.kernels, 0, "kernel"),
        ]  # fmt: skip
        numbers = [
            f"{number - expected:,} {plural(name, number - expected)}{expected_text(number, expected)}"
            for number, expected, name in found
        ]
        return f"{', '.join(numbers)}; compiled in {self.compile_seconds:.2f} s"


_LISTED = ("graph break", "recompile", "failure")
"""The kinds of problems that have their lists; `Counts.others` has the rest."""


def count(record: Record) -> Counts:
    """Returns the counts of a finished record."""
    breaks, recompiled, failed = (
        [_counted(record, each) for each in record.problems if each.kind == kind] for kind in _LISTED
    )
    others = [_counted(record, each) for each in record.problems if each.kind not in _LISTED]
    compiles = record.compiles
    return Counts(
        title=record.title,
        engine=record.engine,
        frames=sum(bool(frame.compiles) for frame in record.frames),
        graphs=sum(len(each.captured_graphs) for each in compiles),
        graph_breaks=problem_count(record.problems, "graph break"),
        recompiles=problem_count(record.problems, "recompile"),
        failures=problem_count(record.problems, "failure"),
        plain_python=problem_count(record.problems, "plain Python"),
        kernels=sum(len(each.generated_kernels) for each in compiles),
        compile_seconds=record.compile_ns / 1e9,
        breaks=breaks,
        recompiled=recompiled,
        failed=failed,
        others=others,
        notes=list(record.notes),
    )


def _counted(record: Record, problem: Problem) -> CountedProblem:
    kind = problem.title.partition(": ")[2] or problem.title
    text = record.line_text(problem.line)
    file = record.labels.get(problem.filename) or problem.filename
    return CountedProblem(
        kind, file, problem.lineno, text, problem.cause, problem.advice, problem.grade, problem.count, problem.kind,
        problem.checked,
    )  # fmt: skip
