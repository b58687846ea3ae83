"""Prints a program's loops as C++ without header files, for g++ and clang++ with OpenMP.

Each kind of kernel (`loops/schedule/cpp_kernels.py`) has a printer; those without a reduction are here.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import torch

from compiler_core.codegen.cpp.blocks import BlockPrinter
from compiler_core.codegen.cpp.kernel import SIMD, KernelPrinter, Loop, SourceWriter, block_of
from compiler_core.codegen.cpp.ops import uses_running_sums
from compiler_core.codegen.cpp.prelude import EACH_SOURCE, RUNNING_SUMS, TOTAL_SOURCE, prelude
from compiler_core.codegen.cpp.row_tiles import LanePrinter, ShortRowPrinter
from compiler_core.codegen.cpp.rows import MixedOrderPrinter, RowPrinter
from compiler_core.codegen.source import KernelSource
from compiler_core.loops import ir
from compiler_core.loops.fuse.merge_bodies import structural_key
from compiler_core.loops.schedule.cpp_kernels import (
    TRANSPOSE_TILE,
    KernelKind,
    is_bound_by_memory,
    kernel_kind,
    last_index_is_disjoint,
    range_cuts,
    transposed_index,
)
from compiler_core.support.interrupts import safe_point
from compiler_core.support.size_expr import Int, hint, prod

SHORT_VECTOR = 8
"""Lanes of a loop that is bound by its loads and stores: longer vectors cross a cache line at each access, and take up
to 1.15 times as long."""

ROW_BLOCK = 4096
"""Elements of a long row that one thread processes at a time, if there are too few rows for all threads."""


def generate(program: ir.Program, simd_math: Sequence[str] = ()) -> KernelSource:
    """Returns the C++ source of all loops of `program`, one function each.

    `simd_math` are the libm functions with vector versions (`compilers.simd_math`).  Of kernels that differ only in
    names, such as those of a network's layers, all but the first call the first, because C++ compilers are slow.
    """
    kernels = [s for s in program.steps if isinstance(s, ir.Loops)]
    printers = {k.name: PRINTERS[kernel_kind(k)] for k in kernels}
    rows = any(issubclass(printer, RowPrinter) for printer in printers.values())
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
        kernel = printers[loops.name](text, loops, program.buffers)
        first = printed.setdefault(structural_key(loops, program.buffers), loops.name)
        if first == loops.name:
            kernel.emit()
        else:
            kernel.emit_call(first)
    return KernelSource("cpp", "\n".join(text.lines) + "\n", tuple(text.origins))


class ElementwisePrinter(BlockPrinter):
    """Prints loops that visit each element once, in any order."""

    def __init__(self, text: SourceWriter, loops: ir.Loops, buffers: dict[str, ir.Buffer]) -> None:
        super().__init__(text, loops, buffers)
        if is_bound_by_memory(loops):
            self._simd = f"{SIMD} simdlen({SHORT_VECTOR})"

    def _body(self) -> None:
        """Prints all elements; if loads are limited to ranges of an index, one part of the index after the other."""
        at, ends = range_cuts(self._loops)
        start: Int = 0
        for end in ends:
            self._extents = [(start, end) if k == at else (0, n) for k, n in enumerate(self._loops.outer)]
            self._elements_of(self._extents)
            start = end

    def _elements_of(self, extents: Sequence[tuple[Int, Int]]) -> None:
        statements = self._sweeps[0].outer
        if not extents:
            self._statements(statements)
            return
        around, inside = self._split_loops(extents)
        # without outer loops, several parts would declare the invariant values in the same scope
        before, rest = self._split_invariant(statements) if around else ([], statements)
        threads = self._pragma(1) if not around else None
        with self._nest(around, self._pragma(len(around)) if around else None), self._nest(inside[:-1], None):
            self._statements(before)
            self._vectorised_loop(inside[-1], rest, threads)

    def _split_loops(self, extents: Sequence[tuple[Int, Int]]) -> tuple[list[Loop], list[Loop]]:
        """Returns the loops that are distributed over threads, and the loops inside.

        The loops are tiled if loads and stores are contiguous along different indices.
        """
        *leading, last = [Loop(n, str(end), str(start)) for n, (start, end) in zip(self._names, extents, strict=False)]
        across = transposed_index(self._loops)
        if across is not None:
            rows = leading.pop(across)
            leading += [
                replace(rows, name="tile", step=TRANSPOSE_TILE[0]),
                replace(last, name="block", step=TRANSPOSE_TILE[1]),
            ]
            return leading, [block_of(rows, "tile", TRANSPOSE_TILE[0]), block_of(last, "block", TRANSPOSE_TILE[1])]
        start, end = extents[-1]
        if (
            self._threads.parallel
            and hint(prod(e - s for s, e in extents[:-1])) < 64
            and hint(end - start) >= 2 * ROW_BLOCK
        ):
            return [*leading, replace(last, name="block", step=ROW_BLOCK)], [block_of(last, "block", ROW_BLOCK)]
        return leading, [last]

    def _split_invariant(self, statements: Sequence[ir.Statement]) -> tuple[list[ir.Statement], list[ir.Statement]]:
        """Splits the statements into those that are invariant in the last index, and the others."""
        at = len(self._loops.outer) - 1
        before: list[ir.Statement] = []
        rest: list[ir.Statement] = []
        varying: set[ir.Argument] = set()
        for s in statements:
            varies = isinstance(s, ir.Store) or any(a.strides[at] for a in ir.addresses(s))
            if varies or varying.intersection(s.arguments):
                varying.update(() if isinstance(s, ir.Store) else (s.name,))
                rest.append(s)
            else:
                before.append(s)
        return before, rest


class ScatterPrinter(ElementwisePrinter):
    """Prints scatters, whose stores may have equal addresses: the stores to one address are done in order."""

    def _body(self) -> None:
        loops = [Loop(n, str(size)) for n, size in zip(self._names, self._loops.outer, strict=False)]
        statements = self._sweeps[0].outer
        if not last_index_is_disjoint(self._loops):
            with self._nest(loops, None):
                self._statements(statements)
            return
        size, last = self._loops.outer[-1], loops[-1]
        step = -(-size // (8 * 64)) * 64 if isinstance(size, int) else 512
        end = f"(block + {step} < {size} ? block + {step} : {size})"
        around = [Loop("block", str(size), step=step), *loops[:-1]]
        before, rest = self._split_invariant(statements)
        with self._nest(around, self._pragma(1)):
            self._statements(before)
            self._vectorised_loop(Loop(last.name, end, "block"), rest, None)


PRINTERS: dict[KernelKind, type[KernelPrinter]] = {
    "elementwise": ElementwisePrinter,
    "scatter": ScatterPrinter,
    "rows": RowPrinter,
    "short rows": ShortRowPrinter,
    "mix order": MixedOrderPrinter,
    "lanes": LanePrinter,
}
