"""One cell through both engines, and what differs: ``--engine core,torch``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError
from IPython.utils.capture import capture_output

from compiler_core.records import Record
from compiler_core.records.compare import compare
from kernel_magics.cell.parse import Program
from kernel_magics.display.view import Both, View, say
from kernel_magics.run import outside_effects
from kernel_magics.run.core import Request, run, save
from kernel_magics.run.snapshots import Twin

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Outcome:
    """What one engine made of the cell."""

    record: Record | None
    value: object = None
    error: Exception | None = None


def run_both(shell: Any, program: Program, request: Request, title: str, view: View) -> object:
    """The cell for each engine in turn: the first's value and effects, the second's on copies and unseen."""
    if program.is_async:
        raise UsageError("--engine core,torch cannot run a cell that awaits: it would await twice")
    engines = request.engine.split(",")
    codes = [program.skeleton, *program.units]
    twin = Twin(shell.user_ns, codes)
    first = _outcome(shell, program, _for(request, engines[0], save=None), f"{title}, {engines[0]}", view)
    mine = dict(shell.user_ns)
    try:
        with twin.as_before() as now, capture_output(), outside_effects.noted(shell.user_ns, twin.shared):
            second = _outcome(shell, program, _for(request, engines[1], save=None), f"{title}, {engines[1]}", View())
            theirs = now()
    finally:
        View.latest = view
    if first.record is not None and second.record is not None:
        names = {name for name in twin.names if name in mine or name in theirs}
        records = first.record, second.record
        found = first.record.comparison = compare(*records)
        found.values, found.shared = _differ(first, second, mine, theirs, names), twin.shared
        view.both = Both(records, found)
        say(str(found))
        view.grown()
    if first.record is not None:
        save(first.record, request)
    if first.error is not None:
        raise first.error
    return first.value


def _for(request: Request, engine: str, **changes: Any) -> Request:
    """The request with what the other engine alone knows left out."""
    other: dict[str, Any] = {"mode": None, "options": None, "logs": False}
    if engine == "torch":
        other = {"target": None, "strict": False}
        other["backend"] = None if request.backend in ("cpp", "triton") else request.backend
    return dataclasses.replace(request, engine=engine, **other, **changes)


def _outcome(shell: Any, program: Program, request: Request, title: str, view: View) -> Outcome:
    try:
        value = run(shell, program, request, title, view)
    except Exception as error:
        return Outcome(view.record, error=error)
    return Outcome(view.record, value)


def _differ(
    first: Outcome, second: Outcome, mine: dict[str, Any], theirs: dict[str, Any], names: set[str]
) -> dict[str, str]:
    errors = [f"{type(o.error).__name__}: {o.error}" if o.error else "no error" for o in (first, second)]
    found = {"error": " / ".join(errors)} if errors[0] != errors[1] else {}
    for name in sorted(names):
        if how := _difference(mine.get(name), theirs.get(name)):
            found[name] = how
    if how := _difference(first.value, second.value):
        found["result"] = how
    return found


def _difference(one: object, other: object) -> str | None:
    from compiler_core.api.testing import difference

    if one is other:
        return None
    try:
        if all(callable(getattr(each, "state_dict", None)) and not isinstance(each, type) for each in (one, other)):
            one, other = one.state_dict(), other.state_dict()  # type: ignore[attr-defined]
        return difference(one, other, TOLERANCE)
    except Exception as error:
        return f"cannot be compared: {type(error).__name__}: {error}"
