"""Operations that values reach through the interpreter, because the package that has them is built on the values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compiler_core.capture.opcodes.stack import InterpreterState
from compiler_core.capture.rules.calls import call_static
from compiler_core.capture.rules.python.container_operators import builtin_operation
from compiler_core.capture.rules.python.iteration import sorted_values
from compiler_core.capture.rules.python.text import format_operand
from compiler_core.capture.rules.torch import overrides
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import ConstantValue
from compiler_core.capture.values.builtin.iterators import IteratorValue, iterate_over
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.descriptors import class_attribute
from compiler_core.capture.values.user.enums import member_attribute
from compiler_core.capture.values.user.subclasses import contents_of


class ValueOperations(InterpreterState):
    """The operations of the interpreter that values call."""

    def list_of(self, value: Value) -> list[Value]:
        """``list(value)``"""
        return list(iterate_over(self._tx, value))

    def new_iterator(self, values: list[Value]) -> Value:
        """``iter([*values])``"""
        return IteratorValue(values)

    def call_static(self, obj: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """Calls a class, C function or other callable known by identity: ``obj(*args, **kwargs)``."""
        return call_static(self._tx, obj, args, kwargs)

    def override(self, fn: Callable[..., Any], args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
        """Returns what ``__torch_function__`` makes of ``fn(*args, **kwargs)``, or None if nothing overrides it."""
        return overrides.override(self._tx, fn, args, kwargs)

    def overridden_attribute(self, owner: Value, name: str) -> Value | None:
        """Returns ``owner.name`` of a tensor where ``__torch_function__`` decides about it, else None."""
        return overrides.overridden_attribute(self._tx, owner, name)

    def as_subclass(self, tensor: TensorValue, cls: Value) -> Value:
        """``tensor.as_subclass(cls)``"""
        return overrides.as_subclass(self._tx, tensor, cls.constant(self._tx))

    def builtin_operation(self, op: Any, left: Value, right: Value) -> Value | None:
        """``op(left, right)`` as builtin containers define it, or None if they do not."""
        return builtin_operation(op, self._tx, contents_of(left), contents_of(right))

    def sorted_values(self, values: list[Value], key: Value | None, reverse: Value | None) -> list[Value]:
        """``sorted(values, key=key, reverse=reverse)``"""
        return sorted_values(self._tx, values, key, reverse)

    def format_operand(self, value: Value) -> Any:
        """Returns the Python object that formatting `value` gives the same text as."""
        return format_operand(self._tx, value)

    def class_attribute(self, cls: type, name: str) -> Value | None:
        """Returns ``cls.name`` if a descriptor or metaclass of the user's computes it, else None."""
        return class_attribute(self._tx, cls, name)

    def enum_attribute(self, member: Value, name: str) -> Value:
        """``member.name`` for a member of an enum."""
        assert isinstance(member, ConstantValue)
        return member_attribute(self._tx, member, name)
