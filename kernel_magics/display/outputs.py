"""Tracks which explorers the notebook's outputs show, and closes the others.

ipywidgets keeps every open widget alive, and with it the widget's record.  An explorer is closed, which frees both,
when no output shows it any more: when the cells that displayed it have run again, or when JupyterLab reports that its
outputs were removed.  The explorer of the cell compiled last, and one inside another widget, stay open.  Outputs are
identified by their cells' ids, which front ends send with each cell; without ids no explorer is closed when a cell
runs again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    from kernel_magics.display.explorer import Explorer

_current_cell: str | None = None
"""The id of the running cell, or of the last one that ran."""
_is_running = False
"""Whether a cell runs."""
_explorers_by_cell: dict[str, WeakSet[Explorer]] = {}
"""The explorers in each cell's output, by the cell's id."""
_open_explorers: WeakSet[Explorer] = WeakSet()
_undisplayed: WeakSet[Explorer] = WeakSet()
"""Explorers that no output shows any more."""


def install(shell: Any) -> None:
    """Registers the callbacks that note which cell runs."""
    shell.events.register("pre_run_cell", on_cell_start)
    shell.events.register("post_run_cell", on_cell_end)


def remove(shell: Any) -> None:
    """Removes the callbacks of `install`."""
    for event, callback in (("pre_run_cell", on_cell_start), ("post_run_cell", on_cell_end)):
        if callback in shell.events.callbacks[event]:
            shell.events.unregister(event, callback)


def on_cell_start(info: Any) -> None:
    """Called when a cell starts: the front end clears its output, so the explorers in it are no longer shown."""
    global _current_cell, _is_running
    _is_running = True
    _current_cell = getattr(info, "cell_id", None)
    for explorer in _explorers_by_cell.pop(_current_cell, ()) if _current_cell else ():
        if not any(explorer in others for others in _explorers_by_cell.values()):
            _undisplayed.add(explorer)


def on_cell_end(_: Any) -> None:
    """Called when a cell has ended."""
    global _is_running
    _is_running = False


def cell_is_running() -> bool:
    """Returns whether a cell runs; also while it awaits."""
    return _is_running


def add_open(explorer: Explorer) -> None:
    """Registers an open explorer, for `close_all`."""
    _open_explorers.add(explorer)


def mark_displayed(explorer: Explorer) -> None:
    """Notes that the running cell's output shows the explorer."""
    if _current_cell:
        _explorers_by_cell.setdefault(_current_cell, WeakSet()).add(explorer)
        _undisplayed.discard(explorer)


def mark_removed(explorer: Explorer) -> None:
    """Notes that no output shows the explorer: its outputs were cleared or their cells deleted."""
    for explorers in _explorers_by_cell.values():
        explorers.discard(explorer)
    _undisplayed.add(explorer)


def close_undisplayed(latest: Explorer | None) -> None:
    """Closes the explorers that no output shows, except `latest` and those inside other widgets."""
    for explorer in [each for each in _undisplayed if each is not latest and not _is_child(each)]:
        _undisplayed.discard(explorer)
        explorer.close()


def _is_child(explorer: Explorer) -> bool:
    from ipywidgets.widgets import widget  # loaded with the explorer

    widgets = list(vars(widget)["_instances"].values())
    return any(explorer in getattr(each, "children", ()) for each in widgets)


def close_all() -> None:
    """Closes all explorers."""
    for explorer in list(_open_explorers):
        explorer.close()
    _explorers_by_cell.clear()
    _undisplayed.clear()
