"""Objects that are compared by identity, such as classes and C functions, and the values of new Python objects."""

from __future__ import annotations

import abc
import collections.abc
import enum
import inspect
import operator
import re
import types
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.values.base import (
    ABSENT,
    Args,
    Kwargs,
    Value,
    constants,
    guard_class_attribute,
    is_class_property,
    is_descriptor,
    lookup_in_mro,
    observed_exception,
)
from compiler_core.capture.values.builtin.constant import (
    ConstantValue,
    MatchValue,
    check_arguments,
    exception_from_error,
    is_atom,
)
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import ListValue, RangeValue, SliceValue, TupleValue
from compiler_core.capture.values.builtin.sets import SetValue
from compiler_core.capture.values.builtin.symbols import arithmetic, from_number, symbolic_text
from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import is_library, is_python_class, module_of
from compiler_core.guards.sources import AttrSource, GetItemSource, Source
from compiler_core.support.eager_warnings import silenced

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


class StaticValue(Value):
    """An object that is compared by identity: a class, a C function, a Python module, an operator."""

    def __init__(self, obj: Any, source: Source | None = None) -> None:
        self.obj = obj
        self.source = source

    def __repr__(self) -> str:
        return getattr(self.obj, "__qualname__", None) or getattr(self.obj, "__name__", None) or repr(self.obj)

    def python_type(self) -> type:
        return type(self.obj)

    def install_guards(self, tx: Interpreter) -> None:
        tx.guards.add("ID_MATCH", self.source, self.obj)

    def constant(self, tx: Interpreter) -> Any:
        self.install_guards(tx)
        return self.obj

    def is_constant(self) -> bool:
        return True

    def as_key(self, tx: Interpreter) -> Any:
        return self.constant(tx)

    def truth(self, tx: Interpreter) -> bool:
        if isinstance(self.obj, (types.ModuleType, type)) or callable(self.obj):
            return True
        return super().truth(tx)

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        self.install_guards(tx)
        if self._is_enum() and name == "__members__":
            members: dict[Any, Value] = {k: ConstantValue(v) for k, v in self._members(tx).items()}
            return DictValue(members, types.MappingProxyType)
        if isinstance(self.obj, type):
            return self._class_attribute(tx, self.obj, name)
        if isinstance(self.obj, types.ModuleType):
            return self._module_attribute(tx, self.obj, name)
        try:
            found = getattr(self.obj, name)
        except AttributeError as error:
            raise observed_exception(AttributeError, str(error)) from None
        if is_atom(found):
            return ConstantValue(found)
        if isinstance(self.obj, types.CodeType):
            return tx.from_python(found)
        if isinstance(self.obj, types.GetSetDescriptorType) and isinstance(found, types.MethodWrapperType):
            return StaticValue(found)  # ``Tensor.shape.__get__``: a new object at each read
        return tx.outside.wrap(found)

    def _module_attribute(self, tx: Interpreter, module: types.ModuleType, name: str) -> Value:
        """Returns an attribute of a module.  Attributes of libraries are guarded by the versions of their dicts."""
        is_of_library = is_library(module.__name__)
        try:
            found = getattr(module, name)
        except AttributeError as error:
            if not is_of_library:
                raise Unsupported("exception", str(error)) from None  # it may be added later, without a guard
            raise observed_exception(AttributeError, str(error)) from None
        if is_of_library:
            tx.guards.add_library_name(vars(module), module.__name__, name)
            source = AttrSource(tx.guards.held(module, module.__name__), name)
            if not is_atom(found):
                return tx.outside.wrap_attribute(found, source)
            # a property of the module is a setting, as in torch.backends, and may change
            return ConstantValue(found, None if name in vars(module) else source)
        stored = tx.effects.global_value(tx.outside.namespace(vars(module)), name)
        if stored is not None:
            return stored
        base = self.source or tx.guards.held(module, module.__name__)
        return tx.outside.wrap(found, AttrSource(base, name))

    def _is_enum(self) -> bool:
        return type(self.obj) is enum.EnumMeta

    def _members(self, tx: Interpreter) -> dict[str, enum.Enum]:
        """Returns the members of an enum, with a guard on their number: a class body still being run has not all."""
        base = self.source or tx.guards.held(self.obj, self.obj.__qualname__)
        found: dict[str, enum.Enum] = self.obj._member_map_
        tx.guards.add("DICT_LENGTH", AttrSource(base, "_member_map_"), len(found))
        return found

    def unpack(self, tx: Interpreter) -> list[Value]:
        """Returns the members of an enum."""
        if (iterator := self._call_metaclass(tx, "__iter__")) is not None:
            return tx.list_of(iterator)
        if not self._is_enum():
            return super().unpack(tx)
        self._members(tx)
        return [ConstantValue(member) for member in self.constant(tx)]

    def length(self, tx: Interpreter) -> int:
        found = self._call_metaclass(tx, "__len__")
        return len(self.unpack(tx)) if found is None else int(found.constant(tx))

    def contains(self, tx: Interpreter, item: Value) -> bool:
        if (found := self._call_metaclass(tx, "__contains__", item)) is not None:
            return found.truth(tx)
        if not self._is_enum():
            return super().contains(tx, item)
        self._members(tx)
        return tx.fold(operator.contains, [self, item]).truth(tx)

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        """``Color["RED"]``, ``list[int]``"""
        if (found := self._call_metaclass(tx, "__getitem__", key)) is not None:
            return found
        if self._is_enum() or self.obj in (list, dict, tuple, set, frozenset, type) or _is_generic(self.obj):
            return tx.fold(operator.getitem, [self, key])
        if is_typing_form(self.obj) or self.obj is collections.abc.Callable:
            return StaticValue(self.obj[_type_arguments(tx, key)])
        if isinstance(self.obj, type) and is_python_class(self.obj):
            return self.get_attr(tx, "__class_getitem__").call(tx, [key], {})
        return super().get_item(tx, key)

    def _call_metaclass(self, tx: Interpreter, name: str, *args: Value) -> Value | None:
        """Calls a special method that a metaclass of the user's defines in Python; None if there is none."""
        meta = type(self.obj)
        found = lookup_in_mro(meta, name) if issubclass(meta, type) else ABSENT
        if not isinstance(found, types.FunctionType) or is_library(module_of(meta)):
            return None
        guard_class_attribute(tx, meta, name, found)
        return tx.outside.wrap(found).call(tx, [self, *args], {})

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        """Stores a global of a module, or an attribute of a class that is found by its name alone: no descriptor."""
        if self._is_plain_attribute(name, value):
            self.install_guards(tx)
            tx.effects.store_global(tx.guards.held(self.obj, self.obj.__qualname__), name, value)
            return
        if type(self.obj) is not types.ModuleType or is_library(self.obj.__name__):
            raise Unsupported("unsupported mutation", f"{self}.{name} = ...")
        self.install_guards(tx)
        tx.effects.store_global(tx.outside.namespace(vars(self.obj)), name, value)

    def _is_plain_attribute(self, name: str, value: Value) -> bool:
        if not isinstance(self.obj, type) or type(self.obj).__setattr__ is not type.__setattr__:
            return False
        found = lookup_in_mro(self.obj, name)
        is_plain = found is not ABSENT and not is_descriptor(found) and not is_descriptor(value.python_type())
        return is_plain and is_python_class(self.obj) and not name.startswith("__")

    def _class_attribute(self, tx: Interpreter, cls: type, name: str) -> Value:
        found = tx.effects.class_value(cls.__mro__, name) or tx.class_attribute(cls, name)
        if found is not None:
            return found
        on_class, base = lookup_in_mro(cls, name), self.source or tx.guards.held(cls, cls.__qualname__)
        on_meta = lookup_in_mro(type(cls), name)
        # guards would keep alive what the functions of a class made in a call refer to
        if name == "__dict__" and on_meta is lookup_in_mro(type, name) and "<locals>" not in cls.__qualname__:
            if tx.effects.writes_globals(tx.guards.held(cls, cls.__qualname__)):
                raise Unsupported("unsupported attribute", f"{self}.__dict__, after a change of the class")
            place = AttrSource(base, name)
            tx.guards.add("DICT_KEYS", place, list(cls.__dict__))
            items: dict[Any, Value] = {k: tx.outside.wrap(v, GetItemSource(place, k)) for k, v in cls.__dict__.items()}
            return DictValue(items, types.MappingProxyType, place, cls.__dict__)
        if on_class is ABSENT and on_meta is ABSENT and _has_no_fallback(cls, name):
            tx.guards.add("NO_ATTRIBUTE", base, name)
            raise observed_exception(AttributeError, f"type object {cls.__name__!r} has no attribute {name!r}")
        if on_class is ABSENT and (
            on_meta is ABSENT or (is_descriptor(on_meta) and on_meta is not lookup_in_mro(type, name))
        ):  # it may run code of the user's
            raise Unsupported("unsupported attribute", f"{self}.{name}")
        guard_class_attribute(tx, cls, name, on_class)
        if is_class_property(on_class):
            return tx.outside.wrap(on_class.__func__.fget).call(tx, [self], {})
        try:
            found = getattr(cls, name)
        except AttributeError as error:  # `type` describes __abstractmethods__, and most classes have none
            tx.guards.add("NO_ATTRIBUTE", base, name)
            raise observed_exception(AttributeError, str(error)) from None
        return tx.outside.wrap_attribute(found, AttrSource(base, name))

    def call(self, tx: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        self._guard_callee(tx)
        return tx.call_static(self.obj, args, kwargs)

    def _guard_callee(self, tx: Interpreter) -> None:
        """Guards the callee.  Each read of a C class method makes a new object, so its name and class are compared."""
        if self.source is None or c_class_method(self.obj) is None:
            self.install_guards(tx)
            return
        tx.guards.add("TYPE_MATCH", self.source, self.obj)
        tx.guards.add("EQUALS_MATCH", AttrSource(self.source, "__name__"), self.obj.__name__)
        tx.guards.add("ID_MATCH", AttrSource(self.source, "__self__"), self.obj.__self__)

    def same_object(self, other: Value) -> bool:
        return isinstance(other, StaticValue) and self.obj is other.obj

    def reconstruct(self, emit: Emitter) -> None:
        emit.load_outside_object(self.obj)


def c_class_method(obj: Any) -> Any:
    """Returns the C method that `obj` binds to a class, such as one of `type`; None if it is something else."""
    if not isinstance(obj, types.BuiltinFunctionType) or not isinstance(obj.__self__, type):
        return None
    found = inspect.getattr_static(obj.__self__, obj.__name__, None)
    return found if isinstance(found, (types.ClassMethodDescriptorType, types.MethodDescriptorType)) else None


def _has_no_fallback(cls: type, name: str) -> bool:
    """Whether no ``__getattr__`` of the metaclass finds the attribute.  A user's is not called; it may find it."""
    meta = type(cls)
    return not hasattr(meta, "__getattr__") or (is_library(module_of(meta)) and not hasattr(cls, name))


def _type_arguments(tx: Interpreter, key: Value) -> Any:
    """Returns the constant ``key`` of ``Callable[key]``, with tuples and lists in it."""
    kind = key.python_type()
    if kind in (tuple, list) and not key.is_constant():
        return kind(_type_arguments(tx, each) for each in key.unpack(tx))
    return key.constant(tx)


def is_typing_form(obj: Any) -> bool:
    """Whether `obj` only annotates: a type variable, or a form of `typing` such as ``List`` or ``Optional[int]``."""
    return type(obj).__module__ == "typing"


def _is_generic(obj: Any) -> bool:
    """Whether ``obj[...]`` only makes a generic alias."""
    return isinstance(obj, type) and issubclass(obj, typing.Generic) and type(obj) in (type, abc.ABCMeta)


# ---------------------------------------------------------------- computing with constants


def format_text(tx: Interpreter, obj: str, args: Args, kwargs: Kwargs) -> Value:
    """``obj.format(*args, **kwargs)``"""
    if not kwargs and (symbolic := symbolic_text(str.format, tx, ConstantValue(obj), *args)) is not None:
        return symbolic
    return evaluate(
        lambda: obj.format(
            *(tx.format_operand(a) for a in args), **{k: tx.format_operand(v) for k, v in kwargs.items()}
        )
    )


def fold(tx: Interpreter, fn: Any, args: Args, kwargs: Kwargs | None = None) -> Value:
    """Calls `fn`, which must have no side effect, on constants, or on symbolic numbers if it is arithmetic."""
    if not kwargs and (found := arithmetic(fn, tx, args)) is not None:
        return found
    raw, raw_kwargs = constants(tx, args, kwargs or {})
    check_arguments(fn, raw)
    return evaluate(lambda: fn(*raw, **raw_kwargs))


def evaluate(compute: Callable[[], Any]) -> Value:
    """Calls `compute`; returns its result as a value, or raises its exception as an observed one.

    A computation that warns is left to Python, which warns in each call.
    """
    before = len(silenced())
    try:
        result = compute()
    except (Unsupported, RecursionError):
        raise
    except Exception as error:
        raise exception_from_error(error) from None
    if len(warned := silenced()) > before:
        raise Unsupported("unsupported operation", f"a computation that warns: {warned[-1].message}")
    return from_python(result)


def from_python(obj: Any) -> Value:
    """Returns the value of a new Python object that capture computed."""
    if is_atom(obj):
        return ConstantValue(obj)
    if isinstance(obj, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return from_number(obj)
    if type(obj) in (tuple, torch.Size):
        return TupleValue([from_python(v) for v in obj], type(obj))
    if type(obj) is list:
        return ListValue([from_python(v) for v in obj])
    if type(obj) is dict:
        return DictValue({k: from_python(v) for k, v in obj.items()})
    if type(obj) in (types.UnionType, types.GenericAlias) or isinstance(obj, typing._GenericAlias):  # type: ignore[attr-defined]
        return StaticValue(obj)
    if type(obj) in (set, frozenset):
        return SetValue.from_members(obj)
    if type(obj) is range:
        return RangeValue(obj)
    if type(obj) is re.Match:
        return MatchValue(obj)
    if type(obj) is slice:
        return SliceValue([from_python(v) for v in (obj.start, obj.stop, obj.step)])
    raise Unsupported("unsupported operation", f"a new object of type {type(obj).__name__}")
