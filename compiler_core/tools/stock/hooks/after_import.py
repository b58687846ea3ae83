"""Calls functions after the program has imported a module of PyTorch, so that observing the module does not import it.

PyTorch's modules import one another in circles, so a module may be in `sys.modules` before it and its imports are
complete.  Functions are therefore called when the outermost import has ended; that may be of a module of ours, which
the functions may need.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
import types
from collections.abc import Callable
from importlib.machinery import ModuleSpec, SourceFileLoader
from typing import Any

_PACKAGES = ("torch", "compiler_core")


def call_after_import(name: str, callback: Callable[[], Any]) -> Callable[[], None]:
    """Calls `callback` once the module `name` of PyTorch is imported, at once if it is.

    Returns:
        A function after which `callback` is not called any more.
    """
    if name in sys.modules:
        callback()
        return lambda: None
    waiting = (name, callback)
    _finder.waiting.append(waiting)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)

    def cancel() -> None:
        if waiting in _finder.waiting:
            _finder.waiting.remove(waiting)

    return cancel


class _OutermostImport(importlib.abc.MetaPathFinder):
    """A finder that calls functions after each outermost import of PyTorch's or our modules, which others find."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, Callable[[], Any]]] = []
        self._is_running = self._is_looking = False

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        is_inner = self._is_running or self._is_looking
        if is_inner or not self.waiting or fullname.partition(".")[0] not in _PACKAGES:
            return None
        self._is_looking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_looking = False
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            self._call_after(spec.loader)
        return spec

    def _call_after(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            del loader.exec_module
            self._is_running = True
            try:
                execute(module)
            finally:
                self._is_running = False
            self._call_waiting()

        loader.exec_module = exec_module

    def _call_waiting(self) -> None:
        for waiting in list(self.waiting):
            if waiting in self.waiting and waiting[0] in sys.modules:  # a callback may import more
                self.waiting.remove(waiting)
                waiting[1]()
        if not self.waiting and self in sys.meta_path:
            sys.meta_path.remove(self)


_finder = _OutermostImport()
