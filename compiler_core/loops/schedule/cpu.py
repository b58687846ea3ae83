"""The schedules of C++ kernels: which rewrites make the loop nest of a kernel, and why.

There are six kinds of kernel:

    elementwise  no reduction: nested loops, the last one vectorised
    scatter      elementwise, with stores to addresses given by a tensor of indices
    rows         reductions: sweeps over the inner indices, for one outer index at a time
    short rows   reductions: each sweep covers several outer indices before the next one starts
    mix order    rows that also reduce over the outer indices
    lanes        reductions in which the last outer index is contiguous in memory and becomes the vector

`schedule` starts with the naive nest and applies rewrites, each with its reason.
"""

from __future__ import annotations

from typing import Literal

import torch

from compiler_core.loops import ir
from compiler_core.loops.ir.nest import For, walk
from compiler_core.loops.schedule.rewrites import (
    ROW_BYTES,
    SUM_BLOCK,
    is_around_lanes,
    last_index_is_disjoint,
)
from compiler_core.loops.schedule.script import Schedule
from compiler_core.loops.schedule.vectors import converts_float16, loads_float16
from compiler_core.support.size_expr import Int, Size, Undecided, hint, prod

KernelKind = Literal["elementwise", "scatter", "rows", "short rows", "mix order", "lanes"]
MAX_CUTS = 9
"""The range of an index is cut into at most this many parts."""
TRANSPOSE_TILE = (128, 256)
"""Rows and columns of a tile of a transposition: their pages fit the processor's TLB."""
SHORT_VECTOR = 8
"""Lanes of a loop that is bound by its loads and stores: longer vectors cross a cache line at each access, and take up
to 1.15 times as long."""
MAX_ROWS = 8
"""The maximum number of rows in a tile; no measured kernel was faster with more."""
TILE_ELEMENTS = 1024
"""The maximum number of elements in a tile; with more, reading memory and computing no longer overlap."""
MAX_LANES = 256
"""The maximum number of outer indices in a block of lanes."""
LONG_ROW_BLOCK = 4096
"""Elements of a long row that one thread processes at a time, if there are too few rows for all threads."""
SCAN_BLOCK = 128
"""Elements of a row that a scan processes at a time, between the loops before and after it."""
SUMMED_BLOCK = 256
"""The same for running sums of float32, which are vectorised in a function that is called for each block."""
MAX_JAMMED_STATEMENTS = 24
"""The largest number of statements of a kernel that adds several elements of a row before it stores their sum."""
COLUMN_ROWS = 8
"""Rows whose columns are summed in the element type: more are not faster, and less accurate."""
CONVERTED_BLOCK = 128
"""Elements of float16 that a thread converts at a time, if a single loop is distributed over threads."""
MIN_DISTRIBUTED_COST = 4
"""The least cost of what is computed for an update, for which it is computed in vectors, apart from the update."""
MIN_STORED_COST = 10
PARALLEL_COST = 1 << 19
"""Kernels that cost less (in additions, loads and stores) run on one thread."""
SHORT_ROWS = 3
"""The lanes of short rows are combined once for several of them, if more than so many may be summed in float."""
MIN_PARALLEL_ROWS = 8
"""With fewer outer indices, threads share the inner loop of each row instead."""
MIN_THREADED_LOOPS = 64
"""With fewer iterations of the loops around it, the last loop is divided among threads, too."""


def schedule(loops: ir.Loops) -> Schedule:
    """Chooses the schedule of a C++ kernel, by its kind.

    >>> scheduled("aten.sub(x, aten.amax(x, [1], True))", x="f32[64, 128]")
    forward_0:
        for i0 < 64:
            accumulate amax:
                for j0 < 128:
                    v0: f32 = load x[128*i0 + j0]
                    amax: f32 = max over j of v0
            for j0 < 128:
                v0: f32 = load x[128*i0 + j0]
                sub: f32 = sub(v0, amax)
                store sub[128*i0 + j0] = sub
    ---
    vectorize(j0)   # the last index of a row is contiguous
    forward_0:
        for i0 < 64:
            accumulate amax in lanes:
                vector j0 < 128, 16 lanes:
                    v0: f32 = load x[128*i0 + j0]
                    amax: f32 = max over j of v0
            vector j0 < 128, 16 lanes:
                v0: f32 = load x[128*i0 + j0]
                sub: f32 = sub(v0, amax)
                store sub[128*i0 + j0] = sub
    """
    made, kind, work = Schedule(loops), kernel_kind(loops), _work(loops)
    if kind == "elementwise":
        _schedule_elementwise(made, work)
    elif kind == "scatter":
        _schedule_scatter(made, work)
    elif kind == "lanes":
        _schedule_lanes(made, work)
    else:
        _schedule_rows(made, kind, work)
    return made


