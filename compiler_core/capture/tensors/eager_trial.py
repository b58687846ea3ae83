"""Tries an operation that failed on fake tensors on real ones, to tell the program's error from one of fake tensors."""

from __future__ import annotations

import types
from typing import Any

import torch

from compiler_core.support.fx_symbols import hint
from compiler_core.support.operator_facts import custom_operator
from compiler_core.support.silenced_warnings import silence_warnings
from compiler_core.torch_private import OpOverload, OpOverloadPacket, disable_current_modes, tree_leaves, tree_map_only

MAX_ELEMENTS = 1 << 20
"""Tensors with more elements, in all arguments, are not made for a trial."""


def runs_eagerly(fn: Any, args: Any, kwargs: Any) -> bool:
    """Returns whether eager PyTorch runs ``fn(*args, **kwargs)`` on tensors with the sizes and types of the fake ones.

    Returns False also if that is not known: for a function of the user, for views, to whose base an operation may
    object, and for large tensors.
    """
    tensors = [t for t in tree_leaves((args, kwargs, _owner(fn))) if isinstance(t, torch.Tensor)]
    if not _is_pytorchs(fn) or any(t._is_view() or t.layout is not torch.strided for t in tensors):
        return False
    if sum(hint(t.numel()) for t in tensors) > MAX_ELEMENTS:
        return False
    return any(_runs_on(value, fn, args, kwargs) for value in (0, 1))


def _owner(fn: Any) -> Any:
    return getattr(fn, "__self__", None)


def _is_pytorchs(fn: Any) -> bool:
    if custom_operator(fn) is not None:
        return False
    kinds = (OpOverload, OpOverloadPacket, types.BuiltinFunctionType, types.MethodDescriptorType)
    return isinstance(fn, kinds) or (isinstance(fn, types.FunctionType) and fn.__module__.startswith("torch."))


def _runs_on(value: int, fn: Any, args: Any, kwargs: Any) -> bool:
    """Returns whether `fn` runs on tensors with this value in each element."""
    made: dict[int, torch.Tensor] = {}

    def real(fake: torch.Tensor) -> torch.Tensor:
        if id(fake) not in made:
            size, stride = list(map(hint, fake.shape)), list(map(hint, fake.stride()))
            plain = torch.empty_strided(size, stride, dtype=fake.dtype, device=fake.device).fill_(value)
            made[id(fake)] = plain.requires_grad_() if fake.requires_grad else plain
            if fake.requires_grad and not fake.is_leaf:
                made[id(fake)] = made[id(fake)].clone()
        return made[id(fake)]

    try:
        with disable_current_modes(), silence_warnings(), torch.random.fork_rng():
            if isinstance(owner := _owner(fn), torch.Tensor):
                fn = getattr(real(owner), fn.__name__)
            given, named = tree_map_only(torch.Tensor, real, (args, kwargs))
            given, named = tree_map_only((torch.SymInt, torch.SymFloat, torch.SymBool), hint, (given, named))
            fn(*given, **named)
    except Exception:
        return False
    return True
