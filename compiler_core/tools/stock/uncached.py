"""Makes stock `torch.compile` compile functions that it has compiled before."""

from __future__ import annotations

import copy
import types
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from compiler_core.tools.stock.hooks.torch_internals import lookup
from compiler_core.torch_private import dynamo_config

_NO_LIMIT = 10_000


def uncached(fn: Any) -> Any:
    """Returns a copy of a Python function with a new code object, for which stock has not compiled anything.

    Stock keeps its compiles by code object and backend.  Anything else, such as a module, is returned as it is: pass a
    new backend.
    """
    if not isinstance(fn, types.FunctionType):
        return fn
    made = types.FunctionType(fn.__code__.replace(), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    made.__kwdefaults__ = copy.copy(fn.__kwdefaults__)
    made.__dict__.update(fn.__dict__)
    return made


def without_recompile_limit() -> AbstractContextManager[None]:
    """Context manager that lets stock compile code however often it was compiled with other backends."""
    limits: AbstractContextManager[None] = dynamo_config.patch(
        recompile_limit=_NO_LIMIT, accumulated_recompile_limit=_NO_LIMIT
    )
    return limits


@contextmanager
def without_known_sizes() -> Iterator[None]:
    """Context manager in which stock has seen no sizes, so that none is symbolic because of earlier calls."""
    state = lookup("torch._dynamo.pgo")
    known = getattr(state, "_CODE_STATE", None)
    if state is not None:
        state._CODE_STATE = None
    try:
        yield
    finally:
        if state is not None:
            state._CODE_STATE = known
