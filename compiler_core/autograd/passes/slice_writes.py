"""Chains of writes to parts of a tensor, made short: ``for i in range(n): x[i] = x[j] + 1``.

In a functional graph each such write is a ``select_scatter`` or ``slice_scatter``, which makes a new tensor of all of
`x`, and each read looks at the tensor that the last write made.  Where dimensions and indices are known:

    written_values   the ``copy`` that stands for a write's cast and broadcast goes where it does neither
    read_through     what reads a part that later writes left alone reads the tensor before them, or what was written
    added_parts      a gradient that is added to a part, as a tensor of zeros around it, becomes a write to that part
    writes_at_once   many writes of which nobody reads the tensors between become one ``cat`` of all parts

so n writes are n small operations and one pass over the tensor, not n.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx as fx

from compiler_core.autograd.passes.simplify import remove_dead
from compiler_core.support.fx_symbols import is_symbolic
from compiler_core.support.operator_facts import is_view

aten = torch.ops.aten
MANY = 9
"""Writes from which one ``cat`` takes their place; fewer become one kernel with what is around them."""
FURTHEST = 2000
"""Writes that a read is looked for behind, at most."""
_SCATTERS = (aten.select_scatter.default, aten.slice_scatter.default)
_READS = (aten.select.int, aten.slice.Tensor)
_ZEROS = (aten.zeros.default, aten.new_zeros.default, aten.zeros_like.default)


class Part(NamedTuple):
    """The indices of a dimension that an operation reads or writes, from `start` to before `end`."""

    dim: int
    start: int
    end: int
    is_slice: bool
    """Whether the dimension stays; an operation on one index drops it."""

    def within(self, other: Part) -> bool:
        return other.start <= self.start and self.end <= other.end


def shorten(graph: fx.Graph) -> None:
    """Apply all of the above."""
    scatters = sum(n.target in _SCATTERS for n in graph.nodes)
    if not scatters:
        return
    written_values(graph)
    if scatters >= MANY:
        added_parts(graph)
    read_through(graph)
    remove_dead(graph)
    writes_at_once(graph)


# ---- the rewrites --------------------------------------------------------------------------


def written_values(graph: fx.Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=aten.copy.default):
        target, source = node.args[:2]
        if not isinstance(source, fx.Node) or not _is_like(source, target):
            continue
        if source.meta["val"].stride() == node.meta["val"].stride() or all(_is_written(node, u) for u in node.users):
            _replace(node, source)


def read_through(graph: fx.Graph) -> None:
    parts = {n: _part_of(n) for n in graph.nodes if n.target in _SCATTERS}
    for target in _READS:
        for node in graph.find_nodes(op="call_function", target=target):
            _read_earlier(node, parts)


def _read_earlier(node: fx.Node, parts: Mapping[fx.Node, Part | None]) -> None:
    """Let `node` read the earliest tensor that has the same in this part, or what was written there."""
    part, source = _part_of(node), node.args[0]
    for _ in range(FURTHEST):
        if part is None or not isinstance(source, fx.Node) or source not in parts:
            break
        written = parts[source]
        if written is None or written.dim != part.dim:
            break
        if part.end <= written.start or written.end <= part.start:
            source = source.args[0]
        elif part == written:
            value: Any = source.args[1]
            same_strides = value.meta["val"].stride() == node.meta["val"].stride()
            if _is_like(value, node) and (same_strides or _takes_any_strides(node)):
                _replace(node, value)
                return
            break
        elif part.within(written) and written.is_slice:
            source, part = source.args[1], part._replace(start=part.start - written.start, end=part.end - written.start)
        else:
            break
    if source is not node.args[0] and part is not None and isinstance(source, fx.Node):
        made = _read(source.meta["val"], part)
        if made.stride() == node.meta["val"].stride() or _takes_any_strides(node):
            node.args = _read_arguments(source, part)
            node.meta["val"] = made


def added_parts(graph: fx.Graph) -> None:
    """``total + zeros with g in a part`` is `total` with that part of it + g in the part."""
    found = [n for n in graph.find_nodes(op="call_function", target=aten.add.Tensor) if _added_part(n)]
    for node in found if len(found) >= MANY else ():
        addition = _added_part(node)  # its total may be another by now
        assert addition is not None
        total, scatter, part = addition
        value: Any = scatter.args[1]
        with graph.inserting_before(node):
            before = graph.call_function(_READS[part.is_slice], _read_arguments(total, part))
            sum_ = graph.call_function(aten.add.Tensor, (before, value))
            target: Any = scatter.target
            written = graph.call_function(target, (total, sum_, *scatter.args[2:]))
        before.meta = dict(node.meta) | {"val": _read(total.meta["val"], part)}
        sum_.meta = dict(node.meta) | {"val": before.meta["val"] + value.meta["val"]}
        written.meta = dict(node.meta)
        _replace(node, written)


def _added_part(node: fx.Node) -> tuple[fx.Node, fx.Node, Part] | None:
    """The total, and what adds to a part of it, if `node` is such an addition."""
    if node.kwargs or not all(isinstance(a, fx.Node) for a in node.args):
        return None
    pairs: list[Any] = [node.args, node.args[::-1]]
    for total, scatter in pairs:
        if scatter.target not in _SCATTERS or not _is_zero(scatter.args[0]) or scatter is total:
            continue
        part = _part_of(scatter)
        if part is not None and len(scatter.users) == 1 and _is_like(total, node) and _is_like(scatter, node):
            return total, scatter, part
    return None


def writes_at_once(graph: fx.Graph) -> None:
    for node in reversed(list(graph.nodes)):
        if node.target in _SCATTERS and not node.users:
            graph.erase_node(node)  # of a chain that is one already
        elif node.target in _SCATTERS and not _goes_on(node):
            chain = list(_chain(node))
            if len(chain) >= MANY and _is_dense(node):
                _as_cat(graph, node, chain)


def _chain(last: fx.Node) -> Iterator[tuple[fx.Node, Part]]:
    """The writes along one dimension of which only `last` is read, that one first."""
    node: Any = last
    dim = None
    while isinstance(node, fx.Node) and node.target in _SCATTERS and (node is last or len(node.users) == 1):
        part, value = _part_of(node), node.args[1]
        if part is None or dim not in (None, part.dim) or not isinstance(value, fx.Node):
            return
        if value.meta["val"].dtype != last.meta["val"].dtype:
            return
        yield node, part
        dim, node = part.dim, node.args[0]


def _goes_on(node: fx.Node) -> bool:
    """Whether the only reader of `node` is the next write of its chain."""
    following = next(iter(node.users), None)
    if following is None or len(node.users) > 1 or following.target not in _SCATTERS or following.args[1] is node:
        return False
    part, other = _part_of(node), _part_of(following)
    return part is not None and other is not None and part.dim == other.dim


def _as_cat(graph: fx.Graph, last: fx.Node, chain: Sequence[tuple[fx.Node, Part]]) -> None:
    base: Any = chain[-1][0].args[0]
    dim, size = chain[0][1].dim, last.meta["val"].shape[chain[0][1].dim]
    writes: list[tuple[Any, Part]] = [(node.args[1], part) for node, part in chain]
    covered, pieces = _Covered(), []
    for source, part in (*writes, (base, Part(dim, 0, size, True))):  # the last write comes first
        pieces += [(start, end, source, part) for start, end in covered.add(part.start, part.end)]
    with graph.inserting_before(last):
        parts = [_piece(graph, last, *piece) for piece in sorted(pieces, key=lambda piece: piece[0])]
        made = graph.call_function(aten.cat.default, (parts, dim)) if len(parts) > 1 else parts[0]
    if len(parts) > 1:
        made.meta = dict(last.meta)
        made.meta["origin"] = tuple(dict.fromkeys(o for n, _ in reversed(chain) for o in n.meta.get("origin", ())))
    _replace(last, made)


def _piece(graph: fx.Graph, last: fx.Node, start: int, end: int, source: fx.Node, part: Part) -> fx.Node:
    """What lies from `start` to `end`: that of `source`, which is what is written to `part`."""
    if not part.is_slice:
        made = graph.call_function(aten.unsqueeze.default, (source, part.dim))
        made.meta = dict(last.meta) | {"val": source.meta["val"].unsqueeze(part.dim)}
        return made
    if (start, end) == (part.start, part.end):
        return source
    read = Part(part.dim, start - part.start, end - part.start, True)
    made = graph.call_function(aten.slice.Tensor, _read_arguments(source, read))
    made.meta = dict(last.meta) | {"val": _read(source.meta["val"], read)}
    return made


class _Covered:
    """Indices that later writes cover, as stretches in order that do not touch."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> list[tuple[int, int]]:
        """Cover these too; the stretches that were not covered before."""
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


