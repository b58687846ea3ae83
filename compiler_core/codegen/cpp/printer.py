"""The loop IR as C++ that includes no header, for g++ and clang++ with OpenMP.

Six shapes of kernel, each in a file of its own:

    elements   no reduction: nested loops, the last one vectorised
    scattered  elements that are written where a tensor of indices says
    rows       the inner indices are walked for one outer index at a time
    short rows the same for a few outer indices together, one sweep after the other
    columns    as rows, with sums over the outer indices beside those over the inner ones
    lanes      the last outer index is the one that lies closest in memory
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch

from compiler_core.codegen.cpp.blocks import EACH
from compiler_core.codegen.cpp.columns import Columns
from compiler_core.codegen.cpp.elements import Elements, Scattered
from compiler_core.codegen.cpp.kernel import Kernel
from compiler_core.codegen.cpp.lanes import Lanes
from compiler_core.codegen.cpp.ops import prelude
from compiler_core.codegen.cpp.reduce import RUNNING_SUMS, sums_ahead
from compiler_core.codegen.cpp.rows import TOTAL, Rows
from compiler_core.codegen.cpp.short_rows import ShortRows, are_short
from compiler_core.codegen.cpp.text import Text
from compiler_core.codegen.source import Code
from compiler_core.loops import ir
from compiler_core.loops.fuse.merge_bodies import without_names
from compiler_core.support.interrupts import safe_point


def generate(program: ir.Program, simd_math: Sequence[str] = ()) -> Code:
    """The source of all loops of `program`, one function each; of several that differ by names alone, as those of a
    network's layers do, all but the first call it, since C++ compilers are slow."""
    kernels = [s for s in program.steps if isinstance(s, ir.Loops)]
    rows = any(issubclass(_shape(k), Rows) for k in kernels)
    sums = any(sums_ahead(s) for k in kernels for s in k.scans)
    halves = any(b.dtype is torch.float16 for b in program.buffers.values())
    blocks = EACH * (rows or halves) + TOTAL * rows
    text = Text((prelude(kernels, simd_math) + blocks + RUNNING_SUMS * sums).splitlines())
    printed: dict[Hashable, str] = {}
    for loops in kernels:
        safe_point()
        text.add("")
        kernel = _shape(loops)(text, loops, program.buffers)
        first = printed.setdefault(without_names(loops, program.buffers), loops.name)
        kernel.emit() if first == loops.name else kernel.emit_call(first)
    return Code("cpp", "\n".join(text.lines) + "\n", tuple(text.origins))


def _shape(loops: ir.Loops) -> type[Kernel]:
    if loops.scatters:
        return Scattered
    if not loops.inner:
        return Elements
    if loops.columns:
        return Columns
    if ir.in_lanes(loops):
        return Lanes
    return ShortRows if are_short(loops) else Rows
