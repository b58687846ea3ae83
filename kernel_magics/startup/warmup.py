"""Imports the slow parts of PyTorch and of the compiler in the background, while the user types.

It starts when a cell has imported PyTorch: loading the extension alone takes no time and little memory.

Two threads that import the same packages can see partially initialised modules, so a cell that starts
during the import waits for its end.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from compiler_core.support import fork_locks  # noqa: F401 - a fork during the imports waits for them

MODULES = (
    "compiler_core.api.compile",
    "networkx",
    "torch.fx.experimental.proxy_tensor",
    "kernel_magics.display.explorer",
)

POLL_S = 0.005
"""Seconds between two looks at whether the imports have ended."""

_thread: threading.Thread | None = None
_is_loading = False
_on_cell_start: Callable[..., None] | None = None
_on_cell_end: Callable[..., None] | None = None


def start(shell: Any) -> None:
    """Starts the import thread, once: at the end of the first cell after which PyTorch is imported."""
    global _on_cell_end
    if _thread is not None or _on_cell_end is not None:
        return
    _on_cell_end = functools.partial(_start_if_torch_is_there, shell)
    shell.events.register("post_run_cell", _on_cell_end)


def _start_if_torch_is_there(shell: Any, *_: Any) -> None:
    global _thread, _is_loading, _on_cell_start
    if "torch" not in sys.modules:
        return
    from compiler_core.support.torch_state import set_device_guard

    _forget_cell_end(shell)
    set_device_guard()  # not in the thread, which ends
    _is_loading = True
    _thread = threading.Thread(target=_run, name="cutaway-warmup", daemon=True)
    _on_cell_start = functools.partial(_wait_or_interrupt, shell)
    shell.events.register("pre_run_cell", _on_cell_start)
    _thread.start()


def _forget_cell_end(shell: Any) -> None:
    global _on_cell_end
    with contextlib.suppress(ValueError):
        shell.events.unregister("post_run_cell", _on_cell_end)
    _on_cell_end = None


def stop(shell: Any) -> None:
    """Waits for the import thread and removes the callback."""
    global _thread
    wait()
    _forget_cell_end(shell)
    with contextlib.suppress(ValueError):
        shell.events.unregister("pre_run_cell", _on_cell_start)
    _thread = None


def wait() -> None:
    """Waits until the imports have ended.

    It does not call `Thread.join`: until Python 3.12, an interrupted `join` marks a running thread as ended.
    """
    while _is_loading:
        time.sleep(POLL_S)


def _wait_or_interrupt(shell: Any, *_: Any) -> None:
    """Waits when a cell starts.

    IPython ignores exceptions of callbacks and runs the cell.  So after an interrupt, the cell's code is replaced by
    code that raises it.
    """
    try:
        wait()
    except KeyboardInterrupt:
        transformer = _InterruptedCell()
        shell.ast_transformers.append(transformer)

        def remove(_: object) -> None:
            shell.ast_transformers.remove(transformer)
            shell.events.unregister("post_run_cell", remove)

        shell.events.register("post_run_cell", remove)


class _InterruptedCell(ast.NodeTransformer):
    """Replaces the code of a cell."""

    def visit(self, _: ast.AST) -> ast.AST:
        return ast.parse("raise KeyboardInterrupt")


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
