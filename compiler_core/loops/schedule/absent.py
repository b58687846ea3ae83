"""Gradients that may be absent: kernels on a GPU read that of an output only if it got one."""

from __future__ import annotations

from dataclasses import replace

from compiler_core.loops import ir


def read_if_given(program: ir.Program) -> ir.Program:
    """Makes loads of `tangents_2`, an input of a backward, depend on the flag `given_2`.

        v0: f32 = load tangents_2[i0]    ->    v0: f32 = load tangents_2[i0] if given_2

    So an absent gradient needs no zeros.  Tangents stay as they are if one of PyTorch's operators takes them, if a
    result is in their memory, or if the loops that read them become C++.
    """
    needed = {result.buffer for result in program.results if isinstance(result, ir.TensorView)}
    for step in program.steps:
        is_triton = isinstance(step, ir.Loops) and program.language(step) == "triton"
        needed.update(step.writes if is_triton else step.reads)
    tangents = {name for name in program.inputs if name.startswith("tangents")} - needed
    flags = {name: flag for name in tangents if (flag := name.replace("tangents", "given")) in program.inputs}
    steps: list[ir.Step] = []
    for step in program.steps:
        if isinstance(step, ir.Loops) and not flags.keys().isdisjoint(step.reads):
            body = [replace(s, given=flags.get(s.buffer, "")) if isinstance(s, ir.Load) else s for s in step.body]
            step = replace(step, body=tuple(body))
        steps.append(step)
    return program.with_steps(steps)
