"""Short text for symbolic values, for the steps of the record.  It adds no guards."""

from __future__ import annotations

import types

from compiler_core.capture.values.base import NamedMethodValue, NullValue, UnboundValue, Value
from compiler_core.capture.values.builtin.constant import ConstantValue
from compiler_core.capture.values.builtin.containers import ContainerValue, IteratorValue, MappedIteratorValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.builtin.symbols import SymbolicValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.functions import CellValue, FunctionValue, MethodValue
from compiler_core.capture.values.user.generators import GeneratorValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.support.fx_graphs import tensor_type
from compiler_core.support.texts import safe_repr

MAX_LENGTH = 80


def describe(value: Value) -> str:
    """Returns one line with the source or node of a value and what it is: ``relu_1: f32[4, 4]``."""
    try:
        text = _text(value)
    except ValueError:  # an int of more digits than Python prints
        text = repr(value.python_type().__name__)
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 1] + "…"


def _text(value: Value) -> str:
    if isinstance(value, SymbolicValue):
        return str(value)
    if isinstance(value, ConstantValue):
        return _constant(value.value)
    if isinstance(value, TensorValue):
        return _tensor(value)
    if isinstance(value, NullValue):
        return "NULL"
    if isinstance(value, UnboundValue):
        return "unbound"
    if isinstance(value, CellValue):
        return _cell(value)
    if isinstance(value, NamedMethodValue):
        return f"{_owner_text(value.owner)}.{value.name}()"
    if isinstance(value, (MethodValue, FunctionValue)):
        return f"{value}()"
    if isinstance(value, IteratorValue):
        return _iterator(value)
    if isinstance(value, ContainerValue):
        return _named(value, _container(value))
    if isinstance(value, ObjectValue):
        return _named(value, value.cls.__name__)
    if isinstance(value, StaticValue):
        return f"code of {value.obj.co_qualname}" if isinstance(value.obj, types.CodeType) else str(value)
    return _named(value, _kind(value))


def _owner_text(value: object) -> str:
    """Returns the owner of a method: its source or node, or else its type."""
    if isinstance(value, ContainerValue) and value.source is None:
        return str(value.cls.__name__)
    return str(value)


def _cell(value: CellValue) -> str:
    if value._contents is None or isinstance(value._contents, UnboundValue):
        return "cell" if value._contents is None else "empty cell"
    return f"cell of {_text(value._contents)}"


def _named(value: Value, what: str) -> str:
    return f"{value.source.text}: {what}" if value.source is not None else what


def _kind(value: Value) -> str:
    text = repr(value)
    return text if value.source is None or value.source.text not in text else type(value).__name__.removesuffix("Value")


def _constant(value: object) -> str:
    return safe_repr(value[:MAX_LENGTH] if type(value) is str or type(value) is bytes else value)


def _tensor(value: TensorValue) -> str:
    tensor = value._fake if value._fake is not None else value.real
    name = value.source.text if value.source is not None else str(value._node)
    return f"{name}: {tensor_type(tensor)}" if tensor is not None else name


def _container(value: ContainerValue) -> str:
    contents = getattr(value, "_values", None)
    contents = getattr(value, "values", None) if contents is None else contents
    if contents is None or callable(contents):
        return str(value.cls.__name__)
    return f"{value.cls.__name__} of {len(contents)}"


def _iterator(value: IteratorValue) -> str:
    if isinstance(value, GeneratorValue):
        return f"generator {value}"
    if isinstance(value, MappedIteratorValue):
        return "iterator"
    return f"iterator, {value.index} of {len(value.values)}"
