"""Splits loop nests of which a GPU would run too few programs, by reductions that are split, or by their passes.

Split reductions reduce each part to a partial result, then combine the partials.  A variance, which is a sum of squared
deviations from the mean, needs the mean first.  Its parts use the deviations from their own mean, so that one pass
computes both, and a correction is added when the parts are combined::

    sum over all of (x - mean)**2  =  sum over parts of (sum over the part of (x - mean of the part)**2
                                                         + size of the part * (mean of the part - mean)**2)

Neither side subtracts nearly equal numbers, so there is no cancellation.  (The method is that of Chan, Golub and
LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from compiler_core.loops import ir
from compiler_core.loops.ir import affine
from compiler_core.loops.schedule.block_sizes import (
    choose_blocks,
    current_rules,
    has_strided_rows,
    parts_that_fit,
    program_count,
    shape_for_triton,
    smallest_element_bytes,
)
from compiler_core.support import texts
from compiler_core.support.size_expr import Int, hint, prod


def add_partial_buffers(loops: ir.Loops, parts: Int, buffers: dict[str, ir.Buffer]) -> dict[str, str]:
    """Adds a buffer of shape ``[parts, outer]`` to `buffers` for each reduction of the loops; returns their names."""
    reductions = [s for s in loops.body if isinstance(s, ir.Reduce)]
    return _add_buffers(loops, reductions, "part", (parts, loops.outer_numel), (loops.outer_numel, 1), buffers)


def _add_buffers(
    loops: ir.Loops,
    values: Sequence[ir.ValueStatement],
    what: str,
    size: tuple[Int, ...],
    stride: tuple[Int, ...],
    buffers: dict[str, ir.Buffer],
) -> dict[str, str]:
    """Adds a buffer to `buffers` for each of the loops' `values`; returns their names."""
    device = buffers[loops.writes[0]].device
    names = {}
    for s in values:
        name = names[s.name] = unused_name(f"{s.name}_{what}", loops, buffers)
        buffers[name] = ir.Buffer(name, s.dtype, size, stride, device, "loops", s.origin)
    return names


def unused_name(name: str, loops: ir.Loops, buffers: Mapping[str, ir.Buffer]) -> str:
    """Returns `name`, with underscores appended until no buffer and no value of the loops has it."""
    return texts.unused_name(name, {*buffers, *(s.name for s in loops.body if not isinstance(s, ir.Store))})


@dataclass(frozen=True)
class SquaredDeviations:
    """The operands of a sum of squared deviations: the values `x`, their sum `total`, and the `mean`."""

    x: ir.Argument
    total: str
    mean: ir.Argument


def squared_deviation_sums(loops: ir.Loops) -> dict[str, SquaredDeviations]:
    """Finds the sums of squared deviations from a value that depends on an earlier sum of the same values, by name."""
    found: dict[str, SquaredDeviations] = {}
    statements: dict[ir.Argument, ir.ValueStatement] = {}
    totals: dict[ir.Argument, str] = {}
    reduced: set[ir.Argument] = set()
    for s in loops.body:
        if isinstance(s, ir.Store) or not isinstance(loops.inner_numel, int):
            continue
        if isinstance(s, ir.Reduce) and s.op == "sum" and s.dtype.is_floating_point:
            difference = _squared_difference(s, statements)
            if difference is not None:
                x, mean = difference
                if x in totals and mean in reduced and mean not in loops.inner_names:
                    found[s.name] = SquaredDeviations(x, totals[x], mean)
            totals[s.value] = s.name
        if isinstance(s, ir.Reduce) or reduced.intersection(s.arguments):
            reduced.add(s.name)
        statements[s.name] = s
    return found


