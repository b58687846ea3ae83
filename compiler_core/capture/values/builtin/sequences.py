"""Lists, tuples, ranges and slices, made in the frame or reached from outside."""

from __future__ import annotations

import functools
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from compiler_core.capture.values.base import Value, index_of, raised
from compiler_core.capture.values.builtin.containers import ContainerValue
from compiler_core.capture.values.builtin.iterators import IteratorValue, over
from compiler_core.capture.values.constant import NONE, ConstantValue, fold
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import Source

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


class SequenceValue(ContainerValue):
    """What lists and tuples share."""

    def __init__(self, values: list[Value] | None, cls: type, source: Source | None = None, real: Any = None) -> None:
        self._values = values
        self.cls = cls
        self.source = source
        self.real = real

    def __repr__(self) -> str:
        return self.source.text if self.source else f"{self.cls.__name__} of {len(self._values or ())}"

    def load(self, tx: Interpreter) -> None:
        if self._values is None:
            assert self.source is not None
            tx.capture.guard("TYPE_MATCH", self.source, self.real)
            tx.capture.guard("LENGTH", self.source, len(self.real))
            if type(self.real).__len__ is not self.cls.__len__:
                raise Unsupported("unsupported operation", f"a {type(self.real).__name__} with its own __len__")
            items = self.cls.__iter__(self.real)
            self._values = [tx.capture.wrap(v, self.item_source(i)) for i, v in enumerate(items)]

    def items(self, tx: Interpreter) -> list[Value]:
        self.load(tx)
        assert self._values is not None
        return self._values

    def iterate(self, tx: Interpreter) -> Value:
        return IteratorValue(self.items(tx), self)

    def length(self, tx: Interpreter) -> int:
        return len(self.items(tx))

    def held(self) -> list[Value]:
        return self._values or []

    def like(self, values: list[Value]) -> SequenceValue:
        """What an operation makes of it: a list of a list, a torch.Size of a torch.Size, else a tuple."""
        raise NotImplementedError

    def plain(self) -> SequenceValue:
        """A list or tuple of the same values."""
        return self.like(self._values or [])

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        if isinstance(key, SliceValue):
            return self.like(self.items(tx)[key.as_slice(tx)])
        index = index_of(tx, key).constant(tx)
        try:
            found: Value = self.items(tx)[index]
            return found
        except (IndexError, TypeError) as error:
            name = "list" if self.mutable else "tuple"
            raise raised(type(error), str(error).replace("list", name, 1)) from None

    def contains(self, tx: Interpreter, item: Value) -> bool:
        return any(tx.is_item(v, item) for v in self.items(tx))

    def constant(self, tx: Interpreter) -> Any:
        return self.cls([v.constant(tx) for v in self.items(tx)])

    def is_constant(self) -> bool:
        return self._values is not None and all(v.is_constant() for v in self._values)

    def method_index(
        self, tx: Interpreter, item: Value, start: Value | None = None, stop: Value | None = None
    ) -> Value:
        items = self.items(tx)
        bounds = slice(*(None if b is None else b.constant(tx) for b in (start, stop)))
        for i in range(*bounds.indices(len(items))):
            if tx.is_item(items[i], item):
                return ConstantValue(i)
        raise self._not_there(item)

    def _not_there(self, item: Value) -> Unsupported:
        if self.cls is list and not item.is_constant():
            return Unsupported("exception", f"{item} is not in the list")
        return raised(ValueError, f"{item} is not in list" if self.cls is list else "tuple.index(x): x not in tuple")

    def method_count(self, tx: Interpreter, item: Value) -> Value:
        return ConstantValue(sum(tx.is_item(v, item) for v in self.items(tx)))


