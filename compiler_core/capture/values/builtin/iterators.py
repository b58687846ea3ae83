"""Iterators over known values, and iterators that compute each value when it is requested."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import ObservedException, Value
from compiler_core.capture.values.builtin.constant import ConstantValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


Recreation = Callable[[], tuple[Any, list[Value]]]
"""Returns (function, arguments): a call that makes the iterator in its present state."""


class IteratorValue(Value):
    """An iterator over known values.

    With `iterable`, the list, tuple or string that has these values, it sees later changes of it, as in Python.
    """

    def __init__(self, values: list[Value], iterable: Value | None = None) -> None:
        self.values = values
        self.iterable = iterable
        self.index = 0

    def iterate(self, tx: Interpreter) -> Value:
        return self

    def next_value(self, tx: Interpreter) -> Value | None:
        if self.index >= len(self.values):
            if not isinstance(self.iterable, ConstantValue):
                self.values, self.iterable, self.index = [], None, 0  # stays exhausted if items are appended later
            return None
        self.index += 1
        tx.capture.count_iteration()
        return self.values[self.index - 1]

    def unpack(self, tx: Interpreter) -> list[Value]:
        return tx.list_of(self)

    def children(self) -> Sequence[Value]:
        return self.values[self.index :] if self.iterable is None else [self.iterable]

    def reconstruct(self, emit: Emitter) -> None:
        if self.iterable is None:
            emit.call_loaded(iter, [lambda: emit.build("BUILD_LIST", self.values[self.index :])])
        else:
            emit.call_object(iterator_at, [self.iterable, ConstantValue(self.index)])


def iterator_at(obj: Sequence[Any], index: int) -> Any:
    """Called by generated code: makes an iterator whose next item is ``obj[index]``."""
    iterator: Any = iter(obj)
    iterator.__setstate__(index)
    return iterator


class MappedIteratorValue(IteratorValue):
    """An iterator that computes each value when it is requested: zip, enumerate, map, filter.

    `step` returns the next value, or None at the end.  `recreate` returns the call that makes the iterator in its
    present state; without it, the iterator cannot be reconstructed after a graph break.  `cls` is its type, if known.
    """

    def __init__(
        self,
        step: Callable[[Interpreter], Value | None],
        recreate: Recreation | None = None,
        cls: type | None = None,
    ) -> None:
        super().__init__([])
        self.cls = cls
        self.step = step
        self.recreate = recreate

    def python_type(self) -> type:
        return super().python_type() if self.cls is None else self.cls

    def next_value(self, tx: Interpreter) -> Value | None:
        tx.capture.count_iteration()
        try:
            return self.step(tx)
        except ObservedException as error:  # a function that `map` calls may end the iteration
            if error.matches(StopIteration):
                return None
            raise

    def children(self) -> Sequence[Value]:
        return () if self.recreate is None else self.recreate()[1]

    def reconstruct(self, emit: Emitter) -> None:
        if self.recreate is None:
            raise Unsupported("generator", "a lazy iterator cannot be reconstructed after a graph break")
        emit.call_object(*self.recreate())


def remaining_values(tx: Interpreter, iterator: Value) -> Iterator[Value]:
    """Yields the remaining values of an iterator."""
    value = iterator.next_value(tx)
    while value is not None:
        yield value
        value = iterator.next_value(tx)


def iterate_over(tx: Interpreter, iterable: Value) -> Iterator[Value]:
    """Yields the values of ``for value in iterable``."""
    return remaining_values(tx, iterable.iterate(tx))
