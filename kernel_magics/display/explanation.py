"""The text of ``%explain``: a few lines that say what was compiled, which problems there are, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from compiler_core.records import Problem, Record
from compiler_core.records.timings import bytes_text
from compiler_core.tools.questions.queries import users_name
from kernel_magics.display.summary import OutlineLine, count_text, headline, location, saved_text

MAX_PROBLEMS = 5
"""How many problems are listed."""
MAX_SAVED = 3
"""How many saved tensors are listed."""


def explanation(record: Record) -> str:
    """Returns the text: headline, the worst problems with what to do, guards, the largest saved tensors, notes."""
    notes = [OutlineLine(1, f"note: {note}") for note in record.notes]
    found = [*_problem_lines(record), *_guard_lines(record), *_saved_lines(record)]
    lines = [OutlineLine(0, headline(record)), *found, *notes]
    return "\n".join("  " * line.depth + line.text for line in lines)


def _problem_lines(record: Record) -> Iterator[OutlineLine]:
    shown: set[str] = set()
    for problem in record.problems[:MAX_PROBLEMS]:
        yield OutlineLine(1, f"{problem.grade}: {problem.title}{_place(record, problem)}. {problem.cost}".rstrip())
        lines = problem.cause.splitlines()
        if problem.advice:
            # further lines are other remedies, and links, which the explorer shows
            lines.append(f"What to do: {problem.advice.splitlines()[0]}  {problem.checked}".rstrip())
        yield from (OutlineLine(2, line) for line in lines if line not in shown)
        shown.update(lines)
    if (more := len(record.problems) - MAX_PROBLEMS) > 0:
        yield OutlineLine(1, f"and {count_text(more, 'more problem')}: kernel_magics.last_record().problems")


def _place(record: Record, problem: Problem) -> str:
    if not problem.lineno:
        return ""
    text = record.line_text(problem.line)
    return f", {location(record, problem.filename, problem.lineno)}" + (f" `{text}`" if text else "")


def _guard_lines(record: Record) -> Iterator[OutlineLine]:
    checked = [guard for c in record.compiles for guard in c.guards if not guard.dropped]
    if checked:
        kinds = ", ".join(f"{kind} {n}" for kind, n in Counter(g.kind for g in checked).most_common(3))
        costs = [c.guards_ns for c in record.compiles if c.guards_ns is not None]
        slowest = f"; checking those of one compile takes up to {max(costs) / 1000:.3g} us a call" if costs else ""
        compiles = sum(bool(c.guards) for c in record.compiles)
        text = f"{count_text(len(checked), 'guard')} in {count_text(compiles, 'compile')} (most: {kinds}){slowest}"
        yield OutlineLine(1, text)


def _saved_lines(record: Record) -> Iterator[OutlineLine]:
    """Lists the compile that saves most, its largest values, why they are saved, and the cost of recomputing them."""
    saving = [(c, c.partition) for c in record.compiles if c.partition and c.partition.saved_count]
    if not saving:
        return
    compile_, most = max(saving, key=lambda each: each[1].saved_bytes)
    others = sum(partition.saved_bytes for _, partition in saving) - most.saved_bytes
    and_others = f", and {bytes_text(others)} by other compiles" if len(saving) > 1 else ""
    yield OutlineLine(1, f"{saved_text(most)}{and_others}; the largest:")
    saved = sorted((v for v in most.values if v.decision == "saved"), key=lambda v: -v.bytes)
    for value in saved[:MAX_SAVED]:
        drop = "" if value.drop_ns is None else f"; recomputing it would cost {value.drop_ns / 1000:.4g} us"
        name, line = users_name(compile_, value.node)
        text = record.line_text(line)
        at = f" of line {str(line).rpartition('#')[2]} `{text}`" if text else ""
        yield OutlineLine(2, f"{name}{at}: {value.reason}{drop}")