def _part_of(node: fx.Node) -> Part | None:
    """The part that a read or a write is of; None where it is not known, or has gaps."""
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
        return Part(dim, start % shape[dim], start % shape[dim] + 1, False)
    start, end, step = slice(start, end, step).indices(shape[dim])
    return Part(dim, start, end, True) if step == 1 and start < end else None


def _read(value: torch.Tensor, part: Part) -> Any:
    return _READS[part.is_slice](value, *_read_arguments(None, part)[1:])


def _read_arguments(source: fx.Node | None, part: Part) -> tuple[Any, ...]:
    return (source, part.dim, part.start, part.end) if part.is_slice else (source, part.dim, part.start)


def _is_zero(node: Any) -> bool:
    if not isinstance(node, fx.Node):
        return False
    return node.target in _ZEROS or bool(node.target is aten.full.default and node.args[1] == 0)


def _is_like(node: Any, other: Any) -> bool:
    """Whether both are tensors of one known shape, and of one type, on one device."""
    if not isinstance(node, fx.Node) or not isinstance(other, fx.Node):
        return False
    a, b = node.meta["val"], other.meta["val"]
    if any(map(is_symbolic, (*a.shape, *b.shape))):
        return False
    return bool(a.shape == b.shape and a.dtype == b.dtype and a.device == b.device)


def _takes_any_strides(node: fx.Node) -> bool:
    """Whether nothing that reads `node` looks at how it lies in memory."""
    return all(user.op != "output" and not is_view(user) for user in node.users)


def _is_dense(node: fx.Node) -> bool:
    return bool(node.meta["val"].is_contiguous())


def _is_written(node: fx.Node, reader: fx.Node) -> bool:
    return reader.target in _SCATTERS and reader.args[1] is node and reader.args[0] is not node


def _replace(node: fx.Node, other: fx.Node) -> None:
    node.replace_all_uses_with(other)
    node.graph.erase_node(node)
