"""Rules for elements that are read where a tensor of indices says."""

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
    rank = len(x.view.size)
    if not rank or not index.view.size:
        raise NotLowered("gather of a tensor without dimensions")
    at = [body.coordinate(d) for d in range(rank)]
    dim %= rank
    at[dim] = body.position(body.operand(index), x.view.size[dim], wraps=False)
    body.store(body.load(x, at))


@lowers(aten.index_select.default)
def index_select(body: Body, x: Operand, dim: int, index: Operand) -> None:
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
    rank = len(index.view.size)
    row = body.load(index, [body.coordinate(d) for d in range(rank)])
    body.store(body.load(weight, [body.position(row, weight.view.size[0], wraps=False), body.coordinate(rank)]))


@lowers(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(body: Body, x: Operand, indices: Sequence[Operand | None]) -> None:
    body.store(body.load(x, positions(body, x, indices)))


def positions(body: Body, x: Operand, indices: Sequence[Operand | None]) -> list[ir.Address]:
    """The coordinates in `x` that ``x[indices]`` has at the current index of its dimensions."""
    given = [i for i in indices if i is not None]
    if not given or any(i.dtype not in INDEX_TYPES for i in given):
        raise NotLowered("indices that are a mask: how many elements it picks is not known")
    places = [d for d, i in enumerate(indices) if i is not None]
    rank = max(len(i.view.size) for i in given)
    together = places == list(range(places[0], places[-1] + 1))
    first = places[0] if together else 0
    """The dimension of the result at which those of the index tensors stand."""
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
    sizes = x.view.size
    turned = {d % max(len(sizes), 1) for d in dims}
    at = [body.coordinate(d, -1, n - 1) if d in turned else body.coordinate(d) for d, n in enumerate(sizes)]
    body.store(body.load(x, at))
