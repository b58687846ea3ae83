"""Context managers that the graph can hold: grad mode and autocast, in ``with`` statements and as decorators."""

from __future__ import annotations

import inspect
import types
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.rules.table import handles
from compiler_core.capture.values.base import Raised, Value
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.constant import NONE, ConstantValue
from compiler_core.capture.values.static import StaticValue
from compiler_core.capture.values.user.functions import FunctionValue, MethodValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import Attribute, Source
from compiler_core.support.torch_state import Change, autocast_of, enter_autocast, grad_mode, leave_autocast

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.graph_builder import Capture
    from compiler_core.capture.interpreter import Interpreter


class ContextValue(Value):
    """Something that a ``with`` statement enters and leaves.

    `attributes` are those of the real object; those that entering it sets say what leaving it goes back to.
    """

    settings: tuple[str, ...] = ()
    """The attributes that never change."""

    def __init__(self, cls: type, attributes: dict[str, Any], source: Source | None = None) -> None:
        self.cls = cls
        self.attributes = attributes
        self.source = source

    @classmethod
    def outside(cls, capture: Capture, real: Any, source: Source) -> ContextValue:
        capture.guard("TYPE_MATCH", source, real)
        for name in cls.settings:
            capture.guard("EQUALS_MATCH", Attribute(source, name), getattr(real, name))
        return cls(type(real), dict(vars(real)), source)

    def python_type(self) -> type:
        return self.cls

    def truth(self, tx: Interpreter) -> bool:
        return True

    def enter(self, tx: Interpreter) -> Value:
        raise NotImplementedError

    def leave(self, tx: Interpreter) -> None:
        raise NotImplementedError

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name == "__class__":
            return StaticValue(self.cls)
        if name in self.settings:
            return ConstantValue(self.attributes[name])
        found = inspect.getattr_static(self.cls, name, None)
        if isinstance(found, types.FunctionType) and name == "clone":
            return MethodValue(FunctionValue.outside(tx.capture, found, None), self)
        return super().get_attr(tx, name)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """As a decorator."""
        (function,) = args
        if isinstance(function, (FunctionValue, MethodValue)) and not _is_generator(function):
            return DecoratedValue(self, function)
        if isinstance(function, StaticValue) and not isinstance(function.obj, type):
            return DecoratedValue(self, function)
        raise Unsupported("unsupported call", f"{self.cls.__name__} as a decorator of {function}")

    def rebuild(self, emit: Emitter) -> None:
        emit.call_object(make_context, [StaticValue(self.cls), self.attribute_dict])

    @property
    def attribute_dict(self) -> DictValue:
        return DictValue({k: ConstantValue(v) for k, v in self.attributes.items()})


def _is_generator(function: FunctionValue | MethodValue) -> bool:
    inner = function.function if isinstance(function, MethodValue) else function
    return not isinstance(inner, FunctionValue) or bool(inner.code.co_flags & inspect.CO_GENERATOR)


class GradModeValue(ContextValue):
    """``torch.no_grad()``, ``torch.enable_grad()``, ``torch.set_grad_enabled(mode)``."""

    @property
    def mode(self) -> bool:
        return bool(self.attributes.get("mode", self.cls is torch.enable_grad))

    def enter(self, tx: Interpreter) -> Value:
        if self.cls is not torch.set_grad_enabled:
            self.attributes["prev"] = tx.capture.grad_enabled
        tx.capture.change(grad_mode(self.mode))
        return NONE

    def leave(self, tx: Interpreter) -> None:
        tx.capture.change(grad_mode(self.attributes["prev"]))

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        return ConstantValue(self.mode) if name == "mode" else super().get_attr(tx, name)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if self.cls is torch.set_grad_enabled:
            tx.capture.change(grad_mode(self.attributes["prev"]))  # making it has taken effect
        return super().call(tx, args, kwargs)


class AutocastValue(ContextValue):
    """``torch.autocast(device, dtype, enabled, cache_enabled)``"""

    settings = ("device", "fast_dtype", "_enabled", "_cache_enabled")

    def _own(self) -> tuple[Any, ...]:
        return tuple(self.attributes[name] for name in self.settings)

    def enter(self, tx: Interpreter) -> Value:
        device, dtype, enabled, cache = self._own()
        _, *before = autocast_of(device)
        self.attributes |= dict(zip(("prev", "prev_fastdtype", "prev_cache_enabled"), before, strict=True))
        tx.capture.change(Change(enter_autocast, (device, enabled, dtype, cache), leave_autocast, (device, *before)))
        return self

    def leave(self, tx: Interpreter) -> None:
        device, dtype, enabled, cache = self._own()
        before = (device, *(self.attributes[n] for n in ("prev", "prev_fastdtype", "prev_cache_enabled")))
        tx.capture.change(Change(leave_autocast, before, enter_autocast, (device, enabled, dtype, cache)))


