"""``collections.deque``"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Value, raised
from compiler_core.capture.values.builtin.iterators import IteratorValue
from compiler_core.capture.values.builtin.sequences import ListValue, SliceValue
from compiler_core.capture.values.constant import NONE, ConstantValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import Attribute, Source

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


class DequeValue(ListValue):
    """A deque: a list that may drop items at one end as they are added at the other."""

    def __init__(
        self, values: list[Value] | None, cls: type = collections.deque, source: Source | None = None, real: Any = None
    ) -> None:
        super().__init__(values, cls, source, real)
        self.maxlen: int | None = None if real is None else real.maxlen

    def load(self, tx: Interpreter) -> None:
        if self._values is None:
            super().load(tx)
            assert self.source is not None
            tx.capture.guard("EQUALS_MATCH", Attribute(self.source, "maxlen"), self.maxlen)

    def like(self, values: list[Value]) -> DequeValue:
        made = DequeValue([])
        made.maxlen = self.maxlen
        made.items_added(values)
        return made

    def items_added(self, values: list[Value], left: bool = False) -> None:
        mine = self._values
        assert mine is not None
        if left:
            mine[:0] = reversed(values)
        else:
            mine.extend(values)
        if self.maxlen is not None and len(mine) > self.maxlen:
            del mine[slice(self.maxlen, None) if left else slice(0, len(mine) - self.maxlen)]

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
            raise raised(TypeError, "sequence index must be integer, not 'slice'")
        size, index = self.length(tx), key.constant(tx)
        if isinstance(index, int) and not -size <= index < size:
            raise raised(IndexError, "deque index out of range")

    def iterate(self, tx: Interpreter) -> Value:
        return DequeIteratorValue(self.items(tx))

    def method_append(self, tx: Interpreter, item: Value) -> Value:
        self.changed(tx)
        self.items_added([item])
        return NONE

    def method_appendleft(self, tx: Interpreter, item: Value) -> Value:
        self.changed(tx)
        self.items_added([item], left=True)
        return NONE

    def method_extend(self, tx: Interpreter, other: Value) -> Value:
        added = list(tx.list_of(other))
        self.changed(tx)
        self.items_added(added)
        return NONE

    def method_extendleft(self, tx: Interpreter, other: Value) -> Value:
        added = list(tx.list_of(other))
        self.changed(tx)
        self.items_added(added, left=True)
        return NONE

    def _take(self, tx: Interpreter, index: int) -> Value:
        if not self.length(tx):
            raise raised(IndexError, "pop from an empty deque")
        self.changed(tx)
        return self.items(tx).pop(index)

    def method_pop(self, tx: Interpreter) -> Value:  # type: ignore[override]
        return self._take(tx, -1)

    def method_popleft(self, tx: Interpreter) -> Value:
        return self._take(tx, 0)

    def method_rotate(self, tx: Interpreter, n: Value | None = None) -> Value:
        self.changed(tx)
        items = self.items(tx)
        if items:
            steps = (1 if n is None else n.constant(tx)) % len(items)
            items[:] = items[len(items) - steps :] + items[: len(items) - steps]
        return NONE

    def method_insert(self, tx: Interpreter, index: Value, item: Value) -> Value:
        if self.maxlen is not None and self.length(tx) >= self.maxlen:
            raise raised(IndexError, "deque already at its maximum size")
        return super().method_insert(tx, index, item)

    def method_copy(self, tx: Interpreter) -> Value:
        return self.like(list(self.items(tx)))

    def method_remove(self, tx: Interpreter, item: Value) -> Value:
        if not self.contains(tx, item):
            raise self._refused("remove", item)
        return super().method_remove(tx, item)

    def _not_there(self, item: Value) -> Unsupported:
        return self._refused("index", item)

    def _refused(self, name: str, item: Value) -> Unsupported:
        """What Python says where `item` is not in it."""
        if not isinstance(item, ConstantValue):
            return Unsupported("exception", f"{item} is not in a deque")
        try:
            getattr(collections.deque(), name)(item.value)
        except ValueError as error:
            return raised(ValueError, str(error))
        raise AssertionError

    def method_sort(self, tx: Interpreter, *, key: Value | None = None, reverse: Value | None = None) -> Value:
        raise Unsupported("exception", "a deque has no sort()")

    def method___init__(self, tx: Interpreter, other: Value | None = None, maxlen: Value | None = None) -> Value:
        self.maxlen = None if maxlen is None else maxlen.constant(tx)
        self.changed(tx)
        self.items(tx).clear()
        return NONE if other is None else self.method_extend(tx, other)

    def rebuild(self, emit: Emitter) -> None:
        emit.call_object(self.cls, [ListValue(self._values), ConstantValue(self.maxlen)])


class DequeIteratorValue(IteratorValue):
    """An iterator over a deque, which may not change meanwhile."""

    def __init__(self, values: list[Value]) -> None:
        super().__init__(values)
        self.size = len(values)

    def next_value(self, tx: Interpreter) -> Value | None:
        if len(self.values) != self.size:
            raise raised(RuntimeError, "deque mutated during iteration")
        return super().next_value(tx)
