"""C++ kernels that walk the inner indices for one outer index at a time, one sweep after the other.

A sweep goes along the last index in vectors, and through what is left of it at the end in ever shorter ones (`EACH`).
Sums of floats are kept in double across blocks of a row, so long rows lose no accuracy, and so is what is left of a
vector that leads to a mean.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import torch

from compiler_core.codegen.cpp.blocks import Blocks
from compiler_core.codegen.cpp.halves import CHUNK
from compiler_core.codegen.cpp.kernel import FAULT, SIMD
from compiler_core.codegen.cpp.ops import number
from compiler_core.codegen.cpp.reduce import (
    clauses,
    flag,
    identity,
    means,
    narrow,
    own,
    sees_nan,
    sums_ahead,
    update,
    wide,
)
from compiler_core.codegen.cpp.stages import arguments, from_outside, result, stages
from compiler_core.codegen.cpp.text import Loop, Text, safe
from compiler_core.loops import ir
from compiler_core.support.size_expr import Int, Size, prod

BLOCK = 512
"""Elements of a long row that are summed as floats, before their sum goes to the double of the row."""
ROW_BYTES = 32 * 1024
"""Values of a row that are dear to compute are kept up to this size, else computed again."""
DEAR = 10
TOTAL = """\
static inline f64 total(const f32* sums) { return ((f64)sums[0] + sums[1]) + ((f64)sums[2] + sums[3]); }
"""
LEFT = 4
"""Lanes that `total` takes; to round the sums of so few would be most of a sum's error."""


