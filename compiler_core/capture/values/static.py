"""Objects known by identity: classes, C functions, Python modules."""

from __future__ import annotations

import abc
import enum
import inspect
import operator
import types
import typing
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Value, raised
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.constant import ConstantValue, fold, from_python, is_atom
from compiler_core.capture.values.user.classes import guard_class
from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import is_library, module_of
from compiler_core.guards.sources import Attribute, Source

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


class StaticValue(Value):
    """An object known by identity: a class, a C function, a Python module, an operator."""

    def __init__(self, obj: Any, source: Source | None = None) -> None:
        self.obj = obj
        self.source = source

    def __repr__(self) -> str:
        return getattr(self.obj, "__qualname__", None) or getattr(self.obj, "__name__", None) or repr(self.obj)

    def python_type(self) -> type:
        return type(self.obj)

    def look(self, tx: Interpreter) -> None:
        if self.source is not None:
            tx.capture.guard("ID_MATCH", self.source, self.obj)

    def constant(self, tx: Interpreter) -> Any:
        self.look(tx)
        return self.obj

    def is_constant(self) -> bool:
        return True

    def truth(self, tx: Interpreter) -> bool:
        if isinstance(self.obj, (types.ModuleType, type)) or callable(self.obj):
            return True
        return super().truth(tx)

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        self.look(tx)
        if self._is_enum() and name == "__members__":
            members: dict[Any, Value] = {k: ConstantValue(v) for k, v in self._members(tx).items()}
            return DictValue(members, types.MappingProxyType)
        if isinstance(self.obj, type):
            return self._class_attribute(tx, self.obj, name)
        try:
            found = getattr(self.obj, name)
        except AttributeError as error:
            if isinstance(self.obj, types.ModuleType) and not is_library(self.obj.__name__):
                raise Unsupported("exception", str(error)) from None  # it may get one
            raise raised(AttributeError, str(error)) from None
        if isinstance(self.obj, types.ModuleType) and is_library(self.obj.__name__):
            tx.capture.looked_up(vars(self.obj), self.obj.__name__, name)
            if is_atom(found):
                # what a property of the module gives is a setting, as in torch.backends, and may change
                place = Attribute(tx.capture.held(self.obj, self.obj.__name__), name)
                return ConstantValue(found, None if name in vars(self.obj) else place)
            return tx.capture.wrap_attribute(found, Attribute(tx.capture.held(self.obj, self.obj.__name__), name))
        if isinstance(self.obj, types.ModuleType):
            stored = tx.capture.effects.global_value(tx.capture.namespace(vars(self.obj)), name)
            if stored is not None:
                return stored
            base = self.source or tx.capture.held(self.obj, self.obj.__name__)
            return tx.capture.wrap(found, Attribute(base, name))
        if is_atom(found):
            return ConstantValue(found)
        if isinstance(self.obj, types.CodeType):
            return from_python(found)
        return tx.capture.wrap_static(found)

    def _is_enum(self) -> bool:
        return type(self.obj) is enum.EnumMeta

    def _members(self, tx: Interpreter) -> dict[str, enum.Enum]:
        """The members of an enum, which has all of them only once Python has made the class."""
        base = self.source or tx.capture.held(self.obj, self.obj.__qualname__)
        found: dict[str, enum.Enum] = self.obj._member_map_
        tx.capture.guard("DICT_LENGTH", Attribute(base, "_member_map_"), len(found))
        return found

    def items(self, tx: Interpreter) -> list[Value]:
        """The members of an enum."""
        if not self._is_enum():
            return super().items(tx)
        self._members(tx)
        return [ConstantValue(member) for member in self.constant(tx)]

    def length(self, tx: Interpreter) -> int:
        return len(self.items(tx))

    def contains(self, tx: Interpreter, item: Value) -> bool:
        if not self._is_enum():
            return super().contains(tx, item)
        self._members(tx)
        return fold(tx, operator.contains, [self, item], {}).truth(tx)

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        """``Color["RED"]``, ``list[int]``"""
        if self._is_enum() or self.obj in (list, dict, tuple, set, frozenset, type) or _is_generic(self.obj):
            return fold(tx, operator.getitem, [self, key], {})
        return super().get_item(tx, key)

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        """A module's attribute is a global of its functions."""
        if type(self.obj) is not types.ModuleType or is_library(self.obj.__name__):
            raise Unsupported("unsupported mutation", f"{self}.{name} = ...")
        self.look(tx)
        tx.capture.effects.store_global(tx.capture.namespace(vars(self.obj)), name, value)

    def _class_attribute(self, tx: Interpreter, cls: type, name: str) -> Value:
        from compiler_core.capture.values.user.descriptors import ABSENT, lookup, of_class

        made = of_class(tx, cls, name)
        if made is not None:
            return made
        own, base = lookup(cls, name), self.source or tx.capture.held(cls, cls.__qualname__)
        on_meta = lookup(type(cls), name)
        if own is ABSENT and on_meta is ABSENT and _has_no_fallback(cls, name):
            tx.capture.guard("NO_ATTRIBUTE", base, name)
            raise raised(AttributeError, f"type object {cls.__name__!r} has no attribute {name!r}")
        if own is ABSENT and (on_meta is ABSENT or on_meta is not lookup(type, name)):  # it may be code
            raise Unsupported("unsupported attribute", f"{self}.{name}")
        guard_class(tx, cls, name, own)
        return tx.capture.wrap_attribute(getattr(cls, name), Attribute(base, name))

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        from compiler_core.capture.rules.calls import call_static

        self._look_to_call(tx)
        return call_static(tx, self.obj, args, kwargs)

    def _look_to_call(self, tx: Interpreter) -> None:
        """A class method in C is another object each time that it is read from its class, and does the same."""
        if self.source is None or class_method(self.obj) is None:
            self.look(tx)
            return
        tx.capture.guard("TYPE_MATCH", self.source, self.obj)
        tx.capture.guard("EQUALS_MATCH", Attribute(self.source, "__name__"), self.obj.__name__)
        tx.capture.guard("ID_MATCH", Attribute(self.source, "__self__"), self.obj.__self__)

    def same_object(self, other: Value) -> bool:
        return isinstance(other, StaticValue) and self.obj is other.obj

    def rebuild(self, emit: Emitter) -> None:
        emit.outside(self.obj)


def class_method(obj: Any) -> Any:
    """The class method in C that this is, bound to a class; None where it is none."""
    if not isinstance(obj, types.BuiltinFunctionType) or not isinstance(obj.__self__, type):
        return None
    found = inspect.getattr_static(obj.__self__, obj.__name__, None)
    return found if isinstance(found, types.ClassMethodDescriptorType) else None


def _has_no_fallback(cls: type, name: str) -> bool:
    """Whether no ``__getattr__`` of the metaclass finds an attribute that is nowhere else; a user's is not asked."""
    meta = type(cls)
    return not hasattr(meta, "__getattr__") or (is_library(module_of(meta)) and not hasattr(cls, name))


def _is_generic(obj: Any) -> bool:
    """Whether ``obj[...]`` is a type and no more."""
    return isinstance(obj, type) and issubclass(obj, typing.Generic) and type(obj) in (type, abc.ABCMeta)
