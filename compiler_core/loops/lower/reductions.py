"""Lowering rules for reductions and scans, whose dimensions become inner indices, and for 2d pooling.

The window of each element of a pooling is unrolled.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from compiler_core.loops import ir
from compiler_core.loops.lower.body import COMPUTE_TYPE, Body, Element, NotLowered, Operand, lowers, refuse_bools
from compiler_core.loops.lower.pointwise import load_as
from compiler_core.support.size_expr import Int
from compiler_core.torch_private import OpOverload

aten = torch.ops.aten
Dims = int | Sequence[int] | None

REDUCING: set[OpOverload] = set()
"""The reductions and scans."""


def reduces(*targets: OpOverload) -> Callable[[Callable[..., Element]], Callable[..., Element]]:
    """Registers the decorated ``rule(body, x, **kwargs)``, which returns the result for the elements `x`.

    The targets have the arguments ``(x, dims=None, keepdim=False)``, or only ``x``, and others by name.
    """

    def register(rule: Callable[..., Element]) -> Callable[..., Element]:
        @functools.wraps(rule)
        def lower(body: Body, x: Operand, dim: Dims = None, keepdim: bool = False, **kwargs: Any) -> None:
            body.store(rule(body, body.operand(x), **kwargs))

        lowers(*targets)(lower)
        REDUCING.update(targets)
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


@reduces(aten.prod.default, aten.prod.dim_int)
def prod(body: Body, x: Element, dtype: torch.dtype | None = None) -> Element:
    """Lowers the product of all elements, or over one dimension.

    >>> lowered("aten.prod(x)", x="f32[8]")
    prod: for (): over j0 < 8:
        v0: f32 = load x[j0]
        prod: f32 = prod over j of v0
        store prod[0] = prod
    """
    return body.reduce("prod", _as_compute_type(body, x))


SCANS = {aten.cumsum.default: "sum", aten.cumprod.default: "prod"}


def _scan(body: Body, x: Element, dtype: torch.dtype | None = None, *, op: str) -> Element:
    """Lowers ``cumsum`` and ``cumprod`` to scans.

    >>> lowered("aten.cumsum(x, 1)", x="f32[4, 8]")
    cumsum: for i0 < 4: over j0 < 8:
        v0: f32 = load x[8*i0 + j0]
        cumsum: f32 = sum up to j of v0
        store cumsum[8*i0 + j0] = cumsum
    """
    return body.reduce(op, _as_compute_type(body, x), ir.Scan)


for _target, _op in SCANS.items():
    reduces(_target)(functools.partial(_scan, op=_op))


def _as_compute_type(body: Body, x: Element, rounds: bool = True) -> Element:
    """Casts to the type that is computed in, which is float32 for a half type; `rounds` to the half type before."""
    return body.cast(body.cast(x, body.out.dtype) if rounds else x, COMPUTE_TYPE.get(body.out.dtype, body.out.dtype))


def _extreme(body: Body, x: Element, op: str) -> Element:
    """Lowers ``amax`` and ``amin``; of bool they are ``any`` and ``all``.

    >>> lowered("aten.amax(x, [1])", x="f32[4, 8]")
    amax: for i0 < 4: over j0 < 8:
        v0: f32 = load x[8*i0 + j0]
        amax: f32 = max over j of v0
        store amax[i0] = amax
    """
    if x.dtype is torch.bool:
        return body.reduce("any" if op == "max" else "all", x)
    return body.reduce(op, body.cast(x, COMPUTE_TYPE.get(x.dtype, x.dtype)))


reduces(aten.amax.default, aten.max.default)(functools.partial(_extreme, op="max"))
reduces(aten.amin.default, aten.min.default)(functools.partial(_extreme, op="min"))


def _first_extreme_index(body: Body, x: Element, op: str) -> Element:
    """Lowers ``argmax`` and ``argmin``: the first index of an extreme element, or of a NaN, which the extreme is then.

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
    refuse_bools(x)
    if not body.is_reduced:
        return body.number(0, body.out.dtype)
    x = body.cast(x, COMPUTE_TYPE.get(x.dtype, x.dtype))
    hit = body.op("eq", x, body.reduce(op, x))
    if x.dtype.is_floating_point:
        hit = body.op("or", hit, body.op("isnan", x))
    place = body.reduced_index()
    return body.reduce("min", body.op("where", hit, place, torch.iinfo(place.dtype).max, dtype=place.dtype))


reduces(aten.argmax.default)(functools.partial(_first_extreme_index, op="max"))
reduces(aten.argmin.default)(functools.partial(_first_extreme_index, op="min"))


