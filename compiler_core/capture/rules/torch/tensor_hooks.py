"""Rule for ``Tensor.register_hook``.

On a tensor that the frame made, the hook becomes a node of the graph, which registers it: the hook runs when the joint
graph is traced, or in the backward of a backend that does not differentiate.  So it is interpreted once in a trial run,
as a ``torch.autograd.Function`` is.  On a leaf from outside, generated code registers the hook when the graph has run.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.rules.torch.autograd_functions import trial_run
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.functions import FunctionValue
from compiler_core.errors import Unsupported
from compiler_core.support import transform_levels as levels

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

NAME = "Tensor.register_hook()"


class HandleValue(Value):
    """The handle of a hook, which only a frame that ignores it can have."""

    def __repr__(self) -> str:
        return "the handle of a hook"


def register_hook(tx: Interpreter, tensor: TensorValue, hook: Value) -> Value:
    """``tensor.register_hook(hook)``

    Raises Unsupported if the hook does more than to compute a gradient from a gradient.
    """
    fake = tensor.fake(tx)
    if type(tensor) is not TensorValue or not fake.requires_grad or levels.depth() or tx.capture.graph.is_trial:
        raise Unsupported("gradient hook", NAME)
    if tensor.source is not None:
        if not fake.is_leaf:
            raise Unsupported("gradient hook", f"{NAME} of a tensor from outside that is not a leaf")
        tensor.install_guards(tx)
        tx.capture.effects.note_call(add_hook, [tensor, hook])
        return HandleValue()
    if not isinstance(hook, FunctionValue):
        raise Unsupported("gradient hook", f"{NAME} with {hook}")
    hook.install_guards(tx)
    try:
        _try(tx, tensor, hook)
        copy = _copy(tx, hook)
    except Unsupported as error:
        raise Unsupported("gradient hook", f"{NAME}: {error.context or error.kind}") from None
    tx.capture.graph.call_function(tx, _registering(copy), [tensor], {})
    return HandleValue()


def add_hook(tensor: torch.Tensor, hook: Callable[..., Any]) -> None:
    """Registers a hook; generated code calls it."""
    tensor.register_hook(hook)  # type: ignore[no-untyped-call]


def _try(tx: Interpreter, tensor: TensorValue, hook: FunctionValue) -> None:
    """Interprets the hook, which adds its guards and breaks the graph if it does anything but compute."""
    with trial_run(tx, "a hook", [tensor]):
        gradient = tx.capture.graph.call_function(tx, torch.empty_like, [tensor], {})
        result = hook.call(tx, [gradient], {})
        if not tx.is_none(result) and (not isinstance(result, TensorValue) or _kind(tx, result) != _kind(tx, tensor)):
            raise Unsupported("gradient hook", f"the hook returns {result}")


def _kind(tx: Interpreter, tensor: TensorValue) -> tuple[Any, ...]:
    fake = tensor.fake(tx)
    return fake.shape, fake.dtype, fake.device


def _copy(tx: Interpreter, hook: FunctionValue) -> types.FunctionType:
    """Returns a function like the hook, which has no state that may change: its variables are constants."""
    if hook.stored or hook.special_attributes:
        raise Unsupported("gradient hook", "the hook has attributes")
    cells = tuple(types.CellType(cell.get(tx).constant(tx)) for cell in hook.closure)
    defaults = tuple(value.constant(tx) for value in hook.defaults)
    made = types.FunctionType(hook.code, hook.f_globals, hook.code.co_name, defaults, cells)
    made.__kwdefaults__ = {name: value.constant(tx) for name, value in hook.kwdefaults.items()}
    return made


def _registering(hook: types.FunctionType) -> Callable[[torch.Tensor], None]:
    """Returns the function that the node calls."""

    def register(tensor: torch.Tensor) -> None:
        tensor.register_hook(hook)  # type: ignore[no-untyped-call]

    register.__name__ = register.__qualname__ = "register_hook"
    return register
