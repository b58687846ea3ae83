"""Lists, tuples, dicts, sets, ranges and slices, made in the frame or reached from outside.

A container from outside is read once, item by item and lazily, into values whose sources are
items of it; from then on the values are the truth, and a mutation is replayed after the graph
has run (`side_effects.py`).
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.errors import Unsupported
from compiler_core.sources import Item, Source
from compiler_core.values.base import Value
from compiler_core.values.constant import ConstantValue, fold

if TYPE_CHECKING:
    from compiler_core.reconstruct import Emitter
    from compiler_core.symbolic import Interpreter


class ContainerValue(Value):
    """What sequences, dicts and sets share: the outside object they mirror, and methods by name."""

    cls: type
    real: Any = None
    mutable = False

    def python_type(self) -> type:
        return self.cls

    def load(self, tx: Interpreter) -> None:
        """Guard the structure and mirror the contents, if this was not done yet."""

    def look(self, tx: Interpreter) -> None:
        self.load(tx)

    def changed(self, tx: Interpreter) -> None:
        """Call before any change."""
        self.load(tx)
        if not self.mutable:
            raise Unsupported("exception", f"{self.cls.__name__} cannot be changed")
        if self.source is not None:
            tx.capture.effects.mutated(self)

    def truth(self, tx: Interpreter) -> bool:
        return self.length(tx) > 0

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        from compiler_core.values.functions import MethodOfValue

        if name == "__class__":
            return tx.capture.wrap_static(self.cls)
        if callable(getattr(self.cls, name, None)):
            return MethodOfValue(self, name)
        raise Unsupported("unsupported attribute", f"{self.cls.__name__}.{name}")

    def call_method(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        method: Callable[..., Value] | None = getattr(self, f"method_{name}", None)
        if method is None:
            raise Unsupported("unsupported call", f"{self.cls.__name__}.{name}()")
        try:
            return method(tx, *args, **kwargs)
        except TypeError as error:  # wrong arguments: Python says so itself
            raise Unsupported("exception", str(error)) from None

    def rebuild_contents(self, emit: Emitter) -> None:
        """Push a plain container with the same contents, for replaying mutations."""
        self.rebuild(emit)


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
            self._values = [tx.capture.wrap(v, Item(self.source, i)) for i, v in enumerate(self.real)]

    def items(self, tx: Interpreter) -> list[Value]:
        self.load(tx)
        assert self._values is not None
        return self._values

    def iterate(self, tx: Interpreter) -> Value:
        return IteratorValue(self.items(tx))

    def length(self, tx: Interpreter) -> int:
        return len(self.items(tx))

    def children(self) -> Sequence[Value]:
        return () if self.source is not None else self._values or ()

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        if isinstance(key, SliceValue):
            return type(self)(self.items(tx)[key.as_slice(tx)], self.cls)
        index = key.constant(tx)
        try:
            found: Value = self.items(tx)[index]
            return found
        except (IndexError, TypeError) as error:
            raise Unsupported("exception", f"{type(error).__name__}: {error}") from None

    def contains(self, tx: Interpreter, item: Value) -> bool:
        return any(tx.is_item(v, item) for v in self.items(tx))

    def constant(self, tx: Interpreter) -> Any:
        return self.cls([v.constant(tx) for v in self.items(tx)])

    def is_constant(self) -> bool:
        return self._values is not None and all(v.is_constant() for v in self._values)

    def method_index(self, tx: Interpreter, item: Value) -> Value:
        for i, v in enumerate(self.items(tx)):
            if tx.is_item(v, item):
                return ConstantValue(i)
        raise Unsupported("exception", "value is not in sequence")

    def method_count(self, tx: Interpreter, item: Value) -> Value:
        return ConstantValue(sum(tx.is_item(v, item) for v in self.items(tx)))


class TupleValue(SequenceValue):
    """A tuple, torch.Size or namedtuple."""

    def __init__(
        self, values: list[Value] | None, cls: type = tuple, source: Source | None = None, real: Any = None
    ) -> None:
        super().__init__(values, cls, source, real)

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        fields = field_names(self.cls)
        if name in fields:
            return self.items(tx)[fields.index(name)]
        return super().get_attr(tx, name)

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        found = super().get_item(tx, key)
        if isinstance(key, SliceValue) and self.cls is not torch.Size:
            assert isinstance(found, TupleValue)
            found.cls = tuple
        return found

    def method_numel(self, tx: Interpreter) -> Value:
        return fold(tx, torch.Size.numel, [self], {})

    def same_object(self, other: Value) -> bool:
        return self is other or (isinstance(other, TupleValue) and self._values == other._values == [])

    def rebuild(self, emit: Emitter) -> None:
        values = self._values or []
        if self.cls is tuple:
            emit.build("BUILD_TUPLE", values)
        else:
            # the pieces of a namedtuple are its arguments, of a torch.Size one sequence
            make = self.cls._make if hasattr(self.cls, "_make") else self.cls
            emit.call_object(make, [TupleValue(values)])


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

    def is_constant(self) -> bool:
        return False

    def set_item(self, tx: Interpreter, key: Value, value: Value) -> None:
        self.changed(tx)
        try:
            if isinstance(key, SliceValue):
                self.items(tx)[key.as_slice(tx)] = list(value.items(tx))
            else:
                self.items(tx)[key.constant(tx)] = value
        except (IndexError, ValueError, TypeError) as error:
            raise Unsupported("exception", str(error)) from None

    def del_item(self, tx: Interpreter, key: Value) -> None:
        self.changed(tx)
        try:
            del self.items(tx)[key.as_slice(tx) if isinstance(key, SliceValue) else key.constant(tx)]
        except (IndexError, TypeError) as error:
            raise Unsupported("exception", str(error)) from None

    def method_append(self, tx: Interpreter, item: Value) -> Value:
        if self._values is None and self.source is not None:
            # a log that grows call by call must not be guarded on its length
            tx.capture.guard("TYPE_MATCH", self.source, self.real)
            tx.capture.effects.mutated(self)
            self.appended.append(item)
            return ConstantValue(None)
        self.changed(tx)
        self.items(tx).append(item)
        return ConstantValue(None)

    def method_extend(self, tx: Interpreter, other: Value) -> Value:
        added = list(tx.list_of(other))
        self.changed(tx)
        self.items(tx).extend(added)
        return ConstantValue(None)

    def method_insert(self, tx: Interpreter, index: Value, item: Value) -> Value:
        self.changed(tx)
        self.items(tx).insert(index.constant(tx), item)
        return ConstantValue(None)

    def method_pop(self, tx: Interpreter, index: Value | None = None) -> Value:
        self.changed(tx)
        try:
            return self.items(tx).pop(-1 if index is None else index.constant(tx))
        except IndexError as error:
            raise Unsupported("exception", str(error)) from None

    def method_remove(self, tx: Interpreter, item: Value) -> Value:
        index = self.method_index(tx, item).constant(tx)
        self.changed(tx)
        del self.items(tx)[index]
        return ConstantValue(None)

    def method_sort(self, tx: Interpreter, *, key: Value | None = None, reverse: Value | None = None) -> Value:
        from compiler_core.values.iteration import sorted_values

        ordered = sorted_values(tx, list(self.items(tx)), key, reverse)
        self.changed(tx)
        self.items(tx)[:] = ordered
        return ConstantValue(None)

    def method_reverse(self, tx: Interpreter) -> Value:
        self.changed(tx)
        self.items(tx).reverse()
        return ConstantValue(None)

    def method_clear(self, tx: Interpreter) -> Value:
        self.changed(tx)
        self.items(tx).clear()
        return ConstantValue(None)

    def method_copy(self, tx: Interpreter) -> Value:
        return ListValue(list(self.items(tx)))

    def rebuild(self, emit: Emitter) -> None:
        self.rebuild_contents(emit)

    def rebuild_contents(self, emit: Emitter) -> None:
        emit.build("BUILD_LIST", self.appended if self._values is None else self._values)


class DictValue(ContainerValue):
    """A dict or OrderedDict; keys are Python constants."""

    mutable = True

    def __init__(
        self,
        values: dict[Any, Value] | None,
        cls: type = dict,
        source: Source | None = None,
        real: Any = None,
    ) -> None:
        self._values = values
        self._seen: dict[Any, Value] = {}
        self.cls = cls
        self.source = source
        self.real = real

    def __repr__(self) -> str:
        return self.source.text if self.source else f"{self.cls.__name__} of {len(self._values or ())}"

    def load(self, tx: Interpreter) -> None:
        if self._values is None:
            assert self.source is not None
            tx.capture.guard("TYPE_MATCH", self.source, self.real)
            tx.capture.guard("DICT_KEYS", self.source, list(self.real))
            self._values = {k: self._outside(tx, k) for k in self.real}

    def _outside(self, tx: Interpreter, key: Any) -> Value:
        if key not in self._seen:
            self._seen[key] = tx.capture.wrap(self.real[key], self._item_source(key))
        return self._seen[key]

    def _item_source(self, key: Any) -> Source:
        assert self.source is not None
        return Item(self.source, key)

    def mapping(self, tx: Interpreter) -> dict[Any, Value]:
        self.load(tx)
        assert self._values is not None
        return self._values

    def lookup(self, tx: Interpreter, key: Any) -> Value | None:
        """The value at one key, guarding no more of the dict than that."""
        if self._values is not None:
            return self._values.get(key)
        assert self.source is not None
        tx.capture.guard("TYPE_MATCH", self.source, self.real)
        if key in self.real:
            return self._outside(tx, key)
        tx.capture.guard("DICT_CONTAINS", self.source, key)
        return None

    def children(self) -> Sequence[Value]:
        return () if self.source is not None else list((self._values or {}).values())

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        raw = hashable(tx, key)
        found = self.lookup(tx, raw)
        if found is None:
            raise Unsupported("exception", f"KeyError: {raw!r}")
        return found

    def set_item(self, tx: Interpreter, key: Value, value: Value) -> None:
        raw = hashable(tx, key)
        self.changed(tx)
        self.mapping(tx)[raw] = value

    def del_item(self, tx: Interpreter, key: Value) -> None:
        raw = hashable(tx, key)
        self.changed(tx)
        if self.mapping(tx).pop(raw, None) is None:
            raise Unsupported("exception", f"KeyError: {raw!r}")

    def contains(self, tx: Interpreter, item: Value) -> bool:
        raw = hashable(tx, item)
        if self._values is None and self.source is not None and raw in self.real:
            tx.capture.guard("DICT_HAS", self.source, raw)
            return True
        return self.lookup(tx, raw) is not None

    def length(self, tx: Interpreter) -> int:
        return len(self.mapping(tx))

    def items(self, tx: Interpreter) -> list[Value]:
        return [key_value(tx, k) for k in self.mapping(tx)]

    def iterate(self, tx: Interpreter) -> Value:
        return DictIteratorValue(self.items(tx), self.mapping(tx))

    def method_get(self, tx: Interpreter, key: Value, default: Value | None = None) -> Value:
        return self.lookup(tx, hashable(tx, key)) or default or ConstantValue(None)

    def method_keys(self, tx: Interpreter) -> Value:
        return DictViewValue(self, "keys")

    def method_values(self, tx: Interpreter) -> Value:
        return DictViewValue(self, "values")

    def method_items(self, tx: Interpreter) -> Value:
        return DictViewValue(self, "items")

    def method_copy(self, tx: Interpreter) -> Value:
        return DictValue(dict(self.mapping(tx)), self.cls)

    def method_setdefault(self, tx: Interpreter, key: Value, default: Value | None = None) -> Value:
        raw = hashable(tx, key)
        if self.lookup(tx, raw) is None:
            self.set_item(tx, key, default or ConstantValue(None))
        return self.mapping(tx)[raw]

    def method_pop(self, tx: Interpreter, key: Value, default: Value | None = None) -> Value:
        raw = hashable(tx, key)
        if self.lookup(tx, raw) is None:
            if default is None:
                raise Unsupported("exception", f"KeyError: {raw!r}")
            return default
        self.changed(tx)
        return self.mapping(tx).pop(raw)

    def method_update(self, tx: Interpreter, *others: Value, **kwargs: Value) -> Value:
        added: dict[Any, Value] = {}
        for other in others:
            added.update(pairs(tx, other))
        added.update(kwargs)
        self.changed(tx)
        self.mapping(tx).update(added)
        return ConstantValue(None)

    def method_clear(self, tx: Interpreter) -> Value:
        self.changed(tx)
        self.mapping(tx).clear()
        return ConstantValue(None)

    def rebuild(self, emit: Emitter) -> None:
        if self.cls is dict:
            self.rebuild_contents(emit)
        else:
            emit.call_object(self.cls, [DictValue(self._values)])

    def rebuild_contents(self, emit: Emitter) -> None:
        emit.build_map(self._values or {})


class DictViewValue(ContainerValue):
    """``d.keys()``, ``d.values()`` or ``d.items()``: live, like Python's."""

    def __init__(self, of: DictValue, what: str) -> None:
        self.of = of
        self.what = what
        self.cls = type(getattr({}, what)())

    def items(self, tx: Interpreter) -> list[Value]:
        mapping = self.of.mapping(tx)
        if self.what == "keys":
            return [key_value(tx, k) for k in mapping]
        if self.what == "values":
            return list(mapping.values())
        return [TupleValue([key_value(tx, k), v]) for k, v in mapping.items()]

    def iterate(self, tx: Interpreter) -> Value:
        return DictIteratorValue(self.items(tx), self.of.mapping(tx))

    def length(self, tx: Interpreter) -> int:
        return self.of.length(tx)

    def contains(self, tx: Interpreter, item: Value) -> bool:
        if self.what == "keys":
            return self.of.contains(tx, item)
        return any(tx.is_item(v, item) for v in self.items(tx))

    def children(self) -> Sequence[Value]:
        return [self.of]

    def rebuild(self, emit: Emitter) -> None:
        emit.value(self.of)
        emit.call_method(self.what, [])


