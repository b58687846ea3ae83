"""Collects the messages of PyTorch's loggers during a compile (``logs=True``).

These are the messages that ``TORCH_LOGS=all`` prints, and those of named artifacts.  What is printed still depends on
the user's own settings only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack

from compiler_core.tools.stock.hooks import torch_internals

SKIPPED_ARTIFACTS = ("annotation", "sym_node", "trace_shape_events", "onnx_diagnostics")
"""Artifacts that are off unless named, and log every call: a hundred thousand lines for a small network."""

OnMessage = Callable[[str, str], None]
"""Called with the logger's name (see `name_of`) and the message."""


def install(stack: ExitStack, on_message: OnMessage) -> bool:
    """Calls `on_message` for each message until `stack` closes; returns False if the loggers are not known."""
    components, artifacts = torch_internals.loggers()
    handler = CallbackHandler(lambda record: on_message(name_of(logging.getLogger(record.name)), record.getMessage()))
    previous_levels = _PreviousLevels({name: logging.getLogger(name).level for name in components})
    for logger in map(logging.getLogger, components):
        for other in list(logger.handlers):
            other.addFilter(previous_levels)
            stack.callback(other.removeFilter, previous_levels)
        stack.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.DEBUG)
        _attach(stack, logger, handler)
    for logger in map(logging.getLogger, artifacts):
        if not logger.propagate and name_of(logger) not in SKIPPED_ARTIFACTS:
            _attach(stack, logger, handler)
    return bool(components)


def name_of(logger: logging.Logger) -> str:
    """Returns the artifact name of a logger if it has one, else its name without ``torch.``."""
    return getattr(logger, "artifact_name", None) or logger.name.removeprefix("torch.")


def _attach(stack: ExitStack, logger: logging.Logger, handler: logging.Handler) -> None:
    stack.callback(logger.removeHandler, handler)
    logger.addHandler(handler)


class CallbackHandler(logging.Handler):
    """Calls a function with each log record of any level."""

    def __init__(self, callback: Callable[[logging.LogRecord], None]) -> None:
        super().__init__(logging.DEBUG)
        self._callback = callback

    def emit(self, record: logging.LogRecord) -> None:
        self._callback(record)


class _PreviousLevels(logging.Filter):
    """Passes the messages that the loggers' previous levels pass."""

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
