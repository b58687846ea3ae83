"""Dicts, their views and iterators."""

from __future__ import annotations

import collections
import itertools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.values.base import Raised, Value, raised
from compiler_core.capture.values.builtin.containers import ContainerValue
from compiler_core.capture.values.builtin.deques import DequeValue
from compiler_core.capture.values.builtin.iterators import IteratorValue
from compiler_core.capture.values.builtin.keys import hashable, is_plain_key
from compiler_core.capture.values.builtin.sequences import ListValue, SequenceValue, TupleValue
from compiler_core.capture.values.constant import NONE, ConstantValue
from compiler_core.errors import Unsupported
from compiler_core.guards.constants import keys_of
from compiler_core.guards.sources import Attribute, Source

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


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
        tx.capture.check_fresh(self.real)
        if self._values is None:
            assert self.source is not None
            tx.capture.guard("TYPE_MATCH", self.source, self.real)
            keys = list(keys_of(self.real))
            if not all(map(is_plain_key, keys)):
                raise Unsupported("unsupported operation", f"{self}, with keys that have an __eq__ of their own")
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
        tx.capture.check_fresh(self.real)
        if self._values is not None:
            return self._values.get(key)
        assert self.source is not None
        if not is_plain_key(key):
            return self.mapping(tx).get(key)
        tx.capture.guard("TYPE_MATCH", self.source, self.real)
        if dict.__contains__(self.real, key):
            tx.capture.guard("DICT_HAS", self.source, key)
            return self._outside(tx, key)
        tx.capture.guard("DICT_CONTAINS", self.source, key)
        return None

    def children(self) -> Sequence[Value]:
        if self.cls is types.MappingProxyType and self.owner is not None:
            return [self.owner]
        return super().children()

    def held_by_key(self) -> dict[Any, Value]:
        """The items that are known."""
        return self._values or {}

    def held(self) -> list[Value]:
        return [*(k for k in self._values or () if isinstance(k, Value)), *(self._values or {}).values()]

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
        if self._values is None and self.source is not None and is_plain_key(raw) and dict.__contains__(self.real, raw):
            tx.capture.guard("DICT_HAS", self.source, raw)
            return True
        return self.lookup(tx, raw) is not None

    def length(self, tx: Interpreter) -> int:
        return len(self.mapping(tx))

    def items(self, tx: Interpreter) -> list[Value]:
        return [key_value(tx, k) for k in self.mapping(tx)]

    def constant(self, tx: Interpreter) -> Any:
        return self.cls([(k, v.constant(tx)) for k, v in self.mapping(tx).items()])

    def iterate(self, tx: Interpreter) -> Value:
        return DictViewValue(self, "keys").iterate(tx)

    def method_get(self, tx: Interpreter, key: Value, default: Value | None = None) -> Value:
        return self.lookup(tx, hashable(tx, key)) or default or NONE

    def method_keys(self, tx: Interpreter) -> Value:
        return DictViewValue(self, "keys")

    def method_values(self, tx: Interpreter) -> Value:
        return DictViewValue(self, "values")

    def method_items(self, tx: Interpreter) -> Value:
        return DictViewValue(self, "items")

    def method_copy(self, tx: Interpreter) -> Value:
        return self.like(dict(self.mapping(tx)))

    def like(self, values: dict[Any, Value]) -> DictValue:
        """A new one of the same class with other items."""
        return DictValue(values, dict if self.cls is types.MappingProxyType else self.cls)

    def method_setdefault(self, tx: Interpreter, key: Value, default: Value | None = None) -> Value:
        found = self.lookup(tx, hashable(tx, key))
        if found is None:
            found = default or NONE
            self.set_item(tx, key, found)
        return found

    def method_pop(self, tx: Interpreter, key: Value, default: Value | None = None) -> Value:
        raw = hashable(tx, key)
        if self.lookup(tx, raw) is None:
            if default is None:
                raise raised(KeyError, key)
            return default
        self.changed(tx)
        return self.mapping(tx).pop(raw)

    def method_popitem(self, tx: Interpreter, last: Value | None = None) -> Value:
        mapping = self.mapping(tx)
        if last is not None and self.cls is not collections.OrderedDict:
            raise raised(TypeError, "dict.popitem() takes no arguments (1 given)")
        if not mapping:
            empty = "dictionary is empty" if self.cls is collections.OrderedDict else "popitem(): dictionary is empty"
            raise raised(KeyError, empty)
        key = next(iter(mapping)) if last is not None and not last.truth(tx) else next(reversed(mapping))
        self.changed(tx)
        return TupleValue([key_value(tx, key), mapping.pop(key)])

    def method_update(self, tx: Interpreter, /, *others: Value, **kwargs: Value) -> Value:
        if len(others) > 1:
            raise raised(TypeError, f"update expected at most 1 argument, got {len(others)}")
        self.changed(tx)
        mapping = self.mapping(tx)
        for key, value in each_pair(tx, others[0]) if others else ():  # one may be refused after some are stored
            mapping[key] = value
        mapping.update(kwargs)
        return NONE

    def method_clear(self, tx: Interpreter) -> Value:
        self.changed(tx)
        self.mapping(tx).clear()
        return NONE

    def method___reversed__(self, tx: Interpreter) -> Value:
        return DictViewValue(self, "keys").method___reversed__(tx)

    def method___init__(self, tx: Interpreter, /, *others: Value, **kwargs: Value) -> Value:
        return self.method_update(tx, *others, **kwargs)

    def plain(self) -> DictValue:
        """A dict of the same items."""
        return self.like(self._values or {})

    def rebuild(self, emit: Emitter) -> None:
        if self.cls is dict:
            self.rebuild_contents(emit)
        else:
            emit.call_object(self.cls, [self.owner or DictValue(self._values)])

    def rebuild_contents(self, emit: Emitter) -> None:
        emit.build_map(self._values or {})


