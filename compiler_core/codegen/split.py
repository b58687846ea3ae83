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

from collections.abc import Iterable
from dataclasses import replace

from compiler_core import ir, spaces
from compiler_core.codegen.blocks import programs
from compiler_core.sizes import Int, hint

ENOUGH_PROGRAMS = 256
WANTED_PROGRAMS = 512
"""Some four programs for each of a large GPU's multiprocessors, which all run at once."""
LEAST_PART = 256
"""Each part has at least so many elements."""


def split_reductions(program: ir.Program) -> ir.Program:
    """`program`, in which loops that would keep only a few programs busy have become two."""
    steps: list[ir.Step] = []
    buffers = dict(program.buffers)
    for step in program.steps:
        cut = _cut(step) if isinstance(step, ir.Loops) else None
        if isinstance(step, ir.Loops) and cut is not None:
            names = partial_buffers(step, step.space[cut.at] // cut.inner, buffers)
            steps += [parts(step, cut, names), rest(step, step.space[cut.at] // cut.inner, names)]
        else:
            steps.append(step)
    return replace(program, steps=tuple(steps), buffers=buffers)


def _cut(loops: ir.Loops) -> spaces.Split | None:
    """Which inner index to cut and where, or None for loops that stay whole."""
    if not loops.inner or loops.scans or any(sweep.inner for sweep in ir.sweeps(loops)[1:]):
        return None
    running = programs(loops)
    if running >= ENOUGH_PROGRAMS:
        return None
    most = min(WANTED_PROGRAMS // running, hint(loops.inner_numel) // LEAST_PART)
    inner = [(size, at) for at, size in enumerate(loops.space) if at >= len(loops.outer) and isinstance(size, int)]
    count, at = max(((divisor(size, most), -at) for size, at in inner), default=(1, 0))
    return spaces.Split(-at, loops.space[-at] // count) if count > 1 else None


def divisor(size: int, most: int) -> int:
    """The greatest divisor of `size` that is at most `most` and leaves something."""
    return next((d for d in range(min(size // 2, most), 1, -1) if size % d == 0), 1)


def partial_buffers(loops: ir.Loops, parts: Int, buffers: dict[str, ir.Buffer]) -> dict[str, str]:
    """A new buffer, ``[parts, outer]``, for each reduction of the loops."""
    device = buffers[loops.writes[0]].device
    names = {}
    for s in loops.body:
        if isinstance(s, ir.Reduce):
            names[s.name] = name = unused(f"{s.name}_part", loops, buffers)
            size, stride = (parts, loops.outer_numel), (loops.outer_numel, 1)
            buffers[name] = ir.Buffer(name, s.dtype, size, stride, device, "loops", s.origin)
    return names


def unused(name: str, loops: ir.Loops, buffers: dict[str, ir.Buffer]) -> str:
    """`name`, or one like it that no buffer and no value of the loops has."""
    taken = {*buffers, *(s.name for s in loops.body if not isinstance(s, ir.Store))}
    while name in taken:
        name += "_"
    return name


def parts(loops: ir.Loops, cut: spaces.Split, names: dict[str, str]) -> ir.Loops:
    """All up to the reductions, with the parts as the first outer index."""
    finer = spaces.split(loops, cut)
    outer = [cut.at, *range(len(loops.outer))]
    inner = [k for k in range(len(finer.space)) if k not in outer]
    made = spaces.arrange(finer, outer, inner)
    place = spaces.contiguous(made.outer, range(len(outer)), len(made.space))
    stores = [ir.Store(names[s.name], place, s.name, s.origin) for s in made.body if isinstance(s, ir.Reduce)]
    kept = [s for s in made.body if not isinstance(s, ir.Store) or made.is_inner(s)]
    return spaces.simplify(replace(made, name=f"{loops.name}_parts", body=needed([*kept, *stores])))


def rest(loops: ir.Loops, parts: Int, names: dict[str, str]) -> ir.Loops:
    """The reduction of the parts, and all that follows."""
    rank = len(loops.outer)
    row = spaces.contiguous(loops.outer, range(rank), rank).strides
    place = ir.Address((*row, loops.outer_numel))
    body: list[ir.Statement] = []
    for s in loops.body:
        if isinstance(s, ir.Reduce):
            body.append(ir.Load(names[s.name], s.dtype, names[s.name], place, s.origin))
            body.append(replace(s, value=names[s.name]))
        elif not loops.is_inner(s):
            body.append(_without_inner(s, rank))
    return spaces.simplify(ir.Loops(loops.name, loops.outer, (parts,), needed(body)))


def _without_inner(statement: ir.Statement, rank: int) -> ir.Statement:
    return ir.readdressed(statement, lambda a: replace(a, strides=(*a.strides[:rank], 0)))


def needed(body: Iterable[ir.Statement]) -> tuple[ir.Statement, ...]:
    """The statements that a store needs."""
    wanted: set[ir.Argument] = set()
    kept: list[ir.Statement] = []
    for statement in reversed(list(body)):
        if isinstance(statement, ir.Store) or statement.name in wanted:
            wanted.update(statement.arguments)
            kept.append(statement)
    return tuple(reversed(kept))
