"""``types.SimpleNamespace``: attributes and nothing else."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from compiler_core.capture.rules.table import handles
from compiler_core.capture.values.base import UNBOUND, Value, raised
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.guards.sources import Source


class NamespaceValue(ObjectValue):
    """A SimpleNamespace, made in the frame or outside."""

    def __init__(self, real: Any = None, source: Source | None = None) -> None:
        super().__init__(types.SimpleNamespace, real, source)

    def find_attr(self, tx: Interpreter, name: str) -> Value | None:
        return self.plain_attr(tx, name)

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        self.look(tx)
        self.store(tx, name, value)

    def special(self, tx: Interpreter, name: str) -> Value | None:
        if name in vars(types.SimpleNamespace):  # comparisons and text, in C
            raise Unsupported("unsupported call", f"SimpleNamespace.{name}")
        return super().special(tx, name)

    def rebuild(self, emit: Emitter) -> None:
        emit.call_object(self.cls, [], {k: v for k, v in self.stored.items() if v is not UNBOUND})


@handles(types.SimpleNamespace)
def _namespace(tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    if args:
        raise raised(TypeError, "no positional arguments expected")
    made = NamespaceValue()
    made.stored.update(kwargs)
    return made
