"""Lowering rules for reductions and scans: the reduced dimensions become the inner indices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from compiler_core.loops.lower.body import COMPUTE_TYPE, Body
from compiler_core.loops.lower.pointwise import load_as
from compiler_core.loops.lower.table import Element, Operand, lowers, refuse_bools
from compiler_core.torch_private import OpOverload

aten = torch.ops.aten
Dims = int | Sequence[int] | None

REDUCED_DIMS: dict[OpOverload, Callable[..., list[int]]] = {}
"""For each reduction, a function of the node's arguments that returns the reduced dimensions."""


def reduces(
    *targets: OpOverload,
) -> Callable[[Callable[..., Element]], Callable[..., Element]]:
    """Registers the decorated ``rule(body, x, **kwargs)``, which returns the result for the elements `x`.

    The targets have the arguments ``(x, dims=None, keepdim=False)``, or only ``x``, and others by name.
    """

    def register(rule: Callable[..., Element]) -> Callable[..., Element]:
        @functools.wraps(rule)
        def lower(body: Body, x: Operand, dim: Dims = None, keepdim: bool = False, **kwargs: Any) -> None:
            body.store(rule(body, body.operand(x), **kwargs))

        lowers(*targets)(lower)
        REDUCED_DIMS.update(dict.fromkeys(targets, reduced_dims))
        return rule

    return register


def reduced_dims(x: Operand, dim: Dims = None, keepdim: bool = False, **_: Any) -> list[int]:
    """Returns the reduced dimensions of `x` as numbers from 0; all, if `dim` is None or empty."""
    rank = len(x.view.size)
    if dim is None or (not isinstance(dim, int) and not dim):
        return list(range(rank))
    return [d % max(rank, 1) for d in ((dim,) if isinstance(dim, int) else dim)]


@reduces(aten.sum.default, aten.sum.dim_IntList)
def sum_(body: Body, x: Element, dtype: torch.dtype | None = None) -> Element:
    """Lowers ``sum``; half types are summed in float32.

    >>> lowered("aten.sum(x, [1])", x="bf16[4, 8]")
    sum_1: for i0 < 4: over j0 < 8:
        v0: bf16 = load x[8*i0 + j0]
        v1: f32 = cast(v0)
        v2: f32 = sum over j of v1
        sum_1: bf16 = cast(v2)
        store sum_1[i0] = sum_1
    """
    return body.reduce("sum", _as_compute_type(body, x))


@reduces(aten.mean.default, aten.mean.dim)
def mean(body: Body, x: Element, dtype: torch.dtype | None = None) -> Element:
    """Lowers ``mean``: the sum divided by the number of elements.

    >>> lowered("aten.mean(x, [1])", x="f32[4, 8]")
    mean: for i0 < 4: over j0 < 8:
        v0: f32 = load x[8*i0 + j0]
        v1: f32 = sum over j of v0
        mean: f32 = div(v1, 8.0)
        store mean[i0] = mean
    """
    rounds = body.out.device.type != "cpu"  # eager's CPU kernel converts to float32, whatever the half type
    total = body.reduce("sum", _as_compute_type(body, x, rounds))
    # On a GPU, eager multiplies by the reciprocal.  The mean of equal numbers could then differ from them, and norms,
    # which subtract it, would not be 0.
    return body.op("div", total, load_as(body, body.inner_numel, total.dtype))


@reduces(aten.prod.default)
def prod(body: Body, x: Element, dtype: torch.dtype | None = None) -> Element:
    """Lowers the product of all elements.

    >>> lowered("aten.prod(x)", x="f32[8]")
    prod: for (): over j0 < 8:
        v0: f32 = load x[j0]
        prod: f32 = prod over j of v0
        store prod[0] = prod
    """
    return body.reduce("prod", _as_compute_type(body, x))


REDUCED_DIMS[aten.prod.dim_int] = reduced_dims


@lowers(aten.prod.dim_int)
def prod_dim(body: Body, x: Operand, dim: int, keepdim: bool = False, dtype: torch.dtype | None = None) -> None:
    """Lowers the product over one dimension.  Like `prod`."""
    body.store(prod(body, body.operand(x)))


@lowers(aten.cumsum.default)
def cumsum(body: Body, x: Operand, dim: int, dtype: torch.dtype | None = None) -> None:
    """Lowers ``cumsum`` to a scan.

    >>> lowered("aten.cumsum(x, 1)", x="f32[4, 8]")
    cumsum: for i0 < 4: over j0 < 8:
        v0: f32 = load x[8*i0 + j0]
        cumsum: f32 = sum up to j of v0
        store cumsum[8*i0 + j0] = cumsum
    """
    body.store(body.scan("sum", _as_compute_type(body, body.operand(x))))


