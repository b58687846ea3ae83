"""Matches a reduction over columns with a reduction over rows: which indices of the rows the columns reduce.

Rows and columns may have several indices.  For a softmax over the last index of ``x[b, h, i, j]`` and the gradient of a
bias ``[h, i, j]``, which every b adds, the columns reduce b; ``h`` and ``i`` are kept: they number rows, but no row is
added to one with another h or i.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compiler_core.loops import ir
from compiler_core.loops.fuse.access_matching import (
    AccessConstraint,
    AccessPair,
    solve_constraints,
)
from compiler_core.loops.ir import affine
from compiler_core.support.size_expr import Int, hint, prod


@dataclass(frozen=True)
class ColumnMatch:
    """The indices of the columns as those of the rows, whose outer ones are first the programs, then `sequential`."""

    rows: ir.Loops
    """The rows, with sizes split as needed."""
    index_map: tuple[ir.Address, ...]
    """Each index of the columns, as an affine expression over the indices of the rows."""
    reduced: tuple[int, ...]
    """The outer indices of the rows that the columns reduce."""
    sequential: int
    """The number of last outer indices through which a program runs in order; the columns reduce them."""

    @property
    def row_count(self) -> Int:
        """The number of rows that are reduced to one."""
        return prod([self.rows.outer[k] for k in self.reduced])

    @property
    def part_indices(self) -> tuple[int, ...]:
        """The reduced indices that programs share."""
        return tuple(k for k in self.reduced if k < len(self.rows.outer) - self.sequential)

    @property
    def part_count(self) -> Int:
        return prod([self.rows.outer[k] for k in self.part_indices])

    @property
    def program_count(self) -> Int:
        return prod(self.rows.outer[: len(self.rows.outer) - self.sequential])


def match_columns(rows: ir.Loops, columns: ir.Loops, sequential: int) -> ColumnMatch | None:
    """Returns the match, or None if the columns do not reduce each element of the rows once, over outer indices."""
    stores = {s.buffer: at for at, s in enumerate(rows.body) if isinstance(s, ir.Store) and not s.reduction}
    loads = [s for s in columns.body if isinstance(s, ir.Load) and s.buffer in stores]
    flows = [_access_constraint(s.address, stores[s.buffer]) for s in loads]
    for constraints in (flows, *([*flows, each] for each in _shared_loads(rows, columns))):
        solved = solve_constraints(columns, rows, constraints)
        if solved is not None and len(solved[1]) == len(columns.space):
            index_map = [solved[1][k] for k in range(len(columns.space))]
            matched = _column_match(solved[0], columns, index_map, solved[0].sequential_rank or sequential)
            if matched is not None:
                return matched
    return None


def _shared_loads(rows: ir.Loops, columns: ir.Loops) -> Iterator[AccessConstraint]:
    """Yields a constraint for each load of the columns, by all indices, from a buffer that the rows load, too.

    Loads may have conditions: any index map is right, and that of the same loads is wanted.
    """
    for load in columns.body:
        if isinstance(load, ir.Load) and all(load.address.strides) and not load.address.values:
            for at, other in enumerate(rows.body):
                if isinstance(other, ir.Load) and other.buffer == load.buffer:
                    yield _access_constraint(load.address, at)


def _access_constraint(of: ir.Address, at: int) -> AccessConstraint:
    """Returns the constraint that statement `at` of the rows, a load or store, has the address `of` of the columns."""

    def constraint(rows: ir.Loops) -> AccessPair:
        access = rows.body[at]
        assert isinstance(access, (ir.Load, ir.Store))
        return AccessPair(of, access.address)

    return constraint


def _column_match(
    rows: ir.Loops, columns: ir.Loops, index_map: Sequence[ir.Address], sequential: int
) -> ColumnMatch | None:
    used = [[t for t, stride in enumerate(row.strides) if stride] for row in index_map]
    if sorted(t for ts in used for t in ts) != list(range(len(rows.space))):
        return None
    if not all(affine.is_bijective(row, rows.space, n) for row, n in zip(index_map, columns.space, strict=True)):
        return None
    reduced = tuple(sorted(t for ts in used[len(columns.outer) :] for t in ts))
    rank = len(rows.outer)
    if max(reduced) >= rank or not set(range(rank - sequential, rank)) <= set(reduced):
        return None
    return ColumnMatch(rows, tuple(index_map), reduced, sequential)


def divide_rows(matched: ColumnMatch, columns: ir.Loops, max_parts: int) -> ColumnMatch | None:
    """Returns the match with the rows divided into at most `max_parts` parts, whose rows have the last indices."""
    rows, rest = matched.rows, list[int]()
    counts = _part_counts([n for n in (rows.outer[k] for k in matched.reduced) if isinstance(n, int)], max_parts)
    if len(counts) < len(matched.reduced):
        return None
    for k, count in zip(reversed(matched.reduced), reversed(counts), strict=True):
        size = rows.outer[k]
        if 1 < count < size:
            rows = affine.split_size(rows, affine.SizeSplit(k, size // count))
            rest = [k + 1, *(n + 1 for n in rest)]
        elif count == 1:
            rest = [k, *rest]
    outer = [k for k in range(len(rows.outer)) if k not in rest]
    inner = range(len(rows.outer), len(rows.space))
    return match_columns(affine.reorder_indices(rows, [*outer, *rest], inner), columns, len(rest))


def _part_counts(sizes: Sequence[int], most: int) -> tuple[int, ...]:
    """Returns into how many parts to divide each index, for the most parts up to `most`; at most one is cut in two."""
    divisors = [[d for d in range(1, min(n, max(most, 1)) + 1) if n % d == 0] for n in sizes]
    choices = (
        counts
        for counts in itertools.product(*divisors)
        if counts != tuple(sizes) and sum(1 < count < n for count, n in zip(counts, sizes, strict=True)) <= 1
    )
    return max((c for c in choices if prod(c) <= max(most, 1)), key=lambda c: (hint(prod(c)), c), default=())
