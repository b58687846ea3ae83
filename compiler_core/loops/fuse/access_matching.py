"""Where two loops meet: the indices of the first in terms of those of the second.

They meet in the buffers that they share: what the first stores and the second loads, or what both load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from compiler_core.loops import ir
from compiler_core.loops.fuse.rewriter import Refusal
from compiler_core.loops.ir import affine
from compiler_core.support.size_expr import Undecided, prod


@dataclass(frozen=True)
class Meeting:
    """The second loop, cut so that the first fits, and each index of the first in its terms."""

    second: ir.Loops
    rows: tuple[ir.Address, ...]
    within: tuple[ir.Range, ...] = ()
    """Where alone the first runs."""
    parts: bool = False
    """Whether the second reads one part of the first here and another there, so that the first runs everywhere."""


class Touch(NamedTuple):
    """Addresses in the first and the second loop that must be equal wherever `within` holds."""

    of: ir.Address
    into: ir.Address
    within: tuple[ir.Range, ...] = ()


Contact = Callable[[ir.Loops], Touch]
"""Where two loops touch; the second may have been cut."""


def meet(first: ir.Loops, second: ir.Loops, shared: bool) -> Meeting | Refusal:
    """Express the indices of `first` in those of `second`, which is cut where need be."""
    refusal = Refusal("address", f"{second.name} does not read what {first.name} touches index by index")
    attempts: Iterable[list[Contact]] = _shared_contacts(first, second) if shared else [flow_contacts(first, second)]
    for contacts in attempts:
        solved = solve(first, second, contacts)
        if solved is None:
            continue
        met = _place(first, *solved, contacts)
        if isinstance(met, Meeting):
            return met
        refusal = met
    return refusal


def solve(first: ir.Loops, second: ir.Loops, contacts: Sequence[Contact]) -> tuple[ir.Loops, affine.Rows] | None:
    """The second loop, cut, and the rows on which all `contacts` agree."""
    rows: affine.Rows = {}
    waiting = list(contacts)
    positions = {s.name: s.size for s in second.body if isinstance(s, ir.Position)}
    while waiting:
        of, into, within = waiting[0](second)
        found = affine.solve(of, first.space, into, second.space, positions, within)
        if isinstance(found, affine.Split):
            second, rows, waiting = affine.split(second, found), {}, list(contacts)
            continue
        if found is None or any(rows.get(k, row) != row for k, row in found.items()):
            return None
        rows |= found
        waiting.pop(0)
    return second, rows


def flow_contacts(first: ir.Loops, second: ir.Loops) -> list[Contact]:
    """Where the second loads what the first stores."""
    stores = {s.buffer: s.address for s in first.body if isinstance(s, ir.Store)}
    return [
        _contact(stores[s.buffer], at)
        for at, s in enumerate(second.body)
        if isinstance(s, ir.Load) and s.buffer in stores
    ]


def _shared_contacts(first: ir.Loops, second: ir.Loops) -> Iterator[list[Contact]]:
    """Loads of one buffer by both, by every index of the first; each will do alone."""
    for load in first.body:
        if isinstance(load, ir.Load) and all(load.address.strides) and _is_plain(load):
            for at, other in enumerate(second.body):
                if isinstance(other, ir.Load) and other.buffer == load.buffer and _is_plain(other):
                    yield [_contact(load.address, at)]


def _is_plain(load: ir.Load) -> bool:
    """Whether it reads at every index, where the index alone says."""
    return not load.within and not load.address.values


def _contact(of: ir.Address, at: int) -> Contact:
    def touch(second: ir.Loops) -> Touch:
        load = second.body[at]
        assert isinstance(load, ir.Load)
        return Touch(of, load.address, load.within)

    return touch


def _place(first: ir.Loops, second: ir.Loops, rows: affine.Rows, contacts: Sequence[Contact]) -> Meeting | Refusal:
    """Decide which indices of `second` are inner ones, and find the rows that are still missing."""
    if not first.inner:
        if len(rows) < len(first.space):
            return Refusal("address", "an index is in doubt")
        return _only_where_read(first, Meeting(second, _ordered(rows)), contacts)
    if any(contact(second).within for contact in contacts):
        return Refusal("repeat", f"{second.name} reads the reduction {first.name} at some of its indices only")
    outer_rows = [rows[k] for k in range(len(first.outer)) if k in rows]
    used = [t for t in range(len(second.space)) if any(row.strides[t] for row in outer_rows)]
    rest = [t for t in range(len(second.space)) if t not in used]
    if second.inner and used != list(range(len(second.outer))):
        if second.name == first.name:
            return Refusal("inner", f"{second.name} of all rows needs that of each row first")
        return Refusal("inner", f"{second.name} reduces other indices than {first.name}")
    if rest and prod(second.space[t] for t in rest) != first.inner_numel:
        return Refusal("inner", f"{second.name} runs over other sizes than {first.name} reduces")
    if not rest:
        if len(rows) > len(first.outer):
            return Refusal("inner", f"{second.name} reads one of the elements that {first.name} runs over")
        return _with_inner(first, second, rows)
    return _align_inner(first, affine.arrange(second, used, rest), contacts)


def _only_where_read(first: ir.Loops, met: Meeting, contacts: Sequence[Contact]) -> Meeting | Refusal:
    """`met`, with the ranges in which the second reads, where that is not everywhere."""
    ranges = {contact(met.second).within for contact in contacts}
    if () in ranges or not ranges:
        return met
    if len(ranges) > 1 and _fits(met, first):
        return replace(met, parts=True)
    if len(ranges) > 1:
        return Refusal("address", f"{met.second.name} reads different parts at the same indices")
    return replace(met, within=ranges.pop())


def _fits(met: Meeting, first: ir.Loops) -> bool:
    """Whether the first can run at all indices of the second."""
    if any(row.values for row in met.rows):
        return False
    try:
        reach = [affine.bounds(row, met.second.space, {}) for row in met.rows]
        return all(low >= 0 and high < size for (low, high), size in zip(reach, first.space, strict=True))
    except Undecided:
        return False


def _with_inner(first: ir.Loops, second: ir.Loops, rows: affine.Rows) -> Meeting:
    """`second` has no indices for the inner ones of `first`: it gets them."""
    rank, more = len(second.space), len(first.inner)
    units = [ir.Address(tuple(int(t == k) for t in range(rank + more))) for k in range(rank + more)]
    body = tuple(affine.substitute(second.body, units[:rank], rank + more))
    wide = {k: replace(row, strides=(*row.strides, *[0] * more)) for k, row in rows.items()}
    wide |= {len(first.outer) + k: units[rank + k] for k in range(more)}
    return Meeting(ir.Loops(second.name, second.outer, first.inner, body), _ordered(wide))


def _align_inner(first: ir.Loops, second: ir.Loops, contacts: Sequence[Contact]) -> Meeting | Refusal:
    """Rows for the inner indices too: by a buffer that both load, else one after the other."""
    inner = range(len(first.outer), len(first.space))

    def in_order(second: ir.Loops) -> Touch:
        into = range(len(second.outer), len(second.space))
        return Touch(
            affine.contiguous(first.inner, inner, len(first.space)),
            affine.contiguous(second.inner, into, len(second.space)),
        )

    extras: list[list[Contact]] = [[], *_shared_contacts(first, second), [in_order]]
    for extra in extras:
        solved = solve(first, second, [*contacts, *extra])
        if solved is not None and len(solved[1]) == len(first.space):
            return Meeting(solved[0], _ordered(solved[1]))
    return Refusal("inner", f"{second.name} walks its indices in another way than {first.name} reduces")


def _ordered(rows: affine.Rows) -> tuple[ir.Address, ...]:
    return tuple(rows[k] for k in range(len(rows)))
