"""Rules for tensors made from nothing but numbers."""

from __future__ import annotations

from typing import Any

import torch

from compiler_core.loops.lower.body import Body
from compiler_core.loops.lower.table import NotLowered, Number, Operand, Symbolic, lowers
from compiler_core.support.size_expr import Int, Real, Size

aten = torch.ops.aten


@lowers(aten.full.default, aten.full_like.default, aten.new_full.default)
def full(body: Body, *args: Any, **_: Any) -> None:
    body.store(_number(args[-1]))


@lowers(aten.scalar_tensor.default)
def scalar_tensor(body: Body, value: Number, **_: Any) -> None:
    body.store(_number(value))


@lowers(aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)
def zeros(body: Body, *_: Any, **__: Any) -> None:
    body.store(0)


@lowers(aten.ones.default, aten.ones_like.default, aten.new_ones.default)
def ones(body: Body, *_: Any, **__: Any) -> None:
    body.store(1)


@lowers(aten.arange.start_step)
def arange(body: Body, start: Any, end: Any, step: Any = 1, **_: Any) -> None:
    if not (isinstance(start, (int, Size)) and isinstance(step, (int, Size))):
        raise NotLowered("arange of floats")
    body.store(body.index(0, step, start))


@lowers(aten.arange.start)
def arange_start(body: Body, start: Any, end: Any, **_: Any) -> None:
    arange(body, start, end)


@lowers(aten.arange.default)
def arange_end(body: Body, end: Any, **_: Any) -> None:
    arange(body, 0, end)


@lowers(torch.ops.prims.iota.default)
def iota(body: Body, length: Int, *, start: Int, step: Int, **_: Any) -> None:
    body.store(body.index(0, step, start))


@lowers(aten.tril.default)
def tril(body: Body, x: Operand, diagonal: Int = 0) -> None:
    _triangle(body, x, diagonal, "le")


@lowers(aten.triu.default)
def triu(body: Body, x: Operand, diagonal: Int = 0) -> None:
    _triangle(body, x, diagonal, "ge")


def _triangle(body: Body, x: Operand, diagonal: Int, op: str) -> None:
    rank = len(x.view.size)
    column, row = body.index(rank - 1), body.index(rank - 2, start=diagonal)
    body.store(body.op("where", body.op(op, column, row), body.operand(x), 0))


def _number(value: Any) -> Number | Symbolic:
    if not isinstance(value, (int, float, Size, Real)):
        raise NotLowered("a value that is no real number")
    return value
