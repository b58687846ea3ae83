"""Calls of objects known by identity: Python's builtins, classes, and PyTorch's functions.

A call without a rule (`table.py`) becomes a node of the graph if it is an operation on tensors, is computed during
capture if the function is pure and its arguments are constants, and breaks the graph otherwise.
"""

from __future__ import annotations

import cmath
import collections
import enum
import functools
import inspect
import math
import operator
import os
import struct
import sys
import types
import typing
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from compiler_core.capture.break_kinds import kind_of_skipped
from compiler_core.capture.rules.python.cached import call_cached
from compiler_core.capture.rules.python.text import exception_text
from compiler_core.capture.rules.table import HANDLERS, Handler, handles, has_tensor, name_of, public_name
from compiler_core.capture.rules.torch import numpy as arrays
from compiler_core.capture.rules.torch.functions import is_c_function_of_torch, is_tensor_function
from compiler_core.capture.rules.torch.overrides import is_overridden, override
from compiler_core.capture.values.base import (
    Args,
    Kwargs,
    Value,
    check_keywords,
    constants,
    guard_class_attribute,
    is_plain_class,
    lookup_in_mro,
    observed_exception,
)
from compiler_core.capture.values.builtin.constant import CONSTRUCTORS, NONE, ConstantValue, is_atom
from compiler_core.capture.values.builtin.sequences import TupleValue, field_names
from compiler_core.capture.values.builtin.static import StaticValue, c_class_method, fold
from compiler_core.capture.values.tensor_subclasses import (
    DistributedTensorValue,
    SparseTensorValue,
    SubclassTensorValue,
    is_subclass_of_program,
    is_wrapper_class,
)
from compiler_core.capture.values.user.exceptions import ExceptionValue, construct_exception, init_exception
from compiler_core.capture.values.user.functions import (
    CompiledValue,
    FunctionValue,
    MethodValue,
    PartialValue,
    bind_arguments,
)
from compiler_core.capture.values.user.modules import module_value
from compiler_core.capture.values.user.objects import ObjectValue, SubclassValue, container_base, new_instance
from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import is_python_class, module_of
from compiler_core.hook.skip_rules import disable_capture, is_optimizer, is_stock_compiled
from compiler_core.torch_private import C_nn, lazy_property_and_property, stock_graph_break, trace_rules

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.records.capture import BreakReason


# functions without side effects whose result depends only on their arguments
PURE_FUNCTIONS = frozenset(
    {ord, chr, bin, hex, oct, bytes, operator.index, operator.length_hint, os.fspath}
    | {f for home in (math, cmath) for f in vars(home).values() if isinstance(f, types.BuiltinFunctionType)}
    | arrays.PURE_FUNCTIONS
    | {int.from_bytes, float.fromhex, bytes.fromhex, str.maketrans, sys.intern, sys.getrecursionlimit}
    | {struct.pack, struct.unpack, struct.calcsize}
    | frozenset(CONSTRUCTORS)
    | {
        C_nn._parse_to,
        torch.Size,
        torch.device,
        torch.finfo,
        torch.iinfo,
        torch.promote_types,
        torch.can_cast,
        torch.result_type,
    }
)


