"""Prints a program's loops as C++ without header files, for g++ and clang++ with OpenMP.

There are six kinds of kernel:

    elementwise  no reduction: nested loops, the last one vectorised
    scatter      elementwise, with stores to addresses given by a tensor of indices
    rows         reductions: sweeps over the inner indices, for one outer index at a time
    short rows   reductions: each sweep covers several outer indices before the next one starts
    mix order    rows that also reduce over the outer indices
    lanes        reductions in which the last outer index is contiguous in memory and becomes the vector
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch

from compiler_core.codegen.cpp.accumulators import RUNNING_SUMS, uses_running_sums
from compiler_core.codegen.cpp.blocks import EACH_SOURCE
from compiler_core.codegen.cpp.elementwise import ElementwisePrinter, ScatterPrinter
from compiler_core.codegen.cpp.kernel import KernelPrinter
from compiler_core.codegen.cpp.lanes import LanePrinter
from compiler_core.codegen.cpp.mix_order import MixedOrderPrinter
from compiler_core.codegen.cpp.ops import prelude
from compiler_core.codegen.cpp.rows import TOTAL_SOURCE, RowPrinter
from compiler_core.codegen.cpp.short_rows import ShortRowPrinter, uses_short_rows
from compiler_core.codegen.cpp.source_writer import SourceWriter
from compiler_core.codegen.source import KernelSource
from compiler_core.loops import ir
from compiler_core.loops.fuse.merge_bodies import structural_key
from compiler_core.support.interrupts import safe_point


def generate(program: ir.Program, simd_math: Sequence[str] = ()) -> KernelSource:
    """Returns the C++ source of all loops of `program`, one function each.

    `simd_math` are the libm functions with vector versions (`compilers.simd_math`).  Of kernels that differ only in
    names, such as those of a network's layers, all but the first call the first, because C++ compilers are slow.
    """
    kernels = [s for s in program.steps if isinstance(s, ir.Loops)]
    rows = any(issubclass(_printer_class(k), RowPrinter) for k in kernels)
    sums = any(uses_running_sums(s) for k in kernels for s in k.scans)
    halves = any(b.dtype is torch.float16 for b in program.buffers.values())
    helpers = [
        EACH_SOURCE if rows or halves else "",
        TOTAL_SOURCE if rows else "",
        RUNNING_SUMS if sums else "",
    ]
    text = SourceWriter((prelude(kernels, program.buffers, simd_math) + "".join(helpers)).splitlines())
    printed: dict[Hashable, str] = {}
    for loops in kernels:
        safe_point()
        text.add("")
        kernel = _printer_class(loops)(text, loops, program.buffers)
        first = printed.setdefault(structural_key(loops, program.buffers), loops.name)
        if first == loops.name:
            kernel.emit()
        else:
            kernel.emit_call(first)
    return KernelSource("cpp", "\n".join(text.lines) + "\n", tuple(text.origins))


def _printer_class(loops: ir.Loops) -> type[KernelPrinter]:
    if loops.scatters:
        return ScatterPrinter
    if not loops.inner:
        return ElementwisePrinter
    if loops.column_stores:
        return MixedOrderPrinter
    if ir.has_contiguous_outer(loops):
        return LanePrinter
    return ShortRowPrinter if uses_short_rows(loops) else RowPrinter
