"""Split reductions: reduce each part to a partial result, then combine the partials.

A variance, which is a sum of squared deviations from the mean, needs the mean first.  Its parts use the deviations
from their own mean, so that one pass computes both, and a correction is added when the parts are combined::

    sum over all of (x - mean)**2  =  sum over parts of (sum over the part of (x - mean of the part)**2
                                                         + size of the part * (mean of the part - mean)**2)

Neither side subtracts nearly equal numbers, so there is no cancellation.  (The method is that of Chan, Golub and
LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from compiler_core.loops import ir
from compiler_core.loops.ir import affine
from compiler_core.support import generated_code
from compiler_core.support.size_expr import Int


def add_partial_buffers(loops: ir.Loops, partial_reduction: Int, buffers: dict[str, ir.Buffer]) -> dict[str, str]:
    """Adds a buffer of shape ``[parts, outer]`` to `buffers` for each reduction of the loops; returns their names."""
    device = buffers[loops.writes[0]].device
    names = {}
    for s in loops.body:
        if isinstance(s, ir.Reduce):
            name = unused_name(f"{s.name}_part", loops, buffers)
            names[s.name] = name
            size, stride = (partial_reduction, loops.outer_numel), (loops.outer_numel, 1)
            buffers[name] = ir.Buffer(name, s.dtype, size, stride, device, "loops", s.origin)
    return names


def unused_name(name: str, loops: ir.Loops, buffers: Mapping[str, ir.Buffer]) -> str:
    """Returns `name`, with underscores appended until no buffer and no value of the loops has it."""
    return generated_code.unused_name(name, {*buffers, *(s.name for s in loops.body if not isinstance(s, ir.Store))})


@dataclass(frozen=True)
class SquaredDeviations:
    """The operands of a sum of squared deviations: the values `x`, their sum `total`, and the `mean`."""

    x: ir.Argument
    total: str
    mean: ir.Argument


def squared_deviation_sums(loops: ir.Loops) -> dict[str, SquaredDeviations]:
    """Finds the sums of squared deviations from a value that depends on an earlier sum of the same values, by name."""
    found: dict[str, SquaredDeviations] = {}
    statements: dict[ir.Argument, ir.ValueStatement] = {}
    totals: dict[ir.Argument, str] = {}
    reduced: set[ir.Argument] = set()
    for s in loops.body:
        if isinstance(s, ir.Store) or not isinstance(loops.inner_numel, int):
            continue
        if isinstance(s, ir.Reduce) and s.op == "sum" and s.dtype.is_floating_point:
            difference = _squared_difference(s, statements)
            if difference is not None:
                x, mean = difference
                if x in totals and mean in reduced and mean not in loops.inner_names:
                    found[s.name] = SquaredDeviations(x, totals[x], mean)
            totals[s.value] = s.name
        if isinstance(s, ir.Reduce) or reduced.intersection(s.arguments):
            reduced.add(s.name)
        statements[s.name] = s
    return found


def _squared_difference(
    s: ir.Reduce, statements: dict[ir.Argument, ir.ValueStatement]
) -> tuple[ir.Argument, ir.Argument] | None:
    """Returns ``x`` and ``y`` if the sum is of ``(x - y) * (x - y)``, otherwise None."""
    square = statements.get(s.value)
    if isinstance(square, ir.Compute) and square.op == "mul" and len(set(square.arguments)) == 1:
        distance = statements.get(square.arguments[0])
        if isinstance(distance, ir.Compute) and distance.op == "sub":
            return distance.arguments[0], distance.arguments[1]
    return None


def has_only_squared_deviations(loops: ir.Loops, sweep: ir.Sweep) -> bool:
    """Whether `sweep` computes only sums of squared deviations, so that it can be part of the sweep before."""
    found = squared_deviation_sums(loops)
    return not any(isinstance(s, ir.Store) or (isinstance(s, ir.Reduce) and s.name not in found) for s in sweep.inner)


def partial_reduction(loops: ir.Loops, names: Mapping[str, str]) -> ir.Loops:
    """Returns the first half of a split reduction: `loops`, whose outer indices are the parts, up to the reductions.

    The partial results are stored in the buffers `names`, which are given by the names of the reductions.
    """
    address = affine.row_major_address(loops.outer, range(len(loops.outer)), len(loops.space))
    found = squared_deviation_sums(loops)
    body: list[ir.Statement] = []
    for s in loops.body:
        if isinstance(s, ir.Reduce) and s.name in found:
            body += _deviations_from_part_mean(s, found[s.name], loops)
        elif not isinstance(s, ir.Store) or loops.is_inner(s):
            body.append(s)
    body += [ir.Store(names[s.name], address, s.name, s.origin) for s in loops.body if isinstance(s, ir.Reduce)]
    return replace(loops, body=live_statements(body))


def _deviations_from_part_mean(s: ir.Reduce, of: SquaredDeviations, part: ir.Loops) -> list[ir.Statement]:
    """Returns statements for the sum of squared deviations from the mean of the part."""
    mean, distance, square = (unused_name(f"{s.name}_{what}", part, {}) for what in ("mean", "distance", "square"))
    return [
        _compute_like(mean, s, "div", of.total, _literal_like(part.inner_numel, s)),
        _compute_like(distance, s, "sub", of.x, mean),
        _compute_like(square, s, "mul", distance, distance),
        replace(s, value=square),
    ]


def _combine_deviations(
    s: ir.Reduce, of: SquaredDeviations, loops: ir.Loops, partial_reduction: Int, names: Mapping[str, str]
) -> list[ir.Statement]:
    """Returns statements that combine the sums of all parts, each of deviations from the part's own mean."""
    words = ("mean", "shift", "square", "more", "all")
    mean, shift, square, more, value = (unused_name(f"{s.name}_{word}", loops, {}) for word in words)
    count = _literal_like(loops.inner_numel // partial_reduction, s)
    return [
        _compute_like(mean, s, "div", names[of.total], count),
        _compute_like(shift, s, "sub", mean, of.mean),
        _compute_like(square, s, "mul", shift, shift),
        _compute_like(more, s, "mul", square, count),
        _compute_like(value, s, "add", names[s.name], more),
        replace(s, value=value),
    ]


def _compute_like(name: str, like: ir.Reduce, op: str, *arguments: ir.Argument) -> ir.Compute:
    return ir.Compute(name, like.dtype, op, arguments, like.origin)


def _literal_like(count: Int, like: ir.Reduce) -> ir.Literal:
    assert isinstance(count, int)
    return ir.Literal(float(count), like.dtype)


def combine_partials(loops: ir.Loops, partial_reduction: Int, names: Mapping[str, str]) -> ir.Loops:
    """Returns the second half of a split reduction: it combines the partials, and does what follows the reductions."""
    rank = len(loops.outer)
    found = squared_deviation_sums(loops)
    row = affine.row_major_address(loops.outer, range(rank), rank).strides
    address = ir.Address((*row, loops.outer_numel))
    body: list[ir.Statement] = []
    for s in loops.body:
        if isinstance(s, ir.Reduce):
            body.append(ir.Load(names[s.name], s.dtype, names[s.name], address, s.origin))
            if s.name in found:
                body += _combine_deviations(s, found[s.name], loops, partial_reduction, names)
            else:
                body.append(replace(s, value=names[s.name]))
        elif not loops.is_inner(s):
            body.append(_without_inner(s, rank))
    return affine.canonicalize(ir.Loops(loops.name, loops.outer, (partial_reduction,), live_statements(body)))


def _without_inner(statement: ir.Statement, rank: int) -> ir.Statement:
    return ir.map_addresses(statement, lambda a: replace(a, strides=(*a.strides[:rank], 0)))


def live_statements(body: Iterable[ir.Statement]) -> tuple[ir.Statement, ...]:
    """Dead-code elimination that also removes positions, which another kernel of the same loops checks already."""
    return ir.eliminate_dead_code(body, also=())
