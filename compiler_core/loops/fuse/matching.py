"""Matches the accesses of two loop nests (the indices of the first in those of the second), and merges their bodies.

Both access the same elements of a buffer: the first (the producer) stores what the second (the consumer) loads, or
both load the same.  Equal addresses are the constraints from which `affine.solve_index_map` finds the index map.

`match_columns` does so for a reduction over columns and a reduction over rows: which indices of the rows the columns
reduce.  Rows and columns may have several indices.  For a softmax over the last index of ``x[b, h, i, j]`` and the
gradient of a bias ``[h, i, j]``, which every b adds, the columns reduce b; ``h`` and ``i`` are kept: they number rows,
but no row is added to one with another h or i.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from compiler_core.loops import ir
from compiler_core.loops.fuse.rewriter import Refusal
from compiler_core.loops.ir import affine
from compiler_core.support.size_expr import Int, Undecided, hint, prod
from compiler_core.support.texts import unused_name


@dataclass(frozen=True)
class AccessMatch:
    """The second loop nest, with sizes split as needed, and the index map of the first."""

    second: ir.Loops
    index_map: tuple[ir.Address, ...]
    """Each index of the first, as an affine expression over the indices of the second."""
    within: tuple[ir.Range, ...] = ()
    """The conditions under which the first runs."""
    reads_several_parts: bool = False
    """Whether the second reads different parts of the first at different indices; then the first has no conditions."""


class AccessConstraint(NamedTuple):
    """An address in the first loop nest that must be equal to one in the second, whose sizes may be split meanwhile."""

    first: ir.Address
    at: int | None
    """The statement of the second, a load or store, that has the other address; None stands for the row-major number of
    its inner indices."""
    ignores_conditions: bool = False
    """Whether the addresses must be equal also where the load's conditions do not hold."""

    def in_second(self, second: ir.Loops) -> tuple[ir.Address, tuple[ir.Range, ...]]:
        """Returns the address in the second loop nest, and the conditions under which it is accessed."""
        if self.at is None:
            inner = range(len(second.outer), len(second.space))
            return affine.row_major_address(second.inner, inner, len(second.space)), ()
        access = second.body[self.at]
        assert isinstance(access, (ir.Load, ir.Store))
        if isinstance(access, ir.Store) or self.ignores_conditions:
            return access.address, ()
        return access.address, access.within


def match_accesses(first: ir.Loops, second: ir.Loops, shared: bool) -> AccessMatch | Refusal:
    """Expresses the indices of `first` in those of `second`, whose sizes are split if necessary.

    The accesses are what `second` loads of what `first` stores or, with `shared`, what both load.
    """
    refusal = Refusal("address", f"{second.name} does not read what {first.name} accesses index by index")
    attempts = [[each] for each in _shared_loads(first, second)] if shared else [flow_constraints(first, second)]
    for constraints in attempts:
        solved = solve_constraints(first, second, constraints)
        if solved is None:
            continue
        matched = _choose_inner_indices(first, *solved, constraints)
        if isinstance(matched, AccessMatch):
            return matched
        refusal = matched
    return refusal


def solve_constraints(
    first: ir.Loops, second: ir.Loops, constraints: Sequence[AccessConstraint]
) -> tuple[ir.Loops, affine.IndexMap] | None:
    """Returns the second loop nest, with sizes split, and the index map that satisfies all constraints, or None."""
    rows: affine.IndexMap = {}
    waiting = list(constraints)
    while waiting:
        into, within = waiting[0].in_second(second)
        of, positions = waiting[0].first, second.position_sizes
        found = affine.solve_index_map(of, first.space, into, second.space, positions, within)
        if isinstance(found, affine.SizeSplit):
            second, rows, waiting = affine.split_size(second, found), {}, list(constraints)
            continue
        if found is None or any(rows.get(k, row) != row for k, row in found.items()):
            return None
        rows |= found
        waiting.pop(0)
    return second, rows


def flow_constraints(first: ir.Loops, second: ir.Loops) -> list[AccessConstraint]:
    """Returns a constraint for each load of the second from a buffer that the first stores to."""
    stores = {s.buffer: s.address for s in first.body if isinstance(s, ir.Store)}
    return [
        AccessConstraint(stores[s.buffer], at)
        for at, s in enumerate(second.body)
        if isinstance(s, ir.Load) and s.buffer in stores
    ]


