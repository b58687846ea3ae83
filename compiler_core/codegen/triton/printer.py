"""Prints a program's loops as one module of Triton kernels, in the form that `triton.module` loads."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping

from compiler_core.codegen.source import KernelSource, LineOrigin
from compiler_core.codegen.triton.kernel import print_kernel
from compiler_core.codegen.triton.ops import HELPERS
from compiler_core.codegen.triton.statements import PrintedLine
from compiler_core.loops import ir
from compiler_core.loops.fuse.merge_bodies import structural_key
from compiler_core.loops.schedule.block_sizes import Blocks, choose_blocks, shape_for_triton
from compiler_core.support.interrupts import safe_point

_HEADER = """\
import triton
import triton.language as tl
from triton.language.extra import libdevice
"""
NO_TUNED_BLOCKS: Mapping[str, Blocks] = {}


def generate(program: ir.Program, tuned: Mapping[str, Blocks] = NO_TUNED_BLOCKS) -> KernelSource:
    """Returns the source of all loops of `program` as one Triton module, in the form that `triton.module.load` reads.

    `tuned` are the block sizes of autotuned kernels, by name; others get the sizes of `choose_blocks`.
    """
    printed = _print_kernels(program, tuned)
    body = "\n".join(line for lines, _ in printed.values() for line, _ in lines)
    helpers = [f"\n\n@triton.jit\n{text}" for name, text in HELPERS.items() if re.search(rf"\b{name}\b", body)]
    text = _HEADER + "".join(helpers)
    found: list[LineOrigin] = []
    for name, (lines, _) in printed.items():
        text += "\n\n"
        before = text.count("\n")
        text += "".join(f"{line}\n" for line, _ in lines)
        found += [LineOrigin(before + k, name, made) for k, (_, made) in enumerate(lines, 1)]
    launches = "".join(f'    "{name}": {launch},\n' for name, (_, launch) in printed.items())
    return KernelSource("triton", f"{text}\n\nLAUNCHES = {{\n{launches}}}\n", tuple(found))


def _print_kernels(program: ir.Program, tuned: Mapping[str, Blocks]) -> dict[str, tuple[list[PrintedLine], str]]:
    """Returns each kernel's lines and its entry in ``LAUNCHES``.

    Of kernels that differ only in names, such as those of a network's layers, all but the first are aliases of the
    first, because Triton takes a third of a second to compile a kernel.
    """
    printed: dict[str, tuple[list[PrintedLine], str]] = {}
    known: dict[Hashable, str] = {}
    for loops in (shape_for_triton(step) for step in program.steps if isinstance(step, ir.Loops)):
        safe_point()
        name, blocks = loops.name, tuned.get(loops.name) or choose_blocks(loops)
        first = known.setdefault((structural_key(loops, program.buffers), blocks), name)
        if first == name:
            printed[name] = print_kernel(loops, program.buffers, blocks)
        else:
            printed[name] = [(f"{name} = {first}  # the same kernel", ())], printed[first][1]
    return printed
