"""Lowering rules for elements that are read at indices from a tensor, or in reverse order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from compiler_core.loops import ir
from compiler_core.loops.lower.body import Body
from compiler_core.loops.lower.table import NotLowered, Operand, lowers

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
