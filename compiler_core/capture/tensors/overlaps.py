"""Detects writes to memory that overlaps itself or an argument that is read.

Eager PyTorch raises an error for most of these, warns about some and runs others, by rules of each kernel.
Functionalization runs them all, and computes wrong values for writes to elements that share memory.  So none of them is
captured, and eager PyTorch runs them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from compiler_core.errors import Unsupported
from compiler_core.support.tensors import is_dense, storage_id, tensors_in
from compiler_core.torch_private import OpOverload, disable_current_modes

aten = torch.ops.aten
MOST_ELEMENTS_COMPARED = 1 << 22


def check_write(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises `Unsupported` if the operator `func` would write to overlapping memory."""
    places = _written_arguments(func)
    if not places:
        return
    names = [argument.name for argument in func._schema.arguments]
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    if _takes_lists(func):
        if _positions_overlap(given, places):
            raise Unsupported("overlapping write", f"{func} to memory that another position of its lists shares")
        return
    written = [t for name in places for t in _strided_tensors(given.get(name))]
    read = [t for name, value in given.items() if name not in places for t in _strided_tensors(value)]
    for target in written:
        if has_repeated_elements(target):
            raise Unsupported("overlapping write", f"{func} to a tensor whose elements share memory")
        if any(_overlap(target, source, _may_read_itself(func)) for source in read):
            raise Unsupported("overlapping write", f"{func} to memory that it reads as another tensor")


@functools.cache
def _written_arguments(func: Any) -> frozenset[str]:
    """Returns the names of the arguments whose elements an operator of PyTorch writes."""
    if not isinstance(func, OpOverload) or func.namespace != "aten":
        return frozenset()
    if torch.Tag.inplace_view in func.tags or func.__name__.startswith(("set_", "resize")):
        return frozenset()
    arguments = func._schema.arguments
    return frozenset(a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write)


def _takes_lists(func: Any) -> bool:
    """Returns whether the operator changes lists of tensors, one position after the other."""
    return bool(func.__name__.startswith(("_foreach", "_fused")))


def _positions_overlap(given: Mapping[str, Any], places: frozenset[str]) -> bool:
    """Returns whether a position of the lists shares memory with another one that is written.

    Then it matters that eager takes one after the other, and the functional form reads all before it writes.
    """
    by_storage: dict[int, list[tuple[Any, Any, int, bool]]] = {}
    for name, value in given.items():
        for at, tensor in enumerate(value if isinstance(value, (list, tuple)) else ()):
            for each in _strided_tensors(tensor):
                by_storage.setdefault(storage_id(each), []).append((*_extent(each), at, name in places))
    for uses in by_storage.values():
        if len({at for _, _, at, _ in uses}) > 1 and any(is_written for *_, is_written in uses):
            if _any_overlap(sorted(uses)):
                return True
    return False


def _any_overlap(uses: Sequence[tuple[Any, Any, int, bool]]) -> bool:
    """Returns whether parts of a storage, by their first byte, overlap at two positions of which one is written."""
    for number, (_, end, at, is_written) in enumerate(uses):
        for start, _, other, other_is_written in itertools.islice(uses, number + 1, None):
            if start >= end:
                break
            if at != other and (is_written or other_is_written):
                return True
    return False


def out_arguments(func: Any, kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Returns the tensors that an operator writes to and that are passed by keyword, such as ``out=``."""
    return [t for name in _written_arguments(func) if name in kwargs for t in _strided_tensors(kwargs[name])]


@functools.cache
def _may_read_itself(func: Any) -> bool:
    """Returns whether the written tensor may be a second argument too: each element is read before it is written."""
    return torch.Tag.pointwise in func.tags or func is aten.copy_.default


def _strided_tensors(value: Any) -> list[torch.Tensor]:
    return [tensor for tensor in tensors_in(value) if tensor.layout is torch.strided]


def has_repeated_elements(tensor: torch.Tensor) -> bool:
    """Returns whether a dimension has stride 0, so that elements share memory.  Eager does not look for other overlaps,
    either."""
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) and bool(
        tensor.numel()
    )


def _overlap(written: torch.Tensor, read: torch.Tensor, may_be_same: bool) -> bool:
    """Returns whether two tensors share memory.  Those without gaps are compared by the rules of eager's kernels.  What
    eager's kernels write to those with gaps depends on the order in which they go through the elements.

    `may_be_same`: exactly the same memory in the same order does not count as an overlap.
    """
    if written is read or storage_id(written) != storage_id(read):
        return written is read and not may_be_same
    if not (written.numel() and read.numel()):
        return False
    if not (is_dense(written) and is_dense(read)):
        return not (may_be_same and _same_elements(written, read)) and _share_an_element(written, read)
    (start, end), (other_start, other_end) = _extent(written), _extent(read)
    if start == other_start and end == other_end:
        return not (may_be_same and written.stride() == read.stride())
    return bool(start < other_end and other_start < end)


def _same_elements(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (a.shape, a.stride(), a.storage_offset()) == (b.shape, b.stride(), b.storage_offset())


def _share_an_element(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Returns whether an element of `a` is one of `b`; False if they are too large to look, or have symbolic sizes."""
    end = max(_extent(a)[1], _extent(b)[1]) // a.element_size()
    sizes = (end, *a.shape, *b.shape, *a.stride(), *b.stride())
    if a.dtype != b.dtype or not all(isinstance(size, int) for size in sizes) or end > MOST_ELEMENTS_COMPARED:
        return False
    with disable_current_modes():
        memory = torch.zeros(end, dtype=torch.bool, device="cpu")
        memory.as_strided(a.shape, a.stride(), a.storage_offset()).fill_(True)
        return bool(memory.as_strided(b.shape, b.stride(), b.storage_offset()).any())


def _extent(tensor: torch.Tensor) -> tuple[Any, Any]:
    """Returns the first byte of the tensor in its storage, and the one after its last."""
    size = tensor.element_size()
    start = tensor.storage_offset() * size
    if is_dense(tensor):
        return start, start + tensor.numel() * size
    last = sum(step * (length - 1) for step, length in zip(tensor.stride(), tensor.shape, strict=True))
    return start, start + (last + 1) * size
