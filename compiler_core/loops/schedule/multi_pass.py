"""Splits kernels that sweep over a few long rows several times into one kernel for each pass.

The outer indices of a Triton kernel are divided among its programs.  If these indices are few (the channels of a batch
norm) and there is more than one sweep over each row, each pass becomes a kernel that can use a whole GPU: reductions
are split (`two_kernel_reduction`), and a pass without a reduction is divided by elements.

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

A value that a pass stores, and a later one needs, is loaded there if that takes fewer loads than to compute it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler_core.loops import ir
from compiler_core.loops.ir import affine
from compiler_core.loops.schedule import size_rules, split_reduction
from compiler_core.loops.schedule.block_sizes import has_strided_rows, program_count
from compiler_core.support.size_expr import hint, prod


def split_passes(program: ir.Program) -> ir.Program:
    """Splits the loops of `program` on a GPU that sweep over a few long rows several times."""
    buffers = dict(program.buffers)
    steps: list[ir.Step] = []
    for step in program.steps:
        if isinstance(step, ir.Loops) and program.language(step) == "triton":
            steps += _pass_kernels(step, buffers)
        else:
            steps.append(step)
    return replace(program, steps=tuple(steps), buffers=buffers)


def _pass_kernels(loops: ir.Loops, buffers: dict[str, ir.Buffer]) -> list[ir.Loops]:
    """Returns `loops`, or a kernel for each sweep over their rows; new buffers are added to `buffers`."""
    sweeps = ir.sweeps(loops)
    passes = _row_passes(loops, sweeps)
    if loops.column_stores or len(passes) < 2:
        return [loops]  # loops with column stores accumulate over the rows of a part, in order
    running, rules = program_count(loops), size_rules.current_rules()
    strided = has_strided_rows(loops)
    least = rules.min_strided_multi_pass_elements if strided else rules.min_multi_pass_elements
    work = hint(prod(loops.space)) * max(1, _inner_loads(loops) // rules.loads_of_an_element)
    if running >= rules.enough_programs or work < least * running:
        return [loops]
    kept = _add_row_buffers(loops, buffers)
    stages = [_pass_kernel(loops, sweeps, numbers, kept) for numbers in passes]
    idle = set(kept.values()) - {name for stage in stages for name in stage.reads}
    for name in idle:
        del buffers[name]
    return [_finish_kernel(stage, idle, last=stage is stages[-1]) for stage in stages]


def _inner_loads(loops: ir.Loops) -> int:
    return sum(isinstance(s, ir.Load) and loops.is_inner(s) for s in loops.body)


def _row_passes(loops: ir.Loops, sweeps: Sequence[ir.Sweep]) -> list[range]:
    """Returns the numbers of the sweeps of each pass; sweeps that `split_reduction` joins are one pass."""
    passes: list[range] = []
    for k, sweep in enumerate(sweeps):
        if (
            passes
            and passes[-1].stop == k
            and sweep.inner
            and split_reduction.has_only_squared_deviations(loops, sweep)
        ):
            passes[-1] = range(passes[-1].start, k + 1)
        elif sweep.inner:
            passes.append(range(k, k + 1))
    return passes


def _add_row_buffers(loops: ir.Loops, buffers: dict[str, ir.Buffer]) -> dict[str, str]:
    """Adds a buffer with an element for each row for each reduction; returns their names."""
    device = buffers[loops.writes[0]].device
    names = {}
    for s in loops.body:
        if isinstance(s, ir.Reduce):
            name = split_reduction.unused_name(f"{s.name}_of_row", loops, buffers)
            names[s.name] = name
            buffers[name] = ir.Buffer(name, s.dtype, (loops.outer_numel,), (1,), device, "loops", s.origin)
    return names


def _pass_kernel(loops: ir.Loops, sweeps: Sequence[ir.Sweep], numbers: range, kept: dict[str, str]) -> ir.Loops:
    """Returns the kernel of one pass: its sweeps, and the outer statements that depend on their reductions."""
    here = [s for k in numbers for s in sweeps[k].inner]
    first = 0 if numbers.start == 0 else numbers.start + 1
    here += [s for sweep in sweeps[first : numbers.stop + 1] for s in sweep.outer]
    before = [s for sweep in sweeps[: numbers.start] for s in sweep.inner]
    done = {s.name for s in before if isinstance(s, ir.Reduce)}
    stored = {s.value: s for s in before if isinstance(s, ir.Store) and s.mode == "="}
    loads = _loads_behind(loops)
    row = affine.row_major_address(loops.outer, range(len(loops.outer)), len(loops.space))
    body: list[ir.Statement] = []
    for s in loops.body:
        if isinstance(s, ir.Reduce) and s.name in done:
            body.append(ir.Load(s.name, s.dtype, kept[s.name], row, s.origin))
        elif isinstance(s, ir.Reduce) and s in here:
            body += [s, ir.Store(kept[s.name], row, s.name, s.origin)]
        elif not isinstance(s, ir.Store) and s.name in stored and loads[s.name] > 1:
            store = stored[s.name]
            body.append(ir.Load(s.name, s.dtype, store.buffer, store.address, s.origin))
        elif not isinstance(s, (ir.Reduce, ir.Store)) or s in here:
            body.append(s)
    return replace(loops, name=f"{loops.name}_stage{numbers.start}", body=split_reduction.live_statements(body))


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
    body = split_reduction.live_statements(s for s in stage.body if not isinstance(s, ir.Store) or s.buffer not in idle)
    name = stage.name.rpartition("_")[0] if last else stage.name
    finished = replace(stage, name=name, body=body)
    if not any(isinstance(s, (ir.Reduce, ir.Scan)) for s in body):
        finished = affine.reorder_indices(finished, range(len(finished.space)), [])
    return affine.canonicalize(finished)
