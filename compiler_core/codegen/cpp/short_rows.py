"""C++ kernels for short rows: each sweep covers several rows (a tile) before the next sweep starts.

A sweep depends on the result of the one before: the last additions of a sum, a square root, a division.  For a short
row that latency dominates; with several rows the processor works on the next row meanwhile.  Values that pass from
sweep to sweep are in arrays (``..._few``).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from compiler_core.codegen.cpp.loop_distribution import live_in, result_name
from compiler_core.codegen.cpp.rows import RowPrinter
from compiler_core.codegen.cpp.source_writer import Loop, block_of, identifier
from compiler_core.loops import ir
from compiler_core.support.size_expr import hint

MAX_ROWS = 8
"""The maximum number of rows in a tile; no measured kernel was faster with more."""
TILE_ELEMENTS = 1024
"""The maximum number of elements in a tile; with more, reading memory and computing no longer overlap."""


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
        few = _rows_per_tile(self._loops)
        around = [*others, replace(rows, name="tile", step=few)]
        with self._nest(around, self._pragma(len(around))):
            self._declare_row_arrays(few * self._loops.inner_numel)
            for name in sorted(shared):
                kind = "f64" if name in self._mean_sums else self._array_type(self._dtypes[name])
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
            self._line(f"const {self._value_type(self._dtypes[name])} {identifier(name)} = {value};", name)
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


def uses_short_rows(loops: ir.Loops) -> bool:
    """Returns whether rows are short and numerous and have at least three sweeps.

    With two sweeps there is only one wait, and the second sweep finds the row in registers or cache.
    """
    if loops.scans or not loops.outer or hint(loops.outer_numel) < MAX_ROWS or hint(loops.outer[-1]) == 1:
        return False
    return _rows_per_tile(loops) > 1 and len([sweep for sweep in ir.sweeps(loops) if sweep.inner]) > 2


def _rows_per_tile(loops: ir.Loops) -> int:
    """Returns the number of rows in a tile, a power of two; 1 if rows are too long or their length is symbolic."""
    length = loops.inner_numel
    if not isinstance(length, int) or not 0 < length <= TILE_ELEMENTS:
        return 1
    return min(MAX_ROWS, 1 << (TILE_ELEMENTS // length).bit_length() - 1)


def _sections(sweeps: Sequence[ir.Sweep]) -> list[Section]:
    first, *others = sweeps
    after: list[Sequence[ir.Statement]] = [sweep.outer for sweep in others]
    if sweeps[-1].inner:
        after.append(())
    swept = [sweep for sweep in sweeps if sweep.inner]
    sections = [Section((), sweep, outer) for sweep, outer in zip(swept, after, strict=True)]
    return [replace(sections[0], before=first.outer), *sections[1:]]
