"""What lists, tuples, dicts and sets have in common.

A container from outside is read once, item by item and lazily, into values whose sources are
items of it; from then on the values are the truth, and a mutation is replayed after the graph
has run (`capture/side_effects.py`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Value, raised
from compiler_core.capture.values.builtin.keys import hashable
from compiler_core.capture.values.constant import NONE, ConstantValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import BuiltinItem, Item, Source

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


# special methods with the operator that they are, and whether it is the reflected form
SPECIAL_OPERATORS = {
    **{f"__{op.__name__}__": (op, False) for op in (
        operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.add, operator.mul,
        operator.sub, operator.xor)},
    **{f"__r{op.__name__}__": (op, True) for op in (operator.add, operator.mul, operator.sub, operator.xor)},
    "__or__": (operator.or_, False), "__ror__": (operator.or_, True),
    "__and__": (operator.and_, False), "__rand__": (operator.and_, True),
}  # fmt: skip


class ContainerValue(Value):
    """What sequences, dicts and sets share: the outside object they mirror, and methods by name."""

    cls: Any
    real: Any = None
    mutable = False
    owner: Value | None = None
    """The instance of a subclass whose contents these are, or the dict that a read-only proxy shows."""

    def python_type(self) -> type:
        cls: type = self.cls
        return cls

    def load(self, tx: Interpreter) -> None:
        """Guard the structure and mirror the contents, if this was not done yet."""

    def look(self, tx: Interpreter) -> None:
        self.load(tx)

    def held(self) -> list[Value]:
        """The values that are known to be in it."""
        return []

    def children(self) -> Sequence[Value]:
        return () if self.source is not None else self.held()

    def item_source(self, key: Any) -> Source:
        """Where an item of an outside container lies."""
        assert self.source is not None
        own = type(self.real).__getitem__ is self.cls.__getitem__
        return Item(self.source, key) if own else BuiltinItem(self.source, key, self.cls)

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
        from compiler_core.capture.values.user.functions import MethodOfValue

        if self.source is not None:
            tx.capture.guard("TYPE_MATCH", self.source, self.real)
        if name == "__class__":
            return tx.capture.wrap_static(self.cls)
        if callable(getattr(self.cls, name, None)):
            return MethodOfValue(self, name)
        if not hasattr(self.cls, name):
            raise raised(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        raise Unsupported("unsupported attribute", f"{self.cls.__name__}.{name}")

    def call_method(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        method: Callable[..., Value] | None = getattr(self, f"method_{name}", None)
        if method is None and name in SPECIAL_OPERATORS and len(args) == 1:
            return self._operate(tx, name, args[0])
        if method is None:
            raise Unsupported("unsupported call", f"{self.cls.__name__}.{name}()")
        try:
            return method(tx, *args, **kwargs)
        except TypeError as error:  # wrong arguments: Python says so itself
            raise Unsupported("exception", str(error)) from None

    def _operate(self, tx: Interpreter, name: str, other: Value) -> Value:
        """``self.__add__(other)`` and the like, which may answer NotImplemented."""
        from compiler_core.capture.rules.python.container_operators import builtin_operation
        from compiler_core.capture.values.user.subclasses import contents_of

        op, is_reflected = SPECIAL_OPERATORS[name]
        left, right = (contents_of(other), self) if is_reflected else (self, contents_of(other))
        return builtin_operation(op, tx, left, right) or ConstantValue(NotImplemented)

    # --- the same by their special names: ``super().__setitem__(...)``, ``key=d.__getitem__``

    def method___getitem__(self, tx: Interpreter, key: Value) -> Value:
        return self.get_item(tx, key)

    def method___setitem__(self, tx: Interpreter, key: Value, value: Value) -> Value:
        self.set_item(tx, key, value)
        return NONE

    def method___delitem__(self, tx: Interpreter, key: Value) -> Value:
        self.del_item(tx, key)
        return NONE

    def method___contains__(self, tx: Interpreter, item: Value) -> Value:
        return ConstantValue(self.contains(tx, item))

    def method___hash__(self, tx: Interpreter) -> Value:
        return ConstantValue(hash(hashable(tx, self)))

    def method___len__(self, tx: Interpreter) -> Value:
        return ConstantValue(self.length(tx))

    def method___iter__(self, tx: Interpreter) -> Value:
        return self.iterate(tx)

    def rebuild_contents(self, emit: Emitter) -> None:
        """Push a plain container with the same contents, for replaying mutations."""
        self.rebuild(emit)
