"""The explorers that the notebook's outputs show.

ipywidgets keeps every open widget, and so its record.  An explorer is closed, which frees both, once no output shows
it: when the cells that displayed it have run again, unless it is that of the latest compiled cell.  Outputs are known
by the ids of their cells, which front ends send with each cell; without ids nothing is closed before `close_all`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    from kernel_magics.display.explorer import Explorer

_running: str | None = None
"""The id of the cell that runs, or ran last."""
_shown: dict[str, WeakSet[Explorer]] = {}
"""By the id of a cell: the explorers in its output."""
_open: WeakSet[Explorer] = WeakSet()
_unshown: WeakSet[Explorer] = WeakSet()
"""Those whose cells have all run again."""


def install(shell: Any) -> None:
    """Note which cell runs."""
    shell.events.register("pre_run_cell", began)


def remove(shell: Any) -> None:
    if began in shell.events.callbacks["pre_run_cell"]:
        shell.events.unregister("pre_run_cell", began)


def began(info: Any) -> None:
    """A cell begins to run: the front end clears its output."""
    global _running
    _running = getattr(info, "cell_id", None)
    for explorer in _shown.pop(_running, ()) if _running else ():
        if not any(explorer in others for others in _shown.values()):
            _unshown.add(explorer)


def opened(explorer: Explorer) -> None:
    _open.add(explorer)


def displayed(explorer: Explorer) -> None:
    """The output of the cell that runs shows it."""
    if _running:
        _shown.setdefault(_running, WeakSet()).add(explorer)
        _unshown.discard(explorer)


def close_unshown(latest: Explorer | None) -> None:
    """Close what no output shows, but for `latest`."""
    for explorer in [each for each in _unshown if each is not latest]:
        _unshown.discard(explorer)
        explorer.close()


def close_all() -> None:
    """Close all explorers."""
    for explorer in list(_open):
        explorer.close()
    _shown.clear()
    _unshown.clear()
