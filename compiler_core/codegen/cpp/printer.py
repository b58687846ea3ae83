"""Prints a program's loops as C++ without header files, for g++ and clang++ with OpenMP.

Each kind of kernel (`loops/schedule/cpp_kernels.py`) has a printer.  Here are those without a reduction, and those that
process several rows at a time: short rows, and lanes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass, replace

import torch

from compiler_core.codegen.cpp.blocks import BlockPrinter, argument_names, live_in, result_name
from compiler_core.codegen.cpp.kernel import SIMD, KernelPrinter, Loop, SourceWriter, block_of
from compiler_core.codegen.cpp.ops import (
    accumulator,
    identifier,
    identity,
    propagates_nan,
    row_type,
    sums_for_means,
    update,
    uses_running_sums,
)
from compiler_core.codegen.cpp.prelude import EACH_SOURCE, RUNNING_SUMS, TOTAL_SOURCE, prelude
from compiler_core.codegen.cpp.rows import MixedOrderPrinter, RowPrinter
from compiler_core.codegen.source import KernelSource
from compiler_core.loops import ir
from compiler_core.loops.fuse.matching import structural_key
from compiler_core.loops.schedule.cpp_kernels import (
    TRANSPOSE_TILE,
    KernelKind,
    is_bound_by_memory,
    kernel_kind,
    last_index_is_disjoint,
    range_cuts,
    rows_per_tile,
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


# ---------------------------------------------------------------- several rows at a time
#
# A sweep depends on the result of the one before: the last additions of a sum, a square root, a division.  For a
# short row that latency dominates; with several rows (a tile) the processor works on the next row meanwhile.  Values
# that pass from sweep to sweep are in arrays (``..._few``).
#
# If the last outer index is contiguous in memory, blocks of it are vectorised: each sweep over the inner indices has
# one accumulator per lane.


MAX_LANES = 256
"""The maximum number of outer indices in a block."""


@dataclass(frozen=True)
class Section:
    """The statements that are executed for all rows of a tile before the next section: a sweep, and the outer
    statements before (for the first) and after it."""

    before: Sequence[ir.Statement]
    sweep: ir.Sweep
    after: Sequence[ir.Statement]

    @property
    def statements(self) -> Sequence[ir.Statement]:
        return (*self.before, *self.sweep.recomputed, *self.sweep.inner, *self.after)


class ShortRowPrinter(RowPrinter):
    """Prints reductions over tiles of short rows; the last outer index is the row."""

    def _body(self) -> None:
        sections = _sections(self._sweeps)
        shared = {name for section in sections for name in self._values_from_before(section)}
        *others, rows = [Loop(n, str(s)) for n, s in zip(self._names, self._loops.outer, strict=False)]
        few = rows_per_tile(self._loops)
        around = [*others, replace(rows, name="tile", step=few)]
        with self._nest(around, self._pragma(len(around))):
            self._declare_row_arrays(few * self._loops.inner_numel)
            for name in sorted(shared):
                kind = "f64" if name in self._mean_sums else self._array_type(self._loops.dtypes[name])
                self._line(f"{kind} {identifier(name)}_few[{few}];", name)
            for section in sections:
                with self._nest([block_of(rows, "tile", few)], None):
                    self._section(section, shared)

    def _section(self, section: Section, shared: Set[str]) -> None:
        """Prints a section for one row; values from earlier sections and for later ones are in arrays."""
        self._before_rounding = {}  # values before rounding are not in arrays
        for name in sorted(self._values_from_before(section)):
            value = self._tile_element(name)
            if name in self._mean_sums:
                self._line(f"const f64 {self._double_sums[name]} = {value};", name)
                value = f"(f32){self._double_sums[name]}"
            self._line(f"const {self._value_type(self._loops.dtypes[name])} {identifier(name)} = {value};", name)
        self._statements(section.before)
        self._sweep(section.sweep, parallel=False)
        self._statements(section.after)
        for name in sorted(shared & {*map(result_name, section.statements)}):
            self._line(f"{self._tile_element(name)} = {self._double_sums.get(name, identifier(name))};", name)

    def _values_from_before(self, section: Section) -> Set[str]:
        """Returns the values of a row that a section reads from earlier sections."""
        self._recomputed = section.sweep.recomputed
        return live_in(section.statements, self._values_read)

    def _tile_element(self, name: str) -> str:
        return f"{identifier(name)}_few[{self._row_in_tile()}]"

    def _row_in_tile(self) -> str:
        return f"{self._names[len(self._loops.outer) - 1]} - tile"

    def _row_index(self) -> str:
        return f"{self._loops.inner_numel}*({self._row_in_tile()}) + {super()._row_index()}"


def _sections(sweeps: Sequence[ir.Sweep]) -> list[Section]:
    first, *others = sweeps
    after: list[Sequence[ir.Statement]] = [sweep.outer for sweep in others]
    if sweeps[-1].inner:
        after.append(())
    swept = [sweep for sweep in sweeps if sweep.inner]
    sections = [Section((), sweep, outer) for sweep, outer in zip(swept, after, strict=True)]
    return [replace(sections[0], before=first.outer), *sections[1:]]


class LanePrinter(KernelPrinter):
    """Prints reductions for a block of outer indices at a time."""

    def __init__(self, text: SourceWriter, loops: ir.Loops, buffers: dict[str, ir.Buffer]) -> None:
        super().__init__(text, loops, buffers)
        last = loops.outer[-1]
        self._block_size = min(MAX_LANES, last) if isinstance(last, int) else MAX_LANES

    def _body(self) -> None:
        *leading, size = self._loops.outer
        loops = [Loop(n, str(s)) for n, s in zip(self._names, leading, strict=False)]
        loops.append(Loop("block", str(size), step=self._block_size))
        shared = self._values_between_loops()
        self._double_sums = {name: f"{identifier(name)}_lane[lane]" for name in sums_for_means(self._loops)}
        with self._nest(loops, self._pragma(len(loops)) if self._threads.parallel else None):
            self._line(f"const i64 lanes = {size} - block < {self._block_size} ? {size} - block : {self._block_size};")
            for scan in self._loops.scans:
                self._line(f"{row_type(scan)} {accumulator(scan, 'run')}[{self._block_size}];", scan)
            for sweep in self._sweeps:
                if sweep.outer:
                    self._lane_loop((), sweep.outer, shared)
                if sweep.inner:
                    self._lane_sweep(sweep, shared)

    def _lane_sweep(self, sweep: ir.Sweep, shared: frozenset[str]) -> None:
        reduces = [s for s in sweep.inner if isinstance(s, ir.Reduce)]
        for reduce in reduces:
            name = accumulator(reduce, "lane")
            self._line(f"{row_type(reduce)} {name}[{self._block_size}];", reduce)
            self._line(f"for (i64 lane = 0; lane < lanes; ++lane) {name}[lane] = {identity(reduce)};", reduce)
        for scan in (s for s in (*sweep.recomputed, *sweep.inner) if isinstance(s, ir.Scan)):
            run = accumulator(scan, "run")
            self._line(f"for (i64 lane = 0; lane < lanes; ++lane) {run}[lane] = {identity(scan)};", scan)
        names = self._names[len(self._loops.outer) :]
        with self._nest([Loop(n, str(s)) for n, s in zip(names, self._loops.inner, strict=True)], None):
            self._lane_loop(sweep.recomputed, sweep.inner, shared)

    def _lane_loop(self, again: Sequence[ir.Statement], body: Sequence[ir.Statement], shared: frozenset[str]) -> None:
        """Prints `body` for each lane; values of other loops are read from arrays."""
        here = {s.name for s in (*again, *body) if not isinstance(s, (ir.Store, ir.Reduce))}
        used = {a for s in (*again, *body) for a in s.arguments if isinstance(a, str)}
        for s in body:
            if not isinstance(s, (ir.Store, ir.Reduce)) and s.name in shared:
                self._line(f"{self._array_type(s.dtype)} {identifier(s.name)}_lane[{self._block_size}];", s)
        at = len(self._loops.outer) - 1
        with (
            self._float_array_scope(self._half_accesses((*again, *body), at), at, "block", "lane", self._block_size),
            self._nest([Loop("lane", "lanes")], SIMD),
        ):
            self._line(f"const i64 {self._names[at]} = block + lane;")
            for name in sorted((used & shared) - here):
                self._read_from(name, f"{identifier(name)}_lane[lane]")
            for statement in (*again, *body):
                if isinstance(statement, ir.Reduce):
                    lane, value = f"{accumulator(statement, 'lane')}[lane]", self._argument(statement.value)
                    self._line(update(statement, lane, value, propagates_nan(statement)), statement)
                    continue
                self._statement(statement)
                if not isinstance(statement, ir.Store) and statement.name in shared and statement in body:
                    self._line(f"{identifier(statement.name)}_lane[lane] = {identifier(statement.name)};", statement)

    def _values_between_loops(self) -> frozenset[str]:
        """Returns the outer values that one loop over lanes computes and another one reads."""
        parts = [part for sweep in self._sweeps for part in (sweep.outer, (*sweep.recomputed, *sweep.inner))]
        reduced = frozenset(s.name for s in self._loops.body if isinstance(s, ir.Reduce))
        return reduced.union(*(live_in(part, argument_names) for part in parts))


PRINTERS: dict[KernelKind, type[KernelPrinter]] = {
    "elementwise": ElementwisePrinter,
    "scatter": ScatterPrinter,
    "rows": RowPrinter,
    "short rows": ShortRowPrinter,
    "mix order": MixedOrderPrinter,
    "lanes": LanePrinter,
}
