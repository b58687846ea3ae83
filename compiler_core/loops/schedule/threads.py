"""Decides which loops of a C++ kernel run on several threads (OpenMP)."""

from __future__ import annotations

from dataclasses import dataclass

from compiler_core.loops import ir
from compiler_core.support.size_expr import Int, Size

PARALLEL_COST = 1 << 19
"""Kernels that cost less (in additions, loads and stores) run on one thread."""
MIN_PARALLEL_ROWS = 8
"""With fewer outer indices, threads share the inner loop of each row instead."""


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
    in_rows = bool(loops.inner) and not ir.has_contiguous_outer(loops) and not over_rows
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
    """Returns whether loops that scatter write to different addresses for different values of the last index."""
    if not loops.outer:
        return False
    addresses = [s.address for s in loops.body if isinstance(s, ir.Store) and s.mode != "="]
    return all(_last_index_fits(a, loops.outer[-1]) for a in addresses)


def _last_index_fits(address: ir.Address, size: Int) -> bool:
    """Returns whether the last index has stride 1 and all other strides are multiples of its size."""
    *others, last = address.strides
    steps = [s for s in (*others, *(factor for _, factor in address.values)) if s != 0]
    return last == 1 and all(divmod(s, size)[1] == 0 for s in steps)