def call_static(tx: Interpreter, obj: Any, args: Args, kwargs: Kwargs) -> Value:
    """Calls a class, C function or other callable known by identity, and returns the value of the result.

    Raises Unsupported if there is no rule for the call.
    """
    if is_c_function_of_torch(obj) and is_overridden(tx, args, kwargs):
        result = override(tx, obj, args, kwargs)
        if result is not None:
            return result
    handler = _find_handler(obj)
    if handler is None and (method := c_class_method(obj)) in HANDLERS:
        handler, args = HANDLERS[method], [StaticValue(obj.__self__), *args]
    if handler is not None:
        if "input" in kwargs and not args and is_c_function_of_torch(obj):  # PyTorch's name of the first argument
            args, kwargs = [kwargs["input"]], {name: value for name, value in kwargs.items() if name != "input"}
        if not isinstance(obj, types.FunctionType) and not is_c_function_of_torch(obj):
            check_keywords(obj, kwargs)
        try:
            _signature(handler).bind(tx, *args, **kwargs)
        except TypeError:
            raise Unsupported("unsupported call", f"{name_of(obj)} with these arguments") from None
        return handler(tx, *args, **kwargs)
    if isinstance(obj, types.FunctionType):
        return tx.outside.wrap(obj).call(tx, args, kwargs)
    if is_tensor_function(obj, any(map(has_tensor, [*args, *kwargs.values()]))):
        return tx.graph.call_function(tx, obj, args, kwargs)
    if arrays.is_numpy_call(obj, [*args, *kwargs.values()]):
        raise Unsupported("NumPy", name_of(obj))
    if _is_pure(obj):
        return fold(tx, obj, args, kwargs)
    if isinstance(obj, functools._lru_cache_wrapper):
        return call_cached(tx, obj, args, kwargs)
    if isinstance(obj, torch.jit.ScriptFunction):
        return _call_scripted(tx, obj, args, kwargs)
    if isinstance(obj, (types.GenericAlias, typing._GenericAlias)):  # type: ignore[attr-defined]
        return _construct_generic(tx, obj, args, kwargs)
    if isinstance(obj, type):
        return construct(tx, obj, args, kwargs)
    if isinstance(obj, (types.MethodDescriptorType, types.WrapperDescriptorType)) and args:
        return _call_unbound(tx, obj, args, kwargs)
    if any(isinstance(value, DistributedTensorValue) for value in [*args, *kwargs.values()]):
        raise Unsupported("distributed tensor", name_of(obj))
    if isinstance(obj, types.BuiltinFunctionType) and getattr(obj.__self__, "__class__", None) is not types.ModuleType:
        raise Unsupported(kind_of_skipped(name_of(obj)), name_of(obj))
    if any(isinstance(value, SparseTensorValue) for value in [*args, *kwargs.values()]):
        raise Unsupported("sparse tensor", name_of(obj))
    raise Unsupported(kind_of_skipped(name_of(obj)) if callable(obj) else "exception", name_of(obj))


def _call_scripted(tx: Interpreter, obj: Any, args: Args, kwargs: Kwargs) -> Value:
    """Inlines the Python function that ``torch.jit.script`` was given, if the arguments have the types it expects."""
    original = getattr(obj, "_torchdynamo_inline", None)
    if not isinstance(original, types.FunctionType):
        raise Unsupported("unsupported call", f"{name_of(obj)} of TorchScript")
    function = tx.outside.wrap(original)
    assert isinstance(function, FunctionValue)
    types_expected = typing.get_type_hints(original)
    for name, value in bind_arguments(function, list(args), kwargs).items():
        if not issubclass(value.python_type(), types_expected.get(name, torch.Tensor)):
            raise Unsupported("unsupported call", f"{original.__qualname__} of TorchScript with {value}")
    return function.call(tx, args, kwargs)


def _construct_generic(tx: Interpreter, alias: Any, args: Args, kwargs: Kwargs) -> Value:
    """``Box[int](...)``"""
    instance = StaticValue(alias.__origin__).call(tx, args, kwargs)
    if isinstance(instance, ObjectValue):
        if inspect.getattr_static(instance.cls, "__setattr__") is not object.__setattr__ or instance.source is not None:
            raise Unsupported("unsupported call", f"{alias}()")
        instance.store(tx, "__orig_class__", StaticValue(alias))
    return instance


def _call_unbound(tx: Interpreter, obj: Any, args: Args, kwargs: Kwargs) -> Value:
    """``list.append(x, 1)``: calls the method of that class, even if the object's own class overrides it."""
    owner, *rest = args
    if isinstance(owner, ExceptionValue) and obj.__name__ in ("__init__", "__str__"):
        is_init = obj.__name__ == "__init__"
        return init_exception(tx, owner, rest, kwargs) if is_init else ConstantValue(exception_text(tx, owner))
    if isinstance(owner, SubclassValue) and not issubclass(object, obj.__objclass__):
        return owner.call_builtin(tx, obj, rest, kwargs)
    if isinstance(owner, SubclassTensorValue) and hasattr(torch.Tensor, obj.__name__):
        return owner.call_method(tx, obj.__name__, rest, kwargs)
    if inspect.getattr_static(owner.python_type(), obj.__name__, None) is not obj:
        raise Unsupported("unsupported call", f"{name_of(obj)} of a {owner.python_type().__name__}")
    return owner.get_attr(tx, obj.__name__).call(tx, rest, kwargs)


