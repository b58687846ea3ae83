"""C++ kernels with reductions: sweeps over the inner indices, for one outer index (a row) at a time.

A sweep processes the last index in vectors and the rest at the end (the tail loop) in vectors of half the length each
time (`EACH_SOURCE`).  Float sums are accumulated in double across the blocks of a row, so that long rows lose no
accuracy; so are the last lanes of a sum that becomes a mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import replace

from compiler_core.codegen.cpp.blocks import BlockPrinter, argument_names, distribute, live_in, result_name
from compiler_core.codegen.cpp.kernel import FAULT, SIMD, Loop, SourceWriter, block_of
from compiler_core.codegen.cpp.ops import (
    accumulator,
    element_type,
    identifier,
    identity,
    literal,
    nan_flag_type,
    openmp_clauses,
    propagates_nan,
    row_type,
    sums_for_means,
    update,
    uses_running_sums,
)
from compiler_core.codegen.cpp.prelude import CHUNK
from compiler_core.loops import ir
from compiler_core.loops.schedule.cpp_kernels import ROW_BYTES, values_to_store
from compiler_core.support.size_expr import Int, prod

BLOCK = 512
"""Elements of a long row that are summed in float, before the sum is added to the row's sum in double."""
TOTAL_LANES = 4
"""Lanes that `total` adds in double; rounding the sums of so few lanes would be most of the error."""
ROWS_PER_TILE = 8
"""Rows whose columns are summed in the element type: more are not faster, and less accurate."""


