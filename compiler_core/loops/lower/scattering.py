"""Rules for elements that are written where a tensor of indices says.

The result is made first, as a copy of the tensor that is written into; further loops, over what is
written, then put or add each element at its place.  Where two elements have one place, which of them
is put is as open as in eager PyTorch, and so is the order of additions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from compiler_core.loops.lower.body import Body
from compiler_core.loops.lower.indexing import positions
from compiler_core.loops.lower.table import NotLowered, Number, Operand, Value, lowers
from compiler_core.support.size_expr import Int

aten = torch.ops.aten
ADDED = (torch.float32, torch.float64, torch.int32, torch.int64)
"""The types that GPUs add to memory; what is added in a half type was cast before (`decompose`)."""


@lowers(aten.embedding_dense_backward.default)
def embedding_dense_backward(
    body: Body, gradient: Operand, index: Operand, rows: Int, padding: int, by_frequency: bool
) -> None:
    if by_frequency:
        raise NotLowered("a gradient divided by how often each row was read")
    _check(body, True)
    body.store(0)
    update = body.update(gradient.view.size)
    rank = len(index.view.size)
    at = update.load(index, [update.coordinate(d) for d in range(rank)])
    value = update.operand(gradient)
    if padding >= 0:
        value = update.op("where", update.op("eq", at, padding), 0, value, dtype=value.dtype)
    update.put(body.out, [update.position(at, rows, wraps=False), update.coordinate(rank)], value, adds=True)


@lowers(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(
    body: Body, x: Operand, indices: Sequence[Operand | None], values: Operand, accumulate: bool = False
) -> None:
    given = [i for i in indices if i is not None]
    if len(given) == 1 and given[0].dtype is torch.bool and not accumulate:
        _put_where(body, x, indices, values)
        return
    _check(body, accumulate)
    body.store(body.operand(x))
    update = body.update(_indexed_size(x, indices))
    value = update.operand(values)
    update.put(body.out, positions(update, x, indices), value, accumulate)


def _put_where(body: Body, x: Operand, indices: Sequence[Operand | None], values: Operand) -> None:
    """``x[mask] = number``"""
    if any(n != 1 for n in values.view.size):
        raise NotLowered("as many values as a mask picks, which is not known")
    first = next(d for d, i in enumerate(indices) if i is not None)
    mask = indices[first]
    assert mask is not None
    picked = body.load(mask, [body.coordinate(first + d) for d in range(len(mask.view.size))])
    number = body.load(values, [body.coordinate(-1)] * len(values.view.size))
    body.store(body.op("where", picked, body.cast(number, x.dtype), body.operand(x), dtype=x.dtype))


@lowers(aten.scatter.src)
def scatter(body: Body, x: Operand, dim: int, index: Operand, source: Operand) -> None:
    _scatter(body, x, dim, index, source, adds=False)


@lowers(aten.scatter.value)
def scatter_value(body: Body, x: Operand, dim: int, index: Operand, value: Number) -> None:
    _scatter(body, x, dim, index, value, adds=False)


@lowers(aten.scatter_add.default)
def scatter_add(body: Body, x: Operand, dim: int, index: Operand, source: Operand) -> None:
    _scatter(body, x, dim, index, source, adds=True)


def _scatter(body: Body, x: Operand, dim: int, index: Operand, source: Operand | Number, adds: bool) -> None:
    _check(body, adds)
    rank = len(x.view.size)
    if not rank or len(index.view.size) != rank:
        raise NotLowered("scatter into a tensor without dimensions")
    body.store(body.operand(x))
    update = body.update(index.view.size)
    at = [update.coordinate(d) for d in range(rank)]
    value = update.load(source, at) if isinstance(source, Operand) else update.cast(source, x.dtype)
    at[dim % rank] = update.position(update.operand(index), x.view.size[dim % rank], wraps=False)
    update.put(body.out, at, value, adds)


@lowers(aten.index_add.default)
def index_add(body: Body, x: Operand, dim: int, index: Operand, source: Operand, *, alpha: Any = 1) -> None:
    _at_index(body, x, dim, index, source, adds=True, alpha=alpha)


@lowers(aten.index_copy.default)
def index_copy(body: Body, x: Operand, dim: int, index: Operand, source: Operand) -> None:
    """``x[:, index] = source``, for the dimension `dim`."""
    _at_index(body, x, dim, index, source, adds=False)


def _at_index(body: Body, x: Operand, dim: int, index: Operand, source: Operand, adds: bool, alpha: Any = 1) -> None:
    """Put the slices of `source` at the indices of dimension `dim`, or add `alpha` times them."""
    _check(body, adds)
    rank = len(x.view.size)
    if not rank or len(source.view.size) != rank or len(index.view.size) != 1:
        raise NotLowered(f"{'index_add' if adds else 'index_copy'} of tensors without dimensions")
    body.store(body.operand(x))
    update = body.update(source.view.size)
    at = [update.coordinate(d) for d in range(rank)]
    value: Value = update.operand(source)
    if alpha != 1:
        value = update.op("mul", value, alpha)
    at[dim % rank] = update.position(update.load(index, [at[dim % rank]]), x.view.size[dim % rank], wraps=False)
    update.put(body.out, at, value, adds)


def _check(body: Body, adds: bool) -> None:
    if adds and body.out.dtype not in ADDED:
        raise NotLowered(f"additions to memory of type {body.out.dtype}")
    if body.out.device.type != "cpu" and torch.are_deterministic_algorithms_enabled():
        raise NotLowered("deterministic algorithms are asked for, and a GPU adds in any order")


def _indexed_size(x: Operand, indices: Sequence[Operand | None]) -> list[Int]:
    """The size of ``x[indices]``."""
    given = [i.view.size for i in indices if i is not None]
    places = [d for d, i in enumerate(indices) if i is not None]
    rank = max(map(len, given), default=0)
    padded = [(1,) * (rank - len(size)) + tuple(size) for size in given]
    common: list[Int] = [next((n for n in sizes if n != 1), 1) for sizes in zip(*padded, strict=True)]
    rest: list[Int] = [n for d, n in enumerate(x.view.size) if d not in places]
    first = places[0] if places and places == list(range(places[0], places[-1] + 1)) else 0
    return [*rest[:first], *common, *rest[first:]]
