"""Calls of functions wrapped by ``functools.lru_cache``; `values/cached_calls.py` says where they are made.

A function that runs does not see changes that the captured frame has made so far: it runs at capture, and generated
code calls it before the frame makes them.  So after a change it is called only if it certainly does not read any, or if
its cache has the result; and so is one that may change what the frame has read before.

What a function can reach are the names in its code and what objects refer to.  Functions and classes of libraries read
their arguments and the state of libraries, so what these refer to elsewhere is not followed; nor are the interpreter's
output streams, which front ends replace by objects that reach everything.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import gc
import inspect
import sys
import threading
import types
import weakref
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.rules.table import name_of
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import exception_from_error, is_atom
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.capture.values.cached_calls import (
    CachedCall,
    ExpectedOutcome,
    OutsideState,
    SourcedArgument,
    finder,
)
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported
from compiler_core.guards import GuardSpec
from compiler_core.guards.lifetimes import is_library, module_of
from compiler_core.guards.sources import Box, GlobalSource, LocalSource, Scope, root_source

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
        has_result = finder(obj, tuple(raw), raw_named, calls_before=sum(c.function is obj for c in log.calls))
        source = capture.guards.held(has_result, f"{name_of(obj)}.cache_has_result")
        if not has_result():
            if not any(map(_is_of_caller, [*given, *named.values()])):
                capture.awaited.append(("RETURNS", source, False))
            raise Unsupported("unsupported call", f"{name_of(obj)}, which has a cache, {why}")
        capture.guards.add("RETURNS", source, True)
    if capture.overrides.modes:
        raise Unsupported("unsupported call", f"{name_of(obj)}, which has a cache, under a mode of the frame")
    outcome = log.next_outcome(obj, raw, raw_named)
    if outcome is None:
        if log.changes.are_frequent(obj):
            raise Unsupported("unsupported call", f"{name_of(obj)}, whose cache has had other results in later calls")
        outcome = log.outcome(obj, raw, raw_named, capture.overrides.enabled)
        if outcome.missed and not capture.guards_hold():
            raise Unsupported("unsupported call", f"{name_of(obj)}, which changed what the frame has read")
    held = partial(capture.guards.held, name=name_of(obj))
    result = Box(outcome.result) if is_atom(outcome.result) else held(outcome.result).box
    error = None if outcome.error is None else (held(type(outcome.error)).box, outcome.error.args)
    expected = ExpectedOutcome(name_of(obj), tuple(capture.graph.state_changes), result, error)
    log.calls.append(CachedCall(obj, given, named, expected))
    if outcome.error is not None:
        raise exception_from_error(outcome.error) from None
    return capture.outside.wrap(outcome.result)


def _argument(tx: Interpreter, value: Value) -> Any:
    """Returns an argument as a `CachedCall` has it, guarded to be the same object whenever the result is used."""
    if isinstance(value, TupleValue) and value.cls is tuple:
        return tuple(_argument(tx, v) for v in value.unpack(tx))
    raw = value.as_key(tx)
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


_INTROSPECTION_NAMES = frozenset({"__import__", "eval", "exec", "gc", "globals", "importlib", "sys"})
"""Names of libraries through which a function can reach the program's objects."""
_MAX_OBJECTS = 10_000
"""How many objects are followed; what refers to more may read anything."""
_OPAQUE = (types.FrameType, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, threading.local)
_WRITES = frozenset(f"{verb}_{what}" for verb in ("STORE", "DELETE") for what in ("ATTR", "SUBSCR", "GLOBAL", "DEREF"))
"""Instructions that change what a function did not make itself, or may do so."""
_WRITING_NAMES = frozenset(
    {*dir(list), *dir(set), *dir(dict), "setattr", "delattr", "vars", "__dict__", "appendleft", "popleft", "write"}
) - {*dir(tuple), *dir(frozenset), *dir(types.MappingProxyType)}
"""Names of functions and methods that change an object."""
_WRAPPERS = (staticmethod, classmethod, property, functools.partial, functools.cached_property)
_CODE = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)


class _MayReach(Exception):
    """The function may reach what is asked for."""


def state_read(guards: Iterable[GuardSpec], scope: Scope, tensors: bool) -> OutsideState:
    """Returns what a frame with these guards has read outside of it, but for functions, classes and modules.

    `tensors`: whether it has read memory of tensors.
    """
    objects, variables = set[int](), set[tuple[int, str]]()
    for guard in guards:
        source, value = guard.source, guard.fetch(scope)
        if isinstance(value, _CODE):
            continue
        objects.add(id(value))
        if isinstance(source, LocalSource) and source.name in scope.closure:
            objects.add(id(scope.closure[source.name]))
        if isinstance(source, GlobalSource):
            variables.add((id(scope.f_globals if source.module is None else source.module.fetch(scope)), source.name))
        elif (base := getattr(source, "base", None)) is not None:
            objects.add(id(base.fetch(scope)))
    return OutsideState(frozenset(objects), frozenset(variables), False, tensors)


