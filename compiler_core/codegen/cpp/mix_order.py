"""C++ kernels with a mix-order reduction: they also reduce over the columns of a tensor that they read row by row.

Each thread processes the rows of one part in order.  The column results of a few rows are accumulated in one array, in
the element type and small enough for the L1 cache; they are then added to the array of the whole part, in which sums of
floats are doubles.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler_core.codegen.cpp.accumulators import element_type, identity, propagates_nan, row_type, update
from compiler_core.codegen.cpp.rows import RowPrinter
from compiler_core.codegen.cpp.source_writer import Loop
from compiler_core.loops import ir

ROWS_PER_TILE = 8
"""Rows whose columns are summed in the element type: more are not faster, and less accurate."""


class MixedOrderPrinter(RowPrinter):
    """Prints a mix-order reduction; the outer indices are the part and the row in it."""

    def _body(self) -> None:
        (parts, rows), length = self._loops.outer, self._loops.inner_numel
        part, row, _ = self._names
        with self._nest([Loop(part, str(parts))], self._pragma(1)):
            self._declare_column_arrays("all", row_type)
            with self._nest([Loop("tile", str(rows), step=ROWS_PER_TILE)], None):
                self._declare_column_arrays("few", element_type)
                end = f"(tile + {ROWS_PER_TILE} < {rows} ? tile + {ROWS_PER_TILE} : {rows})"
                with self._nest([Loop(row, end, "tile")], None):
                    self._row(length, parallel=False)
                for store in self._loops.column_stores:
                    few, all_ = self._column_element(store, "few"), self._column_element(store, "all")
                    self._along_columns(
                        update(self._as_reduction(store), all_, few, propagates_nan(self._as_reduction(store))), store
                    )
            for store in self._loops.column_stores:
                value = f"({element_type(self._as_reduction(store))}){self._column_element(store, 'all')}"
                self._along_columns(f"{self._target(store)} = {value};", store)

    def _declare_column_arrays(self, what: str, kind: Callable[[ir.Reduce], str]) -> None:
        """Declares and initialises the accumulators of the columns.

        They are used through pointers: next to an array captured by reference, g++ 12 keeps a row's sums in memory
        instead of registers.
        """
        for store in self._loops.column_stores:
            reduce, name = self._as_reduction(store), f"{store.buffer}_{what}"
            self._line(f"{kind(reduce)} {name}_array[{self._loops.inner_numel}], *const {name} = {name}_array;", store)
            self._line(f"for ({kind(reduce)}& first : {name}_array) first = {identity(reduce)};", store)

    def _along_columns(self, line: str, store: ir.Store) -> None:
        with self._nest([Loop(self._names[-1], str(self._loops.inner_numel))], None):
            self._line(line, store)

    def _statement(self, statement: ir.Statement) -> None:
        if isinstance(statement, ir.Store) and statement.reduction:
            reduce, few = self._as_reduction(statement), self._column_element(statement, "few")
            self._line(update(reduce, few, self._argument(statement.value), propagates_nan(reduce)), statement)
        else:
            super()._statement(statement)

    def _column_element(self, store: ir.Store, what: str) -> str:
        return f"{store.buffer}_{what}[{self._names[-1]}]"

    def _as_reduction(self, store: ir.Store) -> ir.Reduce:
        """Returns a store over the outer indices as a reduction."""
        return ir.Reduce(store.buffer, self._dtype(store.value), store.reduction, store.value)