class SetValue(ContainerValue):
    """A set or frozenset of constants; of one from outside, the whole contents are guarded."""

    mutable = True

    def __init__(
        self, values: dict[Any, None], cls: type = set, source: Source | None = None, real: Any = None
    ) -> None:
        self.values = values
        self.cls = cls
        self.mutable = cls is set
        self.source = source
        self.real = real

    def load(self, tx: Interpreter) -> None:
        if self.source is not None:
            tx.capture.guard("SET_EQUALS", self.source, self.real)

    def items(self, tx: Interpreter) -> list[Value]:
        # a set's order is its own; only one that does not matter can be captured
        raise Unsupported("unsupported iteration", "the order of a set")

    def length(self, tx: Interpreter) -> int:
        self.load(tx)
        return len(self.values)

    def contains(self, tx: Interpreter, item: Value) -> bool:
        self.load(tx)
        return hashable(tx, item) in self.values

    def method_add(self, tx: Interpreter, item: Value) -> Value:
        self.changed(tx)
        self.values[hashable(tx, item)] = None
        return ConstantValue(None)

    def method_discard(self, tx: Interpreter, item: Value) -> Value:
        self.changed(tx)
        self.values.pop(hashable(tx, item), None)
        return ConstantValue(None)

    def method_update(self, tx: Interpreter, *others: Value) -> Value:
        self.changed(tx)
        for other in others:
            self.values.update({hashable(tx, v): None for v in tx.list_of(other)})
        return ConstantValue(None)

    def rebuild(self, emit: Emitter) -> None:
        emit.call_object(self.cls, [ListValue([emit.capture.key_value(k) for k in self.values])])


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

    def rebuild(self, emit: Emitter) -> None:
        emit.constant(self.value)


