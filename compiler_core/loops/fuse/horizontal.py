"""Horizontal fusion: joins small Triton kernels that do not depend on each other.

A kernel that takes less time than its launch, such as the one that counts the batches of a batch norm, costs the time
of a launch.  A network has one such kernel for each layer, which differ in their tensors only.  Kernels over the same
iteration domain share a launch, at the position of the first:

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

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from compiler_core.loops import ir
from compiler_core.loops.fuse.merge_bodies import merge_bodies
from compiler_core.loops.fuse.rewriter import FusionRequests, FusionResult, Rewrite
from compiler_core.loops.fuse.rules import MAX_ARGUMENTS, MAX_STATEMENTS
from compiler_core.loops.schedule import size_rules
from compiler_core.support.size_expr import Int, prod

Shape = tuple[torch.device, tuple[Int, ...], tuple[Int, ...]]


def fuse_horizontally(fused: FusionResult, requests: FusionRequests) -> FusionResult:
    """Joins the small loop nests of a GPU that have the same iteration domain and can run at the same position."""
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
        shape = fused.program.device(step), step.outer, step.inner
        leader = leaders.setdefault(shape, at)
        first = steps[leader]
        assert isinstance(first, ir.Loops)
        last_dependency = max((written.get(b, -1) for b in step.needs), default=-1)
        joined = _merge_small_loops(first, step, requests) if last_dependency < leader else None
        if joined is None:
            leaders[shape] = at
        else:
            steps[leader], steps[at] = joined, None
            notes.append(Rewrite("companion", (joined.name, step.name), joined.name, "both are small and alike", 0))
    return _with_rewrites(fused, fused.program.with_steps([s for s in steps if s is not None]), notes)


def _with_rewrites(fused: FusionResult, program: ir.Program, notes: Sequence[Rewrite]) -> FusionResult:
    history = dict(fused.rewrites_by_loops)
    for note in notes:
        joined, gone = note.before
        history[joined] = (*history.get(joined, ()), *history.pop(gone, ()), note)
    into = {note.before[1]: note.after for note in notes}
    refusals = ((into.get(first, first), into.get(second, second), why) for first, second, why in fused.refusals)
    return FusionResult(program, (*fused.rewrites, *notes), history, tuple(r for r in refusals if r[0] != r[1]))


def _is_small(loops: ir.Loops) -> bool:
    numel = prod(loops.space)
    return (
        not loops.column_stores
        and not loops.scatters
        and isinstance(numel, int)
        and numel <= size_rules.current_rules().max_horizontal_elements
    )


def _merge_small_loops(first: ir.Loops, second: ir.Loops, requests: FusionRequests) -> ir.Loops | None:
    """Returns both as one loop nest, or None if that is too large or the user asked to keep them apart."""
    if first is second:
        return None
    if len({*first.arguments, *second.arguments}) > MAX_ARGUMENTS:
        return None
    if len(first.body) + len(second.body) > MAX_STATEMENTS or requests.between(first, second) == "keep_apart":
        return None
    joined = replace(first, body=merge_bodies(first.body, second.body, {}))
    ir.check(joined)
    return joined
