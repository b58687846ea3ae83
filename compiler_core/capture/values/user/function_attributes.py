"""Attributes of functions: those that Python defines, and those that the program sets."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import TYPE_CHECKING

from compiler_core.capture.values.base import Value, observed_exception
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.capture.values.user.object_attributes import InstanceDictValue, NewObjectDictValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import AttrSource

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.capture.values.user.functions import FunctionValue


def _doc(function: FunctionValue) -> Value:
    first = next(iter(function.code.co_consts), None)
    return ConstantValue(first if isinstance(first, str) else None)


# attributes of a function that the frame made
_NEW_FUNCTION_ATTRIBUTES: dict[str, Callable[[FunctionValue], Value]] = {
    "__name__": lambda f: ConstantValue(f.code.co_name),
    "__qualname__": lambda f: ConstantValue(f.name),
    "__module__": lambda f: ConstantValue(f.f_globals.get("__name__")),
    "__doc__": _doc,
    "__defaults__": lambda f: TupleValue(list(f.defaults)) if f.defaults else NONE,
    "__closure__": lambda f: TupleValue(list(f.closure)) if f.closure else NONE,
    "__type_params__": lambda f: TupleValue([]),
}
# attributes that a program may set, as ``functools.wraps`` does
_SETTABLE = ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__", "__type_params__")


def get_attribute(tx: Interpreter, function: FunctionValue, name: str) -> Value:
    """``function.name``."""
    found = _read_outside(tx, function, name) if function.fn is not None else _read_new_function(function, name)
    if found is not None:
        return found
    if inspect.getattr_static(types.FunctionType, name, None) is not None:
        raise Unsupported("unsupported attribute", f"{function}.{name}")
    raise observed_exception(AttributeError, f"'function' object has no attribute {name!r}")


def _read_outside(tx: Interpreter, function: FunctionValue, name: str) -> Value | None:
    assert function.fn is not None
    base = function.source or tx.capture.guards.held(function.fn, function.name)
    if name == "__dict__":
        return InstanceDictValue(ObjectValue(types.FunctionType, function.fn, base))
    if name in function.fn.__dict__ or name in (*_NEW_FUNCTION_ATTRIBUTES, "__kwdefaults__", "__annotations__"):
        return tx.capture.outside.wrap(getattr(function.fn, name), AttrSource(base, name))
    if not hasattr(function.fn, name):
        tx.capture.guards.add("NO_ATTRIBUTE", base, name)
    return None


def _read_new_function(function: FunctionValue, name: str) -> Value | None:
    if name == "__dict__":
        return NewObjectDictValue(function)
    if name == "__annotations__":
        return function.special_attributes.setdefault(name, DictValue({}))
    if name in function.special_attributes:
        return function.special_attributes[name]
    return _NEW_FUNCTION_ATTRIBUTES[name](function) if name in _NEW_FUNCTION_ATTRIBUTES else function.stored.get(name)


def set_attribute(function: FunctionValue, name: str, value: Value) -> None:
    """``function.name = value``."""
    if function.fn is not None:
        raise Unsupported("unsupported mutation", f"{function}.{name} of a function from outside")
    if name in _SETTABLE:
        function.special_attributes[name] = value
    elif inspect.getattr_static(types.FunctionType, name, None) is not None:
        raise Unsupported("unsupported mutation", f"{function}.{name}")
    else:
        function.stored[name] = value