class SliceValue(Value):
    def __init__(self, parts: Sequence[Value]) -> None:
        self.parts = list(parts)

    def python_type(self) -> type:
        return slice

    def as_slice(self, tx: Interpreter) -> slice:
        return slice(*(p.constant(tx) for p in self.parts))

    def constant(self, tx: Interpreter) -> Any:
        return self.as_slice(tx)

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name in ("start", "stop", "step"):
            return self.parts[("start", "stop", "step").index(name)]
        return super().get_attr(tx, name)

    def children(self) -> Sequence[Value]:
        return self.parts

    def rebuild(self, emit: Emitter) -> None:
        emit.build("BUILD_SLICE", self.parts)


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

    def items(self, tx: Interpreter) -> list[Value]:
        rest = []
        while (value := self.next_value(tx)) is not None:
            rest.append(value)
        return rest

    def children(self) -> Sequence[Value]:
        return self.values[self.index :]

    def rebuild(self, emit: Emitter) -> None:
        emit.call_object(iter, [ListValue(self.values[self.index :])])


class DictIteratorValue(IteratorValue):
    """An iterator over a dict, which may not change its size meanwhile."""

    def __init__(self, values: list[Value], mapping: dict[Any, Value]) -> None:
        super().__init__(values)
        self.mapping = mapping
        self.size = len(mapping)

    def next_value(self, tx: Interpreter) -> Value | None:
        if len(self.mapping) != self.size:
            raise Unsupported("exception", "the dict changed size during iteration")
        return super().next_value(tx)


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


