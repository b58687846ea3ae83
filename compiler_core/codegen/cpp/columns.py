"""C++ kernels that reduce over columns what they go through row by row.

A thread goes through the rows of a part, one after the other.  What the columns of a few rows come to is in one array,
narrow enough for the nearest cache; what those of the part come to is in another one, where sums of floats are doubles.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler_core.codegen.cpp.reduce import identity, narrow, sees_nan, update, wide
from compiler_core.codegen.cpp.rows import Rows
from compiler_core.codegen.cpp.text import Loop
from compiler_core.loops import ir

FEW = 8
"""Rows whose columns are summed as floats: more are as fast, but less exact."""


class Columns(Rows):
    """Its outer indices are the part and the row in it."""

    def _body(self) -> None:
        (parts, rows), length = self._loops.outer, self._loops.inner_numel
        part, row, _ = self._names
        with self._nest([Loop(part, str(parts))], self._pragma(1)):
            self._arrays("all", wide)
            with self._nest([Loop("tile", str(rows), step=FEW)], None):
                self._arrays("few", narrow)
                end = f"(tile + {FEW} < {rows} ? tile + {FEW} : {rows})"
                with self._nest([Loop(row, end, "tile")], None):
                    self._row(length, parallel=False)
                for store in self._loops.columns:
                    few, all_ = self._element(store, "few"), self._element(store, "all")
                    self._along_columns(update(self._reduce(store), all_, few, sees_nan(self._reduce(store))), store)
            for store in self._loops.columns:
                value = f"({narrow(self._reduce(store))}){self._element(store, 'all')}"
                self._along_columns(f"{self._target(store)} = {value};", store)

    def _arrays(self, what: str, kind: Callable[[ir.Reduce], str]) -> None:
        """What columns come to, of no rows yet.  Used by way of pointers: beside an array that is taken by reference,
        g++ 12 keeps the sums of a row in memory."""
        for store in self._loops.columns:
            reduce, name = self._reduce(store), f"{store.buffer}_{what}"
            self._add(f"{kind(reduce)} {name}_array[{self._loops.inner_numel}], *const {name} = {name}_array;", store)
            self._add(f"for ({kind(reduce)}& first : {name}_array) first = {identity(reduce)};", store)

    def _along_columns(self, line: str, store: ir.Store) -> None:
        with self._nest([Loop(self._names[-1], str(self._loops.inner_numel))], None):
            self._add(line, store)

    def _statement(self, statement: ir.Statement) -> None:
        if isinstance(statement, ir.Store) and statement.over:
            reduce, few = self._reduce(statement), self._element(statement, "few")
            self._add(update(reduce, few, self._arg(statement.value), sees_nan(reduce)), statement)
        else:
            super()._statement(statement)

    def _element(self, store: ir.Store, what: str) -> str:
        return f"{store.buffer}_{what}[{self._names[-1]}]"

    def _reduce(self, store: ir.Store) -> ir.Reduce:
        """What is stored, as a reduction."""
        return ir.Reduce(store.buffer, self._dtype(store.value), store.over, store.value)
