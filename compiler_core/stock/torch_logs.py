"""All that PyTorch's loggers say about a compile, where that was asked for: what ``TORCH_LOGS=all`` prints, and its
named artifacts.  What the user's own settings print is printed as ever, and nothing else is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack

from compiler_core.stock import versions

SILENT = ("annotation", "sym_node", "trace_shape_events", "onnx_diagnostics")
"""Artifacts that are off unless named, and that tell of every single call: a hundred thousand lines for a small net."""

Hear = Callable[[str, str], None]
"""Gets the log's name, an artifact's own where it is one, and what was said."""


def install(stack: ExitStack, hear: Hear) -> bool:
    """Listen until `stack` closes; False where this PyTorch does not say which loggers it has."""
    components, artifacts = versions.loggers()
    handler = Listener(lambda record: hear(name_of(logging.getLogger(record.name)), record.getMessage()))
    before = {name: logging.getLogger(name).level for name in components}
    only = _AsBefore(before)
    for logger in map(logging.getLogger, components):
        for other in list(logger.handlers):
            other.addFilter(only)
            stack.callback(other.removeFilter, only)
        stack.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.DEBUG)
        _attach(stack, logger, handler)
    for logger in map(logging.getLogger, artifacts):
        if not logger.propagate and name_of(logger) not in SILENT:
            _attach(stack, logger, handler)
    return bool(components)


def name_of(logger: logging.Logger) -> str:
    return getattr(logger, "artifact_name", None) or logger.name.removeprefix("torch.")


def _attach(stack: ExitStack, logger: logging.Logger, handler: logging.Handler) -> None:
    stack.callback(logger.removeHandler, handler)
    logger.addHandler(handler)


class Listener(logging.Handler):
    """Hands on what it is told."""

    def __init__(self, hear: Callable[[logging.LogRecord], None]) -> None:
        super().__init__(logging.DEBUG)
        self._hear = hear

    def emit(self, record: logging.LogRecord) -> None:
        self._hear(record)


class _AsBefore(logging.Filter):
    """Lets through what the user's levels let through."""

    def __init__(self, levels: dict[str, int]) -> None:
        super().__init__()
        self._levels = levels

    def filter(self, record: logging.LogRecord) -> bool:
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if level := self._levels.get(logger.name, logger.level):
                return record.levelno >= level
            logger = logger.parent
        return True
