"""Instances of Python classes."""

from __future__ import annotations

import functools
import inspect
import itertools
import types
import typing
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.errors import Unsupported
from compiler_core.sources import Attribute, InstanceDict, Source
from compiler_core.values.base import UNBOUND, Raised, Value, raised
from compiler_core.values.constant import ConstantValue
from compiler_core.values.functions import FunctionValue, MethodValue, StaticValue, is_library
from compiler_core.values.keys import hashable
from compiler_core.values.mappings import DictValue

if TYPE_CHECKING:
    from compiler_core.reconstruct import Emitter
    from compiler_core.symbolic import Interpreter

ABSENT: Any = object()
# builtin classes whose __getattribute__ does what object's does
_GENERIC_ATTRIBUTES = (object, BaseException, dict, OrderedDict, list, tuple)
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
        self._result: Value = ConstantValue(None)
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
        """Python's attribute protocol; None where it would raise AttributeError."""
        getter = inspect.getattr_static(self.cls, "__getattribute__")
        if isinstance(getter, types.WrapperDescriptorType) and getter.__objclass__ in _GENERIC_ATTRIBUTES:
            return self.plain_attr(tx, name)
        self.look(tx)
        if not isinstance(getter, types.FunctionType):
            raise Unsupported("unsupported attribute", f"{self.cls.__name__} has its own __getattribute__")
        self._guard_class(tx, "__getattribute__", getter)
        try:
            return FunctionValue.outside(tx.capture, getter, None).call(tx, [self, ConstantValue(name)], {})
        except Raised as error:
            if not error.matches(AttributeError) or inspect.getattr_static(self.cls, "__getattr__", None) is None:
                raise
            return self._fallback(tx, name)

    def plain_attr(self, tx: Interpreter, name: str) -> Value | None:
        """``object.__getattribute__``, then ``__getattr__``"""
        self.look(tx)
        on_class = inspect.getattr_static(self.cls, name, ABSENT)
        if on_class is not ABSENT and is_data_descriptor(on_class):
            return self._descriptor(tx, name, on_class)
        stored = self.stored.get(name)
        if stored is not None and stored is not UNBOUND:
            return stored
        own = None if stored is UNBOUND else self._own_attr(tx, name)
        if own is not None:
            return own
        if on_class is not ABSENT:
            return self._class_attr(tx, name, on_class)
        return self._fallback(tx, name)

    def _descriptor(self, tx: Interpreter, name: str, descriptor: Any) -> Value:
        if isinstance(descriptor, property) and isinstance(descriptor.fget, types.FunctionType):
            self._guard_class(tx, name, descriptor)
            return FunctionValue.outside(tx.capture, descriptor.fget, None).call(tx, [self], {})
        if name == "__class__":
            return tx.capture.wrap_static(self.cls)
        if name == "__dict__":
            return self._instance_dict()
        if isinstance(descriptor, types.MemberDescriptorType) and self.source is not None and not self.stored:
            return tx.capture.wrap(getattr(self.real, name), Attribute(self.source, name))
        raise Unsupported("unsupported attribute", f"{self}.{name}, a {type(descriptor).__name__}")

    def _instance_dict(self) -> Value:
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
        if isinstance(found, types.FunctionType):
            return MethodValue(FunctionValue.outside(tx.capture, found, None), self)
        if isinstance(found, staticmethod):
            return tx.capture.wrap_static(found.__func__)
        if isinstance(found, classmethod):
            return MethodValue(tx.capture.wrap_static(found.__func__), StaticValue(self.cls))
        if isinstance(found, functools._lru_cache_wrapper):
            return MethodValue(StaticValue(found), self)
        if isinstance(found, functools.cached_property):
            raise Unsupported("unsupported attribute", f"{self}.{name}, a cached_property not yet computed")
        if hasattr(type(found), "__get__"):
            raise Unsupported("unsupported attribute", f"{self}.{name}, a {type(found).__name__}")
        hidden = name in self.stored  # the instance's own, deleted in the frame, still hides it from guards
        base = (None if hidden else self.source) or tx.capture.held(self.cls, self.cls.__qualname__)
        return tx.capture.wrap_attribute(found, Attribute(base, name))

    def _guard_class(self, tx: Interpreter, name: str, found: Any) -> None:
        guard_class(tx, self.cls, name, found)

    def _fallback(self, tx: Interpreter, name: str) -> Value | None:
        getter = inspect.getattr_static(self.cls, "__getattr__", None)
        if getter is None:
            return None
        self._guard_class(tx, "__getattr__", getter)
        if not isinstance(getter, types.FunctionType):
            raise Unsupported("unsupported attribute", f"{self}.{name}")
        return FunctionValue.outside(tx.capture, getter, None).call(tx, [self, ConstantValue(name)], {})

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        self.look(tx)
        if _stores_its_own_way(self.cls):
            self._special_call(tx, "__setattr__", [ConstantValue(name), value])
            return
        on_class = inspect.getattr_static(self.cls, name, ABSENT)
        if on_class is not ABSENT and is_data_descriptor(on_class):
            raise Unsupported("unsupported mutation", f"{self}.{name}, a {type(on_class).__name__}")
        self.store(tx, name, value)

    @property
    def stores_directly(self) -> bool:
        """Whether stores were made by ``object.__setattr__``, below a ``__setattr__`` of the class's own."""
        return _stores_its_own_way(self.cls)

    def store(self, tx: Interpreter, name: str, value: Value) -> None:
        """``object.__setattr__``"""
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
        if inspect.getattr_static(self.cls, "__delattr__") is not object.__delattr__:
            self._special_call(tx, "__delattr__", [ConstantValue(name)])
            return
        if is_data_descriptor(inspect.getattr_static(self.cls, name, None)):
            raise Unsupported("unsupported mutation", f"del {self}.{name}, which its class defines")
        if self._is_deleted(name) or (name not in self.stored and self._own_attr(tx, name) is None):
            self._guard_absent(tx, name)
            raise raised(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        self.store(tx, name, UNBOUND)

    def _guard_absent(self, tx: Interpreter, name: str) -> None:
        """An attribute was not found in the outside object's own dict."""
        if self.source is not None and hasattr(self.real, "__dict__") and name not in self.stored:
            tx.capture.guard("DICT_CONTAINS", InstanceDict(self.source), name)

    # --- behaviour by special methods

    def special(self, tx: Interpreter, name: str) -> Value | None:
        """The bound special method `name` where the class defines it in Python."""
        found = inspect.getattr_static(self.cls, name, None)
        if isinstance(found, types.FunctionType):
            self.look(tx)
            self._guard_class(tx, name, found)
            return MethodValue(FunctionValue.outside(tx.capture, found, None), self)
        return None

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
            if inspect.getattr_static(self.cls, name, None) is not None:
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
        from compiler_core.values.iterators import MappedIteratorValue

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

    def pairs(self, tx: Interpreter) -> dict[Any, Value]:
        """What ``dict(obj)`` takes from an object with ``keys()``."""
        keys = tx.list_of(self.get_attr(tx, "keys").call(tx, [], {}))
        return {hashable(tx, key): self.get_item(tx, key) for key in keys}

    # --- across a break

    def children(self) -> Sequence[Value]:
        return () if self.source is not None else [v for v in self.stored.values() if v is not UNBOUND]

    def rebuild(self, emit: Emitter) -> None:
        values = {k: v for k, v in self.stored.items() if v is not UNBOUND}
        emit.call_object(make_object, [StaticValue(self.cls), DictValue(dict(values))])


class InstanceDictValue(DictValue):
    """``vars(obj)`` of an outside object, with what the frame has stored in it; to look at only."""

    owner: ObjectValue

    def __init__(self, owner: ObjectValue) -> None:
        assert owner.source is not None
        super().__init__(None, dict, InstanceDict(owner.source), owner.real.__dict__)
        self.mutable = False
        self.owner = owner

    def item_source(self, key: Any) -> Source:
        assert self.owner.source is not None
        return Attribute(self.owner.source, key, "__dict__")

    def mapping(self, tx: Interpreter) -> dict[Any, Value]:
        self.owner.keys_were_read = True
        return {k: v for k, v in {**super().mapping(tx), **self.owner.stored}.items() if v is not UNBOUND}

    def lookup(self, tx: Interpreter, key: Any) -> Value | None:
        stored = self.owner.stored.get(key)
        return super().lookup(tx, key) if stored is None else None if stored is UNBOUND else stored

    def contains(self, tx: Interpreter, item: Value) -> bool:
        stored = self.owner.stored.get(hashable(tx, item))
        return super().contains(tx, item) if stored is None else stored is not UNBOUND


class OwnDictValue(DictValue):
    """``vars(obj)`` of an object made in the frame: its attributes themselves."""

    owner: ObjectValue

    def __init__(self, owner: ObjectValue) -> None:
        super().__init__(owner.stored)
        self.owner = owner

    def same_object(self, other: Value) -> bool:
        return isinstance(other, OwnDictValue) and self.owner is other.owner

    def children(self) -> Sequence[Value]:
        return [self.owner]

    def rebuild(self, emit: Emitter) -> None:
        emit.value(self.owner)
        emit.load_attr("__dict__")


def make_object(cls: type, attributes: dict[str, Any]) -> Any:
    """Called by generated code to make an instance that the frame made."""
    made: Any = object.__new__(cls)
    for name, value in attributes.items():
        object.__setattr__(made, name, value)
    return made


def is_python_class(cls: type) -> bool:
    """Whether `cls` was made by a class statement: C's own types cannot be changed."""
    heap_type, immutable = 1 << 9, 1 << 8
    return bool(cls.__flags__ & heap_type) and not cls.__flags__ & immutable


_CODE_OF_CLASSES = (types.FunctionType, property, staticmethod, classmethod, functools._lru_cache_wrapper)


@functools.cache
def is_plain_class(cls: Any) -> bool:
    """Whether `cls` and all its bases but object are Python's class statements."""
    return cls is not object and all(is_python_class(c) or c in (object, typing.Generic) for c in cls.__mro__)


def guard_class(tx: Interpreter, cls: type, name: str, found: Any) -> None:
    """A function or property of a class may be replaced between calls (constants have a guard of their own)."""
    if not is_library(cls.__module__) and isinstance(found, _CODE_OF_CLASSES):
        held = tx.capture.held(cls, cls.__qualname__)
        if isinstance(found, classmethod):
            tx.capture.guard("ID_MATCH", Attribute(Attribute(held, name), "__func__"), found.__func__)
        else:
            tx.capture.guard("ID_MATCH", Attribute(held, name), getattr(cls, name))


def type_of(value: Value) -> type:
    try:
        return value.python_type()
    except Unsupported:
        return object


def is_data_descriptor(obj: Any) -> bool:
    return hasattr(type(obj), "__set__") or hasattr(type(obj), "__delete__")


@functools.cache
def _stores_its_own_way(cls: type) -> bool:
    """Whether `cls` stores attributes in a way of its own rather than object's."""
    return inspect.getattr_static(cls, "__setattr__") not in (object.__setattr__, BaseException.__setattr__)


class SuperValue(Value):
    """``super()`` in a method."""

    def __init__(self, after: type, owner: Value) -> None:
        self.after = after
        self.owner = owner

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        start = self.owner.obj if isinstance(self.owner, StaticValue) else self.owner.python_type()
        mro = start.__mro__
        if self.after not in mro:
            raise Unsupported("unsupported attribute", f"super().{name} in a metaclass")
        for cls in mro[mro.index(self.after) + 1 :]:
            if name in cls.__dict__:
                guard_class(tx, cls, name, cls.__dict__[name])
                return self._bind(tx, name, cls.__dict__[name])
        raise Unsupported("exception", f"super has no attribute {name!r}")

    def _bind(self, tx: Interpreter, name: str, found: Any) -> Value:
        if isinstance(found, types.FunctionType):
            function = FunctionValue.outside(tx.capture, found, None)
            return function if isinstance(self.owner, StaticValue) else MethodValue(function, self.owner)
        if isinstance(found, staticmethod):
            return tx.capture.wrap_static(found.__func__)
        if isinstance(found, classmethod) and isinstance(self.owner, StaticValue):
            return MethodValue(tx.capture.wrap_static(found.__func__), self.owner)
        if isinstance(found, types.BuiltinFunctionType):  # a builtin class's __new__
            return StaticValue(found)
        if isinstance(found, property) and isinstance(found.fget, types.FunctionType):
            return FunctionValue.outside(tx.capture, found.fget, None).call(tx, [self.owner], {})
        if found is object.__init__:
            return StaticValue(_nothing)
        if isinstance(found, types.WrapperDescriptorType) and issubclass(type_of(self.owner), BaseException):
            return MethodValue(StaticValue(found), self.owner)
        if found is object.__setattr__ and isinstance(self.owner, ObjectValue):
            return _StoreValue(self.owner)
        if found is object.__getattribute__ and isinstance(self.owner, ObjectValue):
            return _LookupValue(self.owner)
        if isinstance(found, BUILTIN_METHODS) and isinstance(self.owner, ObjectValue):
            return BoundBuiltin(found, self.owner)
        raise Unsupported("unsupported attribute", f"super().{name}")

    def children(self) -> Sequence[Value]:
        return [self.owner]

    def rebuild(self, emit: Emitter) -> None:
        emit.call_object(super, [StaticValue(self.after), self.owner])


class BoundBuiltin(Value):
    """A method of a builtin class, bound to an instance of a subclass: ``super().__setitem__``."""

    def __init__(self, descriptor: Any, owner: ObjectValue) -> None:
        self.descriptor = descriptor
        self.owner = owner

    def __repr__(self) -> str:
        return f"{self.owner}.{self.descriptor.__name__}"

    def python_type(self) -> type:
        is_slot = isinstance(self.descriptor, types.WrapperDescriptorType)
        return types.MethodWrapperType if is_slot else types.BuiltinMethodType

    def truth(self, tx: Interpreter) -> bool:
        return True

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return StaticValue(self.descriptor).call(tx, [self.owner, *args], kwargs)

    def children(self) -> Sequence[Value]:
        return [self.owner]

    def rebuild(self, emit: Emitter) -> None:
        emit.call_object(self.descriptor.__get__, [self.owner])


class _LookupValue(Value):
    """``super().__getattribute__`` of a plain object."""

    def __init__(self, owner: ObjectValue) -> None:
        self.owner = owner

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return look_up(tx, self.owner, *args)


def look_up(tx: Interpreter, owner: ObjectValue, name: Value) -> Value:
    """``object.__getattribute__(owner, name)``"""
    found = owner.plain_attr(tx, name.constant(tx))
    if found is None:
        raise raised(AttributeError, f"{owner.cls.__name__!r} object has no attribute {name}")
    return found


class _StoreValue(Value):
    """``super().__setattr__`` of a plain object."""

    def __init__(self, owner: ObjectValue) -> None:
        self.owner = owner

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return store_attribute(tx, self.owner, *args)


def store_attribute(tx: Interpreter, owner: ObjectValue, name: Value, value: Value) -> Value:
    """``object.__setattr__(owner, name, value)``"""
    wanted = name.constant(tx)
    if is_data_descriptor(inspect.getattr_static(owner.cls, wanted, None)):
        raise Unsupported("unsupported mutation", f"{owner}.{wanted}")
    owner.store(tx, wanted, value)
    return ConstantValue(None)


def _nothing() -> None:
    """object.__init__ with no arguments"""
