"""What lists, tuples, dicts and sets share: their base class, keys and iterators.

A container from outside is read once, when it is first used, into values whose sources are its items.  From then on
the values are its contents, and mutations are replayed after the graph has run (`capture/side_effects.py`).

The key of a constant is its Python object.  The key of an object that is hashed by identity is the Python object if it
is from outside, and the value if the frame made it.  The key of an object whose class defines ``__hash__`` and
``__eq__`` in Python is an `ObjectKey`, which calls them.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.values.base import (
    ABSENT,
    Args,
    Kwargs,
    NamedMethodValue,
    ObservedException,
    Value,
    check_keywords,
    lookup_in_mro,
    missing_attribute,
    observed_exception,
)
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue, is_atom
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import (
    END,
    BuiltinItemSource,
    CallSource,
    GetItemSource,
    Source,
    coming_value,
    count_state,
    sequence_of,
)
from compiler_core.torch_private import OpOverloadPacket

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


_BY_IDENTITY = (object.__hash__, torch.Tensor.__hash__)


_FUNCTIONS = (types.BuiltinFunctionType, types.MethodWrapperType, OpOverloadPacket)
"""Those of C are compared by the identity of what they are bound to, and PyTorch's operators by their own."""


_CHANGES = "__hash__ or __eq__ of a key, which may be called more often than by the program"


class ObjectKey:
    """A key that uses the ``__hash__`` and ``__eq__`` of the value's class."""

    def __init__(self, tx: Interpreter, value: Value, hashed: int) -> None:
        self.tx = tx
        self.value = value
        self.hashed = hashed

    def __hash__(self) -> int:
        return self.hashed

    def __eq__(self, other: object) -> bool:
        with self.tx.capture.inside(self.tx.graph.region, _CHANGES):
            return self.tx.is_same_or_equal(self.value, self.tx.outside.key_value(other))


def object_key(tx: Interpreter, value: Any) -> Any:
    """Returns an object whose class may define ``__hash__`` as a dict key or set element."""
    cls = value.python_type()
    if cls.__hash__ is None and sys.version_info >= (3, 14):
        raise Unsupported("exception", f"{value} is not hashable")  # the text says whether it is a key or an element
    if cls.__hash__ is None:
        raise observed_exception(TypeError, f"unhashable type: {cls.__name__!r}")
    if cls.__hash__ not in _BY_IDENTITY:
        method = value.special_method(tx, "__hash__")
        if method is None:
            raise Unsupported("unsupported operation", f"a {cls.__name__} as a key")
        with tx.capture.inside(tx.graph.region, _CHANGES):
            return ObjectKey(tx, value, _as_hash(method.call(tx, [], {}).constant(tx)))
    if value.source is None:
        return value
    value.install_guards(tx)
    tx.outside.identity_keys[id(value.real)] = (value.real, value.source)
    return value.real


class _HashResult:
    """Has Python convert the result of a ``__hash__`` method to a hash."""

    def __init__(self, result: int) -> None:
        self.result = result

    def __hash__(self) -> int:
        return self.result


def _as_hash(result: Any) -> int:
    try:
        return hash(_HashResult(result))
    except TypeError as error:
        raise observed_exception(TypeError, str(error)) from None


def is_plain_key(key: Any) -> bool:
    """Whether hashing and comparing `key` runs no code of the program's."""
    cls: Any = type(key)
    if isinstance(key, tuple):
        return is_compared_as_tuple(cls) and all(map(is_plain_key, key))
    by_identity = cls.__hash__ is object.__hash__ and cls.__eq__ is object.__eq__
    return is_atom(key) or by_identity or cls.__hash__ is type.__hash__ or cls in _FUNCTIONS


def is_compared_as_tuple(cls: Any) -> bool:
    """Whether objects of this class, such as namedtuples, are equal to tuples of the same items, with the same hash."""
    return cls.__hash__ is tuple.__hash__ and cls.__eq__ is tuple.__eq__


def is_tensor_key(key: Any) -> bool:
    """Whether `key` is a tensor that is hashed by identity, so that only itself is found by it."""
    cls: Any = type(key)
    return cls.__hash__ is torch.Tensor.__hash__ and issubclass(cls, torch.Tensor)


def has_fixed_order(key: Any) -> bool:
    """Whether the hash, and so the place in a set, is the same in each run: not if it is a hash of an address."""
    if isinstance(key, (tuple, frozenset)):
        return all(map(has_fixed_order, key))
    return is_atom(key) or isinstance(key, type)


