"""Writes to memory that overlaps itself or what is read.  Eager PyTorch refuses most of them, warns of some and does
others, each kernel by its own rules; functionalisation does them all, and gets wrong values from writes to elements
that share memory.  So none is captured, and eager decides."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from compiler_core.errors import Unsupported
from compiler_core.support.fx_graphs import memory_of
from compiler_core.support.fx_symbols import hint

aten = torch.ops.aten


def check(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Unsupported where the operator `func` is about to write to overlapping memory."""
    places = _written_places(func)
    if not places:
        return
    names = [argument.name for argument in func._schema.arguments]
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    written = [t for name in places for t in _tensors(given.get(name))]
    read = [t for name, value in given.items() if name not in places for t in _tensors(value)]
    for target in written:
        if _repeats(target):
            raise Unsupported("overlapping write", f"{func} to a tensor whose elements share memory")
        if any(_overlap(target, source, _takes_itself(func)) for source in read):
            raise Unsupported("overlapping write", f"{func} to memory that it reads as another tensor")


@functools.cache
def _written_places(func: Any) -> frozenset[str]:
    """The names of the arguments whose elements an operator of PyTorch's writes."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":
        return frozenset()
    if torch.Tag.inplace_view in func.tags or func.__name__.startswith(("set_", "resize", "_foreach", "_fused")):
        return frozenset()
    arguments = func._schema.arguments
    return frozenset(a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write)


def outs(func: Any, kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The tensors that are given to an operator by name to write to, as ``out=`` and the like."""
    return [t for name in _written_places(func) if name in kwargs for t in _tensors(kwargs[name])]


@functools.cache
def _takes_itself(func: Any) -> bool:
    """Whether the tensor that is written to may be an argument once more: each element is read before it is written."""
    return torch.Tag.pointwise in func.tags or func is aten.copy_.default


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    for each in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(each, torch.Tensor) and each.layout is torch.strided:
            yield each


def _repeats(tensor: torch.Tensor) -> bool:
    """Whether a dimension shows the same elements several times; other overlaps are not looked for, as in eager."""
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) and bool(
        tensor.numel()
    )


def _overlap(written: torch.Tensor, read: torch.Tensor, may_be_same: bool) -> bool:
    """Whether both show some of the same memory, by the rules of eager's kernels: they look only at tensors without
    gaps.  `may_be_same`: all of the same memory, in the same order, is no overlap."""
    if written is read or memory_of(written) != memory_of(read):
        return written is read and not may_be_same
    if not (written.numel() and read.numel()):
        return False
    if not (_is_dense(written) and _is_dense(read)):
        return False
    (start, end), (other_start, other_end) = _extent(written), _extent(read)
    if start == other_start and end == other_end:
        return not (may_be_same and written.stride() == read.stride())
    return bool(start < other_end and other_start < end)


def _extent(tensor: torch.Tensor) -> tuple[Any, Any]:
    """The bytes that it begins and ends at, in its storage."""
    size = tensor.element_size()
    start = tensor.storage_offset() * size
    return start, start + tensor.numel() * size


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether it has neither gaps nor elements that share memory."""
    reached = 1
    long = [(stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1]
    for stride, size in sorted(long, key=lambda dim: (hint(dim[0]), hint(dim[1]))):
        if stride != reached:
            return False
        reached *= size
    return True
