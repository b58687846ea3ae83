"""Descriptors: reading, setting and deleting attributes for which the class has a descriptor."""

from __future__ import annotations

import functools
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Value, observed_exception
from compiler_core.capture.values.builtin.constant import NONE
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.classes import ABSENT, is_data_descriptor, lookup_in_mro
from compiler_core.capture.values.user.functions import FunctionValue, MethodValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import ClassEntrySource

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.capture.values.user.object_attributes import InstanceValue


def descriptor_get(
    tx: Interpreter, found: Any, name: str, instance: Value, cls: type, owner: type | None = None
) -> Value:
    """``found.__get__(instance, cls)``, where `found` is the entry `name` of `owner`, a class in the MRO of `cls`."""
    if isinstance(found, types.FunctionType):
        return MethodValue(FunctionValue.from_outside(tx.capture.outside, found, None), instance)
    if isinstance(found, property):
        return _accessor(tx, found.fget, found, "getter", name, instance).call(tx, [instance], {})
    if isinstance(found, staticmethod):
        return tx.capture.outside.wrap_static(found.__func__)
    if isinstance(found, classmethod):
        return MethodValue(tx.capture.outside.wrap_static(found.__func__), StaticValue(cls))
    if isinstance(found, functools._lru_cache_wrapper):
        return MethodValue(StaticValue(found), instance)
    if isinstance(found, functools.cached_property):
        return _cached_property(tx, found, instance)
    return _user_method(tx, found, name, owner or cls, "__get__", [instance, StaticValue(cls)])


def descriptor_set(tx: Interpreter, found: Any, name: str, instance: InstanceValue, value: Value) -> None:
    """``found.__set__(instance, value)``."""
    if isinstance(found, types.MemberDescriptorType):
        instance.store(tx, name, value)
    elif isinstance(found, property):
        _accessor(tx, found.fset, found, "setter", name, instance).call(tx, [instance, value], {})
    else:
        _user_method(tx, found, name, instance.cls, "__set__", [instance, value])


def descriptor_delete(tx: Interpreter, found: Any, name: str, instance: InstanceValue) -> None:
    """``found.__delete__(instance)``."""
    if isinstance(found, types.MemberDescriptorType):
        instance.remove(tx, name)
    elif isinstance(found, property):
        _accessor(tx, found.fdel, found, "deleter", name, instance).call(tx, [instance], {})
    else:
        _user_method(tx, found, name, instance.cls, "__delete__", [instance])


def _accessor(tx: Interpreter, function: Any, found: property, what: str, name: str, instance: Value) -> Value:
    """Returns the getter, setter or deleter `function` of a property; raises if it has none."""
    if function is not None:
        return tx.capture.outside.wrap_static(function)
    if type(found) is not property:
        raise Unsupported("exception", f"{name} has no {what}")
    raise observed_exception(
        AttributeError, f"property {name!r} of {instance.python_type().__qualname__!r} object has no {what}"
    )


def _cached_property(tx: Interpreter, found: functools.cached_property[Any], instance: Value) -> Value:
    value = tx.capture.outside.wrap_static(found.func).call(tx, [instance], {})
    if found.attrname is None:
        raise Unsupported("exception", "a cached_property without a name")
    instance.store(tx, found.attrname, value)  # type: ignore[attr-defined]
    return value


def _user_method(tx: Interpreter, found: Any, name: str, cls: type, method: str, args: Sequence[Value]) -> Value:
    """Calls a method of a descriptor whose class is the user's."""
    source = ClassEntrySource(tx.capture.guards.held(cls, cls.__qualname__), name)
    descriptor = tx.capture.outside.wrap(found, source)
    function = descriptor.special_method(tx, method)
    if function is None:
        raise Unsupported("unsupported attribute", f"{cls.__name__}.{name}, a {type(found).__name__}")
    return function.call(tx, args, {})


def class_attribute(tx: Interpreter, cls: type, name: str) -> Value | None:
    """Returns ``cls.name`` if a descriptor or metaclass of the user's computes it, else None."""
    meta, owner = type(cls), StaticValue(cls)
    on_meta = lookup_in_mro(meta, name) if meta is not type else ABSENT
    if on_meta is not ABSENT and _is_code(on_meta) and is_data_descriptor(on_meta):
        return descriptor_get(tx, on_meta, name, owner, meta)
    on_class = lookup_in_mro(cls, name)
    if on_class is not ABSENT:
        is_user_descriptor = isinstance(getattr(type(on_class), "__get__", None), types.FunctionType)
        if not is_user_descriptor or isinstance(on_class, functools.cached_property):
            return None
        return _user_method(tx, on_class, name, cls, "__get__", [NONE, owner])
    if on_meta is not ABSENT and _is_code(on_meta):
        return descriptor_get(tx, on_meta, name, owner, meta)
    return None


def _is_code(obj: Any) -> bool:
    return isinstance(obj, (types.FunctionType, property, classmethod, staticmethod))
