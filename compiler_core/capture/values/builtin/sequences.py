"""Lists, tuples, deques, ranges and slices."""

from __future__ import annotations

import collections
import functools
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from compiler_core.capture.values.base import (
    ABSENT,
    Args,
    Kwargs,
    NamedMethodValue,
    Value,
    lookup_in_mro,
    missing_attribute,
    observed_exception,
    to_index,
    type_errors_left_to_python,
)
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue, errors_of_program
from compiler_core.capture.values.builtin.containers import ContainerValue, IteratorValue, iterate_over
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import AttrSource, Source

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.capture.outside_objects import OutsideObjects


class SequenceValue(ContainerValue):
    """A list, tuple or deque."""

    cls: Any
    """The type of the program's object."""

    def __init__(
        self, values: list[Value] | None, cls: type | None = None, source: Source | None = None, real: Any = None
    ) -> None:
        self._values = values
        self.cls = cls or self.cls
        self.source = source
        self.real = real

    def __repr__(self) -> str:
        return self.source.text if self.source else f"{self.cls.__name__} of {len(self._values or ())}"

    def load(self, tx: Interpreter) -> None:
        if self._values is None:
            tx.guards.add("TYPE_MATCH", self.source, self.real)
            tx.guards.add("LENGTH", self.source, len(self.real))
            if type(self.real).__len__ is not self.cls.__len__:
                raise Unsupported("unsupported operation", f"a {type(self.real).__name__} which overrides __len__")
            items = self.cls.__iter__(self.real)
            self._values = [tx.outside.wrap(v, self.item_source(i)) for i, v in enumerate(items)]

    def unpack(self, tx: Interpreter) -> list[Value]:
        self.load(tx)
        assert self._values is not None
        return self._values

    def iterate(self, tx: Interpreter) -> Value:
        return IteratorValue(self.unpack(tx), self)

    def length(self, tx: Interpreter) -> int:
        return len(self.unpack(tx))

    def known_values(self) -> list[Value]:
        return self._values or []

    def new_like(self, values: list[Value]) -> SequenceValue:
        """Returns a sequence of the type that slicing gives: list for list, torch.Size for torch.Size, else tuple."""
        raise NotImplementedError

    def as_builtin(self) -> SequenceValue:
        """Returns a list or tuple with the same values."""
        return self.new_like(self._values or [])

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        if isinstance(key, SliceValue):
            whole = key.as_slice(tx)
            if whole.step == 0:
                raise observed_exception(ValueError, "slice step cannot be zero")
            return self.new_like(self.unpack(tx)[whole])
        index = to_index(tx, key).constant(tx)
        try:
            found: Value = self.unpack(tx)[index]
            return found
        except (IndexError, TypeError) as error:
            name = "list" if self.mutable else "tuple"
            raise observed_exception(type(error), str(error).replace("list", name, 1)) from None

    def contains(self, tx: Interpreter, item: Value) -> bool:
        return any(tx.is_same_or_equal(v, item) for v in self.unpack(tx))

    def constant(self, tx: Interpreter) -> Any:
        return self.cls([v.constant(tx) for v in self.unpack(tx)])

    def is_constant(self) -> bool:
        return self._values is not None and all(v.is_constant() for v in self._values)

    def method_index(
        self, tx: Interpreter, item: Value, start: Value | None = None, stop: Value | None = None
    ) -> Value:
        items = self.unpack(tx)
        bounds = slice(*(None if b is None else b.constant(tx) for b in (start, stop)))
        for i in range(*bounds.indices(len(items))):
            if tx.is_same_or_equal(items[i], item):
                return ConstantValue(i)
        raise self._missing_item_error(item)

    def _missing_item_error(self, item: Value) -> Unsupported:
        """Returns what ``index(item)`` raises."""
        if self.cls is list and not item.is_constant():
            return Unsupported("exception", f"{item} is not in the list")
        name = self.cls.__name__
        is_named = self.cls is list and sys.version_info < (3, 14)
        return observed_exception(
            ValueError, f"{item} is not in list" if is_named else f"{name}.index(x): x not in {name}"
        )

    def method_count(self, tx: Interpreter, item: Value) -> Value:
        return ConstantValue(sum(tx.is_same_or_equal(v, item) for v in self.unpack(tx)))


