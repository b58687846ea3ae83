"""``copy.copy`` and ``copy.deepcopy`` of containers and plain objects."""

from __future__ import annotations

import copy
import inspect
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.rules.table import HANDLERS, handles
from compiler_core.capture.values.base import UNBOUND, Value
from compiler_core.capture.values.builtin.constant import ConstantValue
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import ListValue, RangeValue, TupleValue
from compiler_core.capture.values.builtin.sets import SetValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.builtin.symbols import SymbolicNumber
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.functions import FunctionValue
from compiler_core.capture.values.user.object_attributes import InstanceDictValue, NewObjectDictValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

# a class that defines one of these customises how its instances are copied
_COPY_HOOKS = (
    "__copy__", "__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__",
    "__getnewargs_ex__", "__slots__",
)  # fmt: skip
# the attributes that copying reads of an object, and of its empty copy, besides the __dict__
_OBJECT_PROTOCOL = ("__deepcopy__", "__reduce_ex__", "__reduce__", "__getstate__")
_COPY_PROTOCOL = ("__setstate__",)


@handles(copy.copy)
def _copy(tx: Interpreter, obj: Value) -> Value:
    if _is_atomic(obj) or (isinstance(obj, TupleValue) and obj.cls is tuple):
        obj.install_guards(tx)
        return obj
    if isinstance(obj, (ListValue, DictValue, SetValue)):
        return obj.call_method(tx, "copy", [], {})
    if type(obj) is ObjectValue:
        if (method := obj.special_method(tx, "__copy__")) is not None:
            return method.call(tx, [], {})
        duplicate = _instance(obj.cls)
        _check_getattribute(tx, obj, _OBJECT_PROTOCOL)
        _check_getattribute(tx, duplicate, _COPY_PROTOCOL)
        _check_getattr(tx, duplicate, "__setstate__")
        duplicate.stored.update(_attributes(tx, obj))
        return duplicate
    raise Unsupported("unsupported call", f"copy.copy of {obj}")


class Memo(DictValue):
    """The memo of ``copy.deepcopy``: the copies made so far.  Only `deep_copy` reads it."""

    def __init__(self) -> None:
        super().__init__({})
        self.copies: dict[Value, Value] = {}

    def load(self, tx: Interpreter) -> None:
        raise Unsupported("unsupported operation", "the memo of copy.deepcopy")


@handles(copy.deepcopy)
def _deepcopy(tx: Interpreter, obj: Value, memo: Value | None = None) -> Value:
    if memo is None or tx.is_none(memo):
        memo = Memo()
    if not isinstance(memo, Memo):
        raise Unsupported("unsupported call", "copy.deepcopy with a memo that the program made")
    return deep_copy(tx, obj, memo)


def deep_copy(tx: Interpreter, obj: Value, memo: Memo) -> Value:
    """Returns a copy of `obj` and everything that it contains, each object copied once."""
    if _is_atomic(obj):
        _guard_type(tx, obj)
        return obj
    if obj in memo.copies:
        return memo.copies[obj]
    if isinstance(obj, TupleValue) and obj.cls is tuple:
        duplicate = TupleValue([deep_copy(tx, v, memo) for v in obj.unpack(tx)])
        pairs = zip(duplicate.unpack(tx), obj.unpack(tx), strict=True)
        return memo.copies.setdefault(obj, obj if all(a.same_object(b) for a, b in pairs) else duplicate)
    if isinstance(obj, ListValue) and obj.cls is list:
        copied = memo.copies[obj] = ListValue([])
        copied.unpack(tx).extend(deep_copy(tx, v, memo) for v in obj.unpack(tx))
        return copied
    if isinstance(obj, DictValue) and obj.cls is dict and not isinstance(obj, Memo):
        return _deep_dict(tx, obj, memo)
    if isinstance(obj, SetValue):
        return memo.copies.setdefault(obj, obj.call_method(tx, "copy", [], {}))
    if isinstance(obj, TensorValue):
        return _deep_tensor(tx, obj, memo)
    if type(obj) is ObjectValue:
        return _deep_object(tx, obj, memo)
    raise Unsupported("unsupported call", f"copy.deepcopy of {obj}")


def _is_atomic(obj: Value) -> bool:
    """Whether copying returns the object itself."""
    if isinstance(obj, StaticValue):
        return isinstance(obj.obj, (type, types.BuiltinFunctionType))
    return isinstance(obj, (ConstantValue, FunctionValue, RangeValue))


def _guard_type(tx: Interpreter, obj: Value) -> None:
    if isinstance(obj, ConstantValue) and not isinstance(obj, SymbolicNumber):  # whatever its value
        tx.guards.add("TYPE_MATCH", obj.source, obj.value)
    else:
        obj.install_guards(tx)


