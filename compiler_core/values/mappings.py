"""Dicts, their views, and sets."""

from __future__ import annotations

import collections
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.errors import Unsupported
from compiler_core.sources import Source
from compiler_core.values.base import Value, raised
from compiler_core.values.constant import ConstantValue, keys_of
from compiler_core.values.containers import ContainerValue
from compiler_core.values.iterators import IteratorValue
from compiler_core.values.sequences import ListValue, SequenceValue, TupleValue

if TYPE_CHECKING:
    from compiler_core.reconstruct import Emitter
    from compiler_core.symbolic import Interpreter


class DictValue(ContainerValue):
    """A dict, OrderedDict or a read-only proxy of one; keys are Python constants."""

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
        self.mutable = cls is not types.MappingProxyType
        self.source = source
        self.real = real

    def __repr__(self) -> str:
        return self.source.text if self.source else f"{self.cls.__name__} of {len(self._values or ())}"

    @property
    def is_loaded(self) -> bool:
        """Whether its keys are known (and guarded), as they are before any change."""
        return self._values is not None

    def load(self, tx: Interpreter) -> None:
        if self._values is None:
            assert self.source is not None
            tx.capture.guard("TYPE_MATCH", self.source, self.real)
            keys = list(keys_of(self.real))
            tx.capture.guard("DICT_KEYS", self.source, keys)
            self._values = {k: self._outside(tx, k) for k in keys}

    def _outside(self, tx: Interpreter, key: Any) -> Value:
        if key not in self._seen:
            self._seen[key] = tx.capture.wrap(dict.__getitem__(self.real, key), self.item_source(key))
        return self._seen[key]

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
        if dict.__contains__(self.real, key):
            return self._outside(tx, key)
        tx.capture.guard("DICT_CONTAINS", self.source, key)
        return None

    def children(self) -> Sequence[Value]:
        return () if self.source is not None else list((self._values or {}).values())

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        raw = hashable(tx, key)
        found = self.lookup(tx, raw)
        if found is None:
            raise raised(KeyError, key)
        return found

    def set_item(self, tx: Interpreter, key: Value, value: Value) -> None:
        raw = hashable(tx, key)
        self.changed(tx)
        self.mapping(tx)[raw] = value

    def del_item(self, tx: Interpreter, key: Value) -> None:
        raw = hashable(tx, key)
        self.changed(tx)
        if self.mapping(tx).pop(raw, None) is None:
            raise raised(KeyError, key)

    def contains(self, tx: Interpreter, item: Value) -> bool:
        raw = hashable(tx, item)
        if self._values is None and self.source is not None and dict.__contains__(self.real, raw):
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
                raise raised(KeyError, key)
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

    def method___init__(self, tx: Interpreter, *others: Value, **kwargs: Value) -> Value:
        return self.method_update(tx, *others, **kwargs)

    def plain(self) -> DictValue:
        """A plain dict of the same items."""
        return DictValue(self._values)

    def rebuild(self, emit: Emitter) -> None:
        if self.cls is dict:
            self.rebuild_contents(emit)
        else:
            emit.call_object(self.cls, [self.plain()])

    def rebuild_contents(self, emit: Emitter) -> None:
        emit.build_map(self._values or {})


class DictViewValue(ContainerValue):
    """``d.keys()``, ``d.values()`` or ``d.items()``: live, like Python's."""

    def __init__(self, of: DictValue, what: str) -> None:
        self.of = of
        self.what = what
        ordered = issubclass(of.cls, collections.OrderedDict)
        self.cls = type(getattr(collections.OrderedDict() if ordered else {}, what)())

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
        return [self.of.owner or self.of]

    def rebuild(self, emit: Emitter) -> None:
        emit.value(self.of.owner or self.of)
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

    def method_copy(self, tx: Interpreter) -> Value:
        self.load(tx)
        return self if self.cls is frozenset else SetValue(dict(self.values), self.cls)

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


class DictIteratorValue(IteratorValue):
    """An iterator over a dict, which may not change its size meanwhile."""

    def __init__(self, values: list[Value], mapping: dict[Any, Value]) -> None:
        super().__init__(values)
        self.mapping = mapping
        self.size = len(mapping)

    def next_value(self, tx: Interpreter) -> Value | None:
        if len(self.mapping) != self.size:
            raise raised(RuntimeError, "dictionary changed size during iteration")
        return super().next_value(tx)


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
        raise raised(TypeError, str(error)) from None
    return raw


def key_value(tx: Interpreter, key: Any) -> Value:
    return tx.capture.key_value(key)


def pairs(tx: Interpreter, other: Value) -> dict[Any, Value]:
    """What ``dict(other)`` would hold."""
    from compiler_core.values.objects import ObjectValue

    if isinstance(other, DictValue):
        return dict(other.mapping(tx))
    if isinstance(other, ObjectValue) and hasattr(other.cls, "keys"):
        return other.pairs(tx)
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