Recreation = Callable[[], tuple[Any, list[Value]]]
"""Returns (function, arguments): a call that makes the iterator in its present state."""


_ITERATORS: dict[Any, type] = {cls: type(iter(cls())) for cls in (list, tuple)}


class IteratorValue(Value):
    """An iterator over known values.

    With `iterable`, the list, tuple, range or string that has these values, it sees later changes of it, as in Python.
    With `is_reversed` it goes from the last of them, as they are now, to the first.
    """

    def __init__(self, values: list[Value], iterable: Value | None = None, is_reversed: bool = False) -> None:
        self.values = values
        self.iterable = iterable
        self.is_reversed = is_reversed
        self.index = len(values) - 1 if is_reversed else 0
        """Of the next value."""
        if isinstance(iterable, ConstantValue) and not is_reversed:
            self.cls = type(iter(iterable.value))
        elif iterable is not None and not is_reversed:
            self.cls = _ITERATORS.get(iterable.cls)

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        return NamedMethodValue(self, name) if name in ("__next__", "__iter__") else super().get_attr(tx, name)

    def call_method(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        return self.next_or_stop(tx) if name == "__next__" else self

    def iterate(self, tx: Interpreter) -> Value:
        return self

    def next_value(self, tx: Interpreter) -> Value | None:
        if not 0 <= self.index < len(self.values):
            if self.is_reversed:
                self.index = -1
            elif not isinstance(self.iterable, ConstantValue):
                self.values, self.iterable, self.index = [], None, 0  # stays exhausted if items are appended later
            return None
        found = self.values[self.index]
        self.index += -1 if self.is_reversed else 1
        tx.capture.count_iteration()
        return found

    def unpack(self, tx: Interpreter) -> list[Value]:
        return tx.list_of(self)

    def contains(self, tx: Interpreter, item: Value) -> bool:
        """Takes values until one is `item` or equals it."""
        while (value := self.next_value(tx)) is not None:
            if tx.is_same_or_equal(value, item):
                return True
        return False

    def reconstruct(self, emit: Emitter) -> None:
        if self.iterable is None:
            emit.call_loaded(iter, [lambda: emit.build("BUILD_LIST", self.values[self.index :])])
        else:
            emit.call_object(iterator_at, [self.iterable, ConstantValue(self.index), ConstantValue(self.is_reversed)])


def iterator_at(obj: Sequence[Any], index: int, is_reversed: bool) -> Any:
    """Called by generated code: makes an iterator whose next item is ``obj[index]``, if there is one."""
    iterator: Any = reversed(obj) if is_reversed else iter(obj)
    if is_reversed and isinstance(obj, range):
        index = len(obj) - 1 - index
    elif is_reversed and index >= len(obj):
        index = -1
    iterator.__setstate__(index)
    return iterator


class OutsideIteratorValue(IteratorValue):
    """An iterator from outside, of a list, tuple or range, or an ``itertools.count`` of numbers.

    Generated code takes from it what the frame took.
    """

    def __init__(self, real: Any, source: Source) -> None:
        super().__init__([])
        self.cls, self.real, self.source = type(real), real, source
        self.has_ended = False

    def __repr__(self) -> str:
        return f"{self.source.text if self.source else ''} ({self.cls.__name__})"

    @staticmethod
    def takes(obj: Any) -> bool:
        """Whether it stands for an object of this kind."""
        if type(obj) is itertools.count:
            with contextlib.suppress(ValueError, SyntaxError):
                return bool(count_state(obj))
        return type(obj) in _OUTSIDE

    def install_guards(self, tx: Interpreter) -> None:
        tx.guards.add("TYPE_MATCH", self.source, self.real)

    def next_value(self, tx: Interpreter) -> Value | None:
        self.install_guards(tx)
        tx.capture.count_iteration()
        if self.has_ended:
            return None
        assert self.source is not None
        if self.cls is not itertools.count and tx.effects.changes_object(sequence_of(self.real)[0]):
            raise Unsupported("unsupported iteration", f"{self}, of a list that has changed")
        found, place = coming_value(self.real, self.index), CallSource(self.source, coming_value, (self.index,))
        tx.effects.note_call(advance, [self])
        self.index += 1
        if found is END:
            tx.guards.add("ID_MATCH", place, found)
            self.has_ended = True
            return None
        value = tx.outside.wrap(found, place)
        value.guard_type(tx)  # it has not ended
        return value


_OUTSIDE = (*_ITERATORS.values(), type(iter(range(0))))


def advance(iterator: Iterator[Any]) -> None:
    """Takes a value from an iterator, if there is one; generated code calls it."""
    next(iterator, None)


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

    def next_value(self, tx: Interpreter) -> Value | None:
        tx.capture.count_iteration()
        try:
            return self.step(tx)
        except ObservedException as error:  # a function that `map` calls may end the iteration
            if error.matches(StopIteration):
                return None
            raise

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


# for each special method: its operator, and whether it is the reflected form
SPECIAL_OPERATORS = {
    **{f"__{op.__name__}__": (op, False) for op in (
        operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.add, operator.mul,
        operator.sub, operator.xor)},
    **{f"__r{op.__name__}__": (op, True) for op in (operator.add, operator.mul, operator.sub, operator.xor)},
    "__or__": (operator.or_, False), "__ror__": (operator.or_, True),
    "__and__": (operator.and_, False), "__rand__": (operator.and_, True),
}  # fmt: skip


_SPECIAL_METHODS: dict[str, Callable[..., Value]] = {
    "__getitem__": lambda self, tx, key: self.get_item(tx, key),
    "__setitem__": lambda self, tx, key, value: self.set_item(tx, key, value) or NONE,
    "__delitem__": lambda self, tx, key: self.del_item(tx, key) or NONE,
    "__contains__": lambda self, tx, item: ConstantValue(self.contains(tx, item)),
    "__hash__": lambda self, tx: ConstantValue(hash(self.as_key(tx))),
    "__len__": lambda self, tx: ConstantValue(self.length(tx)),
    "__iter__": lambda self, tx: self.iterate(tx),
}
"""Special methods that are called by name: ``super().__setitem__(...)``, ``key=d.__getitem__``."""


class ContainerValue(Value):
    """A sequence, dict or set.  Methods of the Python type are methods of these classes, prefixed with ``method_``."""

    cls: Any
    """The builtin type."""
    real: Any = None
    """The outside object, or None."""
    mutable = False
    owner: Value | None = None
    """The instance of a subclass whose contents these are, or the dict behind a read-only proxy."""

    def load(self, tx: Interpreter) -> None:
        """Guards the structure and reads the contents of an outside container, if this was not done yet."""

    def install_guards(self, tx: Interpreter) -> None:
        self.load(tx)

    def known_values(self) -> list[Value]:
        """Returns the items that have been read or stored so far."""
        return []

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
            tx.effects.note_mutation(self)

    def truth(self, tx: Interpreter) -> bool:
        return self.length(tx) > 0

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        tx.guards.add("TYPE_MATCH", self.source, self.real)
        if name == "__class__":
            return tx.outside.wrap(self.cls)
        found = lookup_in_mro(self.cls, name)
        if found is ABSENT:
            raise missing_attribute(self.cls, name)
        if callable(found):
            return NamedMethodValue(self, name)
        raise Unsupported("unsupported attribute", f"{self.cls.__name__}.{name}")

    def call_method(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        method: Callable[..., Value] | None = getattr(self, f"method_{name}", None)
        if method is None and name in SPECIAL_OPERATORS and len(args) == 1:
            return self._operate(tx, name, args[0])
        if method is None and name in _SPECIAL_METHODS:
            method = functools.partial(_SPECIAL_METHODS[name], self)
        if method is None:
            raise Unsupported("unsupported call", f"{self.cls.__name__}.{name}()")
        check_keywords(getattr(self.cls, name), kwargs)
        try:
            return method(tx, *args, **kwargs)
        except TypeError as error:  # wrong arguments; after the break Python raises it
            raise Unsupported("exception", str(error)) from None

    def _operate(self, tx: Interpreter, name: str, other: Value) -> Value:
        """``self.__add__(other)`` and similar methods, which may return NotImplemented."""
        op, is_reflected = SPECIAL_OPERATORS[name]
        left, right = (other, self) if is_reflected else (self, other)
        return tx.builtin_operation(op, left, right) or ConstantValue(NotImplemented)

    def reconstruct_contents(self, emit: Emitter) -> None:
        """Emits bytecode that pushes a builtin container with the same contents, for replaying mutations."""
        self.reconstruct(emit)
