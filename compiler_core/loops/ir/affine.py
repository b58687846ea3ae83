"""Arithmetic of iteration spaces: splitting sizes, changing indices, merging sizes.

Two loops meet in a buffer: one stores at ``address`` over its own sizes, the other loads at an
address over others.  `solve` finds, for each index of the first, what it is in terms of the
indices of the second, so that both addresses are the same number; `substitute` then writes the
first loop in the second's indices.  Transposed, sliced, broadcast and reshaped loads are all
this one case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from compiler_core.loops.ir import Address, Load, Loops, Range, Statement, Store, addresses, readdressed
from compiler_core.support.size_expr import Int, Undecided, hint, prod, total

Rows = dict[int, Address]
"""For an index of one loop (by number), its value as an address over another loop's indices."""


@dataclass(frozen=True)
class Split:
    """Size `at` of a loop must become two, the inner one of size `inner`."""

    at: int
    inner: Int


def solve(
    of: Address,
    sizes: Sequence[Int],
    into: Address,
    into_sizes: Sequence[Int],
    positions: Mapping[str, Int] | None = None,
    within: Sequence[Range] = (),
) -> Rows | Split | None:
    """Rows that make `of` (over `sizes`) equal to `into` (over `into_sizes`) wherever `within` holds.

    Only indices that `of` depends on have a row.  A Split is what must be done to the second
    loop first; None means there is no such map, or none for all values of the symbols.
    `positions` are those of the second loop with their sizes.
    """
    starts, narrow = _narrowed(within, into_sizes)

    def moved(address: Address, sign: int = 1) -> Address:
        """`address` in terms of indices that count from `starts` on, or back."""
        distance = total(s * at for s, at in zip(address.strides, starts, strict=True))
        return replace(address, offset=address.offset + sign * distance)

    ranges = [Range(moved(r.address), r.size) for r in within]
    try:
        rows = _solve(of, sizes, moved(into), narrow, positions or {}, ranges)
    except Undecided:
        return None
    if not isinstance(rows, dict):
        return rows if narrow == list(into_sizes) else None
    return {k: moved(row, -1) for k, row in rows.items()}


def _narrowed(within: Sequence[Range], sizes: Sequence[Int]) -> tuple[list[Int], list[Int]]:
    """Where each index starts, and how far it goes, for ranges of one index."""
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


def _solve(
    of: Address,
    sizes: Sequence[Int],
    into: Address,
    into_sizes: Sequence[Int],
    positions: Mapping[str, Int],
    within: Sequence[Range],
) -> Rows | Split | None:
    digits = sorted(((s, n, k) for k, (s, n) in enumerate(zip(of.strides, sizes, strict=True)) if s), reverse=True)
    if of.values or not _distinct(digits):
        return None
    columns = [_digits(stride, digits) for stride in into.strides]
    values = {name: _digits(factor, digits) for name, factor in into.values}
    offsets = _digits(into.offset - of.offset, digits)
    rows: Rows = {}
    for _, n, k in digits:
        found = {name: column[k] for name, column in values.items() if column[k]}
        row = Address(tuple(column[k] for column in columns), offsets[k], tuple(found.items()))
        if not any(row == r.address and r.size <= n for r in within):
            low, high = bounds(row, into_sizes, positions)
            if low < 0:
                return None
            if high >= n:
                return _split(row, n, into_sizes)
        rows[k] = row
    return rows


def bounds(address: Address, sizes: Sequence[Int], positions: Mapping[str, Int]) -> tuple[Int, Int]:
    """The least and the greatest value of an address."""
    steps = [*zip(address.strides, sizes, strict=True), *((factor, positions[name]) for name, factor in address.values)]
    low = address.offset + total(s * (n - 1) for s, n in steps if s < 0)
    return low, address.offset + total(s * (n - 1) for s, n in steps if s > 0)


def covers(row: Address, sizes: Sequence[Int], size: Int) -> bool:
    """Whether `row` takes each of ``0 .. size - 1`` exactly once over the indices it depends on."""
    reached: Int = 1
    steps = [(s, n) for s, n in zip(row.strides, sizes, strict=True) if s]
    for stride, n in sorted(steps, key=lambda step: (hint(step[0]), hint(step[1]))):
        if stride != reached:
            return False
        reached *= n
    return row.offset == 0 and not row.values and reached == size


def substitute(statements: Iterable[Statement], rows: Sequence[Address], rank: int) -> list[Statement]:
    """`statements` with every index replaced by its row, an address over `rank` new indices."""

    def change(address: Address) -> Address:
        made = Address((0,) * rank, address.offset, address.values)
        for stride, row in zip(address.strides, rows, strict=True):
            if stride:
                made = made + row * stride
        return made

    return [readdressed(s, change) for s in statements]


