"""The levels of ``torch.func``: each running transform (``vmap``, ``grad``, ``jvp``) has one, and wraps its tensors.

A captured graph contains a transform as PyTorch runs it: a node that enters a level, nodes that wrap tensors for it,
the operations of the transformed function, nodes that take the results out of their wrappers, and a node that leaves
the level.  So it means what it means in eager PyTorch, in any nesting, whatever runs the graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx.node import has_side_effect

from compiler_core.torch_private import (
    C_enter_dual_level,
    C_exit_dual_level,
    C_functorch,
    forward_ad,
    is_fwd_grad_enabled,
    pyfunctorch,
    set_fwd_grad_enabled,
    top_saved_tensors_default_hooks,
)

functorch: Any = C_functorch


@has_side_effect
def enter_vmap(batch_size: int, randomness: str) -> None:
    """Enters a level of ``vmap``."""
    functorch._vmap_increment_nesting(batch_size, randomness)


@has_side_effect
def leave_vmap() -> None:
    """Leaves a level of ``vmap``."""
    functorch._vmap_decrement_nesting()


@has_side_effect
def enter_grad() -> None:
    """Enters a level of ``grad`` or ``vjp``."""
    functorch._grad_increment_nesting()


@has_side_effect
def leave_grad() -> None:
    """Leaves a level of ``grad`` or ``vjp``."""
    functorch._grad_decrement_nesting()


@has_side_effect
def enter_jvp() -> None:
    """Enters a level of ``jvp``."""
    functorch._jvp_increment_nesting()


@has_side_effect
def leave_jvp() -> None:
    """Leaves a level of ``jvp``."""
    functorch._jvp_decrement_nesting()


def in_dual_level() -> bool:
    """Returns whether the program is within a level of forward-mode differentiation, outside of ``jvp``."""
    return bool(forward_ad._current_level >= 0)


@has_side_effect
def enter_dual_level() -> None:
    """Enters the level of forward-mode differentiation that all levels of ``jvp`` share."""
    C_enter_dual_level()


@has_side_effect
def leave_dual_level() -> None:
    """Leaves the level of forward-mode differentiation."""
    C_exit_dual_level(level=0)


@has_side_effect
def set_forward_gradients(enabled: bool) -> None:
    """Turns forward-mode differentiation on or off."""
    set_fwd_grad_enabled(enabled)


@has_side_effect
def allow_requires_grad(allowed: bool) -> None:
    """Allows or forbids ``requires_grad_()`` inside a transform."""
    functorch.set_inplace_requires_grad_allowed(allowed)


def add_batch_dim(tensor: torch.Tensor, dim: int, level: int) -> torch.Tensor:
    """Hides a dimension of a tensor for a level of ``vmap``."""
    return functorch._add_batch_dim(tensor, dim, level)  # type: ignore[no-any-return]


def remove_batch_dim(tensor: torch.Tensor, level: int, batch_size: int, dim: int) -> torch.Tensor:
    """Returns a tensor of a level of ``vmap`` with its hidden dimension at `dim`."""
    return functorch._remove_batch_dim(tensor, level, batch_size, dim)  # type: ignore[no-any-return]


def wrap_for_grad(tensor: torch.Tensor, level: int) -> torch.Tensor:
    """Wraps a tensor for a level of ``grad`` or ``jvp``."""
    return functorch._wrap_for_grad(tensor, level)  # type: ignore[no-any-return]


def unwrap_for_grad(tensor: torch.Tensor, level: int) -> torch.Tensor:
    """Takes a tensor out of its wrapper for a level of ``grad`` or ``jvp``."""
    return functorch._unwrap_for_grad(tensor, level)  # type: ignore[no-any-return]


LEVEL_FUNCTIONS = frozenset({
    enter_vmap, leave_vmap, enter_grad, leave_grad, enter_jvp, leave_jvp, enter_dual_level, leave_dual_level,
    set_forward_gradients, allow_requires_grad,
})  # fmt: skip
"""The targets of graph nodes that enter or leave levels, or change what holds in them."""


def depth() -> int:
    """Returns how many levels are active."""
    return int(functorch.get_dynamic_layer_stack_depth())


def is_wrapped(value: Any) -> bool:
    """Returns whether `value` is a tensor of a level, active or left."""
    return isinstance(value, torch.Tensor) and bool(functorch.is_functorch_wrapped_tensor(value))


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor inside the wrappers of all levels."""
    while is_wrapped(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def has_saved_tensor_hooks() -> bool:
    """Returns whether hooks on saved tensors are active, such as those of a checkpoint."""
    return top_saved_tensors_default_hooks(True) is not None


def outside_levels() -> Any:
    """A context in which no level is active."""
    return pyfunctorch.temporarily_clear_interpreter_stack() if depth() else contextlib.nullcontext()


@contextlib.contextmanager
def levels_left() -> Iterator[None]:
    """A context at whose end the levels are those of its beginning, also after an error inside."""
    leave = level_restorer()
    try:
        yield
    finally:
        leave()


def level_restorer() -> Any:
    """Returns a function that leaves all levels that are entered from now on."""
    active, kinds = depth(), functorch.TransformType
    forward, allowed = bool(is_fwd_grad_enabled()), functorch.get_inplace_requires_grad_allowed()

    def restore() -> None:
        in_jvp = any(level.key() == kinds.Jvp for level in functorch.get_interpreter_stack() or ())
        leave_level = {kinds.Vmap: leave_vmap, kinds.Grad: leave_grad, kinds.Jvp: leave_jvp}
        while depth() > active:  # PyTorch 2.11 has no function that leaves several levels of any kind
            leave_level.get(functorch.peek_interpreter_stack().key(), functorch._func_decrement_nesting)()
        if in_jvp and not in_dual_level():
            with contextlib.suppress(RuntimeError):  # the level had not been entered yet
                leave_dual_level()
        set_forward_gradients(forward)
        allow_requires_grad(allowed)

    return restore