class TupleValue(SequenceValue):
    """A tuple, torch.Size or one of C's with names, as of ``torch.return_types``."""

    cls = tuple

    def as_key(self, tx: Interpreter) -> Any:
        if self.cls is not tuple:
            return super().as_key(tx)
        key = tuple(v.as_key(tx) for v in self.unpack(tx))
        tx.outside.tuple_keys[id(key)] = key, self
        return key

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        fields = field_names(self.cls)
        if name in fields:
            return self.unpack(tx)[fields.index(name)]
        if self.source is not None and isinstance(vars(self.cls).get(name), (types.MemberDescriptorType, int)):
            tx.guards.add("TYPE_MATCH", self.source, self.real)
            return tx.outside.wrap(getattr(self.real, name), AttrSource(self.source, name))
        return super().get_attr(tx, name)

    def constant(self, tx: Interpreter) -> Any:
        found = [v.constant(tx) for v in self.unpack(tx)]
        return self.real if is_structure(type(self.real)) else self.cls(found)

    def new_like(self, values: list[Value]) -> TupleValue:
        return TupleValue(values, torch.Size if self.cls is torch.Size else tuple)

    def method_numel(self, tx: Interpreter) -> Value:
        return tx.product(self.unpack(tx))

    def same_object(self, other: Value) -> bool:
        return self is other or (isinstance(other, TupleValue) and self._values == other._values == [])

    def reconstruct(self, emit: Emitter) -> None:
        values = self._values or []
        if self.cls is tuple:
            emit.build("BUILD_TUPLE", values)
        else:
            emit.call_object(self.cls, [TupleValue(values)])


_Read = Callable[["Interpreter", Value], Any]


def _item(tx: Interpreter, value: Value) -> Value:
    return value


def _number(tx: Interpreter, value: Value) -> Any:
    return value.constant(tx)


def _items(tx: Interpreter, value: Value) -> list[Value]:
    return list(tx.list_of(value))


_CHANGES: Mapping[str, tuple[_Read, ...]] = {
    "insert": (_number, _item), "pop": (_number,), "reverse": (), "clear": (),
}  # fmt: skip


