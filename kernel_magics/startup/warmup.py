"""Loads PyTorch's heavy parts while the person is still typing.

Two threads that import the same packages can meet half-made modules, so a cell that starts
meanwhile waits: the loading is in the background only for as long as nothing runs.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from typing import Any

HEAVY = (
    "compiler_core.api.compile",
    "compiler_core.autograd.autograd_function",
    "compiler_core.autograd.joint",
    "compiler_core.backends.kernels",
    "compiler_core.autograd.partition",
    "networkx",
    "torch.fx.experimental.proxy_tensor",
    "kernel_magics.display.explorer",
)

_thread: threading.Thread | None = None


def start(shell: Any) -> None:
    """Begin to load."""
    global _thread
    if _thread is not None:
        return
    _thread = threading.Thread(target=_load, name="cutaway-warmup", daemon=True)
    shell.events.register("pre_run_cell", wait)
    _thread.start()


def stop(shell: Any) -> None:
    """Wait for the end of it, and forget it."""
    global _thread
    wait()
    with contextlib.suppress(ValueError):
        shell.events.unregister("pre_run_cell", wait)
    _thread = None


def wait(*_: Any) -> None:
    """Until all is loaded."""
    if _thread is not None:
        _thread.join()


def _load() -> None:
    for name in HEAVY:
        # what cannot be loaded is met again, and reported, where it is needed
        with contextlib.suppress(Exception):
            importlib.import_module(name)
