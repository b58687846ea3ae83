"""Lowering rules for 2d pooling: the window of each element of the result is unrolled."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from compiler_core.loops import ir
from compiler_core.loops.lower.body import COMPUTE_TYPE, Body
from compiler_core.loops.lower.table import Element, NotLowered, Operand, lowers
from compiler_core.support.size_expr import Int

aten = torch.ops.aten
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
