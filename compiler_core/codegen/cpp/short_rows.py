"""C++ kernels that walk short rows a few at a time: each sweep goes through all of these before the next one begins.

What one sweep finds the next one waits for: the last additions of a sum, a root, a division.  Beside a short row that
takes long; here the processor sweeps the next row meanwhile.  What passes from sweep to sweep is in arrays (`_few`).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from compiler_core.codegen.cpp.rows import Rows
from compiler_core.codegen.cpp.stages import from_outside, result
from compiler_core.codegen.cpp.text import Loop, part_of, safe
from compiler_core.loops import ir
from compiler_core.support.size_expr import hint

MOST_ROWS = 8
"""Rows that are taken together; with more, none that was measured got faster."""
TILE = 1024
"""Elements of these rows: with more, while memory is read nothing else is done."""


@dataclass(frozen=True)
class Section:
    """What is done for each row in turn: a sweep, what it needs if it is the first, and what follows from it."""

    before: Sequence[ir.Statement]
    sweep: ir.Sweep
    after: Sequence[ir.Statement]

    @property
    def statements(self) -> Sequence[ir.Statement]:
        return (*self.before, *self.sweep.again, *self.sweep.inner, *self.after)


class ShortRows(Rows):
    """The last outer index is the row."""

    def _body(self) -> None:
        sections = _sections(self._sweeps)
        shared = {name for section in sections for name in self._needed(section)}
        *others, rows = [Loop(n, str(s)) for n, s in zip(self._names, self._loops.outer, strict=False)]
        few = _rows_together(self._loops)
        around = [*others, replace(rows, name="tile", step=few)]
        with self._nest(around, self._pragma(len(around))):
            self._kept_arrays(few * self._loops.inner_numel)
            for name in sorted(shared):
                kind = "f64" if name in self._means else self._in_array(self._dtypes[name])
                self._add(f"{kind} {safe(name)}_few[{few}];", name)
            for section in sections:
                with self._nest([part_of(rows, "tile", few)], None):
                    self._section(section, shared)

    def _section(self, section: Section, shared: Set[str]) -> None:
        """One row; what it needs of the sections before and leaves to those after it is in arrays."""
        self._exact = {}  # none of these floats is in an array
        for name in sorted(self._needed(section)):
            value = self._of_row(name)
            if name in self._means:
                self._add(f"const f64 {self._unrounded[name]} = {value};", name)
                value = f"(f32){self._unrounded[name]}"
            self._add(f"const {self._kind(self._dtypes[name])} {safe(name)} = {value};", name)
        self._statements(section.before)
        self._sweep(section.sweep, parallel=False)
        self._statements(section.after)
        for name in sorted(shared & {*map(result, section.statements)}):
            self._add(f"{self._of_row(name)} = {self._unrounded.get(name, safe(name))};", name)

    def _needed(self, section: Section) -> Set[str]:
        """The values of a row that a section takes from those before it."""
        self._repeated = section.sweep.again
        return from_outside(section.statements, self._reads)

    def _of_row(self, name: str) -> str:
        return f"{safe(name)}_few[{self._row_in_tile()}]"

    def _row_in_tile(self) -> str:
        return f"{self._names[len(self._loops.outer) - 1]} - tile"

    def _row_index(self) -> str:
        return f"{self._loops.inner_numel}*({self._row_in_tile()}) + {super()._row_index()}"


def are_short(loops: ir.Loops) -> bool:
    """Whether the rows of `loops` are short, and many, and swept three times at least: what waits once is soon done,
    and finds at hand what the first sweep has loaded."""
    if loops.scans or not loops.outer or hint(loops.outer_numel) < MOST_ROWS or hint(loops.outer[-1]) == 1:
        return False
    return _rows_together(loops) > 1 and len([sweep for sweep in ir.sweeps(loops) if sweep.inner]) > 2


def _rows_together(loops: ir.Loops) -> int:
    """How many rows are taken together, a power of two."""
    length = loops.inner_numel
    if not isinstance(length, int) or not 0 < length <= TILE:
        return 1
    return min(MOST_ROWS, 1 << (TILE // length).bit_length() - 1)


def _sections(sweeps: Sequence[ir.Sweep]) -> list[Section]:
    first, *others = sweeps
    after = [sweep.outer for sweep in others] + [()] * bool(sweeps[-1].inner)
    swept = [sweep for sweep in sweeps if sweep.inner]
    return [Section(() if k else first.outer, *pair) for k, pair in enumerate(zip(swept, after, strict=True))]
