"""Lowering rules for elements that are written at indices from a tensor, and updates of inputs in place.

A rule makes two loop nests: the first stores the result as a copy of the tensor that is written into, the second, over
the written elements, replaces elements of the result or adds to them.  If several elements are written at one index,
it is undefined which of them is stored, and in which order they are added, as in eager PyTorch.
If the result is the new value of an input, `write_in_place` removes the first.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from compiler_core.loops import ir
from compiler_core.loops.lower.body import Body, Element, NotLowered, Number, Operand, lowers
from compiler_core.loops.lower.indexing import positions
from compiler_core.support.size_expr import Int, hint

aten = torch.ops.aten
ATOMIC_TYPES = (torch.float32, torch.float64, torch.int32, torch.int64)
"""The types with atomic additions on GPUs.  Half types are cast before (`autograd/trace/decompositions`)."""
MOST_ADDENDS = 256
"""On a GPU, ``index_put`` that adds more numbers than this to an element, on average, is left to PyTorch."""


@lowers(aten.embedding_dense_backward.default)
def embedding_dense_backward(
    body: Body, gradient: Operand, index: Operand, rows: Int, padding: Int, by_frequency: bool
) -> None:
    """Lowers the gradient of an embedding: adds the gradient of each row to that of the weight.

    >>> lowered("aten.embedding_dense_backward(g, i, 100, -1, False)", g="f32[4, 8]", i="i64[4]")
    embedding_dense_backward: for i0 < 100, i1 < 8:
        store embedding_dense_backward[8*i0 + i1] = 0.0
    embedding_dense_backward: for i0 < 4, i1 < 8:
        v0: i64 = load i[i0]
        v1: f32 = load g[8*i0 + i1]
        v2: i64 = v0 below 100
        store embedding_dense_backward[i1 + 8*v2] += v1
    """
    if by_frequency:
        raise NotLowered("a gradient divided by the frequency of each row")
    _check_supported(body, True)
    body.store(0)
    update = body.add_update(gradient.view.size)
    rank = len(index.view.size)
    at = update.load(index, [update.coordinate(d) for d in range(rank)])
    value = update.operand(gradient)
    if not isinstance(padding, int) or padding >= 0:  # no row has a negative number
        value = update.op("where", update.op("eq", at, padding), 0, value, dtype=value.dtype)
    update.put(body.out, [update.position(at, rows, wraps=False), update.coordinate(rank)], value, adds=True)


@lowers(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(
    body: Body, x: Operand, indices: Sequence[Operand | None], values: Operand, accumulate: bool = False
) -> None:
    """Lowers ``x[indices] = values``, or ``+=`` with `accumulate`.

    >>> lowered("aten.index_put(x, [i], y)", x="f32[8]", i="i64[4]", y="f32[4]")
    index_put: for i0 < 8:
        v0: f32 = load x[i0]
        store index_put[i0] = v0
    index_put: for i0 < 4:
        v1: f32 = load y[i0]
        v2: i64 = load i[i0]
        v3: i64 = add(v2, 8)
        v4: bool = lt(v2, 0)
        v5: i64 = where(v4, v3, v2)
        v6: i64 = v5 below 8
        store index_put[v6] put v1
    """
    given = [i for i in indices if i is not None]
    if len(given) == 1 and given[0].dtype is torch.bool and not accumulate:
        _store_masked(body, x, indices, values)
        return
    _check_supported(body, accumulate)
    _check_types(x, values)
    if accumulate and body.out.device.type != "cpu":
        _check_addends(x, indices)
    body.store(body.operand(x))
    update = body.add_update(_indexed_size(x, indices))
    value = update.operand(values)
    update.put(body.out, positions(update, x, indices), value, accumulate)


def _store_masked(body: Body, x: Operand, indices: Sequence[Operand | None], values: Operand) -> None:
    """Stores the result of ``x[mask] = number``."""
    if any(n != 1 for n in values.view.size):
        raise NotLowered("the number of values depends on a mask")
    first = next(d for d, i in enumerate(indices) if i is not None)
    mask = indices[first]
    assert mask is not None
    if tuple(mask.view.size) != tuple(x.view.size[first : first + len(mask.view.size)]):
        raise NotLowered("the mask does not have the shape of what it picks from")
    picked = body.load(mask, [body.coordinate(first + d) for d in range(len(mask.view.size))])
    number = body.load(values, [body.coordinate(-1)] * len(values.view.size))
    body.store(body.op("where", picked, body.cast(number, x.dtype), body.operand(x), dtype=x.dtype))


def _scatter(body: Body, x: Operand, dim: int, index: Operand, source: Operand | Number, *, adds: bool) -> None:
    """Lowers ``scatter`` of a tensor or number, and ``scatter_add``, which has ``+=`` in place of ``put``.

    >>> lowered("aten.scatter(x, 0, i, y)", x="f32[8]", i="i64[4]", y="f32[4]")
    scatter: for i0 < 8:
        v0: f32 = load x[i0]
        store scatter[i0] = v0
    scatter: for i0 < 4:
        v1: f32 = load y[i0]
        v2: i64 = load i[i0]
        v3: i64 = v2 below 8
        store scatter[v3] put v1
    """
    _check_supported(body, adds)
    if isinstance(source, Operand):
        _check_types(x, source)
    rank = len(x.view.size)
    if not rank or len(index.view.size) != rank:
        raise NotLowered("scatter into a tensor without dimensions")
    body.store(body.operand(x))
    update = body.add_update(index.view.size)
    at = [update.coordinate(d) for d in range(rank)]
    value = update.load(source, at) if isinstance(source, Operand) else update.cast(source, x.dtype)
    at[dim % rank] = update.position(update.operand(index), x.view.size[dim % rank], wraps=False)
    update.put(body.out, at, value, adds)


lowers(aten.scatter.src, aten.scatter.value)(functools.partial(_scatter, adds=False))
lowers(aten.scatter_add.default)(functools.partial(_scatter, adds=True))


def _store_slices(
    body: Body, x: Operand, dim: int, index: Operand, source: Operand, *, alpha: Any = 1, adds: bool
) -> None:
    """Lowers ``index_add`` and ``index_copy``, which has ``put`` in place of ``+=``.

    >>> lowered("aten.index_add(x, 0, i, y)", x="f32[8, 2]", i="i64[4]", y="f32[4, 2]")
    index_add: for i0 < 8, i1 < 2:
        v0: f32 = load x[2*i0 + i1]
        store index_add[2*i0 + i1] = v0
    index_add: for i0 < 4, i1 < 2:
        v1: f32 = load y[2*i0 + i1]
        v2: i64 = load i[i0]
        v3: i64 = v2 below 8
        store index_add[i1 + 2*v3] += v1
    """
    _check_supported(body, adds)
    _check_types(x, source)
    rank = len(x.view.size)
    if not rank or len(source.view.size) != rank or len(index.view.size) != 1:
        raise NotLowered(f"{'index_add' if adds else 'index_copy'} of tensors without dimensions")
    body.store(body.operand(x))
    update = body.add_update(source.view.size)
    at = [update.coordinate(d) for d in range(rank)]
    value: Element = update.operand(source)
    if alpha != 1:
        value = update.op("mul", value, alpha)
    at[dim % rank] = update.position(update.load(index, [at[dim % rank]]), x.view.size[dim % rank], wraps=False)
    update.put(body.out, at, value, adds)


lowers(aten.index_add.default)(functools.partial(_store_slices, adds=True))
lowers(aten.index_copy.default)(functools.partial(_store_slices, adds=False))


def _check_types(x: Operand, source: Operand) -> None:
    """Checks that `source` has the type of what it is written to: PyTorch's kernels raise if not."""
    if source.dtype is not x.dtype:
        raise NotLowered(f"{source.dtype} is written to {x.dtype}")


