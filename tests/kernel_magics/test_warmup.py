"""Tests of the background imports: a cell waits for their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest
from IPython.core.interactiveshell import InteractiveShell

from kernel_magics.startup import warmup


def start(shell: InteractiveShell) -> None:
    import torch  # noqa: F401

    warmup.start(shell)
    shell.run_cell("")


def start_slowly(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, list[str]]:
    """Starts imports that wait for the event, and then append to the list, which cells see as `order`."""
    go, order = threading.Event(), shell.user_ns.setdefault("order", [])

    def load() -> None:
        go.wait(30)
        order.append("loaded")

    monkeypatch.setattr(warmup, "_load", load)
    start(shell)
    return go, order


def test_cell_waits_for_the_imports(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    go, order = start_slowly(shell, monkeypatch)
    threading.Timer(0.2, go.set).start()
    shell.run_cell("order.append('cell')")
    assert order == ["loaded", "cell"]
    warmup.stop(shell)
    shell.run_cell("order.append('after')")
    assert order[-1] == "after"


@pytest.mark.parametrize("cell", ["order.append('cell')", "order.append('cell'", "%%time\norder.append('cell')"])
def test_an_interrupt_of_the_wait_ends_the_cell_and_the_next_one_waits(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, cell: str
) -> None:
    go, order = start_slowly(shell, monkeypatch)
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    result = shell.run_cell(cell)
    assert order == []
    error = result.error_in_exec or result.error_before_exec
    assert isinstance(error, SyntaxError if cell.count("(") > cell.count(")") else KeyboardInterrupt)
    threading.Timer(0.1, go.set).start()
    shell.run_cell("order.append('next')")
    assert order == ["loaded", "next"]
    warmup.stop(shell)


def test_loading_the_extension_imports_no_pytorch() -> None:
    text = (
        "import sys\nfrom IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\nshell.run_cell('%load_ext kernel_magics')\nshell.run_cell('1 + 1')\n"
        "assert 'kernel_magics' in shell.extension_manager.loaded\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('torch', 'sympy', 'networkx', 'anywidget')])\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


def test_what_cannot_be_loaded_is_left_for_later(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "MODULES", ("no.such.module", "json"))
    start(shell)
    warmup.stop(shell)
