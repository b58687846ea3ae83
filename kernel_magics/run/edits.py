"""Texts that the user edited: ``%%kernel``, ``%%schedule`` and ``%%graph`` try them, and ``%%compile`` uses them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from compiler_core.config import CodeEdit, GraphPass
from compiler_core.errors import UsageError as WrongUse
from compiler_core.records import Record
from kernel_magics.display.record_view import RecordView

if TYPE_CHECKING:
    from compiler_core.tools.editing.edits import Edit

_EDITED = {".loops": "edited loops", ".schedule": "an edited schedule", ".wrapper": "an edited wrapper"}
MAX_LENGTH = 160
"""The most letters that are shown of how a value differs."""
_codes: tuple[CodeEdit, ...] = ()
"""The edited kernels, loops and wrappers."""
_graphs: dict[str, GraphPass] = {}
"""The edited graphs, by their id."""


def code_edits() -> tuple[CodeEdit, ...]:
    """Returns the edited kernels, loops and wrappers that are in use."""
    return _codes


def graph_edits() -> tuple[GraphPass, ...]:
    """Returns the edited graphs that are in use, as passes."""
    return tuple(_graphs.values())


def schedule_id(id: str) -> str:
    """Returns the id of a kernel's schedule, given that of the kernel or of the schedule."""
    return id if id.endswith(".schedule") else f"{id}.schedule"


def text(id: str) -> str:
    """Returns the text of that id in the last cell; UsageError if there is none."""
    from compiler_core.tools.editing.edits import editable_text

    with wrong_use_shown():
        return editable_text(_view().record, id)


def try_and_use(id: str, text: str, force: bool) -> str:
    """Tries an edited text, uses it from now on if it is right, and runs the last cell again with it.

    Returns what to tell the user.

    Raises:
        UsageError: the last cell has nothing of that id, or the text is not one that can take its place.
    """
    from compiler_core.tools.editing.edits import try_edit

    view = _view()
    cell = f"It was tried in place of {id} of {view.record.title}, which was compiled last."
    with wrong_use_shown(cell):
        edit = try_edit(view.record, id, text, _codes)
    lines = [str(edit.trial)]
    if edit.trial.fault or not (edit.trial.is_right or force):
        lines.append("It is not used." + ("" if edit.trial.fault else "  --force uses it nevertheless."))
        return "\n".join([*lines, cell])
    _use(edit)
    name = edit.id.rpartition(":")[2]
    magic = "graph" if edit.graph else "schedule" if edit.code and edit.code.kind == "schedule" else "kernel"
    shown = name.removesuffix(".schedule") if magic == "schedule" else name
    lines += [_in_the_cell(view), f"%%compile uses it from now on; %{magic} --revert {shown} ends that."]
    return "\n".join(lines)


def _view() -> Any:
    if RecordView.latest is None or RecordView.latest.record is None:
        raise UsageError("no cell was compiled yet; run one with %%compile")
    return RecordView.latest


def _use(edit: Edit) -> None:
    global _codes
    from compiler_core.tools.editing.edits import merged

    if edit.code is not None:
        _codes = merged(_codes, edit.code)
    elif edit.graph is not None:
        _graphs[edit.id] = edit.graph


def _in_the_cell(view: RecordView) -> str:
    """Runs the last cell again with the edits, and says whether its values are those of plain PyTorch."""
    if view.experiments is None:
        return "The cell raised an exception, so it was not run again."
    from kernel_magics.run import graph_passes

    passes = (*graph_passes.registered(), *graph_edits())
    try:
        run = view.experiments.run_changed("Edited", lambda text, share: None, passes=passes, edits=_codes)
    except WrongUse as error:
        return f"The cell was not run again: {error}."
    view.show_run(run)
    values = (run.record.comparison.values if run.record.comparison else None) or {}
    if not values:
        return "In the cell: the values of plain PyTorch."
    return "In the cell: " + "; ".join(f"{name} differs: {_short(how)}" for name, how in values.items())


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= MAX_LENGTH else f"{words[:MAX_LENGTH]} ..."


def revert(id: str | None) -> str:
    """Removes an edit, or all if `id` is None; returns the table of those that are left.

    Raises UsageError if `id` is not edited.
    """
    global _codes
    name = None if id is None else id.rpartition(":")[2]
    names = [each.name for each in _codes] + [key.rpartition(":")[2] for key in _graphs]
    if name is not None and name not in names:
        raise UsageError(f"{name} is not edited; edited are: {', '.join(names) or 'none'}")
    _codes = tuple(each for each in _codes if name is not None and each.name != name)
    for key in list(_graphs):
        if name is None or key.rpartition(":")[2] == name:
            del _graphs[key]
    return table()


def table() -> str:
    """Returns a line for each edit."""
    lines = [f"{each.name}: {_what(each.name)}" for each in _codes] + [f"{key}: an edited graph" for key in _graphs]
    return "\n".join(lines) or "Nothing is edited.  %kernel ID or %graph ID makes a cell with a text to edit."


def _what(name: str) -> str:
    return next((what for ending, what in _EDITED.items() if name.endswith(ending)), "an edited kernel")


def notes(record: Record, used: tuple[CodeEdit, ...]) -> list[str]:
    """Returns a note for each edit of a record, and for each whose original was not there."""
    texts = [artifact.text for compile_ in record.compiles for artifact in compile_.artifacts]

    def is_used(edit: CodeEdit) -> bool:
        needed = edit.original if edit.kind == "schedule" else edit.text  # the loops, whose nest is made by it
        return any(needed.strip() in text for text in texts)

    found = []
    for each in used if record.compiles else ():
        how = (
            "was edited by hand"
            if is_used(each)
            else "has an edit that was not used, as nothing had the text that it is for"
        )
        found.append(f"{each.name} {how}.")
    return found


@contextmanager
def wrong_use_shown(*more: str) -> Iterator[None]:
    """Within the block, a wrong request is shown as IPython shows its own, without a traceback, before `more` lines."""
    try:
        yield
    except WrongUse as error:
        raise UsageError("\n".join([str(error), *more])) from None
