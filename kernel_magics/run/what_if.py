"""``%what_if``: runs the last cell again with something changed, and says what that changes."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from IPython.core.error import UsageError

from compiler_core.errors import UsageError as WrongUse
from compiler_core.records.differences import Comparison
from kernel_magics.display.record_view import RecordView
from kernel_magics.run.request import Request


def what_if(request: Request, default: Request, given: argparse.Namespace) -> str:
    """Runs the last cell again with the options of `request` that differ from `default`; returns what changed.

    Raises:
        UsageError: nothing is changed, or the cell cannot run again.
    """
    view = RecordView.latest
    if view is None or view.experiments is None:
        raise UsageError("no cell was compiled yet that can run again; run one with %%compile")
    changes = _changes(request, default)
    words = [f"{name.replace('_', '-')} {_shown(value)}".strip() for name, value in changes.items()]
    if given.drop_guard:
        changes["dropped_guard"] = _guard(view, given.drop_guard)
        words.append(f"without the guards of {given.drop_guard}")
    marks = tuple(map(_mark, given.mark_dynamic or ()))
    words += [f"{name}.shape[{dim}] dynamic" for name, dim in marks]
    if not words:
        raise UsageError("%what_if takes what is changed: --dynamic, --memory-budget 0.5, --keep-apart A,B ...")
    try:
        run = view.experiments.run_changed(", ".join(words), lambda text, share: None, marks, **changes)
    except WrongUse as error:
        raise UsageError(str(error)) from None
    view.show_run(run)
    assert isinstance(run.record.comparison, Comparison)
    return run.record.comparison.changes()


def _changes(request: Request, default: Request) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(Request)]
    return {name: getattr(request, name) for name in names if getattr(request, name) != getattr(default, name)}


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(",".join(pair) for pair in value)
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
