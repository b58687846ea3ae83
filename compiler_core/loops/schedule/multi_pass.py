"""A few long rows that are gone through several times, as one kernel for each time.

A Triton kernel's programs share out the outer indices.  Where these are few (the channels of a
batch norm) and each row is gone through more than once, the times become kernels of their own,
each of which can keep a whole GPU busy: reductions are cut in parts (`split`), and what needs no
reduction any more is shared out by elements::

    norm: for i0 < 32: over j0 < 1048576:         norm_stage0: for i0 < 32: over j0 < 1048576:
        x = load x[1048576*i0 + j0]                   x = load x[1048576*i0 + j0]
        sum = sum over j of x                         sum = sum over j of x
        y = sub(x, sum)                               store sum_of_row[i0] = sum
        store out[1048576*i0 + j0] = y            norm: for i0 < 32, i1 < 1048576:
                                                      sum = load sum_of_row[i0]
                                                      x = load x[1048576*i0 + i1]
                                                      ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler_core.loops import ir
from compiler_core.loops.ir import affine
from compiler_core.loops.schedule import size_rules, split_reduction
from compiler_core.loops.schedule.block_sizes import programs
from compiler_core.support.size_expr import hint, prod


def in_stages(program: ir.Program) -> ir.Program:
    """`program`, with kernels for each time in place of loops on a GPU that go through a few long rows several
    times."""
    buffers = dict(program.buffers)
    steps: list[ir.Step] = []
    for step in program.steps:
        if isinstance(step, ir.Loops) and program.language(step) == "triton":
            steps += _stages(step, buffers)
        else:
            steps.append(step)
    return replace(program, steps=tuple(steps), buffers=buffers)


def _stages(loops: ir.Loops, buffers: dict[str, ir.Buffer]) -> list[ir.Loops]:
    """`loops`, or a kernel for each time that they go through their rows; new buffers go into `buffers`."""
    sweeps = ir.sweeps(loops)
    times = _times(loops, sweeps)
    if loops.columns or len(times) < 2:
        return [loops]  # what walks through the rows of a part keeps sums over columns on the way
    running, rules = programs(loops), size_rules.current()
    if running >= rules.enough_programs or hint(prod(loops.space)) < rules.long * running:
        return [loops]
    kept = _row_buffers(loops, buffers)
    stages = [_stage(loops, sweeps, time, kept) for time in times]
    idle = set(kept.values()) - {name for stage in stages for name in stage.reads}
    for name in idle:
        del buffers[name]
    return [_finished(stage, idle, last=stage is stages[-1]) for stage in stages]


def _times(loops: ir.Loops, sweeps: Sequence[ir.Sweep]) -> list[range]:
    """The sweeps that go through the rows; those that `split` makes one of are together."""
    times: list[range] = []
    for k, sweep in enumerate(sweeps):
        if times and times[-1].stop == k and sweep.inner and split_reduction.made_of_distances(loops, sweep):
            times[-1] = range(times[-1].start, k + 1)
        elif sweep.inner:
            times.append(range(k, k + 1))
    return times


def _row_buffers(loops: ir.Loops, buffers: dict[str, ir.Buffer]) -> dict[str, str]:
    """A new buffer, with an element for each row, for each reduction."""
    device = buffers[loops.writes[0]].device
    names = {}
    for s in loops.body:
        if isinstance(s, ir.Reduce):
            names[s.name] = name = split_reduction.unused(f"{s.name}_of_row", loops, buffers)
            buffers[name] = ir.Buffer(name, s.dtype, (loops.outer_numel,), (1,), device, "loops", s.origin)
    return names


def _stage(loops: ir.Loops, sweeps: Sequence[ir.Sweep], time: range, kept: dict[str, str]) -> ir.Loops:
    """What the sweeps of one time do, and the outer statements that were waiting for them."""
    here = [s for k in time for s in sweeps[k].inner]
    first = 0 if time.start == 0 else time.start + 1
    here += [s for sweep in sweeps[first : time.stop + 1] for s in sweep.outer]
    done = {s.name for sweep in sweeps[: time.start] for s in sweep.inner if isinstance(s, ir.Reduce)}
    row = affine.contiguous(loops.outer, range(len(loops.outer)), len(loops.space))
    body: list[ir.Statement] = []
    for s in loops.body:
        if isinstance(s, ir.Reduce) and s.name in done:
            body.append(ir.Load(s.name, s.dtype, kept[s.name], row, s.origin))
        elif isinstance(s, ir.Reduce) and s in here:
            body += [s, ir.Store(kept[s.name], row, s.name, s.origin)]
        elif not isinstance(s, (ir.Reduce, ir.Store)) or s in here:
            body.append(s)
    return replace(loops, name=f"{loops.name}_stage{time.start}", body=split_reduction.needed(body))


def _finished(stage: ir.Loops, idle: set[str], last: bool) -> ir.Loops:
    """Without what nobody reads; without a reduction, no index needs to be an inner one."""
    body = split_reduction.needed(s for s in stage.body if not isinstance(s, ir.Store) or s.buffer not in idle)
    name = stage.name.rpartition("_")[0] if last else stage.name
    made = replace(stage, name=name, body=body)
    if not any(isinstance(s, (ir.Reduce, ir.Scan)) for s in body):
        made = affine.arrange(made, range(len(made.space)), [])
    return affine.simplify(made)
