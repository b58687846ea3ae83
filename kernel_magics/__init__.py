"""Cutaway in IPython and Jupyter.

    %load_ext kernel_magics
    %%compile           run a cell compiled, and explore what the compiler did

For the cell that was compiled last:

    last                its explorer
    last_record         its record, as plain data
    last_comparison     the comparison of two engines, after ``--engine core,torch``

For any record:

    Explorer            the widget that shows it
    view                the explorer of an address that the button *Link* copied
    draw_partitions     show its joint graph under each way to divide it into forward and backward
    save                write it as a report, as JSON or as plain files
    write_report        write it as one HTML file
    write_ranks_page    write the page of a job's ranks (`compiler_core.compare_ranks`)
    write_sweep_page    write the page of a sweep (`compiler_core.sweep`)

    reset               close all explorers and free everything that was compiled
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from compiler_core.records import Record
    from kernel_magics.display.explorer import Explorer
    from kernel_magics.display.export import save
    from kernel_magics.display.offline.ranks_page import write_ranks_page
    from kernel_magics.display.offline.sweep_page import write_sweep_page
    from kernel_magics.display.record_view import EngineComparison
    from kernel_magics.display.report import write_report
    from kernel_magics.display.static_html import draw_partitions


_MODULES = {"Explorer": "explorer", "save": "export", "draw_partitions": "static_html", "write_report": "report",
            "write_ranks_page": "offline.ranks_page", "write_sweep_page": "offline.sweep_page"}  # fmt: skip


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Registers the magics and hooks in `shell`; called by ``%load_ext kernel_magics``."""
    from kernel_magics import completion, misspelled
    from kernel_magics.cell import awaiting
    from kernel_magics.display import outputs
    from kernel_magics.display.record_view import print_line
    from kernel_magics.display.storage import shown_records
    from kernel_magics.magics import CutawayMagics
    from kernel_magics.startup import version_trial, warmup

    shell.register_magics(CutawayMagics)
    awaiting.install(shell)
    misspelled.install(shell)
    outputs.install(shell)
    shown_records.install(shell)
    if shell.Completer is not None and completion.complete not in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.append(completion.complete)
    if line := version_trial.version_notice():
        print_line(f"Cutaway: {line}.")
    warmup.start(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Removes the magics and hooks from `shell`; called by ``%unload_ext kernel_magics``."""
    from kernel_magics import completion, misspelled
    from kernel_magics.cell import awaiting
    from kernel_magics.display import outputs
    from kernel_magics.display.storage import shown_records
    from kernel_magics.magics import CutawayMagics
    from kernel_magics.startup import warmup

    for magics in shell.magics_manager.magics.values():
        for name in [
            name for name, magic in magics.items() if isinstance(getattr(magic, "__self__", None), CutawayMagics)
        ]:
            del magics[name]
    if shell.Completer is not None and completion.complete in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.remove(completion.complete)
    awaiting.remove(shell)
    misspelled.remove(shell)
    outputs.remove(shell)
    shown_records.remove(shell)
    warmup.stop(shell)


def last() -> Explorer:
    """Returns the explorer of the cell that was compiled last.

    Raises RuntimeError if there is none: no cell was compiled yet, or the shell is a terminal.
    """
    from kernel_magics.display.record_view import RecordView

    latest = RecordView.latest
    explorer = None if latest is None else latest.open_explorer()
    if explorer is None:
        raise RuntimeError("no compiled cell has an explorer yet; in a terminal, use last_record()")
    return explorer


def last_record() -> Record:
    """Returns the record of the cell that was compiled last; raises RuntimeError if no cell was compiled yet."""
    from kernel_magics.display.record_view import RecordView

    if RecordView.latest is None or RecordView.latest.record is None:
        raise RuntimeError("no cell was compiled yet; run one with %%compile")
    return RecordView.latest.record


def last_comparison() -> EngineComparison:
    """Returns the records and the comparison of the last cell, which ran with ``--engine core,torch``.

    Raises RuntimeError if the last cell did not run with two engines.
    """
    from kernel_magics.display.record_view import RecordView

    if RecordView.latest is None or RecordView.latest.both is None:
        raise RuntimeError("the last cell was not compiled with --engine core,torch")
    return RecordView.latest.both


def view(address: str) -> Explorer:
    """Returns an explorer that shows what an address names: a record, a compile, panes and pinned items.

    The button *Link* of an explorer copies the address.  Its record is one that this kernel shows, or a file:
    ``kernel_magics.view("record.json#compile=0/0&pane=source&pane=kernel")``, also one of a notebook's records:
    ``notebook.ipynb#Cell In[3]``.  Raises UsageError if there is no such
    record, or no such view.
    """
    from kernel_magics.command.view import open_view

    return open_view(address)


def reset() -> None:
    """Closes all explorers and frees their records and all compiled code; saved notebook outputs are not changed."""
    from compiler_core.api import compile as api
    from kernel_magics.display import outputs
    from kernel_magics.display.record_view import RecordView

    RecordView.latest = None
    outputs.close_all()
    api.reset()


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"kernel_magics.display.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "Explorer",
    "draw_partitions",
    "last",
    "last_comparison",
    "last_record",
    "load_ipython_extension",
    "reset",
    "save",
    "unload_ipython_extension",
    "view",
    "write_ranks_page",
    "write_report",
    "write_sweep_page",
]
