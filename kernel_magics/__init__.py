"""Cutaway in IPython and Jupyter.

    %load_ext kernel_magics
    %%compile           run a cell compiled, and explore what the compiler did

Of the cell that was compiled last:

    last                its explorer
    last_record         its record, plain data
    last_comparison     what two engines made of it

Of any record:

    Explorer            shows it
    save                writes it as a report, as JSON or as plain files
    write_report        writes it as one HTML file

    reset               close all explorers, and free all that was compiled
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from compiler_core.records import Record
    from kernel_magics.display.explorer import Explorer
    from kernel_magics.display.export import save
    from kernel_magics.display.report import write_report
    from kernel_magics.display.view import Both


_FROM = {"Explorer": "explorer", "save": "export", "write_report": "report"}


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Called by ``%load_ext kernel_magics``."""
    from kernel_magics import completion
    from kernel_magics.cell import awaiting
    from kernel_magics.display import outputs
    from kernel_magics.display.view import say
    from kernel_magics.magics import CutawayMagics
    from kernel_magics.startup import version_trial, warmup

    shell.register_magics(CutawayMagics)
    awaiting.install(shell)
    outputs.install(shell)
    if shell.Completer is not None and completion.complete not in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.append(completion.complete)
    if line := version_trial.report():
        say(f"Cutaway: {line}.")
    warmup.start(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Called by ``%unload_ext kernel_magics``."""
    from kernel_magics import completion
    from kernel_magics.cell import awaiting
    from kernel_magics.display import outputs
    from kernel_magics.startup import warmup

    for kind, name in (("cell", "compile"), ("line", "compile"), ("line", "explain")):
        shell.magics_manager.magics[kind].pop(name, None)
    if shell.Completer is not None and completion.complete in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.remove(completion.complete)
    awaiting.remove(shell)
    outputs.remove(shell)
    warmup.stop(shell)


def last() -> Explorer:
    """The explorer of the cell that was compiled last; RuntimeError where there is none (in a terminal)."""
    from kernel_magics.display.view import View

    if View.latest is None or View.latest.explorer is None:
        raise RuntimeError("no cell was compiled and shown in an explorer yet; in a terminal, see last_record()")
    return View.latest.explorer


def last_record() -> Record:
    """The record of the cell that was compiled last; RuntimeError where there is none."""
    from kernel_magics.display.view import View

    if View.latest is None or View.latest.record is None:
        raise RuntimeError("no cell was compiled yet")
    return View.latest.record


def last_comparison() -> Both:
    """What the two engines made of the cell that ran last with ``--engine core,torch``; RuntimeError else."""
    from kernel_magics.display.view import View

    if View.latest is None or View.latest.both is None:
        raise RuntimeError("the last cell was not compiled with --engine core,torch")
    return View.latest.both


def reset() -> None:
    """Close all explorers and free their records, and all that was compiled; saved outputs stay as they are."""
    from compiler_core.api import compile as api
    from kernel_magics.display import outputs
    from kernel_magics.display.view import View

    View.latest = None
    outputs.close_all()
    api.reset()


def __getattr__(name: str) -> Any:
    if name in _FROM:
        return getattr(importlib.import_module(f"kernel_magics.display.{_FROM[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "Explorer",
    "last",
    "last_comparison",
    "last_record",
    "load_ipython_extension",
    "reset",
    "save",
    "unload_ipython_extension",
    "write_report",
]