def may_change(read: OutsideState, fn: Any, args: Sequence[Any]) -> bool:
    """Whether a call of `fn` with these arguments may change any of what was read: it, or a function that it names, has
    code that changes something, and it may reach what was read."""
    return bool(read) and _writes([fn, *args]) and may_reach(read, fn, args)


def may_reach(state: OutsideState, fn: Any, args: Sequence[Any]) -> bool:
    """Whether a call of `fn` with these arguments may reach any of the state."""
    if state.context:
        return True
    pending, known = [fn, *args], set[int]()
    try:
        while pending:
            obj = pending.pop()
            if is_atom(obj) or id(obj) in known:
                continue
            known.add(id(obj))
            if id(obj) in state.objects or len(known) > _MAX_OBJECTS:
                return True
            pending += _referents(obj, state)
    except _MayReach:
        return True
    return False


def _referents(obj: Any, state: OutsideState) -> list[Any]:
    """Returns what can be read by means of an object; raises `_MayReach` if the state can, or if that is not known."""
    if isinstance(obj, types.FunctionType):
        return [*(obj.__closure__ or ()), obj.__defaults__, obj.__kwdefaults__, vars(obj), *_named(obj, state)]
    if isinstance(obj, types.ModuleType):
        if not is_library(obj.__name__):
            raise _MayReach
        return []
    if isinstance(obj, type):
        return [] if is_library(module_of(obj)) else [*vars(obj).values(), *obj.__bases__, type(obj)]
    if isinstance(obj, types.BuiltinFunctionType):
        return [obj.__self__]
    streams = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    if isinstance(obj, types.CodeType) or any(obj is stream for stream in streams):
        return []
    if isinstance(obj, weakref.ReferenceType):
        return [obj()]
    if isinstance(obj, _OPAQUE) or (state.tensors and isinstance(obj, (torch.Tensor, torch.UntypedStorage))):
        raise _MayReach
    found = [*gc.get_referents(obj), type(obj)]
    with contextlib.suppress(AttributeError):  # attributes that are stored in the object itself have no dict otherwise
        found.append(object.__getattribute__(obj, "__dict__"))
    return found


def _named(fn: types.FunctionType, state: OutsideState) -> list[Any]:
    """Returns the globals that a function names, which is not followed into libraries."""
    if is_library(str(fn.__globals__.get("__name__"))):
        return []
    names = _names(fn.__code__)
    if any((id(fn.__globals__), name) in state.globals for name in names):
        raise _MayReach
    return [fn.__globals__[name] for name in names if name in fn.__globals__]


def _names(code: types.CodeType) -> set[str]:
    """Returns the names of globals and attributes in code and in the functions made by it."""
    codes = list(_codes(code))
    names = set[str]().union(*(each.co_names for each in codes))
    imports = any(i.opname == "IMPORT_NAME" for each in codes for i in dis.get_instructions(each))
    if imports or not _INTROSPECTION_NAMES.isdisjoint(names):
        raise _MayReach
    return names


def _writes(objects: list[Any]) -> bool:
    """Whether a function among these objects, or one of the program's that their code names, may change something."""
    known: dict[int, Any] = {}
    names: set[str] = set()
    while objects:
        known |= {id(obj): obj for obj in objects}
        codes = [c for obj in objects if isinstance(obj, types.FunctionType) for c in _codes(obj.__code__)]
        names.update(*(code.co_names for code in codes))
        if len(known) > _MAX_OBJECTS or any(map(_changes_something, codes)):
            return True
        found = (value for obj in known.values() for value in _values(obj, names))
        objects = [value for value in found if id(value) not in known and not _is_of_library(value)]
    return False


def _changes_something(code: types.CodeType) -> bool:
    of_tensors = (name for name in code.co_names if name.endswith("_") and not name.startswith("_"))
    if any(of_tensors) or not _WRITING_NAMES.isdisjoint(code.co_names):
        return True
    found = dis.get_instructions(code)
    return any(i.opname in _WRITES or (i.opname == "BINARY_OP" and i.argrepr.endswith("=")) for i in found)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _codes(each)


def _values(obj: Any, names: Iterable[str]) -> Iterator[Any]:
    """Yields the values of these names that code reads by means of an object."""
    if isinstance(obj, types.FunctionType):
        yield from (value for cell in obj.__closure__ or () for value in gc.get_referents(cell))
        yield from (obj.__globals__[name] for name in names if name in obj.__globals__)
    for name in names:
        value = inspect.getattr_static(obj, name, None)
        yield from [value, *gc.get_referents(value)] if isinstance(value, _WRAPPERS) else [value]


def _is_of_library(obj: Any) -> bool:
    if isinstance(obj, types.FunctionType):
        return is_library(str(obj.__module__))
    return isinstance(obj, type) and is_library(module_of(obj))
