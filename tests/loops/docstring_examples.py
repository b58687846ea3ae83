"""Runs the examples in the docstrings of lowering, fusion and schedule rules, and rewrites their output.

An example is a doctest that calls one of the functions below on an expression of aten operators::

    >>> lowered("aten.relu(x)", x="f32[4]")
    relu: for i0 < 4:
        ...

`test_docstring_examples.py` compares the output.  ``python -m tests.loops.docstring_examples`` updates the docstrings.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import pkgutil
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import compiler_core.loops
from compiler_core.loops import ir
from compiler_core.loops.fuse import rules
from compiler_core.loops.fuse.program_passes import fuse_horizontally, fuse_mix_order_reductions
from compiler_core.loops.fuse.rewriter import FusionRequests, FusionResult, rewrite
from compiler_core.loops.ir.nest import naive
from compiler_core.loops.lower import lower
from compiler_core.loops.lower.scattering import write_in_place
from compiler_core.loops.schedule import cpu, gpu
from compiler_core.loops.schedule.block_sizes import choose_blocks, shape_for_triton
from compiler_core.loops.schedule.inputs import update_in_place
from compiler_core.loops.schedule.splitting import split_passes, split_reductions
from compiler_core.loops.schedule.unrolling import unroll_short_loops
from compiler_core.tools.changes.schedule_from_text import read_schedule

DTYPES = {short: dtype for dtype, short in ir.SHORT.items()}


def graph(expression: str, device: str, **inputs: str) -> fx.GraphModule:
    """Traces `expression`, an expression of `aten` and `prims` operators on tensors such as ``f32[4, 8]``."""
    names = list(inputs)

    def function(*tensors: torch.Tensor) -> Any:
        scope = {"aten": torch.ops.aten, "prims": torch.ops.prims, "torch": torch}
        return eval(expression, scope, dict(zip(names, tensors, strict=True)))  # the examples are our own

    with FakeTensorMode():
        tensors = [tensor(text, device) for text in inputs.values()]
        return make_fx(function)(*tensors)


def tensor(text: str, device: str) -> torch.Tensor:
    """Makes a tensor from text such as ``f32[4, 8]``."""
    dtype, _, size = text.rstrip("]").partition("[")
    return torch.empty([int(n) for n in size.split(",") if n], dtype=DTYPES[dtype], device=device)


def lowered(expression: str, device: str = "cpu", **inputs: str) -> None:
    """Prints the loops of an expression, with the inputs named as in the expression."""
    print(text(named(lower(graph(expression, device, **inputs), "forward"), list(inputs))))


def fused(rule: str, expression: str, device: str = "cpu", **inputs: str) -> None:
    """Prints the loops of an expression before and after one fusion rule."""
    before = named(lower(graph(expression, device, **inputs), "forward"), list(inputs))
    print(text(before), "---", text(apply_fusion(rule, before).program), sep="\n")


def split(rule: str, expression: str, device: str = "cuda", **inputs: str) -> None:
    """Prints the loops of an expression, fused, before and after a schedule rule."""
    before = rules.fuse(named(lower(graph(expression, device, **inputs), "forward"), list(inputs))).program
    made_by = {"split_passes": split_passes, "split_reductions": split_reductions, "unroll": unroll_short_loops}
    after = made_by[rule](before)
    print(text(before), "---", text(after), sep="\n")


def updated(expression: str, device: str = "cuda", **inputs: str) -> None:
    """Prints the loops of an expression that is the new value of its first input, before and after `write_in_place`."""
    before = named(lower(graph(expression, device, **inputs), "forward"), list(inputs))
    (result,) = before.results
    assert isinstance(result, ir.TensorView)
    print(
        text(before),
        "---",
        text(write_in_place(replace(before, new_values={result.buffer: next(iter(inputs))}))),
        sep="\n",
    )


def in_place(expression: str, device: str = "cuda", **inputs: str) -> None:
    """Prints the loops of an expression that is the new value of its first input, after `update_in_place`."""
    before = named(lower(graph(expression, device, **inputs), "forward"), list(inputs)).numbered()
    (result,) = before.results
    assert isinstance(result, ir.TensorView)
    print(text(update_in_place(replace(before, new_values={result.buffer: next(iter(inputs))}, is_alone=True))))


def nest(expression: str, **inputs: str) -> None:
    """Prints the naive loop nest of an expression, fused."""
    print(naive(only_loops(expression, **inputs)).text().rstrip())


def rewritten(expression: str, script: str, language: ir.Language = "cpp", **inputs: str) -> None:
    """Prints the loop nest of an expression, fused, after the rewrites of a schedule."""
    print(read_schedule(only_loops(expression, **inputs), script, language).nest.text().rstrip())


def scheduled(expression: str, language: ir.Language = "cpp", **inputs: str) -> None:
    """Prints the schedule of an expression's kernel."""
    loops = only_loops(expression, **inputs)
    if language == "triton":
        loops = shape_for_triton(loops)
        made = gpu.schedule(loops, choose_blocks(loops))
    else:
        made = cpu.schedule(loops)
    print(made.text().rstrip().replace("\n\n", "\n---\n"))


