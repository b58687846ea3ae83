"""Rules for PyTorch's context managers: no_grad, enable_grad, inference_mode, autocast."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

from compiler_core.capture.rules.table import handles
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.contexts import AutocastValue, GradModeValue, InferenceModeValue
from compiler_core.errors import Unsupported
from compiler_core.support.torch_state import grad_mode_change
from compiler_core.torch_private import set_grad_enabled

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


@handles(torch.no_grad)
def _no_grad(tx: Interpreter, *args: Value) -> Value:
    context = GradModeValue(torch.no_grad, {"prev": False})
    return context.call(tx, args, {}) if args else context


@handles(torch.enable_grad)
def _enable_grad(tx: Interpreter, *args: Value) -> Value:
    context = GradModeValue(torch.enable_grad, {})
    return context.call(tx, args, {}) if args else context


def _checked_mode(tx: Interpreter, mode: Value) -> bool:
    """Returns a mode, which must be a bool."""
    enabled = mode.constant(tx)
    if not isinstance(enabled, bool):
        raise Unsupported("exception", f"set_grad_enabled({enabled!r}) raises TypeError")
    return enabled


@handles(torch.set_grad_enabled)
def _set_grad_enabled(tx: Interpreter, mode: Value) -> Value:
    enabled = _checked_mode(tx, mode)
    context = GradModeValue(torch.set_grad_enabled, {"prev": tx.capture.graph.grad_enabled, "mode": enabled})
    tx.capture.graph.change_state(grad_mode_change(enabled))
    return context


@handles(torch.inference_mode)
def _inference_mode(tx: Interpreter, mode: Value = ConstantValue(True)) -> Value:  # noqa: B008
    if mode.python_type() is bool:
        return InferenceModeValue(torch.inference_mode, {"mode": mode.constant(tx)})
    return InferenceModeValue(torch.inference_mode, {"mode": True}).call(tx, [mode], {})


@handles(set_grad_enabled)
def _set_grad_mode(tx: Interpreter, mode: Value) -> Value:
    tx.capture.graph.change_state(grad_mode_change(_checked_mode(tx, mode)))
    return NONE


@handles(torch.autocast)
def _autocast(tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    raw, named = [a.constant(tx) for a in args], {k: v.constant(tx) for k, v in kwargs.items()}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            context = torch.autocast(*raw, **named)
        except Exception as error:
            raise Unsupported("exception", f"{type(error).__name__}: {error}") from None
    if caught:
        raise Unsupported("skipped function", f"torch.autocast, which warns: {caught[0].message}")
    return AutocastValue(torch.autocast, dict(vars(context)))
