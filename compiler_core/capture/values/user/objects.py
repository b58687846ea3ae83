"""Instances of Python classes: their special methods, and how they are reconstructed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import UNBOUND, ObservedException, Value, observed_exception, to_index
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue, exception_from_error
from compiler_core.capture.values.builtin.iterators import MappedIteratorValue, iterate_over
from compiler_core.capture.values.builtin.keys import object_key, to_key
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.classes import ABSENT, lookup_in_mro
from compiler_core.capture.values.user.object_attributes import InstanceValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.guards.sources import Source


def _known_type(value: Value) -> type | None:
    """Returns the type of a value, or None if it is not known, as of some iterators."""
    try:
        return value.python_type()
    except Unsupported:
        return None


class ObjectValue(InstanceValue):
    """An instance whose class is plain Python, from outside or made in the frame."""

    def __init__(self, cls: type, real: Any = None, source: Source | None = None) -> None:
        super().__init__(cls, real, source)
        self._return_value: Value = NONE

    def forwarded_call(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Value, list[Value], dict[str, Value]] | None:
        method = self.special_method(tx, "__call__")
        if method is None:
            raise Unsupported("unsupported call", f"a {self.cls.__name__}")
        return method, list(args), kwargs

    def truth(self, tx: Interpreter) -> bool:
        method = self.special_method(tx, "__bool__")
        if method is not None:
            result = method.call(tx, [], {})
            if result.python_type() is not bool:
                name = result.python_type().__name__
                raise observed_exception(TypeError, f"__bool__ should return bool, returned {name}")
            return result.truth(tx)
        if self.special_method(tx, "__len__") is not None:
            return self.length(tx) > 0
        if any(lookup_in_mro(self.cls, name) is not ABSENT for name in ("__bool__", "__len__")):
            raise Unsupported("unsupported operation", f"truth of a {self.cls.__name__}")
        self.install_guards(tx)
        return True

    def checked(self, tx: Interpreter, function: Callable[[Any], Any], name: str, result: Value) -> Any:
        """Returns ``function(self)``, whose special method `name` has returned `result`.

        Python checks what such methods return; so it is asked, with a stand-in.
        """
        returned = result.constant(tx)
        stand_in = type(self.cls.__name__, (), {name: lambda _: returned})()
        try:
            return function(stand_in)
        except Exception as error:
            raise exception_from_error(error) from None

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        return self._special_call(tx, "__getitem__", [key])

    def set_item(self, tx: Interpreter, key: Value, value: Value) -> None:
        self._special_call(tx, "__setitem__", [key, value])

    def del_item(self, tx: Interpreter, key: Value) -> None:
        self._special_call(tx, "__delitem__", [key])

    def contains(self, tx: Interpreter, item: Value) -> bool:
        return self._special_call(tx, "__contains__", [item]).truth(tx)

    def length(self, tx: Interpreter) -> int:
        length: int = self.checked(tx, len, "__len__", to_index(tx, self._special_call(tx, "__len__", [])))
        return length

    def iterate(self, tx: Interpreter) -> Value:
        method = self.special_method(tx, "__iter__")
        if method is not None:
            iterator = method.call(tx, [], {})
            kind = _known_type(iterator)
            if kind is not None and not hasattr(kind, "__next__"):
                raise observed_exception(TypeError, f"iter() returned non-iterator of type '{kind.__name__}'")
            return iterator
        if self.special_method(tx, "__getitem__") is None:
            raise Unsupported("unsupported iteration", f"a {self.cls.__name__}")
        return self._iterate_by_index()

    def _iterate_by_index(self) -> Value:
        """Returns an iterator that calls ``__getitem__`` with 0, 1, ... until it raises IndexError."""
        counter = itertools.count()

        def step(tx: Interpreter) -> Value | None:
            try:
                return self.get_item(tx, ConstantValue(next(counter)))
            except ObservedException as error:
                if error.matches(IndexError):
                    return None
                raise

        return MappedIteratorValue(step)

    def next_value(self, tx: Interpreter) -> Value | None:
        tx.capture.count_iteration()
        try:
            return self.next_or_stop(tx)
        except ObservedException as error:
            if not error.matches(StopIteration):
                raise
            from compiler_core.capture.values.user.exceptions import exception_value

            self._return_value = exception_value(error).get_attr(tx, "value")
            return None

    def next_or_stop(self, tx: Interpreter) -> Value:
        return self._special_call(tx, "__next__", [])

    def return_value(self) -> Value:
        return self._return_value

    def unpack(self, tx: Interpreter) -> list[Value]:
        return tx.list_of(self)

    def as_key(self, tx: Interpreter) -> Any:
        return object_key(tx, self)

    def mapping_pairs(self, tx: Interpreter) -> Iterator[tuple[Any, Value]] | None:
        return self._read_pairs(tx) if hasattr(self.cls, "keys") else None

    def _read_pairs(self, tx: Interpreter) -> Iterator[tuple[Any, Value]]:
        for key in iterate_over(tx, self.get_attr(tx, "keys").call(tx, [], {})):
            yield to_key(tx, key), self.get_item(tx, key)

    # --- across a break

    def children(self) -> Sequence[Value]:
        return () if self.source is not None else [v for v in self.stored.values() if v is not UNBOUND]

    def reconstruct(self, emit: Emitter) -> None:
        values = {k: v for k, v in self.stored.items() if v is not UNBOUND}
        emit.call_object(make_object, [StaticValue(self.cls), DictValue(dict(values))])


def make_object(cls: type, attributes: dict[str, Any]) -> Any:
    """Called by generated code: makes an instance that the frame made."""
    instance: Any = object.__new__(cls)
    for name, value in attributes.items():
        object.__setattr__(instance, name, value)
    return instance


def type_or_object(value: Value) -> type:
    """Returns the type of a value, or object if it is not known."""
    try:
        return value.python_type()
    except Unsupported:
        return object
