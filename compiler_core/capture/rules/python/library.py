"""Rules for functions of the standard library that inspect classes and functions: dataclasses, inspect, Counter."""

from __future__ import annotations

import collections
import dataclasses
import inspect
import types
from typing import TYPE_CHECKING, Any

from compiler_core.capture.rules.table import handles
from compiler_core.capture.values.base import Value, observed_exception
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.user.functions import FunctionValue, MethodValue
from compiler_core.capture.values.user.namespaces import NamespaceValue
from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import is_library, module_of
from compiler_core.guards.sources import AttrSource

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


def _class_of(tx: Interpreter, value: Value) -> Any:
    """Returns a class itself, or the class of an instance."""
    value.install_guards(tx)
    return value.obj if isinstance(value, StaticValue) and isinstance(value.obj, type) else value.python_type()


@handles(dataclasses.is_dataclass)
def _is_dataclass(tx: Interpreter, obj: Value) -> Value:
    return ConstantValue(dataclasses.is_dataclass(_class_of(tx, obj)))


@handles(dataclasses.fields)
def _fields(tx: Interpreter, obj: Value) -> Value:
    cls: Any = _class_of(tx, obj)
    if not hasattr(cls, "__dataclass_fields__"):
        raise Unsupported("exception", "must be called with a dataclass type or instance")
    if not is_library(module_of(cls)):
        table = AttrSource(tx.capture.guards.held(cls, cls.__qualname__), "__dataclass_fields__")
        tx.capture.guards.add("ID_MATCH", table, cls.__dataclass_fields__)
    return TupleValue([StaticValue(f) for f in dataclasses.fields(cls)])


@handles(inspect.signature)
def _signature(tx: Interpreter, fn: Value) -> Value:
    fn.install_guards(tx)
    return SignatureValue(inspect.signature(_real_callable(fn)))


def _real_callable(fn: Value) -> Any:
    if isinstance(fn, FunctionValue) and fn.fn is not None:
        return fn.fn
    if isinstance(fn, StaticValue) and isinstance(fn.obj, type):
        return fn.obj
    if isinstance(fn, MethodValue):
        return types.MethodType(_real_callable(fn.function), fn)  # bound to anything
    raise Unsupported("unsupported call", f"inspect.signature({fn})")


class SignatureValue(Value):
    """The result of ``inspect.signature``, whose parameters can be read."""

    def __init__(self, signature: inspect.Signature) -> None:
        self.signature = signature

    def python_type(self) -> type:
        return inspect.Signature

    def truth(self, tx: Interpreter) -> bool:
        return True

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name == "parameters":
            parameters: dict[Any, Value] = {k: StaticValue(p) for k, p in self.signature.parameters.items()}
            return DictValue(parameters, types.MappingProxyType)
        return super().get_attr(tx, name)


@handles(collections._count_elements)  # type: ignore[attr-defined]
def _count_elements(tx: Interpreter, mapping: Value, iterable: Value) -> Value:
    """Counts the items of an iterable; `collections.Counter` calls it."""
    for item in tx.list_of(iterable):
        count = mapping.get_attr(tx, "get").call(tx, [item, ConstantValue(0)], {})
        mapping.set_item(tx, item, ConstantValue(count.constant(tx) + 1))
    return NONE


@handles(types.SimpleNamespace)
def _namespace(tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    if args:
        raise observed_exception(TypeError, "no positional arguments expected")
    namespace = NamespaceValue()
    namespace.stored.update(kwargs)
    return namespace