class InferenceModeValue(ContextValue):
    """``torch.inference_mode(mode)``: what a tensor is depends on the mode in which it was made, and a graph is run in
    one of them, so the graph ends where the mode changes."""

    settings = ("mode",)

    @classmethod
    def outside(cls, capture: Capture, real: Any, source: Source) -> ContextValue:
        found = super().outside(capture, real, source)
        found.attributes = {"mode": real.mode}
        return found

    def enter(self, tx: Interpreter) -> Value:
        raise Unsupported("inference mode", f"torch.inference_mode({self.attributes['mode']}) is entered")

    def leave(self, tx: Interpreter) -> None:
        raise Unsupported("inference mode", f"torch.inference_mode({self.attributes['mode']}) is left")


CONTEXTS: dict[type, type[ContextValue]] = {
    torch.no_grad: GradModeValue,
    torch.enable_grad: GradModeValue,
    torch.set_grad_enabled: GradModeValue,
    torch.autocast: AutocastValue,
    torch.inference_mode: InferenceModeValue,
}


class ExitValue(Value):
    """The bound ``__exit__`` that a ``with`` statement keeps on the stack."""

    def __init__(self, context: ContextValue, source: Source | None = None) -> None:
        self.context = context
        self.source = source

    @classmethod
    def outside(cls, capture: Capture, method: types.MethodType, source: Source) -> Value:
        """The one that a break in the block has carried into a resume function."""
        owner = Attribute(source, "__self__")
        context = capture.wrap(method.__self__, owner)
        assert isinstance(context, ContextValue)
        for name, value in context.attributes.items():
            capture.guard("EQUALS_MATCH", Attribute(owner, name), value)
        capture.guard("ID_MATCH", Attribute(source, "__func__"), method.__func__)
        return cls(context, source)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        self.context.leave(tx)
        return NONE

    def children(self) -> Sequence[Value]:
        return [self.context]

    def rebuild(self, emit: Emitter) -> None:
        emit.call_object(make_exit, [self.context, self.context.attribute_dict])


class DecoratedValue(Value):
    """``torch.no_grad()(function)``"""

    def __init__(self, context: ContextValue, function: Value) -> None:
        self.context = context
        self.function = function

    def __repr__(self) -> str:
        return repr(self.function)

    def python_type(self) -> type:
        return types.FunctionType

    def truth(self, tx: Interpreter) -> bool:
        return True

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        context = type(self.context)(self.context.cls, dict(self.context.attributes))
        if self.context.cls is torch.set_grad_enabled:
            context.attributes["prev"] = tx.capture.grad_enabled
        context.enter(tx)
        try:
            result = self.function.call(tx, args, kwargs)
        except Raised:
            context.leave(tx)
            raise
        context.leave(tx)
        return result

    def children(self) -> Sequence[Value]:
        return [self.context, self.function]

    def rebuild(self, emit: Emitter) -> None:
        emit.call_object(decorate, [self.context, self.function])


def make_context(cls: Any, attributes: dict[str, Any]) -> Any:
    """Called by generated code: a context manager, made without taking effect."""
    made = object.__new__(cls)
    vars(made).update(attributes)
    return made


def make_exit(context: Any, attributes: dict[str, Any]) -> Any:
    """Called by generated code: the ``__exit__`` of `context` as it is once that was entered."""
    vars(context).update(attributes)
    return context.__exit__


def decorate(context: Any, function: Any) -> Any:
    """Called by generated code."""
    with torch.set_grad_enabled(torch.is_grad_enabled()):  # set_grad_enabled takes back that it was made
        return context(function)


@handles(torch.no_grad)
def _no_grad(tx: Interpreter, *args: Value) -> Value:
    made = GradModeValue(torch.no_grad, {"prev": False})
    return made.call(tx, args, {}) if args else made


@handles(torch.enable_grad)
def _enable_grad(tx: Interpreter, *args: Value) -> Value:
    made = GradModeValue(torch.enable_grad, {})
    return made.call(tx, args, {}) if args else made


@handles(torch.set_grad_enabled)
def _set_grad_enabled(tx: Interpreter, mode: Value) -> Value:
    wanted = bool(mode.constant(tx))
    made = GradModeValue(torch.set_grad_enabled, {"prev": tx.capture.grad_enabled, "mode": wanted})
    tx.capture.change(grad_mode(wanted))
    return made


@handles(torch.inference_mode)
def _inference_mode(tx: Interpreter, mode: Value = ConstantValue(True)) -> Value:  # noqa: B008
    if mode.python_type() is bool:
        return InferenceModeValue(torch.inference_mode, {"mode": mode.constant(tx)})
    return InferenceModeValue(torch.inference_mode, {"mode": True}).call(tx, [mode], {})


@handles(torch._C._set_grad_enabled)
def _set_grad_mode(tx: Interpreter, mode: Value) -> Value:
    tx.capture.change(grad_mode(bool(mode.constant(tx))))
    return NONE


@handles(torch.autocast)
def _autocast(tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    raw, named = [a.constant(tx) for a in args], {k: v.constant(tx) for k, v in kwargs.items()}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            made = torch.autocast(*raw, **named)
        except Exception as error:
            raise Unsupported("exception", f"{type(error).__name__}: {error}") from None
    if said:
        raise Unsupported("skipped function", f"torch.autocast, which warns: {said[0].message}")
    return AutocastValue(torch.autocast, dict(vars(made)))
