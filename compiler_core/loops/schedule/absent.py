"""Gradients that may be absent: kernels on a GPU read that of an output only if it got one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiler_core.loops import ir


def read_if_given(program: ir.Program) -> ir.Program:
    """Makes loads of `tangents_2`, an input of a backward, depend on the flag `given_2`.

        v0: f32 = load tangents_2[i0]    ->    v0: f32 = load tangents_2[i0] if given_2

    So an absent gradient needs no zeros.  Tangents stay as they are if one of PyTorch's operators takes them, if a
    result is in their memory, or if the loops that read them become C++.
    """
    flags = {name: name.replace("tangents", "given") for name in program.inputs if name.startswith("tangents")}
    flags = {name: flag for name, flag in flags.items() if flag in program.inputs}
    results = {result.buffer for result in program.results if isinstance(result, ir.TensorView)}
    for step in program.steps:
        if isinstance(step, ir.Call) or program.language(step) != "triton":
            results.update(step.reads)
        else:
            results.update(step.writes)
    optional = {name: flag for name, flag in flags.items() if name not in results}
    if not optional:
        return program
    return program.with_steps([_guarded(s, optional) if isinstance(s, ir.Loops) else s for s in program.steps])


def _guarded(loops: ir.Loops, flags: Mapping[str, str]) -> ir.Loops:
    found = [replace(s, given=flags.get(s.buffer, "")) if isinstance(s, ir.Load) else s for s in loops.body]
    return replace(loops, body=tuple(found))
