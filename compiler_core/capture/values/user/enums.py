"""Members of enums, which are constants, and their classes."""

from __future__ import annotations

import enum
import inspect
import types
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Value, raised
from compiler_core.capture.values.constant import ConstantValue, is_atom
from compiler_core.capture.values.user.classes import guard_class
from compiler_core.capture.values.user.functions import FunctionValue, MethodOfValue, MethodValue

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


def member_attribute(tx: Interpreter, member: ConstantValue, name: str) -> Value:
    """An attribute of a member: what its class defines in Python is captured as that of any object."""
    obj = member.constant(tx)
    found = inspect.getattr_static(type(obj), name, None)
    function = found.fget if isinstance(found, property) else found
    if isinstance(function, types.FunctionType) and name not in vars(obj):
        guard_class(tx, type(obj), name, found)
        inlined = FunctionValue.outside(tx.capture, function, None)
        return inlined.call(tx, [member], {}) if isinstance(found, property) else MethodValue(inlined, member)
    try:
        value: Any = getattr(obj, name)
    except AttributeError:
        raise raised(AttributeError, f"{type(obj).__name__!r} object has no attribute {name!r}") from None
    if is_atom(value):
        return ConstantValue(value)
    if isinstance(value, (types.BuiltinMethodType, types.MethodWrapperType)) and not isinstance(found, enum.property):
        return MethodOfValue(member, name)
    return tx.capture.wrap_static(value)
