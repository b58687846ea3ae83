"""Context managers that the graph can hold: grad mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from compiler_core.errors import Unsupported
from compiler_core.values.base import Value
from compiler_core.values.constant import ConstantValue
from compiler_core.values.functions import StaticValue
from compiler_core.values.rules import handles

if TYPE_CHECKING:
    from compiler_core.reconstruct import Emitter
    from compiler_core.sources import Source
    from compiler_core.symbolic import Interpreter


class ContextValue(Value):
    """Something that a ``with`` statement enters and leaves."""

    def enter(self, tx: Interpreter) -> Value:
        raise NotImplementedError

    def leave(self, tx: Interpreter) -> None:
        raise NotImplementedError


class GradModeValue(ContextValue):
    """``torch.no_grad()``, ``torch.enable_grad()``, ``torch.set_grad_enabled(mode)``."""

    def __init__(self, mode: bool, source: Source | None = None) -> None:
        self.mode = mode
        self.source = source
        self.before: list[bool] = []

    def enter(self, tx: Interpreter) -> Value:
        self.before.append(tx.capture.grad_enabled)
        tx.capture.set_grad_enabled(self.mode)
        return ConstantValue(None)

    def leave(self, tx: Interpreter) -> None:
        tx.capture.set_grad_enabled(self.before.pop())

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

    def __init__(self, context: ContextValue) -> None:
        self.context = context

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        self.context.leave(tx)
        return ConstantValue(None)


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
