"""The TypeErrors of operators for unsupported operands, taken from Python with stand-ins of the same types."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import ConstantValue, exception_from_error
from compiler_core.capture.values.builtin.containers import ContainerValue
from compiler_core.capture.values.user.exceptions import ExceptionValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


def operand_type_error(op: Callable[..., Any], tx: Interpreter, *operands: Value) -> Unsupported:
    """Returns the TypeError of ``op(*operands)``, which no operand's class supports."""
    unknown = Unsupported("unsupported operation", f"{op.__name__} of {' and '.join(map(str, operands))}")
    try:
        op(*(_stand_in(tx, v) for v in operands))
    except TypeError as error:
        return exception_from_error(error)
    except Unsupported:
        return unknown
    return unknown


def _stand_in(tx: Interpreter, value: Value) -> Any:
    """Returns an object for which Python raises the same TypeError as for `value`."""
    value.install_guards(tx)
    if isinstance(value, ConstantValue):
        return value.constant(tx)
    if isinstance(value, ContainerValue) and value.cls in (list, tuple, dict, set, frozenset):
        return value.cls()
    if type(value) in (ObjectValue, ExceptionValue):
        return type(value.python_type().__name__, (), {})()
    raise Unsupported("unsupported operation", str(value))