class ListValue(SequenceValue):
    """A list."""

    cls: Any = list
    mutable = True
    changes = _CHANGES
    """The methods that the Python list of values has, too, and how each reads its arguments."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.appended: list[Value] = []
        """Items that were appended to an outside list whose contents have not been read."""

    def load(self, tx: Interpreter) -> None:
        if self._values is None:
            super().load(tx)
            self.unpack(tx).extend(self.appended)

    def known_values(self) -> list[Value]:
        return self.appended if self._values is None else self._values

    def is_constant(self) -> bool:
        return False

    def new_like(self, values: list[Value]) -> ListValue:
        return ListValue(values)

    def set_item(self, tx: Interpreter, key: Value, value: Value) -> None:
        self.prepare_mutation(tx)
        with errors_of_program(IndexError, ValueError, TypeError):
            if isinstance(key, SliceValue):
                with type_errors_left_to_python("what is assigned to a slice is not iterable"):
                    values = list(value.unpack(tx))
                self.unpack(tx)[key.as_slice(tx)] = values
            else:
                self.unpack(tx)[to_index(tx, key).constant(tx)] = value

    def del_item(self, tx: Interpreter, key: Value) -> None:
        self.prepare_mutation(tx)
        with errors_of_program(IndexError, ValueError, TypeError):
            index = key.as_slice(tx) if isinstance(key, SliceValue) else to_index(tx, key).constant(tx)
            del self.unpack(tx)[index]

    def method_append(self, tx: Interpreter, item: Value) -> Value:
        if self._values is None and self.source is not None:
            # a list that grows at every call must not be guarded on its length
            tx.guards.add("TYPE_MATCH", self.source, self.real)
            tx.effects.note_mutation(self)
            self.appended.append(item)
            return NONE
        return self.change(tx, "append", item)

    def method_extend(self, tx: Interpreter, other: Value) -> Value:
        self.prepare_mutation(tx)
        if getattr(other, "contents", None) is self:  # an instance of a subclass that extends itself
            other = self
        if isinstance(other, ContainerValue):
            self.unpack(tx).extend(list(tx.list_of(other)))
            return NONE
        for value in iterate_over(tx, other):  # if this raises, the values so far remain in the list
            self.unpack(tx).append(value)
        return NONE

    def call_method(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name not in self.changes or kwargs:
            return super().call_method(tx, name, args, kwargs)
        given = [read(tx, arg) for read, arg in zip(self.changes[name], args, strict=False)]
        return self.change(tx, name, *given, *args[len(given) :])

    def change(self, tx: Interpreter, name: str, *args: Any) -> Value:
        """Calls a method of the Python list of values, which changes it."""
        self.prepare_mutation(tx)
        with errors_of_program(IndexError, TypeError):
            return getattr(self.unpack(tx), name)(*args) or NONE

    def method_remove(self, tx: Interpreter, item: Value) -> Value:
        for index, value in enumerate(self.unpack(tx)):
            if tx.is_same_or_equal(value, item):
                self.prepare_mutation(tx)
                del self.unpack(tx)[index]
                return NONE
        raise observed_exception(ValueError, "list.remove(x): x not in list")

    def method_sort(self, tx: Interpreter, *, key: Value | None = None, reverse: Value | None = None) -> Value:
        ordered = tx.sorted_values(list(self.unpack(tx)), key, reverse)
        self.prepare_mutation(tx)
        self.unpack(tx)[:] = ordered
        return NONE

    def method_copy(self, tx: Interpreter) -> Value:
        return ListValue(list(self.unpack(tx)))

    def method___init__(self, tx: Interpreter, other: Value | None = None) -> Value:
        values = [] if other is None else list(tx.list_of(other))
        self.prepare_mutation(tx)
        self.unpack(tx)[:] = values
        return NONE

    def reconstruct(self, emit: Emitter) -> None:
        self.reconstruct_contents(emit)

    def reconstruct_contents(self, emit: Emitter) -> None:
        emit.build("BUILD_LIST", self.appended if self._values is None else self._values)


class RangeValue(ConstantValue):
    """A range."""

    def unpack(self, tx: Interpreter) -> list[Value]:
        tx.capture.check_unroll(abs(self.value.stop - self.value.start) // abs(self.value.step))  # it may have no len()
        return [ConstantValue(i) for i in self.value]


class SliceValue(Value):
    """A slice.  `bounds` are its start, stop and step."""

    cls = slice

    def __init__(self, bounds: Sequence[Value]) -> None:
        self.bounds = list(bounds)

    @classmethod
    def from_outside(cls, outside: OutsideObjects, obj: slice, source: Source) -> SliceValue:
        outside.guards.add("TYPE_MATCH", source, obj)
        found = cls([outside.wrap(getattr(obj, name), AttrSource(source, name)) for name in ("start", "stop", "step")])
        found.source = source
        return found

    def as_slice(self, tx: Interpreter) -> slice:
        bounds = [to_index(tx, b).constant(tx) for b in self.bounds]
        if not all(b is None or isinstance(b, int) for b in bounds):
            raise observed_exception(TypeError, "slice indices must be integers or None or have an __index__ method")
        return slice(*bounds)

    def constant(self, tx: Interpreter) -> Any:
        return self.as_slice(tx)

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name in ("start", "stop", "step"):
            return self.bounds[("start", "stop", "step").index(name)]
        if lookup_in_mro(slice, name) is ABSENT:
            raise missing_attribute(slice, name)
        return NamedMethodValue(self, name)

    def call_method(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        return tx.fold(getattr(self.as_slice(tx), name), args, kwargs)

    def reconstruct(self, emit: Emitter) -> None:
        emit.build("BUILD_SLICE", self.bounds)


def field_index(descriptor: Any) -> int | None:
    """Returns the index of the item that a field descriptor of a namedtuple reads; None for other descriptors."""
    if type(descriptor) is not _FieldGetter:
        return None
    index: int = descriptor.__reduce__()[1][0]
    return index


class _Example(NamedTuple):
    field: None


_FieldGetter = type(vars(_Example)["field"])


def is_structure(cls: type) -> bool:
    """Whether this is a tuple whose items have names and that C makes, as of ``torch.return_types`` or
    ``sys.version_info``.  It may have more fields than items, as that of ``os.stat``."""
    return issubclass(cls, tuple) and "n_sequence_fields" in vars(cls)


@functools.cache
def field_names(cls: type) -> tuple[str, ...]:
    """Returns the names of the first items of such a tuple; none for other classes."""
    return tuple(getattr(cls, "__match_args__", ())) if is_structure(cls) else ()


# ---------------------------------------------------------------- ``collections.deque``


_DEQUE_CHANGES: Mapping[str, tuple[_Read, ...]] = {
    **_CHANGES, "pop": (), "popleft": (), "appendleft": (_item,), "extend": (_items,), "extendleft": (_items,),
    "rotate": (_number,),
}  # fmt: skip


class DequeValue(ListValue):
    """A deque: a list that, with `maxlen`, drops items at one end when items are added at the other."""

    cls = collections.deque
    changes = _DEQUE_CHANGES

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.maxlen: int | None = None if self.real is None else self.real.maxlen

    def load(self, tx: Interpreter) -> None:
        if self._values is None:
            super().load(tx)
            assert self.source is not None
            tx.guards.add("EQUALS_MATCH", AttrSource(self.source, "maxlen"), self.maxlen)
            items = self.unpack(tx)
            items[:] = collections.deque(items, self.maxlen)  # those that were appended drop others

    def new_like(self, values: list[Value]) -> DequeValue:
        deque = DequeValue(list(collections.deque(values, self.maxlen)))
        deque.maxlen = self.maxlen
        return deque

    def change(self, tx: Interpreter, name: str, *args: Any) -> Value:
        self.prepare_mutation(tx)
        items = self.unpack(tx)
        changed = collections.deque(items, self.maxlen)
        with errors_of_program(IndexError, TypeError):
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

    def method___init__(self, tx: Interpreter, iterable: Value | None = None, maxlen: Value | None = None) -> Value:
        size = None if maxlen is None else maxlen.constant(tx)
        with errors_of_program(TypeError, ValueError):
            self.maxlen = collections.deque(maxlen=size).maxlen
        self.prepare_mutation(tx)
        self.unpack(tx).clear()
        return NONE if iterable is None else self.call_method(tx, "extend", [iterable], {})

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
