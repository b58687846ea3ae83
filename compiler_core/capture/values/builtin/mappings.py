"""Dicts, their views and iterators."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.values.base import ObservedException, Value, observed_exception
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue, is_atom
from compiler_core.capture.values.builtin.containers import (
    ContainerValue,
    IteratorValue,
    is_plain_key,
    is_tensor_key,
    iterate_over,
)
from compiler_core.capture.values.builtin.sequences import DequeValue, ListValue, SequenceValue, TupleValue
from compiler_core.capture.values.builtin.symbols import SymbolicNumber
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import AttrSource, GetItemSource, KeyedItemSource, Source, keys_of_dict
from compiler_core.guards.value_guards import dict_keys

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


_MOST_COMPARISONS = 8
"""The number of keys with which a symbolic number is compared; it becomes a constant beside more."""
_NO_NUMBERS = (str, bytes, tuple, type(None))
"""Types of keys that equal no number."""


class DictValue(ContainerValue):
    """A dict or a read-only proxy of one.  Keys are what `as_key` returns."""

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
        tx.outside.check_globals_unchanged(self.real)
        if self._values is None:
            tx.guards.add("TYPE_MATCH", self.source, self.real)
            keys = list(dict_keys(self.real))
            if any(map(is_tensor_key, keys)) and all(is_tensor_key(key) or is_atom(key) for key in keys):
                self._values = dict(self._items_in_order(tx, keys))
                return
            if not all(map(is_plain_key, keys)):
                raise Unsupported("unsupported operation", f"{self}, with keys whose class defines __eq__")
            tx.guards.add("DICT_KEYS", self.source, keys)
            self._values = {k: self._outside_item(tx, k) for k in keys}

    def _items_in_order(self, tx: Interpreter, keys: list[Any]) -> Iterator[tuple[Any, Value]]:
        """Yields the items of an outside dict with keys that are tensors, which are hashed by identity."""
        assert self.source is not None
        source = keys_of_dict(self.source)
        tx.guards.add("LENGTH", source, len(keys))
        for i, key in enumerate(keys):
            wrapped = tx.outside.wrap(key, GetItemSource(source, i))
            found = wrapped.as_key(tx)
            item = self.item_source(key)
            if is_tensor_key(key):
                assert wrapped.source is not None
                item = KeyedItemSource(self.source, wrapped.source, i)
            yield found, tx.outside.wrap(dict.__getitem__(self.real, key), item)

    def _outside_item(self, tx: Interpreter, key: Any) -> Value:
        if key not in self._seen:
            self._seen[key] = tx.outside.wrap(dict.__getitem__(self.real, key), self.item_source(key))
        return self._seen[key]

    def mapping(self, tx: Interpreter) -> dict[Any, Value]:
        """Returns the items by key, after loading them all."""
        self.load(tx)
        assert self._values is not None
        return self._values

    def lookup(self, tx: Interpreter, key: Any) -> Value | None:
        """Returns the value at `key` or None, and guards only that key."""
        tx.outside.check_globals_unchanged(self.real)
        if self._values is not None:
            return self._values.get(key)
        assert self.source is not None
        if not is_plain_key(key):
            return self.mapping(tx).get(key)
        tx.guards.add("TYPE_MATCH", self.source, self.real)
        if dict.__contains__(self.real, key):
            tx.guards.add("DICT_HAS", self.source, key)
            return self._outside_item(tx, key)
        tx.guards.add("DICT_CONTAINS", self.source, key)
        return None

    def known_items(self) -> dict[Any, Value]:
        """Returns the items that have been loaded or stored so far."""
        return self._values or {}

    def known_values(self) -> list[Value]:
        return [*(k for k in self._values or () if isinstance(k, Value)), *(self._values or {}).values()]

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        raw = key.as_key(tx)
        found = self.lookup(tx, raw)
        if found is None:
            raise observed_exception(KeyError, key)
        return found

    def set_item(self, tx: Interpreter, key: Value, value: Value) -> None:
        raw = key.as_key(tx)
        if self.mutable and self.mapping(tx).get(raw) is value:
            return  # such as a buffer that an optimizer puts into its state again
        self.prepare_mutation(tx)
        self.mapping(tx)[raw] = value

    def del_item(self, tx: Interpreter, key: Value) -> None:
        raw = key.as_key(tx)
        self.prepare_mutation(tx)
        if self.mapping(tx).pop(raw, None) is None:
            raise observed_exception(KeyError, key)

    def contains(self, tx: Interpreter, item: Value) -> bool:
        if isinstance(item, SymbolicNumber):
            numbers = [key for key in self.mapping(tx) if type(key) not in _NO_NUMBERS]
            is_plain = all(type(key) in (int, bool, float) for key in numbers)
            if is_plain and len(numbers) <= _MOST_COMPARISONS:  # a guard for each
                return any(tx.is_same_or_equal(item, ConstantValue(key)) for key in numbers)
        raw = item.as_key(tx)
        if self._values is None and self.source is not None and is_plain_key(raw) and dict.__contains__(self.real, raw):
            tx.guards.add("DICT_HAS", self.source, raw)
            return True
        return self.lookup(tx, raw) is not None

    def length(self, tx: Interpreter) -> int:
        return len(self.mapping(tx))

    def unpack(self, tx: Interpreter) -> list[Value]:
        return [key_value(tx, k) for k in self.mapping(tx)]

    def constant(self, tx: Interpreter) -> Any:
        if self.cls is types.MappingProxyType:
            return types.MappingProxyType(self.target(tx).constant(tx))
        return self.cls([(k, v.constant(tx)) for k, v in self.mapping(tx).items()])

    def target(self, tx: Interpreter) -> Value:
        """Returns the mapping of a proxy."""
        return self.owner or DictValue(self.mapping(tx))

    def iterate(self, tx: Interpreter) -> Value:
        return DictViewValue(self, "keys").iterate(tx)

    def method_get(self, tx: Interpreter, key: Value, default: Value | None = None) -> Value:
        if isinstance(key, SymbolicNumber) and not self.contains(tx, key):
            return default or NONE
        return self.lookup(tx, key.as_key(tx)) or default or NONE

    def method_keys(self, tx: Interpreter) -> Value:
        return DictViewValue(self, "keys")

    def method_values(self, tx: Interpreter) -> Value:
        return DictViewValue(self, "values")

    def method_items(self, tx: Interpreter) -> Value:
        return DictViewValue(self, "items")

    def method_copy(self, tx: Interpreter) -> Value:
        return self.new_like(dict(self.mapping(tx)))

    def new_like(self, values: dict[Any, Value]) -> DictValue:
        """Returns a new dict of the same class with other items."""
        return DictValue(values, dict if self.cls is types.MappingProxyType else self.cls)

    def method_setdefault(self, tx: Interpreter, key: Value, default: Value | None = None) -> Value:
        found = self.lookup(tx, key.as_key(tx))
        if found is None:
            found = default or NONE
            self.set_item(tx, key, found)
        return found

    def method_pop(self, tx: Interpreter, key: Value, default: Value | None = None) -> Value:
        raw = key.as_key(tx)
        if self.lookup(tx, raw) is None:
            if default is None:
                raise observed_exception(KeyError, key)
            return default
        self.prepare_mutation(tx)
        return self.mapping(tx).pop(raw)

    def method_popitem(self, tx: Interpreter, last: Value | None = None) -> Value:
        mapping = self.mapping(tx)
        if last is not None and self.cls is not collections.OrderedDict:
            raise observed_exception(TypeError, "dict.popitem() takes no arguments (1 given)")
        if not mapping:
            empty = "dictionary is empty" if self.cls is collections.OrderedDict else "popitem(): dictionary is empty"
            raise observed_exception(KeyError, empty)
        from_start = last is not None and not last.truth(tx)
        key = next(iter(mapping) if from_start else reversed(mapping))
        self.prepare_mutation(tx)
        return TupleValue([key_value(tx, key), mapping.pop(key)])

    def method_update(self, tx: Interpreter, /, *others: Value, **kwargs: Value) -> Value:
        if len(others) > 1:
            raise observed_exception(TypeError, f"update expected at most 1 argument, got {len(others)}")
        self.prepare_mutation(tx)
        mapping = self.mapping(tx)
        for key, value in iterate_pairs(tx, others[0]) if others else ():  # an item may raise after others are stored
            mapping[key] = value
        mapping.update(kwargs)
        return NONE

    def method_clear(self, tx: Interpreter) -> Value:
        self.prepare_mutation(tx)
        self.mapping(tx).clear()
        return NONE

    def method___reversed__(self, tx: Interpreter) -> Value:
        return DictViewValue(self, "keys").method___reversed__(tx)

    def method___init__(self, tx: Interpreter, /, *others: Value, **kwargs: Value) -> Value:
        return self.method_update(tx, *others, **kwargs)

    def as_builtin(self) -> DictValue:
        """Returns a new dict with the same items."""
        return self.new_like(self._values or {})

    def reconstruct(self, emit: Emitter) -> None:
        if self.cls is dict:
            self.reconstruct_contents(emit)
        else:
            emit.call_object(self.cls, [self.owner or DictValue(self._values)])

    def reconstruct_contents(self, emit: Emitter) -> None:
        emit.build_map(self._values or {})


def mapping_proxy(tx: Interpreter, target: DictValue) -> DictValue:
    """``types.MappingProxyType(target)``.  It shares the items of `target`."""
    proxy = DictValue(target.mapping(tx), types.MappingProxyType)
    proxy.owner = target if target.cls is types.MappingProxyType else target.owner or target
    return proxy


class OrderedDictValue(DictValue):
    """An OrderedDict, which may have attributes, such as the ``_metadata`` of a state dict."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.attributes: dict[str, Value] = {}
        """The attributes that the frame has set on an OrderedDict that it made."""

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name in self.attributes:
            return self.attributes[name]
        if self.source is not None and name in getattr(self.real, "__dict__", {}):
            tx.guards.add("TYPE_MATCH", self.source, self.real)
            return tx.outside.wrap(self.real.__dict__[name], AttrSource(self.source, name))
        if not hasattr(self.cls, name):
            tx.guards.add("NO_ATTRIBUTE", self.source, name)
        return super().get_attr(tx, name)

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        if self.source is not None or hasattr(self.cls, name):
            super().set_attr(tx, name, value)
        self.attributes[name] = value

    def reconstruct(self, emit: Emitter) -> None:
        if self.attributes:
            emit.call_object(make_ordered_dict, [DictValue(self._values), DictValue(dict(self.attributes))])
        else:
            super().reconstruct(emit)

    def method_move_to_end(self, tx: Interpreter, key: Value, last: Value | None = None) -> Value:
        raw = key.as_key(tx)
        if self.lookup(tx, raw) is None:
            raise observed_exception(KeyError, key)
        self.prepare_mutation(tx)
        mapping = self.mapping(tx)
        if last is None or last.truth(tx):
            mapping[raw] = mapping.pop(raw)
        else:
            before = {raw: mapping.pop(raw), **mapping}
            mapping.clear()
            mapping.update(before)
        return NONE

    def new_like(self, values: dict[Any, Value]) -> DictValue:
        if self.attributes or getattr(self.real, "__dict__", None):
            raise Unsupported("unsupported call", "a copy of an OrderedDict with attributes")
        return OrderedDictValue(values, self.cls)


