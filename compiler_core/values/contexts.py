"""Context managers that the graph can hold: grad mode."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.errors import Unsupported
from compiler_core.sources import Attribute, Source
from compiler_core.values.base import Value
from compiler_core.values.constant import ConstantValue
from compiler_core.values.functions import StaticValue
from compiler_core.values.mappings import DictValue
from compiler_core.values.rules import handles

GRAD_MODES = (torch.no_grad, torch.enable_grad)

if TYPE_CHECKING:
    from compiler_core.capture import Capture
    from compiler_core.reconstruct import Emitter
    from compiler_core.symbolic import Interpreter


class ContextValue(Value):
    """Something that a ``with`` statement enters and leaves."""

    def enter(self, tx: Interpreter) -> Value:
        raise NotImplementedError

    def leave(self, tx: Interpreter) -> None:
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """The attributes of the real object once it was entered: what leaving it goes back to."""
        raise Unsupported("unsupported operation", f"{self}, across a break")


class GradModeValue(ContextValue):
    """``torch.no_grad()``, ``torch.enable_grad()``, ``torch.set_grad_enabled(mode)``."""

    def __init__(self, mode: bool, source: Source | None = None) -> None:
        self.mode = mode
        self.source = source
        self.prev = False
        """As PyTorch's own keeps it: what to go back to, a second ``with`` of the same object overwrites it."""

    def enter(self, tx: Interpreter) -> Value:
        self.prev = tx.capture.grad_enabled
        tx.capture.set_grad_enabled(self.mode)
        return ConstantValue(None)

    def leave(self, tx: Interpreter) -> None:
        tx.capture.set_grad_enabled(self.prev)

    def state(self) -> dict[str, Any]:
        return {"prev": self.prev}

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name == "__class__":
            return StaticValue(torch.enable_grad if self.mode else torch.no_grad)
        return super().get_attr(tx, name)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        raise Unsupported("unsupported call", "a grad-mode context manager used as a decorator")

    def rebuild(self, emit: Emitter) -> None:
        emit.call_object(torch.enable_grad if self.mode else torch.no_grad, [])


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
        assert isinstance(context, GradModeValue)
        context.prev = method.__self__.prev
        capture.guard("EQUALS_MATCH", Attribute(owner, "prev"), context.prev)
        capture.guard("ID_MATCH", Attribute(source, "__func__"), method.__func__)
        return cls(context, source)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        self.context.leave(tx)
        return ConstantValue(None)

    def children(self) -> Sequence[Value]:
        return [self.context]

    def rebuild(self, emit: Emitter) -> None:
        state = {k: ConstantValue(v) for k, v in self.context.state().items()}
        emit.call_object(make_exit, [self.context, DictValue(dict(state))])


def make_exit(context: Any, state: dict[str, Any]) -> Any:
    """Called by generated code: the ``__exit__`` of `context` as it is once that was entered."""
    for name, value in state.items():
        setattr(context, name, value)
    return context.__exit__


@handles(torch.no_grad)
def _no_grad(tx: Interpreter) -> Value:
    return GradModeValue(False)


@handles(torch.enable_grad)
def _enable_grad(tx: Interpreter) -> Value:
    return GradModeValue(True)


@handles(torch.autograd.grad_mode.set_grad_enabled)
def _set_grad_enabled(tx: Interpreter, mode: Value) -> Value:
    # as a plain call it takes effect at once and stays: left to Python
    raise Unsupported("unsupported call", "torch.set_grad_enabled")