def hashable(tx: Interpreter, value: Value) -> Any:
    """`value` as a dict key or set element."""
    from compiler_core.values.functions import StaticValue
    from compiler_core.values.objects import ObjectValue
    from compiler_core.values.tensor import TensorValue

    if isinstance(value, StaticValue):
        value.look(tx)
        return value.obj
    if isinstance(value, (ObjectValue, TensorValue)) and value.source is not None and value.real is not None:
        if type(value.real).__hash__ in (object.__hash__, torch.Tensor.__hash__):  # by identity
            value.look(tx)
            tx.capture.hashed[id(value.real)] = (value.real, value.source)
            return value.real
    raw = value.constant(tx)
    try:
        hash(raw)
    except TypeError as error:
        raise Unsupported("exception", str(error)) from None
    return raw


@functools.cache
def field_names(cls: type) -> tuple[str, ...]:
    """The named fields of a namedtuple or of one of ``torch.return_types``."""
    if hasattr(cls, "n_sequence_fields"):
        return tuple(k for k, v in vars(cls).items() if isinstance(v, types.MemberDescriptorType))
    return tuple(getattr(cls, "_fields", ()))


def key_value(tx: Interpreter, key: Any) -> Value:
    return tx.capture.key_value(key)


def pairs(tx: Interpreter, other: Value) -> dict[Any, Value]:
    """What ``dict(other)`` would hold."""
    if isinstance(other, DictValue):
        return dict(other.mapping(tx))
    found = {}
    for pair in tx.list_of(other):
        key, value = tx.list_of(pair)
        found[hashable(tx, key)] = value
    return found


CONTAINERS: dict[type, type[SequenceValue] | type[DictValue]] = {
    list: ListValue,
    tuple: TupleValue,
    torch.Size: TupleValue,
    dict: DictValue,
    collections.OrderedDict: DictValue,
}
