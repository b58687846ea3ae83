"""Iterators: over values that are known, and those that make each value when asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from compiler_core.errors import Unsupported
from compiler_core.values.base import Value
from compiler_core.values.constant import ConstantValue

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
        """The next value, or None at the end."""
        if self.index >= len(self.values):
            return None
        self.index += 1
        tx.capture.count_round()
        return self.values[self.index - 1]

    def result(self) -> Value:
        """What ``yield from`` gives when it is exhausted."""
        return ConstantValue(None)

    def stop_arguments(self) -> list[Value]:
        """The arguments of the StopIteration that ends it."""
        result = self.result()
        return [] if ConstantValue(None).same_object(result) else [result]

    def items(self, tx: Interpreter) -> list[Value]:
        rest = []
        while (value := self.next_value(tx)) is not None:
            rest.append(value)
        return rest

    def children(self) -> Sequence[Value]:
        return self.values[self.index :]

    def rebuild(self, emit: Emitter) -> None:
        emit.call_loaded(iter, [lambda: emit.build("BUILD_LIST", self.values[self.index :])])


class MappedIteratorValue(IteratorValue):
    """An iterator that makes each value when asked: zip, enumerate, map, filter, generators.

    `step` gives the next value or None at the end.  It cannot be carried across a break.
    """

    def __init__(self, step: Callable[[Interpreter], Value | None]) -> None:
        super().__init__([])
        self.step = step

    def next_value(self, tx: Interpreter) -> Value | None:
        tx.capture.count_round()
        return self.step(tx)

    def children(self) -> Sequence[Value]:
        return ()

    def rebuild(self, emit: Emitter) -> None:
        raise Unsupported("generator", "a lazy iterator cannot be carried across a break")
