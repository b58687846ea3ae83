"""Shortens chains of writes to parts of a tensor, such as ``for i in range(n): x[i] = x[j] + 1``.

In a functional graph each such write is a ``select_scatter`` or ``slice_scatter``, which copies all of `x`, and each
read reads the tensor that the last write made.  Where dimensions and indices are known:

    drop_redundant_copies   removes the ``copy`` of a write that neither casts nor broadcasts
    bypass_disjoint_writes  a read of a part that later writes did not touch reads the tensor before these writes,
                            or the written value itself
    narrow_additions        a gradient that is added to a part, inside a tensor of zeros, becomes a write to the part
    merge_writes_into_cat   many writes whose intermediate tensors nobody reads become one ``cat`` of all parts

So n writes become n small operations and one pass over the tensor, not n passes.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx as fx

from compiler_core.autograd.passes.simplify import eliminate_dead_code
from compiler_core.support.fx_symbols import hint, is_symbolic
from compiler_core.support.node_facts import is_view

aten = torch.ops.aten
MIN_CHAIN_LENGTH = 9
"""A chain of at least so many writes becomes one ``cat``; a shorter one becomes one kernel with its neighbours."""
MAX_SEARCHED_WRITES = 2000
"""The most writes that `bypass_disjoint_writes` looks behind for a read."""
_SCATTERS = (aten.select_scatter.default, aten.slice_scatter.default)
_READS = (aten.select.int, aten.slice.Tensor)
_ZEROS = (aten.zeros.default, aten.new_zeros.default, aten.zeros_like.default)


class SliceRange(NamedTuple):
    """The indices from `start` to before `end` of a dimension that an operation reads or writes."""

    dim: int
    start: int
    end: int
    is_slice: bool
    """Whether the operation keeps the dimension; one on a single index drops it."""

    def within(self, other: SliceRange) -> bool:
        return other.start <= self.start and self.end <= other.end


def shorten_write_chains(graph: fx.Graph) -> None:
    """Applies all of these rewrites to `graph`."""
    scatters = sum(n.target in _SCATTERS for n in graph.nodes)
    if not scatters:
        return
    drop_redundant_copies(graph)
    if scatters >= MIN_CHAIN_LENGTH:
        narrow_additions(graph)
    bypass_disjoint_writes(graph)
    eliminate_dead_code(graph)
    merge_writes_into_cat(graph)


# ---- the rewrites --------------------------------------------------------------------------


def drop_redundant_copies(graph: fx.Graph) -> None:
    """Removes copies that change neither dtype nor shape::

    c = copy(x[0], v);  select_scatter(x, c, 0, 0)      select_scatter(x, v, 0, 0)
    """
    for node in graph.find_nodes(op="call_function", target=aten.copy.default):
        target, source = node.args[:2]
        if not isinstance(source, fx.Node) or not _same_metadata(source, target):
            continue
        if source.meta["val"].stride() == node.meta["val"].stride() or all(_is_written_by(node, u) for u in node.users):
            _replace(node, source)


def bypass_disjoint_writes(graph: fx.Graph) -> None:
    """Lets reads skip writes to other parts::

    a = select_scatter(x, v, 0, 3);  select(a, 0, 1)      select(x, 0, 1)
    a = select_scatter(x, v, 0, 3);  select(a, 0, 3)      v
    """
    parts = {n: _range_of(n) for n in graph.nodes if n.target in _SCATTERS}
    for target in _READS:
        for node in graph.find_nodes(op="call_function", target=target):
            _bypass_writes(node, parts)


def _bypass_writes(node: fx.Node, parts: Mapping[fx.Node, SliceRange | None]) -> None:
    """Lets `node` read the earliest tensor that has the same values in this part, or the value that was written
    there."""
    part, source = _range_of(node), node.args[0]
    for _ in range(MAX_SEARCHED_WRITES):
        if part is None or not isinstance(source, fx.Node) or source not in parts:
            break
        written = parts[source]
        if written is None or written.dim != part.dim:
            break
        if part.end <= written.start or written.end <= part.start:
            source = source.args[0]
        elif part == written:
            value: Any = source.args[1]
            if _same_metadata(value, node) and _may_be_laid_out_as(node, value.meta["val"]):
                _replace(node, value)
                return
            break
        elif part.within(written) and written.is_slice:
            source, part = source.args[1], part._replace(start=part.start - written.start, end=part.end - written.start)
        else:
            break
    if source is not node.args[0] and part is not None and isinstance(source, fx.Node):
        result = _read_value(source.meta["val"], part)
        if _may_be_laid_out_as(node, result):
            node.args = _read_arguments(source, part)
            node.meta["val"] = result


def narrow_additions(graph: fx.Graph) -> None:
    """Adds only to the part that is not zero::

    total + select_scatter(zeros, g, 0, 3)      select_scatter(total, select(total, 0, 3) + g, 0, 3)
    """
    found = [n for n in graph.find_nodes(op="call_function", target=aten.add.Tensor) if _match_narrow_addition(n)]
    for node in found if len(found) >= MIN_CHAIN_LENGTH else ():
        addition = _match_narrow_addition(node)  # its total may be another by now
        assert addition is not None
        total, scatter, part = addition
        value: Any = scatter.args[1]
        with graph.inserting_before(node):
            before = graph.call_function(_read_operator(part), _read_arguments(total, part))
            sum_ = graph.call_function(aten.add.Tensor, (before, value))
            target: Any = scatter.target
            written = graph.call_function(target, (total, sum_, *scatter.args[2:]))
        before.meta = dict(node.meta) | {"val": _read_value(total.meta["val"], part)}
        sum_.meta = dict(node.meta) | {"val": before.meta["val"] + value.meta["val"]}
        written.meta = dict(node.meta)
        _replace(node, written)


def _match_narrow_addition(node: fx.Node) -> tuple[fx.Node, fx.Node, SliceRange] | None:
    """Returns the total, the scatter into zeros and its range if `node` is such an addition, else None."""
    if node.kwargs or not all(isinstance(a, fx.Node) for a in node.args):
        return None
    pairs: list[Any] = [node.args, node.args[::-1]]
    for total, scatter in pairs:
        if scatter.target not in _SCATTERS or not _is_zero(scatter.args[0]) or scatter is total:
            continue
        part = _range_of(scatter)
        if (
            part is not None
            and len(scatter.users) == 1
            and _same_metadata(total, node)
            and _same_metadata(scatter, node)
        ):
            return total, scatter, part
    return None


def merge_writes_into_cat(graph: fx.Graph) -> None:
    """Replaces a chain of writes by one concatenation::

    a = slice_scatter(x, u, 0, 0, 2);  b = slice_scatter(a, v, 0, 2, 4)      b = cat([u, v, x[4:]], 0)
    """
    for node in reversed(list(graph.nodes)):
        if node.target in _SCATTERS and not node.users:
            graph.erase_node(node)  # of a chain that is one already
        elif node.target in _SCATTERS and not _continues_chain(node):
            chain = list(_write_chain(node))
            if len(chain) >= MIN_CHAIN_LENGTH and node.meta["val"].is_contiguous():
                _replace_by_cat(graph, node, chain)


def _write_chain(last: fx.Node) -> Iterator[tuple[fx.Node, SliceRange]]:
    """Yields the writes along one dimension of which only `last` is read by others, from `last` backwards."""
    node: Any = last
    dim = None
    while isinstance(node, fx.Node) and node.target in _SCATTERS and (node is last or len(node.users) == 1):
        part, value = _range_of(node), node.args[1]
        if part is None or dim not in (None, part.dim) or not isinstance(value, fx.Node):
            return
        if value.meta["val"].dtype != last.meta["val"].dtype:
            return
        yield node, part
        dim, node = part.dim, node.args[0]


def _continues_chain(node: fx.Node) -> bool:
    """Returns whether the only reader of `node` is the next write of its chain."""
    following = next(iter(node.users), None)
    if following is None or len(node.users) > 1 or following.target not in _SCATTERS or following.args[1] is node:
        return False
    part, other = _range_of(node), _range_of(following)
    return part is not None and other is not None and part.dim == other.dim


def _replace_by_cat(graph: fx.Graph, last: fx.Node, chain: Sequence[tuple[fx.Node, SliceRange]]) -> None:
    base: Any = chain[-1][0].args[0]
    dim, size = chain[0][1].dim, last.meta["val"].shape[chain[0][1].dim]
    writes: list[tuple[Any, SliceRange]] = [(node.args[1], part) for node, part in chain]
    covered, pieces = _IntervalSet(), []
    for source, part in (*writes, (base, SliceRange(dim, 0, size, True))):  # the last write comes first
        pieces += [(start, end, source, part) for start, end in covered.add(part.start, part.end)]
    with graph.inserting_before(last):
        parts = [_piece(graph, last, *piece) for piece in sorted(pieces, key=lambda piece: piece[0])]
        result = graph.call_function(aten.cat.default, (parts, dim)) if len(parts) > 1 else parts[0]
    if len(parts) > 1:
        result.meta = dict(last.meta)
        result.meta["origin"] = tuple(dict.fromkeys(o for n, _ in reversed(chain) for o in n.meta.get("origin", ())))
    _replace(last, result)


def _piece(graph: fx.Graph, last: fx.Node, start: int, end: int, source: fx.Node, part: SliceRange) -> fx.Node:
    """Returns what is at `start` to `end`: a part of `source`, which is written to `part`."""
    if not part.is_slice:
        result = graph.call_function(aten.unsqueeze.default, (source, part.dim))
        result.meta = dict(last.meta) | {"val": source.meta["val"].unsqueeze(part.dim)}
        return result
    if (start, end) == (part.start, part.end):
        return source
    read = SliceRange(part.dim, start - part.start, end - part.start, True)
    result = graph.call_function(aten.slice.Tensor, _read_arguments(source, read))
    result.meta = dict(last.meta) | {"val": _read_value(source.meta["val"], read)}
    return result


class _IntervalSet:
    """A set of indices as sorted, separate intervals."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> list[tuple[int, int]]:
        """Adds an interval; returns the parts of it that were not in the set before."""
        first = bisect.bisect_left(self._ends, start)
        last = bisect.bisect_right(self._starts, end)
        new, at = [], start
        for known, until in zip(self._starts[first:last], self._ends[first:last], strict=True):
            if at < known:
                new.append((at, known))
            at = max(at, until)
        if at < end:
            new.append((at, end))
        lowest = min([start, *self._starts[first : first + 1]]) if first < last else start
        highest = max([end, *self._ends[last - 1 : last]]) if first < last else end
        self._starts[first:last], self._ends[first:last] = [lowest], [highest]
        return new


