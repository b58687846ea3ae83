"""C++ kernels with reductions in which the last outer index is contiguous in memory: blocks of it are vectorised.

Each sweep over the inner indices has one accumulator per lane.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core.codegen.cpp.accumulators import (
    accumulator,
    identity,
    propagates_nan,
    row_type,
    sums_for_means,
    update,
)
from compiler_core.codegen.cpp.kernel import SIMD, KernelPrinter
from compiler_core.codegen.cpp.loop_distribution import argument_names, live_in
from compiler_core.codegen.cpp.source_writer import Loop, SourceWriter, identifier
from compiler_core.loops import ir

MAX_LANES = 256
"""The maximum number of outer indices in a block."""


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
        self._declare_lanes(body, shared)
        at = len(self._loops.outer) - 1
        with (
            self._float_array_scope(self._half_accesses((*again, *body), at), at, "block", "lane", self._block_size),
            self._nest([Loop("lane", "lanes")], SIMD),
        ):
            self._line(f"const i64 {self._names[at]} = block + lane;")
            for name in sorted((used & shared) - here):
                kind = self._value_type(self._dtypes[name])
                self._line(f"const {kind} {identifier(name)} = ({kind}){identifier(name)}_lane[lane];", name)
            for statement in (*again, *body):
                if isinstance(statement, ir.Reduce):
                    lane = f"{accumulator(statement, 'lane')}[lane]"
                    self._line(
                        update(statement, lane, self._argument(statement.value), propagates_nan(statement)), statement
                    )
                    continue
                self._statement(statement)
                if not isinstance(statement, ir.Store) and statement.name in shared and statement in body:
                    self._line(f"{identifier(statement.name)}_lane[lane] = {identifier(statement.name)};", statement)

    def _declare_lanes(self, body: Sequence[ir.Statement], shared: frozenset[str]) -> None:
        for statement in body:
            if isinstance(statement, (ir.Store, ir.Reduce)) or statement.name not in shared:
                continue
            self._line(
                f"{self._array_type(statement.dtype)} {identifier(statement.name)}_lane[{self._block_size}];", statement
            )

    def _values_between_loops(self) -> frozenset[str]:
        """Returns the outer values that one loop over lanes computes and another one reads."""
        parts = [part for sweep in self._sweeps for part in (sweep.outer, (*sweep.recomputed, *sweep.inner))]
        reduced = frozenset(s.name for s in self._loops.body if isinstance(s, ir.Reduce))
        return reduced.union(*(live_in(part, argument_names) for part in parts))
