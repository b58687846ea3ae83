"""Rules for pooling of images: each element of the result goes through its window, which is written out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from compiler_core.loops import ir
from compiler_core.loops.lower.body import COMPUTE_TYPE, Body
from compiler_core.loops.lower.table import NotLowered, Operand, Value, lowers
from compiler_core.support.size_expr import Int

aten = torch.ops.aten
LARGEST = 25
"""Elements of a window that is written out."""


class _Windows(NamedTuple):
    """Windows on the last two dimensions of an image."""

    body: Body
    image: Operand
    size: Sequence[int]
    step: Sequence[Int]
    padding: Sequence[int] = (0, 0)
    dilation: Sequence[int] = (1, 1)

    def elements(self) -> Iterator[tuple[Value, Value | None, tuple[ir.Address, ...]]]:
        """Each element of the current window, row by row; whether it is in the image (None: it is); and where."""
        if math.prod(self.size) > LARGEST:
            raise NotLowered(f"windows of more than {LARGEST} elements")
        if not self.image.dtype.is_floating_point:
            raise NotLowered("pooling of whole numbers")
        dims = len(self.image.view.size)
        front = [self.body.coordinate(d) for d in range(dims - 2)]
        rows, columns = ([self._line(axis, k) for k in range(self.size[axis])] for axis in (0, 1))
        reaches_out = any(inside for _, inside in (*rows, *columns))
        if reaches_out and self.body.out.device.type == "cpu" and self.body.out.stride[-1] != 1:
            raise NotLowered(
                "in C++ a load that may be outside is one at a time; PyTorch's kernel has all channels at once"
            )
        for (row, above), (column, beside) in itertools.product(rows, columns):
            sides = [inside for inside in (above, beside) if inside is not None]
            within = [ir.Range(at, self._extent(k)) for k, at, i in ((0, row, above), (1, column, beside)) if i]
            found = self.body.load(self.image, [*front, row, column], within)
            value = self.body.cast(found, COMPUTE_TYPE.get(found.dtype, found.dtype))
            yield value, self.body.op("and", *sides) if len(sides) == 2 else next(iter(sides), None), (row, column)

    def first(self, axis: int) -> ir.Address:
        """Where the window begins, in the padding perhaps."""
        return self._at(axis, 0)

    def _at(self, axis: int, k: int) -> ir.Address:
        dim = len(self.image.view.size) - 2 + axis
        return self.body.coordinate(dim, self.step[axis], k * self.dilation[axis] - self.padding[axis])

    def _extent(self, axis: int) -> Int:
        return self.image.view.size[axis - 2]

    def _line(self, axis: int, k: int) -> tuple[ir.Address, Value | None]:
        """The row or column `k` of a window, and whether it is in the image."""
        at, extent = self._at(axis, k), self._extent(axis)
        last = at.offset + self.step[axis] * (self.body.out.size[axis - 2] - 1)
        if not isinstance(last, int) or not isinstance(extent, int):
            raise NotLowered("whether a window reaches into the padding depends on sizes that are not known")
        index = self.body.at(at) if at.offset < 0 or last >= extent else None
        inside = [self.body.op("ge", index, 0)] if index and at.offset < 0 else []
        inside += [self.body.op("lt", index, extent)] if index and last >= extent else []
        return at, self.body.op("and", *inside) if len(inside) == 2 else next(iter(inside), None)


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
    """The first of the greatest elements, or the last NaN, and where it lies in the image; as eager goes about it."""
    windows = _Windows(body, x, _pair(size), _pair(step or size), _pair(padding), _pair(dilation))
    if windows.dilation != (1, 1) and windows.padding != (0, 0):
        raise NotLowered("where a window with holes begins in the image")
    width = x.view.size[-1]
    rows, columns = (body.op("maximum", body.at(windows.first(axis)), 0) for axis in (0, 1))
    place = body.op("add", body.op("mul", rows, body.number(width, torch.int64)), columns)
    greatest: Value = body.number(-math.inf, COMPUTE_TYPE.get(x.dtype, x.dtype))
    for value, inside, (row, column) in windows.elements():
        value = value if inside is None else body.op("where", inside, value, -math.inf)
        better = body.op("or", body.op("gt", value, greatest), body.op("isnan", value))
        greatest = body.op("where", better, value, greatest)
        place = body.op("where", better, body.at(row * width + column), place)
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
    windows = _Windows(body, x, _pair(size), _pair(step or size), _pair(padding))
    if ceil_mode or (windows.padding != (0, 0) and not count_include_pad):
        raise NotLowered("windows that are averaged over their elements within the image")
    _mean(windows, divisor_override or math.prod(windows.size))


@lowers(aten._adaptive_avg_pool2d.default)
def adaptive_avg_pool2d(body: Body, x: Operand, size: Sequence[Int]) -> None:
    extents = x.view.size[-2:]
    if not all(isinstance(n, int) and isinstance(k, int) and n % k == 0 for n, k in zip(extents, size, strict=True)):
        raise NotLowered("windows of different sizes, or of sizes that are not known")
    each = [n // k for n, k in zip(extents, size, strict=True)]
    _mean(_Windows(body, x, each, each), math.prod(each))  # type: ignore[arg-type]


def _mean(windows: _Windows, count: int) -> None:
    body = windows.body
    total: Value | None = None
    for value, inside, _ in windows.elements():
        value = value if inside is None else body.op("where", inside, value, 0)
        total = value if total is None else body.op("add", total, value)
    assert total is not None
    body.store(body.op("div", total, count))


def _pair(numbers: Sequence[int]) -> tuple[int, int]:
    return (numbers[0], numbers[-1])
