"""Calls of functions wrapped by ``functools.lru_cache``, which capture makes; `values/cached_calls.py` says why.

The function does not see changes that the captured frame has made so far, and generated code calls it before the frame
makes them.  So after a change it is called only if it certainly does not read any, or if it does not run, because its
cache has the result.
"""

from __future__ import annotations

import dis
import gc
import types
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from compiler_core.capture.rules.table import name_of
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import exception_from_error, is_atom
from compiler_core.capture.values.builtin.keys import to_key
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.capture.values.cached_calls import CachedCall, ExpectedOutcome, Outcome, SourcedArgument
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import is_library
from compiler_core.guards.sources import Box

if TYPE_CHECKING:
    from compiler_core.capture.values.interfaces import Interpreter


def call_cached(tx: Interpreter, obj: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """``obj(*args, **kwargs)``"""
    capture, log = tx.capture, tx.capture.cached_calls
    given, named = [_argument(tx, a) for a in args], {k: _argument(tx, v) for k, v in kwargs.items()}
    raw, raw_named = [_real(a) for a in given], {k: _real(v) for k, v in named.items()}
    if obj.cache_parameters()["maxsize"] == 0:
        raise Unsupported("unsupported call", f"{name_of(obj)}, whose cache has no room for results")
    if capture.has_changes() and not _reads_only_arguments(obj.__wrapped__, [*raw, *raw_named.values()]):
        has_result = _finder(obj, tuple(raw), raw_named, calls_before=sum(c.function is obj for c in log.calls))
        if not has_result():
            raise Unsupported("unsupported call", f"{name_of(obj)}, which has a cache, after a change that it may read")
        capture.guard("RETURNS", capture.held(has_result, f"the cache of {name_of(obj)} has the result"), True)
    if capture.overrides.modes:
        raise Unsupported("unsupported call", f"{name_of(obj)}, which has a cache, under a mode of the frame")
    outcome = log.next_outcome(obj)
    if outcome is None:
        if log.changes.are_frequent(obj):
            raise Unsupported("unsupported call", f"{name_of(obj)}, whose cache has had other results in later calls")
        outcome = Outcome.of_call(obj, raw, raw_named)
        log.outcomes.append(outcome)
        if outcome.missed and not capture.guards_hold():
            raise Unsupported("unsupported call", f"{name_of(obj)}, which changed what the frame has read")
    held = partial(capture.held, name=name_of(obj))
    result = Box(outcome.result) if is_atom(outcome.result) else held(outcome.result).box
    error = outcome.error and (held(type(outcome.error)).box, outcome.error.args)
    expected = ExpectedOutcome(name_of(obj), tuple(capture.state_changes), result, error)
    log.calls.append(CachedCall(obj, given, named, expected))
    if outcome.error is not None:
        raise exception_from_error(outcome.error) from None
    return capture.wrap_static(outcome.result)


def _argument(tx: Interpreter, value: Value) -> Any:
    """Returns an argument as a `CachedCall` has it, guarded to be the same object whenever the result is used."""
    if isinstance(value, TupleValue) and value.cls is tuple:
        return tuple(_argument(tx, v) for v in value.unpack(tx))
    raw = to_key(tx, value)
    if not isinstance(value, (ObjectValue, TensorValue)):
        if isinstance(raw, Value):
            raise _made_here(value)
        return raw
    if value.source is None:
        raise _made_here(value)
    tx.capture.guard("ID_MATCH", value.source, value.real)
    return SourcedArgument(value)


def _made_here(value: Value) -> Unsupported:
    return Unsupported("unsupported call", f"a function with a cache, on a {value.python_type().__name__} made here")


def _real(arg: Any) -> Any:
    if isinstance(arg, SourcedArgument):
        return arg.value.real
    return tuple(map(_real, arg)) if type(arg) is tuple else arg


def _finder(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], calls_before: int) -> Callable[[], bool]:
    """Returns a function that looks whether the cache of `fn` has the result of a call, and so many calls before it
    cannot evict it.  To look is not counted as a call.

    The cache is a dict that only the garbage collector shows.  Its keys are those of ``functools._make_key`` but for
    the class of tuples.  Arguments are constants: other ones would be kept alive.
    """
    referents: list[Any] = [r for r in gc.get_referents(fn) if r is not vars(fn)]
    caches: list[Any] = [r for r in referents if type(r) is dict]
    marks = [r for r in referents if type(r) is object]
    if not _are_atoms([*args, *kwargs.values()]) or len(caches) != 1 or len(marks) != 1:
        return lambda: False
    key: Any = args
    if kwargs:
        key += (*marks, *(part for item in kwargs.items() for part in item))
    if fn.cache_parameters()["typed"]:
        key += tuple(map(type, [*args, *kwargs.values()]))
    elif len(key) == 1 and type(key[0]) in (str, int):
        (key,) = key
    (results,) = caches
    size = fn.cache_parameters()["maxsize"]
    return lambda: key in results and (size is None or len(results) + calls_before <= size)


def _are_atoms(args: Sequence[Any]) -> bool:
    return all(_are_atoms(arg) if type(arg) is tuple else is_atom(arg) for arg in args)


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
