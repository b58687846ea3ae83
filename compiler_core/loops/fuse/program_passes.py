"""The passes over a whole program that follow the fusion rules: mix-order reductions, then horizontal fusion."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from compiler_core.loops import ir
from compiler_core.loops.fuse.matching import ColumnMatch, divide_rows, match_columns, merge_bodies
from compiler_core.loops.fuse.rewriter import FusionRequests, FusionResult, Refusal, Rewrite, traffic
from compiler_core.loops.fuse.rules import MAX_ARGUMENTS, MAX_STATEMENTS
from compiler_core.loops.ir import affine
from compiler_core.loops.schedule.block_sizes import MixOrderLimits, current_rules, has_strided_rows
from compiler_core.loops.schedule.cpu import has_contiguous_outer
from compiler_core.loops.schedule.splitting import add_partial_buffers, combine_partials
from compiler_core.support.size_expr import Int, hint, prod

CPU_LIMITS = MixOrderLimits(max_parts=64, min_parts=16, min_rows=16, min_elements=1 << 13)
"""The limits for C++ kernels: several parts for each thread; for fewer than `min_elements` elements, parts do not pay.

The limits for GPUs are `SizeRules.mix_order`.
"""
MAX_COLUMN_SUMS = 16384
"""The largest number of column sums that a program keeps in registers, or a thread in the caches of its core."""


def fuse_mix_order_reductions(fused: FusionResult, requests: FusionRequests) -> FusionResult:
    """Mix-order reductions: reduces the same tensors over rows and over columns in one kernel, or notes why not.

    The gradient of a norm needs sums over each row of two tensors, and the gradients of its weight and bias need sums
    over each column of the same tensors.  The reduction over columns becomes a split reduction, each part of which
    has some rows (as in `split_reductions`).  Its first half joins the loops over rows: each program (on the CPU:
    each thread) runs through the rows of a part in order and accumulates the columns.

    >>> fused("columns", "[aten.amax(x, [1]), aten.sum(x, [0])]", x="f32[8192, 512]", device="cuda")
    amax: for i0 < 8192: over j0 < 512:
        v0: f32 = load x[512*i0 + j0]
        amax: f32 = max over j of v0
        store amax[i0] = amax
    sum_1: for i0 < 512: over j0 < 8192:
        v2: f32 = load x[i0 + 512*j0]
        sum_1: f32 = sum over j of v2
        store sum_1[i0] = sum_1
    ---
    forward_0: for i0 < 512, i1 < 16: over j0 < 512:
        v0: f32 = load x[8192*i0 + 512*i1 + j0]
        amax: f32 = max over j of v0
        store amax[16*i0 + i1] = amax
        store sum_1_part[512*i0 + j0] = sum over i of v0
    forward_1: for i0 < 512: over j0 < 512:
        sum_1_part: f32 = load sum_1_part[i0 + 512*j0]
        sum_1: f32 = sum over j of sum_1_part
        store sum_1[i0] = sum_1

    More columns can join the same rows: the gradients of weight and bias of a norm, and of a bias before it.  On a GPU,
    rows may have several indices, of which the columns may keep some (see `matching`).

    The number of parts depends on the sizes alone, so the result does not depend on how parts are scheduled.
    """
    joined: dict[str, ir.Loops] = {}
    """The rows that have been joined with columns, by name: other columns can join them, too."""
    for rows, columns in _pairs(fused.program):
        rows = joined.get(rows.name, rows)
        if len(_positions(fused.program, rows, columns)) < 2:  # one of them is part of another kernel now
            continue
        request = requests.between(rows, columns)
        limits = CPU_LIMITS if fused.program.language(rows) == "cpp" else current_rules().mix_order
        if request == "force_fuse":
            limits = replace(limits, min_parts=2, min_elements=0, min_concurrent_elements=0)
        outcome: FusionResult | Refusal = Refusal("asked", "you asked to keep them apart")
        if request != "keep_apart":
            outcome = _fuse_pair(fused, rows, columns, limits)
        if isinstance(outcome, Refusal):
            first, second = (fused.program.steps[at].name for at in _positions(fused.program, rows, columns))
            others = _refusals_of_others(fused, rows, columns)
            fused = replace(fused, refusals=(*others, (first, second, outcome)))
        else:
            fused = outcome
            joined |= {s.name: s for s in fused.program.steps if isinstance(s, ir.Loops) and s.name == rows.name}
    return fused


def _pairs(program: ir.Program) -> Iterator[tuple[ir.Loops, ir.Loops]]:
    """Yields loop nests that reduce rows, each with those that may reduce columns of the same elements."""
    loops = [s for s in program.steps if isinstance(s, ir.Loops) and s.outer and s.inner and _reduction_count(s)]
    by_size: dict[Int, list[ir.Loops]] = {}
    for columns in loops:
        if not columns.scans and not any(sweep.inner for sweep in ir.sweeps(columns)[1:]):
            by_size.setdefault(prod(columns.space), []).append(columns)
    for rows in loops:
        by_columns = has_strided_rows if program.language(rows) == "triton" else has_contiguous_outer
        if not by_columns(rows):
            others = [c for c in by_size.get(prod(rows.space), ()) if c is not rows and _may_join(rows, c)]
            # the parts for those with the most results suit the others, too
            yield from ((rows, c) for c in sorted(others, key=lambda c: -hint(c.outer_numel)))


def _positions(program: ir.Program, rows: ir.Loops, columns: ir.Loops) -> list[int]:
    return [at for at, s in enumerate(program.steps) if s is rows or s is columns]


def _may_join(rows: ir.Loops, columns: ir.Loops) -> bool:
    """Whether the second reads a tensor that the first reads or writes, and the first reads nothing of the second."""
    return not set(rows.arguments).isdisjoint(columns.reads) and set(rows.reads).isdisjoint(columns.writes)


def _reduction_count(loops: ir.Loops) -> int:
    return sum(isinstance(s, ir.Reduce) for s in loops.body)


def _choose_parts(rows: ir.Loops, columns: ir.Loops, limits: MixOrderLimits) -> ColumnMatch | Refusal:
    """Returns the match, with the rows divided into parts, or why they cannot be divided."""
    elements, length = prod(rows.space), prod(rows.inner)
    if not isinstance(elements, int) or not isinstance(length, int):
        return Refusal("columns", "the numbers of rows and columns are symbolic")
    if length * (_reduction_count(columns) + len(rows.column_stores)) > MAX_COLUMN_SUMS:
        return Refusal("columns", f"each part would accumulate more than {MAX_COLUMN_SUMS:,} sums over columns")
    if elements < limits.min_elements:
        return Refusal("columns", f"fewer than {limits.min_elements:,} elements can be read twice at no extra cost")
    other = Refusal("address", f"{columns.name} does not access the rows that {rows.name} does")
    matched = match_columns(rows, columns, rows.sequential_rank)
    if matched is None or matched.sequential:
        return matched or other
    count = hint(matched.row_count)
    kept = elements // length // count
    matched = divide_rows(matched, columns, min(limits.max_parts // kept, count // limits.min_rows))
    if matched is None:
        return other
    programs, parts = hint(matched.program_count), hint(matched.part_count)
    if programs < limits.min_parts or count // parts < limits.min_rows:
        few = f"{limits.min_parts} or more parts of at least {limits.min_rows} each"
        return Refusal("columns", f"{count:,} rows cannot be divided into {few}")
    too_few = programs * max(length, current_rules().block) < limits.min_concurrent_elements
    if elements > limits.few_elements and too_few:
        return Refusal("columns", f"{programs} parts of {count // parts:,} rows each keep only a part of a GPU busy")
    return matched


def _common_position(program: ir.Program, rows: ir.Loops, columns: ir.Loops) -> int | None:
    """Returns the position, among the other steps, at which both can run: that of the first or the last, or None."""
    first, last = _positions(program, rows, columns)
    between = program.steps[first + 1 : last]
    if any(isinstance(s, ir.Call) and s.barrier for s in between):
        return None
    if not any(_are_dependent(s, program.steps[last]) for s in between):
        return first
    return None if any(_are_dependent(program.steps[first], s) for s in between) else last - 1


def _are_dependent(step: ir.Step, other: ir.Step) -> bool:
    """Whether two steps access a buffer that one of them writes, so that their order matters."""
    accessed, written = {*step.reads, *step.writes}, {*step.writes}
    return not accessed.isdisjoint(other.writes) or not written.isdisjoint(other.reads)


def _fuse_pair(
    fused: FusionResult, rows: ir.Loops, columns: ir.Loops, limits: MixOrderLimits
) -> FusionResult | Refusal:
    """Returns the program with the pair as one kernel, and a small one that combines the parts; or why not."""
    program = fused.program
    matched = _choose_parts(rows, columns, limits)
    if isinstance(matched, Refusal):
        return matched
    if program.language(rows) == "cpp" and (len(matched.rows.outer), len(matched.rows.inner)) != (2, 1):
        return Refusal("columns", "rows or columns have several indices")
    position = _common_position(program, rows, columns)
    if position is None:
        return Refusal("cycle", "a step between the two needs the first and is needed by the second")
    by_part, parts = matched.rows, matched.part_count
    buffers = dict(program.buffers)
    names = add_partial_buffers(columns, parts, buffers)
    sums = _partial_column_sums(columns, matched, names)
    stored = {s.buffer: s for s in by_part.body if isinstance(s, ir.Store)}
    flows = [s for s in sums if isinstance(s, ir.Load) and s.buffer in stored]
    loads = {(s.buffer, s.address) for s in by_part.body if isinstance(s, ir.Load)}
    common = {s.buffer for s in sums if isinstance(s, ir.Load) and (s.buffer, s.address) in loads}
    common.update(s.buffer for s in flows)
    if not common or any(s.address != stored[s.buffer].address or s.within for s in flows):
        return Refusal("address", f"{columns.name} does not access the rows that {rows.name} does")
    steps = [s for s in program.steps if s is not rows and s is not columns]
    needed = {r.buffer for r in program.results if isinstance(r, ir.TensorView)}.union(*(s.reads for s in steps))
    kept = [s for s in by_part.body if not isinstance(s, ir.Store) or s.reduction or s.buffer in needed]
    joined = replace(by_part, body=merge_bodies(kept, sums, {s.buffer: stored[s.buffer].value for s in flows}))
    ir.check(joined)
    left = combine_partials(columns, parts, names)
    saved = traffic((rows, columns), buffers) - traffic((joined, left), buffers)
    if saved <= 0:
        return Refusal("columns", "the partial results would be as large as what both read")
    steps[position:position] = [joined, left]
    reason = f"reduces over the columns of what {rows.name} reads by rows"
    note = Rewrite("columns", (rows.name, columns.name), rows.name, reason, saved)
    history = {**fused.rewrites_by_loops, rows.name: (*fused.rewrites_by_loops.get(rows.name, ()), note)}
    others = _refusals_of_others(fused, rows, columns)
    return FusionResult(replace(program, steps=tuple(steps), buffers=buffers), (*fused.rewrites, note), history, others)


def _partial_column_sums(columns: ir.Loops, matched: ColumnMatch, names: dict[str, str]) -> list[ir.Statement]:
    """Returns the loops over columns up to their reductions, which become stores over the rows of a part."""
    rank = len(matched.rows.space)
    part = affine.row_major_address([matched.rows.outer[k] for k in matched.part_indices], matched.part_indices, rank)
    result = ir.Store("", affine.row_major_address(columns.outer, range(len(columns.outer)), len(columns.space)), "")
    (column,) = ir.addresses(*affine.substitute_indices([result], matched.index_map, rank))
    address = column + part * columns.outer_numel
    moved = affine.substitute_indices(columns.body, matched.index_map, rank)
    after: set[ir.Argument] = set()
    body: list[ir.Statement] = []
    for statement, before in zip(moved, columns.body, strict=True):
        if isinstance(statement, ir.Reduce):
            after.add(statement.name)
            body.append(
                ir.Store(names[statement.name], address, statement.value, statement.origin, reduction=statement.op)
            )
        elif after.intersection(statement.arguments):
            after.update(() if isinstance(statement, ir.Store) else (statement.name,))
        elif not isinstance(statement, ir.Store) or columns.is_inner(before):
            body.append(statement)
    return body


def _refusals_of_others(fused: FusionResult, rows: ir.Loops, columns: ir.Loops) -> tuple[tuple[str, str, Refusal], ...]:
    return tuple(r for r in fused.refusals if {*r[:2]} != {rows.name, columns.name})


MAX_ARGUMENTS_OF_ONE = 256
"""The most buffers of loops over one element that share a kernel: a GPU kernel's arguments have at most 4,096 bytes."""
MAX_STATEMENTS_OF_ONE = 1024
"""The most statements of such loops, whose values need few registers."""