def _check_supported(body: Body, adds: bool) -> None:
    """Checks that the result's type can be added to, and that no deterministic order is required."""
    if adds and body.out.dtype not in ATOMIC_TYPES:
        raise NotLowered(f"there are no atomic additions of {body.out.dtype}")
    if body.out.device.type != "cpu" and torch.are_deterministic_algorithms_enabled():
        raise NotLowered("deterministic algorithms are enabled, and the order of additions on a GPU is undefined")


def _check_addends(x: Operand, indices: Sequence[Operand | None]) -> None:
    """Checks that not many numbers are added to one element: PyTorch's kernel sorts them and adds in a fixed order,
    while atomic additions wait for each other, and round in any order."""
    size = _indexed_size(x, indices)
    if math.prod(map(hint, size)) > MOST_ADDENDS * math.prod(map(hint, x.view.size)):
        raise NotLowered("many numbers are added to each element, which PyTorch's kernel does in a fixed order")


def _indexed_size(x: Operand, indices: Sequence[Operand | None]) -> list[Int]:
    """Returns the size of ``x[indices]``."""
    given = [i.view.size for i in indices if i is not None]
    places = [d for d, i in enumerate(indices) if i is not None]
    rank = max(map(len, given), default=0)
    padded = [(1,) * (rank - len(size)) + tuple(size) for size in given]
    common: list[Int] = [next((n for n in sizes if n != 1), 1) for sizes in zip(*padded, strict=True)]
    rest: list[Int] = [n for d, n in enumerate(x.view.size) if d not in places]
    first = places[0] if places and places == list(range(places[0], places[-1] + 1)) else 0
    return [*rest[:first], *common, *rest[first:]]


