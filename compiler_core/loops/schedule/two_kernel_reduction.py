"""Reductions of much to little, in two kernels.

A Triton kernel's programs share out the outer indices.  Where these are few and the inner ones
many (a loss, the gradient of a bias), most of a GPU would wait, so the inner ones are cut in
parts::

    sum_parts: for i0 < 64: over j0 < 65536:      sum: for (): over j0 < 64:
        x = load x[65536*i0 + j0]                     sum_part = load sum_part[j0]
        sum = sum over j of x                         sum = sum over j of sum_part
        store sum_part[i0] = sum                      store out[0] = sum
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiler_core.loops import ir
from compiler_core.loops.ir import affine
from compiler_core.loops.schedule import size_rules
from compiler_core.loops.schedule.block_sizes import parts_to_keep, programs
from compiler_core.loops.schedule.split_reduction import made_of_distances, partial_buffers, parts, rest
from compiler_core.support.size_expr import hint, prod


def split_reductions(program: ir.Program) -> ir.Program:
    """`program`, in which loops on a GPU that would keep only a few programs busy have become two."""
    steps: list[ir.Step] = []
    buffers = dict(program.buffers)
    for step in program.steps:
        cut = _cut(step) if isinstance(step, ir.Loops) and program.language(step) == "triton" else None
        if isinstance(step, ir.Loops) and cut is not None:
            names = partial_buffers(step, step.space[cut.at] // cut.inner, buffers)
            steps += [_parts(step, cut, names), rest(step, step.space[cut.at] // cut.inner, names)]
        else:
            steps.append(step)
    return replace(program, steps=tuple(steps), buffers=buffers)


def _cut(loops: ir.Loops) -> affine.Split | None:
    """Which inner index to cut and where, or None for loops that stay whole."""
    if not loops.inner or loops.scans or loops.columns:
        return None
    later = [sweep for sweep in ir.sweeps(loops)[1:] if sweep.inner]
    if not all(made_of_distances(loops, sweep) for sweep in later):
        return None
    running, rules = programs(loops), size_rules.current()
    if running >= rules.enough_programs or hint(prod(loops.space)) <= rules.little * running:
        return None
    most = min(rules.wanted_programs // running, hint(loops.inner_numel) // rules.least_part)
    if later:  # what is gone through twice is to be read once
        most = max(most, min(2 * parts_to_keep(loops) - 1, rules.most_parts))
    inner = [(size, at) for at, size in enumerate(loops.space) if at >= len(loops.outer) and isinstance(size, int)]
    count, at = max(((divisor(size, most), -at) for size, at in inner), default=(1, 0))
    return affine.Split(-at, loops.space[-at] // count) if count > 1 else None


def divisor(size: int, most: int) -> int:
    """The greatest divisor of `size` that is at most `most` and leaves something."""
    return next((d for d in range(min(size // 2, most), 1, -1) if size % d == 0), 1)


def _parts(loops: ir.Loops, cut: affine.Split, names: Mapping[str, str]) -> ir.Loops:
    """The reductions of the parts, which the first outer index counts."""
    finer = affine.split(loops, cut)
    outer = [cut.at, *range(len(loops.outer))]
    inner = [k for k in range(len(finer.space)) if k not in outer]
    return affine.simplify(parts(replace(affine.arrange(finer, outer, inner), name=f"{loops.name}_parts"), names))