# ---- about nodes ---------------------------------------------------------------------------


def _range_of(node: fx.Node) -> SliceRange | None:
    """Returns the range that a read or write accesses; None if it is unknown or has gaps."""
    if node.kwargs or not isinstance(node.args[0], fx.Node):
        return None
    given: list[Any] = [node.args[0], *node.args[2:]] if node.target in _SCATTERS else list(node.args)
    x, *rest = given
    shape = x.meta["val"].shape
    if any(map(is_symbolic, shape)) or not all(a is None or isinstance(a, int) for a in rest):
        return None
    is_slice = node.target in (aten.slice_scatter.default, aten.slice.Tensor)
    numbers: list[Any] = [*rest, *(0, None, None, 1)[len(rest) :]]
    dim, start, end, step = numbers
    dim %= len(shape)
    if not is_slice:
        return SliceRange(dim, start % shape[dim], start % shape[dim] + 1, False)
    start, end, step = slice(start, end, step).indices(shape[dim])
    return SliceRange(dim, start, end, True) if step == 1 and start < end else None


def _read_operator(part: SliceRange) -> Any:
    return aten.slice.Tensor if part.is_slice else aten.select.int


def _read_value(value: torch.Tensor, part: SliceRange) -> Any:
    return _read_operator(part)(value, *_read_arguments(None, part)[1:])