def _truth(body: Body, x: Element, op: str) -> Element:
    """Lowers ``any`` and ``all``.

    >>> lowered("aten.any(x, 1)", x="bool[4, 8]")
    any_1: for i0 < 4: over j0 < 8:
        v0: bool = load x[8*i0 + j0]
        any_1: bool = any over j of v0
        store any_1[i0] = any_1
    """
    return body.reduce(op, body.cast(x, torch.bool))


for _op in ("any", "all"):
    _packet = getattr(aten, _op)
    reduces(_packet.default, _packet.dim, _packet.dims)(functools.partial(_truth, op=_op))


MAX_WINDOW = 25
"""The largest number of elements of a window."""


class _Windows(NamedTuple):
    """The pooling windows on the last two dimensions of an image."""

    body: Body
    image: Operand
    size: Sequence[int]
    step: Sequence[Int]
    padding: Sequence[int] = (0, 0)
    dilation: Sequence[int] = (1, 1)

    def elements(self) -> Iterator[tuple[Element, Element | None, tuple[ir.Address, ...]]]:
        """Yields the elements of the current window, row by row.

        Each comes with a condition (whether it is in the image; None if it always is) and its row and column.
        """
        if math.prod(self.size) > MAX_WINDOW:
            raise NotLowered(f"windows of more than {MAX_WINDOW} elements")
        if not self.image.dtype.is_floating_point:
            raise NotLowered("pooling of integers")
        dims = len(self.image.view.size)
        front = [self.body.coordinate(d) for d in range(dims - 2)]
        rows, columns = ([self._line(axis, k) for k in range(self.size[axis])] for axis in (0, 1))
        reaches_out = any(inside for _, inside in (*rows, *columns))
        if reaches_out and self.body.out.device.type == "cpu" and self.body.out.stride[-1] != 1:
            raise NotLowered("conditional loads are not vectorized in C++; PyTorch's kernel vectorises over channels")
        for (row, above), (column, beside) in itertools.product(rows, columns):
            within = [ir.Range(at, self._extent(k)) for k, at, i in ((0, row, above), (1, column, beside)) if i]
            found = self.body.load(self.image, [*front, row, column], within)
            value = self.body.cast(found, COMPUTE_TYPE.get(found.dtype, found.dtype))
            yield value, _conjunction(self.body, above, beside), (row, column)

    def first(self, axis: int) -> ir.Address:
        """Returns the first coordinate of the window, which may be in the padding."""
        return self._at(axis, 0)

    def elements_in_image(self, axis: int) -> Element:
        """Returns how many rows or columns of the window are in the image."""
        first = self.body.coordinate_value(self.first(axis))
        after_last = self.body.coordinate_value(self._at(axis, self.size[axis]))
        end = self.body.op("minimum", after_last, self._extent(axis))
        return self.body.op("sub", end, self.body.op("maximum", first, 0))

    def _at(self, axis: int, k: int) -> ir.Address:
        dim = len(self.image.view.size) - 2 + axis
        return self.body.coordinate(dim, self.step[axis], k * self.dilation[axis] - self.padding[axis])

    def _extent(self, axis: int) -> Int:
        return self.image.view.size[axis - 2]

    def _line(self, axis: int, k: int) -> tuple[ir.Address, Element | None]:
        """Returns the coordinate of row or column `k` of the window, and whether it is in the image."""
        at, extent = self._at(axis, k), self._extent(axis)
        last = at.offset + self.step[axis] * (self.body.out.size[axis - 2] - 1)
        if not isinstance(last, int) or not isinstance(extent, int):
            raise NotLowered("whether a window reaches into the padding depends on symbolic sizes")
        index = self.body.coordinate_value(at) if at.offset < 0 or last >= extent else None
        low = self.body.op("ge", index, 0) if index and at.offset < 0 else None
        high = self.body.op("lt", index, extent) if index and last >= extent else None
        return at, _conjunction(self.body, low, high)


def _conjunction(body: Body, first: Element | None, second: Element | None) -> Element | None:
    """Returns the conjunction of two conditions, of which None is always true."""
    if first is None or second is None:
        return first if second is None else second
    return body.op("and", first, second)


