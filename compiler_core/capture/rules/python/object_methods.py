"""Rules for the methods of `object` and `type`, which users' methods call through ``super()``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler_core.capture.rules.construct import instantiate
from compiler_core.capture.rules.table import handles
from compiler_core.capture.values.base import Value, observed_exception
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.classes import lookup_in_mro
from compiler_core.capture.values.user.modules import ModuleValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported
from compiler_core.torch_private import GenerationTracker

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


def _plain(owner: Value, name: str) -> ObjectValue:
    if not isinstance(owner, ObjectValue) or isinstance(owner, ModuleValue):
        raise Unsupported("unsupported call", f"object.{name} of {owner}")
    return owner


@handles(object.__getattribute__, BaseException.__getattribute__, dict.__getattribute__, list.__getattribute__)
def _getattribute(tx: Interpreter, owner: Value, name: Value) -> Value:
    if not isinstance(owner, ObjectValue):
        raise Unsupported("unsupported call", f"object.__getattribute__ of {owner}")
    wanted = name.constant(tx)
    found = owner.generic_get_attr(tx, wanted)
    if found is None:
        raise observed_exception(AttributeError, f"{owner.cls.__name__!r} object has no attribute {wanted!r}")
    return found


@handles(object.__setattr__)
def _setattr(tx: Interpreter, owner: Value, name: Value, value: Value) -> Value:
    if isinstance(owner, ModuleValue) and owner.source is None:  # in Module.__init__
        owner.store(tx, name.constant(tx), value)
    else:
        _plain(owner, "__setattr__").generic_set_attr(tx, name.constant(tx), value)
    return NONE


@handles(GenerationTracker.tag.__func__)
def _tag(tx: Interpreter, cls: Value, module: Value) -> Value:
    """Does nothing: stock torch.compile, once used, tags each new module, which does not matter in a captured frame."""
    return NONE


@handles(object.__delattr__)
def _delattr(tx: Interpreter, owner: Value, name: Value) -> Value:
    _plain(owner, "__delattr__").generic_del_attr(tx, name.constant(tx))
    return NONE


@handles(object.__init__)
def _init(tx: Interpreter, owner: Value, /, *args: Value, **kwargs: Value) -> Value:
    cls = owner.python_type()
    if args or kwargs:
        if lookup_in_mro(cls, "__init__") is object.__init__ and lookup_in_mro(cls, "__new__") is not object.__new__:
            return NONE
        raise Unsupported("exception", f"object.__init__() of a {cls.__name__} with arguments")
    return NONE


@handles(object.__init_subclass__)
def _init_subclass(tx: Interpreter, owner: Value) -> Value:
    return NONE


@handles(object.__eq__)
def _eq(tx: Interpreter, owner: Value, other: Value) -> Value:
    return ConstantValue(True if tx.is_same(owner, other) else NotImplemented)


@handles(type.__call__)
def _call(tx: Interpreter, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    return instantiate(tx, cls.constant(tx), args, kwargs)