def _shared_loads(first: ir.Loops, second: ir.Loops, conditional: bool = False) -> Iterator[AccessConstraint]:
    """Yields a constraint for each pair of loads of a buffer by both, in the first by all its indices.

    Loads that are `conditional` count if any index map is right, and that of the same loads is wanted.
    """
    for load in first.body:
        if isinstance(load, ir.Load) and all(load.address.strides) and _is_plain(load, conditional):
            for at, other in enumerate(second.body):
                if isinstance(other, ir.Load) and other.buffer == load.buffer and (conditional or _is_plain(other)):
                    yield AccessConstraint(load.address, at, ignores_conditions=conditional)


def _is_plain(load: ir.Load, conditional: bool = False) -> bool:
    """Whether the load has no conditions, unless it may be `conditional`, and its address depends on indices alone."""
    return (conditional or not load.within) and not load.address.values


def _choose_inner_indices(
    first: ir.Loops, second: ir.Loops, rows: affine.IndexMap, constraints: Sequence[AccessConstraint]
) -> AccessMatch | Refusal:
    """Decides which indices of `second` are inner ones, and completes the index map."""
    if not first.inner:
        if len(rows) < len(first.space):
            return Refusal("address", "an index of the first is not determined")
        return _restrict_to_reads(first, AccessMatch(second, _as_sequence(rows)), constraints)
    if any(constraint.in_second(second)[1] for constraint in constraints):
        return Refusal("repeat", f"{second.name} reads the reduction {first.name} at some of its indices only")
    outer_rows = [rows[k] for k in range(len(first.outer)) if k in rows]
    used = [t for t in range(len(second.space)) if any(row.strides[t] for row in outer_rows)]
    rest = [t for t in range(len(second.space)) if t not in used]
    if second.inner and used != list(range(len(second.outer))):
        if second.name == first.name:
            return Refusal("inner", f"{second.name} reduces all rows and needs the result of each row first")
        return Refusal("inner", f"{second.name} reduces other indices than {first.name}")
    if rest and prod(second.space[t] for t in rest) != first.inner_numel:
        return Refusal("inner", f"{second.name} runs over other sizes than {first.name} reduces")
    if not rest:
        if len(rows) > len(first.outer):
            return Refusal("inner", f"{second.name} reads one of the elements that {first.name} runs over")
        return _append_inner_indices(first, second, rows)
    return _match_inner_indices(first, affine.reorder_indices(second, used, rest), constraints)


def _restrict_to_reads(
    first: ir.Loops, matched: AccessMatch, constraints: Sequence[AccessConstraint]
) -> AccessMatch | Refusal:
    """Returns `matched` with the ranges in which the second reads, unless it reads everywhere."""
    ranges = {constraint.in_second(matched.second)[1] for constraint in constraints}
    if () in ranges or not ranges:
        return matched
    if len(ranges) > 1 and _is_in_bounds(matched, first):
        return replace(matched, reads_several_parts=True)
    if len(ranges) > 1:
        return Refusal("address", f"{matched.second.name} reads different parts at the same indices")
    return replace(matched, within=ranges.pop())


def _is_in_bounds(matched: AccessMatch, first: ir.Loops) -> bool:
    """Whether the index map stays in the sizes of the first at all indices of the second."""
    if any(row.values for row in matched.index_map):
        return False
    try:
        ranges = [affine.bounds(row, matched.second.space, {}) for row in matched.index_map]
        return all(low >= 0 and high < size for (low, high), size in zip(ranges, first.space, strict=True))
    except Undecided:
        return False


def _append_inner_indices(first: ir.Loops, second: ir.Loops, rows: affine.IndexMap) -> AccessMatch:
    """Adds the inner indices of `first` to `second`, which has no inner indices."""
    rank, more = len(second.space), len(first.inner)
    units = [affine.unit_address(k, rank + more) for k in range(rank + more)]
    body = tuple(affine.substitute_indices(second.body, units[:rank], rank + more))
    wide = {k: replace(row, strides=(*row.strides, *[0] * more)) for k, row in rows.items()}
    wide |= {len(first.outer) + k: units[rank + k] for k in range(more)}
    return AccessMatch(ir.Loops(second.name, second.outer, first.inner, body), _as_sequence(wide))


def _match_inner_indices(
    first: ir.Loops, second: ir.Loops, constraints: Sequence[AccessConstraint]
) -> AccessMatch | Refusal:
    """Completes the index map for the inner indices: by a buffer that both load, otherwise in row-major order."""
    inner = range(len(first.outer), len(first.space))
    in_order = AccessConstraint(affine.row_major_address(first.inner, inner, len(first.space)), None)
    extras = [[], *([each] for each in _shared_loads(first, second)), [in_order]]
    for extra in extras:
        solved = solve_constraints(first, second, [*constraints, *extra])
        if solved is not None and len(solved[1]) == len(first.space):
            return AccessMatch(solved[0], _as_sequence(solved[1]))
    return Refusal("inner", f"{second.name} iterates over its indices in another order than {first.name} reduces them")


