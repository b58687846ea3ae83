"""Iterators: over values that are known, and those that make each value when asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from compiler_core.errors import Unsupported
from compiler_core.values.base import Raised, Value

if TYPE_CHECKING:
    from compiler_core.reconstruct import Emitter
    from compiler_core.symbolic import Interpreter


class IteratorValue(Value):
    """An iterator over values that are known; follows changes of the list as Python's does."""

    def __init__(self, values: list[Value]) -> None:
        self.values = values
        self.index = 0

    def iterate(self, tx: Interpreter) -> Value:
        return self

    def next_value(self, tx: Interpreter) -> Value | None:
        if self.index >= len(self.values):
            return None
        self.index += 1
        tx.capture.count_round()
        return self.values[self.index - 1]

    def items(self, tx: Interpreter) -> list[Value]:
        return tx.list_of(self)

    def children(self) -> Sequence[Value]:
        return self.values[self.index :]

    def rebuild(self, emit: Emitter) -> None:
        emit.call_loaded(iter, [lambda: emit.build("BUILD_LIST", self.values[self.index :])])


class MappedIteratorValue(IteratorValue):
    """An iterator that makes each value when asked: zip, enumerate, map, filter.

    `step` gives the next value or None at the end.  It cannot be carried across a break.
    """

    def __init__(self, step: Callable[[Interpreter], Value | None]) -> None:
        super().__init__([])
        self.step = step

    def next_value(self, tx: Interpreter) -> Value | None:
        tx.capture.count_round()
        try:
            return self.step(tx)
        except Raised as error:  # a function that `map` calls ends it so
            if error.matches(StopIteration):
                return None
            raise

    def children(self) -> Sequence[Value]:
        return ()

    def rebuild(self, emit: Emitter) -> None:
        raise Unsupported("generator", "a lazy iterator cannot be carried across a break")
