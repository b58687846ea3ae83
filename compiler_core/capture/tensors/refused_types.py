"""Arguments that eager's kernels refuse, although fake tensors take them: types, and numbers that overflow."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from compiler_core.errors import Unsupported
from compiler_core.support.silenced_warnings import silence_warnings, warn_always
from compiler_core.torch_private import unset_fake_temporarily

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
    if overflows := _overflows(values, kwargs.get("dtype"), types):
        _check_number(func, args, kwargs, overflows)
        return
    if len(types) == 1 and next(iter(types)).is_floating_point:
        return
    if func in NORMS:
        error = _error_of_norm(args[0], types)
    elif torch.Tag.pointwise not in func.tags or torch.Tag.nondeterministic_seeded in func.tags:
        return
    elif all(map(_is_plain, values)):
        error = _error_of_kernel(func, args, kwargs)
    else:
        return
    if error:
        raise Unsupported("unsupported operation", f"{func} raises in eager: {error}")


def _overflows(values: Sequence[Any], dtype: Any, types: set[torch.dtype]) -> str:
    """Returns why a number does not fit the floating-point type of a call, or an empty text."""
    if not any(type(value) is float and _LEAST_LIMIT < abs(value) < math.inf for value in values):
        return ""
    floats = [t for t in ({dtype} if isinstance(dtype, torch.dtype) else types) if t.is_floating_point]
    limit = min((torch.finfo(t).max for t in floats), default=math.inf)
    found = [value for value in values if type(value) is float and limit < abs(value) < math.inf]
    return f"{found[0]} does not fit the type" if found else ""


_LEAST_LIMIT = 400.0
"""No floating-point type's greatest number is less."""


def _check_number(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], overflows: str) -> None:
    """Raises Unsupported unless the kernel takes the number, as that of a sum does, whose result is infinite."""
    values = (*args, *kwargs.values())
    if torch.Tag.pointwise in func.tags and all(isinstance(v, torch.Tensor) or _is_plain(v) for v in values):
        overflows = _error_of_kernel(func, args, kwargs) or ""
    if overflows:
        raise Unsupported("unsupported operation", f"{func} may raise in eager: {overflows}")


def _error_of_kernel(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    given = tuple(map(_described, args))
    return _error(func, given, tuple((name, _described(value)) for name, value in kwargs.items()))


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
