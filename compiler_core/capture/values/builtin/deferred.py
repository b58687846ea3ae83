"""Numbers and texts that Python makes of tensors once the graph has run, such as ``loss.item()`` and a text with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Value
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


class ReadValue(Value):
    """``function(*args)``, a number or text; `args` are tensors of the graph, other such values and constants."""

    def __init__(
        self, function: Callable[..., Any], args: Sequence[Value], cls: type, written: Collection[int] = ()
    ) -> None:
        self.function = function
        self.args = args
        self.cls = cls
        self.written = written
        """The memory of the graph's inputs that was written before a tensor was read."""

    def __repr__(self) -> str:
        return f"a {'text' if self.cls is str else 'number'} read from a tensor"

    def constant(self, tx: Interpreter) -> Any:
        raise Unsupported("tensor value read", f"the {self.cls.__name__} is needed now")

    def truth(self, tx: Interpreter) -> bool:
        if (found := tx.truth_of_flag(self)) is not None:
            return found
        raise Unsupported("data-dependent branch")

    def same_object(self, other: Value) -> bool:
        if self is not other and other.python_type() is self.cls:
            raise Unsupported("tensor value read", f"whether {self} is {other}")
        return self is other

    def children(self) -> Sequence[Value]:
        return self.args

    def reconstruct(self, emit: Emitter) -> None:
        emit.call_object(self.function, self.args)
