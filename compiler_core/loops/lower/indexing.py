"""Lowering rules for elements that are read elsewhere: at indices from a tensor, in reverse order, from one of several.

Of concatenation, padding and writes to slices, each element is selected from one of the operands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from compiler_core.loops import ir
from compiler_core.loops.lower.body import Body, Element, NotLowered, Number, Operand, Symbolic, lowers
from compiler_core.support.size_expr import Int, Undecided

aten = torch.ops.aten
INDEX_TYPES = (torch.int64, torch.int32)


@lowers(aten.gather.default)
def gather(body: Body, x: Operand, dim: int, index: Operand, sparse_grad: bool = False) -> None:
    """Lowers ``gather``: one coordinate is read from `index`.

    >>> lowered("aten.gather(x, 1, i)", x="f32[4, 8]", i="i64[4, 2]")
    gather: for i0 < 4, i1 < 2:
        v0: i64 = load i[2*i0 + i1]
        v1: i64 = v0 below 8
        v2: f32 = load x[8*i0 + v1]
        store gather[2*i0 + i1] = v2
    """
    rank = len(x.view.size)
    if not rank or not index.view.size:
        raise NotLowered("gather of a tensor without dimensions")
    at = [body.coordinate(d) for d in range(rank)]
    dim %= rank
    at[dim] = body.position(body.operand(index), x.view.size[dim], wraps=False)
    body.store(body.load(x, at))


@lowers(aten.index_select.default)
def index_select(body: Body, x: Operand, dim: int, index: Operand) -> None:
    """Lowers ``index_select``: whole slices at the indices `index`.

    >>> lowered("aten.index_select(x, 0, i)", x="f32[4, 8]", i="i64[2]")
    index_select: for i0 < 2, i1 < 8:
        v0: i64 = load i[i0]
        v1: i64 = v0 below 4
        v2: f32 = load x[i1 + 8*v1]
        store index_select[8*i0 + i1] = v2
    """
    rank = len(x.view.size)
    if not rank or not index.view.size:
        raise NotLowered("index_select of a tensor without dimensions")
    at = [body.coordinate(d) for d in range(rank)]
    dim %= rank
    found = body.load(index, [at[dim]])
    at[dim] = body.position(found, x.view.size[dim], wraps=False)
    body.store(body.load(x, at))


@lowers(aten.embedding.default)
def embedding(body: Body, weight: Operand, index: Operand, *_: Any) -> None:
    """Lowers an embedding: rows of `weight`.

    >>> lowered("aten.embedding(w, i)", w="f32[100, 8]", i="i64[4]")
    embedding: for i0 < 4, i1 < 8:
        v0: i64 = load i[i0]
        v1: i64 = v0 below 100
        v2: f32 = load w[i1 + 8*v1]
        store embedding[8*i0 + i1] = v2
    """
    rank = len(index.view.size)
    row = body.load(index, [body.coordinate(d) for d in range(rank)])
    body.store(body.load(weight, [body.position(row, weight.view.size[0], wraps=False), body.coordinate(rank)]))


@lowers(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(body: Body, x: Operand, indices: Sequence[Operand | None]) -> None:
    """Lowers ``x[indices]``; negative indices count from the end.

    >>> lowered("aten.index(x, [None, i])", x="f32[4, 8]", i="i64[2]")
    index: for i0 < 4, i1 < 2:
        v0: i64 = load i[i1]
        v1: i64 = add(v0, 8)
        v2: bool = lt(v0, 0)
        v3: i64 = where(v2, v1, v0)
        v4: i64 = v3 below 8
        v5: f32 = load x[8*i0 + v4]
        store index[2*i0 + i1] = v5
    """
    body.store(body.load(x, positions(body, x, indices)))


def positions(body: Body, x: Operand, indices: Sequence[Operand | None]) -> list[ir.Address]:
    """Returns the coordinates in `x` of ``x[indices]`` at the current index of `body`."""
    given = [i for i in indices if i is not None]
    if not given or any(i.dtype not in INDEX_TYPES for i in given):
        raise NotLowered("an index is a mask, so the size of the result depends on data")
    places = [d for d, i in enumerate(indices) if i is not None]
    rank = max(len(i.view.size) for i in given)
    together = places == list(range(places[0], places[-1] + 1))
    first = places[0] if together else 0
    """The first dimension of the result that comes from the index tensors."""
    rest = iter(d for d in range(len(x.view.size) - len(given) + rank) if not first <= d < first + rank)
    at: list[ir.Address] = []
    for dim, size in enumerate(x.view.size):
        operand = indices[dim] if dim < len(indices) else None
        if operand is None:
            at.append(body.coordinate(next(rest)))
            continue
        last = first + rank - len(operand.view.size)
        found = body.load(operand, [body.coordinate(last + d) for d in range(len(operand.view.size))])
        at.append(body.position(found, size, wraps=True))
    return at


@lowers(aten.flip.default)
def flip(body: Body, x: Operand, dims: Sequence[int]) -> None:
    """Lowers ``flip``: reads some dimensions in reverse order.

    >>> lowered("aten.flip(x, [0])", x="f32[4, 8]")
    flip: for i0 < 4, i1 < 8:
        v0: f32 = load x[-8*i0 + i1 + 24]
        store flip[8*i0 + i1] = v0
    """
    sizes = x.view.size
    reversed_dims = {d % max(len(sizes), 1) for d in dims}
    at = [body.coordinate(d, -1, n - 1) if d in reversed_dims else body.coordinate(d) for d, n in enumerate(sizes)]
    body.store(body.load(x, at))


MAX_PARTS = 8
"""The largest number of parts: each element is compared with every part, while PyTorch copies part after part."""


@lowers(aten.cat.default)
def cat(body: Body, tensors: Sequence[Operand], dim: int = 0) -> None:
    """Lowers ``cat``: the first tensor that ends after the current index.

    >>> lowered("aten.cat([x, y])", x="f32[4]", y="f32[6]")
    cat: for i0 < 10:
        v0: f32 = load x[i0] where 0 <= i0 < 4
        v1: f32 = load y[i0 - 4] where 0 <= i0 - 4 < 6
        v2: i64 = i0
        v3: bool = lt(v2, 4)
        cat: f32 = where(v3, v0, v1)
        store cat[i0] = cat
    """
    dim %= len(body.out.size)
    starts: list[Int] = [0]
    for x in tensors:
        starts.append(starts[-1] + x.view.size[dim])
    _store_selected_part(
        body, [_load_shifted(body, x, dim, start) for x, start in zip(tensors, starts, strict=False)], dim, starts[1:]
    )


@lowers(aten.stack.default)
def stack(body: Body, tensors: Sequence[Operand], dim: int = 0) -> None:
    """Lowers ``stack``: like ``cat`` along a new dimension.

    >>> lowered("aten.stack([x, y])", x="f32[4]", y="f32[4]")
    stack: for i0 < 2, i1 < 4:
        v0: f32 = load x[i1] where 0 <= i0 < 1
        v1: f32 = load y[i1] where 0 <= i0 - 1 < 1
        v2: i64 = i0
        v3: bool = lt(v2, 1)
        stack: f32 = where(v3, v0, v1)
        store stack[4*i0 + i1] = stack
    """
    dim %= len(body.out.size)
    parts = [_load_slice(body, x, dim, k) for k, x in enumerate(tensors[:MAX_PARTS])]
    _store_selected_part(body, parts, dim, range(1, len(tensors) + 1))


@lowers(aten.constant_pad_nd.default)
def constant_pad_nd(body: Body, x: Operand, pad: Sequence[Int], value: Number | Symbolic = 0) -> None:
    """Lowers padding with a constant; negative padding crops.

    >>> lowered("aten.constant_pad_nd(x, [1, 0])", x="f32[4]")
    constant_pad_nd: for i0 < 5:
        v0: i64 = i0
        v1: bool = ge(v0, 1)
        v2: i64 = i0
        v3: bool = lt(v2, 5)
        v4: f32 = load x[i0 - 1] where 0 <= i0 - 1 < 4
        v5: f32 = where(v1, v4, 0.0)
        constant_pad_nd: f32 = where(v3, v5, 0.0)
        store constant_pad_nd[i0] = constant_pad_nd
    """
    at: list[ir.Address] = []
    within: list[ir.Range] = []
    inside: list[Element] = []
    for d, size in enumerate(x.view.size):
        last = 2 * (len(x.view.size) - 1 - d)
        low, high = pad[last : last + 2] if last < len(pad) else (0, 0)
        at.append(body.coordinate(d, start=-low))
        if low != 0 or high != 0:
            within.append(ir.Range(at[-1], size))
            inside += [body.op(op, body.index(d), bound) for op, bound in (("ge", low), ("lt", size + low))]
    found: Element | Number | Symbolic = body.load(x, at, within)
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
    """Lowers ``slice_scatter``: `source` inside the slice, `x` outside of it.

    >>> lowered("aten.slice_scatter(x, y, 0, 2, 6)", x="f32[8]", y="f32[4]")
    slice_scatter: for i0 < 8:
        v0: f32 = load y[i0 - 2] where 0 <= i0 - 2 < 4
        v1: f32 = load x[i0]
        v2: i64 = i0
        v3: bool = ge(v2, 2)
        v4: f32 = where(v3, v0, v1)
        v5: i64 = i0
        v6: bool = lt(v5, 6)
        slice_scatter: f32 = where(v6, v4, v1)
        store slice_scatter[i0] = slice_scatter
    """
    if step != 1:
        raise NotLowered("a slice with a step: whether it contains an index would need a division")
    dim %= len(x.view.size)
    first = _slice_start(start, x.view.size[dim])
    _store_replaced(body, x, _load_shifted(body, source, dim, first), dim, first, source.view.size[dim])


@lowers(aten.select_scatter.default)
def select_scatter(body: Body, x: Operand, source: Operand, dim: int, index: Int) -> None:
    """Lowers ``select_scatter``: `source` at one index of a dimension, `x` elsewhere.

    >>> lowered("aten.select_scatter(x, y, 0, 2)", x="f32[4, 8]", y="f32[8]")
    select_scatter: for i0 < 4, i1 < 8:
        v0: f32 = load y[i1] where 0 <= i0 - 2 < 1
        v1: f32 = load x[8*i0 + i1]
        v2: i64 = i0
        v3: bool = ge(v2, 2)
        v4: f32 = where(v3, v0, v1)
        v5: i64 = i0
        v6: bool = lt(v5, 3)
        select_scatter: f32 = where(v6, v4, v1)
        store select_scatter[8*i0 + i1] = select_scatter
    """
    dim %= len(x.view.size)
    place = _slice_start(index, x.view.size[dim])
    _store_replaced(body, x, _load_slice(body, source, dim, place), dim, place, 1)


@lowers(aten.roll.default)
def roll(body: Body, x: Operand, shifts: Sequence[Int], dims: Sequence[int] = ()) -> None:
    """Lowers ``roll``: two parts for each rolled dimension.

    >>> lowered("aten.roll(x, [1], [0])", x="f32[4]")
    roll: for i0 < 4:
        v0: f32 = load x[i0 + 3] where 0 <= i0 + 3 < 4
        v1: f32 = load x[i0 - 1] where 0 <= i0 - 1 < 4
        v2: i64 = i0
        v3: bool = lt(v2, 1)
        roll: f32 = where(v3, v0, v1)
        store roll[i0] = roll
    """
    rank = len(x.view.size)
    if not dims and rank != 1:
        raise NotLowered("roll of the flattened tensor")
    moved: dict[int, Int] = {}
    for shift, dim in zip(shifts, dims or (0,), strict=True):
        moved[dim % rank] = moved.get(dim % rank, 0) + shift
    moved = {dim: _wrap_shift(shift, x.view.size[dim]) for dim, shift in moved.items()}
    moved = {dim: shift for dim, shift in moved.items() if not (isinstance(shift, int) and shift == 0)}
    if 2 ** len(moved) > MAX_PARTS:
        raise NotLowered(f"more than {MAX_PARTS} parts")
    body.store(_load_rolled(body, x, moved, {}) if moved else body.operand(x))


def _load_rolled(body: Body, x: Operand, moved: Mapping[int, Int], starts: Mapping[int, Int]) -> Element:
    """Loads ``x`` rolled by `moved` in each dimension; `starts` has the offsets of the dimensions done already.

    For one dimension: ``x[i - shift + size] if i < shift else x[i - shift]``.
    """
    if not moved:
        at = [body.coordinate(d, start=-starts.get(d, 0)) for d in range(len(x.view.size))]
        return body.load(x, at, [ir.Range(at[d], x.view.size[d]) for d in starts])
    (dim, shift), *rest = moved.items()
    first, second = (_load_rolled(body, x, dict(rest), {**starts, dim: at}) for at in (shift - x.view.size[dim], shift))
    return body.op("where", body.op("lt", body.index(dim), shift), first, second, dtype=body.out.dtype)


def _wrap_shift(shift: Int, size: Int) -> Int:
    """Returns `shift` modulo `size`; a symbolic shift may be between ``-size`` and ``size`` only."""
    if isinstance(shift, int) and isinstance(size, int):
        return shift % size
    try:
        if shift < 0:
            shift = shift + size
        if 0 <= shift < size:
            return shift
    except Undecided:
        pass
    raise NotLowered("the shift modulo the size depends on symbols")


def _load_shifted(body: Body, x: Operand, dim: int, start: Int) -> Element:
    """Loads from `x`, which begins at `start` in dimension `dim` of the result; undefined outside of it."""
    at = [body.coordinate(d, start=-start if d == dim else 0) for d in range(len(x.view.size))]
    return body.load(x, at, [ir.Range(at[dim], x.view.size[dim])])


def _load_slice(body: Body, x: Operand, dim: int, place: Int) -> Element:
    """Loads from `x`, which has no dimension `dim`, and is at index `place` of it; undefined elsewhere."""
    at = [body.coordinate(d) for d in range(len(x.view.size) + 1) if d != dim]
    return body.load(x, at, [ir.Range(body.coordinate(dim, start=-place), 1)])


def _store_selected_part(body: Body, parts: Sequence[Element], dim: int, ends: Sequence[Int]) -> None:
    """Stores the first of `parts` whose end is greater than the index of `dim`."""
    if len(ends) > MAX_PARTS:
        raise NotLowered(f"more than {MAX_PARTS} parts")
    values = [body.cast(part, body.out.dtype) for part in parts]
    found = values[-1]
    for value, end in zip(values[-2::-1], ends[-2::-1], strict=True):
        found = body.op("where", body.op("lt", body.index(dim), end), value, found, dtype=body.out.dtype)
    body.store(found)


def _store_replaced(body: Body, x: Operand, part: Element, dim: int, start: Int, size: Int) -> None:
    """Stores `part` at the `size` indices of `dim` from `start` on, and `x` elsewhere."""
    found = body.cast(part, x.dtype)
    kept = body.operand(x)
    outside = [("ge", start)] if start != 0 else []
    outside += [("lt", start + size)] if start + size != x.view.size[dim] else []
    for op, bound in outside:
        found = body.op("where", body.op(op, body.index(dim), bound), found, kept, dtype=x.dtype)
    body.store(found)


def _slice_start(start: Int | None, size: Int) -> Int:
    """Returns the start of a slice as an index in ``0 .. size``."""
    try:
        if start is None:
            return 0
        if start < 0:
            start = start + size
        if start < 0:
            return 0
        return size if start > size else start
    except Undecided:
        raise NotLowered("the start of the slice depends on symbols") from None