class Rows(Blocks):
    """`_kept` are the values that one sweep leaves in an array for those after it."""

    def __init__(self, text: Text, loops: ir.Loops, buffers: dict[str, ir.Buffer]) -> None:
        super().__init__(text, loops, buffers)
        self._kept = _kept(loops)
        self._sweeps = ir.sweeps(loops, self._kept)
        self._means = means(loops)
        self._repeated: Sequence[ir.Statement] = ()
        """What a sweep needs again of those before it."""
        self._into = ""
        """Of an accumulator's name, the end of that which an element is taken into."""

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
            self._row(capacity, parallel)

    def _row(self, capacity: Int, parallel: bool) -> None:
        """One row, sweep by sweep."""
        self._kept_arrays(capacity)
        for scan in self._loops.scans:
            self._add(f"{wide(scan)} {own(scan, 'run')};", scan)
        for sweep in self._sweeps:
            self._statements(sweep.outer)
            if sweep.inner:
                self._sweep(sweep, parallel)

    def _kept_arrays(self, capacity: Int) -> None:
        for name in sorted(self._kept):
            self._add(f"{self._in_array(self._dtypes[name])} {safe(name)}_row[{capacity}];", name)

    def _sweep(self, sweep: ir.Sweep, parallel: bool) -> None:
        """One run over a row."""
        reduces = [s for s in sweep.inner if isinstance(s, ir.Reduce)]
        scans = [s for s in (*sweep.again, *sweep.inner) if isinstance(s, ir.Scan)]
        leading, last = self._inner_loops()
        for scan in scans:
            self._add(f"{own(scan, 'run')} = {identity(scan)};", scan)
        for reduce in reduces if leading else ():
            self._accumulators(reduce, wide(reduce), "all")
        pragma = f"#pragma omp parallel for schedule(static){clauses(reduces, 'all')}"
        with self._nest(leading, pragma if parallel and not scans else None):
            (self._in_order if scans else self._in_vectors)(sweep, reduces, last)
            for reduce in reduces if leading else ():
                self._fold(reduce, "all", "part" if scans else self._left(reduce))
        for reduce in reduces:
            self._reduced(reduce, "all" if leading else "part" if scans else self._left(reduce))

    def _in_order(self, sweep: ir.Sweep, reduces: Sequence[ir.Reduce], loop: Loop) -> None:
        """A run with scans: for a chunk of the row, what comes before a scan on vectors, the scan, what comes after it.

        What one of these loops makes for another one is in arrays.
        """
        self._into = "part"
        for reduce in reduces:
            self._accumulators(reduce, narrow(reduce), "part")
        chunks, part = self._chunks(loop), Loop(loop.name, "chunk + lanes", "chunk")
        statements = (*sweep.again, *sweep.inner)
        parts = stages(statements, lambda s: isinstance(s, ir.Scan), arguments)
        with self._nest([chunks], None), self._chunk(part, chunks, self._halves(sweep)):
            passed = {a for stage in parts for a in from_outside(stage, arguments)} & {*map(result, statements)}
            for name in sorted(passed):
                self._add(f"{self._in_array(self._dtypes[name])} {safe(name)}_chunk[{CHUNK}];", name)
            for stage in parts:
                first = stage[0]
                alone = isinstance(first, ir.Scan) and len(stage) == 1 and {first.value, first.name} <= passed
                if isinstance(first, ir.Scan) and alone and sums_ahead(first):
                    run, arrays = own(first, "run"), f"{safe(first.name)}_chunk, {self._arg(first.value)}_chunk"
                    self._add(f"{run} = running_sums({arrays}, lanes, {run});", first)
                    continue
                taken = [s for s in stage if isinstance(s, ir.Reduce)]
                pragma = None if isinstance(first, ir.Scan) else SIMD + clauses(taken, "part")
                with self._nest([part], pragma):
                    self._stage(sweep, stage, passed, f"[{loop.name} - chunk]")
        self._exact = {}  # none of these floats is there for a later sweep

    def _stage(self, sweep: ir.Sweep, stage: Sequence[ir.Statement], passed: Set[str], place: str) -> None:
        self._exact = {}
        for name in sorted(from_outside(stage, arguments) & passed):
            kind = self._kind(self._dtypes[name])
            self._add(f"const {kind} {safe(name)} = ({kind}){safe(name)}_chunk{place};", name)
        for statement in stage:
            (self._again if statement in sweep.again else self._statements)([statement])
            if result(statement) in passed:
                self._add(f"{safe(result(statement))}_chunk{place} = {safe(result(statement))};", statement)

    def _in_vectors(self, sweep: ir.Sweep, reduces: Sequence[ir.Reduce], loop: Loop) -> None:
        """Some elements at a time, one accumulator for each of them; these become one at the end."""
        self._into = "lane[lane]"
        size = self._loops.inner[-1]
        statements = (*sweep.again, *sweep.inner)
        lanes = self._lanes(statements, loop.name)
        lanes = 1 << min(size, lanes).bit_length() - 1 if isinstance(size, int) else lanes
        for reduce in reduces:
            self._accumulators(reduce, narrow(reduce), f"lane[{max(lanes, LEFT)}]")
        watched = any(isinstance(s, ir.Position) for s in statements)
        fault = f"{FAULT}_{next(k for k, other in enumerate(self._sweeps) if other is sweep)}"
        if watched:
            self._add(f"i64 {fault}[{lanes}] = {{}};")
            self._fault = f"{fault}[lane]"
        self._repeated = sweep.again
        with self._each(loop, lanes):
            self._in_stages(loop.name, statements)
        if reduces or watched:
            self._add("}, [&](i32 lane, i32 other) INLINE {")
            with self._text.nested():
                for reduce in reduces:
                    condition = f"if (other >= {LEFT}) " if reduce.name in self._means else ""
                    self._fold(reduce, "lane[lane]", "lane[other]", condition)
                if watched:
                    self._add(f"{fault}[lane] |= {fault}[other];")
        self._add("});")
        for reduce in (r for r in reduces if r.name in self._means):
            self._add(f"const f64 {own(reduce, 'wide')} = total({own(reduce, 'lane')});", reduce)
        if watched:
            self._fault = FAULT
            self._add(f"{FAULT} |= {fault}[0];")

    def _halves(self, sweep: ir.Sweep) -> list[ir.Load | ir.Store]:
        """What a sweep converts in arrays."""
        again = [s for s in sweep.again if isinstance(s, ir.Store) or s.name not in self._kept]
        return self._in_arrays([*again, *sweep.inner], len(self._names) - 1)

    def _accumulators(self, reduce: ir.Reduce, kind: str, suffix: str) -> None:
        """What a reduction begins with: one variable, or an array of them."""
        name, first = own(reduce, suffix), identity(reduce)
        if "[" not in suffix:
            self._add(f"{kind} {name} = {first};", reduce)
        elif ir.REDUCTIONS[reduce.op] == 0:
            self._add(f"{kind} {name} = {{}};", reduce)
        else:
            self._add(f"{kind} {name};", reduce)
            self._add(f"for ({kind}& first : {own(reduce, 'lane')}) first = {first};", reduce)
        if sees_nan(reduce):
            self._add(f"{flag(reduce)} {own(reduce, 'nan_' + suffix)} = {{}};", reduce)

    def _left(self, reduce: ir.Reduce) -> str:
        """Where the lanes of a vector have been taken together."""
        return "wide" if reduce.name in self._means else "lane[0]"

    def _fold(self, reduce: ir.Reduce, into: str, other: str, condition: str = "") -> None:
        """Take one accumulator into another one."""
        self._add(condition + update(reduce, own(reduce, into), own(reduce, other)), reduce)
        if sees_nan(reduce):
            self._add(f"{own(reduce, 'nan_' + into)} |= {own(reduce, 'nan_' + other)};", reduce)

    def _reduced(self, reduce: ir.Reduce, suffix: str) -> None:
        """The result of a reduction over a row."""
        kind = ir.SHORT[reduce.dtype]
        value = f"({kind}){own(reduce, suffix)}"
        if reduce.name in self._means and suffix != "part":
            self._unrounded[reduce.name] = own(reduce, suffix)
        if sees_nan(reduce):
            nan = number(float("nan"), reduce.dtype)
            value = f"{own(reduce, 'nan_' + suffix)} ? {nan} : {own(reduce, suffix)}"
        self._add(f"const {kind} {safe(reduce.name)} = {value};", reduce)

    def _inner_loops(self) -> tuple[list[Loop], Loop]:
        """The loops around the vectorised one, and that one."""
        sizes, names = self._loops.inner, self._names[len(self._loops.outer) :]
        leading = [Loop(n, str(s)) for n, s in zip(names, sizes[:-1], strict=False)]
        if isinstance(sizes[-1], int) and sizes[-1] <= BLOCK:
            return leading, Loop(names[-1], str(sizes[-1]))
        block = Loop("block", str(sizes[-1]), step=BLOCK)
        return [*leading, block], Loop(names[-1], _block_end(sizes[-1]), "block")

    def _again(self, statements: Sequence[ir.Statement]) -> None:
        for statement in statements:
            assert not isinstance(statement, ir.Store)
            if statement.name in self._kept:
                value = f"{safe(statement.name)}_row[{self._row_index()}]"
                self._add(f"const {self._kind(statement.dtype)} {safe(statement.name)} = {value};", statement)
            else:
                self._statement(statement)

    def _turn(self, statement: ir.Statement) -> None:
        (self._again if statement in self._repeated else self._statements)([statement])

    def _is_known(self, statement: ir.Statement) -> bool:
        return statement in self._repeated and result(statement) in self._kept

    def _keep(self, statement: ir.Statement) -> None:
        """Leave a value to later sweeps."""
        if result(statement) in self._kept:
            row = f"{safe(result(statement))}_row[{self._row_index()}]"
            self._add(f"{row} = {safe(result(statement))};", statement)

    def _row_index(self) -> str:
        strides = [prod(self._loops.inner[k + 1 :]) for k in range(len(self._loops.inner))]
        return ir.Address(tuple(strides)).text(self._names[len(self._loops.outer) :])

    def _statements(self, statements: Sequence[ir.Statement]) -> None:
        for statement in statements:
            if isinstance(statement, ir.Reduce):
                value = self._arg(statement.value)
                self._add(update(statement, own(statement, self._into), value), statement)
                if sees_nan(statement):
                    self._add(f"{own(statement, 'nan_' + self._into)} |= {value} != {value};", statement)
            else:
                self._statement(statement)
                self._keep(statement)


def _kept(loops: ir.Loops) -> frozenset[str]:
    """Dear values that a later sweep needs again and that fit beside the row."""
    if not loops.inner:
        return frozenset()
    again = [s for sweep in ir.sweeps(loops) for s in sweep.again if isinstance(s, ir.Compute)]
    # so is float16: its conversions cut a loop in two
    halves = {s.name for s in loops.body if isinstance(s, ir.Load) and s.dtype is torch.float16}
    dear = (s for s in again if ir.OPS[s.op].cost >= DEAR or halves.intersection(s.arguments) or _rounds(s))
    kept = frozenset(s.name for s in dear if may_fit(loops.inner_numel * s.dtype.itemsize))
    # but not what only leads to another one
    return kept.intersection(
        s.name for sweep in ir.sweeps(loops, kept) for s in sweep.again if not isinstance(s, ir.Store)
    )


def _rounds(statement: ir.Compute) -> bool:
    return statement.op == "cast" and statement.dtype is torch.float16


def may_fit(size: Int) -> bool:
    return isinstance(size, Size) or size <= ROW_BYTES


def _block_end(size: Int) -> str:
    return f"(block + {BLOCK} < {size} ? block + {BLOCK} : {size})"
