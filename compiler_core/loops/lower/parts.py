"""Rules for tensors made of parts of others: each element is read from the part that it lies in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from compiler_core.loops import ir
from compiler_core.loops.lower.body import Body
from compiler_core.loops.lower.table import NotLowered, Number, Operand, Symbolic, Value, lowers
from compiler_core.support.size_expr import Int, Undecided

aten = torch.ops.aten
MOST_PARTS = 8
"""Every part is asked whether an element lies in it; PyTorch's kernels copy one after the other."""


@lowers(aten.cat.default)
def cat(body: Body, tensors: Sequence[Operand], dim: int = 0) -> None:
    dim %= len(body.out.size)
    starts: list[Int] = [0]
    for x in tensors:
        starts.append(starts[-1] + x.view.size[dim])
    _one_of(body, [_part(body, x, dim, start) for x, start in zip(tensors, starts, strict=False)], dim, starts[1:])


@lowers(aten.stack.default)
def stack(body: Body, tensors: Sequence[Operand], dim: int = 0) -> None:
    dim %= len(body.out.size)
    parts = [_slice(body, x, dim, k) for k, x in enumerate(tensors[:MOST_PARTS])]
    _one_of(body, parts, dim, range(1, len(tensors) + 1))


@lowers(aten.constant_pad_nd.default)
def constant_pad_nd(body: Body, x: Operand, pad: Sequence[Int], value: Number | Symbolic = 0) -> None:
    at: list[ir.Address] = []
    within: list[ir.Range] = []
    inside: list[Value] = []
    for d, size in enumerate(x.view.size):
        last = 2 * (len(x.view.size) - 1 - d)
        low, high = pad[last : last + 2] if last < len(pad) else (0, 0)
        at.append(body.coordinate(d, start=-low))
        if low != 0 or high != 0:
            within.append(ir.Range(at[-1], size))
            inside += [body.op(op, body.index(d), bound) for op, bound in (("ge", low), ("lt", size + low))]
    found: Value | Number | Symbolic = body.load(x, at, within)
    for condition in inside:
        found = body.op("where", condition, found, body.cast(value, x.dtype), dtype=x.dtype)
    body.store(found)


@lowers(aten.slice_scatter.default)
def slice_scatter(
    body: Body,
    x: Operand,
    source: Operand,
    dim: int = 0,
    start: Int | None = None,
    end: Int | None = None,
    step: Int = 1,
) -> None:
    if step != 1:
        raise NotLowered("a slice with steps: whether an index is in it is a division")
    dim %= len(x.view.size)
    first = _start(start, x.view.size[dim])
    _replace(body, x, _part(body, source, dim, first), dim, first, source.view.size[dim])


@lowers(aten.select_scatter.default)
def select_scatter(body: Body, x: Operand, source: Operand, dim: int, index: Int) -> None:
    dim %= len(x.view.size)
    place = _start(index, x.view.size[dim])
    _replace(body, x, _slice(body, source, dim, place), dim, place, 1)


@lowers(aten.roll.default)
def roll(body: Body, x: Operand, shifts: Sequence[Int], dims: Sequence[int] = ()) -> None:
    rank = len(x.view.size)
    if not dims and rank != 1:
        raise NotLowered("roll over all dimensions as one")
    moved: dict[int, Int] = {}
    for shift, dim in zip(shifts, dims or (0,), strict=True):
        moved[dim % rank] = moved.get(dim % rank, 0) + shift
    moved = {dim: _in_range(shift, x.view.size[dim]) for dim, shift in moved.items()}
    moved = {dim: shift for dim, shift in moved.items() if not (isinstance(shift, int) and shift == 0)}
    if 2 ** len(moved) > MOST_PARTS:
        raise NotLowered(f"more than {MOST_PARTS} parts")
    body.store(_rolled(body, x, moved, {}) if moved else body.operand(x))


def _rolled(body: Body, x: Operand, moved: Mapping[int, Int], starts: Mapping[int, Int]) -> Value:
    """``x`` rolled by `moved` for each dimension; `starts` says where it begins in those that are done::

    y[i] = x[i - shift + size] if i < shift else x[i - shift]
    """
    if not moved:
        at = [body.coordinate(d, start=-starts.get(d, 0)) for d in range(len(x.view.size))]
        return body.load(x, at, [ir.Range(at[d], x.view.size[d]) for d in starts])
    (dim, shift), *rest = moved.items()
    first, second = (_rolled(body, x, dict(rest), {**starts, dim: at}) for at in (shift - x.view.size[dim], shift))
    return body.op("where", body.op("lt", body.index(dim), shift), first, second, dtype=body.out.dtype)


def _in_range(shift: Int, size: Int) -> Int:
    """`shift` modulo `size`; a symbolic one may only be short of it once."""
    if isinstance(shift, int) and isinstance(size, int):
        return shift % size
    try:
        shift = shift + size if shift < 0 else shift
        if 0 <= shift < size:
            return shift
    except Undecided:
        pass
    raise NotLowered("how often the shift goes around depends on symbols")


def _part(body: Body, x: Operand, dim: int, start: Int) -> Value:
    """`x` where it lies from `start` on in dimension `dim` of the result."""
    at = [body.coordinate(d, start=-start if d == dim else 0) for d in range(len(x.view.size))]
    return body.load(x, at, [ir.Range(at[dim], x.view.size[dim])])


def _slice(body: Body, x: Operand, dim: int, place: Int) -> Value:
    """`x`, which has no dimension `dim`, where it lies at `place` of it."""
    at = [body.coordinate(d) for d in range(len(x.view.size) + 1) if d != dim]
    return body.load(x, at, [ir.Range(body.coordinate(dim, start=-place), 1)])


def _one_of(body: Body, parts: Sequence[Value], dim: int, ends: Sequence[Int]) -> None:
    """The result is the first of `parts` that ends behind the index of `dim`."""
    if len(ends) > MOST_PARTS:
        raise NotLowered(f"more than {MOST_PARTS} parts")
    values = [body.cast(part, body.out.dtype) for part in parts]
    found = values[-1]
    for value, end in zip(values[-2::-1], ends[-2::-1], strict=True):
        found = body.op("where", body.op("lt", body.index(dim), end), value, found, dtype=body.out.dtype)
    body.store(found)


def _replace(body: Body, x: Operand, part: Value, dim: int, start: Int, size: Int) -> None:
    """The result is `part` at the `size` indices of `dim` from `start` on, and `x` elsewhere."""
    found = body.cast(part, x.dtype)
    kept = body.operand(x)
    outside = [("ge", start)] if start != 0 else []
    outside += [("lt", start + size)] if start + size != x.view.size[dim] else []
    for op, bound in outside:
        found = body.op("where", body.op(op, body.index(dim), bound), found, kept, dtype=x.dtype)
    body.store(found)


def _start(start: Int | None, size: Int) -> Int:
    """Where a slice begins."""
    try:
        if start is None:
            return 0
        start = start + size if start < 0 else start
        return 0 if start < 0 else size if start > size else start
    except Undecided:
        raise NotLowered("where the slice begins depends on symbols") from None
