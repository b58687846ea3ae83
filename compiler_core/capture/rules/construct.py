"""Calls of classes whose instances are plain Python objects, namedtuples or members of enums."""

from __future__ import annotations

import collections
import enum
import inspect
import types
import typing
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from compiler_core.capture.rules.table import handles, name_of, public_name
from compiler_core.capture.values.base import Value, observed_exception
from compiler_core.capture.values.builtin.conversion import fold
from compiler_core.capture.values.builtin.sequences import TupleValue, field_names
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.classes import guard_class_attribute, is_plain_class, lookup_in_mro
from compiler_core.capture.values.tensor_subclasses import (
    is_subclass_of_program,
    is_wrapper_class,
)
from compiler_core.capture.values.user.exceptions import construct_exception
from compiler_core.capture.values.user.modules import module_value
from compiler_core.capture.values.user.objects import ObjectValue, container_base, new_instance
from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import is_python_class, module_of
from compiler_core.torch_private import lazy_property_and_property

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.records.capture import BreakReason


_CAPTURED = (
    "torch.distributions.", "torch.nn.utils._named_member_accessor", "torch.utils._pytree", "torch.autograd.forward_ad",
    "torch.nn.attention.flex_attention", "torch._dynamo._trace_wrapped_higher_order_op", "torch.amp.grad_scaler",
    "torch.optim.lr_scheduler._enable_get_lr_call",
)  # fmt: skip
"""Modules of PyTorch whose classes are ordinary Python code over tensors, and classes, by their names."""


def construct(tx: Interpreter, cls: type, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """``cls(...)``"""
    if issubclass(cls, enum.Enum) and len(args) == 1:
        return fold(tx, cls, args, kwargs)
    if typing.is_typeddict(cls):
        return StaticValue(dict).call(tx, args, kwargs)
    if issubclass(cls, BaseException):
        return construct_exception(tx, cls, args, kwargs)
    if hasattr(cls, "n_sequence_fields") and len(args) == 1 and not kwargs:  # one of ``torch.return_types``
        fields: Any = field_names  # mypy doubts that classes can be hashed
        if len(values := tx.list_of(args[0])) == len(fields(cls)):
            return TupleValue(values, cls)
    home = module_of(cls)
    is_captured = issubclass(cls, torch.nn.Module) or f"{home}.{cls.__qualname__}".startswith(_CAPTURED)
    from_torch = home.startswith("torch.") and (not is_captured or cls is torch.amp.GradScaler)
    is_tensor = issubclass(cls, torch.Tensor) and not _makes_plain_memory(cls)
    if not is_python_class(cls) or is_tensor or issubclass(cls, torch.autograd.Function) or from_torch:
        raise Unsupported(_kind_of_skipped(cls), f"{public_name(cls)}()")
    if hasattr(cls, "__del__"):
        raise Unsupported("unsupported call", f"{public_name(cls)}(), whose __del__ runs when the object is deleted")
    if inspect.isabstract(cls):
        raise Unsupported("exception", f"{public_name(cls)}(), an abstract class")
    called = lookup_in_mro(type(cls), "__call__")
    if isinstance(called, types.FunctionType):  # of a metaclass
        guard_class_attribute(tx, type(cls), "__call__", called)
        return tx.capture.outside.wrap(called).call(tx, [StaticValue(cls), *args], kwargs)
    return instantiate(tx, cls, args, kwargs)


def _makes_plain_memory(cls: type) -> bool:
    """Whether a call of a class of tensors is captured: its ``__new__`` is Python, and it has no kernels itself."""
    is_plain = is_subclass_of_program(cls) and not is_wrapper_class(cls)
    return is_plain and isinstance(lookup_in_mro(cls, "__new__"), staticmethod)


def _kind_of_skipped(cls: type) -> BreakReason:
    if cls is PackedSequence:
        return "packed sequence"
    if issubclass(cls, torch.nn.Parameter):
        return "new parameter"
    if issubclass(cls, (Optimizer, LRScheduler, torch.amp.GradScaler)):
        return "new optimizer"
    return "tensor subclass" if issubclass(cls, torch.Tensor) and is_wrapper_class(cls) else "skipped function"


@handles(lazy_property_and_property)
def _lazy_property_of_a_class(tx: Interpreter, wrapped: Value) -> Value:
    """``Normal.probs`` of the class itself, whose type a distribution's ``__init__`` tests."""
    return tx.capture.outside.wrap(lazy_property_and_property(wrapped.constant(tx)))


def instantiate(tx: Interpreter, cls: type, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """``type.__call__(cls, ...)``"""
    instance = _new(tx, cls, args, kwargs)
    if issubclass(instance.python_type(), cls):
        _init(tx, cls, instance, args, kwargs)
    return instance


def _new(tx: Interpreter, cls: type, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    found = lookup_in_mro(cls, "__new__")
    guard_class_attribute(tx, cls, "__new__", found)
    if isinstance(found, staticmethod):
        return tx.capture.outside.wrap(found.__func__).call(tx, [StaticValue(cls), *args], kwargs)
    if found is object.__new__ and lookup_in_mro(cls, "__init__") is not object.__init__:
        return _new_object(tx, StaticValue(cls))  # __init__ checks the arguments
    if found is object.__new__ and (args or kwargs):
        raise observed_exception(TypeError, f"{cls.__name__}() takes no arguments")
    return StaticValue(found).call(tx, [StaticValue(cls), *args], kwargs)


def _init(tx: Interpreter, cls: type, instance: Value, args: Sequence[Value], kwargs: dict[str, Value]) -> None:
    init = lookup_in_mro(cls, "__init__")
    if init in (object.__init__, torch.Tensor.__init__):
        return  # __new__ has checked the arguments
    guard_class_attribute(tx, cls, "__init__", init)
    result = tx.capture.outside.wrap(init).call(tx, [instance, *args], kwargs)
    if not tx.is_none(result):
        raise Unsupported("exception", "__init__() should return None")


@handles(object.__new__)
def _new_object(tx: Interpreter, cls: Value) -> Value:
    instance = cls.constant(tx)
    if not is_plain_class(instance):
        raise Unsupported("unsupported call", f"object.__new__({name_of(instance)})")
    return module_value(instance) if issubclass(instance, torch.nn.Module) else ObjectValue(instance)


@handles(dict.__new__, list.__new__, tuple.__new__, collections.deque.__new__)  # a defaultdict's is dict's
def _new_container(tx: Interpreter, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    instance = cls.constant(tx)
    if container_base(instance) is None:
        raise Unsupported("unsupported call", f"{name_of(instance)}.__new__()")
    return new_instance(tx, instance, args)
