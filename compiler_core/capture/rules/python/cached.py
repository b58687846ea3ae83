"""Calls of functions wrapped by ``functools.lru_cache``.

The cache is part of the program's state, and only a real call knows whether it has the answer.  So
the call is made while capturing, once for all, and its answer stands in the compiled code: a later
call with the same arguments would get the same one.  Changes that the frame has made so far are
not yet visible to it, so after one it is called only where it surely reads none of them.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.rules.table import name_of
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.keys import hashable
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.capture.values.constant import is_atom
from compiler_core.capture.values.exceptions import from_error
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import is_library

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


def call_cached(tx: Interpreter, obj: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """``obj(*args, **kwargs)``"""
    raw, named = [_real(tx, a) for a in args], {k: _real(tx, v) for k, v in kwargs.items()}
    if obj.cache_parameters()["maxsize"] == 0:
        raise Unsupported("unsupported call", f"{name_of(obj)}, which keeps no answers")
    if tx.capture.effects and not _reads_nothing(obj.__wrapped__, [*raw, *named.values()]):
        raise Unsupported("unsupported call", f"{name_of(obj)}, which has a cache, after a change that it might read")
    try:
        answer = obj(*raw, **named)
    except Exception as error:
        raise from_error(error) from None
    return tx.capture.wrap_static(answer)


def _real(tx: Interpreter, value: Value) -> Any:
    """An argument of the call made now, which must be the same one whenever its answer is used."""
    if isinstance(value, TupleValue) and value.cls is tuple:
        return tuple(_real(tx, v) for v in value.items(tx))
    raw = hashable(tx, value)
    if not isinstance(value, (ObjectValue, TensorValue)):
        return raw
    if value.source is None:
        raise Unsupported("unsupported call", f"a function with a cache, on a {value.python_type().__name__} made here")
    tx.capture.guard("ID_MATCH", value.source, value.real)
    return value.real


_REACH_ALL = frozenset({"__import__", "eval", "exec", "gc", "globals", "importlib", "sys"})
"""Names in libraries by which a program's objects are found."""


def _reads_nothing(fn: Any, args: Sequence[Any]) -> bool:
    """Whether all that `fn` reads is its arguments and what libraries have."""
    if not isinstance(fn, types.FunctionType):
        return False
    if not all(map(is_atom, [*args, *(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()])):
        return False
    return is_library(fn.__module__ or "") or (not fn.__closure__ and _uses_only_libraries(fn.__code__, fn.__globals__))


def _uses_only_libraries(code: types.CodeType, f_globals: dict[str, Any]) -> bool:
    """Whether the globals that it may name are modules and builtins."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    found = [f_globals[name] for name in code.co_names if name in f_globals]
    imports = any(i.opname == "IMPORT_NAME" for i in dis.get_instructions(code))
    plain = all(isinstance(m, types.ModuleType) and is_library(m.__name__) for m in found)
    return (
        plain
        and not imports
        and _REACH_ALL.isdisjoint(code.co_names)
        and all(_uses_only_libraries(c, f_globals) for c in inner)
    )
