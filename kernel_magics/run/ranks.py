"""``%%compile --ranks NAME``: runs a cell compiled on all engines of an ipyparallel cluster, and compares the ranks."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError

from compiler_core.records import Record
from compiler_core.records.timings import plural
from compiler_core.tools.questions.compare import compare
from compiler_core.tools.ranks.comparison import RankComparison, compare_rank_facts, ranges
from compiler_core.tools.ranks.facts import rank_facts


@dataclass(frozen=True)
class RanksRun:
    """A cell that ran on ranks."""

    comparison: RankComparison
    firsts: list[Record]
    """The record of the first rank of each group, the largest group first; the others are compared with that one."""
    error: str
    """Which ranks raised or died, and what; empty if none."""


def run_on_ranks(namespace: Mapping[str, Any], name: str, line: str, cell: str, label: str) -> RanksRun:
    """Runs a cell on all engines and prints what each printed.

    Args:
        namespace: the user's, which has the cluster's client or a view of it.
        name: the client's or view's name.
        line: the other options of ``%%compile``.
        cell: the cell.
        label: what the cell is called, such as ``In[3]``.

    Raises:
        UsageError: there is no such client or view.
    """
    found = _view(namespace, name).apply_async(run_here, line, cell).get(return_exceptions=True)
    answers = [_answer(each) for each in (found if isinstance(found, list) else [found])]
    for rank, answer in enumerate(answers):
        for text in answer["output"].splitlines():
            sys.stdout.write(f"[{rank}] {text}\n")
    records = {rank: Record.from_json(answer["record"]) for rank, answer in enumerate(answers) if answer["record"]}
    for rank, record in records.items():
        record.title = f"rank {rank}"
        record.labels = dict.fromkeys(record.labels, label)
    comparison = compare_rank_facts([rank_facts(record, f"rank {n}", n) for n, record in records.items()])
    comparison.missing = [rank for rank in range(len(answers)) if rank not in records]
    firsts = [records[group.ranks[0].rank or 0] for group in comparison.groups]
    for record in firsts[1:]:
        record.comparison = compare(firsts[0], record)
    return RanksRun(comparison, firsts, _error(answers))


def _answer(found: Any) -> dict[str, str]:
    """Returns what an engine answered, or that it could not: it died, or the cell did not reach it."""
    if not isinstance(found, BaseException):
        return found  # type: ignore[no-any-return]
    return {"record": "", "output": "", "raised": f"{type(found).__name__}: {found}"}


def _error(answers: Sequence[Mapping[str, str]]) -> str:
    failed = [rank for rank, answer in enumerate(answers) if answer["raised"]]
    if not failed:
        return ""
    return f"the cell raised on {plural('rank', len(failed))} {ranges(failed)}: {answers[failed[0]]['raised']}"


def run_here(line: str, cell: str) -> dict[str, str]:
    """Runs a ``%%compile`` cell in this engine's shell; returns its record as JSON, what it printed, and its error."""
    from IPython.core.getipython import get_ipython
    from IPython.utils.capture import capture_output

    from kernel_magics.display.record_view import RecordView

    shell: Any = get_ipython()
    shell.run_line_magic("load_ext", "kernel_magics")
    RecordView.latest = None
    with capture_output(display=True) as captured:
        result = shell.run_cell(f"%%compile {line}\n{cell}", store_history=False)
    raised = result.error_before_exec or result.error_in_exec
    view = RecordView.latest
    record = view.record.to_json() if view is not None and view.record is not None else ""
    error = f"{type(raised).__name__}: {raised}" if raised else ""
    return {"record": record, "output": captured.stdout + captured.stderr, "raised": error}


def _view(namespace: Mapping[str, Any], name: str) -> Any:
    """Returns the view of all engines that a name in the user's namespace stands for."""
    found: Any = namespace.get(name)
    if hasattr(found, "apply_async"):
        return found
    if hasattr(found, "ids") and hasattr(found, "direct_view"):
        return found[:]
    what = f"{name} is a {type(found).__name__}" if name in namespace else f"there is no {name}"
    raise UsageError(f"--ranks {name}: {what}; it takes the name of an ipyparallel client, or of a view of its engines")
