"""Completes Triton's interpreter: the functions of libdevice, reductions and scans of whole blocks, and a check that
kernels read and write only inside their arguments.

Triton is interpreted if `TRITON_INTERPRET` is 1 when it is imported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch


def extend() -> None:
    """Adds to the interpreter what it lacks, and replaces its slow loops over single elements."""
    from triton.runtime.interpreter import ReduceOps, ScanOps

    _interpret_libdevice()
    ReduceOps.generic_reduce = _reduce
    ScanOps.generic_scan = _scan
    _look_for_builtins_once()
    _check_addresses()


def _look_for_builtins_once() -> None:
    """The interpreter replaces Triton's functions in each call of a device function, and looks through all names for
    them, which takes a quarter of its time."""
    from triton.language.core import is_builtin
    from triton.runtime import interpreter

    @functools.cache
    def names_of(package: Any) -> list[str]:
        return [name for name in dir(package) if is_builtin(getattr(package, name, None))]

    def patch(package: Any, builder: Any, scope: Any) -> None:
        for name in names_of(package):
            if is_builtin(member := getattr(package, name)):
                interpreter._patch_attr(package, name, member, builder, scope)

    interpreter._patch_builtin = patch


def _check_addresses() -> None:
    """Has each load and store raise IndexError for an address outside the memory of the kernel's tensors.

    The interpreter would read and write anywhere in the process.
    """
    from triton.runtime import interpreter

    bounds: list[tuple[int, int]] = []
    """The first address of each tensor's storage, and the one after its last, of the kernel that runs."""

    def start(executor: Any, args: Any, kwargs: Any) -> Any:
        converted = to_host(executor, args, kwargs)
        storages = [a.untyped_storage() for a in (*converted[0], *converted[1].values()) if isinstance(a, torch.Tensor)]
        bounds[:] = [(each.data_ptr(), each.data_ptr() + each.nbytes()) for each in storages]
        return converted

    def checked(access: Callable[..., Any], pointers: int, mask: int) -> Callable[..., Any]:
        def call(builder: Any, *args: Any) -> Any:
            width = args[pointers].get_element_ty().primitive_bitwidth // 8 or 1
            used = args[pointers].data[args[mask].data.astype(bool)].astype(np.uint64)
            inside = [(used >= first) & (used + np.uint64(width) <= end) for first, end in bounds]
            if not np.logical_or.reduce(inside, initial=False, axis=0).all() if inside else used.size:
                raise IndexError(f"{access.__name__} outside the memory of the kernel's tensors")
            return access(builder, *args)

        return call

    to_host, builder = interpreter.GridExecutor._init_args_hst, interpreter.InterpreterBuilder
    interpreter.GridExecutor._init_args_hst = start
    for name, pointers, mask in (
        ("create_masked_load", 0, 1),
        ("create_masked_store", 0, 2),
        ("create_atomic_rmw", 1, 3),
    ):
        setattr(builder, name, checked(getattr(builder, name), pointers, mask))


def _interpret_libdevice() -> None:
    """Gives the interpreter the functions of the GPU's mathematical library."""
    import triton.language as tl
    from triton.language.extra import libdevice
    from triton.runtime.interpreter import TensorHandle

    def interpreted(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            given = next(a for a in args if isinstance(a, tl.tensor))
            arrays = [a.handle.data if isinstance(a, tl.tensor) else a for a in args]
            like = torch.from_numpy(given.handle.data)
            result = function(*(torch.as_tensor(a, dtype=like.dtype) for a in arrays)).numpy()
            scalar = given.type.scalar
            shape = [a.shape for a in args if isinstance(a, tl.tensor) and a.type.is_block()]
            return tl.tensor(TensorHandle(result, scalar), tl.block_type(scalar, [*result.shape]) if shape else scalar)

        return call

    for name in dir(libdevice):
        function = getattr(torch, {"rint": "round"}.get(name, name), None)
        if function is not None and not name.startswith("_"):
            setattr(libdevice, name, interpreted(function))


def _reduce(self: Any, inputs: Any) -> list[Any]:
    """Reduces along an axis in pairs, as a GPU does: the first half of the axis with the second.

    The length of a block is a power of two.
    """
    axis = 0 if self.axis is None else self.axis
    types = [each.dtype for each in inputs]
    blocks = [each.handle.data.reshape(-1) if self.axis is None else each.handle.data for each in inputs]
    while blocks[0].shape[axis] > 1:
        left, right = zip(*(np.split(block, 2, axis) for block in blocks), strict=True)
        blocks = _combine(self, left, right, types)
    if self.axis is None:
        dimensions = inputs[0].handle.data.ndim
        blocks = [b.reshape((1,) * dimensions) if self.keep_dims else b.item() for b in blocks]
    elif not self.keep_dims:
        blocks = [np.squeeze(b, axis) for b in blocks]
    return [self.to_tensor(block, dtype) for block, dtype in zip(blocks, types, strict=True)]


def _scan(self: Any, inputs: Any) -> list[Any]:
    """Scans along an axis: each round combines every element with the one 1, 2, 4, ... places before it."""
    types = [each.dtype for each in inputs]
    blocks = [each.handle.data for each in inputs]
    length = blocks[0].shape[self.axis]
    places = np.arange(length).reshape([-1 if i == self.axis % blocks[0].ndim else 1 for i in range(blocks[0].ndim)])
    distance = 1
    while distance < length:
        before = [np.roll(block, distance, self.axis) for block in blocks]
        combined = _combine(self, before, blocks, types)
        blocks = [np.where(places < distance, *pair) for pair in zip(blocks, combined, strict=True)]
        distance *= 2
    return [self.to_tensor(block, dtype) for block, dtype in zip(blocks, types, strict=True)]


def _combine(self: Any, left: Sequence[Any], right: Sequence[Any], types: list[Any]) -> list[Any]:
    """Applies the combine function of a reduction or scan to blocks; returns blocks."""
    given = [
        self.to_tensor(block, dtype) for blocks in (left, right) for block, dtype in zip(blocks, types, strict=True)
    ]
    result = self.combine_fn.fn(*given)
    return [each.handle.data for each in (result if isinstance(result, tuple) else (result,))]
