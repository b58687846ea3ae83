"""Tests of the background imports: a cell waits for their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import traceback

import pytest
from IPython.core.interactiveshell import InteractiveShell

from kernel_magics.startup import warmup
from tests.limits import HANG_S


def start(shell: InteractiveShell) -> None:
    import torch  # noqa: F401

    warmup.start(shell)
    shell.run_cell("")


def start_slowly(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, list[str]]:
    """Starts imports that wait for the event, and then append to the list, which cells see as `order`."""
    go, order = threading.Event(), shell.user_ns.setdefault("order", [])

    def load() -> None:
        go.wait(HANG_S)
        order.append("loaded")

    monkeypatch.setattr(warmup, "_load", load)
    start(shell)
    return go, order


def interrupt_the_wait() -> None:
    main = threading.main_thread().ident or 0
    while warmup.wait.__code__ not in [frame.f_code for frame, _ in traceback.walk_stack(sys._current_frames()[main])]:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)


def test_cell_waits_for_the_imports(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    go, order = start_slowly(shell, monkeypatch)
    threading.Timer(0.2, go.set).start()
    shell.run_cell("order.append('cell')")
    assert order == ["loaded", "cell"]
    warmup.stop(shell)
    shell.run_cell("order.append('after')")
    assert order[-1] == "after"


@pytest.mark.usefixtures("_interruptible")
@pytest.mark.parametrize("cell", ["order.append('cell')", "order.append('cell'", "%%time\norder.append('cell')"])
def test_an_interrupt_of_the_wait_ends_the_cell_and_the_next_one_waits(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, cell: str
) -> None:
    go, order = start_slowly(shell, monkeypatch)
    threading.Thread(target=interrupt_the_wait).start()
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
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


COMPILES_IN_THREADS = """
import threading
import time
import traceback
import torch
from IPython.core.interactiveshell import InteractiveShell
from kernel_magics.startup import warmup

shell = InteractiveShell.instance()
warmup.start(shell)
shell.run_cell("")
shell.run_cell("import compiler_core as cc")

def compile_and_call(call):
    return lambda: call(cc.compile(lambda x: x.sin() + 1, backend="eager", strict=True)(torch.ones(3)))

cc, results = shell.user_ns["cc"], []
for _ in range(3):
    thread = threading.Thread(target=compile_and_call(results.append))
    thread.start()
    thread.join()
    compile_and_call(results.append)()
assert len(results) == 6
"""


def test_compiles_in_threads_and_outside_of_them_after_the_imports() -> None:
    """PyTorch keeps what its first fake mode made, which must not go with the thread of the imports."""
    subprocess.run([sys.executable, "-c", COMPILES_IN_THREADS], check=True)


def test_what_cannot_be_loaded_is_left_for_later(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "MODULES", ("no.such.module", "json"))
    start(shell)
    warmup.stop(shell)
