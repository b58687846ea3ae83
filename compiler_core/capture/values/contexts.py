"""Context managers that a graph can contain, such as grad mode and autocast; context variables; weak references."""

from __future__ import annotations

import contextvars
import functools
import types
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.values.base import (
    Args,
    Kwargs,
    NamedMethodValue,
    OutsideValue,
    Value,
    is_lock,
    lookup_in_mro,
    observed_exception,
)
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import ListValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.user.functions import FunctionValue, MethodValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import UNSET, AttrSource, Source, WeakRefCallSource, context_var
from compiler_core.support.eager_warnings import enter_filters, note_filters_changed
from compiler_core.support.torch_state import (
    AttentionKernels,
    StateChange,
    attention_kernel_names,
    autocast_state,
    enter_autocast,
    grad_mode_change,
    leave_autocast,
    set_attention_kernels,
)

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.capture.outside_objects import OutsideObjects


class ContextManagerValue(Value):
    """A context manager.

    `attributes` are the attributes of the real object.  Entering sets some of them to the state that leaving restores.
    """

    always_true = True

    settings: tuple[str, ...] = ()
    """The attributes that never change; an outside object is guarded on them."""

    def __init__(self, cls: type, attributes: dict[str, Any], source: Source | None = None) -> None:
        self.cls = cls
        self.attributes = attributes
        self.source = source

    @classmethod
    def from_outside(cls, outside: OutsideObjects, real: Any, source: Source) -> ContextManagerValue:
        outside.guards.add("TYPE_MATCH", source, real)
        for name in cls.settings:
            outside.guards.add("EQUALS_MATCH", AttrSource(source, name), getattr(real, name))
        return cls(type(real), dict(vars(real)), source)

    def enter(self, tx: Interpreter) -> Value:
        raise NotImplementedError

    def leave(self, tx: Interpreter) -> None:
        raise NotImplementedError

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name == "__class__":
            return StaticValue(self.cls)
        if name in self.settings:
            return ConstantValue(self.attributes[name])
        found = lookup_in_mro(self.cls, name)
        if isinstance(found, types.FunctionType) and name in ("clone", "_recreate_cm"):
            return MethodValue(FunctionValue.from_outside(tx.outside, found, None), self)
        return super().get_attr(tx, name)

    def call(self, tx: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        """Decorates a function, as the Python code of its class does."""
        decorate = lookup_in_mro(self.cls, "__call__")
        if not isinstance(decorate, types.FunctionType):
            raise Unsupported("unsupported call", str(self))
        return FunctionValue.from_outside(tx.outside, decorate, None).call(tx, [self, *args], kwargs)

    def reconstruct(self, emit: Emitter) -> None:
        emit.call_object(make_context, [StaticValue(self.cls), self.attribute_dict])

    def reconstruct_exit(self, emit: Emitter) -> None:
        """Pushes the bound ``__exit__`` of the context, which was entered."""
        emit.call_object(make_exit, [self, self.attribute_dict])

    @property
    def attribute_dict(self) -> DictValue:
        return DictValue({k: ConstantValue(v) for k, v in self.attributes.items()})


class GradModeValue(ContextManagerValue):
    """``torch.no_grad()``, ``torch.enable_grad()``, ``torch.set_grad_enabled(mode)``."""

    @property
    def mode(self) -> bool:
        return bool(self.attributes.get("mode", self.cls is torch.enable_grad))

    def enter(self, tx: Interpreter) -> Value:
        if self.cls is not torch.set_grad_enabled:
            self.attributes["prev"] = tx.graph.grad_enabled
        tx.graph.change_state(grad_mode_change(self.mode))
        return NONE

    def leave(self, tx: Interpreter) -> None:
        tx.graph.change_state(grad_mode_change(self.attributes["prev"]))

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name == "prev" and self.source is None:
            return ConstantValue(self.attributes[name])
        return ConstantValue(self.mode) if name == "mode" else super().get_attr(tx, name)


class AutocastValue(ContextManagerValue):
    """``torch.autocast(device, dtype, enabled, cache_enabled)``."""

    settings = ("device", "fast_dtype", "_enabled", "_cache_enabled")

    def _settings(self) -> tuple[Any, ...]:
        return tuple(self.attributes[name] for name in self.settings)

    def enter(self, tx: Interpreter) -> Value:
        device, dtype, enabled, cache = self._settings()
        _, *before = autocast_state(device)
        self.attributes |= dict(zip(("prev", "prev_fastdtype", "prev_cache_enabled"), before, strict=True))
        tx.graph.change_state(
            StateChange(enter_autocast, (device, enabled, dtype, cache), leave_autocast, (device, *before))
        )
        return self

    def leave(self, tx: Interpreter) -> None:
        device, dtype, enabled, cache = self._settings()
        before = (device, *(self.attributes[n] for n in ("prev", "prev_fastdtype", "prev_cache_enabled")))
        tx.graph.change_state(StateChange(leave_autocast, before, enter_autocast, (device, enabled, dtype, cache)))


class InferenceModeValue(ContextManagerValue):
    """``torch.inference_mode(mode)``, which sets the grad mode, too.

    Whether a tensor is an inference tensor depends on the mode in which it was made, and a graph runs in one mode, so
    the graph breaks where the mode changes.
    """

    settings = ("mode",)
    _grad_mode: GradModeValue | None = None
    """What entering it does, if the mode is the frame's."""

    @classmethod
    def from_outside(cls, outside: OutsideObjects, real: Any, source: Source) -> ContextManagerValue:
        found = super().from_outside(outside, real, source)
        found.attributes = {"mode": real.mode}
        return found

    def enter(self, tx: Interpreter) -> Value:
        mode = self.attributes["mode"]
        if mode != tx.graph.is_inference_mode(tx.guards):
            raise Unsupported("inference mode", f"torch.inference_mode({mode}) is entered")
        self._grad_mode = GradModeValue(torch.set_grad_enabled, {"mode": not mode})
        self._grad_mode.attributes["prev"] = tx.graph.grad_enabled
        return self._grad_mode.enter(tx)

    def leave(self, tx: Interpreter) -> None:
        if self._grad_mode is None:
            raise Unsupported("inference mode", f"torch.inference_mode({self.attributes['mode']}) is left")
        self._grad_mode.leave(tx)

    def reconstruct_exit(self, emit: Emitter) -> None:
        assert self._grad_mode is not None  # the graph breaks before another mode is entered
        self._grad_mode.reconstruct_exit(emit)


class AttentionKernelsValue(ContextManagerValue):
    """``torch.nn.attention.sdpa_kernel(kernels)``."""

    settings = ("names",)

    def enter(self, tx: Interpreter) -> Value:
        self.attributes["before"] = before = attention_kernel_names()
        if not changes_attention_kernels(tx):
            tx.guards.add("RETURNS", tx.guards.held(attention_kernel_names, "the kernels"), before)
        tx.graph.change_state(self._change("before", "names"))
        return DictValue({})

    def leave(self, tx: Interpreter) -> None:
        tx.graph.change_state(self._change("names", "before"))

    def _change(self, old: str, new: str) -> StateChange:
        change = set_attention_kernels
        return StateChange(change, self.attributes[new], change, self.attributes[old])


def changes_attention_kernels(tx: Interpreter) -> bool:
    """Whether the frame has already changed which kernels ``scaled_dot_product_attention`` may use."""
    return any(node.target is set_attention_kernels for node in tx.graph.fx_graph.nodes)


class RecordFunctionValue(ContextManagerValue):
    """``torch.profiler.record_function(name)``: compiled code records no ranges for the profiler."""

    settings = ("name", "args")

    @classmethod
    def make(cls, name: Any, args: Any) -> RecordFunctionValue:
        """Returns a context that records nothing, also where Python leaves it after a graph break."""
        made = torch.profiler.record_function(name, args)
        made.run_callbacks_on_exit = False
        return cls(torch.profiler.record_function, dict(vars(made)))

    def enter(self, tx: Interpreter) -> Value:
        return self

    def leave(self, tx: Interpreter) -> None:
        pass


class CatchWarningsValue(ContextManagerValue):
    """``warnings.catch_warnings()``, with the `settings` that it was made with.

    Operations inside that warn break the graph, unless the program ignores all warnings.  So what it records is empty.
    """

    def __init__(self, settings: dict[str, Any], on_entry: functools.partial[None] | None) -> None:
        super().__init__(warnings.catch_warnings, settings)
        self._on_entry = on_entry
        self._filters: list[functools.partial[None]] | None = None
        """What sets filters inside, in order; None before it is entered."""
        self._outer: list[functools.partial[None]] | None = None
        """The same of the block around it, if there is one."""
        self._log = ListValue([]) if settings.get("record") else None

    def enter(self, tx: Interpreter) -> Value:
        collector = tx.graph.warnings
        if self._filters is not None:
            raise Unsupported("exception", "warnings.catch_warnings() that is entered twice")
        tx.effects.note_call(note_filters_changed, [])
        self._outer = collector.filters
        self._filters = collector.filters = [*(self._outer or ()), *filter(None, [self._on_entry])]
        collector.had_block = True
        return self._log or NONE

    def leave(self, tx: Interpreter) -> None:
        tx.graph.warnings.filters = self._outer

    def reconstruct(self, emit: Emitter) -> None:
        if self._filters is not None:
            raise Unsupported("skipped function", "warnings.catch_warnings() that is kept after it was entered")
        emit.call_object(functools.partial(self.cls, **self.attributes), [])

    def reconstruct_exit(self, emit: Emitter) -> None:
        assert self._filters is not None
        emit.call_object(functools.partial(enter_filters, tuple(self._filters)), [self._log] if self._log else [])


CONTEXTS: dict[type, type[ContextManagerValue]] = {
    AttentionKernels: AttentionKernelsValue,
    torch.profiler.record_function: RecordFunctionValue,
    torch.no_grad: GradModeValue,
    torch.enable_grad: GradModeValue,
    torch.set_grad_enabled: GradModeValue,
    torch.autocast: AutocastValue,
    torch.inference_mode: InferenceModeValue,
}


class EnterValue(Value):
    """The bound ``__enter__`` that a ``with`` statement calls, since 3.14; `leave` is already on the stack then."""

    def __init__(self, context: Value, leave: ExitValue) -> None:
        self.context, self._exit = context, leave

    def call(self, tx: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        if not isinstance(self.context, ContextManagerValue):
            raise Unsupported("lock" if is_lock(self.context) else "unsupported call", f"with {self.context}")
        entered = self.context.enter(tx)
        self._exit.is_entered = True
        return entered

    def reconstruct(self, emit: Emitter) -> None:
        emit.call_object(getattr, [self.context, ConstantValue("__enter__")])


class ExitValue(Value):
    """The bound ``__exit__`` that a ``with`` statement keeps on the stack.

    Of one that cannot be entered, it is there until that is tried (since 3.14).
    """

    def __init__(self, context: Value, source: Source | None = None, is_entered: bool = True) -> None:
        self.context = context
        self.source = source
        self.is_entered = is_entered

    @classmethod
    def from_outside(cls, outside: OutsideObjects, method: types.MethodType, source: Source) -> Value:
        """Wraps the ``__exit__`` that a resume function received after a graph break inside the block."""
        owner = AttrSource(source, "__self__")
        context = outside.wrap(method.__self__, owner)
        assert isinstance(context, ContextManagerValue)
        for name, value in context.attributes.items():
            outside.guards.add("EQUALS_MATCH", AttrSource(owner, name), value)
        outside.guards.add("ID_MATCH", AttrSource(source, "__func__"), method.__func__)
        return cls(context, source)

    def call(self, tx: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        assert isinstance(self.context, ContextManagerValue)
        self.context.leave(tx)
        return NONE

    def reconstruct(self, emit: Emitter) -> None:
        if self.is_entered:
            assert isinstance(self.context, ContextManagerValue)
            self.context.reconstruct_exit(emit)
        else:
            emit.call_object(getattr, [self.context, ConstantValue("__exit__")])


def make_context(cls: Any, attributes: dict[str, Any]) -> Any:
    """Called by generated code: makes a context manager without calling its constructor, which may change modes."""
    context = object.__new__(cls)
    vars(context).update(attributes)
    return context


def make_exit(context: Any, attributes: dict[str, Any]) -> Any:
    """Called by generated code: returns the ``__exit__`` of `context` with the attributes that entering it set."""
    vars(context).update(attributes)
    return context.__exit__


# ---------------------------------------------------------------- context variables and weak references
#
# Reads of a context variable are guarded, sets are replayed after the graph has run, and a reset undoes a set.


ContextVar = contextvars.ContextVar[Any]


class ContextVarValue(Value):
    """A `contextvars.ContextVar` from outside."""

    always_true = True
    cls = contextvars.ContextVar

    source: Source

    def __init__(self, real: ContextVar, source: Source) -> None:
        self.real = real
        self.source = source

    def __repr__(self) -> str:
        return self.source.text

    def install_guards(self, tx: Interpreter) -> None:
        tx.guards.add("ID_MATCH", self.source, self.real)

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        self.install_guards(tx)
        if name == "name":
            return ConstantValue(self.real.name)
        return NamedMethodValue(self, name)

    def call_method(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "get" and len(args) <= 1 and not kwargs:
            return self._get(tx, *args)
        if name == "set" and len(args) == 1 and not kwargs:
            token = TokenValue(self, args[0], tx.effects.last_token())
            tx.effects.tokens.append(token)
            return token
        if name == "reset" and len(args) == 1 and not kwargs:
            return self._reset(tx, args[0])
        raise Unsupported("unsupported call", f"ContextVar.{name}()")

    def _get(self, tx: Interpreter, default: Value | None = None) -> Value:
        tokens: list[TokenValue] = tx.effects.tokens
        for token in reversed(tokens):
            if token.var is self:
                return token.value
        current, source = self.real.get(UNSET), context_var(self.source)
        if current is not UNSET:
            return tx.outside.wrap(current, source)
        tx.guards.add("ID_MATCH", source, UNSET)
        return default or self._default(tx)

    def _default(self, tx: Interpreter) -> Value:
        try:
            found = self.real.get()
        except LookupError:
            raise observed_exception(LookupError, self) from None
        return tx.outside.wrap(found)

    def _reset(self, tx: Interpreter, token: Value) -> Value:
        tokens: list[TokenValue] = tx.effects.tokens
        if not tokens or token is not tokens[-1] or tokens[-1].var is not self:
            raise Unsupported("unsupported call", "ContextVar.reset() of another token than the last")
        tokens.pop()
        return NONE


class TokenValue(Value):
    """The token that ``ContextVar.set`` returned.  Reconstructing it sets the variable."""

    always_true = True
    cls = contextvars.Token

    def __init__(self, var: ContextVarValue, value: Value, before: TokenValue | None) -> None:
        self.var = var
        self.value = value
        self.before = before

    def reconstruct(self, emit: Emitter) -> None:
        if self.before is not None:
            emit.keep(self.before)
        loads = [lambda: emit.value(self.var), lambda: emit.value(self.value)]
        emit.call_loaded(contextvars.ContextVar.set, loads)


class NewWeakRefValue(Value):
    """A ``weakref.ref`` that the frame made of an object from outside, which lives as long as the call."""

    always_true = True
    cls = weakref.ref

    def __init__(self, referent: Value) -> None:
        self.referent = referent

    def call(self, tx: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        if args or kwargs:
            raise Unsupported("exception", "a weak reference takes no arguments")
        return self.referent

    def reconstruct(self, emit: Emitter) -> None:
        emit.call_object(weakref.ref, [self.referent])


class WeakRefValue(OutsideValue):
    """A ``weakref.ref`` from outside."""

    always_true = True

    def __repr__(self) -> str:
        return self.source.text if self.source else "a weak reference"

    def call(self, tx: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        """Returns the referent."""
        self.install_guards(tx)
        if args or kwargs:
            raise Unsupported("exception", "a weak reference takes no arguments")
        assert self.source is not None
        return tx.outside.wrap(self.real(), WeakRefCallSource(self.source))
