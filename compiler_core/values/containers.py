"""What lists, tuples, dicts and sets have in common.

A container from outside is read once, item by item and lazily, into values whose sources are
items of it; from then on the values are the truth, and a mutation is replayed after the graph
has run (`side_effects.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.errors import Unsupported
from compiler_core.values.base import Value

if TYPE_CHECKING:
    from compiler_core.reconstruct import Emitter
    from compiler_core.symbolic import Interpreter


class ContainerValue(Value):
    """What sequences, dicts and sets share: the outside object they mirror, and methods by name."""

    cls: type
    real: Any = None
    mutable = False

    def python_type(self) -> type:
        return self.cls

    def load(self, tx: Interpreter) -> None:
        """Guard the structure and mirror the contents, if this was not done yet."""

    def look(self, tx: Interpreter) -> None:
        self.load(tx)

    def changed(self, tx: Interpreter) -> None:
        """Call before any change."""
        self.load(tx)
        if not self.mutable:
            raise Unsupported("exception", f"{self.cls.__name__} cannot be changed")
        if self.source is not None:
            tx.capture.effects.mutated(self)

    def truth(self, tx: Interpreter) -> bool:
        return self.length(tx) > 0

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        from compiler_core.values.functions import MethodOfValue

        if name == "__class__":
            return tx.capture.wrap_static(self.cls)
        if callable(getattr(self.cls, name, None)):
            return MethodOfValue(self, name)
        raise Unsupported("unsupported attribute", f"{self.cls.__name__}.{name}")

    def call_method(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        method: Callable[..., Value] | None = getattr(self, f"method_{name}", None)
        if method is None:
            raise Unsupported("unsupported call", f"{self.cls.__name__}.{name}()")
        try:
            return method(tx, *args, **kwargs)
        except TypeError as error:  # wrong arguments: Python says so itself
            raise Unsupported("exception", str(error)) from None

    def rebuild_contents(self, emit: Emitter) -> None:
        """Push a plain container with the same contents, for replaying mutations."""
        self.rebuild(emit)