def _squared_difference(
    s: ir.Reduce, statements: dict[ir.Argument, ir.ValueStatement]
) -> tuple[ir.Argument, ir.Argument] | None:
    """Returns ``x`` and ``y`` if the sum is of ``(x - y) * (x - y)``, otherwise None."""
    square = statements.get(s.value)
    if isinstance(square, ir.Compute) and square.op == "mul" and len(set(square.arguments)) == 1:
        distance = statements.get(square.arguments[0])
        if isinstance(distance, ir.Compute) and distance.op == "sub":
            return distance.arguments[0], distance.arguments[1]
    return None


def has_only_squared_deviations(loops: ir.Loops, sweep: ir.Sweep) -> bool:
    """Whether `sweep` computes only sums of squared deviations, so that it can be part of the sweep before."""
    found = squared_deviation_sums(loops)
    return not any(isinstance(s, ir.Store) or (isinstance(s, ir.Reduce) and s.name not in found) for s in sweep.inner)


def partial_reduction(loops: ir.Loops, names: Mapping[str, str]) -> ir.Loops:
    """Returns the first half of a split reduction: `loops`, whose outer indices are the parts, up to the reductions.

    The partial results are stored in the buffers `names`, which are given by the names of the reductions.
    """
    address = affine.row_major_address(loops.outer, range(len(loops.outer)), len(loops.space))
    found = squared_deviation_sums(loops)
    body: list[ir.Statement] = []
    for s in loops.body:
        if isinstance(s, ir.Reduce) and s.name in found:
            body += _deviations_from_part_mean(s, found[s.name], loops)
        elif not isinstance(s, ir.Store) or loops.is_inner(s):
            body.append(s)
    body += [ir.Store(names[s.name], address, s.name, s.origin) for s in loops.body if isinstance(s, ir.Reduce)]
    return replace(loops, body=live_statements(body))


def _deviations_from_part_mean(s: ir.Reduce, of: SquaredDeviations, part: ir.Loops) -> list[ir.Statement]:
    """Returns statements for the sum of squared deviations from the mean of the part."""
    mean, distance, square = (unused_name(f"{s.name}_{what}", part, {}) for what in ("mean", "distance", "square"))
    return [
        _compute_like(mean, s, "div", of.total, _literal_like(part.inner_numel, s)),
        _compute_like(distance, s, "sub", of.x, mean),
        _compute_like(square, s, "mul", distance, distance),
        replace(s, value=square),
    ]


