"""Rules for reductions: the reduced dimensions become the inner indices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from compiler_core.loops.lower.body import COMPUTE_TYPE, Body
from compiler_core.loops.lower.table import Operand, Value, lowers, refuse_bools

aten = torch.ops.aten
Dims = int | Sequence[int] | None

REDUCED_DIMS: dict[torch._ops.OpOverload, Callable[..., list[int]]] = {}
"""For each reduction, what tells the reduced dimensions from the node's arguments."""


def reduces(
    *targets: torch._ops.OpOverload,
) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """The decorated ``rule(body, x, **kwargs)`` makes the result from the elements `x`.

    The targets take ``(x, dims=None, keepdim=False)``, or only ``x``; further arguments by name.
    """

    def register(rule: Callable[..., Value]) -> Callable[..., Value]:
        @functools.wraps(rule)
        def lower(body: Body, x: Operand, dim: Dims = None, keepdim: bool = False, **kwargs: Any) -> None:
            body.store(rule(body, body.operand(x), **kwargs))

        lowers(*targets)(lower)
        REDUCED_DIMS.update(dict.fromkeys(targets, reduced_dims))
        return rule

    return register


def reduced_dims(x: Operand, dim: Dims = None, keepdim: bool = False, **_: Any) -> list[int]:
    """The dimensions of `x` that are reduced, as numbers from 0; none given means all."""
    rank = len(x.view.size)
    if dim is None or (not isinstance(dim, int) and not dim):
        return list(range(rank))
    return [d % max(rank, 1) for d in ((dim,) if isinstance(dim, int) else dim)]


@reduces(aten.sum.default, aten.sum.dim_IntList)
def sum_(body: Body, x: Value, dtype: torch.dtype | None = None) -> Value:
    return body.reduce("sum", body.cast(x, COMPUTE_TYPE.get(body.out.dtype, body.out.dtype)))


@reduces(aten.mean.default, aten.mean.dim)
def mean(body: Body, x: Value, dtype: torch.dtype | None = None) -> Value:
    return body.op("div", sum_(body, x), body.inner_numel)


@reduces(aten.prod.default)
def prod(body: Body, x: Value, dtype: torch.dtype | None = None) -> Value:
    return body.reduce("prod", body.cast(x, COMPUTE_TYPE.get(body.out.dtype, body.out.dtype)))


REDUCED_DIMS[aten.prod.dim_int] = reduced_dims
lowers(aten.prod.dim_int)(lambda body, x, dim, keepdim=False, dtype=None: body.store(prod(body, body.operand(x))))


@lowers(aten.cumsum.default)
def cumsum(body: Body, x: Operand, dim: int, dtype: torch.dtype | None = None) -> None:
    body.store(body.scan("sum", body.cast(body.operand(x), COMPUTE_TYPE.get(body.out.dtype, body.out.dtype))))


@lowers(aten.cumprod.default)
def cumprod(body: Body, x: Operand, dim: int, dtype: torch.dtype | None = None) -> None:
    body.store(body.scan("prod", body.cast(body.operand(x), COMPUTE_TYPE.get(body.out.dtype, body.out.dtype))))


SCANS = (aten.cumsum.default, aten.cumprod.default)
REDUCED_DIMS.update(dict.fromkeys(SCANS, reduced_dims))


@reduces(aten.amax.default, aten.max.default)
def amax(body: Body, x: Value) -> Value:
    return _extreme(body, x, "max")


@reduces(aten.amin.default, aten.min.default)
def amin(body: Body, x: Value) -> Value:
    return _extreme(body, x, "min")


def _extreme(body: Body, x: Value, op: str) -> Value:
    if x.dtype is torch.bool:
        return body.reduce("any" if op == "max" else "all", x)
    return body.reduce(op, body.cast(x, COMPUTE_TYPE.get(x.dtype, x.dtype)))


@reduces(aten.argmax.default)
def argmax(body: Body, x: Value) -> Value:
    return _first(body, x, "max")


@reduces(aten.argmin.default)
def argmin(body: Body, x: Value) -> Value:
    return _first(body, x, "min")


def _first(body: Body, x: Value, op: str) -> Value:
    """The least place of an extreme element; NaN, which the extreme is where there is one, equals nothing."""
    refuse_bools(x)
    if not body.is_reduced:
        return body.number(0, body.out.dtype)
    x = body.cast(x, COMPUTE_TYPE.get(x.dtype, x.dtype))
    hit = body.op("eq", x, body.reduce(op, x))
    if x.dtype.is_floating_point:
        hit = body.op("or", hit, body.op("isnan", x))
    place = body.place()
    return body.reduce("min", body.op("where", hit, place, torch.iinfo(place.dtype).max, dtype=place.dtype))


@reduces(aten.any.default, aten.any.dim, aten.any.dims)
def any_(body: Body, x: Value) -> Value:
    return body.reduce("any", body.cast(x, torch.bool))


@reduces(aten.all.default, aten.all.dim, aten.all.dims)
def all_(body: Body, x: Value) -> Value:
    return body.reduce("all", body.cast(x, torch.bool))
