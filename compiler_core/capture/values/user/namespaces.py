"""``types.SimpleNamespace``."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import UNBOUND, Value
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.guards.sources import Source


class NamespaceValue(ObjectValue):
    """A SimpleNamespace."""

    def __init__(self, real: Any = None, source: Source | None = None) -> None:
        super().__init__(types.SimpleNamespace, real, source)

    def find_attr(self, tx: Interpreter, name: str) -> Value | None:
        return self.generic_get_attr(tx, name)

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        self.install_guards(tx)
        self.store(tx, name, value)

    def special_method(self, tx: Interpreter, name: str) -> Value | None:
        if name in vars(types.SimpleNamespace):  # comparisons and repr, in C
            raise Unsupported("unsupported call", f"SimpleNamespace.{name}")
        return super().special_method(tx, name)

    def reconstruct(self, emit: Emitter) -> None:
        emit.call_object(self.cls, [], {k: v for k, v in self.stored.items() if v is not UNBOUND})
