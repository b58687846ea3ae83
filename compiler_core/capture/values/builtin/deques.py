"""``collections.deque``."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Value, observed_exception, to_index
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue, errors_of_program
from compiler_core.capture.values.builtin.containers import IteratorValue
from compiler_core.capture.values.builtin.sequences import ListValue, SliceValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import AttrSource

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


class DequeValue(ListValue):
    """A deque: a list that, with `maxlen`, drops items at one end when items are added at the other."""

    cls = collections.deque

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.maxlen: int | None = None if self.real is None else self.real.maxlen

    def load(self, tx: Interpreter) -> None:
        if self._values is None:
            super().load(tx)
            assert self.source is not None
            tx.capture.guards.add("EQUALS_MATCH", AttrSource(self.source, "maxlen"), self.maxlen)

    def new_like(self, values: list[Value]) -> DequeValue:
        deque = DequeValue(list(collections.deque(values, self.maxlen)))
        deque.maxlen = self.maxlen
        return deque

    def change(self, tx: Interpreter, name: str, *args: Any) -> Value:
        self.prepare_mutation(tx)
        items = self.unpack(tx)
        changed = collections.deque(items, self.maxlen)
        with errors_of_program(IndexError):
            found: Value | None = getattr(changed, name)(*args)
        items[:] = changed
        return found or NONE

    def constant(self, tx: Interpreter) -> Any:
        return collections.deque(super().constant(tx), self.maxlen)

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name == "maxlen":
            self.load(tx)
            return ConstantValue(self.maxlen)
        return super().get_attr(tx, name)

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        self._check(tx, key)
        return super().get_item(tx, key)

    def set_item(self, tx: Interpreter, key: Value, value: Value) -> None:
        self._check(tx, key)
        super().set_item(tx, key, value)

    def del_item(self, tx: Interpreter, key: Value) -> None:
        self._check(tx, key)
        super().del_item(tx, key)

    def _check(self, tx: Interpreter, key: Value) -> None:
        if isinstance(key, SliceValue):
            raise observed_exception(TypeError, "sequence index must be integer, not 'slice'")
        size, index = self.length(tx), to_index(tx, key).constant(tx)
        if not isinstance(index, int):
            kind = type(index).__name__
            raise observed_exception(TypeError, f"sequence index must be integer, not {kind!r}")
        if not -size <= index < size:
            raise observed_exception(IndexError, "deque index out of range")

    def iterate(self, tx: Interpreter) -> Value:
        return DequeIteratorValue(self.unpack(tx))

    def method_append(self, tx: Interpreter, item: Value) -> Value:
        return self.change(tx, "append", item)

    def method_appendleft(self, tx: Interpreter, item: Value) -> Value:
        return self.change(tx, "appendleft", item)

    def method_extend(self, tx: Interpreter, other: Value) -> Value:
        return self.change(tx, "extend", list(tx.list_of(other)))

    def method_extendleft(self, tx: Interpreter, other: Value) -> Value:
        return self.change(tx, "extendleft", list(tx.list_of(other)))

    def method_pop(self, tx: Interpreter) -> Value:  # type: ignore[override]
        return self.change(tx, "pop")

    def method_popleft(self, tx: Interpreter) -> Value:
        return self.change(tx, "popleft")

    def method_rotate(self, tx: Interpreter, n: Value | None = None) -> Value:
        return self.change(tx, "rotate", 1 if n is None else n.constant(tx))

    def method_copy(self, tx: Interpreter) -> Value:
        return self.new_like(list(self.unpack(tx)))

    def method_remove(self, tx: Interpreter, item: Value) -> Value:
        if not self.contains(tx, item):
            raise self._value_error("remove", item)
        return super().method_remove(tx, item)

    def _missing_item_error(self, item: Value) -> Unsupported:
        return self._value_error("index", item)

    def _value_error(self, method: str, item: Value) -> Unsupported:
        """Returns the ValueError that `method` raises because `item` is not in the deque."""
        if not isinstance(item, ConstantValue):
            return Unsupported("exception", f"{item} is not in a deque")
        try:
            getattr(collections.deque(), method)(item.value)
        except ValueError as error:
            return observed_exception(ValueError, str(error))
        raise AssertionError

    def method_sort(self, tx: Interpreter, *, key: Value | None = None, reverse: Value | None = None) -> Value:
        raise Unsupported("exception", "a deque has no sort()")

    def method___init__(self, tx: Interpreter, iterable: Value | None = None, maxlen: Value | None = None) -> Value:
        size = None if maxlen is None else maxlen.constant(tx)
        with errors_of_program(TypeError, ValueError):
            self.maxlen = collections.deque(maxlen=size).maxlen
        self.prepare_mutation(tx)
        self.unpack(tx).clear()
        return NONE if iterable is None else self.method_extend(tx, iterable)

    def reconstruct(self, emit: Emitter) -> None:
        emit.call_object(self.cls, [ListValue(self._values), ConstantValue(self.maxlen)])


class DequeIteratorValue(IteratorValue):
    """An iterator over a deque; it raises if the size of the deque changes during iteration."""

    def __init__(self, values: list[Value]) -> None:
        super().__init__(values)
        self.size = len(values)

    def next_value(self, tx: Interpreter) -> Value | None:
        if len(self.values) != self.size:
            raise observed_exception(RuntimeError, "deque mutated during iteration")
        return super().next_value(tx)