def _schedule_elementwise(made: Schedule, work: Int) -> None:
    loops = made.loops
    names, outer = loops.index_names, loops.outer
    if not outer:
        return
    at, ends = range_cuts(loops)
    if len(ends) > 1:
        made.apply("cut", names[at], *ends[:-1], reason="a load is limited to a part of the range: no test inside it")
    last, across = names[-1], transposed_index(loops)
    around = [*names[:-1]]
    if across is not None:
        rows = names[across]
        for index, size in zip((rows, last), TRANSPOSE_TILE, strict=True):
            made.apply("split", index, size, reason="tiles: accesses are contiguous along two different indices")
        around = [*(n for n in around if n != rows), f"{rows}_tile", f"{last}_tile"]
        made.apply("reorder", *around, rows, last, reason="the pages of a tile fit the processor's TLB")
    elif work and hint(prod(outer[:-1])) < MIN_THREADED_LOOPS and hint(outer[-1]) >= 2 * LONG_ROW_BLOCK:
        made.apply("split", last, LONG_ROW_BLOCK, reason="the loops around it are too few for all threads")
        around.append(f"{last}_tile")
    elif work and not around and _converts_float16(made, last):
        made.apply("split", last, CONVERTED_BLOCK, reason="threads convert float16 in blocks")
        around.append(f"{last}_tile")
    if around:
        made.apply_if_changed("hoist", last, reason=f"the same for each {last}")
    _vectorize_elements(made, last)
    _use_threads(made, work, around or [last])


def _converts_float16(made: Schedule, index: str) -> bool:
    return any(converts_float16(made.loops, loop) for loop in made.nest.find(index))


def _vectorize_elements(made: Schedule, last: str) -> None:
    if _converts_float16(made, last):
        made.apply("vectorize", last, reason="float16 is converted for whole vectors")
    elif is_bound_by_memory(made.loops):
        made.apply(
            "vectorize",
            last,
            SHORT_VECTOR,
            reason="fewer operations than accesses: longer vectors would cross cache lines",
        )
    else:
        made.apply("vectorize", last, reason=f"{last} is the innermost loop")


