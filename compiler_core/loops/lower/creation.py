"""Lowering rules for tensors that are created: from numbers, as triangular parts, and by dropout on GPUs.

Dropout draws the random numbers of eager's kernel (`ir/philox.py`).
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from compiler_core.loops.ir import philox
from compiler_core.loops.lower.body import (
    COMPUTE_TYPE,
    Body,
    Element,
    NotLowered,
    Operand,
    literal,
    lowers,
)
from compiler_core.support.size_expr import Int, Real, Size, prod
from compiler_core.torch_private import disable_current_modes

aten = torch.ops.aten


@lowers(aten.full.default, aten.full_like.default, aten.new_full.default, aten.scalar_tensor.default)
def full(body: Body, *args: Any, **_: Any) -> None:
    """Lowers a tensor filled with one number.

    >>> lowered("aten.full([4], 0.5)")
    full: for i0 < 4:
        store full[i0] = 0.5
    """
    if not isinstance(args[-1], (int, float, Size, Real)):
        raise NotLowered("the value is not a real number")
    body.store(args[-1])


@lowers(aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)
def zeros(body: Body, *_: Any, **__: Any) -> None:
    """Lowers a tensor of zeros.

    >>> lowered("aten.zeros_like(x)", x="f32[4]")
    zeros_like: for i0 < 4:
        store zeros_like[i0] = 0.0
    """
    body.store(0)


@lowers(aten.ones.default, aten.ones_like.default, aten.new_ones.default)
def ones(body: Body, *_: Any, **__: Any) -> None:
    """Lowers a tensor of ones.  Like `zeros`."""
    body.store(1)


@lowers(aten.arange.default, aten.arange.start, aten.arange.start_step)
def arange(body: Body, *args: Any, **_: Any) -> None:
    """Lowers a range of integers.

    >>> lowered("aten.arange.start_step(3, 11, 2)")
    arange: for i0 < 4:
        v0: i64 = 2*i0 + 3
        store arange[i0] = v0
    """
    start, step = args[0] if len(args) > 1 else 0, args[2] if len(args) > 2 else 1
    if not (isinstance(start, (int, Size)) and isinstance(step, (int, Size))):
        raise NotLowered("arange of floats")
    body.store(body.index(0, step, start))


@lowers(torch.ops.prims.iota.default)
def iota(body: Body, length: Int, *, start: Int, step: Int, **_: Any) -> None:
    """Lowers a range of integers given by its length.  Like `arange`."""
    body.store(body.index(0, step, start))


def _triangle(body: Body, x: Operand, diagonal: Int = 0, *, op: str) -> None:
    """Lowers ``tril`` and ``triu``: elements above or below the diagonal become 0.

    >>> lowered("aten.tril(x)", x="f32[4, 8]")
    tril: for i0 < 4, i1 < 8:
        v0: i64 = i1
        v1: i64 = i0
        v2: bool = le(v0, v1)
        v3: f32 = load x[8*i0 + i1]
        tril: f32 = where(v2, v3, 0.0)
        store tril[8*i0 + i1] = tril
    """
    rank = len(x.view.size)
    column, row = body.index(rank - 1), body.index(rank - 2, start=diagonal)
    body.store(body.op("where", body.op(op, column, row), body.operand(x), 0))


lowers(aten.tril.default)(functools.partial(_triangle, op="le"))
lowers(aten.triu.default)(functools.partial(_triangle, op="ge"))


MAX_ELEMENTS = 2**31
"""For more elements, eager's kernel uses 64-bit indices, and draws differently."""


@lowers(aten.native_dropout.default)
def native_dropout(body: Body, x: Operand, p: float, train: bool | None) -> None:
    """Lowers dropout: the result, as a product of three factors as in eager, and the mask.

    >>> lowered("aten.native_dropout(x, 0.5, True)", x="f32[1024]", device="cuda")
    native_dropout_seed, native_dropout_offset, native_dropout_threads: drawn from the generator of the GPU
    native_dropout: for i0 < 1024:
        v0: i64 = native_dropout_seed
        v1: i64 = native_dropout_offset
        v2: i64 = native_dropout_threads
        v3: i64 = i0
        v4: f32 = uniform(v3, v0, v1, v2, 4)
        v5: f32 = load x[i0]
        v6: bool = eq(v5, v5)
        v7: bool = ne(v5, v5)
        v8: bool = or(v6, v7)
        v9: bool = lt(v4, 0.5)
        v10: bool = and(v9, v8)
        v11: f32 = cast(v10)
        v12: f32 = mul(v5, v11)
        store getitem_1[i0] = v10
        getitem: f32 = mul(v12, 2.0)
        store getitem[i0] = getitem
    """
    if train is False or p == 1:
        raise NotLowered("it draws no random numbers")
    dtype = COMPUTE_TYPE.get(x.dtype, x.dtype)
    drawn = body.cast(_draw_uniform(body, x), torch.promote_types(dtype, torch.float32))
    value = body.cast(body.operand(x), dtype)
    # always true, but it has the layout of the loaded values: Triton then draws for adjacent elements, which share a
    # Philox block, in one thread, and not in another layout, from which both mask and product would be converted
    in_layout_of_input = body.op("or", body.op("eq", value, value), body.op("ne", value, value))
    kept = body.op("and", body.op("lt", drawn, 1 - p), in_layout_of_input)
    likely = literal(1 - p, dtype).argument.value  # type: ignore[union-attr]
    product = body.op("mul", value, body.cast(kept, dtype))
    body.store(kept, 1)
    body.store(body.op("mul", product, 1 / likely))


def _draw_uniform(body: Body, x: Operand) -> Element:
    """Returns the random number that eager draws for the current element; see `philox`."""
    size, device, numel = x.view.size, body.out.device, prod(x.view.size)
    if device.type != "cuda" or device.index is None:
        raise NotLowered("the random numbers of this device are not known")
    if not isinstance(numel, int) or not isinstance(x.view.offset, int) or numel >= MAX_ELEMENTS:
        raise NotLowered("a size is symbolic or very large, and the order in which eager draws depends on it")
    in_order = [prod(size[d + 1 :]) for d in range(len(size))]
    for stride in (x.view.stride, body.out.stride):
        if any(n != 1 and s != t for n, s, t in zip(size, stride, in_order, strict=True)):
            raise NotLowered("its elements are not contiguous")
    if x.aligned is False:
        raise NotLowered("the alignment of eager's tensor is not known")
    if torch.cuda.is_available():
        with disable_current_modes():
            if why := philox.difference_from_eager(device.index, x.dtype):
                raise NotLowered(why)
    vector = philox.vector_width(x.dtype, numel, x.view.offset)
    return body.uniform(vector, numel, device.index, x.view if x.aligned is None else None)