def make_ordered_dict(contents: dict[Any, Any], attributes: dict[str, Any]) -> collections.OrderedDict[Any, Any]:
    """Called by generated code: makes an OrderedDict with attributes."""
    found = collections.OrderedDict(contents)
    vars(found).update(attributes)
    return found


class DefaultDictValue(DictValue):
    """A defaultdict."""

    _factory: Value | None = None

    def factory(self, tx: Interpreter) -> Value:
        """Returns ``default_factory``."""
        if self._factory is None:
            assert self.source is not None
            self.load(tx)
            self._factory = tx.outside.wrap(self.real.default_factory, AttrSource(self.source, "default_factory"))
        return self._factory

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        return self.factory(tx) if name == "default_factory" else super().get_attr(tx, name)

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        found = self.lookup(tx, key.as_key(tx))
        return self.method___missing__(tx, key) if found is None else found

    def method___missing__(self, tx: Interpreter, key: Value) -> Value:
        factory = self.factory(tx)
        if tx.is_same(factory, NONE):
            raise observed_exception(KeyError, key)
        value = factory.call(tx, [], {})
        self.set_item(tx, key, value)
        return value

    def method___init__(self, tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
        self._factory = args[0] if args else NONE
        return super().method___init__(tx, *args[1:], **kwargs)

    def new_like(self, values: dict[Any, Value]) -> DictValue:
        copied = DefaultDictValue(values, self.cls)
        copied._factory = self._factory
        return copied

    def constant(self, tx: Interpreter) -> Any:
        return self.cls(self.factory(tx).constant(tx), DictValue(self.mapping(tx)).constant(tx))

    def method_copy(self, tx: Interpreter) -> Value:
        self.factory(tx)
        return super().method_copy(tx)

    def reconstruct(self, emit: Emitter) -> None:
        emit.call_object(self.cls, [self._factory or NONE, DictValue(self._values)])


class DictViewValue(ContainerValue):
    """``d.keys()``, ``d.values()`` or ``d.items()``, which show later changes of the dict."""

    def __init__(self, dict_value: DictValue, view_kind: str) -> None:
        self.dict_value = dict_value
        self.view_kind = view_kind
        """``keys``, ``values`` or ``items``."""
        is_ordered = issubclass(dict_value.cls, collections.OrderedDict)
        self.cls = type(getattr(collections.OrderedDict() if is_ordered else {}, view_kind)())

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name == "mapping":
            return mapping_proxy(tx, self.dict_value)
        return super().get_attr(tx, name)

    def item(self, tx: Interpreter, key: Any) -> Value:
        if self.view_kind == "keys":
            return key_value(tx, key)
        value = self.dict_value.mapping(tx)[key]
        return value if self.view_kind == "values" else TupleValue([key_value(tx, key), value])

    def unpack(self, tx: Interpreter) -> list[Value]:
        return [self.item(tx, k) for k in self.dict_value.mapping(tx)]

    def constant(self, tx: Interpreter) -> Any:
        return getattr(self.dict_value.constant(tx), self.view_kind)()

    def iterate(self, tx: Interpreter) -> Value:
        return DictIteratorValue(self, list(self.dict_value.mapping(tx)))

    def method___reversed__(self, tx: Interpreter) -> Value:
        return DictIteratorValue(self, list(reversed(self.dict_value.mapping(tx))), reversed)

    def length(self, tx: Interpreter) -> int:
        return self.dict_value.length(tx)

    def contains(self, tx: Interpreter, item: Value) -> bool:
        if self.view_kind == "keys":
            return self.dict_value.contains(tx, item)
        return any(tx.is_same_or_equal(v, item) for v in self.unpack(tx))

    def method_isdisjoint(self, tx: Interpreter, other: Value) -> Value:
        keys = {v.as_key(tx) for v in self.unpack(tx)}
        return ConstantValue(keys.isdisjoint([v.as_key(tx) for v in tx.list_of(other)]))

    def reconstruct(self, emit: Emitter) -> None:
        emit.value(self.dict_value.owner or self.dict_value)
        emit.call_method(self.view_kind, [])


class DictIteratorValue(IteratorValue):
    """An iterator over a dict or a view; it raises if the size of the dict changes during iteration."""

    def __init__(self, view: DictViewValue, keys: list[Any], order: Callable[[Any], Iterator[Any]] = iter) -> None:
        super().__init__([])
        self.view = view
        self.keys = keys
        self.order = order

    def next_value(self, tx: Interpreter) -> Value | None:
        mapping = self.view.dict_value.mapping(tx)
        if len(mapping) != len(self.keys):
            raise observed_exception(RuntimeError, "dictionary changed size during iteration")
        if self.index >= len(self.keys):
            return None
        key = self.keys[self.index]
        if key not in mapping:
            raise Unsupported("unsupported iteration", "the keys of a dict changed during iteration")
        self.index += 1
        tx.capture.count_iteration()
        return self.view.item(tx, key)

    def reconstruct(self, emit: Emitter) -> None:
        from compiler_core.capture.values.builtin.static import StaticValue

        emit.call_object(advanced_iterator, [StaticValue(self.order), self.view, ConstantValue(self.index)])


def advanced_iterator(order: Callable[[Any], Iterator[Any]], container: Any, count: int) -> Iterator[Any]:
    """Called by generated code: makes ``iter(container)`` or ``reversed(container)`` and skips `count` items."""
    iterator = order(container)
    for _ in range(count):
        next(iterator)
    return iterator


def key_value(tx: Interpreter, key: Any) -> Value:
    """Returns the value of a key that capture keeps as a plain Python object."""
    return tx.outside.key_value(key)


def dict_items(tx: Interpreter, other: Value) -> dict[Any, Value]:
    """Returns the items of ``dict(other)``."""
    return dict(iterate_pairs(tx, other))


def iterate_pairs(tx: Interpreter, other: Value) -> Iterator[tuple[Any, Value]]:
    """Yields the items of `other`, a mapping or an iterable of pairs, as ``dict.update`` reads them."""
    if isinstance(other, DictValue):
        yield from list(other.mapping(tx).items())
    elif (pairs := other.mapping_pairs(tx)) is not None:
        yield from pairs
    else:
        for i, pair in enumerate(iterate_over(tx, other)):
            key, value = _split_pair(tx, pair, i)
            yield key.as_key(tx), value


def _split_pair(tx: Interpreter, pair: Value, i: int) -> list[Value]:
    """Returns the key and value of a pair; raises as ``dict.update`` does."""
    what = f"dictionary update sequence element #{i}"
    try:
        found = tx.list_of(pair)
    except ObservedException as error:
        if not error.matches(TypeError):
            raise
        raise observed_exception(TypeError, f"cannot convert {what} to a sequence") from None
    if len(found) != 2:
        raise observed_exception(ValueError, f"{what} has length {len(found)}; 2 is required")
    return found


# the values of containers by their Python types
CONTAINERS: dict[Any, type[SequenceValue] | type[DictValue]] = {
    list: ListValue,
    collections.deque: DequeValue,
    tuple: TupleValue,
    torch.Size: TupleValue,
    dict: DictValue,
    collections.OrderedDict: OrderedDictValue,
    collections.defaultdict: DefaultDictValue,
}
