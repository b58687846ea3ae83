"""Lowering rules for tensors that are created from numbers, and for triangular parts."""

from __future__ import annotations

from typing import Any

import torch

from compiler_core.loops.lower.body import Body
from compiler_core.loops.lower.table import NotLowered, Number, Operand, Symbolic, lowers
from compiler_core.support.size_expr import Int, Real, Size

aten = torch.ops.aten


@lowers(aten.full.default, aten.full_like.default, aten.new_full.default)
def full(body: Body, *args: Any, **_: Any) -> None:
    """Lowers a tensor filled with one number.

    >>> lowered("aten.full([4], 0.5)")
    full: for i0 < 4:
        store full[i0] = 0.5
    """
    body.store(_number(args[-1]))


@lowers(aten.scalar_tensor.default)
def scalar_tensor(body: Body, value: Number, **_: Any) -> None:
    """Lowers a tensor of no dimensions that holds a number.

    >>> lowered("aten.scalar_tensor(0.5)")
    scalar_tensor: for ():
        store scalar_tensor[0] = 0.5
    """
    body.store(_number(value))


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


@lowers(aten.arange.start_step)
def arange(body: Body, start: Any, end: Any, step: Any = 1, **_: Any) -> None:
    """Lowers a range of integers.

    >>> lowered("aten.arange.start_step(3, 11, 2)")
    arange: for i0 < 4:
        v0: i64 = 2*i0 + 3
        store arange[i0] = v0
    """
    if not (isinstance(start, (int, Size)) and isinstance(step, (int, Size))):
        raise NotLowered("arange of floats")
    body.store(body.index(0, step, start))


@lowers(aten.arange.start)
def arange_start(body: Body, start: Any, end: Any, **_: Any) -> None:
    """Lowers a range of integers with step 1.  Like `arange`."""
    arange(body, start, end)


@lowers(aten.arange.default)
def arange_end(body: Body, end: Any, **_: Any) -> None:
    """Lowers a range of integers from 0 with step 1.  Like `arange`."""
    arange(body, 0, end)


@lowers(torch.ops.prims.iota.default)
def iota(body: Body, length: Int, *, start: Int, step: Int, **_: Any) -> None:
    """Lowers a range of integers given by its length.  Like `arange`."""
    body.store(body.index(0, step, start))


@lowers(aten.tril.default)
def tril(body: Body, x: Operand, diagonal: Int = 0) -> None:
    """Lowers the lower triangle: elements above the diagonal become 0.

    >>> lowered("aten.tril(x)", x="f32[4, 8]")
    tril: for i0 < 4, i1 < 8:
        v0: i64 = i1
        v1: i64 = i0
        v2: bool = le(v0, v1)
        v3: f32 = load x[8*i0 + i1]
        tril: f32 = where(v2, v3, 0.0)
        store tril[8*i0 + i1] = tril
    """
    _triangle(body, x, diagonal, "le")


@lowers(aten.triu.default)
def triu(body: Body, x: Operand, diagonal: Int = 0) -> None:
    """Lowers the upper triangle.  Like `tril`."""
    _triangle(body, x, diagonal, "ge")


def _triangle(body: Body, x: Operand, diagonal: Int, op: str) -> None:
    rank = len(x.view.size)
    column, row = body.index(rank - 1), body.index(rank - 2, start=diagonal)
    body.store(body.op("where", body.op(op, column, row), body.operand(x), 0))


def _number(value: Any) -> Number | Symbolic:
    if not isinstance(value, (int, float, Size, Real)):
        raise NotLowered("the value is not a real number")
    return value
