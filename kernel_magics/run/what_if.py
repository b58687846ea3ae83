"""``%what_if``: runs the last cell again with something changed, and says what that changes."""

from __future__ import annotations

import argparse
import dataclasses
import typing
from typing import Any

from IPython.core.error import UsageError

from compiler_core.config import GraphPass
from compiler_core.records import Record
from compiler_core.records.differences import Comparison
from kernel_magics.display.record_view import RecordView
from kernel_magics.run.edits import wrong_use_shown
from kernel_magics.run.request import Request


def what_if(request: Request, default: Request, given: argparse.Namespace) -> str:
    """Runs the last cell again with the options of `request` that differ from `default`; returns what changed.

    Raises:
        UsageError: nothing is changed, or the cell cannot run again.
    """
    from torch.cuda import is_available as cuda_is_available

    from compiler_core.tools.inspection.what_if import check_kernels, notes_of_rules

    view = RecordView.latest
    if view is None or view.experiments is None or view.record is None:
        raise UsageError("no cell was compiled yet that can run again; run one with %%compile")
    changes = _changes(request, default)
    is_timed = (
        changes.pop("measure", False)
        or given.split
        or given.join
        or (changes.get("block_sizes") and cuda_is_available())
    )
    words = [f"{name.replace('_', '-')} {_shown(value)}".strip() for name, value in changes.items()]
    if given.drop_guard:
        changes["dropped_guard"] = _guard(view, given.drop_guard)
        words.append(f"without the guards of {given.drop_guard}")
    with wrong_use_shown():
        rules = _fusion_rules(view.record, given)
        check_kernels(view.record, [kernel for kernel, *_ in changes.get("block_sizes", ())])
    if rules:
        changes["passes"] = (*request.passes, *rules)
    words += [f"{kernel} split" for kernel in given.split or ()] + [f"{pair} joined" for pair in given.join or ()]
    marks = tuple(map(_mark, given.mark_dynamic or ()))
    words += [f"{name}.shape[{dim}] dynamic" for name, dim in marks]
    if not words and not is_timed:
        raise UsageError("%what_if takes what is changed: --dynamic, --memory-budget 0.5, --keep-apart A,B ...")
    with wrong_use_shown():
        run = view.experiments.run_changed(", ".join(words), lambda text, share: None, marks, **changes)
    if is_timed:
        view.experiments.time_kernels(run.record, notes_of_rules(view.record, run.record, rules))
    view.show_run(run)
    assert isinstance(run.record.comparison, Comparison)
    return run.record.comparison.changes()


def _fusion_rules(record: Record, given: argparse.Namespace) -> tuple[GraphPass, ...]:
    """Returns the rules of fusion that split and join kernels of a record."""
    from compiler_core.tools.inspection.what_if import fusion_rules

    pairs = [tuple(text.split(",")) for text in given.join or ()]
    if wrong := [pair for pair in pairs if len(pair) != 2 or not all(pair)]:
        raise UsageError(f"--join takes two kernels, as in forward_0,forward_1, not {','.join(wrong[0])}")
    return fusion_rules(record, given.split or (), typing.cast(list[tuple[str, str]], pairs))


def _changes(request: Request, default: Request) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(Request) if field.compare]
    return {name: getattr(request, name) for name in names if getattr(request, name) != getattr(default, name)}


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(",".join(map(str, each)) for each in value)
    return "" if value is True else str(getattr(value, "__name__", value))


def _guard(view: RecordView, source: str) -> tuple[str, str]:
    """Returns the kind and the source of the guards that are left out."""
    guards = [guard for each in (view.record.compiles if view.record else ()) for guard in each.guards]
    found = [guard for guard in guards if source in (guard.source, guard.source.replace("'", ""))]  # without quotes
    if not found:
        sources = ", ".join(dict.fromkeys(guard.source for guard in guards))
        raise UsageError(f"there is no guard of {source}; there are those of {sources}")
    return found[0].kind, found[0].source


def _mark(text: str) -> tuple[str, int]:
    name, _, dim = text.partition(":")
    if not name.isidentifier() or not dim.isdecimal():
        raise UsageError(f"--mark-dynamic {text}: give the name of a tensor and a dimension, such as x:0")
    return name, int(dim)