class TupleValue(SequenceValue):
    """A tuple, torch.Size or one of ``torch.return_types``."""

    def __init__(
        self, values: list[Value] | None, cls: type = tuple, source: Source | None = None, real: Any = None
    ) -> None:
        super().__init__(values, cls, source, real)

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        fields = field_names(self.cls)
        if name in fields:
            return self.items(tx)[fields.index(name)]
        return super().get_attr(tx, name)

    def like(self, values: list[Value]) -> TupleValue:
        return TupleValue(values, torch.Size if self.cls is torch.Size else tuple)

    def method_numel(self, tx: Interpreter) -> Value:
        from compiler_core.capture.values.symbols import product

        return product(tx, self.items(tx))

    def same_object(self, other: Value) -> bool:
        return self is other or (isinstance(other, TupleValue) and self._values == other._values == [])

    def rebuild(self, emit: Emitter) -> None:
        values = self._values or []
        if self.cls is tuple:
            emit.build("BUILD_TUPLE", values)
        else:
            emit.call_object(self.cls, [TupleValue(values)])


class ListValue(SequenceValue):
    mutable = True

    def __init__(
        self, values: list[Value] | None, cls: type = list, source: Source | None = None, real: Any = None
    ) -> None:
        super().__init__(values, cls, source, real)
        self.appended: list[Value] = []
        """What was appended to an outside list that nothing has looked into yet."""

    def load(self, tx: Interpreter) -> None:
        if self._values is None:
            super().load(tx)
            self.items(tx).extend(self.appended)

    def held(self) -> list[Value]:
        return self.appended if self._values is None else self._values

    def is_constant(self) -> bool:
        return False

    def like(self, values: list[Value]) -> ListValue:
        return ListValue(values)

    def set_item(self, tx: Interpreter, key: Value, value: Value) -> None:
        self.changed(tx)
        try:
            if isinstance(key, SliceValue):
                self.items(tx)[key.as_slice(tx)] = list(value.items(tx))
            else:
                self.items(tx)[index_of(tx, key).constant(tx)] = value
        except (IndexError, ValueError, TypeError) as error:
            raise raised(type(error), str(error)) from None

    def del_item(self, tx: Interpreter, key: Value) -> None:
        self.changed(tx)
        try:
            del self.items(tx)[key.as_slice(tx) if isinstance(key, SliceValue) else index_of(tx, key).constant(tx)]
        except (IndexError, TypeError) as error:
            raise raised(type(error), str(error)) from None

    def method_append(self, tx: Interpreter, item: Value) -> Value:
        if self._values is None and self.source is not None:
            # a log that grows call by call must not be guarded on its length
            tx.capture.guard("TYPE_MATCH", self.source, self.real)
            tx.capture.effects.mutated(self)
            self.appended.append(item)
            return NONE
        self.changed(tx)
        self.items(tx).append(item)
        return NONE

    def method_extend(self, tx: Interpreter, other: Value) -> Value:
        self.changed(tx)
        if isinstance(other, ContainerValue):
            self.items(tx).extend(list(tx.list_of(other)))
            return NONE
        for value in over(tx, other):  # it may raise, and those before it are in the list
            self.items(tx).append(value)
        return NONE

    def method_insert(self, tx: Interpreter, index: Value, item: Value) -> Value:
        self.changed(tx)
        self.items(tx).insert(index.constant(tx), item)
        return NONE

    def method_pop(self, tx: Interpreter, index: Value | None = None) -> Value:
        self.changed(tx)
        try:
            return self.items(tx).pop(-1 if index is None else index.constant(tx))
        except IndexError as error:
            raise raised(IndexError, str(error)) from None

    def method_remove(self, tx: Interpreter, item: Value) -> Value:
        for index, value in enumerate(self.items(tx)):
            if tx.is_item(value, item):
                self.changed(tx)
                del self.items(tx)[index]
                return NONE
        raise raised(ValueError, "list.remove(x): x not in list")

    def method_sort(self, tx: Interpreter, *, key: Value | None = None, reverse: Value | None = None) -> Value:
        from compiler_core.capture.rules.python.iteration import sorted_values

        ordered = sorted_values(tx, list(self.items(tx)), key, reverse)
        self.changed(tx)
        self.items(tx)[:] = ordered
        return NONE

    def method_reverse(self, tx: Interpreter) -> Value:
        self.changed(tx)
        self.items(tx).reverse()
        return NONE

    def method_clear(self, tx: Interpreter) -> Value:
        self.changed(tx)
        self.items(tx).clear()
        return NONE

    def method_copy(self, tx: Interpreter) -> Value:
        return ListValue(list(self.items(tx)))

    def method___init__(self, tx: Interpreter, other: Value | None = None) -> Value:
        values = [] if other is None else list(tx.list_of(other))
        self.changed(tx)
        self.items(tx)[:] = values
        return NONE

    def rebuild(self, emit: Emitter) -> None:
        self.rebuild_contents(emit)

    def rebuild_contents(self, emit: Emitter) -> None:
        emit.build("BUILD_LIST", self.appended if self._values is None else self._values)


