"""Makes the arguments of random tensor programs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F

__all__ = ["DEVICE", "WITHIN_NOISE", "F", "math", "tensor", "torch"]

WITHIN_NOISE = True
"""The comparison for programs that import this module."""

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@contextlib.contextmanager
def on(device: str) -> Iterator[None]:
    """Context manager that makes arguments on this device."""
    global DEVICE
    before, DEVICE = DEVICE, device
    try:
        yield
    finally:
        DEVICE = before


SPECIAL = (math.nan, math.inf, -math.inf, -0.0, 0.0)


def tensor(
    shape: Sequence[int], dtype: torch.dtype = torch.float32, layout: str = "plain", special: int = 0
) -> torch.Tensor:
    """Returns a random tensor with the memory layout `layout`, and a special value in every `special`-th element."""
    shape = tuple(shape)
    if layout == "turned" and shape:
        return values(shape[::-1], dtype, special).permute(*range(len(shape) - 1, -1, -1))
    if layout == "expanded":
        return values((1, *shape[1:]), dtype, special).expand(shape) if shape else values((), dtype, special)
    if layout == "overlapping":
        return values((sum(shape) + 1,), dtype, special).as_strided(shape, (1,) * len(shape))
    if layout == "later":
        return values((math.prod(shape) + 1,), dtype, special)[1:].view(shape)
    if layout == "stepped":
        return values((*shape[:-1], 2 * shape[-1]), dtype, special)[..., ::2] if shape else values((), dtype, special)
    if layout == "padded":
        return values((*shape[:-1], shape[-1] + 3), dtype, special)[..., : shape[-1]] if shape else values((), dtype)
    if layout == "channels_last" and len(shape) == 4:
        return values(shape, dtype, special).contiguous(memory_format=torch.channels_last)
    if layout == "negative bit" and dtype in (torch.float32, torch.float64):
        value = values(shape, dtype, special)
        return torch.complex(value, -value).conj().imag
    if layout == "conjugated" and dtype.is_complex:
        return values(shape, dtype, special).conj()
    return values(shape, dtype, special)


def values(shape: Sequence[int], dtype: torch.dtype, special: int = 0) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.rand(shape, device=DEVICE) < 0.5
    if dtype.is_complex:
        return torch.complex(values(shape, torch.float64, special), values(shape, torch.float64)).to(dtype)
    if not dtype.is_floating_point:
        return torch.randint(0 if dtype is torch.uint8 else -9, 10, shape, dtype=dtype, device=DEVICE)
    result = torch.randn(shape, dtype=torch.float32, device=DEVICE).to(dtype)
    for at, value in enumerate(SPECIAL if special else ()):
        result.view(-1)[at * 7 :: special * len(SPECIAL)] = value
    return result
