"""Memory for large tensors of the CPU, in huge pages where Linux gives them.

The C library maps a large block anew each time it is asked for, and Linux fills it as it is first written to: by
4 KiB at a time, that takes several times as long as a kernel that only goes through it.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import torch

LARGE = 4 << 20
"""So many bytes hold a whole huge page (2 MiB) wherever they begin."""
_HUGE_PAGES = getattr(mmap, "MADV_HUGEPAGE", None)
_madvise: Any = getattr(ctypes.CDLL(None), "madvise", None)
if _madvise is not None:
    _madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

_private = torch._C._dynamo.guards


def _empty(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype)


empty: Any = getattr(_private, "_empty_strided_cpu", _empty)
"""`torch.empty_strided` on the CPU; a microsecond faster where this PyTorch has that."""


def empty_large(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """As `empty`, for tensors of more than `LARGE` bytes."""
    made: torch.Tensor = empty(size, stride, dtype)
    if _HUGE_PAGES is not None and _madvise is not None:
        storage = made.untyped_storage()
        start = -(-storage.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (storage.data_ptr() + storage.nbytes()) // mmap.PAGESIZE * mmap.PAGESIZE
        if end > start:
            _madvise(start, end - start, _HUGE_PAGES)  # advice: where it is not taken, nothing is lost
    return made
