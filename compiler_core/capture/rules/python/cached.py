"""Calls of functions wrapped by ``functools.lru_cache``.

The cache is part of the program's state, and only a real call shows whether it has the result.  So the function is
called once, during capture, and the compiled code contains its result: a later call with the same arguments would
return the same object.  The function does not see changes that the captured frame has made so far, so after a change it
is called only if it certainly does not read any.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.rules.table import name_of
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import exception_from_error, is_atom
from compiler_core.capture.values.builtin.keys import to_key
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import is_library

if TYPE_CHECKING:
    from compiler_core.capture.values.interfaces import Interpreter


def call_cached(tx: Interpreter, obj: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """``obj(*args, **kwargs)``"""
    raw, named = [_real_argument(tx, a) for a in args], {k: _real_argument(tx, v) for k, v in kwargs.items()}
    if obj.cache_parameters()["maxsize"] == 0:
        raise Unsupported("unsupported call", f"{name_of(obj)}, whose cache has no room for results")
    if tx.capture.effects and not _reads_only_arguments(obj.__wrapped__, [*raw, *named.values()]):
        raise Unsupported("unsupported call", f"{name_of(obj)}, which has a cache, after a change that it may read")
    try:
        result = obj(*raw, **named)
    except Exception as error:
        raise exception_from_error(error) from None
    return tx.capture.wrap_static(result)


def _real_argument(tx: Interpreter, value: Value) -> Any:
    """Returns an argument for the real call, guarded to be the same object whenever the result is used."""
    if isinstance(value, TupleValue) and value.cls is tuple:
        return tuple(_real_argument(tx, v) for v in value.unpack(tx))
    raw = to_key(tx, value)
    if not isinstance(value, (ObjectValue, TensorValue)):
        return raw
    if value.source is None:
        raise Unsupported("unsupported call", f"a function with a cache, on a {value.python_type().__name__} made here")
    tx.capture.guard("ID_MATCH", value.source, value.real)
    return value.real


_INTROSPECTION_NAMES = frozenset({"__import__", "eval", "exec", "gc", "globals", "importlib", "sys"})
"""Names of libraries through which a function can reach the program's objects."""


def _reads_only_arguments(fn: Any, args: Sequence[Any]) -> bool:
    """Whether `fn` reads only its arguments and the state of libraries."""
    if not isinstance(fn, types.FunctionType):
        return False
    if not all(map(is_atom, [*args, *(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()])):
        return False
    return is_library(fn.__module__ or "") or (not fn.__closure__ and _uses_only_libraries(fn.__code__, fn.__globals__))


def _uses_only_libraries(code: types.CodeType, f_globals: dict[str, Any]) -> bool:
    """Whether the code can name no globals but library modules and builtins."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    found = [f_globals[name] for name in code.co_names if name in f_globals]
    imports = any(i.opname == "IMPORT_NAME" for i in dis.get_instructions(code))
    plain = all(isinstance(m, types.ModuleType) and is_library(m.__name__) for m in found)
    return (
        plain
        and not imports
        and _INTROSPECTION_NAMES.isdisjoint(code.co_names)
        and all(_uses_only_libraries(c, f_globals) for c in inner)
    )
