"""How C++ kernels divide their work: the kind of a kernel, its threads and tiles, and what it keeps of a row.

There are six kinds:

    elementwise  no reduction: nested loops, the last one vectorised
    scatter      elementwise, with stores to addresses given by a tensor of indices
    rows         reductions: sweeps over the inner indices, for one outer index at a time
    short rows   reductions: each sweep covers several outer indices before the next one starts
    mix order    rows that also reduce over the outer indices
    lanes        reductions in which the last outer index is contiguous in memory and becomes the vector
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from compiler_core.loops import ir
from compiler_core.support.size_expr import Int, Size, Undecided, hint

KernelKind = Literal["elementwise", "scatter", "rows", "short rows", "mix order", "lanes"]
MAX_CUTS = 9
"""The range of an index is cut into at most this many parts."""
TRANSPOSE_TILE = (128, 256)
"""Rows and columns of a tile of a transposition: their pages fit the processor's TLB."""
FEW_OPERATIONS = 10
"""The cost of a function such as exp (`ir.OPS`); a loop that costs less for an element is bound by loads and stores."""
MAX_ROWS = 8
"""The maximum number of rows in a tile; no measured kernel was faster with more."""
TILE_ELEMENTS = 1024
"""The maximum number of elements in a tile; with more, reading memory and computing no longer overlap."""
ROW_BYTES = 32 * 1024
"""Expensive values of a row are stored for later sweeps up to this size, else they are recomputed."""
MIN_STORED_COST = 10
PARALLEL_COST = 1 << 19
"""Kernels that cost less (in additions, loads and stores) run on one thread."""
MIN_PARALLEL_ROWS = 8
"""With fewer outer indices, threads share the inner loop of each row instead."""


def kernel_kind(loops: ir.Loops) -> KernelKind:
    """Returns the kind of a kernel."""
    if loops.scatters:
        return "scatter"
    if not loops.inner:
        return "elementwise"
    if loops.column_stores:
        return "mix order"
    if has_contiguous_outer(loops):
        return "lanes"
    return "short rows" if _has_short_rows(loops) else "rows"


def has_contiguous_outer(loops: ir.Loops) -> bool:
    """Whether adjacent elements in memory differ in the last outer index rather than in an inner one.

    A C++ kernel of such loops is vectorised over the outer index.  Accesses with stride 0 in an index (a mask of rows)
    count as adjacent for that index.
    """
    if not loops.outer or loops.column_stores or hint(loops.outer[-1]) < 8:
        return False
    at = len(loops.outer) - 1
    inner = [s.address.strides for s in loops.body if isinstance(s, (ir.Load, ir.Store)) and loops.is_inner(s)]
    far = sum(s[at] not in (0, 1) for s in inner)
    return far < sum(1 not in s[at + 1 :] and any(s[at + 1 :]) for s in inner)


def _has_short_rows(loops: ir.Loops) -> bool:
    """Whether rows are short and numerous and have at least three sweeps.

    With two sweeps there is only one wait, and the second sweep finds the row in registers or cache.
    """
    if loops.scans or not loops.outer or hint(loops.outer_numel) < MAX_ROWS or hint(loops.outer[-1]) == 1:
        return False
    return rows_per_tile(loops) > 1 and len([sweep for sweep in ir.sweeps(loops) if sweep.inner]) > 2


