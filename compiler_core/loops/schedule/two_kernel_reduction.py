"""Reductions of many elements to few, in two kernels.

The outer indices of a Triton kernel are divided among its programs.  If these indices are few and the inner ones many
(a loss, the gradient of a bias), most of a GPU is idle.  A split reduction divides the inner indices too.

>>> split("split_reductions", "aten.sum(x)", x="f32[4194304]", device="cuda")
forward_0: for (): over j0 < 4194304:
    v0: f32 = load x[j0]
    sum_1: f32 = sum over j of v0
    store sum_1[0] = sum_1
---
forward_0_parts: for i0 < 512: over j0 < 8192:
    v0: f32 = load x[8192*i0 + j0]
    sum_1: f32 = sum over j of v0
    store sum_1_part[i0] = sum_1
forward_0: for (): over j0 < 512:
    sum_1_part: f32 = load sum_1_part[j0]
    sum_1: f32 = sum over j of sum_1_part
    store sum_1[0] = sum_1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from compiler_core.loops import ir
from compiler_core.loops.ir import affine
from compiler_core.loops.schedule import size_rules
from compiler_core.loops.schedule.block_sizes import (
    has_strided_rows,
    parts_that_fit,
    program_count,
    smallest_element_bytes,
)
from compiler_core.loops.schedule.split_reduction import (
    add_partial_buffers,
    combine_partials,
    has_only_squared_deviations,
    partial_reduction,
)
from compiler_core.support.size_expr import hint, prod


def split_reductions(program: ir.Program) -> ir.Program:
    """Splits the reductions of `program` on a GPU that would run in a few programs only.

    Which ones, and into how many parts, is determined by `SizeRules`.
    """
    steps: list[ir.Step] = []
    buffers = dict(program.buffers)
    for step in program.steps:
        cuts = _choose_cuts(step) if isinstance(step, ir.Loops) and program.language(step) == "triton" else []
        if isinstance(step, ir.Loops) and cuts:
            parts = prod([step.space[cut.at] // cut.inner for cut in cuts])
            names = add_partial_buffers(step, parts, buffers)
            steps += [_partial_kernel(step, cuts, names), combine_partials(step, parts, names)]
        else:
            steps.append(step)
    return replace(program, steps=tuple(steps), buffers=buffers)


def _choose_cuts(loops: ir.Loops) -> list[affine.SizeSplit]:
    """Returns which inner indices to split and how; none for loops that are not split."""
    if not loops.inner or loops.scans or loops.column_stores:
        return []
    later = [sweep for sweep in ir.sweeps(loops)[1:] if sweep.inner]
    if not all(has_only_squared_deviations(loops, sweep) for sweep in later):
        return []
    running, rules = program_count(loops), size_rules.current_rules()
    if running >= rules.enough_programs or hint(prod(loops.space)) <= rules.min_split_elements * running:
        return []
    least = rules.min_rows_of_part if has_strided_rows(loops) else rules.min_part
    most = min(rules.target_programs // running, hint(loops.inner_numel) // least)
    if later:  # parts that fit in registers are read once, though two sweeps need them
        most = max(most, min(2 * parts_that_fit(loops) - 1, rules.max_parts))
    return _cuts_into(min(most, hint(loops.inner_numel) // 2), loops)  # a part of one element is no reduction


def _cuts_into(most: int, loops: ir.Loops) -> list[affine.SizeSplit]:
    """Returns how to divide the inner indices into at most so many parts: one of them, or several from outside in."""
    rules = size_rules.current_rules()
    sizes = {at: n for at, n in enumerate(loops.space) if at >= len(loops.outer) and isinstance(n, int)}
    # parts of adjacent elements are wide enough for whole memory accesses
    wide = rules.strided_row_bytes // smallest_element_bytes(loops)
    counts = {at: n // (wide if _is_adjacent(loops, at) else 1) for at, n in sizes.items()}
    single = {at: largest_divisor(n, min(most, counts[at])) for at, n in sizes.items()}
    best = max(single, key=lambda at: single[at], default=0)
    several, parts = {}, 1
    for at, n in sizes.items():
        several[at] = largest_divisor(n, min(most // parts, counts[at]), whole=True)
        parts *= several[at]
    chosen = several if parts >= 2 * single.get(best, 1) else {best: single.get(best, 1)}
    return [affine.SizeSplit(at, loops.space[at] // count) for at, count in chosen.items() if count > 1]


def _is_adjacent(loops: ir.Loops, at: int) -> bool:
    """Whether a load is contiguous in the index with number `at`."""
    return any(isinstance(s, ir.Load) and s.address.strides[at] == 1 for s in loops.body)


def largest_divisor(size: int, most: int, whole: bool = False) -> int:
    """Returns the largest divisor of `size` that is at most `most`, or 1; `size` itself only if it may be `whole`."""
    return next((d for d in range(min(size if whole else size // 2, most), 1, -1) if size % d == 0), 1)


def _partial_kernel(loops: ir.Loops, cuts: Sequence[affine.SizeSplit], names: Mapping[str, str]) -> ir.Loops:
    """Returns the kernel that reduces the parts, whose numbers are the first outer indices."""
    finer, parts = loops, list[int]()
    for cut in reversed(cuts):  # the last index first, so that the numbers of those before it stay
        if cut.inner != 1:
            finer, parts = affine.split_size(finer, cut), [k + 1 for k in parts]
        parts = [cut.at, *parts]
    outer = [*parts, *range(len(loops.outer))]
    inner = [k for k in range(len(finer.space)) if k not in outer]
    return affine.canonicalize(
        partial_reduction(replace(affine.reorder_indices(finer, outer, inner), name=f"{loops.name}_parts"), names)
    )