def _schedule_scatter(made: Schedule, work: Int) -> None:
    loops = made.loops
    names = loops.index_names
    if not names:
        return  # one element
    last = names[-1]
    if not last_index_is_disjoint(loops):
        computed = sum(ir.OPS[s.op].cost for s in loops.body if isinstance(s, ir.Compute))
        if not loops.inner and hint(loops.outer[-1]) >= SCAN_BLOCK and computed >= MIN_DISTRIBUTED_COST:
            made.apply("split", last, SCAN_BLOCK, reason="positions and values of a block fit the L1 cache")
            made.apply("distribute", last, reason="only the updates need the elements in order")
            made.apply("vectorize", last, reason="positions and values do not depend on each other")
        return
    size = loops.outer[-1]
    step = -(-size // (8 * 64)) * 64 if isinstance(size, int) else 512
    made.apply("split", last, step, reason="blocks of positions that no two rows share")
    made.apply("reorder", f"{last}_tile", *names[:-1], last, reason="one thread updates all rows of a block, in order")
    made.apply_if_changed("hoist", last, reason=f"the same for each {last}")
    _vectorize_elements(made, last)
    _use_threads(made, work, [f"{last}_tile"])


def _schedule_lanes(made: Schedule, work: Int) -> None:
    loops = made.loops
    rank, size = len(loops.outer), loops.outer[-1]
    names, last = loops.index_names, loops.index_names[rank - 1]
    around = [*names[: rank - 1]]
    if not isinstance(size, int) or size > MAX_LANES:
        made.apply("split", last, MAX_LANES, reason="accumulators for a block of rows fit the cache")
        around.append(f"{last}_tile")
    made.apply("reorder", *names[rank:], last, reason=f"adjacent elements in memory differ in {last}")
    made.apply_if_changed("hoist", last, reason=f"the same for each {last}")
    made.apply("vectorize", last, reason=f"{last} is contiguous")
    if _sums_in_memory(made):
        made.apply(
            "jam", names[-1], COLUMN_ROWS, reason="sums of few elements stay in registers, exact enough in their type"
        )
    if around:
        _use_threads(made, work, around)


def _sums_in_memory(made: Schedule) -> bool:
    """Whether few statements add floats to accumulators in memory, so that those cost the most."""
    loops, last = made.loops, made.loops.index_names[-1]
    if len(loops.body) > MAX_JAMMED_STATEMENTS or not isinstance(loops.inner[-1], int) or loops.inner[-1] < COLUMN_ROWS:
        return False
    sums = any(isinstance(s, ir.Reduce) and s.op == "sum" and s.dtype.is_floating_point for s in loops.body)
    return sums and not loads_float16(loops) and any(is_around_lanes(made.nest, loop) for loop in made.nest.find(last))


def _schedule_rows(made: Schedule, kind: KernelKind, work: Int) -> None:
    loops = made.loops
    names, rank = loops.index_names, len(loops.outer)
    around, length = [*names[:rank]], loops.inner[-1]
    if kept := sorted(values_to_store(loops)):
        made.apply("keep", *kept, reason="cheaper to read again than to compute again")
    if kind == "short rows":
        row = around[-1]
        made.apply("split", row, rows_per_tile(loops), reason="a sweep waits for the one before: several rows overlap")
        made.apply("distribute", row, reason="each sweep covers all rows of a block")
        around[-1] = f"{row}_tile"
    if kind == "mix order":
        row = around[-1]
        made.apply("split", row, COLUMN_ROWS, reason="sums of few rows fit the L1 cache")
        made.apply("partial", row, reason="sums of few rows are exact enough in the element type")
        around = around[:1]
    last = names[-1]
    is_long = bool(loops.scans) or not (isinstance(length, int) and length <= SUM_BLOCK)
    if loops.scans:
        are_sums = all(s.op == "sum" and s.dtype is torch.float32 for s in loops.scans)
        size = SUMMED_BLOCK if are_sums else SCAN_BLOCK
        made.apply("split", last, size, reason="what passes between a scan and other loops fits the L1 cache")
        made.apply("distribute", last, reason="only the scan itself needs the elements in order")
    elif is_long:
        made.apply("split", last, SUM_BLOCK, reason="sums of float32 are added in float64 from block to block")
    elif len(loops.inner) > 1 and SHORT_ROWS * length < SUM_BLOCK and hint(loops.inner[-2]) * length > SUM_BLOCK:
        made.apply("split", names[-2], SUM_BLOCK // length, reason="the lanes of several short rows are combined once")
    made.apply("vectorize", last, reason="the last index of a row is contiguous")
    if kind != "rows" or isinstance(loops.outer_numel, Size) or loops.outer_numel >= MIN_PARALLEL_ROWS:
        _use_threads(made, work, around)
        return
    free = dict.fromkeys(n.index for n in walk(made.nest.body) if isinstance(n, For) and n.index not in names[:rank])
    inner = [index for index in free if not any(loop.index == index for loop in made.nest.in_blocks)]
    if work and inner and _has_sweep_without_scan(loops):
        at_call = {"condition": _condition(work)} if isinstance(work, Size) else {}
        made.apply("parallelize", inner[0], reason="rows are too few: threads share each of them", **at_call)


def _has_sweep_without_scan(loops: ir.Loops) -> bool:
    return any(
        sweep.inner and not any(isinstance(s, ir.Scan) for s in (*sweep.recomputed, *sweep.inner))
        for sweep in ir.sweeps(loops)
    )


def _use_threads(made: Schedule, work: Int, indices: list[str]) -> None:
    """Distributes loops over threads, if the kernel is expensive enough; at the call, if its sizes are symbolic."""
    if isinstance(work, Size):
        reason = "the work is known at the call"
        made.apply("parallelize", *indices, condition=_condition(work), reason=reason)
    elif work:
        made.apply("parallelize", *indices, reason=f"the kernel costs {work:,} additions, loads and stores")


def _work(loops: ir.Loops) -> Int:
    """Returns the cost of a kernel if that is enough for several threads, else 0."""
    if loops.scatters and not last_index_is_disjoint(loops):
        return 0
    work = cost(loops)
    return work if isinstance(work, Size) or work >= PARALLEL_COST else 0


def _condition(work: Int) -> str:
    return f"{work} >= {PARALLEL_COST}"


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
    accesses = [s.address for s in loops.body if isinstance(s, (ir.Load, ir.Store)) and loops.is_inner(s)]
    inner = [loops.far_strides(address) for address in accesses]
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


def cost(loops: ir.Loops) -> Int:
    """Returns the approximate number of additions, loads and stores of one run of the kernel."""
    total: Int = 0
    for statement in loops.body:
        inner = isinstance(statement, ir.Reduce) or loops.is_inner(statement)
        each = ir.OPS[statement.op].cost if isinstance(statement, ir.Compute) else 1
        total = total + each * loops.outer_numel * (loops.inner_numel if inner else 1)
    return total


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
    # the last index first: its loop has no conditions then, and those of other indices are the same for a vector
    for at, ends in sorted(found.items(), reverse=True):
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
    """Whether the loops have fewer operations than loads and stores, and load only values of 4 bytes."""
    operations = sum(ir.OPS[s.op].cost for s in loops.body if isinstance(s, ir.Compute))
    loads = [s for s in loops.body if isinstance(s, ir.Load)]
    stores = sum(isinstance(s, ir.Store) for s in loops.body)
    return operations < len(loads) + stores and all(s.dtype.itemsize == 4 for s in loads)


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