def _deep_dict(tx: Interpreter, obj: DictValue, memo: Memo) -> Value:
    duplicate = memo.copies[obj] = DictValue({})
    for key, value in obj.mapping(tx).items():
        if not _is_atomic(tx.outside.key_value(key)):
            raise Unsupported("unsupported call", "copy.deepcopy of a dict with keys that are objects")
        duplicate.mapping(tx)[key] = deep_copy(tx, value, memo)
    return duplicate


def _deep_tensor(tx: Interpreter, obj: TensorValue, memo: Memo) -> Value:
    """Clones a tensor that fills its whole storage and requires no gradient; others break the graph."""
    fake = obj.fake(tx)
    whole = fake.is_contiguous() and fake.untyped_storage().nbytes() == fake.numel() * fake.element_size()
    others = any(isinstance(v, TensorValue) for v in memo.copies)
    if obj.python_type() is not torch.Tensor or fake.requires_grad or not whole or others:
        raise Unsupported("unsupported call", f"copy.deepcopy of the tensor {obj}")
    return memo.copies.setdefault(obj, tx.graph.call_method(tx, "clone", [obj], {}))


def _deep_object(tx: Interpreter, obj: ObjectValue, memo: Memo) -> Value:
    if (method := obj.special_method(tx, "__deepcopy__")) is not None:
        return memo.copies.setdefault(obj, method.call(tx, [memo], {}))
    duplicate = memo.copies[obj] = _instance(obj.cls)
    _check_getattribute(tx, obj, _OBJECT_PROTOCOL)
    _check_getattr(tx, obj, "__deepcopy__")
    _check_getattribute(tx, duplicate, _COPY_PROTOCOL)
    _check_getattr(tx, duplicate, "__setstate__")
    for name, value in _attributes(tx, obj).items():
        duplicate.stored[name] = deep_copy(tx, value, memo)
    return duplicate


class _AttributeProbe(ObjectValue):
    """Stands for an object, to test whether its ``__getattribute__`` passes a name on to that of `object`."""

    def __init__(self, obj: ObjectValue, attribute: str) -> None:
        super().__init__(obj.cls, obj.real, obj.source)
        self.stored = obj.stored
        self.attribute = attribute

    def generic_get_attr(self, tx: Interpreter, name: str) -> Value | None:
        return self if name == self.attribute else super().generic_get_attr(tx, name)


def _check_getattribute(tx: Interpreter, obj: ObjectValue, names: Sequence[str]) -> None:
    if inspect.getattr_static(obj.cls, "__getattribute__") is object.__getattribute__:
        return
    probes = [_AttributeProbe(obj, name) for name in names]
    attributes = obj.get_attr(tx, "__dict__")
    is_own = isinstance(attributes, (InstanceDictValue, NewObjectDictValue)) and attributes.holder is obj
    if not is_own or any(probe.get_attr(tx, probe.attribute) is not probe for probe in probes):
        raise Unsupported("unsupported call", f"copy of a {obj.cls.__name__}, which has its own __getattribute__")


def _check_getattr(tx: Interpreter, obj: ObjectValue, name: str) -> None:
    """Asks the object's ``__getattr__``, if it has one, for a method that copying looks for, as Python does."""
    if inspect.getattr_static(obj.cls, "__getattr__", None) is None:
        return
    if HANDLERS[hasattr](tx, obj, ConstantValue(name)).truth(tx):
        raise Unsupported("unsupported call", f"copy of a {obj.cls.__name__}, whose __getattr__ has {name}")


def _attributes(tx: Interpreter, obj: ObjectValue) -> dict[str, Value]:
    obj.install_guards(tx)
    found: dict[Any, Value] = {}
    if obj.source is not None and hasattr(obj.real, "__dict__"):
        found.update(InstanceDictValue(obj).mapping(tx))
    else:
        found.update(obj.stored)
    return {k: v for k, v in found.items() if v is not UNBOUND}


def _instance(cls: type) -> ObjectValue:
    """Returns an empty instance of a class whose instances Python copies by copying their attributes."""
    for name in _COPY_HOOKS:
        found = inspect.getattr_static(cls, name, None)
        if found is not None and found is not inspect.getattr_static(object, name, None) and found != ():
            raise Unsupported("unsupported call", f"copy of a {cls.__name__}, which has its own {name}")
    if inspect.getattr_static(cls, "__new__") is not object.__new__:
        raise Unsupported("unsupported call", f"copy of a {cls.__name__}, which has its own __new__")
    return ObjectValue(cls)
