"""Tests of the background imports: a cell waits for their end."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from IPython.core.interactiveshell import InteractiveShell

from kernel_magics.startup import warmup


def test_cell_waits_for_the_imports(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    go, order = threading.Event(), []

    def load() -> None:
        go.wait(30)
        order.append("loaded")

    monkeypatch.setattr(warmup, "_load", load)
    shell.user_ns["order"] = order
    warmup.start(shell)
    threading.Timer(0.2, go.set).start()
    shell.run_cell("order.append('cell')")
    assert order == ["loaded", "cell"]
    warmup.stop(shell)
    shell.run_cell("order.append('after')")
    assert order[-1] == "after"


def test_an_interrupt_of_the_wait_reaches_the_cell_after_the_imports(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, order = threading.Event(), []

    def load() -> None:
        go.wait(30)
        order.append("loaded")

    monkeypatch.setattr(warmup, "_load", load)
    shell.user_ns["order"] = order
    warmup.start(shell)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    threading.Timer(0.4, go.set).start()
    result = shell.run_cell("order.append('cell')\nimport time\ntime.sleep(20)\nended = True")
    warmup.stop(shell)
    assert isinstance(result.error_in_exec, KeyboardInterrupt)
    assert "ended" not in shell.user_ns
    assert order == ["loaded", "cell"]


def test_what_cannot_be_loaded_is_left_for_later(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "MODULES", ("no.such.module", "json"))
    warmup.start(shell)
    warmup.stop(shell)
