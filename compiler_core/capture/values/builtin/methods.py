"""Bound methods of values of builtin types."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Value

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


class NamedMethodValue(Value):
    """A bound method of a value that has ``call_method``, such as a tensor, container or constant."""

    always_true = True

    def __init__(self, owner: Any, name: str) -> None:
        self.owner = owner
        self.name = name

    def __repr__(self) -> str:
        return f"{self.owner}.{self.name}"

    def python_type(self) -> type:
        return types.BuiltinMethodType

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name == "__self__":
            assert isinstance(self.owner, Value)
            return self.owner
        return super().get_attr(tx, name)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        found: Value = self.owner.call_method(tx, self.name, list(args), kwargs)
        return found

    def children(self) -> Sequence[Value]:
        return [self.owner]

    def reconstruct(self, emit: Emitter) -> None:
        emit.value(self.owner)
        emit.load_attr(self.name)
