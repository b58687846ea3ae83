"""The tensors in a nested value, and which of them share memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from compiler_core.support.fx_symbols import hint
from compiler_core.support.size_expr import are_dense
from compiler_core.support.transform_levels import unwrapped
from compiler_core.torch_private import DisableTorchFunctionSubclass

HALF_TYPES = (torch.bfloat16, torch.float16)
MASK_TYPES = (torch.bool, torch.uint8)
"""The types of an index that picks elements, how many depends on its values."""


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Returns the tensors in a value, or in nested lists and tuples of values, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def is_dense(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor has neither gaps nor elements that share memory."""
    return are_dense(tensor.shape, tensor.stride(), hint)


def storage_id(tensor: torch.Tensor) -> int:
    """Returns a number that is equal for tensors, fake ones and those of transforms included, that share their storage.

    It is valid while the storage is alive.
    """
    storage: Any = unwrapped(tensor).untyped_storage()
    return int(storage._cdata)


def without_class(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a plain tensor over the same memory, with the same autograd history, for one of a subclass."""
    with DisableTorchFunctionSubclass():
        return tensor.as_subclass(torch.Tensor)


def has_own_kernels(tensor: torch.Tensor) -> bool:
    """Returns whether the tensor's class computes operators itself, by ``__torch_dispatch__``: its memory may be
    elsewhere."""
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def gradient_function(tensor: torch.Tensor) -> Any:
    """Returns ``tensor.grad_fn``; None for a view made under ``no_grad`` that was written to, which refuses to tell."""
    try:
        return tensor.grad_fn
    except RuntimeError:
        return None


def history(fake: torch.Tensor) -> Iterator[Any]:
    """Yields the functions of autograd behind a tensor."""
    waiting, seen = [gradient_function(fake)], set[Any]()
    while waiting:
        step = waiting.pop()
        if step is not None and step not in seen:
            seen.add(step)
            yield step
            waiting += [before for before, _ in step.next_functions]


def compute_gradients(*args: Any, **kwargs: Any) -> tuple[torch.Tensor | None, ...]:
    """``torch.autograd.grad`` in this thread: modes that trace, and fake tensors of a GPU, need that."""
    with torch.autograd.set_multithreading_enabled(False):
        found: tuple[torch.Tensor | None, ...] = torch.autograd.grad(*args, **kwargs)
        return found
