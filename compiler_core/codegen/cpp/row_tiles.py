"""C++ kernels with reductions that process several rows at a time: short rows, and lanes.

A sweep depends on the result of the one before: the last additions of a sum, a square root, a division.  For a short
row that latency dominates; with several rows (a tile) the processor works on the next row meanwhile.  Values that pass
from sweep to sweep are in arrays (``..._few``).

If the last outer index is contiguous in memory, blocks of it are vectorised: each sweep over the inner indices has one
accumulator per lane.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from compiler_core.codegen.cpp.blocks import argument_names, live_in, result_name
from compiler_core.codegen.cpp.kernel import SIMD, KernelPrinter, Loop, SourceWriter, block_of
from compiler_core.codegen.cpp.ops import (
    accumulator,
    identifier,
    identity,
    propagates_nan,
    row_type,
    sums_for_means,
    update,
)
from compiler_core.codegen.cpp.rows import RowPrinter
from compiler_core.loops import ir
from compiler_core.loops.schedule.cpp_kernels import rows_per_tile

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
