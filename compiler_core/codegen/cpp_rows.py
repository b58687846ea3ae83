"""C++ kernels that walk the inner indices for one outer index at a time, one sweep after the other.

A sweep's last loop is vectorised with an OpenMP reduction.  Sums of floats are kept in double across blocks of a
row, so long rows lose no accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core import ir
from compiler_core.codegen.cpp_kernel import Kernel
from compiler_core.codegen.cpp_ops import number
from compiler_core.codegen.cpp_reduce import clauses, flag, identity, narrow, own, sees_nan, update, wide
from compiler_core.codegen.cpp_text import Loop, Text, safe
from compiler_core.sizes import Int, Size, prod

BLOCK = 512
"""Elements of a long row that are summed as floats, before their sum goes to the double of the row."""
ROW_BYTES = 32 * 1024
"""Values of a row that are dear to compute are kept up to this size, else computed again."""
DEAR = 10


class Rows(Kernel):
    """`_kept` are the values that one sweep leaves in an array for those after it."""

    def __init__(self, text: Text, loops: ir.Loops, buffers: dict[str, ir.Buffer]) -> None:
        super().__init__(text, loops, buffers)
        self._kept = _kept(loops)
        self._sweeps = ir.sweeps(loops, self._kept)

    def _body(self) -> None:
        if not self._in_row:
            self._short_or_long(self._parallel and not self._by_rows)
        else:
            self._either(self._is_dear, lambda: self._short_or_long(True), lambda: self._short_or_long(False))

    def _short_or_long(self, parallel: bool) -> None:
        """Rows; short ones have room to keep what was dear, and how long they are the call may decide."""
        inner, kept = self._loops.inner_numel, self._kept
        if not kept or isinstance(inner, int):
            self._rows_of(inner, kept, parallel)
            return
        fitting = ROW_BYTES // max(self._dtypes[name].itemsize for name in kept)
        short, long = (fitting, kept), (0, frozenset[str]())
        self._either(
            f"{inner} <= {fitting}", lambda: self._rows_of(*short, parallel), lambda: self._rows_of(*long, parallel)
        )
        self._kept = kept

    def _rows_of(self, capacity: Int, kept: frozenset[str], parallel: bool) -> None:
        self._kept, self._sweeps = kept, ir.sweeps(self._loops, kept)
        outer = [Loop(n, str(s)) for n, s in zip(self._names, self._loops.outer, strict=False)]
        with self._nest(outer, self._pragma(len(outer)) if self._by_rows and outer else None):
            for name in sorted(self._kept):
                self._add(f"{self._in_array(self._dtypes[name])} {safe(name)}_row[{capacity}];", name)
            for scan in self._loops.scans:
                self._add(f"{wide(scan)} {own(scan, 'run')};", scan)
            for sweep in self._sweeps:
                self._statements(sweep.outer)
                if sweep.inner:
                    self._sweep(sweep, parallel)

    def _sweep(self, sweep: ir.Sweep, parallel: bool) -> None:
        """One run over a row."""
        reduces = [s for s in sweep.inner if isinstance(s, ir.Reduce)]
        scans = [s for s in (*sweep.again, *sweep.inner) if isinstance(s, ir.Scan)]
        leading, last = self._inner_loops()
        for scan in scans:
            self._add(f"{own(scan, 'run')} = {identity(scan)};", scan)
        for reduce in reduces:
            suffix = "all" if leading else "part"
            kind = wide(reduce) if leading else narrow(reduce)
            self._add(f"{kind} {own(reduce, suffix)} = {identity(reduce)};", reduce)
            if sees_nan(reduce):
                self._add(f"{flag(reduce)} {own(reduce, 'nan')} = 0;", reduce)
        pragma = f"#pragma omp parallel for schedule(static){clauses(reduces, 'all')}"
        with self._nest(leading, pragma if parallel and not scans else None):
            for reduce in reduces if leading else ():
                self._add(f"{narrow(reduce)} {own(reduce, 'part')} = {identity(reduce)};", reduce)
            printed = [*(s for s in sweep.again if isinstance(s, ir.Store) or s.name not in self._kept), *sweep.inner]
            with self._nest([last], None) if scans else self._vectorised(last, printed, clauses(reduces, "part")):
                self._again(sweep)
                self._statements(sweep.inner)
            for reduce in reduces if leading else ():
                self._add(update(reduce, own(reduce, "all"), own(reduce, "part")), reduce)
        for reduce in reduces:
            self._reduced(reduce, own(reduce, "all" if leading else "part"))

    def _reduced(self, reduce: ir.Reduce, accumulator: str) -> None:
        """The result of a reduction over a row."""
        kind = ir.SHORT[reduce.dtype]
        value = f"({kind}){accumulator}"
        if sees_nan(reduce):
            value = f"{own(reduce, 'nan')} ? {number(float('nan'), reduce.dtype)} : {accumulator}"
        self._add(f"const {kind} {safe(reduce.name)} = {value};", reduce)

    def _inner_loops(self) -> tuple[list[Loop], Loop]:
        """The loops around the vectorised one, and that one."""
        sizes, names = self._loops.inner, self._names[len(self._loops.outer) :]
        leading = [Loop(n, str(s)) for n, s in zip(names, sizes[:-1], strict=False)]
        if isinstance(sizes[-1], int) and sizes[-1] <= BLOCK:
            return leading, Loop(names[-1], str(sizes[-1]))
        block = Loop("block", str(sizes[-1]), step=BLOCK)
        return [*leading, block], Loop(names[-1], _block_end(sizes[-1]), "block")

    def _again(self, sweep: ir.Sweep) -> None:
        for statement in sweep.again:
            assert not isinstance(statement, ir.Store)
            if statement.name in self._kept:
                value = f"{safe(statement.name)}_row[{self._row_index()}]"
                self._add(f"const {self._kind(statement.dtype)} {safe(statement.name)} = {value};", statement)
            else:
                self._statement(statement)

    def _row_index(self) -> str:
        strides = [prod(self._loops.inner[k + 1 :]) for k in range(len(self._loops.inner))]
        return ir.Address(tuple(strides)).text(self._names[len(self._loops.outer) :])

    def _statements(self, statements: Sequence[ir.Statement]) -> None:
        for statement in statements:
            if isinstance(statement, ir.Reduce):
                value = self._arg(statement.value)
                self._add(update(statement, own(statement, "part"), value), statement)
                if sees_nan(statement):
                    self._add(f"{own(statement, 'nan')} |= {value} != {value};", statement)
            else:
                self._statement(statement)
                if not isinstance(statement, ir.Store) and statement.name in self._kept:
                    row = f"{safe(statement.name)}_row[{self._row_index()}]"
                    self._add(f"{row} = {safe(statement.name)};", statement)


def _kept(loops: ir.Loops) -> frozenset[str]:
    """Dear values that a later sweep needs again and that fit beside the row."""
    if not loops.inner:
        return frozenset()
    again = [s for sweep in ir.sweeps(loops) for s in sweep.again]
    return frozenset(
        s.name
        for s in again
        if isinstance(s, ir.Compute) and ir.OPS[s.op].cost >= DEAR and may_fit(loops.inner_numel * s.dtype.itemsize)
    )


def may_fit(size: Int) -> bool:
    return isinstance(size, Size) or size <= ROW_BYTES


def _block_end(size: Int) -> str:
    return f"(block + {BLOCK} < {size} ? block + {BLOCK} : {size})"
