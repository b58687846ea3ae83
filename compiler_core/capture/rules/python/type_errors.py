"""What Python says of operands that do not fit: asked of operands of the same types, made for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.containers import ContainerValue
from compiler_core.capture.values.constant import ConstantValue
from compiler_core.capture.values.exceptions import ExceptionValue, from_error
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


def refused_operands(op: Callable[..., Any], tx: Interpreter, *operands: Value) -> Unsupported:
    """The TypeError of ``op(*operands)``, where no operand's class has an answer."""
    unknown = Unsupported("unsupported operation", f"{op.__name__} of {' and '.join(map(str, operands))}")
    try:
        op(*(_like(tx, v) for v in operands))
    except TypeError as error:
        return from_error(error)
    except Unsupported:
        return unknown
    return unknown


def _like(tx: Interpreter, value: Value) -> Any:
    """An object that refuses what `value` would, with the same words."""
    value.look(tx)
    if isinstance(value, ConstantValue):
        return value.constant(tx)
    if isinstance(value, ContainerValue) and value.cls in (list, tuple, dict, set, frozenset):
        return value.cls()
    if type(value) in (ObjectValue, ExceptionValue):
        return type(value.python_type().__name__, (), {})()
    raise Unsupported("unsupported operation", str(value))
