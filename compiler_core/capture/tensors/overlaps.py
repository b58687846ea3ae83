"""Detects writes to memory that overlaps itself or an argument that is read.

Eager PyTorch raises an error for most of these, warns about some and runs others, by rules of each kernel.
Functionalization runs them all, and computes wrong values for writes to elements that share memory.  So none of them is
captured, and eager PyTorch runs them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from compiler_core.errors import Unsupported
from compiler_core.support.tensors import is_dense, storage_id, tensors_in

aten = torch.ops.aten


def check_write(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises `Unsupported` if the operator `func` would write to overlapping memory."""
    places = _written_arguments(func)
    if not places:
        return
    names = [argument.name for argument in func._schema.arguments]
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    written = [t for name in places for t in _strided_tensors(given.get(name))]
    read = [t for name, value in given.items() if name not in places for t in _strided_tensors(value)]
    for target in written:
        if _has_repeated_elements(target):
            raise Unsupported("overlapping write", f"{func} to a tensor whose elements share memory")
        if any(_overlap(target, source, _may_read_itself(func)) for source in read):
            raise Unsupported("overlapping write", f"{func} to memory that it reads as another tensor")


@functools.cache
def _written_arguments(func: Any) -> frozenset[str]:
    """Returns the names of the arguments whose elements an operator of PyTorch writes."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":
        return frozenset()
    if torch.Tag.inplace_view in func.tags or func.__name__.startswith(("set_", "resize", "_foreach", "_fused")):
        return frozenset()
    arguments = func._schema.arguments
    return frozenset(a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write)


def out_arguments(func: Any, kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Returns the tensors that an operator writes to and that are passed by keyword, such as ``out=``."""
    return [t for name in _written_arguments(func) if name in kwargs for t in _strided_tensors(kwargs[name])]


@functools.cache
def _may_read_itself(func: Any) -> bool:
    """Returns whether the written tensor may be a second argument too: each element is read before it is written."""
    return torch.Tag.pointwise in func.tags or func is aten.copy_.default


def _strided_tensors(value: Any) -> list[torch.Tensor]:
    return [tensor for tensor in tensors_in(value) if tensor.layout is torch.strided]


def _has_repeated_elements(tensor: torch.Tensor) -> bool:
    """Returns whether a dimension has stride 0, so that elements share memory.  Eager does not look for other overlaps,
    either."""
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) and bool(
        tensor.numel()
    )


def _overlap(written: torch.Tensor, read: torch.Tensor, may_be_same: bool) -> bool:
    """Returns whether two tensors share memory, by the rules of eager's kernels, which only compare tensors without
    gaps.

    `may_be_same`: exactly the same memory in the same order does not count as an overlap.
    """
    if written is read or storage_id(written) != storage_id(read):
        return written is read and not may_be_same
    if not (written.numel() and read.numel()):
        return False
    if not (is_dense(written) and is_dense(read)):
        return False
    (start, end), (other_start, other_end) = _extent(written), _extent(read)
    if start == other_start and end == other_end:
        return not (may_be_same and written.stride() == read.stride())
    return bool(start < other_end and other_start < end)


def _extent(tensor: torch.Tensor) -> tuple[Any, Any]:
    """Returns the first byte of the tensor in its storage, and the one after its last."""
    size = tensor.element_size()
    start = tensor.storage_offset() * size
    return start, start + tensor.numel() * size