def write_in_place(program: ir.Program) -> ir.Program:
    """Removes the copy that functionalization makes of an updated input, where the input can be updated in place.

    An example is a key-value cache to which each token adds a row.  In a functional graph, the update makes a new
    tensor, which the caller copies into the input.  The loops before and after, of which the first copy the whole
    cache:

    >>> updated("aten.index_copy(cache, 0, index, row)", cache="f32[8]", index="i64[2]", row="f32[2]")
    index_copy: for i0 < 8:
        v0: f32 = load cache[i0]
        store index_copy[i0] = v0
    index_copy: for i0 < 2:
        v1: f32 = load row[i0]
        v2: i64 = load index[i0]
        v3: i64 = v2 below 8
        store index_copy[v3] put v1
    ---
    index_copy: for i0 < 2:
        v1: f32 = load row[i0]
        v2: i64 = load index[i0]
        v3: i64 = v2 below 8
        store cache[v3] put v1

    The input is updated directly if that cannot be observed: no other step reads the input, and the stored values do
    not depend on it, so that running the graph again after a failure leaves the same values.
    """
    for updated, original in program.new_values.items():
        if (copy := _removable_copy(program, updated, original)) is not None:
            program = replace_buffer(program.with_steps([s for s in program.steps if s is not copy]), updated, original)
    return program


def _removable_copy(program: ir.Program, updated: str, original: str) -> ir.Step | None:
    """Returns the step that copies the input `original` to `updated`, if all writes can go to the input."""
    new, old = program.buffers[updated], program.buffers[original]
    # a kernel for the CPU may have written some elements when it reports a position that is out of range
    alike = (new.size, new.stride, new.dtype, new.device) == (old.size, old.stride, old.dtype, old.device)
    if new.kind != "loops" or not alike or old.device.type != "cuda":
        return None
    returned = [r.buffer for r in program.results if isinstance(r, ir.TensorView)]
    copy, *puts = (s for s in program.steps if updated in s.writes)
    readers = [s for s in program.steps if original in s.reads]
    if not puts or readers != [copy] or original in returned or returned.count(updated) != 1:
        return None
    is_plain = _is_plain_copy(copy, updated, original)
    return copy if is_plain and all(_only_replaces_elements(s, updated) for s in puts) else None


def _is_plain_copy(step: ir.Step, updated: str, original: str) -> bool:
    """Whether `step` only copies each element of `original` to the same address in `updated`."""
    if not isinstance(step, ir.Loops) or len(step.body) != 2:
        return False
    load, store = step.body
    if not isinstance(load, ir.Load) or not isinstance(store, ir.Store) or load.within:
        return False
    return (load.buffer, store.buffer, store.value, store.mode) == (original, updated, load.name, "=") and (
        load.address == store.address
    )


def _only_replaces_elements(step: ir.Step, updated: str) -> bool:
    """Whether `step` replaces elements of `updated` with values that do not depend on `updated`."""
    if not isinstance(step, ir.Loops) or updated in step.reads:
        return False
    return all(s.mode == "put" for s in step.body if isinstance(s, ir.Store) and s.buffer == updated)


def replace_buffer(program: ir.Program, updated: str, original: str) -> ir.Program:
    """Returns `program` with the buffer `original` in place of `updated`."""

    def view(value: Any) -> Any:
        is_updated = isinstance(value, ir.TensorView) and value.buffer == updated
        return replace(value, buffer=original) if is_updated else value

    def step(each: ir.Step) -> ir.Step:
        if updated not in each.reads and updated not in each.writes:
            return each
        if isinstance(each, ir.Call):
            args, kwargs = fx.node.map_aggregate((each.args, each.kwargs), view)
            reads = tuple(original if name == updated else name for name in each.reads)
            return replace(each, args=args, kwargs=dict(kwargs), reads=reads)
        body = (
            replace(s, buffer=original) if isinstance(s, ir.Load | ir.Store) and s.buffer == updated else s
            for s in each.body
        )
        return replace(each, body=tuple(body))

    buffers = {name: buffer for name, buffer in program.buffers.items() if name != updated}
    return replace(
        program, buffers=buffers, steps=tuple(map(step, program.steps)), results=tuple(map(view, program.results))
    )