def only_loops(expression: str, **inputs: str) -> ir.Loops:
    """Returns the loops of an expression, fused into one kernel."""
    program = rules.fuse(named(lower(graph(expression, "cpu", **inputs), "forward"), list(inputs))).program.numbered()
    (loops,) = (step for step in program.steps if isinstance(step, ir.Loops))
    return loops


def apply_fusion(rule: str, program: ir.Program) -> FusionResult:
    """Applies the fusion rule of a name, as the record has it, to a program."""
    if rule in ("columns", "horizontal"):
        simplified = rewrite(program, ())
        pass_ = fuse_horizontally if rule == "horizontal" else fuse_mix_order_reductions
        return pass_(simplified, FusionRequests())
    return rewrite(program, [each for each in rules.RULES if each.name == rule])


def named(program: ir.Program, names: list[str]) -> ir.Program:
    """Renames the program's inputs to `names`."""
    new = dict(zip(program.inputs, names, strict=True))
    steps: list[ir.Step] = []
    for step in program.steps:
        if isinstance(step, ir.Loops):
            step = ir.Loops(step.name, step.outer, step.inner, tuple(rename_buffer(s, new) for s in step.body))
        steps.append(step)
    buffers = {new.get(name, name): buffer for name, buffer in program.buffers.items()}
    return ir.Program(program.name, buffers, tuple(names), tuple(steps), program.results)


def rename_buffer(statement: ir.Statement, new: dict[str, str]) -> ir.Statement:
    """Returns `statement` with the buffer of a load renamed."""
    if isinstance(statement, ir.Load):
        buffer = new.get(statement.buffer, statement.buffer)
        return ir.Load(statement.name, statement.dtype, buffer, statement.address, statement.origin, statement.within)
    return statement


def text(program: ir.Program) -> str:
    """Returns the text of a program's loops, and a line for each call."""
    return "\n".join(step.text().rstrip() if isinstance(step, ir.Loops) else call_text(step) for step in program.steps)


def call_text(call: ir.Call) -> str:
    """Returns a line for a call."""
    if call.draws:
        return f"{', '.join(call.draws)}: drawn from the generator of the GPU"
    return f"{call.name}: call of {call.target}"


GLOBALS = {
    function.__name__: function for function in (lowered, fused, split, updated, in_place, nest, rewritten, scheduled)
}


def modules() -> Iterator[ModuleType]:
    """Yields all modules of `compiler_core.loops`."""
    package = compiler_core.loops
    for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        yield importlib.import_module(info.name)


def doctests() -> list[doctest.DocTest]:
    """Returns the examples of all docstrings in `compiler_core.loops`."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [t for module in modules() for t in finder.find(module, extraglobs=dict(GLOBALS)) if t.examples]


def run(source: str) -> str:
    """Returns what an example prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(source, dict(GLOBALS))  # the examples are our own
    return output.getvalue()


def update() -> None:
    """Rewrites the output of all examples in the source files."""
    for module in modules():
        path = Path(str(module.__file__))
        lines = path.read_text().splitlines(keepends=True)
        result: list[str] = []
        skipping = False
        for line in lines:
            stripped = line.strip()
            if skipping and (not stripped or stripped.startswith(('"""', ">>>"))):
                skipping = False
            if skipping:
                continue
            result.append(line)
            if stripped.startswith(">>> "):
                indent = line[: len(line) - len(line.lstrip())]
                result.append(textwrap.indent(run(stripped.removeprefix(">>> ")), indent))
                skipping = True
        path.write_text("".join(result))


if __name__ == "__main__":
    update()
