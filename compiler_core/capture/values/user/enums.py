"""Attributes of members of enums.  (The members are constants.)"""

from __future__ import annotations

import enum
import inspect
import types
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Value, observed_exception
from compiler_core.capture.values.builtin.constant import ConstantValue, is_atom
from compiler_core.capture.values.builtin.methods import NamedMethodValue
from compiler_core.capture.values.classes import guard_class_attribute
from compiler_core.capture.values.user.functions import FunctionValue, MethodValue

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


def member_attribute(tx: Interpreter, member: ConstantValue, name: str) -> Value:
    """Returns an attribute of a member.  Methods and properties that its class defines in Python are captured."""
    obj = member.constant(tx)
    found = inspect.getattr_static(type(obj), name, None)
    function = found.fget if isinstance(found, property) else found
    if isinstance(function, types.FunctionType) and name not in vars(obj):
        guard_class_attribute(tx, type(obj), name, found)
        inlined = FunctionValue.from_outside(tx.capture.outside, function, None)
        return inlined.call(tx, [member], {}) if isinstance(found, property) else MethodValue(inlined, member)
    try:
        value: Any = getattr(obj, name)
    except AttributeError:
        raise observed_exception(AttributeError, f"{type(obj).__name__!r} object has no attribute {name!r}") from None
    if is_atom(value):
        return ConstantValue(value)
    if isinstance(value, (types.BuiltinMethodType, types.MethodWrapperType)) and not isinstance(found, enum.property):
        return NamedMethodValue(member, name)
    return tx.capture.outside.wrap_static(value)