@lowers(aten.cumprod.default)
def cumprod(body: Body, x: Operand, dim: int, dtype: torch.dtype | None = None) -> None:
    """Lowers ``cumprod`` to a scan.  Like `cumsum`."""
    body.store(body.scan("prod", _as_compute_type(body, body.operand(x))))


def _as_compute_type(body: Body, x: Element, rounds: bool = True) -> Element:
    """Casts to the type that is computed in, which is float32 for a half type; `rounds` to the half type before."""
    return body.cast(body.cast(x, body.out.dtype) if rounds else x, COMPUTE_TYPE.get(body.out.dtype, body.out.dtype))


SCANS = (aten.cumsum.default, aten.cumprod.default)
REDUCED_DIMS.update(dict.fromkeys(SCANS, reduced_dims))


@reduces(aten.amax.default, aten.max.default)
def amax(body: Body, x: Element) -> Element:
    """Lowers ``amax``; of bool it is ``any``.

    >>> lowered("aten.amax(x, [1])", x="f32[4, 8]")
    amax: for i0 < 4: over j0 < 8:
        v0: f32 = load x[8*i0 + j0]
        amax: f32 = max over j of v0
        store amax[i0] = amax
    """
    return _extreme(body, x, "max")


@reduces(aten.amin.default, aten.min.default)
def amin(body: Body, x: Element) -> Element:
    """Lowers ``amin``; of bool it is ``all``.  Like `amax`."""
    return _extreme(body, x, "min")


def _extreme(body: Body, x: Element, op: str) -> Element:
    if x.dtype is torch.bool:
        return body.reduce("any" if op == "max" else "all", x)
    return body.reduce(op, body.cast(x, COMPUTE_TYPE.get(x.dtype, x.dtype)))


@reduces(aten.argmax.default)
def argmax(body: Body, x: Element) -> Element:
    """Lowers ``argmax``: the first index of a greatest element, or of a NaN.

    >>> lowered("aten.argmax(x, 1)", x="f32[4, 8]")
    argmax: for i0 < 4: over j0 < 8:
        v0: f32 = load x[8*i0 + j0]
        v1: f32 = max over j of v0
        v2: bool = eq(v0, v1)
        v3: bool = isnan(v0)
        v4: bool = or(v2, v3)
        v5: i32 = j0
        v6: i32 = where(v4, v5, 2147483647)
        v7: i32 = min over j of v6
        argmax: i64 = cast(v7)
        store argmax[i0] = argmax
    """
    return _first_extreme_index(body, x, "max")


@reduces(aten.argmin.default)
def argmin(body: Body, x: Element) -> Element:
    """Lowers ``argmin``: the first index of a least element, or of a NaN.  Like `argmax`."""
    return _first_extreme_index(body, x, "min")


def _first_extreme_index(body: Body, x: Element, op: str) -> Element:
    """Returns the least index of an extreme element, or of a NaN; the extreme is NaN then, which equals nothing."""
    refuse_bools(x)
    if not body.is_reduced:
        return body.number(0, body.out.dtype)
    x = body.cast(x, COMPUTE_TYPE.get(x.dtype, x.dtype))
    hit = body.op("eq", x, body.reduce(op, x))
    if x.dtype.is_floating_point:
        hit = body.op("or", hit, body.op("isnan", x))
    place = body.reduced_index()
    return body.reduce("min", body.op("where", hit, place, torch.iinfo(place.dtype).max, dtype=place.dtype))


@reduces(aten.any.default, aten.any.dim, aten.any.dims)
def any_(body: Body, x: Element) -> Element:
    """Lowers ``any``.

    >>> lowered("aten.any(x, 1)", x="bool[4, 8]")
    any_1: for i0 < 4: over j0 < 8:
        v0: bool = load x[8*i0 + j0]
        any_1: bool = any over j of v0
        store any_1[i0] = any_1
    """
    return body.reduce("any", body.cast(x, torch.bool))


@reduces(aten.all.default, aten.all.dim, aten.all.dims)
def all_(body: Body, x: Element) -> Element:
    """Lowers ``all``.  Like `any_`."""
    return body.reduce("all", body.cast(x, torch.bool))
