"""The base class of lists, tuples, dicts and sets.

A container from outside is read once, when it is first used, into values whose sources are its items.  From then on
the values are its contents, and mutations are replayed after the graph has run (`capture/side_effects.py`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Value, observed_exception
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.keys import to_key
from compiler_core.capture.values.builtin.methods import NamedMethodValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import BuiltinItemSource, GetItemSource, Source

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


# for each special method: its operator, and whether it is the reflected form
SPECIAL_OPERATORS = {
    **{f"__{op.__name__}__": (op, False) for op in (
        operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.add, operator.mul,
        operator.sub, operator.xor)},
    **{f"__r{op.__name__}__": (op, True) for op in (operator.add, operator.mul, operator.sub, operator.xor)},
    "__or__": (operator.or_, False), "__ror__": (operator.or_, True),
    "__and__": (operator.and_, False), "__rand__": (operator.and_, True),
}  # fmt: skip


class ContainerValue(Value):
    """A sequence, dict or set.  Methods of the Python type are methods of these classes, prefixed with ``method_``."""

    cls: Any
    """The builtin type."""
    real: Any = None
    """The outside object, or None."""
    mutable = False
    owner: Value | None = None
    """The instance of a subclass whose contents these are, or the dict behind a read-only proxy."""

    def python_type(self) -> type:
        cls: type = self.cls
        return cls

    def load(self, tx: Interpreter) -> None:
        """Guards the structure and reads the contents of an outside container, if this was not done yet."""

    def install_guards(self, tx: Interpreter) -> None:
        self.load(tx)

    def known_values(self) -> list[Value]:
        """Returns the items that have been read or stored so far."""
        return []

    def children(self) -> Sequence[Value]:
        return () if self.source is not None else self.known_values()

    def item_source(self, key: Any) -> Source:
        """Returns the source of an item of an outside container."""
        assert self.source is not None
        if type(self.real).__getitem__ is self.cls.__getitem__:
            fields = getattr(type(self.real), "_fields", ()) if isinstance(self.real, tuple) else ()
            is_field = isinstance(key, int) and 0 <= key < len(fields)
            return GetItemSource(self.source, key, str(fields[key]) if is_field else "")
        return BuiltinItemSource(self.source, key, self.cls)

    def prepare_mutation(self, tx: Interpreter) -> None:
        """Loads the contents and registers a mutation; called before any change."""
        self.load(tx)
        if not self.mutable:
            raise Unsupported("exception", f"{self.cls.__name__} cannot be changed")
        if self.source is not None:
            tx.capture.effects.note_mutation(self)

    def truth(self, tx: Interpreter) -> bool:
        return self.length(tx) > 0

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if self.source is not None:
            tx.capture.guards.add("TYPE_MATCH", self.source, self.real)
        if name == "__class__":
            return tx.capture.outside.wrap_static(self.cls)
        if callable(getattr(self.cls, name, None)):
            return NamedMethodValue(self, name)
        if not hasattr(self.cls, name):
            raise observed_exception(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        raise Unsupported("unsupported attribute", f"{self.cls.__name__}.{name}")

    def call_method(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        method: Callable[..., Value] | None = getattr(self, f"method_{name}", None)
        if method is None and name in SPECIAL_OPERATORS and len(args) == 1:
            return self._operate(tx, name, args[0])
        if method is None:
            raise Unsupported("unsupported call", f"{self.cls.__name__}.{name}()")
        try:
            return method(tx, *args, **kwargs)
        except TypeError as error:  # wrong arguments; after the break Python raises it
            raise Unsupported("exception", str(error)) from None

    def _operate(self, tx: Interpreter, name: str, other: Value) -> Value:
        """``self.__add__(other)`` and similar methods, which may return NotImplemented."""
        op, is_reflected = SPECIAL_OPERATORS[name]
        left, right = (other, self) if is_reflected else (self, other)
        return tx.builtin_operation(op, left, right) or ConstantValue(NotImplemented)

    # --- special methods called by name: ``super().__setitem__(...)``, ``key=d.__getitem__``

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
        return ConstantValue(hash(to_key(tx, self)))

    def method___len__(self, tx: Interpreter) -> Value:
        return ConstantValue(self.length(tx))

    def method___iter__(self, tx: Interpreter) -> Value:
        return self.iterate(tx)

    def reconstruct_contents(self, emit: Emitter) -> None:
        """Emits bytecode that pushes a builtin container with the same contents, for replaying mutations."""
        self.reconstruct(emit)