class RowPrinter(BlockPrinter):
    """Prints reductions row by row; `_row_values` are the values that one sweep stores in an array for later sweeps."""

    def __init__(self, text: SourceWriter, loops: ir.Loops, buffers: dict[str, ir.Buffer]) -> None:
        super().__init__(text, loops, buffers)
        self._row_values = values_to_store(loops)
        self._sweeps = ir.sweeps(loops, self._row_values)
        self._mean_sums = sums_for_means(loops)
        self._recomputed: Sequence[ir.Statement] = ()
        """The statements of earlier sweeps whose values the current sweep needs again."""
        self._accumulator_suffix = ""
        """The suffix of the accumulators to which the current loop adds elements."""

    def _body(self) -> None:
        if not self._threads.rows_at_call:
            self._choose_row_storage(parallel=self._threads.parallel and not self._threads.over_rows)
            return
        self._if_else(
            self._threads.condition,
            lambda: self._choose_row_storage(parallel=True),
            lambda: self._choose_row_storage(parallel=False),
        )

    def _choose_row_storage(self, parallel: bool) -> None:
        """Prints the rows; if their length is symbolic, the kernel decides at the call whether they are short enough to
        store expensive values."""
        inner, stored = self._loops.inner_numel, self._row_values
        if not stored or isinstance(inner, int):
            self._rows_of(inner, stored, parallel)
            return
        capacity = ROW_BYTES // max(self._loops.dtypes[name].itemsize for name in stored)
        self._if_else(
            f"{inner} <= {capacity}",
            lambda: self._rows_of(capacity, stored, parallel),
            lambda: self._rows_of(0, frozenset(), parallel),
        )
        self._row_values = stored

    def _rows_of(self, capacity: Int, stored: frozenset[str], parallel: bool) -> None:
        self._row_values, self._sweeps = stored, ir.sweeps(self._loops, stored)
        outer = [Loop(n, str(s)) for n, s in zip(self._names, self._loops.outer, strict=False)]
        with self._nest(outer, self._pragma(len(outer)) if self._threads.over_rows and outer else None):
            self._row(capacity, parallel)

    def _row(self, capacity: Int, parallel: bool) -> None:
        """Prints one row, sweep by sweep."""
        self._declare_row_arrays(capacity)
        for scan in self._loops.scans:
            self._line(f"{row_type(scan)} {accumulator(scan, 'run')};", scan)
        for sweep in self._sweeps:
            self._statements(sweep.outer)
            if sweep.inner:
                self._sweep(sweep, parallel)

    def _declare_row_arrays(self, capacity: Int) -> None:
        for name in sorted(self._row_values):
            self._line(f"{self._array_type(self._loops.dtypes[name])} {identifier(name)}_row[{capacity}];", name)

    def _sweep(self, sweep: ir.Sweep, parallel: bool) -> None:
        """Prints one sweep over a row."""
        reduces = [s for s in sweep.inner if isinstance(s, ir.Reduce)]
        scans = [s for s in (*sweep.recomputed, *sweep.inner) if isinstance(s, ir.Scan)]
        leading, last = self._inner_loops()
        for scan in scans:
            self._line(f"{accumulator(scan, 'run')} = {identity(scan)};", scan)
        for reduce in reduces if leading else ():
            self._declare_accumulator(reduce, row_type(reduce), "all")
        pragma = f"#pragma omp parallel for schedule(static){openmp_clauses(reduces, 'all')}"
        results = {reduce.name: "part" if scans else self._vector_result(reduce) for reduce in reduces}
        with self._nest(leading, pragma if parallel and not scans else None):
            if scans:
                self._scan_loop(sweep, reduces, last)
            else:
                self._vector_loop(sweep, reduces, last)
            for reduce in reduces if leading else ():
                self._combine(reduce, "all", results[reduce.name])
        for reduce in reduces:
            self._declare_result(reduce, "all" if leading else results[reduce.name])

    def _scan_loop(self, sweep: ir.Sweep, reduces: Sequence[ir.Reduce], loop: Loop) -> None:
        """Prints a sweep with scans: for each chunk of the row, a vectorised loop before a scan, the scan, and a
        vectorised loop after it.  Values that pass between these loops are in arrays.
        """
        self._accumulator_suffix = "part"
        self._recomputed = sweep.recomputed
        for reduce in reduces:
            self._declare_accumulator(reduce, element_type(reduce), "part")
        chunks, part = replace(loop, name="chunk", step=CHUNK), Loop(loop.name, "chunk + lanes", "chunk")
        statements = (*sweep.recomputed, *sweep.inner)
        bodies = distribute(statements, lambda s: isinstance(s, ir.Scan), argument_names)
        again = [s for s in sweep.recomputed if isinstance(s, ir.Store) or s.name not in self._row_values]
        at, rest = len(self._names) - 1, f"{loop.end} - chunk"
        halves = self._half_accesses([*again, *sweep.inner], at)
        with self._nest([chunks], None):
            self._line(f"const i64 lanes = {rest} < {CHUNK} ? {rest} : {CHUNK};")
            with self._float_array_scope(halves, at, "chunk", f"{loop.name} - chunk"):
                passed = {a for body in bodies for a in live_in(body, argument_names)} & {*map(result_name, statements)}
                for name in sorted(passed):
                    self._line(f"{self._array_type(self._loops.dtypes[name])} {identifier(name)}_chunk[{CHUNK}];", name)
                for body in bodies:
                    self._scan_part(part, body, passed)
        self._before_rounding = {}  # values before rounding do not exist in later sweeps

    def _scan_part(self, loop: Loop, body: Sequence[ir.Statement], passed: Set[str]) -> None:
        """Prints one of the loops of a sweep with scans; `passed` are the values that pass between them in arrays."""
        first = body[0]
        if isinstance(first, ir.Scan) and len(body) == 1 and {first.value, first.name} <= passed:
            if uses_running_sums(first):
                run, to = accumulator(first, "run"), f"{identifier(first.name)}_chunk"
                self._line(f"{run} = running_sums({to}, {self._argument(first.value)}_chunk, lanes, {run});", first)
                return
        reduces = [s for s in body if isinstance(s, ir.Reduce)]
        pragma = None if isinstance(first, ir.Scan) else SIMD + openmp_clauses(reduces, "part")
        element = f"_chunk[{loop.name} - chunk]"
        self._before_rounding = {}
        with self._nest([loop], pragma):
            for name in sorted(live_in(body, argument_names) & passed):
                self._read_from(name, f"{identifier(name)}{element}")
            for statement in body:
                self._lane_statement(statement)
                if result_name(statement) in passed:
                    name = identifier(result_name(statement))
                    self._line(f"{name}{element} = {name};", statement)

    def _vector_loop(self, sweep: ir.Sweep, reduces: Sequence[ir.Reduce], loop: Loop) -> None:
        """Prints a sweep in vectors, with one accumulator per lane; at the end the lanes are combined."""
        self._accumulator_suffix = "lane[lane]"
        size = self._loops.inner[-1]
        statements = (*sweep.recomputed, *sweep.inner)
        lanes = self._lane_count(statements, loop.name)
        lanes = 1 << min(size, lanes).bit_length() - 1 if isinstance(size, int) else lanes
        for reduce in reduces:
            self._declare_accumulator(reduce, element_type(reduce), f"lane[{max(lanes, TOTAL_LANES)}]")
        has_positions = any(isinstance(s, ir.Position) for s in statements)
        fault = f"{FAULT}_{next(k for k, other in enumerate(self._sweeps) if other is sweep)}"
        if has_positions:
            self._line(f"i64 {fault}[{lanes}] = {{}};")
            self._fault_variable = f"{fault}[lane]"
        self._recomputed = sweep.recomputed
        with self._block_loop(loop, lanes):
            self._block_body(loop.name, statements)
        if reduces or has_positions:
            self._line("}, [&](i32 lane, i32 other) INLINE {")
            with self._text.nested():
                for reduce in reduces:
                    condition = f"if (other >= {TOTAL_LANES}) " if reduce.name in self._mean_sums else ""
                    self._combine(reduce, "lane[lane]", "lane[other]", condition)
                if has_positions:
                    self._line(f"{fault}[lane] |= {fault}[other];")
        self._line("});")
        for reduce in (r for r in reduces if r.name in self._mean_sums):
            self._line(f"const f64 {accumulator(reduce, 'wide')} = total({accumulator(reduce, 'lane')});", reduce)
        if has_positions:
            self._fault_variable = FAULT
            self._line(f"{FAULT} |= {fault}[0];")

    def _declare_accumulator(self, reduce: ir.Reduce, kind: str, suffix: str) -> None:
        """Declares the accumulator of a reduction: a variable, or an array if `suffix` has brackets."""
        name, first = accumulator(reduce, suffix), identity(reduce)
        if "[" not in suffix:
            self._line(f"{kind} {name} = {first};", reduce)
        elif ir.REDUCTIONS[reduce.op] == 0:
            self._line(f"{kind} {name} = {{}};", reduce)
        else:
            self._line(f"{kind} {name};", reduce)
            self._line(f"for ({kind}& first : {accumulator(reduce, 'lane')}) first = {first};", reduce)
        if propagates_nan(reduce):
            self._line(f"{nan_flag_type(reduce)} {accumulator(reduce, 'nan_' + suffix)} = {{}};", reduce)

    def _vector_result(self, reduce: ir.Reduce) -> str:
        """Returns the suffix of the variable in which the lanes were combined."""
        return "wide" if reduce.name in self._mean_sums else "lane[0]"

    def _combine(self, reduce: ir.Reduce, into: str, other: str, condition: str = "") -> None:
        """Combines one accumulator into another one."""
        self._line(condition + update(reduce, accumulator(reduce, into), accumulator(reduce, other)), reduce)
        if propagates_nan(reduce):
            self._line(f"{accumulator(reduce, 'nan_' + into)} |= {accumulator(reduce, 'nan_' + other)};", reduce)

    def _declare_result(self, reduce: ir.Reduce, suffix: str) -> None:
        """Declares the result of a reduction over a row."""
        kind = ir.SHORT[reduce.dtype]
        value = f"({kind}){accumulator(reduce, suffix)}"
        if reduce.name in self._mean_sums and suffix != "part":
            self._double_sums[reduce.name] = accumulator(reduce, suffix)
        if propagates_nan(reduce):
            nan = literal(float("nan"), reduce.dtype)
            value = f"{accumulator(reduce, 'nan_' + suffix)} ? {nan} : {accumulator(reduce, suffix)}"
        self._line(f"const {kind} {identifier(reduce.name)} = {value};", reduce)

    def _inner_loops(self) -> tuple[list[Loop], Loop]:
        """Returns the inner loops around the vectorised loop, and the vectorised loop."""
        sizes, names = self._loops.inner, self._names[len(self._loops.outer) :]
        leading = [Loop(n, str(s)) for n, s in zip(names, sizes[:-1], strict=False)]
        if isinstance(sizes[-1], int) and sizes[-1] <= BLOCK:
            return leading, Loop(names[-1], str(sizes[-1]))
        last = Loop(names[-1], str(sizes[-1]))
        return [*leading, replace(last, name="block", step=BLOCK)], block_of(last, "block", BLOCK)

    def _recompute(self, statement: ir.Statement) -> None:
        """Prints a statement of an earlier sweep again, or the load of its stored value."""
        assert not isinstance(statement, ir.Store)
        if statement.name in self._row_values:
            name = identifier(statement.name)
            value = f"{name}_row[{self._row_index()}]"
            self._line(f"const {self._value_type(statement.dtype)} {name} = {value};", statement)
        else:
            self._statement(statement)

    def _lane_statement(self, statement: ir.Statement) -> None:
        if statement in self._recomputed:
            self._recompute(statement)
        else:
            self._statements([statement])

    def _is_stored(self, statement: ir.Statement) -> bool:
        return statement in self._recomputed and result_name(statement) in self._row_values

    def _store_for_later_sweeps(self, statement: ir.Statement) -> None:
        """Stores a value in the row's array, if later sweeps read it."""
        if result_name(statement) in self._row_values:
            row = f"{identifier(result_name(statement))}_row[{self._row_index()}]"
            self._line(f"{row} = {identifier(result_name(statement))};", statement)

    def _row_index(self) -> str:
        strides = [prod(self._loops.inner[k + 1 :]) for k in range(len(self._loops.inner))]
        return ir.Address(tuple(strides)).text(self._names[len(self._loops.outer) :])

    def _statements(self, statements: Sequence[ir.Statement]) -> None:
        for statement in statements:
            if isinstance(statement, ir.Reduce):
                value = self._argument(statement.value)
                self._line(update(statement, accumulator(statement, self._accumulator_suffix), value), statement)
                if propagates_nan(statement):
                    self._line(
                        f"{accumulator(statement, 'nan_' + self._accumulator_suffix)} |= {value} != {value};", statement
                    )
            else:
                self._statement(statement)
                self._store_for_later_sweeps(statement)


class MixedOrderPrinter(RowPrinter):
    """Prints a mix-order reduction: rows that also reduce over the columns; the outer indices are the part and the row.

    Each thread processes the rows of one part in order.  The column results of a few rows are accumulated in one array,
    in the element type and small enough for the L1 cache; they are then added to the array of the whole part, in which
    sums of floats are doubles.
    """

    def _body(self) -> None:
        (parts, rows), length = self._loops.outer, self._loops.inner_numel
        part, row, _ = self._names
        with self._nest([Loop(part, str(parts))], self._pragma(1)):
            self._declare_column_arrays("all", row_type)
            with self._nest([Loop("tile", str(rows), step=ROWS_PER_TILE)], None):
                self._declare_column_arrays("few", element_type)
                with self._nest([block_of(Loop(row, str(rows)), "tile", ROWS_PER_TILE)], None):
                    self._row(length, parallel=False)
                for store in self._loops.column_stores:
                    reduce = self._as_reduction(store)
                    few, all_ = self._column_element(store, "few"), self._column_element(store, "all")
                    self._along_columns(update(reduce, all_, few, propagates_nan(reduce)), store)
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
        return ir.Reduce(store.buffer, self._loops.dtype(store.value), store.reduction, store.value)
