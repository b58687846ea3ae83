"""Whether a function can read what the frame has changed: follows the names in its code and what objects refer to.

Functions and classes of libraries read their arguments and the state of libraries, so what these refer to elsewhere is
not followed; nor are the interpreter's output streams, which front ends replace by objects that reach everything.
"""

from __future__ import annotations

import contextlib
import dis
import gc
import sys
import threading
import types
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.values.builtin.constant import is_atom
from compiler_core.guards.lifetimes import is_library, module_of

if TYPE_CHECKING:
    from compiler_core.capture.values.cached_calls import Changes

_INTROSPECTION_NAMES = frozenset({"__import__", "eval", "exec", "gc", "globals", "importlib", "sys"})
"""Names of libraries through which a function can reach the program's objects."""
_MAX_OBJECTS = 10_000
"""How many objects are followed; what refers to more may read anything."""
_OPAQUE = (types.FrameType, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, threading.local)


class _MayRead(Exception):
    """The function may read a change."""


def may_read(changes: Changes, fn: Any, args: Sequence[Any]) -> bool:
    """Whether a call of `fn` with these arguments may read any of the changes."""
    if changes.context:
        return True
    pending, known = [fn, *args], set[int]()
    try:
        while pending:
            obj = pending.pop()
            if is_atom(obj) or id(obj) in known:
                continue
            known.add(id(obj))
            if id(obj) in changes.objects or len(known) > _MAX_OBJECTS:
                return True
            pending += _referents(obj, changes)
    except _MayRead:
        return True
    return False


def _referents(obj: Any, changes: Changes) -> list[Any]:
    """Returns what can be read by means of an object; raises `_MayRead` if a change can, or if that is not known."""
    if isinstance(obj, types.FunctionType):
        return [*(obj.__closure__ or ()), obj.__defaults__, obj.__kwdefaults__, vars(obj), *_named(obj, changes)]
    if isinstance(obj, types.ModuleType):
        if not is_library(obj.__name__):
            raise _MayRead
        return []
    if isinstance(obj, type):
        return [] if is_library(module_of(obj)) else [*vars(obj).values(), *obj.__bases__, type(obj)]
    if isinstance(obj, types.BuiltinFunctionType):
        return [obj.__self__]
    if isinstance(obj, types.CodeType) or any(obj is stream for stream in _streams()):
        return []
    if isinstance(obj, weakref.ReferenceType):
        return [obj()]
    if isinstance(obj, _OPAQUE) or (changes.tensors and isinstance(obj, (torch.Tensor, torch.UntypedStorage))):
        raise _MayRead
    found = [*gc.get_referents(obj), type(obj)]
    with contextlib.suppress(AttributeError):  # attributes that are stored in the object itself have no dict otherwise
        found.append(object.__getattribute__(obj, "__dict__"))
    return found


def _streams() -> Iterator[Any]:
    yield from (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)


def _named(fn: types.FunctionType, changes: Changes) -> list[Any]:
    """Returns the globals that a function names, which is not followed into libraries."""
    if is_library(str(fn.__globals__.get("__name__"))):
        return []
    names = _names(fn.__code__)
    if any((id(fn.__globals__), name) in changes.globals for name in names):
        raise _MayRead
    return [fn.__globals__[name] for name in names if name in fn.__globals__]


def _names(code: types.CodeType) -> set[str]:
    """Returns the names of globals and attributes in code and in the functions made by it."""
    names = set(code.co_names)
    if not _INTROSPECTION_NAMES.isdisjoint(names) or any(i.opname == "IMPORT_NAME" for i in dis.get_instructions(code)):
        raise _MayRead
    return names.union(*(_names(each) for each in code.co_consts if isinstance(each, types.CodeType)))
