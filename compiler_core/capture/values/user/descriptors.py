"""What reading, setting and deleting an attribute does where the class holds a descriptor for it."""

from __future__ import annotations

import functools
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Value, raised
from compiler_core.capture.values.constant import NONE
from compiler_core.capture.values.static import StaticValue
from compiler_core.capture.values.user.functions import FunctionValue, MethodValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import ClassEntry, class_entry

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.capture.values.user.objects import ObjectValue

ABSENT: Any = object()


def lookup(cls: type, name: str) -> Any:
    """What `cls` or the first of its bases that has `name` holds, or ABSENT; its metaclass does not count."""
    return class_entry(cls, name, ABSENT)


def is_data_descriptor(obj: Any) -> bool:
    return hasattr(type(obj), "__set__") or hasattr(type(obj), "__delete__")


def is_descriptor(obj: Any) -> bool:
    return hasattr(type(obj), "__get__")


def read(tx: Interpreter, found: Any, name: str, instance: Value, cls: type, place: type | None = None) -> Value:
    """``found.__get__(instance, cls)`` of the descriptor that `place`, a class among the bases, holds as `name`."""
    if isinstance(found, types.FunctionType):
        return MethodValue(FunctionValue.outside(tx.capture, found, None), instance)
    if isinstance(found, property):
        return _accessor(tx, found.fget, found, "getter", name, instance).call(tx, [instance], {})
    if isinstance(found, staticmethod):
        return tx.capture.wrap_static(found.__func__)
    if isinstance(found, classmethod):
        return MethodValue(tx.capture.wrap_static(found.__func__), StaticValue(cls))
    if isinstance(found, functools._lru_cache_wrapper):
        return MethodValue(StaticValue(found), instance)
    if isinstance(found, functools.cached_property):
        return _computed_once(tx, found, instance)
    return _user_method(tx, found, name, place or cls, "__get__", [instance, StaticValue(cls)])


def write(tx: Interpreter, found: Any, name: str, instance: ObjectValue, value: Value) -> None:
    """``found.__set__(instance, value)``"""
    if isinstance(found, types.MemberDescriptorType):
        instance.store(tx, name, value)
    elif isinstance(found, property):
        _accessor(tx, found.fset, found, "setter", name, instance).call(tx, [instance, value], {})
    else:
        _user_method(tx, found, name, instance.cls, "__set__", [instance, value])


def delete(tx: Interpreter, found: Any, name: str, instance: ObjectValue) -> None:
    """``found.__delete__(instance)``"""
    if isinstance(found, types.MemberDescriptorType):
        instance.remove(tx, name)
    elif isinstance(found, property):
        _accessor(tx, found.fdel, found, "deleter", name, instance).call(tx, [instance], {})
    else:
        _user_method(tx, found, name, instance.cls, "__delete__", [instance])


def _accessor(tx: Interpreter, function: Any, found: property, what: str, name: str, instance: Value) -> Value:
    if function is not None:
        return tx.capture.wrap_static(function)
    if type(found) is not property:
        raise Unsupported("exception", f"{name} has no {what}")
    raise raised(AttributeError, f"property {name!r} of {instance.python_type().__qualname__!r} object has no {what}")


def _computed_once(tx: Interpreter, found: functools.cached_property[Any], instance: Value) -> Value:
    value = tx.capture.wrap_static(found.func).call(tx, [instance], {})
    if found.attrname is None:
        raise Unsupported("exception", "a cached_property without a name")
    instance.store(tx, found.attrname, value)  # type: ignore[attr-defined]
    return value


def _user_method(tx: Interpreter, found: Any, name: str, cls: type, method: str, args: Sequence[Value]) -> Value:
    """Call a method of a descriptor whose class is the user's."""
    source = ClassEntry(tx.capture.held(cls, cls.__qualname__), name)
    descriptor = tx.capture.wrap(found, source)
    function = descriptor.special(tx, method)
    if function is None:
        raise Unsupported("unsupported attribute", f"{cls.__name__}.{name}, a {type(found).__name__}")
    return function.call(tx, args, {})


def of_class(tx: Interpreter, cls: type, name: str) -> Value | None:
    """``cls.name`` where code of the user's decides; None where Python's own lookup will do."""
    meta, owner = type(cls), StaticValue(cls)
    on_meta = lookup(meta, name) if meta is not type else ABSENT
    if on_meta is not ABSENT and _is_code(on_meta) and is_data_descriptor(on_meta):
        return read(tx, on_meta, name, owner, meta)
    own = lookup(cls, name)
    if own is not ABSENT:
        is_users = isinstance(getattr(type(own), "__get__", None), types.FunctionType)
        if not is_users or isinstance(own, functools.cached_property):
            return None
        return _user_method(tx, own, name, cls, "__get__", [NONE, owner])
    if on_meta is not ABSENT and _is_code(on_meta):
        return read(tx, on_meta, name, owner, meta)
    return None


def _is_code(obj: Any) -> bool:
    return isinstance(obj, (types.FunctionType, property, classmethod, staticmethod))
