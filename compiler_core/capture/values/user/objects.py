"""Instances of Python classes."""

from __future__ import annotations

import itertools
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import UNBOUND, Raised, Value, raised
from compiler_core.capture.values.builtin.iterators import over
from compiler_core.capture.values.builtin.keys import hashable
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.constant import NONE, ConstantValue
from compiler_core.capture.values.static import StaticValue
from compiler_core.capture.values.user.classes import guard_class, stores_its_own_way
from compiler_core.capture.values.user.descriptors import (
    ABSENT,
    delete,
    is_data_descriptor,
    is_descriptor,
    lookup,
    read,
    write,
)
from compiler_core.capture.values.user.functions import FunctionValue, MethodValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import Attribute, InstanceDict, Source

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter

# builtin classes whose __getattribute__ does what object's does
_GENERIC_ATTRIBUTES = (object, BaseException, dict, OrderedDict, defaultdict, list, deque, tuple)
BUILTIN_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)


class ObjectValue(Value):
    """An instance whose class is plain Python, from outside or made in the frame.

    Attribute stores are kept in `stored` and replayed after the graph.
    """

    def __init__(self, cls: type, real: Any = None, source: Source | None = None) -> None:
        self.cls = cls
        self.real = real
        self.source = source
        self.stored: dict[str, Value] = {}
        self._result: Value = NONE
        self.keys_were_read = False

    def __repr__(self) -> str:
        return self.source.text if self.source else f"{self.cls.__name__} object"

    def python_type(self) -> type:
        return self.cls

    def look(self, tx: Interpreter) -> None:
        if self.source is not None:
            tx.capture.guard("TYPE_MATCH", self.source, self.real)

    # --- attributes

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        found = self.find_attr(tx, name)
        if found is None:
            if self.source is not None and name not in self.stored:
                tx.capture.guard("NO_ATTRIBUTE", self.source, name)
            raise raised(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        return found

    def find_attr(self, tx: Interpreter, name: str) -> Value | None:
        """Python's attribute protocol; None where ``object.__getattribute__`` would raise AttributeError."""
        getter = lookup(self.cls, "__getattribute__")
        if isinstance(getter, types.WrapperDescriptorType) and getter.__objclass__ in _GENERIC_ATTRIBUTES:
            return self._or_fallback(tx, name, lambda: self.plain_attr(tx, name))
        self.look(tx)
        if not isinstance(getter, types.FunctionType):
            raise Unsupported("unsupported attribute", f"{self.cls.__name__} has its own __getattribute__")
        self._guard_class(tx, "__getattribute__", getter)
        function = FunctionValue.outside(tx.capture, getter, None)
        return self._or_fallback(tx, name, lambda: function.call(tx, [self, ConstantValue(name)], {}))

    def _or_fallback(self, tx: Interpreter, name: str, find: Callable[[], Value | None]) -> Value | None:
        """What `find` finds, or, where that is nothing, ``__getattr__``."""
        try:
            found = find()
        except Raised as error:
            if not error.matches(AttributeError) or lookup(self.cls, "__getattr__") is ABSENT:
                raise
            found = None
        return self._fallback(tx, name) if found is None else found

    def plain_attr(self, tx: Interpreter, name: str) -> Value | None:
        """``object.__getattribute__``; None where it would raise AttributeError"""
        self.look(tx)
        on_class = lookup(self.cls, name)
        if on_class is not ABSENT and is_data_descriptor(on_class):
            return self._descriptor(tx, name, on_class)
        stored = self.stored.get(name)
        if stored is not None and stored is not UNBOUND:
            return stored
        own = None if stored is UNBOUND else self._own_attr(tx, name)
        if own is not None:
            return own
        return None if on_class is ABSENT else self._class_attr(tx, name, on_class)

    def _descriptor(self, tx: Interpreter, name: str, descriptor: Any) -> Value | None:
        if descriptor is vars(object)["__class__"]:
            return tx.capture.wrap_static(self.cls)
        if name == "__dict__":
            return self._instance_dict()
        if isinstance(descriptor, types.MemberDescriptorType):
            return self._slot(tx, name)
        self._guard_class(tx, name, descriptor)
        return read(tx, descriptor, name, self, self.cls)

    def _slot(self, tx: Interpreter, name: str) -> Value | None:
        stored = self.stored.get(name)
        if stored is not None or self.source is None:
            return None if stored is UNBOUND else stored
        if not hasattr(self.real, name):
            return None
        return tx.capture.wrap(getattr(self.real, name), Attribute(self.source, name))

    def _instance_dict(self) -> Value:
        if any(vars(c).get("__slots__") for c in self.cls.__mro__):
            raise Unsupported("unsupported attribute", f"{self}.__dict__ beside slots")
        if self.source is None:
            return OwnDictValue(self)
        return InstanceDictValue(self)

    def _own_attr(self, tx: Interpreter, name: str) -> Value | None:
        if self.source is None:
            return None
        own = getattr(self.real, "__dict__", {})
        if name in own:
            return tx.capture.wrap(own[name], Attribute(self.source, name, "__dict__"))
        return None

    def _class_attr(self, tx: Interpreter, name: str, found: Any) -> Value:
        self._guard_absent(tx, name)
        self._guard_class(tx, name, found)
        if is_descriptor(found):
            return read(tx, found, name, self, self.cls)
        hidden = name in self.stored  # the instance's own, deleted in the frame, still hides it from guards
        base = (None if hidden else self.source) or tx.capture.held(self.cls, self.cls.__qualname__)
        return tx.capture.wrap_attribute(found, Attribute(base, name))

    def _guard_class(self, tx: Interpreter, name: str, found: Any) -> None:
        guard_class(tx, self.cls, name, found)

    def _fallback(self, tx: Interpreter, name: str) -> Value | None:
        getter = lookup(self.cls, "__getattr__")
        if getter is ABSENT:
            return None
        self._guard_class(tx, "__getattr__", getter)
        if not isinstance(getter, types.FunctionType):
            raise Unsupported("unsupported attribute", f"{self}.{name}")
        return FunctionValue.outside(tx.capture, getter, None).call(tx, [self, ConstantValue(name)], {})

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        self.look(tx)
        if stores_its_own_way(self.cls):
            self._special_call(tx, "__setattr__", [ConstantValue(name), value])
        else:
            self.set_plainly(tx, name, value)

    def set_plainly(self, tx: Interpreter, name: str, value: Value) -> None:
        """``object.__setattr__``"""
        on_class = lookup(self.cls, name)
        if on_class is not ABSENT and is_data_descriptor(on_class):
            self._guard_class(tx, name, on_class)
            write(tx, on_class, name, self, value)
        elif self.cls.__dictoffset__ == 0:
            raise Unsupported("exception", f"{self} has no {name!r} and no __dict__")
        else:
            self.store(tx, name, value)

    @property
    def stores_directly(self) -> bool:
        """Whether stores were made by ``object.__setattr__``, below a ``__setattr__`` of the class's own."""
        return stores_its_own_way(self.cls)

    def store(self, tx: Interpreter, name: str, value: Value) -> None:
        """Put an attribute into the object itself; UNBOUND takes it away."""
        if self.keys_were_read and (value is UNBOUND or name not in self.real.__dict__ or self._is_deleted(name)):
            raise Unsupported("unsupported mutation", f"{self}.{name}, after a loop over the __dict__")
        if self.source is not None:
            tx.capture.effects.attribute(self, name)
        if value is UNBOUND and self.source is None:
            del self.stored[name]
        else:
            self.stored[name] = value

    def _is_deleted(self, name: str) -> bool:
        return self.stored.get(name) is UNBOUND

    def del_attr(self, tx: Interpreter, name: str) -> None:
        self.look(tx)
        if lookup(self.cls, "__delattr__") not in (object.__delattr__, BaseException.__delattr__):
            self._special_call(tx, "__delattr__", [ConstantValue(name)])
        else:
            self.del_plainly(tx, name)

    def del_plainly(self, tx: Interpreter, name: str) -> None:
        """``object.__delattr__``"""
        on_class = lookup(self.cls, name)
        if on_class is not ABSENT and is_data_descriptor(on_class):
            self._guard_class(tx, name, on_class)
            delete(tx, on_class, name, self)
        else:
            self.remove(tx, name)

    def remove(self, tx: Interpreter, name: str) -> None:
        """Take an attribute away from the object itself."""
        is_slot = isinstance(lookup(self.cls, name), types.MemberDescriptorType)
        if self._is_deleted(name) or (name not in self.stored and self._at_entry(tx, name, is_slot) is None):
            if is_slot and self.source is not None:
                tx.capture.guard("NO_ATTRIBUTE", self.source, name)
            self._guard_absent(tx, name)
            raise raised(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        self.store(tx, name, UNBOUND)

    def _at_entry(self, tx: Interpreter, name: str, is_slot: bool) -> Value | None:
        return self._slot(tx, name) if is_slot else self._own_attr(tx, name)

    def _guard_absent(self, tx: Interpreter, name: str) -> None:
        """An attribute was not found in the outside object's own dict."""
        if self.source is not None and hasattr(self.real, "__dict__") and name not in self.stored:
            tx.capture.guard("DICT_CONTAINS", InstanceDict(self.source), name)

    # --- behaviour by special methods

    def special(self, tx: Interpreter, name: str) -> Value | None:
        """The bound special method `name` where the class defines it in Python."""
        found = lookup(self.cls, name)
        if isinstance(found, types.FunctionType):
            self.look(tx)
            self._guard_class(tx, name, found)
            return MethodValue(FunctionValue.outside(tx.capture, found, None), self)
        if found is ABSENT or isinstance(found, BUILTIN_METHODS):
            return None
        raise Unsupported("unsupported operation", f"{self.cls.__name__}.{name}, a {type(found).__name__}")

    def _special_call(self, tx: Interpreter, name: str, args: Sequence[Value]) -> Value:
        method = self.special(tx, name)
        if method is None:
            raise Unsupported("unsupported operation", f"{self.cls.__name__} has no {name} in Python")
        return method.call(tx, args, {})

    def comes_to(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Value, list[Value], dict[str, Value]] | None:
        method = self.special(tx, "__call__")
        if method is None:
            raise Unsupported("unsupported call", f"a {self.cls.__name__}")
        return method, list(args), kwargs

    def truth(self, tx: Interpreter) -> bool:
        for name in ("__bool__", "__len__"):
            if (method := self.special(tx, name)) is not None:
                return method.call(tx, [], {}).truth(tx)
            if lookup(self.cls, name) is not ABSENT:
                raise Unsupported("unsupported operation", f"truth of a {self.cls.__name__}")
        self.look(tx)
        return True

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        return self._special_call(tx, "__getitem__", [key])

    def set_item(self, tx: Interpreter, key: Value, value: Value) -> None:
        self._special_call(tx, "__setitem__", [key, value])

    def del_item(self, tx: Interpreter, key: Value) -> None:
        self._special_call(tx, "__delitem__", [key])

    def contains(self, tx: Interpreter, item: Value) -> bool:
        return self._special_call(tx, "__contains__", [item]).truth(tx)

    def length(self, tx: Interpreter) -> int:
        found = self._special_call(tx, "__len__", []).constant(tx)
        assert isinstance(found, int)
        return found

    def iterate(self, tx: Interpreter) -> Value:
        if (method := self.special(tx, "__iter__")) is not None:
            iterator = method.call(tx, [], {})
            if isinstance(iterator, ObjectValue) and iterator.special(tx, "__next__") is None:
                raise Unsupported("exception", f"iter() returned a {iterator}")
            return iterator
        if self.special(tx, "__getitem__") is None:
            raise Unsupported("unsupported iteration", f"a {self.cls.__name__}")
        return self._iterate_by_index()

    def _iterate_by_index(self) -> Value:
        from compiler_core.capture.values.builtin.iterators import MappedIteratorValue

        counter = itertools.count()

        def step(tx: Interpreter) -> Value | None:
            try:
                return self.get_item(tx, ConstantValue(next(counter)))
            except Raised as error:
                if error.matches(IndexError):
                    return None
                raise

        return MappedIteratorValue(step)

    def next_value(self, tx: Interpreter) -> Value | None:
        tx.capture.count_round()
        try:
            return self.next_or_stop(tx)
        except Raised as error:
            if not error.matches(StopIteration):
                raise
            self._result = error.exception.get_attr(tx, "value")
            return None

    def next_or_stop(self, tx: Interpreter) -> Value:
        return self._special_call(tx, "__next__", [])

    def result(self) -> Value:
        return self._result

    def items(self, tx: Interpreter) -> list[Value]:
        return tx.list_of(self)

    def pairs(self, tx: Interpreter) -> Iterator[tuple[Any, Value]]:
        """What ``dict(obj)`` takes from an object with ``keys()``."""
        for key in over(tx, self.get_attr(tx, "keys").call(tx, [], {})):
            yield hashable(tx, key), self.get_item(tx, key)

    # --- across a break

    def children(self) -> Sequence[Value]:
        return () if self.source is not None else [v for v in self.stored.values() if v is not UNBOUND]

    def rebuild(self, emit: Emitter) -> None:
        values = {k: v for k, v in self.stored.items() if v is not UNBOUND}
        emit.call_object(make_object, [StaticValue(self.cls), DictValue(dict(values))])


class InstanceDictValue(DictValue):
    """``vars(obj)`` of an outside object, with what the frame has stored in it; to look at only."""

    holder: ObjectValue

    def __init__(self, holder: ObjectValue) -> None:
        assert holder.source is not None
        super().__init__(None, dict, InstanceDict(holder.source), holder.real.__dict__)
        self.mutable = False
        self.holder = holder

    def item_source(self, key: Any) -> Source:
        assert self.holder.source is not None
        return Attribute(self.holder.source, key, "__dict__")

    def mapping(self, tx: Interpreter) -> dict[Any, Value]:
        self.holder.keys_were_read = True
        return {k: v for k, v in {**super().mapping(tx), **self.holder.stored}.items() if v is not UNBOUND}

    def lookup(self, tx: Interpreter, key: Any) -> Value | None:
        stored = self.holder.stored.get(key)
        return super().lookup(tx, key) if stored is None else None if stored is UNBOUND else stored

    def contains(self, tx: Interpreter, item: Value) -> bool:
        stored = self.holder.stored.get(hashable(tx, item))
        return super().contains(tx, item) if stored is None else stored is not UNBOUND


class OwnDictValue(DictValue):
    """``vars(obj)`` of an object or function made in the frame: its attributes themselves."""

    holder: ObjectValue | FunctionValue

    def __init__(self, holder: ObjectValue | FunctionValue) -> None:
        super().__init__(holder.stored)
        self.holder = holder

    def same_object(self, other: Value) -> bool:
        return isinstance(other, OwnDictValue) and self.holder is other.holder

    def children(self) -> Sequence[Value]:
        return [self.holder]

    def rebuild(self, emit: Emitter) -> None:
        emit.value(self.holder)
        emit.load_attr("__dict__")


def make_object(cls: type, attributes: dict[str, Any]) -> Any:
    """Called by generated code to make an instance that the frame made."""
    made: Any = object.__new__(cls)
    for name, value in attributes.items():
        object.__setattr__(made, name, value)
    return made


def type_of(value: Value) -> type:
    try:
        return value.python_type()
    except Unsupported:
        return object
