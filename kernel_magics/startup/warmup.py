"""Imports the slow parts of PyTorch and of the compiler in the background, while the user types.

Two threads that import the same packages can see partially initialised modules, so a cell that starts
during the import waits for its end.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
import threading
import time
from typing import Any

MODULES = (
    "compiler_core.api.compile",
    "networkx",
    "torch.fx.experimental.proxy_tensor",
    "kernel_magics.display.explorer",
)

POLL_S = 0.005
"""Seconds between two looks at whether the imports have ended."""
RESEND_S = 0.01
"""Seconds after which an interrupt is sent again."""

_thread: threading.Thread | None = None
_is_loading = False


def start(shell: Any) -> None:
    """Starts the import thread, once."""
    global _thread, _is_loading
    if _thread is not None:
        return
    _is_loading = True
    _thread = threading.Thread(target=_run, name="cutaway-warmup", daemon=True)
    shell.events.register("pre_run_cell", wait)
    _thread.start()


def stop(shell: Any) -> None:
    """Waits for the import thread and removes the callback."""
    global _thread
    wait()
    with contextlib.suppress(ValueError):
        shell.events.unregister("pre_run_cell", wait)
    _thread = None


def wait(*_: Any) -> None:
    """Waits until the imports have ended.

    IPython drops an interrupt of a callback and runs the cell, so one that arrives here is sent again, to the cell.  It
    waits for the imports, since otherwise two threads would import the same modules.  It asks no method of the thread:
    until Python 3.12, one that is interrupted takes the thread for one that has ended.
    """
    is_interrupted = False
    while _is_loading:
        try:
            while _is_loading:
                time.sleep(POLL_S)
        except KeyboardInterrupt:
            is_interrupted = True
    if is_interrupted:
        main = threading.main_thread().ident or 0
        threading.Timer(RESEND_S, signal.pthread_kill, (main, signal.SIGINT)).start()


def _run() -> None:
    global _is_loading
    try:
        _load()
    finally:
        _is_loading = False


def _load() -> None:
    for name in MODULES:
        # an import that fails is repeated, and reported, where the module is needed
        with contextlib.suppress(Exception):
            importlib.import_module(name)
