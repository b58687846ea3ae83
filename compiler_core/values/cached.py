"""Calls of functions wrapped by ``functools.lru_cache``.

The cache is part of the program's state, and only a real call knows whether it has the answer.  So
the call is made while capturing, once for all, and its answer stands in the compiled code: a later
call with the same arguments would get the same one.  Changes that the frame has made so far are
not yet visible to it, so one in the function's own module breaks the graph.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.errors import Unsupported
from compiler_core.values.base import Value
from compiler_core.values.exceptions import from_error
from compiler_core.values.keys import hashable
from compiler_core.values.rules import name_of

if TYPE_CHECKING:
    from compiler_core.symbolic import Interpreter


def call_cached(tx: Interpreter, obj: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """``obj(*args, **kwargs)``"""
    raw, named = [hashable(tx, a) for a in args], {k: hashable(tx, v) for k, v in kwargs.items()}
    fn = obj.__wrapped__
    if isinstance(fn, types.FunctionType) and tx.capture.effects.touch(fn.__globals__, tx.capture.scope.f_globals):
        raise Unsupported("unsupported call", f"{name_of(obj)}, which has a cache, after a change that it might read")
    try:
        answer = obj(*raw, **named)
    except Exception as error:
        raise from_error(error) from None
    return tx.capture.wrap_static(answer)
