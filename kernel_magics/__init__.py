"""Cutaway in IPython and Jupyter.

    %load_ext kernel_magics
    %%compile           run a cell compiled, and explore what the compiler did

Of the cell that was compiled last:

    last                its explorer
    last_record         its record, plain data
    last_comparison     what two engines made of it

    reset               close all explorers, and free all that was compiled
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from compiler_core.record import Record
    from kernel_magics.explorer import Explorer
    from kernel_magics.view import Both


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Called by ``%load_ext kernel_magics``."""
    from kernel_magics import awaiting, completion, engines, outputs, warmup
    from kernel_magics.magics import CutawayMagics
    from kernel_magics.view import say

    shell.register_magics(CutawayMagics)
    awaiting.install(shell)
    outputs.install(shell)
    if shell.Completer is not None and completion.complete not in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.append(completion.complete)
    if line := engines.report():
        say(f"Cutaway: {line}.")
    warmup.start(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Called by ``%unload_ext kernel_magics``."""
    from kernel_magics import awaiting, completion, outputs, warmup

    for kind, name in (("cell", "compile"), ("line", "compile"), ("line", "explain")):
        shell.magics_manager.magics[kind].pop(name, None)
    if shell.Completer is not None and completion.complete in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.remove(completion.complete)
    awaiting.remove(shell)
    outputs.remove(shell)
    warmup.stop(shell)


def last() -> Explorer:
    """The explorer of the cell that was compiled last; RuntimeError where there is none (in a terminal)."""
    from kernel_magics.view import View

    if View.latest is None or View.latest.explorer is None:
        raise RuntimeError("no cell was compiled and shown in an explorer yet; in a terminal, see last_record()")
    return View.latest.explorer


def last_record() -> Record:
    """The record of the cell that was compiled last; RuntimeError where there is none."""
    from kernel_magics.view import View

    if View.latest is None or View.latest.record is None:
        raise RuntimeError("no cell was compiled yet")
    return View.latest.record


def last_comparison() -> Both:
    """What the two engines made of the cell that ran last with ``--engine core,torch``; RuntimeError else."""
    from kernel_magics.view import View

    if View.latest is None or View.latest.both is None:
        raise RuntimeError("the last cell was not compiled with --engine core,torch")
    return View.latest.both


def reset() -> None:
    """Close all explorers and free their records, and all that was compiled; saved outputs stay as they are."""
    from compiler_core import api
    from kernel_magics import outputs
    from kernel_magics.view import View

    View.latest = None
    outputs.close_all()
    api.reset()


def __dir__() -> list[str]:
    return __all__


__all__ = ["last", "last_comparison", "last_record", "load_ipython_extension", "reset", "unload_ipython_extension"]
