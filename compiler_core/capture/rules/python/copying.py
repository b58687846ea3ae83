"""``copy.copy`` and ``copy.deepcopy``: Python's own functions, inlined, with rules for what they leave to C.

They are captured for containers and plain objects; other objects, such as modules, break the graph.
"""

from __future__ import annotations

import copy
import copyreg
import inspect
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.rules.table import handles
from compiler_core.capture.values.base import ObservedException, Value
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import ListValue, TupleValue
from compiler_core.capture.values.builtin.sets import SetValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.builtin.symbols import guard_class
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.functions import FunctionValue, MethodValue
from compiler_core.capture.values.user.object_attributes import InstanceDictValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

COPY_FILE = copy.deepcopy.__code__.co_filename
# a class that defines one of these customises what Python's C makes of its instances
_REDUCTION = ("__reduce_ex__", "__getnewargs__", "__getnewargs_ex__", "__slots__")


class IdentityKey(Value):
    """``id(obj)`` in Python's code, which keeps the copies in a memo by it: it is equal for the same object."""

    def __init__(self, obj: Value) -> None:
        self.obj = obj

    def as_key(self, tx: Interpreter) -> Any:
        return self

    def __hash__(self) -> int:
        return id(self.obj)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and self.obj is other.obj


def identity_key(tx: Interpreter, obj: Any) -> Value:
    """Returns ``id(obj)`` as a key of a memo; guards that outside objects that differ do so in other calls."""
    if obj.source is not None and not isinstance(obj, InstanceDictValue):
        obj.install_guards(tx)
        tx.outside.identity_keys[id(obj.real)] = obj.real, obj.source
    return IdentityKey(obj)


class Memo(DictValue):
    """The memo of ``copy.deepcopy``: the copies made so far.  Only Python's code reads it."""

    def __init__(self) -> None:
        super().__init__({})
        self.copies = self.known_items()

    def load(self, tx: Interpreter) -> None:
        if tx.code.co_filename != COPY_FILE:
            raise Unsupported("unsupported operation", "the memo of copy.deepcopy")

    def lookup(self, tx: Interpreter, key: Any) -> Value | None:
        self.load(tx)
        return super().lookup(tx, key)


@handles(copy.copy)
def _copy(tx: Interpreter, x: Value) -> Value:
    if _is_atomic(x) or (isinstance(x, TupleValue) and x.cls is tuple):
        x.install_guards(tx)
        return x
    if isinstance(x, (ListValue, DictValue, SetValue)):
        return x.call_method(tx, "copy", [], {})
    return _inlined(tx, copy.copy, x)


@handles(copy.deepcopy)
def _deepcopy(tx: Interpreter, x: Value, memo: Value = NONE) -> Value:
    if tx.is_none(memo):
        memo = Memo()
    if not isinstance(memo, Memo):
        raise Unsupported("unsupported call", "copy.deepcopy with a memo that the program made")
    if _is_atomic(x):
        guard_class(tx, x)
        return x
    if not isinstance(x, (SetValue, TensorValue)):
        return _inlined(tx, copy.deepcopy, x, memo, ListValue([]))
    if (key := IdentityKey(x)) not in memo.copies:
        copied = x.call_method(tx, "copy", [], {}) if isinstance(x, SetValue) else _deep_tensor(tx, x, memo)
        memo.copies[key] = copied
    return memo.copies[key]


def _inlined(tx: Interpreter, function: Any, obj: Value, *args: Value) -> Value:
    is_container = isinstance(obj, (ListValue, TupleValue, DictValue)) and obj.cls in (list, tuple, dict)
    if not (is_container or type(obj) is ObjectValue) or isinstance(obj, Memo):
        raise Unsupported("unsupported call", f"copy.{function.__name__} of {obj}")
    code = function.__code__  # without the function itself, which has a rule
    try:
        return FunctionValue(code, function.__globals__, code.co_qualname).call(tx, [obj, *args], {})
    except ObservedException:
        raise
    except Unsupported:
        tx.graph.current_tx = tx  # the break is where the program copies
        raise


def _is_atomic(obj: Value) -> bool:
    """Whether copying returns the object itself."""
    if isinstance(obj, StaticValue):
        return isinstance(obj.obj, (type, types.BuiltinFunctionType))
    return isinstance(obj, (ConstantValue, FunctionValue))


def _deep_tensor(tx: Interpreter, obj: TensorValue, memo: Memo) -> Value:
    """Clones a tensor that fills its whole storage and requires no gradient; others break the graph."""
    fake = obj.fake(tx)
    whole = fake.is_contiguous() and fake.untyped_storage().nbytes() == fake.numel() * fake.element_size()
    others = any(isinstance(v, TensorValue) for v in memo.copies.values())
    if obj.python_type() is not torch.Tensor or fake.requires_grad or not whole or others:
        raise Unsupported("unsupported call", f"copy.deepcopy of the tensor {obj}")
    return tx.graph.call_method(tx, "clone", [obj])


@handles(object.__reduce_ex__)
def _reduced(tx: Interpreter, obj: Value, protocol: Value) -> Value:
    """Returns how to make an object again, whose class is made and copied as Python does by default."""
    if type(obj) is not ObjectValue:
        raise Unsupported("unsupported call", f"{obj}.__reduce_ex__()")
    own = [name for name in _REDUCTION if not _is_of_object(obj.cls, name)]
    for name in ("__reduce__", "__getstate__"):  # Python asks the object for these
        found = obj.get_attr(tx, name)
        is_default = isinstance(found, MethodValue) and isinstance(found.function, StaticValue)
        own += [] if is_default and found.owner is obj else [name]  # type: ignore[attr-defined]
    if own or inspect.getattr_static(obj.cls, "__new__") is not object.__new__:
        raise Unsupported("unsupported call", f"copy of a {obj.cls.__name__}, which has its own {[*own, '__new__'][0]}")
    state = obj.generic_get_attr(tx, "__dict__")
    parts: Sequence[Value] = [TupleValue([StaticValue(obj.cls)]), state or NONE, NONE, NONE]
    return TupleValue([tx.outside.wrap(vars(copyreg)["__newobj__"]), *parts])


def _is_of_object(cls: type, name: str) -> bool:
    found = inspect.getattr_static(cls, name, ())
    return found in ((), inspect.getattr_static(object, name, ()))