class RangeValue(Value):
    def __init__(self, value: range) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)

    def python_type(self) -> type:
        return range

    def is_constant(self) -> bool:
        return True

    def constant(self, tx: Interpreter) -> Any:
        return self.value

    def truth(self, tx: Interpreter) -> bool:
        return bool(self.value)

    def length(self, tx: Interpreter) -> int:
        return len(self.value)

    def items(self, tx: Interpreter) -> list[Value]:
        tx.capture.check_unroll(len(self.value))
        return [ConstantValue(i) for i in self.value]

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        import operator

        return fold(tx, operator.getitem, [self, key], {})

    def contains(self, tx: Interpreter, item: Value) -> bool:
        return item.constant(tx) in self.value

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name in ("start", "stop", "step"):
            return ConstantValue(getattr(self.value, name))
        return _method_of(self, range, name)

    def call_method(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return fold(tx, getattr(self.value, name), args, kwargs)

    def rebuild(self, emit: Emitter) -> None:
        emit.constant(self.value)


class SliceValue(Value):
    def __init__(self, parts: Sequence[Value]) -> None:
        self.parts = list(parts)

    def python_type(self) -> type:
        return slice

    def as_slice(self, tx: Interpreter) -> slice:
        parts = [index_of(tx, p).constant(tx) for p in self.parts]
        if not all(p is None or isinstance(p, int) for p in parts):
            raise raised(TypeError, "slice indices must be integers or None or have an __index__ method")
        return slice(*parts)

    def constant(self, tx: Interpreter) -> Any:
        return self.as_slice(tx)

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name in ("start", "stop", "step"):
            return self.parts[("start", "stop", "step").index(name)]
        return _method_of(self, slice, name)

    def call_method(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return fold(tx, getattr(self.as_slice(tx), name), args, kwargs)

    def children(self) -> Sequence[Value]:
        return self.parts

    def rebuild(self, emit: Emitter) -> None:
        emit.build("BUILD_SLICE", self.parts)


def _method_of(value: Value, cls: type, name: str) -> Value:
    from compiler_core.capture.values.user.functions import MethodOfValue

    if not hasattr(cls, name):
        raise raised(AttributeError, f"{cls.__name__!r} object has no attribute {name!r}")
    return MethodOfValue(value, name)


def field_index(descriptor: Any) -> int | None:
    """Which item of a namedtuple a descriptor of its class stands for, if any."""
    if type(descriptor) is not _FieldGetter:
        return None
    index: int = descriptor.__reduce__()[1][0]
    return index


class _Example(NamedTuple):
    field: None


_FieldGetter = type(vars(_Example)["field"])


@functools.cache
def field_names(cls: type) -> tuple[str, ...]:
    """The named fields of one of ``torch.return_types``."""
    if not hasattr(cls, "n_sequence_fields"):
        return ()
    return tuple(k for k, v in vars(cls).items() if isinstance(v, types.MemberDescriptorType))