def split(loops: Loops, how: Split) -> Loops:
    """The same loops with one size as two."""
    at, inner = how.at, how.inner
    size = loops.space[at]
    rank = len(loops.space) + 1
    rows = [_unit(k if k < at else k + 1, rank) for k in range(rank - 1)]
    rows[at] = Address(tuple(inner if t == at else 1 if t == at + 1 else 0 for t in range(rank)))
    outer, rest = list(loops.outer), list(loops.inner)
    part, k = (outer, at) if at < len(outer) else (rest, at - len(outer))
    part[k : k + 1] = [size // inner, inner]
    return Loops(loops.name, tuple(outer), tuple(rest), tuple(substitute(loops.body, rows, rank)))


def arrange(loops: Loops, outer: Sequence[int], inner: Sequence[int]) -> Loops:
    """The same loops with their indices, given by number, in another order or at another level."""
    order = [*outer, *inner]
    rows = [_unit(order.index(k), len(order)) for k in range(len(order))]
    sizes = [loops.space[k] for k in order]
    body = tuple(substitute(loops.body, rows, len(order)))
    return Loops(loops.name, tuple(sizes[: len(outer)]), tuple(sizes[len(outer) :]), body)


def simplify(loops: Loops) -> Loops:
    """Farthest apart in memory outermost, and sizes that memory does not tell apart as one."""
    far = _distances(loops)
    n = len(loops.outer)
    outer = sorted(range(n), key=lambda k: -far[k])
    inner = sorted(range(n, len(loops.space)), key=lambda k: 0 if loops.scans else -far[k])
    loops = arrange(loops, outer, inner)
    at = 0
    while at + 1 < len(loops.space):
        if at + 1 != len(loops.outer) and _mergeable(loops, at):
            loops = _merge(loops, at)
        else:
            at += 1
    return loops


def contiguous(sizes: Sequence[Int], at: Sequence[int], rank: int) -> Address:
    """The row-major number of the indices `at` of sizes `sizes`, as an address over `rank` indices."""
    strides: list[Int] = [0] * rank
    for k, index in enumerate(at):
        strides[index] = prod(sizes[k + 1 :])
    return Address(tuple(strides))


def _unit(k: int, rank: int) -> Address:
    return Address(tuple(int(t == k) for t in range(rank)))


def _distinct(digits: Sequence[tuple[Int, Int, int]]) -> bool:
    """Whether different indices always have different addresses (strides from large to small)."""
    span: Int = 0
    for stride, size, _ in reversed(digits):
        if stride <= span:
            return False
        span += stride * (size - 1)
    return True


def _digits(number: Int, digits: Sequence[tuple[Int, Int, int]]) -> dict[int, Int]:
    """`number` in the mixed radix of the strides, by index number; a negative one has negative digits.

    Undecided where something is left, or where the sign is not known.
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


def _split(row: Address, size: Int, sizes: Sequence[Int]) -> Split | None:
    """How to cut the index that runs beyond `size`, if that is what is wrong with `row`."""
    for at, (stride, n) in enumerate(zip(row.strides, sizes, strict=True)):
        if stride and stride * (n - 1) >= size and size % stride == 0:
            inner = size // stride
            if 1 < inner < n and n % inner == 0:
                return Split(at, inner)
    return None


def _addresses(loops: Loops) -> list[Address]:
    return [a for s in loops.body for a in addresses(s)]


def _distances(loops: Loops) -> list[int]:
    """For each index, how far apart in memory its neighbours are; stores weigh twice."""
    far = [0] * len(loops.space)
    for statement in loops.body:
        if isinstance(statement, (Load, Store)):
            for k, stride in enumerate(statement.address.strides):
                far[k] += abs(hint(stride)) * (2 if isinstance(statement, Store) else 1)
    return far


def _mergeable(loops: Loops, at: int) -> bool:
    return all(a.strides[at] == a.strides[at + 1] * loops.space[at + 1] for a in _addresses(loops))


def _merge(loops: Loops, at: int) -> Loops:
    """Sizes `at` and ``at + 1`` as one."""
    outer, inner = list(loops.outer), list(loops.inner)
    part, k = (outer, at) if at < len(outer) else (inner, at - len(outer))
    part[k : k + 2] = [part[k] * part[k + 1]]

    def change(address: Address) -> Address:
        return replace(address, strides=(*address.strides[:at], *address.strides[at + 1 :]))

    return Loops(loops.name, tuple(outer), tuple(inner), tuple(readdressed(s, change) for s in loops.body))