@functools.cache
def _signature(handler: Handler) -> inspect.Signature:
    return inspect.signature(handler)


def _find_handler(obj: Any) -> Handler | None:
    try:
        return HANDLERS.get(obj)
    except TypeError:
        return None


def _is_pure(obj: Any) -> bool:
    try:
        return obj in PURE_FUNCTIONS
    except TypeError:
        return False


# ------------------------------------------------------------ marks of this compiler and of stock, with the same effect


_LAZILY_DISABLED = Optimizer.zero_grad.__code__
"""The code of the functions that ``torch._disable_dynamo`` makes."""


def marked_call(tx: Interpreter, fn: types.FunctionType, args: Args, kwargs: Kwargs) -> Value | None:
    """Returns the result of calling a marked function; None for a function without a mark."""
    compiled_from = getattr(fn, "_cutaway_original", None)
    if compiled_from is None and is_stock_compiled(fn.__code__) and not getattr(fn, "_torchdynamo_disable", False):
        compiled_from = getattr(fn, "_torchdynamo_orig_callable", None)
    if compiled_from is not None:  # a compiled function, ours or stock's, is inlined in its caller
        return tx.outside.wrap(compiled_from).call(tx, args, kwargs)
    if getattr(fn, "_cutaway_graph_break", False):
        return _graph_break(tx, *args, **kwargs)
    if fn.__code__ is _LAZILY_DISABLED:
        original = getattr(fn, "__wrapped__", None)
        return _called_in_step(tx, original, args, kwargs)  # else it is disabled when it is called
    if getattr(fn, "_cutaway_disabled", False) or getattr(fn, "_torchdynamo_disable", False):
        original = getattr(fn, "_torchdynamo_orig_callable", None)
        if (result := _called_in_step(tx, original, args, kwargs)) is not None:
            return result
        if getattr(fn, "_torchdynamo_disable_recursive", True) is False and original is not None:
            disable_capture(original.__code__)
        raise Unsupported("asked for", fn.__qualname__)
    if getattr(fn, "_dynamo_marked_constant", False):
        return _constant_result(tx, fn, args, kwargs)
    if id(fn) in trace_rules._allowed_callable_ids:
        return tx.graph.call_function(tx, fn, args, kwargs)
    return None


def _called_in_step(tx: Interpreter, original: object, args: Args, kwargs: Kwargs) -> Value | None:
    """Returns the result of a function of PyTorch's optimizers that is disabled, which stock has rules for, in a
    captured step of training; None elsewhere."""
    if not tx.graph.captures_backward or not isinstance(original, types.FunctionType):
        return None
    return tx.outside.wrap(original).call(tx, args, kwargs) if is_optimizer(original.__code__) else None


def _constant_result(tx: Interpreter, fn: Any, args: Args, kwargs: Kwargs) -> Value:
    """``torch.compiler.assume_constant_result``: calls the function now, once in each compile."""
    raw, raw_kwargs = constants(tx, args, kwargs)
    result = fn(*raw, **raw_kwargs)
    if not is_atom(result):
        raise Unsupported("unsupported call", f"{fn.__qualname__} gives a {type(result).__name__} as constant result")
    return tx.outside.wrap(result)


def _graph_break(tx: Interpreter, /, msg: Value | None = None) -> Value:
    """``graph_break(msg)``, which breaks the graph; the break's explanation has the message.

    Those in PyTorch's optimizers are for stock, where a backward ends the graph.
    """
    if is_optimizer(tx.code):
        return NONE
    text = "" if msg is None else str(msg.value if isinstance(msg, ConstantValue) else msg)
    raise Unsupported("asked for", f"graph_break: {text}" if text else "graph_break()")


HANDLERS[stock_graph_break] = _graph_break


@handles(torch.compile)
def _compile(tx: Interpreter, model: Value = NONE, **options: Value) -> Value:
    if "disable" in options or not all(option.is_constant() for option in options.values()):
        raise Unsupported("skipped function", "torch.compile, with options that may decide what a call does")
    if tx.is_none(model):
        return PartialValue(StaticValue(torch.compile), [], options)
    if not isinstance(model, (FunctionValue, MethodValue)):
        raise Unsupported("skipped function", f"torch.compile({model})")
    return CompiledValue(model, options)


# ---------------------------------------------------------------- calls of classes


