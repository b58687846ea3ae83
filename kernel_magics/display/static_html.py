"""The record as static HTML, for viewers that run no scripts: pages of nbconvert, GitHub, other programs."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any

from IPython.display import display

from compiler_core.errors import UsageError
from compiler_core.records import Compile, Record, limits
from compiler_core.records.timings import bytes_text, plural
from kernel_magics.display import summary
from kernel_magics.display.pictures.lines_and_kernels import lines_and_kernels

if TYPE_CHECKING:
    from compiler_core.tools.capture_methods import CaptureComparison, CaptureResult
    from compiler_core.tools.frames.report import FrameReport
    from compiler_core.tools.inspection.partition_plans import PartitionPlan

_COLOURS = {"blocking": "#b3261e", "costly": "#a23b00", "expected": "#575d68"}
_VERDICT_COLOURS = {"right": "#1b6e3c", "error": "#a23b00", "silently wrong": "#b3261e"}
_CELL = "text-align:left;vertical-align:top;padding:2px 10px 2px 0"
_BAR_PX = 120
"""The width of the longest bar."""
MAX_NODES = 200
"""Larger joint graphs are not drawn."""
NO_DOT = "The pictures need Graphviz: install its command `dot` (on Debian: apt-get install graphviz)."


def html(record: Record) -> str:
    """Returns the headline, a picture of lines and kernels, tables of problems and compiles, and the summary, folded.

    All text of the record is escaped.
    """
    head, *rest = summary.outline(record)
    lines = "".join(f'<div style="margin-left:{2 * (line.depth - 1)}em">{escape(line.text)}</div>' for line in rest)
    verdict = record.verdict if record.timings else None
    timed = "".join(f"<div>{escape(text)}</div>" for text in (str(verdict), *verdict.warnings)) if verdict else ""
    parts = [f"<strong>{escape(head.text)}</strong>", timed, _problem_table(record)]
    parts += [lines_and_kernels(record), _compile_table(record)]
    if rest:
        parts.append(f'<details><summary>All lines</summary><div style="font-family:monospace">{lines}</div></details>')
    return f'<div style="font-size:13px">{"".join(parts)}</div>'


def captures_html(comparison: CaptureComparison) -> str:
    """Returns the results of all capture methods as a table, with the code of the graphs folded."""
    rows = [
        [
            escape(row.method),
            f'<b style="color:{_VERDICT_COLOURS[row.verdict]}">{escape(row.verdict)}</b>',
            str(row.operations) if row.graphs else "",
            escape(row.message) + _graphs(row),
        ]
        for row in comparison.rows
    ]
    return f'<div style="font-size:13px">{_table(["method", "verdict", "operations", "graphs, and why"], rows)}</div>'


def frames_html(report: FrameReport) -> str:
    """Returns the frames that ran as a table; those that were skipped, and the tree by caller, are folded."""
    rows = report.rows()
    if not rows:
        return f'<div style="font-size:13px">{escape(str(report))}</div>'
    skipped = [row for row in rows if row[-1].startswith("skipped")]
    parts = [_frame_table([row for row in rows if row not in skipped])]
    if skipped:
        count = f"{len(skipped):,} skipped {plural('function', len(skipped))}, such as parts of libraries"
        parts.append(f"<details><summary>{count}</summary>{_frame_table(skipped)}</details>")
    parts.append(f"<details><summary>By caller</summary><pre>{escape(report.tree())}</pre></details>")
    return f'<div style="font-size:13px">{"".join(parts)}</div>'


def _frame_table(rows: list[tuple[str, str, str, str]]) -> str:
    cells = [[escape(cell) for cell in row] for row in rows[: limits.FAILURES]]
    return _table(["function", "file", "calls", "outcome"], cells)


def draw_partitions(record: Record) -> None:
    """Shows the joint graph under each way to divide it into forward and backward, with the bytes that it saves.

    Without the command ``dot`` of Graphviz, the text alone is shown.

    Args:
        record: a record of the core engine; with ``memory_curve=True`` it has other memory budgets, too.

    Raises:
        UsageError: the record has no joint graph that was divided.
    """
    from graphviz import ExecutableNotFound

    from compiler_core.tools.inspection.partition_plans import partition_plans

    plans = partition_plans(record)
    if not plans:
        raise UsageError("nothing was divided: no compile has both a forward and a backward")
    text = "\n".join(map(str, plans))
    try:
        figures = "".join(map(_figure, plans)) if len(plans[0].graph.nodes) <= MAX_NODES else ""
    except ExecutableNotFound:
        figures, text = "", f"{text}\n{NO_DOT}"
    shown: dict[str, Any] = {"text/plain": text}
    if figures:
        shown["text/html"] = f'<div style="display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start">{figures}</div>'
    display(shown, raw=True)


def _figure(plan: PartitionPlan) -> str:
    from graphviz import Source

    drawn = Source(plan.dot()).pipe("svg", encoding="utf-8")
    svg = drawn[drawn.index("<svg") :]
    return f'<figure style="margin:0"><figcaption>{escape(str(plan))}</figcaption>{svg}</figure>'


def _graphs(row: CaptureResult) -> str:
    if not row.graphs:
        return ""
    count = f"{len(row.graphs)} {plural('graph', len(row.graphs))}"
    return f"<details><summary>{count}</summary><pre>{escape(chr(10).join(row.graphs))}</pre></details>"


def _problem_table(record: Record) -> str:
    problems = record.problems[: limits.FAILURES]
    rows = []
    for problem in problems:
        grade = f'<b style="color:{_COLOURS[problem.grade]}">{escape(problem.grade)}</b>'
        where = summary.location(record, problem.filename, problem.lineno) if problem.lineno else ""
        texts = (problem.cause, problem.cost, problem.advice, problem.checked)
        why = "<br>".join(escape(text) for text in texts if text)
        rows.append([grade, escape(problem.title), escape(where), why])
    return _table(["grade", "problem", "where", "why, cost, and what to do"], rows)


def _compile_table(record: Record) -> str:
    longest = max((c.duration_ns for c in record.compiles), default=0) or 1
    rows = [
        [
            escape(compile_.id),
            escape(frame.title),
            escape(compile_.outcome),
            str(summary.operations(compile_)),
            str(len(compile_.generated_kernels)),
            escape(bytes_text(compile_.partition.saved_bytes)) if compile_.partition else "",
            _time_bar(compile_, longest),
        ]
        for frame in record.frames
        for compile_ in frame.compiles
    ]
    heads = ["compile", "function", "outcome", "operations", "kernels", "saved for the backward", "time of compiling"]
    return _table(heads, rows[: limits.FAILURES])


def _time_bar(compile_: Compile, longest: int) -> str:
    width = round(_BAR_PX * compile_.duration_ns / longest)
    bar = f'<span style="display:inline-block;height:9px;width:{width}px;background:#1a62c4"></span>'
    return f"{bar} {compile_.duration_ns / 1e6:,.1f} ms"


def _table(heads: Iterable[str], rows: list[list[str]]) -> str:
    """Returns a table of cells that are escaped already; empty without rows."""
    if not rows:
        return ""
    head = "".join(f'<th style="{_CELL}">{text}</th>' for text in heads)
    body = "".join("<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
