"""Small Triton kernels that need nothing of each other, as one.

A kernel that takes less time than its launch, such as the one that counts the batches of a batch norm, costs the
launch.  A network has as many of them as it has layers, alike in everything but the tensors: those of one shape share
a launch here, at the place of the first::

    count: for ():                                count: for ():
        n = load a[0]                                 n = load a[0]
        store new_a[0] = n + 1                        store new_a[0] = n + 1
    count_1: for ():                                  n_ = load b[0]
        n = load b[0]                                 store new_b[0] = n_ + 1
        store new_b[0] = n + 1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from compiler_core.loops import ir
from compiler_core.loops.fuse.merge_bodies import one_body
from compiler_core.loops.fuse.rewriter import Rewrite, Rewritten, Wishes
from compiler_core.loops.fuse.rules import MAX_ARGUMENTS, MAX_STATEMENTS
from compiler_core.loops.schedule import size_rules
from compiler_core.support.size_expr import Int

Shape = tuple[torch.device, tuple[Int, ...]]


def join_companions(fused: Rewritten, wishes: Wishes) -> Rewritten:
    """`fused`, in which small loops of a GPU over the same indices, that can run at one place, are one."""
    steps: list[ir.Step | None] = list(fused.program.steps)
    leaders: dict[Shape, int] = {}
    written: dict[str, int] = {}
    notes: list[Rewrite] = []
    for at, step in enumerate(fused.program.steps):
        written.update(dict.fromkeys(step.writes, at))
        if isinstance(step, ir.Call) and step.barrier:
            leaders.clear()
        if not isinstance(step, ir.Loops) or fused.program.language(step) != "triton" or not _is_small(step):
            continue
        shape = fused.program.device(step), step.outer
        place = leaders.setdefault(shape, at)
        first = steps[place]
        assert isinstance(first, ir.Loops)
        joined = (
            _joined(first, step, wishes) if max((written.get(b, -1) for b in step.needs), default=-1) < place else None
        )
        if joined is None:
            leaders[shape] = at
        else:
            steps[place], steps[at] = joined, None
            notes.append(Rewrite("companion", (joined.name, step.name), joined.name, "both are small and alike", 0))
    return _noted(fused, fused.program.with_steps([s for s in steps if s is not None]), notes)


def _noted(fused: Rewritten, program: ir.Program, notes: Sequence[Rewrite]) -> Rewritten:
    history = dict(fused.by_loops)
    for note in notes:
        joined, gone = note.before
        history[joined] = (*history.get(joined, ()), *history.pop(gone, ()), note)
    into = {note.before[1]: note.after for note in notes}
    refusals = ((into.get(first, first), into.get(second, second), why) for first, second, why in fused.refusals)
    return Rewritten(program, (*fused.rewrites, *notes), history, tuple(r for r in refusals if r[0] != r[1]))


def _is_small(loops: ir.Loops) -> bool:
    numel = loops.outer_numel
    return not loops.inner and not loops.scatters and isinstance(numel, int) and numel <= size_rules.current().small


def _joined(first: ir.Loops, second: ir.Loops, wishes: Wishes) -> ir.Loops | None:
    """Both as one, where that is neither too large nor unwanted."""
    if first is second:
        return None
    many = len({*first.arguments, *second.arguments}) > MAX_ARGUMENTS
    if many or len(first.body) + len(second.body) > MAX_STATEMENTS or wishes.of(first, second) == "apart":
        return None
    joined = replace(first, body=one_body(first.body, second.body, {}))
    ir.check(joined)
    return joined
