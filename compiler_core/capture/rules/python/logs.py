"""Rules for loggers whose level is off: calls of them do nothing, and a guard asks the logger at each call."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from compiler_core.capture.rules.table import handles, handles_each
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
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
    if _is_enabled(tx, logger, _LEVELS[fn]) is False:
        return NONE
    raise Unsupported("print", f"{fn.__qualname__}, part of the standard library")


@handles(logging.Logger.isEnabledFor)
def _is_enabled_for(tx: Interpreter, logger: Value, level: Value) -> Value:
    enabled = _is_enabled(tx, logger, level.constant(tx))
    if enabled is None:
        raise Unsupported("unsupported call", f"isEnabledFor of {logger}")
    return ConstantValue(enabled)


def _is_enabled(tx: Interpreter, logger: Value, level: int) -> bool | None:
    """Asks a logger, with a guard, whether it is enabled for a level; None for a logger with another answer."""
    if not isinstance(logger, ObjectValue) or logger.source is None or logger.stored:
        return None
    real = logger.real
    if type(real).isEnabledFor is not logging.Logger.isEnabledFor:
        return None
    logger.install_guards(tx)
    tx.capture.guards.add("ID_MATCH", logger.source, real)
    query = tx.capture.guards.held(_query(real, level), f"partial(getLogger({real.name!r}).isEnabledFor, {level})")
    enabled: bool = real.isEnabledFor(level)
    tx.capture.guards.add("RETURNS", query, enabled)
    return enabled


@functools.lru_cache(256)  # so that the calls of a frame share a guard
def _query(logger: logging.Logger, level: int) -> functools.partial[bool]:
    """Returns what asks a logger whether it is enabled for a level."""
    return functools.partial(logger.isEnabledFor, level)
