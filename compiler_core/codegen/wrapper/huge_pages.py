"""Allocates large CPU tensors in huge pages, if Linux has them.

The C library maps new memory for each large block, and Linux provides its pages at the first write.  With pages of
4 KiB that takes several times as long as a kernel that only streams through the memory.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import torch

from compiler_core.torch_private import empty_strided_cpu

LARGE_BYTES = 4 << 20
"""Blocks of this size contain a whole huge page (2 MiB) at any alignment."""
_HUGE_PAGES = getattr(mmap, "MADV_HUGEPAGE", None)
_madvise: Any = getattr(ctypes.CDLL(None), "madvise", None)
if _madvise is not None:
    _madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def _empty(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype)


empty: Any = empty_strided_cpu or _empty
"""`torch.empty_strided` on the CPU; a microsecond faster if this version of PyTorch has `_empty_strided_cpu`."""


def empty_large(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Like `empty`, for tensors of at least `LARGE_BYTES`: asks Linux for huge pages."""
    tensor: torch.Tensor = empty(size, stride, dtype)
    if _HUGE_PAGES is not None and _madvise is not None:
        storage = tensor.untyped_storage()
        start = -(-storage.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (storage.data_ptr() + storage.nbytes()) // mmap.PAGESIZE * mmap.PAGESIZE
        if end > start:
            _madvise(start, end - start, _HUGE_PAGES)  # only a hint, so failure is ignored
    return tensor
