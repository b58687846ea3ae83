"""A reduction in two halves: that of each part, and that of what the parts came to.

A variance, which is a sum of squared distances from the mean, needs the mean first.  Its parts take the distances
from their own mean, so that one pass makes both, and what that leaves out is added with the parts::

    sum over all of (x - mean)**2  =  sum over parts of (sum over the part of (x - mean of the part)**2
                                                         + size of the part * (mean of the part - mean)**2)

Neither side subtracts what is nearly equal, so no digits are lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from compiler_core.loops import ir
from compiler_core.loops.ir import affine
from compiler_core.support.size_expr import Int


def partial_buffers(loops: ir.Loops, parts: Int, buffers: dict[str, ir.Buffer]) -> dict[str, str]:
    """The name of a new buffer in `buffers`, ``[parts, outer]``, for each reduction of the loops."""
    device = buffers[loops.writes[0]].device
    names = {}
    for s in loops.body:
        if isinstance(s, ir.Reduce):
            names[s.name] = name = unused(f"{s.name}_part", loops, buffers)
            size, stride = (parts, loops.outer_numel), (loops.outer_numel, 1)
            buffers[name] = ir.Buffer(name, s.dtype, size, stride, device, "loops", s.origin)
    return names


def unused(name: str, loops: ir.Loops, buffers: Mapping[str, ir.Buffer]) -> str:
    """`name`, or one like it that no buffer and no value of the loops has."""
    taken = {*buffers, *(s.name for s in loops.body if not isinstance(s, ir.Store))}
    while name in taken:
        name += "_"
    return name


@dataclass(frozen=True)
class Distances:
    """What a sum of squared distances is of: the values `x`, whose sum `total` is, from `mean` of the row."""

    x: str
    total: str
    mean: ir.Argument


def distances(loops: ir.Loops) -> dict[str, Distances]:
    """The sums of squared distances from what a reduction before them led to, by name."""
    found: dict[str, Distances] = {}
    made: dict[ir.Argument, ir.Made] = {}
    totals: dict[ir.Argument, str] = {}
    reduced: set[ir.Argument] = set()
    for s in loops.body:
        if isinstance(s, ir.Store) or not isinstance(loops.inner_numel, int):
            continue
        if isinstance(s, ir.Reduce) and s.op == "sum" and s.dtype.is_floating_point:
            x, mean = _distance(s, made)
            if x in totals and mean in reduced and mean not in loops.inner_names:
                found[s.name] = Distances(str(x), totals[x], mean)
            totals[s.value] = s.name
        if isinstance(s, ir.Reduce) or reduced.intersection(s.arguments):
            reduced.add(s.name)
        made[s.name] = s
    return found


def _distance(s: ir.Reduce, made: dict[ir.Argument, ir.Made]) -> tuple[ir.Argument, ir.Argument]:
    """``x`` and ``y`` where the sum is of ``(x - y) * (x - y)``, else twice nothing."""
    square = made.get(s.value)
    if isinstance(square, ir.Compute) and square.op == "mul" and len(set(square.arguments)) == 1:
        distance = made.get(square.arguments[0])
        if isinstance(distance, ir.Compute) and distance.op == "sub":
            return distance.arguments[0], distance.arguments[1]
    return "", ""


def made_of_distances(loops: ir.Loops, sweep: ir.Sweep) -> bool:
    """Whether all that `sweep` goes through the row for are sums of squared distances from what the row itself says."""
    found = distances(loops)
    return not any(isinstance(s, ir.Store) or (isinstance(s, ir.Reduce) and s.name not in found) for s in sweep.inner)


def parts(made: ir.Loops, names: Mapping[str, str]) -> ir.Loops:
    """All up to the reductions, in loops whose outer indices are the parts; the results go into the buffers `names`."""
    place = affine.contiguous(made.outer, range(len(made.outer)), len(made.space))
    found = distances(made)
    body: list[ir.Statement] = []
    for s in made.body:
        if isinstance(s, ir.Reduce) and s.name in found:
            body += _around_own_mean(s, found[s.name], made)
        elif not isinstance(s, ir.Store) or made.is_inner(s):
            body.append(s)
    body += [ir.Store(names[s.name], place, s.name, s.origin) for s in made.body if isinstance(s, ir.Reduce)]
    return replace(made, body=needed(body))


def _around_own_mean(s: ir.Reduce, of: Distances, part: ir.Loops) -> list[ir.Statement]:
    """The sum of squared distances from the mean of the part."""
    mean, distance, square = (unused(f"{s.name}_{what}", part, {}) for what in ("mean", "distance", "square"))
    return [
        _compute(mean, s, "div", of.total, _number(part.inner_numel, s)),
        _compute(distance, s, "sub", of.x, mean),
        _compute(square, s, "mul", distance, distance),
        replace(s, value=square),
    ]


def _around_common_mean(
    s: ir.Reduce, of: Distances, loops: ir.Loops, parts: Int, names: Mapping[str, str]
) -> list[ir.Statement]:
    """The same of all parts, from what each has around its own mean."""
    words = ("mean", "shift", "square", "more", "all")
    mean, shift, square, more, value = (unused(f"{s.name}_{word}", loops, {}) for word in words)
    count = _number(loops.inner_numel // parts, s)
    return [
        _compute(mean, s, "div", names[of.total], count),
        _compute(shift, s, "sub", mean, of.mean),
        _compute(square, s, "mul", shift, shift),
        _compute(more, s, "mul", square, count),
        _compute(value, s, "add", names[s.name], more),
        replace(s, value=value),
    ]


def _compute(name: str, like: ir.Reduce, op: str, *arguments: ir.Argument) -> ir.Compute:
    return ir.Compute(name, like.dtype, op, arguments, like.origin)


def _number(count: Int, like: ir.Reduce) -> ir.Literal:
    assert isinstance(count, int)
    return ir.Literal(float(count), like.dtype)


def rest(loops: ir.Loops, parts: Int, names: Mapping[str, str]) -> ir.Loops:
    """The reduction of the parts, and all that follows."""
    rank = len(loops.outer)
    found = distances(loops)
    row = affine.contiguous(loops.outer, range(rank), rank).strides
    place = ir.Address((*row, loops.outer_numel))
    body: list[ir.Statement] = []
    for s in loops.body:
        if isinstance(s, ir.Reduce):
            body.append(ir.Load(names[s.name], s.dtype, names[s.name], place, s.origin))
            if s.name in found:
                body += _around_common_mean(s, found[s.name], loops, parts, names)
            else:
                body.append(replace(s, value=names[s.name]))
        elif not loops.is_inner(s):
            body.append(_without_inner(s, rank))
    return affine.simplify(ir.Loops(loops.name, loops.outer, (parts,), needed(body)))


def _without_inner(statement: ir.Statement, rank: int) -> ir.Statement:
    return ir.readdressed(statement, lambda a: replace(a, strides=(*a.strides[:rank], 0)))


def needed(body: Iterable[ir.Statement]) -> tuple[ir.Statement, ...]:
    """The statements that a store needs."""
    return ir.alive(body, also=())
