"""Writes PyTorch's structured trace to a file of ours, in the format of ``TORCH_TRACE``.

Each entry is handed to the operating system at once, so that what was compiled before a process dies can be read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from compiler_core.tools.growing_file import GrowingFile
from compiler_core.tools.stock.hooks.torch_internals import lookup

_TRACE_LOGGER = "torch.__trace"


class _TraceHandler(logging.Handler):
    """Writes each message to a file, which is made at the first one."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = GrowingFile(path)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._file.write(self.format(record) + "\n")
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        self._file.close()
        super().close()


def write_trace(path: str | Path) -> Callable[[], None]:
    """Writes the trace of stock `torch.compile` to `path` from now on; returns a function that ends it.

    The file is made when something is compiled.  Does nothing if this version of PyTorch has no such trace.
    """
    formatter = lookup("torch._logging._internal.TorchLogsFormatter")
    if formatter is None:
        return lambda: None
    logger, handler = logging.getLogger(_TRACE_LOGGER), _TraceHandler(Path(path))
    handler.setFormatter(formatter(trace=True))
    logger.addHandler(handler)
    _write_known_strings()

    def stop() -> None:
        logger.removeHandler(handler)
        handler.close()

    return stop


def _write_known_strings() -> None:
    """Writes the file names that earlier entries introduced; entries refer to them by number."""
    table = lookup("torch._logging.structured.INTERN_TABLE")
    trace = lookup("torch._logging._internal.trace_structured")
    for text, number in dict(table or {}).items():
        trace("str", lambda text=text, number=number: (text, number), suppress_context=True)
