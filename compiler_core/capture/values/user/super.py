"""``super()``, methods of builtin classes bound to objects of users' classes, and attributes of enums' members."""

from __future__ import annotations

import enum
import inspect
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import NamedMethodValue, Value, observed_exception
from compiler_core.capture.values.builtin.constant import ConstantValue, is_atom
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.classes import guard_class_attribute, is_descriptor
from compiler_core.capture.values.user.functions import FunctionValue, MethodValue
from compiler_core.capture.values.user.object_attributes import BUILTIN_METHODS, descriptor_get
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import AttrSource

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


class SuperValue(Value):
    """``super(after, owner)``.  `owner` is an object, or, in classmethods, a class."""

    def __init__(self, after: type, owner: Value) -> None:
        self.after = after
        self.owner = owner

    @classmethod
    def create(cls, tx: Interpreter, after: type, owner: Value) -> SuperValue:
        """Makes ``super(after, owner)``, with a guard on the class of `owner`."""
        owner.install_guards(tx)
        value = cls(after, owner)
        if not (isinstance(after, type) and (value._is_class_owner or after in owner.python_type().__mro__)):
            raise Unsupported("exception", "super(type, obj): obj must be an instance or subtype of type")
        return value

    @property
    def _is_class_owner(self) -> bool:
        owner = self.owner.obj if isinstance(self.owner, StaticValue) else None
        return isinstance(owner, type) and issubclass(owner, self.after)

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        start = self.owner.constant(tx) if self._is_class_owner else self.owner.python_type()
        mro = start.__mro__
        if self.after not in mro:
            raise Unsupported("unsupported attribute", f"super().{name} in a metaclass")
        classes = mro[mro.index(self.after) + 1 :]
        if (stored := tx.capture.effects.class_value(classes, name)) is not None:
            return stored
        for cls in classes:
            if name in cls.__dict__:
                found = cls.__dict__[name]
                guard_class_attribute(tx, cls, name, found)
                if self._is_class_owner:
                    return self._read_from_class(tx, found, name)
                return self._bind(tx, found, name, start, cls)
        raise Unsupported("exception", f"super has no attribute {name!r}")

    def _bind(self, tx: Interpreter, found: Any, name: str, start: type, cls: type) -> Value:
        if isinstance(found, BUILTIN_METHODS):
            return BoundBuiltinValue(found, self.owner)
        if isinstance(found, types.BuiltinFunctionType):  # a builtin class's __new__
            return StaticValue(found)
        if isinstance(found, types.GetSetDescriptorType):
            return StaticValue(found.__get__).call(tx, [self.owner], {})
        if is_descriptor(found):
            return descriptor_get(tx, found, name, self.owner, start, cls)
        return tx.capture.outside.wrap_attribute(found, AttrSource(tx.capture.guards.held(cls, cls.__qualname__), name))

    def _read_from_class(self, tx: Interpreter, found: Any, name: str) -> Value:
        if isinstance(found, types.FunctionType):
            return FunctionValue.from_outside(tx.capture.outside, found, None)
        if isinstance(found, staticmethod):
            return tx.capture.outside.wrap(found.__func__)
        if isinstance(found, classmethod):
            return MethodValue(tx.capture.outside.wrap(found.__func__), self.owner)
        if isinstance(found, (types.BuiltinFunctionType, *BUILTIN_METHODS)):
            return StaticValue(found)
        if isinstance(found, types.ClassMethodDescriptorType):  # object.__init_subclass__
            return BoundBuiltinValue(found, self.owner)
        raise Unsupported("unsupported attribute", f"super().{name} of a class")

    def children(self) -> Sequence[Value]:
        return [self.owner]

    def reconstruct(self, emit: Emitter) -> None:
        emit.call_object(super, [StaticValue(self.after), self.owner])


class BoundBuiltinValue(Value):
    """A method of a builtin class bound to an object of a user's class, such as ``super().__setitem__``."""

    always_true = True

    def __init__(self, descriptor: Any, owner: Value) -> None:
        self.descriptor = descriptor
        self.owner = owner

    def __repr__(self) -> str:
        return f"{self.owner}.{self.descriptor.__name__}"

    def python_type(self) -> type:
        is_slot = isinstance(self.descriptor, types.WrapperDescriptorType)
        return types.MethodWrapperType if is_slot else types.BuiltinMethodType

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return StaticValue(self.descriptor).call(tx, [self.owner, *args], kwargs)

    def children(self) -> Sequence[Value]:
        return [self.owner]

    def reconstruct(self, emit: Emitter) -> None:
        emit.call_object(self.descriptor.__get__, [self.owner])


def member_attribute(tx: Interpreter, member: ConstantValue, name: str) -> Value:
    """Returns an attribute of a member.  Methods and properties that its class defines in Python are captured."""
    obj = member.constant(tx)
    found = inspect.getattr_static(type(obj), name, None)
    function = found.fget if isinstance(found, property) else found
    if isinstance(function, types.FunctionType) and name not in vars(obj):
        guard_class_attribute(tx, type(obj), name, found)
        inlined = FunctionValue.from_outside(tx.capture.outside, function, None)
        return inlined.call(tx, [member], {}) if isinstance(found, property) else MethodValue(inlined, member)
    try:
        value: Any = getattr(obj, name)
    except AttributeError:
        raise observed_exception(AttributeError, f"{type(obj).__name__!r} object has no attribute {name!r}") from None
    if is_atom(value):
        return ConstantValue(value)
    if isinstance(value, (types.BuiltinMethodType, types.MethodWrapperType)) and not isinstance(found, enum.property):
        return NamedMethodValue(member, name)
    return tx.capture.outside.wrap(value)