Shape = tuple[torch.device, tuple[Int, ...], tuple[Int, ...]]


def fuse_horizontally(fused: FusionResult, requests: FusionRequests) -> FusionResult:
    """Horizontal fusion: joins small kernels that do not depend on each other.

    A kernel that takes less time than its launch, such as the one that counts the batches of a batch norm, costs the
    time of a launch.  A network has one such kernel for each layer, and Adam one for each parameter, which differ in
    their tensors only.  Kernels over the same iteration domain share a launch, at the position of the first:

    >>> fused("horizontal", "[aten.exp(x), aten.sin(y)]", x="f32[8]", y="f32[8]", device="cuda")
    exp: for i0 < 8:
        v0: f32 = load x[i0]
        exp: f32 = exp(v0)
        store exp[i0] = exp
    sin: for i0 < 8:
        v2: f32 = load y[i0]
        sin: f32 = sin(v2)
        store sin[i0] = sin
    ---
    forward_0: for i0 < 8:
        v0: f32 = load x[i0]
        exp: f32 = exp(v0)
        store exp[i0] = exp
        v2: f32 = load y[i0]
        sin: f32 = sin(v2)
        store sin[i0] = sin
    """
    program = fused.program
    groups: dict[int, list[ir.Loops]] = {}
    """The loops that become one kernel, by the position of the first of them."""
    positions: dict[Shape, list[int]] = defaultdict(list)
    """The positions that loops of a shape can move to: those since the last barrier."""
    written: dict[str, int] = {}
    for at, step in enumerate(program.steps):
        position = at
        if isinstance(step, ir.Call) and step.barrier:
            positions.clear()
        if isinstance(step, ir.Loops) and _is_small(program, step):
            candidates = positions[program.device(step), step.outer, step.inner]
            last_dependency = max((written.get(b, -1) for b in step.needs), default=-1)
            # results of more than one element stay close to the steps that read them
            near = candidates if prod(step.space) == 1 else candidates[-1:]
            position = next((p for p in near if p > last_dependency and _may_share(groups[p], step, requests)), at)
            if position == at:
                candidates.append(at)
            groups.setdefault(position, []).append(step)
        written.update(dict.fromkeys(step.writes, position))
    joined = {each.name for group in groups.values() for each in group[1:]}
    steps = [_merge_small_loops(groups[at]) if len(groups.get(at, ())) > 1 else s for at, s in enumerate(program.steps)]
    program = program.with_steps([s for s in steps if s.name not in joined])
    notes = [
        Rewrite("companion", (first.name, each.name), first.name, "both are small and alike", 0)
        for first, *others in groups.values()
        for each in others
    ]
    history = dict(fused.rewrites_by_loops)
    for note in notes:
        kept, gone = note.before
        history[kept] = (*history.get(kept, ()), *history.pop(gone, ()), note)
    into = {note.before[1]: note.after for note in notes}
    refusals = ((into.get(first, first), into.get(second, second), why) for first, second, why in fused.refusals)
    return FusionResult(program, (*fused.rewrites, *notes), history, tuple(r for r in refusals if r[0] != r[1]))


def _is_small(program: ir.Program, loops: ir.Loops) -> bool:
    """Whether the loops take less time than to launch them: on the CPU that is only true of a single element."""
    numel = prod(loops.space)
    most = current_rules().max_horizontal_elements if program.language(loops) == "triton" else 1
    return not loops.column_stores and not loops.scatters and isinstance(numel, int) and numel <= most


def _may_share(group: Sequence[ir.Loops], loops: ir.Loops, requests: FusionRequests) -> bool:
    """Whether a kernel of all is not too large, and the user did not ask to keep two of them apart."""
    one = prod(loops.space) == 1
    together = [*group, loops]
    return (
        len({a for each in together for a in each.arguments}) <= (MAX_ARGUMENTS_OF_ONE if one else MAX_ARGUMENTS)
        and sum(len(each.body) for each in together) <= (MAX_STATEMENTS_OF_ONE if one else MAX_STATEMENTS)
        and all(requests.between(each, loops) != "keep_apart" for each in group)
    )


def _merge_small_loops(group: Sequence[ir.Loops]) -> ir.Loops:
    first, *others = group
    joined = replace(first, body=merge_bodies(first.body, [s for each in others for s in each.body], {}))
    ir.check(joined)
    return joined
