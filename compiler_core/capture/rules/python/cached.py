"""Calls of functions wrapped by ``functools.lru_cache``, which capture makes; `values/cached_calls.py` says why.

The function does not see changes that the captured frame has made so far, and generated code calls it before the frame
makes them.  So after a change it is called only if it certainly does not read any (`reachable`), or if it does not run,
because its cache has the result; and so is one that may change what the frame has read before.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from compiler_core.capture.rules.python.reachable import may_change, may_reach
from compiler_core.capture.rules.table import name_of
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import exception_from_error, is_atom
from compiler_core.capture.values.builtin.keys import to_key
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.capture.values.cached_calls import CachedCall, ExpectedOutcome, Outcome, SourcedArgument
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import Box, LocalSource, root_source

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


def call_cached(tx: Interpreter, obj: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """``obj(*args, **kwargs)``"""
    capture, log = tx.capture, tx.capture.cached_calls
    given, named = [_argument(tx, a) for a in args], {k: _argument(tx, v) for k, v in kwargs.items()}
    raw, raw_named = [_real(a) for a in given], {k: _real(v) for k, v in named.items()}
    if obj.cache_parameters()["maxsize"] == 0:
        raise Unsupported("unsupported call", f"{name_of(obj)}, whose cache has no room for results")
    changes, values = capture.changes(), [*raw, *raw_named.values()]
    why = "after a change that it may read" if changes and may_reach(changes, obj.__wrapped__, values) else ""
    if not why and may_change(capture.reads(), obj.__wrapped__, values):
        why = "which may change what was read before"
    if why:
        has_result = _finder(obj, tuple(raw), raw_named, calls_before=sum(c.function is obj for c in log.calls))
        source = capture.guards.held(has_result, f"{name_of(obj)}.cache_has_result")
        if not has_result():
            if not any(map(_is_of_caller, [*given, *named.values()])):
                capture.awaited.append(source)
            raise Unsupported("unsupported call", f"{name_of(obj)}, which has a cache, {why}")
        capture.guards.add("RETURNS", source, True)
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
    held = partial(capture.guards.held, name=name_of(obj))
    result = Box(outcome.result) if is_atom(outcome.result) else held(outcome.result).box
    error = None if outcome.error is None else (held(type(outcome.error)).box, outcome.error.args)
    expected = ExpectedOutcome(name_of(obj), tuple(capture.graph.state_changes), result, error)
    log.calls.append(CachedCall(obj, given, named, expected))
    if outcome.error is not None:
        raise exception_from_error(outcome.error) from None
    return capture.outside.wrap_static(outcome.result)


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
    tx.capture.guards.add("ID_MATCH", value.source, value.real)
    return SourcedArgument(value)


def _made_here(value: Value) -> Unsupported:
    return Unsupported("unsupported call", f"a function with a cache, on a {value.python_type().__name__} made here")


def _is_of_caller(arg: Any) -> bool:
    """Whether an argument is an object that the caller passed, which may be another one in each call."""
    return isinstance(arg, SourcedArgument) and isinstance(root_source(arg.value.source), LocalSource)


def _real(arg: Any) -> Any:
    if isinstance(arg, SourcedArgument):
        return arg.value.real
    return tuple(map(_real, arg)) if type(arg) is tuple else arg


def _finder(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], calls_before: int) -> Callable[[], bool]:
    """Returns a function that looks whether the cache of `fn` has the result of a call, and so many calls before it
    cannot evict it.  To look is not counted as a call.

    The cache is a dict that only the garbage collector shows.  Its keys are those of ``functools._make_key`` but for
    the class of tuples.
    """
    referents: list[Any] = [r for r in gc.get_referents(fn) if r is not vars(fn)]
    caches: list[Any] = [r for r in referents if type(r) is dict]
    marks = [r for r in referents if type(r) is object]
    if len(caches) != 1 or len(marks) != 1:
        return lambda: False
    parts: list[Any] = [*args]
    if kwargs:
        parts += (*marks, *(part for item in kwargs.items() for part in item))
    if fn.cache_parameters()["typed"]:
        parts += map(type, [*args, *kwargs.values()])
    is_single = len(parts) == 1 and type(parts[0]) in (str, int)
    references = [_reference(part) for part in parts]
    (results,) = caches
    size = fn.cache_parameters()["maxsize"]

    def has_result() -> bool:
        key: Any = tuple(refer() for refer in references if refer is not None)
        if len(key) < len(references):
            return False
        is_there = (key[0] if is_single else key) in results
        return is_there and (size is None or len(results) + calls_before <= size)

    return has_result


def _reference(part: Any) -> Callable[[], Any] | None:
    """Returns a function that returns a part of a key, which it does not keep alive if the program may drop it.

    Returns None for a part whose comparison might run code of the program."""
    if _is_constant(part) or type(part) is object:
        return lambda: part
    cls = type(part)
    is_compared_by_identity = [cls.__hash__, cls.__eq__] == [object.__hash__, object.__eq__]
    return weakref.ref(part) if is_compared_by_identity and cls.__weakrefoffset__ else None


def _is_constant(part: Any) -> bool:
    return all(map(_is_constant, part)) if type(part) is tuple else is_atom(part)