def _combine_deviations(
    s: ir.Reduce, of: SquaredDeviations, loops: ir.Loops, partial_reduction: Int, names: Mapping[str, str]
) -> list[ir.Statement]:
    """Returns statements that combine the sums of all parts, each of deviations from the part's own mean."""
    words = ("mean", "shift", "square", "more", "all")
    mean, shift, square, more, value = (unused_name(f"{s.name}_{word}", loops, {}) for word in words)
    count = _literal_like(loops.inner_numel // partial_reduction, s)
    return [
        _compute_like(mean, s, "div", names[of.total], count),
        _compute_like(shift, s, "sub", mean, of.mean),
        _compute_like(square, s, "mul", shift, shift),
        _compute_like(more, s, "mul", square, count),
        _compute_like(value, s, "add", names[s.name], more),
        replace(s, value=value),
    ]


def _compute_like(name: str, like: ir.Reduce, op: str, *arguments: ir.Argument) -> ir.Compute:
    return ir.Compute(name, like.dtype, op, arguments, like.origin)


def _literal_like(count: Int, like: ir.Reduce) -> ir.Literal:
    assert isinstance(count, int)
    return ir.Literal(float(count), like.dtype)


def combine_partials(loops: ir.Loops, partial_reduction: Int, names: Mapping[str, str]) -> ir.Loops:
    """Returns the second half of a split reduction: it combines the partials, and does what follows the reductions."""
    rank = len(loops.outer)
    found = squared_deviation_sums(loops)
    row = affine.row_major_address(loops.outer, range(rank), rank).strides
    address = ir.Address((*row, loops.outer_numel))
    body: list[ir.Statement] = []
    for s in loops.body:
        if isinstance(s, ir.Reduce):
            body.append(ir.Load(names[s.name], s.dtype, names[s.name], address, s.origin))
            if s.name in found:
                body += _combine_deviations(s, found[s.name], loops, partial_reduction, names)
            else:
                body.append(replace(s, value=names[s.name]))
        elif not loops.is_inner(s):
            body.append(ir.map_addresses(s, lambda a: replace(a, strides=(*a.strides[:rank], 0))))
    return affine.canonicalize(ir.Loops(loops.name, loops.outer, (partial_reduction,), live_statements(body)))


def live_statements(body: Iterable[ir.Statement]) -> tuple[ir.Statement, ...]:
    """Dead-code elimination that also removes positions, which another kernel of the same loops checks already."""
    return ir.eliminate_dead_code(body, also=())


def split_reductions(program: ir.Program) -> ir.Program:
    """Splits reductions of many elements to few in two kernels.

    The outer indices of a Triton kernel are divided among its programs.  If these indices are few and the inner ones
    many (a loss, the gradient of a bias), most of a GPU is idle.  A split reduction divides the inner indices too.

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

    Which ones, and into how many parts, is determined by `SizeRules`.
    """
    return _split_kernels(program, _split_reduction)


def _split_kernels(
    program: ir.Program, split: Callable[[ir.Loops, dict[str, ir.Buffer]], list[ir.Loops]]
) -> ir.Program:
    """Returns the program with each Triton kernel replaced by those that `split` makes of it, which may add buffers."""
    buffers = dict(program.buffers)
    steps: list[ir.Step] = []
    for step in program.steps:
        if isinstance(step, ir.Loops) and program.language(step) == "triton":
            steps += split(step, buffers)
        else:
            steps.append(step)
    return replace(program, steps=tuple(steps), buffers=buffers)


def _split_reduction(loops: ir.Loops, buffers: dict[str, ir.Buffer]) -> list[ir.Loops]:
    cuts = _choose_cuts(loops)
    if not cuts:
        return [loops]
    parts = prod([loops.space[cut.at] // cut.inner for cut in cuts])
    names = add_partial_buffers(loops, parts, buffers)
    return [_partial_kernel(loops, cuts, names), combine_partials(loops, parts, names)]


def _choose_cuts(loops: ir.Loops) -> list[affine.SizeSplit]:
    """Returns which inner indices to split and how; none for loops that are not split."""
    if not loops.inner or loops.scans or loops.column_stores:
        return []
    later = [sweep for sweep in ir.sweeps(loops)[1:] if sweep.inner]
    if not all(has_only_squared_deviations(loops, sweep) for sweep in later):
        return []
    running, rules = program_count(loops), current_rules()
    is_busy = running >= rules.enough_programs or hint(prod(loops.space)) <= rules.min_split_elements * running
    if is_busy and not _reads_memory_again(loops):
        return []
    least = rules.min_rows_of_part if has_strided_rows(loops) else rules.min_part
    most = min(rules.target_programs // running, hint(loops.inner_numel) // least)
    if later:  # parts that fit in registers are read once, though two sweeps need them
        most = max(most, min(2 * parts_that_fit(loops) - 1, rules.max_parts))
    return _cuts_into(min(most, hint(loops.inner_numel) // 2), loops)  # a part of one element is no reduction


def _reads_memory_again(loops: ir.Loops) -> bool:
    """Whether sums of squared deviations read long rows from memory again; parts of rows fit in registers."""
    again = [sweep for sweep in ir.sweeps(loops)[1:] if sweep.inner and has_only_squared_deviations(loops, sweep)]
    if not again or parts_that_fit(loops) == 1 or choose_blocks(shape_for_triton(loops)).j >= hint(loops.inner_numel):
        return False
    row_bytes = sum(s.dtype.itemsize for s in loops.body if isinstance(s, ir.Load) and loops.is_inner(s))
    return len(again) * row_bytes * hint(prod(loops.space)) >= current_rules().min_bytes_read_again


def _cuts_into(most: int, loops: ir.Loops) -> list[affine.SizeSplit]:
    """Returns how to divide the inner indices into at most so many parts: one of them, or several from outside in."""
    rules = current_rules()
    sizes = {at: n for at, n in enumerate(loops.space) if at >= len(loops.outer) and isinstance(n, int)}
    # parts of adjacent elements are wide enough for whole memory accesses
    wide = rules.strided_row_bytes // smallest_element_bytes(loops)
    adjacent = {at for s in loops.body if isinstance(s, ir.Load) for at in sizes if s.address.strides[at] == 1}
    counts = {at: n // (wide if at in adjacent else 1) for at, n in sizes.items()}
    single = {at: largest_divisor(n, min(most, counts[at])) for at, n in sizes.items()}
    best = max(single, key=lambda at: single[at], default=0)
    several, parts = {}, 1
    for at, n in sizes.items():
        several[at] = largest_divisor(n, min(most // parts, counts[at]), whole=True)
        parts *= several[at]
    chosen = several if parts >= 2 * single.get(best, 1) else {best: single.get(best, 1)}
    return [affine.SizeSplit(at, loops.space[at] // count) for at, count in chosen.items() if count > 1]


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


def split_passes(program: ir.Program) -> ir.Program:
    """Splits kernels that sweep over a few long rows several times into one kernel for each pass.

    The outer indices of a Triton kernel are divided among its programs.  If these indices are few (the channels of a
    batch norm) and there is more than one sweep over each row, each pass becomes a kernel that can use a whole GPU:
    reductions are split (`split_reductions`), and a pass without a reduction is divided by elements.

    >>> split("split_passes", "aten.sub(x, aten.sum(x, [1], True))", x="f32[32, 1048576]", device="cuda")
    forward_0: for i0 < 32: over j0 < 1048576:
        v0: f32 = load x[1048576*i0 + j0]
        sum_1: f32 = sum over j of v0
        sub: f32 = sub(v0, sum_1)
        store sub[1048576*i0 + j0] = sub
    ---
    forward_0_stage0: for i0 < 32: over j0 < 1048576:
        v0: f32 = load x[1048576*i0 + j0]
        sum_1: f32 = sum over j of v0
        store sum_1_of_row[i0] = sum_1
    forward_0: for i0 < 32, i1 < 1048576:
        v0: f32 = load x[1048576*i0 + i1]
        sum_1: f32 = load sum_1_of_row[i0]
        sub: f32 = sub(v0, sum_1)
        store sub[1048576*i0 + i1] = sub

    A value that a pass stores, and a later one needs, is loaded there if that takes fewer loads than to compute it
    again.
    """
    return _split_kernels(program, _pass_kernels)


def _pass_kernels(loops: ir.Loops, buffers: dict[str, ir.Buffer]) -> list[ir.Loops]:
    """Returns `loops`, or a kernel for each sweep over their rows; new buffers are added to `buffers`."""
    sweeps = ir.sweeps(loops)
    passes = _row_passes(loops, sweeps)
    if loops.column_stores or len(passes) < 2:
        return [loops]  # loops with column stores accumulate over the rows of a part, in order
    running, rules = program_count(loops), current_rules()
    strided = has_strided_rows(loops)
    least = rules.min_strided_multi_pass_elements if strided else rules.min_multi_pass_elements
    loads = sum(isinstance(s, ir.Load) and loops.is_inner(s) for s in loops.body)
    work = hint(prod(loops.space)) * max(1, loads // rules.loads_of_an_element)
    if (running >= rules.enough_programs or work < least * running) and not _reads_memory_again(loops):
        return [loops]
    kept = _add_buffers(loops, _values_of_rows(loops), "of_row", (loops.outer_numel,), (1,), buffers)
    stages = [_pass_kernel(loops, sweeps, numbers, kept) for numbers in passes]
    idle = set(kept.values()) - {name for stage in stages for name in stage.reads}
    for name in idle:
        del buffers[name]
    return [_finish_kernel(stage, idle, last=stage is stages[-1]) for stage in stages]


def _values_of_rows(loops: ir.Loops) -> list[ir.ValueStatement]:
    """Returns the reductions, and what is computed of a row with their results: later passes load it."""
    found: list[ir.ValueStatement] = []
    for s in loops.body:
        if isinstance(s, ir.Reduce):
            found.append(s)
        elif isinstance(s, ir.Compute) and s.dtype.is_floating_point and not loops.is_inner(s):
            if any(each.name in s.arguments for each in found):
                found.append(s)
    return found


def _row_passes(loops: ir.Loops, sweeps: Sequence[ir.Sweep]) -> list[range]:
    """Returns the numbers of the sweeps of each pass; sweeps that a split reduction joins are one pass."""
    passes: list[range] = []
    for k, sweep in enumerate(sweeps):
        if passes and passes[-1].stop == k and sweep.inner and has_only_squared_deviations(loops, sweep):
            passes[-1] = range(passes[-1].start, k + 1)
        elif sweep.inner:
            passes.append(range(k, k + 1))
    return passes


def _pass_kernel(loops: ir.Loops, sweeps: Sequence[ir.Sweep], numbers: range, kept: dict[str, str]) -> ir.Loops:
    """Returns the kernel of one pass: its sweeps, and the outer statements that depend on their reductions."""
    here = [s for k in numbers for s in sweeps[k].inner]
    first = 0 if numbers.start == 0 else numbers.start + 1
    here += [s for sweep in sweeps[first : numbers.stop + 1] for s in sweep.outer]
    before = [s for sweep in sweeps[: numbers.start] for s in sweep.inner]
    earlier = [*before, *(s for sweep in sweeps[:first] for s in sweep.outer)]
    stored = {s.value: s for s in before if isinstance(s, ir.Store) and s.mode == "="}
    loads = _loads_behind(loops)
    row = affine.row_major_address(loops.outer, range(len(loops.outer)), len(loops.space))
    body: list[ir.Statement] = []
    for s in loops.body:
        if isinstance(s, ir.Store):
            body += [s] if s in here else []
        elif s.name in kept and s in here:
            body += [s, ir.Store(kept[s.name], row, s.name, s.origin)]
        elif s.name in kept and s in earlier:
            body.append(ir.Load(s.name, s.dtype, kept[s.name], row, s.origin))
        elif s.name in stored and loads[s.name] > 1:
            store = stored[s.name]
            body.append(ir.Load(s.name, s.dtype, store.buffer, store.address, s.origin))
        elif s in here or not isinstance(s, ir.Reduce):
            body.append(s)
    return replace(loops, name=f"{loops.name}_stage{numbers.start}", body=live_statements(body))


def _loads_behind(loops: ir.Loops) -> dict[ir.Argument, int]:
    """Returns for each value how many loads of an inner element it depends on."""
    behind: dict[ir.Argument, set[str]] = {}
    for s in loops.body:
        if not isinstance(s, ir.Store):
            own = {s.name} if isinstance(s, ir.Load) and loops.is_inner(s) else set()
            behind[s.name] = own.union(*(behind.get(a, set()) for a in s.arguments))
    return {name: len(names) for name, names in behind.items()}


def _finish_kernel(stage: ir.Loops, idle: set[str], last: bool) -> ir.Loops:
    """Removes stores to the buffers `idle`, which nothing reads; without a reduction, makes all indices outer ones."""
    body = live_statements(s for s in stage.body if not isinstance(s, ir.Store) or s.buffer not in idle)
    name = stage.name.rpartition("_")[0] if last else stage.name
    finished = replace(stage, name=name, body=body)
    if not any(isinstance(s, (ir.Reduce, ir.Scan)) for s in body):
        finished = affine.reorder_indices(finished, range(len(finished.space)), [])
    return affine.canonicalize(finished)