def _read_arguments(source: fx.Node | None, part: SliceRange) -> tuple[Any, ...]:
    return (source, part.dim, part.start, part.end) if part.is_slice else (source, part.dim, part.start)


def _is_zero(node: Any) -> bool:
    if not isinstance(node, fx.Node):
        return False
    return node.target in _ZEROS or bool(node.target is aten.full.default and node.args[1] == 0)


def _same_metadata(node: Any, other: Any) -> bool:
    """Returns whether both are tensors of one known shape, of one dtype and on one device."""
    if not isinstance(node, fx.Node) or not isinstance(other, fx.Node):
        return False
    a, b = node.meta["val"], other.meta["val"]
    if any(map(is_symbolic, (*a.shape, *b.shape))):
        return False
    return bool(a.shape == b.shape and a.dtype == b.dtype and a.device == b.device)


def _may_be_laid_out_as(node: fx.Node, other: torch.Tensor) -> bool:
    """Returns whether no reader of `node` sees a difference if it has the strides of `other`.

    Results of most operators are dense, but have the order of their arguments, and random numbers are drawn in it.
    """
    value = node.meta["val"]
    if value.stride() == other.stride():
        return True
    return _order(value) == _order(other) and all(u.op != "output" and not is_view(u) for u in node.users)


def _order(tensor: torch.Tensor) -> list[int]:
    """Returns the dimensions that have several elements, in their order in memory."""
    dims = [dim for dim, size in enumerate(tensor.shape) if hint(size) != 1]
    return sorted(dims, key=lambda dim: -hint(tensor.stride(dim)))


def _is_written_by(node: fx.Node, reader: fx.Node) -> bool:
    return reader.target in _SCATTERS and reader.args[1] is node and reader.args[0] is not node


def _replace(node: fx.Node, other: fx.Node) -> None:
    node.replace_all_uses_with(other)
    node.graph.erase_node(node)
