"""Rules for calls of loggers whose level is off: they do nothing, and a guard asks the logger at each call."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from compiler_core.capture.rules.table import handles_each
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import NONE
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

_LEVELS: dict[Any, int] = {
    logging.Logger.debug: logging.DEBUG,
    logging.Logger.info: logging.INFO,
    logging.Logger.warning: logging.WARNING,
    logging.Logger.error: logging.ERROR,
    logging.Logger.critical: logging.CRITICAL,
}


@handles_each(*_LEVELS)
def _log(fn: Any, tx: Interpreter, logger: Value, msg: Value, /, *args: Value, **kwargs: Value) -> Value:
    if isinstance(logger, ObjectValue) and logger.source is not None and not logger.stored:
        real = logger.real
        if type(real).isEnabledFor is logging.Logger.isEnabledFor and not real.isEnabledFor(_LEVELS[fn]):
            logger.install_guards(tx)
            tx.capture.guards.add("ID_MATCH", logger.source, real)
            query = tx.capture.guards.held(
                _query(real, _LEVELS[fn]), f"partial(getLogger({real.name!r}).isEnabledFor, {_LEVELS[fn]})"
            )
            tx.capture.guards.add("RETURNS", query, False)
            return NONE
    raise Unsupported("print", f"{fn.__qualname__}, part of the standard library")


@functools.lru_cache(256)  # so that the calls of a frame share a guard
def _query(logger: logging.Logger, level: int) -> functools.partial[bool]:
    """Returns what asks a logger whether it is enabled for a level."""
    return functools.partial(logger.isEnabledFor, level)
