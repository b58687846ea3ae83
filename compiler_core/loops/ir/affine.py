"""Changes of the iteration domain: index maps between loop nests, splitting, merging and reordering of sizes.

Two loop nests access the same buffer: the first stores at an address over its sizes, the second loads at an address
over other sizes.  `solve_index_map` expresses each index of the first in the indices of the second, such that both
addresses are equal; `substitute_indices` then rewrites the body of the first in the indices of the second.  This
covers transposed, sliced, broadcast and reshaped loads.  The method: the strides of the first address are the radices
of a mixed-radix number system, in which the strides and the offset of the second address are written; the digits are
the index map.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from compiler_core.loops.ir import Address, Load, Loops, Range, Statement, Store, map_addresses
from compiler_core.support.size_expr import Int, Undecided, hint, prod, total

IndexMap = dict[int, Address]
"""For indices of one loop nest (by number), their values as affine expressions over the indices of another."""


@dataclass(frozen=True)
class SizeSplit:
    """The split of size number `at` of a loop nest in two, of which the inner one has size `inner`."""

    at: int
    inner: Int


def solve_index_map(
    of: Address,
    sizes: Sequence[Int],
    into: Address,
    into_sizes: Sequence[Int],
    positions: Mapping[str, Int] | None = None,
    within: Sequence[Range] = (),
) -> IndexMap | SizeSplit | None:
    """Finds the index map with which `of` equals `into` wherever all ranges of `within` hold.

    Args:
        of: an address in the first loop nest, over `sizes`.
        into: an address in the second loop nest, over `into_sizes`.
        positions: the sizes of the second loop nest's positions, by name.
        within: conditions of the second loop nest.

    Returns the map of those indices that `of` depends on; a `SizeSplit` that the second loop nest needs before there
    is a map; or None if there is no map, or none for all values of the symbols.
    """
    starts, narrow = _narrow_sizes(within, into_sizes)

    def moved(address: Address, sign: int = 1) -> Address:
        """Returns `address` in terms of indices that start at `starts` (`sign` 1), or the inverse (-1)."""
        distance = total(s * at for s, at in zip(address.strides, starts, strict=True))
        return replace(address, offset=address.offset + sign * distance)

    ranges = [Range(moved(r.address), r.size) for r in within]
    try:
        rows = _solve_digits(of, sizes, moved(into), narrow, positions or {}, ranges)
    except Undecided:
        return None
    if not isinstance(rows, dict):
        return rows if narrow == list(into_sizes) else None
    return {k: moved(row, -1) for k, row in rows.items()}


def _narrow_sizes(within: Sequence[Range], sizes: Sequence[Int]) -> tuple[list[Int], list[Int]]:
    """Returns the start and the size of each index where the ranges of a single index hold."""
    starts: list[Int] = [0] * len(sizes)
    narrow = list(sizes)
    for address, size in within:
        used = [k for k, stride in enumerate(address.strides) if stride]
        if (
            len(used) == 1
            and address.strides[used[0]] == 1
            and not address.values
            and hint(size) < hint(narrow[used[0]])
        ):
            starts[used[0]], narrow[used[0]] = -address.offset, size
    return starts, narrow


def _solve_digits(
    of: Address,
    sizes: Sequence[Int],
    into: Address,
    into_sizes: Sequence[Int],
    positions: Mapping[str, Int],
    within: Sequence[Range],
) -> IndexMap | SizeSplit | None:
    """Returns the index map by digits of `into`, without the narrowing of sizes.

    A digit may also be the address of a range that holds: for ``of = 58 * i + j``, j < 58, and ``into = 58 * i0 +
    58 * i1 + i2 - 58`` within ``0 <= 58 * i1 + i2 - 58 < 58``, i is i0 and j is that address, although 58 * i1 taken
    alone is a multiple of i's radix.
    """
    digits = sorted(((s, n, k) for k, (s, n) in enumerate(zip(of.strides, sizes, strict=True)) if s), reverse=True)
    if of.values or not _is_injective(digits):
        return None
    rest = replace(into, offset=into.offset - of.offset)
    rows = _digit_rows(digits, rest, into_sizes, positions, within)
    if rows is None:
        for (stride, size, k), (address, limit) in itertools.product(digits, within):
            others = [digit for digit in digits if digit[2] != k]
            if limit <= size and others:
                known = _digit_rows(others, rest + address * -stride, into_sizes, positions, within)
                if isinstance(known, dict):
                    return known | {k: address}
    return rows


def _digit_rows(
    digits: Sequence[tuple[Int, Int, int]],
    into: Address,
    into_sizes: Sequence[Int],
    positions: Mapping[str, Int],
    within: Sequence[Range],
) -> IndexMap | SizeSplit | None:
    """Returns `into` as one address for each of the digits ``(stride, size, number)``, each smaller than its size."""
    try:
        columns = [_mixed_radix_digits(stride, digits) for stride in into.strides]
        values = {name: _mixed_radix_digits(factor, digits) for name, factor in into.values}
        offsets = _mixed_radix_digits(into.offset, digits)
    except Undecided:
        return None
    rows: IndexMap = {}
    for _, n, k in digits:
        found = {name: column[k] for name, column in values.items() if column[k]}
        row = Address(tuple(column[k] for column in columns), offsets[k], tuple(found.items()))
        if not any(row == r.address and r.size <= n for r in within):
            low, high = bounds(row, into_sizes, positions)
            if low < 0:
                return None
            if high >= n:
                return _find_split(row, n, into_sizes)
        rows[k] = row
    return rows


def bounds(address: Address, sizes: Sequence[Int], positions: Mapping[str, Int]) -> tuple[Int, Int]:
    """Returns the least and the greatest value of an address over `sizes`; `positions` has the sizes of positions."""
    steps = [*zip(address.strides, sizes, strict=True), *((factor, positions[name]) for name, factor in address.values)]
    low = address.offset + total(s * (n - 1) for s, n in steps if s < 0)
    return low, address.offset + total(s * (n - 1) for s, n in steps if s > 0)


def always_within(within: Range, extents: Sequence[tuple[Int, Int]], positions: Mapping[str, Int]) -> bool | None:
    """Returns whether `within` holds for all indices of `extents` (start and end of each), or for none of them.

    None means that neither is known; `positions` has the sizes of positions.
    """
    address, size = within
    moved = address.offset + total(s * low for s, (low, _) in zip(address.strides, extents, strict=True))
    try:
        low, high = bounds(replace(address, offset=moved), [end - start for start, end in extents], positions)
        if low >= 0 and high < size:
            return True
        return False if high < 0 or low >= size else None
    except Undecided:
        return None


def is_bijective(row: Address, sizes: Sequence[Int], size: Int) -> bool:
    """Whether `row` takes each value in ``0 .. size - 1`` exactly once over the indices that it depends on."""
    reached: Int = 1
    steps = [(s, n) for s, n in zip(row.strides, sizes, strict=True) if s]
    for stride, n in sorted(steps, key=lambda step: (hint(step[0]), hint(step[1]))):
        if stride != reached:
            return False
        reached *= n
    return row.offset == 0 and not row.values and reached == size


def substitute_indices(statements: Iterable[Statement], rows: Sequence[Address], rank: int) -> list[Statement]:
    """Returns `statements` with every index replaced by its entry in `rows`, an address over `rank` new indices."""

    def change(address: Address) -> Address:
        changed = Address((0,) * rank, address.offset, address.values)
        for stride, row in zip(address.strides, rows, strict=True):
            if stride:
                changed = changed + row * stride
        return changed

    return [map_addresses(s, change) for s in statements]


def split_size(loops: Loops, how: SizeSplit) -> Loops:
    """Returns the loops with one size split in two."""
    at, inner = how.at, how.inner
    size = loops.space[at]
    rank = len(loops.space) + 1
    rows = [unit_address(k if k < at else k + 1, rank) for k in range(rank - 1)]
    rows[at] = unit_address(at, rank) * inner + unit_address(at + 1, rank)
    sizes = (*loops.space[:at], size // inner, inner, *loops.space[at + 1 :])
    outer = len(loops.outer) + (1 if at < len(loops.outer) else 0)
    return Loops(loops.name, sizes[:outer], sizes[outer:], tuple(substitute_indices(loops.body, rows, rank)))


def reorder_indices(loops: Loops, outer: Sequence[int], inner: Sequence[int]) -> Loops:
    """Returns the loops with their indices, given by number, in another order or at another level."""
    order = [*outer, *inner]
    rows = [unit_address(order.index(k), len(order)) for k in range(len(order))]
    sizes = [loops.space[k] for k in order]
    body = tuple(substitute_indices(loops.body, rows, len(order)))
    return Loops(loops.name, tuple(sizes[: len(outer)]), tuple(sizes[len(outer) :]), body)


def canonicalize(loops: Loops) -> Loops:
    """Orders the indices by stride, the largest outermost, and merges sizes that are contiguous in all accesses."""
    far = _stride_weights(loops)
    n = len(loops.outer)
    outer = sorted(range(n), key=lambda k: -far[k])
    inner = list(range(n, len(loops.space)))
    if not loops.scans:  # a scan depends on the order of its inner indices
        inner.sort(key=lambda k: -far[k])
    loops = reorder_indices(loops, outer, inner)
    at = 0
    while at + 1 < len(loops.space):
        below = loops.space[at + 1]
        may_merge = at + 1 != len(loops.outer)
        if may_merge and all(a.strides[at] == a.strides[at + 1] * below for a in loops.addresses):
            loops = _merge_sizes(loops, at)
        else:
            at += 1
    return loops


def row_major_address(sizes: Sequence[Int], at: Sequence[int], rank: int) -> Address:
    """Returns the row-major number of the indices `at`, whose sizes are `sizes`, as an address over `rank` indices."""
    strides: list[Int] = [0] * rank
    for k, index in enumerate(at):
        strides[index] = prod(sizes[k + 1 :])
    return Address(tuple(strides))


def unit_address(k: int, rank: int) -> Address:
    """Returns index number `k` itself as an address over `rank` indices."""
    return Address(tuple(int(t == k) for t in range(rank)))


def _is_injective(digits: Sequence[tuple[Int, Int, int]]) -> bool:
    """Whether different indices have different addresses; `digits` are (stride, size, index), largest stride first."""
    span: Int = 0
    for stride, size, _ in reversed(digits):
        if stride <= span:
            return False
        span += stride * (size - 1)
    return True


def _mixed_radix_digits(number: Int, digits: Sequence[tuple[Int, Int, int]]) -> dict[int, Int]:
    """Returns the digits of `number` in the mixed radix of the strides, by index number.

    A negative number has negative digits.

    Raises:
        Undecided: there is a remainder, or the sign is unknown.
    """
    sign = -1 if number < 0 else 1
    number = sign * number
    found: dict[int, Int] = {}
    for stride, _, k in digits:
        digit, number = divmod(number, stride)
        found[k] = sign * digit
    if number != 0:
        raise Undecided
    return found


def _find_split(row: Address, size: Int, sizes: Sequence[Int]) -> SizeSplit | None:
    """Returns the split of an index over which `row` exceeds `size`, or None if no split helps."""
    for at, (stride, n) in enumerate(zip(row.strides, sizes, strict=True)):
        if stride and stride * (n - 1) >= size and size % stride == 0:
            inner = size // stride
            if 1 < inner < n and n % inner == 0:
                return SizeSplit(at, inner)
    return None


def _stride_weights(loops: Loops) -> list[int]:
    """Returns for each index the sum of its strides, those of stores twice."""
    far = [0] * len(loops.space)
    for statement in loops.body:
        if isinstance(statement, (Load, Store)):
            weight = 2 if isinstance(statement, Store) else 1
            for k, stride in enumerate(loops.far_strides(statement.address)):
                far[k] += weight * stride
    return far


def _merge_sizes(loops: Loops, at: int) -> Loops:
    """Merges sizes `at` and ``at + 1``."""
    sizes = (*loops.space[:at], loops.space[at] * loops.space[at + 1], *loops.space[at + 2 :])
    outer = len(loops.outer) - (1 if at < len(loops.outer) else 0)

    def change(address: Address) -> Address:
        return replace(address, strides=(*address.strides[:at], *address.strides[at + 1 :]))

    return Loops(loops.name, sizes[:outer], sizes[outer:], tuple(map_addresses(s, change) for s in loops.body))
