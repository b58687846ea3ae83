"""Attributes of instances: Python's attribute protocol, and ``__dict__`` of an instance.

The protocol is that of ``PyObject_GenericGetAttr`` and ``PyObject_GenericSetAttr`` in CPython's ``Objects/object.c``.
"""

from __future__ import annotations

import functools
import threading
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import (
    ABSENT,
    UNBOUND,
    Args,
    ObservedException,
    Value,
    guard_class_attribute,
    has_custom_setattr,
    is_class_property,
    is_data_descriptor,
    is_descriptor,
    lookup_in_mro,
    observed_exception,
)
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue, errors_of_program
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.user.functions import FunctionValue, MethodValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import AttrSource, InstanceDictSource, Source, entry_of_class

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


# builtin classes whose __getattribute__ does the same as object's
_GENERIC_ATTRIBUTES = (
    object, BaseException, dict, OrderedDict, defaultdict, list, deque, tuple, set, frozenset, threading.local,
)  # fmt: skip
BUILTIN_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)


class InstanceValue(Value):
    """An object with a class and attributes.

    Attributes that the frame sets are kept in `stored`, and are set on an outside object after the graph has run.
    """

    def __init__(self, cls: type, real: Any = None, source: Source | None = None) -> None:
        self.cls = cls
        self.real = real
        self.source = source
        self.stored: dict[str, Value] = {}
        """Attributes that the frame has set; UNBOUND for those that it has deleted."""
        self.dict_was_iterated = False
        """Whether the frame has read the keys of ``__dict__``, after which none may be added or deleted."""

    def __repr__(self) -> str:
        return self.source.text if self.source else f"{self.cls.__name__} object"

    def install_guards(self, tx: Interpreter) -> None:
        tx.guards.add("TYPE_MATCH", self.source, self.real)

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        found = self.find_attr(tx, name)
        if found is None:
            if name not in self.stored:
                tx.guards.add("NO_ATTRIBUTE", self.source, name)
            raise observed_exception(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        return found

    def find_attr(self, tx: Interpreter, name: str) -> Value | None:
        """Returns an attribute by Python's protocol; None where AttributeError is raised."""
        getter = lookup_in_mro(self.cls, "__getattribute__")
        if isinstance(getter, types.WrapperDescriptorType) and getter.__objclass__ in _GENERIC_ATTRIBUTES:
            return self._find_or_getattr(tx, name, lambda: self.generic_get_attr(tx, name))
        self.install_guards(tx)
        if not isinstance(getter, types.FunctionType):
            raise Unsupported("unsupported attribute", f"{self.cls.__name__} overrides __getattribute__")
        self._guard_class(tx, "__getattribute__", getter)
        function = FunctionValue.from_outside(tx.outside, getter, None)
        return self._find_or_getattr(tx, name, lambda: function.call(tx, [self, ConstantValue(name)], {}))

    def _find_or_getattr(self, tx: Interpreter, name: str, find: Callable[[], Value | None]) -> Value | None:
        """Returns the result of `find`; if that finds nothing, the result of ``__getattr__``."""
        try:
            found = find()
        except ObservedException as error:
            if not error.matches(AttributeError) or lookup_in_mro(self.cls, "__getattr__") is ABSENT:
                raise
            found = None
        return self._getattr_fallback(tx, name) if found is None else found

    def generic_get_attr(self, tx: Interpreter, name: str) -> Value | None:
        """``object.__getattribute__``; None where it raises AttributeError."""
        self.install_guards(tx)
        on_class = lookup_in_mro(self.cls, name)
        if on_class is not ABSENT and is_data_descriptor(on_class):
            return self._read_descriptor(tx, name, on_class)
        found = self.stored.get(name) or self._instance_attr(tx, name)
        if found is not None and found is not UNBOUND:
            return found
        return None if on_class is ABSENT else self._class_attr(tx, name, on_class)

    def _read_descriptor(self, tx: Interpreter, name: str, descriptor: Any) -> Value | None:
        if descriptor is vars(object)["__class__"]:
            return tx.outside.wrap(self.cls)
        if name == "__dict__":
            return self._instance_dict()
        if isinstance(descriptor, types.MemberDescriptorType):
            return self._slot(tx, name)
        self._guard_class(tx, name, descriptor)
        return descriptor_get(tx, descriptor, name, self, self.cls)

    def _slot(self, tx: Interpreter, name: str) -> Value | None:
        stored = self.stored.get(name)
        if stored is not None or self.source is None:
            return None if stored is UNBOUND else stored
        try:
            contents = object.__getattribute__(self.real, name)  # hasattr() would call the class's own __getattr__
        except AttributeError:
            return None
        return tx.outside.wrap(contents, AttrSource(self.source, name))

    def _instance_dict(self) -> Value:
        if any(vars(c).get("__slots__") for c in self.cls.__mro__):
            raise Unsupported("unsupported attribute", f"{self}.__dict__ of a class with slots")
        if self.source is None:
            return NewObjectDictValue(self)
        return InstanceDictValue(self)

    def _instance_attr(self, tx: Interpreter, name: str) -> Value | None:
        if self.source is None:
            return None
        attributes = getattr(self.real, "__dict__", {})
        if name in attributes:
            place = None if self.cls is threading.local else "__dict__"  # each thread has another dict
            return tx.outside.wrap(attributes[name], AttrSource(self.source, name, place))
        return None

    def _class_attr(self, tx: Interpreter, name: str, found: Any) -> Value:
        self._guard_absent(tx, name)
        self._guard_class(tx, name, found)
        if is_descriptor(found):
            return descriptor_get(tx, found, name, self, self.cls)
        if (stored := tx.effects.class_value(self.cls.__mro__, name)) is not None:
            return stored
        # an instance attribute that the frame deleted still exists when guards run, so they read the class's instead
        is_hidden = name in self.stored
        base = (None if is_hidden else self.source) or tx.guards.held(self.cls, self.cls.__qualname__)
        return tx.outside.wrap_attribute(found, AttrSource(base, name))

    def _guard_class(self, tx: Interpreter, name: str, found: Any) -> None:
        guard_class_attribute(tx, self.cls, name, found)

    def _getattr_fallback(self, tx: Interpreter, name: str) -> Value | None:
        """Calls ``__getattr__``; returns None if the class has none."""
        getter = lookup_in_mro(self.cls, "__getattr__")
        if getter is ABSENT:
            return None
        self._guard_class(tx, "__getattr__", getter)
        if isinstance(getter, BUILTIN_METHODS):  # ``__getattr__ = dict.get``
            return tx.call_static(getter, [self, ConstantValue(name)], {})
        if not isinstance(getter, types.FunctionType):
            raise Unsupported("unsupported attribute", f"{self}.{name}")
        return FunctionValue.from_outside(tx.outside, getter, None).call(tx, [self, ConstantValue(name)], {})

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        self.install_guards(tx)
        if has_custom_setattr(self.cls):
            self._special_call(tx, "__setattr__", [ConstantValue(name), value])
        else:
            self.generic_set_attr(tx, name, value)

    def generic_set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        """``object.__setattr__``."""
        on_class = lookup_in_mro(self.cls, name)
        if on_class is not ABSENT and is_data_descriptor(on_class):
            self._guard_class(tx, name, on_class)
            descriptor_set(tx, on_class, name, self, value)
        elif self.cls.__dictoffset__ == 0 and self.cls is not threading.local:
            stand_in: Any = type(
                self.cls.__name__, (), {"__slots__": (), **({} if on_class is ABSENT else {name: None})}
            )()
            with errors_of_program(AttributeError):
                setattr(stand_in, name, None)
        else:
            self.store(tx, name, value)

    @property
    def bypasses_setattr(self) -> bool:
        """Whether replaying must use ``object.__setattr__``, because the class overrides ``__setattr__``."""
        return has_custom_setattr(self.cls)

    def store(self, tx: Interpreter, name: str, value: Value) -> None:
        """Sets an attribute of the instance itself; UNBOUND deletes it."""
        if self.dict_was_iterated and (value is UNBOUND or name not in self.real.__dict__ or self._is_deleted(name)):
            raise Unsupported("unsupported mutation", f"{self}.{name}, after a loop over the __dict__")
        if tx.effects.frozen and self._has_already(tx, name, value):
            return
        if self.source is not None:
            tx.effects.note_attribute(self, name)
        if value is UNBOUND and self.source is None:
            del self.stored[name]
        else:
            self.stored[name] = value

    def _has_already(self, tx: Interpreter, name: str, value: Value) -> bool:
        """Whether an attribute is this constant, which is guarded if so."""
        found = self.stored.get(name) or self._instance_attr(tx, name)
        if type(found) is not ConstantValue or type(value) is not ConstantValue or found.value is not value.value:
            return False
        return found.constant(tx) is value.value

    def _is_deleted(self, name: str) -> bool:
        return self.stored.get(name) is UNBOUND

    def del_attr(self, tx: Interpreter, name: str) -> None:
        self.install_guards(tx)
        if lookup_in_mro(self.cls, "__delattr__") not in (object.__delattr__, BaseException.__delattr__):
            self._special_call(tx, "__delattr__", [ConstantValue(name)])
        else:
            self.generic_del_attr(tx, name)

    def generic_del_attr(self, tx: Interpreter, name: str) -> None:
        """``object.__delattr__``."""
        on_class = lookup_in_mro(self.cls, name)
        if on_class is not ABSENT and is_data_descriptor(on_class):
            self._guard_class(tx, name, on_class)
            descriptor_delete(tx, on_class, name, self)
        else:
            self.remove(tx, name)

    def remove(self, tx: Interpreter, name: str) -> None:
        """Deletes an attribute of the instance itself."""
        is_slot = isinstance(lookup_in_mro(self.cls, name), types.MemberDescriptorType)
        read = self._slot if is_slot else self._instance_attr
        if self._is_deleted(name) or (name not in self.stored and read(tx, name) is None):
            if is_slot:
                tx.guards.add("NO_ATTRIBUTE", self.source, name)
            self._guard_absent(tx, name)
            raise observed_exception(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        self.store(tx, name, UNBOUND)

    def _guard_absent(self, tx: Interpreter, name: str) -> None:
        """Guards that the ``__dict__`` of an outside object has no such attribute."""
        if self.source is not None and hasattr(self.real, "__dict__") and name not in self.stored:
            tx.guards.add("DICT_CONTAINS", InstanceDictSource(self.source), name)

    # --- special methods that the class defines in Python

    def special_method(self, tx: Interpreter, name: str) -> Value | None:
        """Returns the bound special method `name` if the class defines it in Python, else None."""
        found = lookup_in_mro(self.cls, name)
        if isinstance(found, types.FunctionType):
            self.install_guards(tx)
            self._guard_class(tx, name, found)
            return MethodValue(FunctionValue.from_outside(tx.outside, found, None), self)
        if found is ABSENT or isinstance(found, BUILTIN_METHODS):
            return None
        raise Unsupported("unsupported operation", f"{self.cls.__name__}.{name}, a {type(found).__name__}")

    def _special_call(self, tx: Interpreter, name: str, args: Args) -> Value:
        method = self.special_method(tx, name)
        if method is None:
            raise Unsupported("unsupported operation", f"{self.cls.__name__} has no {name} in Python")
        return method.call(tx, args, {})


class InstanceDictValue(DictValue):
    """``vars(obj)`` of an outside object, with the attributes that the frame has set.

    A change of one key is that of the attribute; other changes break the graph.
    """

    holder: InstanceValue

    def __init__(self, holder: InstanceValue) -> None:
        assert holder.source is not None
        super().__init__(None, dict, InstanceDictSource(holder.source), holder.real.__dict__)
        self.mutable = False
        self.holder = holder

    def item_source(self, key: Any) -> Source:
        assert self.holder.source is not None
        return AttrSource(self.holder.source, key, "__dict__")

    def mapping(self, tx: Interpreter) -> dict[Any, Value]:
        self.holder.dict_was_iterated = True
        before = {k: v for k, v in super().mapping(tx).items() if not tx.effects.is_moved(self.holder, k)}
        return {k: v for k, v in {**before, **self.holder.stored}.items() if v is not UNBOUND}

    def lookup(self, tx: Interpreter, key: Any) -> Value | None:
        stored = self.holder.stored.get(key)
        if stored is UNBOUND:
            return None
        return super().lookup(tx, key) if stored is None else stored

    def contains(self, tx: Interpreter, item: Value) -> bool:
        stored = self.holder.stored.get(item.as_key(tx))
        return super().contains(tx, item) if stored is None else stored is not UNBOUND

    def set_item(self, tx: Interpreter, key: Value, value: Value) -> None:
        self.holder.store(tx, self._attribute(tx, key), value)

    def del_item(self, tx: Interpreter, key: Value) -> None:
        if not self.contains(tx, key):
            raise observed_exception(KeyError, key)
        self.holder.store(tx, self._attribute(tx, key), UNBOUND)

    def method_update(self, tx: Interpreter, /, *others: Value, **kwargs: Value) -> Value:
        new = DictValue({})
        new.method_update(tx, *others, **kwargs)
        for key in new.unpack(tx):
            self.set_item(tx, key, new.get_item(tx, key))
        return NONE

    def _attribute(self, tx: Interpreter, key: Value) -> str:
        """Returns the key; setting or deleting the attribute of this name must do the same."""
        name = key.as_key(tx)
        if not isinstance(name, str) or is_data_descriptor(lookup_in_mro(self.holder.cls, name)):
            raise Unsupported("unsupported mutation", f"vars({self.holder})[{name!r}] = ...")
        return name


class NewObjectDictValue(DictValue):
    """``vars(obj)`` of an object or function that the frame made.  It shares the attributes with the object."""

    holder: InstanceValue | FunctionValue

    def __init__(self, holder: InstanceValue | FunctionValue) -> None:
        super().__init__(holder.stored)
        self.holder = holder

    def same_object(self, other: Value) -> bool:
        return isinstance(other, NewObjectDictValue) and self.holder is other.holder

    def reconstruct(self, emit: Emitter) -> None:
        emit.value(self.holder)
        emit.load_attr("__dict__")


def descriptor_get(
    tx: Interpreter, found: Any, name: str, instance: Value, cls: type, owner: type | None = None
) -> Value:
    """``found.__get__(instance, cls)``, where `found` is the entry `name` of `owner`, a class in the MRO of `cls`."""
    if isinstance(found, types.FunctionType):
        return MethodValue(FunctionValue.from_outside(tx.outside, found, None), instance)
    if isinstance(found, property):
        return _accessor(tx, found.fget, found, "getter", name, instance).call(tx, [instance], {})
    if isinstance(found, staticmethod):
        return tx.outside.wrap(found.__func__)
    if is_class_property(found):
        return tx.outside.wrap(found.__func__.fget).call(tx, [StaticValue(cls)], {})
    if isinstance(found, classmethod):
        return MethodValue(tx.outside.wrap(found.__func__), StaticValue(cls))
    is_of_object = isinstance(found, BUILTIN_METHODS) and found.__objclass__ is object
    if is_of_object or isinstance(found, functools._lru_cache_wrapper):
        return MethodValue(StaticValue(found), instance)
    if isinstance(found, functools.cached_property):
        return _cached_property(tx, found, instance)
    return _user_method(tx, found, name, owner or cls, "__get__", [instance, StaticValue(cls)])


def descriptor_set(tx: Interpreter, found: Any, name: str, instance: InstanceValue, value: Value) -> None:
    """``found.__set__(instance, value)``."""
    if isinstance(found, types.MemberDescriptorType):
        instance.store(tx, name, value)
    elif isinstance(found, property):
        _accessor(tx, found.fset, found, "setter", name, instance).call(tx, [instance, value], {})
    else:
        _user_method(tx, found, name, instance.cls, "__set__", [instance, value])


def descriptor_delete(tx: Interpreter, found: Any, name: str, instance: InstanceValue) -> None:
    """``found.__delete__(instance)``."""
    if isinstance(found, types.MemberDescriptorType):
        instance.remove(tx, name)
    elif isinstance(found, property):
        _accessor(tx, found.fdel, found, "deleter", name, instance).call(tx, [instance], {})
    else:
        _user_method(tx, found, name, instance.cls, "__delete__", [instance])


def _accessor(tx: Interpreter, function: Any, found: property, what: str, name: str, instance: Value) -> Value:
    """Returns the getter, setter or deleter `function` of a property; raises if it has none."""
    if function is not None:
        return tx.outside.wrap(function)
    if type(found) is not property:
        raise Unsupported("exception", f"{name} has no {what}")
    raise observed_exception(
        AttributeError, f"property {name!r} of {instance.python_type().__qualname__!r} object has no {what}"
    )


def _cached_property(tx: Interpreter, found: functools.cached_property[Any], instance: Value) -> Value:
    value = tx.outside.wrap(found.func).call(tx, [instance], {})
    if found.attrname is None:
        raise Unsupported("exception", "a cached_property without a name")
    instance.store(tx, found.attrname, value)  # type: ignore[attr-defined]
    return value


def _user_method(tx: Interpreter, found: Any, name: str, cls: type, method: str, args: Args) -> Value:
    """Calls a method of a descriptor whose class is the user's."""
    source = entry_of_class(tx.guards.held(cls, cls.__qualname__), name)
    descriptor = tx.outside.wrap(found, source)
    function = descriptor.special_method(tx, method)
    if function is None:
        raise Unsupported("unsupported attribute", f"{cls.__name__}.{name}, a {type(found).__name__}")
    return function.call(tx, args, {})


def class_attribute(tx: Interpreter, cls: type, name: str) -> Value | None:
    """Returns ``cls.name`` if a descriptor or metaclass of the user's computes it, else None."""
    meta, owner = type(cls), StaticValue(cls)
    on_meta = lookup_in_mro(meta, name) if meta is not type else ABSENT
    if on_meta is not ABSENT and _is_code(on_meta) and is_data_descriptor(on_meta):
        return descriptor_get(tx, on_meta, name, owner, meta)
    on_class = lookup_in_mro(cls, name)
    if on_class is not ABSENT:
        is_user_descriptor = isinstance(getattr(type(on_class), "__get__", None), types.FunctionType)
        if not is_user_descriptor or isinstance(on_class, functools.cached_property):
            return None
        return _user_method(tx, on_class, name, cls, "__get__", [NONE, owner])
    if on_meta is not ABSENT and _is_code(on_meta):
        return descriptor_get(tx, on_meta, name, owner, meta)
    return None


def _is_code(obj: Any) -> bool:
    return isinstance(obj, (types.FunctionType, property, classmethod, staticmethod))