def _as_sequence(rows: affine.IndexMap) -> tuple[ir.Address, ...]:
    return tuple(rows[k] for k in range(len(rows)))


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
    flows = [AccessConstraint(s.address, stores[s.buffer]) for s in loads]
    for constraints in (flows, *([*flows, each] for each in _shared_loads(columns, rows, conditional=True))):
        solved = solve_constraints(columns, rows, constraints)
        if solved is not None and len(solved[1]) == len(columns.space):
            matched = _column_match(
                solved[0], columns, _as_sequence(solved[1]), solved[0].sequential_rank or sequential
            )
            if matched is not None:
                return matched
    return None


def _column_match(
    rows: ir.Loops, columns: ir.Loops, index_map: tuple[ir.Address, ...], sequential: int
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
    return ColumnMatch(rows, index_map, reduced, sequential)


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


# ---------------------------------------------------------------- one body of two


def rename_conflicting(body: Sequence[ir.Statement], other: Sequence[ir.Statement]) -> list[ir.Statement]:
    """Returns `body` with its values renamed such that none has the name of a value of `other`."""
    taken = {s.name for s in other if not isinstance(s, ir.Store)}
    renamed: dict[str, ir.Argument] = {}
    result: list[ir.Statement] = []
    for statement in body:
        statement = ir.rename_arguments(statement, renamed)
        if not isinstance(statement, ir.Store):
            name = unused_name(statement.name, taken)
            taken.add(name)
            renamed[statement.name] = name
            statement = replace(statement, name=name)
        result.append(statement)
    return result


def restrict_to_ranges(statement: ir.Statement, within: tuple[ir.Range, ...]) -> ir.Statement:
    """Adds the conditions `within` to a load or a position; other statements are returned as they are."""
    if not within or not isinstance(statement, (ir.Load, ir.Position)):
        return statement
    return replace(statement, within=tuple(dict.fromkeys((*statement.within, *within))))


def merge_bodies(
    first: Sequence[ir.Statement], second: Sequence[ir.Statement], values: Mapping[str, ir.Argument]
) -> tuple[ir.Statement, ...]:
    """Merges two bodies into one.

    Statements that compute the same are merged, loads of the buffers in `values` are replaced by these values, and
    dead code is eliminated.
    """
    result: list[ir.Statement] = []
    known: dict[Hashable, int] = {}
    """The index in `result` of each computation."""
    taken: set[str] = set()
    renamed: dict[str, ir.Argument] = {}
    for number, statement in enumerate((*first, *second)):
        if number == len(first):  # the second may use names of the first for other values
            values = {b: renamed.get(v, v) if isinstance(v, str) else v for b, v in values.items()}
        statement = ir.rename_arguments(statement, renamed)
        if isinstance(statement, ir.Store):
            result.append(statement)
            continue
        if isinstance(statement, ir.Load) and statement.buffer in values:
            renamed[statement.name] = values[statement.buffer]
            continue
        fields = vars(statement).items()
        key = type(statement), *[value for field, value in fields if field not in ("name", "origin")]
        if key in known:
            same = result[known[key]]
            assert not isinstance(same, ir.Store)
            renamed[statement.name] = same.name
            result[known[key]] = replace(same, origin=tuple(dict.fromkeys(same.origin + statement.origin)))
            continue
        name = unused_name(statement.name, taken)
        if name != statement.name:
            renamed[statement.name] = name
            statement = replace(statement, name=name)
        else:
            renamed.pop(name, None)
        known[key] = len(result)
        taken.add(name)
        result.append(statement)
    return ir.eliminate_dead_code(result)


def structural_key(loops: ir.Loops, buffers: Mapping[str, ir.Buffer]) -> Hashable:
    """Returns a key that is equal for loop nests which differ only in the names of loops, values and buffers."""
    numbers = {b: str(n) for n, b in enumerate(dict.fromkeys(loops.arguments))}
    renamed: dict[str, ir.Argument] = {}
    body: list[ir.Statement] = []
    for number, statement in enumerate(loops.body):
        statement = ir.rename_arguments(statement, renamed)
        if isinstance(statement, (ir.Load, ir.Store)):
            statement = replace(statement, buffer=numbers[statement.buffer])
        if isinstance(statement, ir.Load) and statement.given:
            statement = replace(statement, given=numbers[statement.given])
        if not isinstance(statement, ir.Store):
            renamed[statement.name] = str(number)
            statement = replace(statement, name=str(number))
        body.append(statement)
    return loops.outer, loops.inner, tuple((n, buffers[b].dtype) for b, n in numbers.items()), tuple(body)