@lowers(aten.max_pool2d_with_indices.default)
def max_pool2d(
    body: Body,
    x: Operand,
    size: Sequence[int],
    step: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> None:
    """Lowers max pooling: the first of the greatest elements, or the last NaN, as in eager, and its index in the image.

    >>> lowered("aten.max_pool2d_with_indices(x, [1, 2])", x="f32[1, 4, 8]")
    max_pool2d_with_indices: for i0 < 4, i1 < 4:
        v0: i64 = i0
        v1: i64 = maximum(v0, 0)
        v2: i64 = 2*i1
        v3: i64 = maximum(v2, 0)
        v4: i64 = mul(v1, 8)
        v5: i64 = add(v4, v3)
        v6: f32 = load x[8*i0 + 2*i1]
        v7: bool = gt(v6, -inf)
        v8: bool = isnan(v6)
        v9: bool = or(v7, v8)
        v10: f32 = where(v9, v6, -inf)
        v11: i64 = 8*i0 + 2*i1
        v12: i64 = where(v9, v11, v5)
        v13: f32 = load x[8*i0 + 2*i1 + 1]
        v14: bool = gt(v13, v10)
        v15: bool = isnan(v13)
        v16: bool = or(v14, v15)
        v17: f32 = where(v16, v13, v10)
        v18: i64 = 8*i0 + 2*i1 + 1
        getitem_1: i64 = where(v16, v18, v12)
        store getitem_1[4*i0 + i1] = getitem_1
        store getitem[4*i0 + i1] = v17
    """
    windows = _Windows(body, x, _pair(size), _pair(step or size), _pair(padding), _pair(dilation))
    if windows.dilation != (1, 1) and windows.padding != (0, 0):
        raise NotLowered("a window with both dilation and padding")
    width = x.view.size[-1]
    rows, columns = (body.op("maximum", body.coordinate_value(windows.first(axis)), 0) for axis in (0, 1))
    place = body.op("add", body.op("mul", rows, body.number(width, torch.int64)), columns)
    greatest: Element = body.number(-math.inf, COMPUTE_TYPE.get(x.dtype, x.dtype))
    for value, inside, (row, column) in windows.elements():
        value = value if inside is None else body.op("where", inside, value, -math.inf)
        better = body.op("or", body.op("gt", value, greatest), body.op("isnan", value))
        greatest = body.op("where", better, value, greatest)
        place = body.op("where", better, body.coordinate_value(row * width + column), place)
    body.store(place, 1)
    body.store(greatest)


@lowers(aten.avg_pool2d.default)
def avg_pool2d(
    body: Body,
    x: Operand,
    size: Sequence[int],
    step: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> None:
    """Lowers average pooling: sums divided by the number of elements, which include padding if `count_include_pad`.

    >>> lowered("aten.avg_pool2d(x, [2, 2])", x="f32[1, 4, 8]")
    avg_pool2d: for i0 < 2, i1 < 4:
        v0: f32 = load x[16*i0 + 2*i1]
        v1: f32 = load x[16*i0 + 2*i1 + 1]
        v2: f32 = add(v0, v1)
        v3: f32 = load x[16*i0 + 2*i1 + 8]
        v4: f32 = add(v2, v3)
        v5: f32 = load x[16*i0 + 2*i1 + 9]
        v6: f32 = add(v4, v5)
        avg_pool2d: f32 = div(v6, 4.0)
        store avg_pool2d[4*i0 + i1] = avg_pool2d
    """
    windows = _Windows(body, x, _pair(size), _pair(step or size), _pair(padding))
    if ceil_mode:
        raise NotLowered("the last windows may reach beyond the padding")
    if windows.padding == (0, 0) or count_include_pad or divisor_override:
        _store_mean(windows, divisor_override or math.prod(windows.size))
    else:
        rows, columns = (windows.elements_in_image(axis) for axis in (0, 1))
        _store_mean(windows, body.cast(body.op("mul", rows, columns), COMPUTE_TYPE.get(x.dtype, x.dtype)))


@lowers(aten._adaptive_avg_pool2d.default)
def adaptive_avg_pool2d(body: Body, x: Operand, size: Sequence[Int]) -> None:
    """Lowers adaptive average pooling into windows of equal sizes.  Like `avg_pool2d`."""
    extents = x.view.size[-2:]
    if not all(isinstance(n, int) and isinstance(k, int) and n % k == 0 for n, k in zip(extents, size, strict=True)):
        raise NotLowered("windows of different or symbolic sizes")
    each = [n // k for n, k in zip(extents, size, strict=True)]
    _store_mean(_Windows(body, x, each, each), math.prod(each))  # type: ignore[arg-type]


def _store_mean(windows: _Windows, count: int | Element) -> None:
    """Stores the sum over the current window, divided by `count`."""
    body = windows.body
    total: Element | None = None
    for value, inside, _ in windows.elements():
        value = value if inside is None else body.op("where", inside, value, 0)
        total = value if total is None else body.op("add", total, value)
    assert total is not None
    body.store(body.op("div", total, count))


def _pair(numbers: Sequence[int]) -> tuple[int, int]:
    """Returns the numbers for height and width, which may be given as one."""
    return (numbers[0], numbers[-1])
