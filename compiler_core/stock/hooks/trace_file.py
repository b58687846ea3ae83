"""Writes PyTorch's structured trace to a file of ours, in the format of ``TORCH_TRACE``.

Each entry is handed to the operating system at once, so that what was compiled before a process dies can be read.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compiler_core.stock.hooks.torch_internals import lookup

_TRACE_LOGGER = "torch.__trace"


class _LazyFile(logging.StreamHandler[Any]):
    """Makes its file at the first message; a fork of the process writes nothing."""

    def __init__(self, path: Path) -> None:
        logging.Handler.__init__(self)
        self.stream: Any = None
        self._path, self._process = path, os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        if os.getpid() != self._process:
            return
        if self.stream is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self.stream = self._path.open("a", encoding="utf-8", errors="backslashreplace")
        super().emit(record)


def write_trace(path: str | Path) -> Callable[[], None]:
    """Writes the trace of stock `torch.compile` to `path` from now on; returns a function that ends it.

    The file is made when something is compiled.  Does nothing if this version of PyTorch has no such trace.
    """
    formatter = lookup("torch._logging._internal", "TorchLogsFormatter")
    if formatter is None:
        return lambda: None
    logger, handler = logging.getLogger(_TRACE_LOGGER), _LazyFile(Path(path))
    handler.setFormatter(formatter(trace=True))
    logger.addHandler(handler)
    _write_known_strings()

    def stop() -> None:
        logger.removeHandler(handler)
        if handler.stream is not None:
            handler.stream.close()

    return stop


def _write_known_strings() -> None:
    """Writes the file names that earlier entries introduced; entries refer to them by number."""
    table = lookup("torch._logging.structured", "INTERN_TABLE")
    trace = lookup("torch._logging._internal", "trace_structured")
    for text, number in dict(table or {}).items():
        trace("str", lambda text=text, number=number: (text, number), suppress_context=True)
