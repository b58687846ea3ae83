"""Types of arguments that eager's CPU kernels refuse, although PyTorch's fake tensors take them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from compiler_core.errors import Unsupported
from compiler_core.support.silenced_warnings import silence_warnings, warn_always

aten = torch.ops.aten
NORMS = frozenset(
    {
        *(aten.native_layer_norm.default, aten.native_group_norm.default, aten.native_batch_norm.default),
        *(aten._native_batch_norm_legit.default, aten._native_batch_norm_legit.no_stats),
        aten._batch_norm_with_update.default,
    }
)


def check_types(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises Unsupported if eager's CPU kernel of a pointwise operator or a norm raises for arguments of these types.

    The operator then runs eagerly, after a graph break, and raises there.  A kernel of ours would compute something:
    ``x - mask`` with a float and a bool.
    """
    values = (*args, *kwargs.values())
    types = {value.dtype for value in values if isinstance(value, torch.Tensor)}
    if len(types) == 1 and next(iter(types)).is_floating_point:
        return
    if func in NORMS:
        error = _error_of_norm(args[0], types)
    elif torch.Tag.pointwise not in func.tags or torch.Tag.nondeterministic_seeded in func.tags:
        return
    elif all(map(_is_plain, values)):
        described = tuple(map(_described, values))
        error = _error(func, described[: len(args)], tuple(zip(kwargs, described[len(args) :], strict=True)))
    else:
        return
    if error:
        raise Unsupported("unsupported operation", f"{func} raises in eager: {error}")


def _error_of_norm(x: torch.Tensor, types: set[torch.dtype]) -> str | None:
    """Returns why the CPU kernel refuses these types, or None; half types may have float32 parameters."""
    taken = {x.dtype, torch.float32} if x.dtype in (torch.bfloat16, torch.float16) else {x.dtype}
    return None if x.device.type != "cpu" or types <= taken else "its parameters have other types"


def _is_plain(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.device.type == "cpu" and value.layout is torch.strided
    return value is None or isinstance(value, (int, float, complex, str, torch.dtype, torch.SymInt, torch.SymFloat))


def _described(value: Any) -> tuple[str, Any]:
    """Returns the kind of an argument, and what of it decides whether the kernel takes it."""
    if isinstance(value, torch.Tensor):
        return "tensor", (value.dtype, value.dim() > 0)
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return type(value).__name__, 1 if isinstance(value, torch.SymInt) else 1.0
    return type(value).__name__, value


@functools.lru_cache(maxsize=4096)
def _error(func: Any, args: tuple[tuple[str, Any], ...], kwargs: tuple[tuple[str, tuple[str, Any]], ...]) -> str | None:
    """Calls the operator with tensors of one element; returns the message of its exception, or None."""
    with unset_fake_temporarily(), silence_warnings(), warn_always():
        try:
            func(*map(_value, args), **{name: _value(each) for name, each in kwargs})
        except Exception as error:
            return str(error).partition("\n")[0]
    return None


def _value(described: tuple[str, Any]) -> Any:
    kind, value = described
    if kind != "tensor":
        return value
    dtype, has_dims = value
    return torch.ones((1,) if has_dims else (), dtype=dtype)