_CAPTURED = (
    "torch.distributions.", "torch.nn.utils._named_member_accessor", "torch.utils._pytree", "torch.autograd.forward_ad",
    "torch.nn.attention.flex_attention", "torch._dynamo._trace_wrapped_higher_order_op", "torch.amp.grad_scaler",
    "torch.optim.lr_scheduler._enable_get_lr_call",
)  # fmt: skip
"""Modules of PyTorch whose classes are ordinary Python code over tensors, and classes, by their names."""


def construct(tx: Interpreter, cls: type, args: Args, kwargs: Kwargs) -> Value:
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
    # a call of the program's class is captured if the class has no kernels itself
    is_tensor = issubclass(cls, torch.Tensor) and (is_wrapper_class(cls) or not is_subclass_of_program(cls))
    if is_tensor and hasattr(cls, "__tensor_flatten__") and is_wrapper_class(cls):
        return tx.graph.call_function(tx, cls, args, kwargs)
    if not is_python_class(cls) or is_tensor or issubclass(cls, torch.autograd.Function) or from_torch:
        raise Unsupported(_kind_of_skipped(cls), f"{public_name(cls)}()")
    if hasattr(cls, "__del__"):
        raise Unsupported("unsupported call", f"{public_name(cls)}(), whose __del__ runs when the object is deleted")
    if inspect.isabstract(cls):
        raise Unsupported("exception", f"{public_name(cls)}(), an abstract class")
    called = lookup_in_mro(type(cls), "__call__")
    if isinstance(called, types.FunctionType):  # of a metaclass
        guard_class_attribute(tx, type(cls), "__call__", called)
        return tx.outside.wrap(called).call(tx, [StaticValue(cls), *args], kwargs)
    return instantiate(tx, cls, args, kwargs)


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
    return tx.outside.wrap(lazy_property_and_property(wrapped.constant(tx)))


def instantiate(tx: Interpreter, cls: type, args: Args, kwargs: Kwargs) -> Value:
    """``type.__call__(cls, ...)``"""
    instance = _new(tx, cls, args, kwargs)
    if issubclass(instance.python_type(), cls):
        _init(tx, cls, instance, args, kwargs)
    return instance


@handles(type.__call__)
def _call(tx: Interpreter, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    return instantiate(tx, cls.constant(tx), args, kwargs)


def _new(tx: Interpreter, cls: type, args: Args, kwargs: Kwargs) -> Value:
    found = lookup_in_mro(cls, "__new__")
    guard_class_attribute(tx, cls, "__new__", found)
    if isinstance(found, staticmethod):
        return tx.outside.wrap(found.__func__).call(tx, [StaticValue(cls), *args], kwargs)
    if found is object.__new__ and lookup_in_mro(cls, "__init__") is not object.__init__:
        return _new_object(tx, StaticValue(cls))  # __init__ checks the arguments
    if found is object.__new__ and (args or kwargs):
        raise observed_exception(TypeError, f"{cls.__name__}() takes no arguments")
    return StaticValue(found).call(tx, [StaticValue(cls), *args], kwargs)


def _init(tx: Interpreter, cls: type, instance: Value, args: Args, kwargs: Kwargs) -> None:
    init = lookup_in_mro(cls, "__init__")
    if init in (object.__init__, torch.Tensor.__init__):
        return  # __new__ has checked the arguments
    guard_class_attribute(tx, cls, "__init__", init)
    result = tx.outside.wrap(init).call(tx, [instance, *args], kwargs)
    if not tx.is_none(result):
        raise Unsupported("exception", "__init__() should return None")


@handles(object.__new__)
def _new_object(tx: Interpreter, cls: Value) -> Value:
    instance = cls.constant(tx)
    if not is_plain_class(instance):
        raise Unsupported("unsupported call", f"object.__new__({name_of(instance)})")
    return module_value(instance) if issubclass(instance, torch.nn.Module) else ObjectValue(instance)


@handles(  # a defaultdict's is dict's
    dict.__new__, list.__new__, tuple.__new__, collections.deque.__new__, set.__new__, frozenset.__new__
)  # fmt: skip
def _new_container(tx: Interpreter, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    instance = cls.constant(tx)
    if container_base(instance) is None:
        raise Unsupported("unsupported call", f"{name_of(instance)}.__new__()")
    return new_instance(tx, instance, args)
