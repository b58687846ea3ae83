"""Lowering rules for logical and bitwise operators, and for selection by a condition."""

from __future__ import annotations

import torch

from compiler_core.loops.lower.body import COMPUTE_TYPE, Body
from compiler_core.loops.lower.pointwise import load_as, pointwise
from compiler_core.loops.lower.table import Element, Number, Operand, lowers
from compiler_core.torch_private import ELEMENTWISE_TYPE_PROMOTION_KIND as Promotion

aten = torch.ops.aten


@pointwise(aten.bitwise_not.default)
def bitwise_not(body: Body, x: Element) -> Element:
    """Lowers ``~x``.

    >>> lowered("aten.bitwise_not(x)", x="i64[4]")
    bitwise_not: for i0 < 4:
        v0: i64 = load x[i0]
        bitwise_not: i64 = not(v0)
        store bitwise_not[i0] = bitwise_not
    """
    return body.op("not", x)


@pointwise(aten.logical_not.default, promotion=Promotion.ALWAYS_BOOL)
def logical_not(body: Body, x: Element) -> Element:
    """Lowers ``logical_not``.

    >>> lowered("aten.logical_not(x)", x="f32[4]")
    logical_not: for i0 < 4:
        v0: f32 = load x[i0]
        v1: bool = cast(v0)
        logical_not: bool = not(v1)
        store logical_not[i0] = logical_not
    """
    return body.op("not", body.cast(x, torch.bool))


@pointwise(aten.logical_and.default, promotion=Promotion.ALWAYS_BOOL)
def logical_and(body: Body, x: Element, y: Element) -> Element:
    """Lowers ``logical_and``.

    >>> lowered("aten.logical_and(x, y)", x="f32[4]", y="bool[4]")
    logical_and: for i0 < 4:
        v0: f32 = load x[i0]
        v1: bool = load y[i0]
        v2: f32 = cast(v1)
        v3: bool = cast(v0)
        v4: bool = cast(v2)
        logical_and: bool = and(v3, v4)
        store logical_and[i0] = logical_and
    """
    return body.op("and", body.cast(x, torch.bool), body.cast(y, torch.bool))


@pointwise(aten.logical_or.default, promotion=Promotion.ALWAYS_BOOL)
def logical_or(body: Body, x: Element, y: Element) -> Element:
    """Lowers ``logical_or``.  Like `logical_and`."""
    return body.op("or", body.cast(x, torch.bool), body.cast(y, torch.bool))


@pointwise(aten.logical_xor.default, promotion=Promotion.ALWAYS_BOOL)
def logical_xor(body: Body, x: Element, y: Element) -> Element:
    """Lowers ``logical_xor``.  Like `logical_and`."""
    return body.op("xor", body.cast(x, torch.bool), body.cast(y, torch.bool))


@lowers(aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar)
def where(body: Body, condition: Operand, x: Operand | Number, y: Operand | Number) -> None:
    """Lowers ``where``; the condition may be of any type.

    >>> lowered("aten.where(c, x, y)", c="bool[4]", x="f32[4]", y="f32[4]")
    where: for i0 < 4:
        v0: f32 = load x[i0]
        v1: f32 = load y[i0]
        v2: bool = load c[i0]
        where: f32 = where(v2, v0, v1)
        store where[i0] = where
    """
    dtype = body.out.dtype
    chosen = [load_as(body, a, dtype) for a in (x, y)]
    body.store(body.op("where", body.cast(body.operand(condition), torch.bool), *chosen, dtype=dtype))


@lowers(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(body: Body, x: Operand, mask: Operand, value: Operand | Number) -> None:
    """Lowers ``masked_fill``.  Like `where`."""
    where(body, mask, value, x)


@lowers(aten.threshold_backward.default)
def threshold_backward(body: Body, gradient: Operand, x: Operand, threshold: Number) -> None:
    """Lowers the gradient of ``threshold`` and ``relu``.

    >>> lowered("aten.threshold_backward(g, x, 0)", g="f32[4]", x="f32[4]")
    threshold_backward: for i0 < 4:
        v0: f32 = load g[i0]
        v1: f32 = load x[i0]
        v2: bool = le(v1, 0.0)
        threshold_backward: f32 = where(v2, 0.0, v0)
        store threshold_backward[i0] = threshold_backward
    """
    dtype = COMPUTE_TYPE.get(body.out.dtype, body.out.dtype)
    g, value = (load_as(body, a, dtype) for a in (gradient, x))
    body.store(body.op("where", body.op("le", value, threshold), 0, g))
