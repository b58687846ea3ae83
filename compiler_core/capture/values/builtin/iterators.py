"""Iterators: over values that are known, and those that make each value when asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Raised, Value
from compiler_core.capture.values.constant import ConstantValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


Again = Callable[[], tuple[Any, list[Value]]]


class IteratorValue(Value):
    """An iterator over values that are known; with `of`, the list, tuple or text whose values they are, it follows
    its changes as Python's does."""

    def __init__(self, values: list[Value], of: Value | None = None) -> None:
        self.values = values
        self.of = of
        self.index = 0

    def iterate(self, tx: Interpreter) -> Value:
        return self

    def next_value(self, tx: Interpreter) -> Value | None:
        if self.index >= len(self.values):
            if not isinstance(self.of, ConstantValue):
                self.values, self.of, self.index = [], None, 0  # for good, whatever is appended
            return None
        self.index += 1
        tx.capture.count_round()
        return self.values[self.index - 1]

    def items(self, tx: Interpreter) -> list[Value]:
        return tx.list_of(self)

    def children(self) -> Sequence[Value]:
        return self.values[self.index :] if self.of is None else [self.of]

    def rebuild(self, emit: Emitter) -> None:
        if self.of is None:
            emit.call_loaded(iter, [lambda: emit.build("BUILD_LIST", self.values[self.index :])])
        else:
            emit.call_object(iterator_at, [self.of, ConstantValue(self.index)])


def iterator_at(obj: Sequence[Any], index: int) -> Any:
    """Called by generated code: an iterator that has given `index` items."""
    made: Any = iter(obj)
    made.__setstate__(index)
    return made


class MappedIteratorValue(IteratorValue):
    """An iterator that makes each value when asked: zip, enumerate, map, filter.

    `step` gives the next value or None at the end.  `again` tells what to call with which values to have it as it is
    now; without it, it cannot be carried across a break.
    """

    def __init__(
        self,
        step: Callable[[Interpreter], Value | None],
        again: Again | None = None,
    ) -> None:
        super().__init__([])
        self.step = step
        self.again = again

    def next_value(self, tx: Interpreter) -> Value | None:
        tx.capture.count_round()
        try:
            return self.step(tx)
        except Raised as error:  # a function that `map` calls ends it so
            if error.matches(StopIteration):
                return None
            raise

    def children(self) -> Sequence[Value]:
        return () if self.again is None else self.again()[1]

    def rebuild(self, emit: Emitter) -> None:
        if self.again is None:
            raise Unsupported("generator", "a lazy iterator cannot be carried across a break")
        emit.call_object(*self.again())


def each(tx: Interpreter, iterator: Value) -> Iterator[Value]:
    """The values that are left of an iterator."""
    while (value := iterator.next_value(tx)) is not None:
        yield value


def over(tx: Interpreter, iterable: Value) -> Iterator[Value]:
    """``for value in iterable``"""
    return each(tx, iterable.iterate(tx))