def rows_per_tile(loops: ir.Loops) -> int:
    """Returns the number of rows in a tile, a power of two; 1 if rows are too long or their length is symbolic."""
    length = loops.inner_numel
    if not isinstance(length, int) or not 0 < length <= TILE_ELEMENTS:
        return 1
    return min(MAX_ROWS, 1 << (TILE_ELEMENTS // length).bit_length() - 1)


# -- threads ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ThreadPlan:
    """How the loops of one kernel are distributed over threads.

    With symbolic sizes the cost is known only at the call, so the kernel tests `condition`.
    """

    condition: str
    """C++ condition: the kernel is expensive enough for several threads."""
    parallel: bool
    """Whether the kernel uses threads, or may use them."""
    over_rows: bool
    """Whether threads share the outer indices."""
    kernel_at_call: bool
    """Whether the kernel tests `condition` once, for all its loops."""
    rows_at_call: bool
    """Whether the kernel tests `condition` and threads share the inner loop of each row, because rows are few."""


def thread_plan(loops: ir.Loops) -> ThreadPlan:
    """Returns the thread plan of a kernel, from its cost and its number of outer indices."""
    work, outer = cost(loops), loops.outer_numel
    if loops.scatters and not last_index_is_disjoint(loops):
        work = 0  # two threads could write to the same address
    parallel = isinstance(work, Size) or work >= PARALLEL_COST
    over_rows = parallel and (isinstance(outer, Size) or outer >= MIN_PARALLEL_ROWS)
    in_rows = bool(loops.inner) and not has_contiguous_outer(loops) and not over_rows
    return ThreadPlan(
        condition=f"{work} >= {PARALLEL_COST}",
        parallel=parallel,
        over_rows=over_rows,
        kernel_at_call=isinstance(work, Size) and not in_rows,
        rows_at_call=isinstance(work, Size) and in_rows,
    )


def cost(loops: ir.Loops) -> Int:
    """Returns the approximate number of additions, loads and stores of one run of the kernel."""
    total: Int = 0
    for statement in loops.body:
        inner = isinstance(statement, ir.Reduce) or loops.is_inner(statement)
        each = ir.OPS[statement.op].cost if isinstance(statement, ir.Compute) else 1
        total = total + each * loops.outer_numel * (loops.inner_numel if inner else 1)
    return total


def last_index_is_disjoint(loops: ir.Loops) -> bool:
    """Whether loops that scatter write to different addresses for different values of the last index."""
    if not loops.outer:
        return False
    addresses = [s.address for s in loops.body if isinstance(s, ir.Store) and s.mode != "="]
    return all(_last_index_fits(a, loops.outer[-1]) for a in addresses)


def _last_index_fits(address: ir.Address, size: Int) -> bool:
    """Whether the last index has stride 1 and all other strides are multiples of its size."""
    *others, last = address.strides
    steps = [s for s in (*others, *(factor for _, factor in address.values)) if s != 0]
    return last == 1 and all(divmod(s, size)[1] == 0 for s in steps)


# -- tiles, and values that are kept ---------------------------------------------------------------


def range_cuts(loops: ir.Loops) -> tuple[int, list[Int]]:
    """Returns an outer index and the ends of the parts into which its range is cut, to avoid bounds checks.

    Inside one part, a load that is limited to a range of the index is always or never within it.  The last end is that
    of the index.
    """
    found: dict[int, set[Int]] = {}
    for s in loops.body:
        for address, size in s.within if isinstance(s, ir.Load) else ():
            used = [k for k, stride in enumerate(address.strides) if stride]
            if len(used) == 1 and address.strides[used[0]] == 1 and not address.values:
                found.setdefault(used[0], set()).update((-address.offset, size - address.offset))
    for at, ends in found.items():
        try:
            inside = sorted(e for e in ends if 0 < e < loops.space[at])
        except Undecided:
            continue
        if inside and len(inside) < MAX_CUTS:
            return at, [*inside, loops.space[at]]
    return 0, [loops.outer[0] if loops.outer else 1]


def transposed_index(loops: ir.Loops) -> int | None:
    """Returns an index before the last one along which an access is contiguous that is strided along the last one.

    Returns None if there is none, or if the ranges are too small for tiles.
    """
    *others, last = range(len(loops.outer)) if len(loops.outer) > 1 else (0,)
    for statement in loops.body:
        if isinstance(statement, (ir.Load, ir.Store)) and abs(hint(statement.address.strides[last])) > 1:
            for at in others:
                if statement.address.strides[at] == 1 and hint(loops.outer[at]) > TRANSPOSE_TILE[0] // 2:
                    return at if hint(loops.outer[last]) > TRANSPOSE_TILE[1] // 2 else None
    return None


def is_bound_by_memory(loops: ir.Loops) -> bool:
    """Whether the loops load only values of 4 bytes, and have few operations."""
    operations = sum(ir.OPS[s.op].cost for s in loops.body if isinstance(s, ir.Compute))
    return operations < FEW_OPERATIONS and all(s.dtype.itemsize == 4 for s in loops.body if isinstance(s, ir.Load))


def values_to_store(loops: ir.Loops) -> frozenset[str]:
    """Returns the expensive values that a later sweep needs again and that are small enough to store for a row."""
    again = [s for sweep in ir.sweeps(loops) for s in sweep.recomputed if isinstance(s, ir.Compute)]
    # conversions of float16 are expensive too: they split a loop in two
    halves = {s.name for s in loops.body if isinstance(s, ir.Load) and s.dtype is torch.float16}
    expensive = (
        s
        for s in again
        if ir.OPS[s.op].cost >= MIN_STORED_COST
        or halves.intersection(s.arguments)
        or (s.op == "cast" and s.dtype is torch.float16)
    )
    stored = frozenset(s.name for s in expensive if may_fit_in_row(loops.inner_numel * s.dtype.itemsize))
    # without values that are needed only to compute another stored value
    return stored.intersection(
        s.name for sweep in ir.sweeps(loops, stored) for s in sweep.recomputed if not isinstance(s, ir.Store)
    )


def may_fit_in_row(size: Int) -> bool:
    """Whether a buffer of `size` bytes may be kept for one row; a symbolic size may be small."""
    return isinstance(size, Size) or size <= ROW_BYTES