def proxy_of(tx: Interpreter, of: DictValue) -> DictValue:
    """``types.MappingProxyType(of)``: the same items, live."""
    made = DictValue(of.mapping(tx), types.MappingProxyType)
    made.owner = of.owner or of
    return made


class OrderedDictValue(DictValue):
    """An OrderedDict."""

    def method_move_to_end(self, tx: Interpreter, key: Value, last: Value | None = None) -> Value:
        raw = hashable(tx, key)
        if self.lookup(tx, raw) is None:
            raise raised(KeyError, key)
        self.changed(tx)
        mapping = self.mapping(tx)
        if last is None or last.truth(tx):
            mapping[raw] = mapping.pop(raw)
        else:
            before = {raw: mapping.pop(raw), **mapping}
            mapping.clear()
            mapping.update(before)
        return NONE

    def like(self, values: dict[Any, Value]) -> DictValue:
        return OrderedDictValue(values, self.cls)


class DefaultDictValue(DictValue):
    """A defaultdict."""

    _factory: Value | None = None

    def factory(self, tx: Interpreter) -> Value:
        if self._factory is None:
            assert self.source is not None
            self.load(tx)
            self._factory = tx.capture.wrap(self.real.default_factory, Attribute(self.source, "default_factory"))
        return self._factory

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        return self.factory(tx) if name == "default_factory" else super().get_attr(tx, name)

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        found = self.lookup(tx, hashable(tx, key))
        return self.method___missing__(tx, key) if found is None else found

    def method___missing__(self, tx: Interpreter, key: Value) -> Value:
        factory = self.factory(tx)
        if tx.is_same(factory, NONE):
            raise raised(KeyError, key)
        made = factory.call(tx, [], {})
        self.set_item(tx, key, made)
        return made

    def method___init__(self, tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
        self._factory = args[0] if args else NONE
        return super().method___init__(tx, *args[1:], **kwargs)

    def like(self, values: dict[Any, Value]) -> DictValue:
        made = DefaultDictValue(values, self.cls)
        made._factory = self._factory
        return made

    def constant(self, tx: Interpreter) -> Any:
        return self.cls(self.factory(tx).constant(tx), DictValue(self.mapping(tx)).constant(tx))

    def method_copy(self, tx: Interpreter) -> Value:
        self.factory(tx)
        return super().method_copy(tx)

    def children(self) -> Sequence[Value]:
        return [*super().children(), *([self._factory] if self._factory is not None else [])]

    def rebuild(self, emit: Emitter) -> None:
        emit.call_object(self.cls, [self._factory or NONE, DictValue(self._values)])


class DictViewValue(ContainerValue):
    """``d.keys()``, ``d.values()`` or ``d.items()``: live, like Python's."""

    def __init__(self, of: DictValue, what: str) -> None:
        self.of = of
        self.what = what
        ordered = issubclass(of.cls, collections.OrderedDict)
        self.cls = type(getattr(collections.OrderedDict() if ordered else {}, what)())

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name == "mapping":
            return proxy_of(tx, self.of)
        return super().get_attr(tx, name)

    def item(self, tx: Interpreter, key: Any) -> Value:
        if self.what == "keys":
            return key_value(tx, key)
        value = self.of.mapping(tx)[key]
        return value if self.what == "values" else TupleValue([key_value(tx, key), value])

    def items(self, tx: Interpreter) -> list[Value]:
        return [self.item(tx, k) for k in self.of.mapping(tx)]

    def constant(self, tx: Interpreter) -> Any:
        return getattr(self.of.constant(tx), self.what)()

    def iterate(self, tx: Interpreter) -> Value:
        return DictIteratorValue(self, list(self.of.mapping(tx)))

    def method___reversed__(self, tx: Interpreter) -> Value:
        return DictIteratorValue(self, list(reversed(self.of.mapping(tx))), reversed)

    def length(self, tx: Interpreter) -> int:
        return self.of.length(tx)

    def contains(self, tx: Interpreter, item: Value) -> bool:
        if self.what == "keys":
            return self.of.contains(tx, item)
        return any(tx.is_item(v, item) for v in self.items(tx))

    def method_isdisjoint(self, tx: Interpreter, other: Value) -> Value:
        mine = [hashable(tx, v) for v in self.items(tx)]
        return ConstantValue(set(mine).isdisjoint([hashable(tx, v) for v in tx.list_of(other)]))

    def children(self) -> Sequence[Value]:
        return [self.of.owner or self.of]

    def rebuild(self, emit: Emitter) -> None:
        emit.value(self.of.owner or self.of)
        emit.call_method(self.what, [])


class DictIteratorValue(IteratorValue):
    """An iterator over a dict or a view of it, which may not change its size meanwhile."""

    def __init__(self, view: DictViewValue, keys: list[Any], order: Callable[[Any], Iterator[Any]] = iter) -> None:
        super().__init__([])
        self.view = view
        self.keys = keys
        self.order = order

    def next_value(self, tx: Interpreter) -> Value | None:
        mapping = self.view.of.mapping(tx)
        if len(mapping) != len(self.keys):
            raise raised(RuntimeError, "dictionary changed size during iteration")
        if self.index >= len(self.keys):
            return None
        key = self.keys[self.index]
        if key not in mapping:
            raise Unsupported("unsupported iteration", "the keys of a dict changed during iteration")
        self.index += 1
        tx.capture.count_round()
        return self.view.item(tx, key)

    def children(self) -> Sequence[Value]:
        return [self.view]

    def rebuild(self, emit: Emitter) -> None:
        from compiler_core.capture.values.static import StaticValue

        emit.call_object(advanced, [StaticValue(self.order), self.view, ConstantValue(self.index)])


def advanced(order: Callable[[Any], Iterator[Any]], container: Any, count: int) -> Iterator[Any]:
    """Called by generated code: ``iter(container)`` or ``reversed(container)`` that has given `count` items."""
    iterator = order(container)
    for _ in range(count):
        next(iterator)
    return iterator


def key_value(tx: Interpreter, key: Any) -> Value:
    return tx.capture.key_value(key)


def pairs(tx: Interpreter, other: Value) -> dict[Any, Value]:
    """What ``dict(other)`` would hold."""
    return dict(each_pair(tx, other))


def each_pair(tx: Interpreter, other: Value) -> Iterator[tuple[Any, Value]]:
    """The items that a dict takes from `other`, a mapping or an iterable of pairs, one by one."""
    from compiler_core.capture.values.user.objects import ObjectValue

    if isinstance(other, DictValue):
        yield from list(other.mapping(tx).items())
    elif isinstance(other, ObjectValue) and hasattr(other.cls, "keys"):
        yield from other.pairs(tx)
    else:
        iterator = other.iterate(tx)
        for i in itertools.count():
            if (pair := iterator.next_value(tx)) is None:
                return
            key, value = _two(tx, pair, i)
            yield hashable(tx, key), value


def _two(tx: Interpreter, pair: Value, i: int) -> list[Value]:
    what = f"dictionary update sequence element #{i}"
    try:
        found = tx.list_of(pair)
    except Raised as error:
        if not error.matches(TypeError):
            raise
        raise raised(TypeError, f"cannot convert {what} to a sequence") from None
    if len(found) != 2:
        raise raised(ValueError, f"{what} has length {len(found)}; 2 is required")
    return found


CONTAINERS: dict[Any, type[SequenceValue] | type[DictValue]] = {
    list: ListValue,
    collections.deque: DequeValue,
    tuple: TupleValue,
    torch.Size: TupleValue,
    dict: DictValue,
    collections.OrderedDict: OrderedDictValue,
    collections.defaultdict: DefaultDictValue,
}
