"""C++ kernels in which neighbours in memory differ by the last outer index: blocks of it are the vectors.

Each sweep over the inner indices keeps one accumulator for each lane.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core.codegen.cpp.kernel import SIMD, Kernel
from compiler_core.codegen.cpp.reduce import identity, means, own, sees_nan, update, wide
from compiler_core.codegen.cpp.stages import arguments, from_outside
from compiler_core.codegen.cpp.text import Loop, safe
from compiler_core.loops import ir


class Lanes(Kernel):
    """Reductions for a block of outer indices at a time."""

    def _body(self) -> None:
        *leading, size = self._loops.outer
        loops = [Loop(n, str(s)) for n, s in zip(self._names, leading, strict=False)]
        loops.append(Loop("block", str(size), step=self._block))
        shared = self._shared()
        self._unrounded = {name: f"{safe(name)}_lane[lane]" for name in means(self._loops)}
        with self._nest(loops, self._pragma(len(loops)) if self._parallel else None):
            self._add(f"const i64 lanes = {size} - block < {self._block} ? {size} - block : {self._block};")
            for scan in self._loops.scans:
                self._add(f"{wide(scan)} {own(scan, 'run')}[{self._block}];", scan)
            for sweep in self._sweeps:
                if sweep.outer:
                    self._lane_loop((), sweep.outer, shared)
                if sweep.inner:
                    self._lane_sweep(sweep, shared)

    def _lane_sweep(self, sweep: ir.Sweep, shared: frozenset[str]) -> None:
        reduces = [s for s in sweep.inner if isinstance(s, ir.Reduce)]
        for reduce in reduces:
            name = own(reduce, "lane")
            self._add(f"{wide(reduce)} {name}[{self._block}];", reduce)
            self._add(f"for (i64 lane = 0; lane < lanes; ++lane) {name}[lane] = {identity(reduce)};", reduce)
        for scan in (s for s in (*sweep.again, *sweep.inner) if isinstance(s, ir.Scan)):
            run = own(scan, "run")
            self._add(f"for (i64 lane = 0; lane < lanes; ++lane) {run}[lane] = {identity(scan)};", scan)
        names = self._names[len(self._loops.outer) :]
        with self._nest([Loop(n, str(s)) for n, s in zip(names, self._loops.inner, strict=True)], None):
            self._lane_loop(sweep.again, sweep.inner, shared)

    def _lane_loop(self, again: Sequence[ir.Statement], body: Sequence[ir.Statement], shared: frozenset[str]) -> None:
        """`body` for every lane; what other loops made is read from its array."""
        here = {s.name for s in (*again, *body) if not isinstance(s, (ir.Store, ir.Reduce))}
        used = {a for s in (*again, *body) for a in s.arguments if isinstance(a, str)}
        self._declare_lanes(body, shared)
        at = len(self._loops.outer) - 1
        with (
            self._as_floats(self._in_arrays((*again, *body), at), at, "block", "lane", self._block),
            self._nest([Loop("lane", "lanes")], SIMD),
        ):
            self._add(f"const i64 {self._names[at]} = block + lane;")
            for name in sorted((used & shared) - here):
                kind = self._kind(self._dtypes[name])
                self._add(f"const {kind} {safe(name)} = ({kind}){safe(name)}_lane[lane];", name)
            for statement in (*again, *body):
                if isinstance(statement, ir.Reduce):
                    lane = f"{own(statement, 'lane')}[lane]"
                    self._add(update(statement, lane, self._arg(statement.value), sees_nan(statement)), statement)
                    continue
                self._statement(statement)
                if not isinstance(statement, ir.Store) and statement.name in shared and statement in body:
                    self._add(f"{safe(statement.name)}_lane[lane] = {safe(statement.name)};", statement)

    def _declare_lanes(self, body: Sequence[ir.Statement], shared: frozenset[str]) -> None:
        for statement in body:
            if isinstance(statement, (ir.Store, ir.Reduce)) or statement.name not in shared:
                continue
            self._add(f"{self._in_array(statement.dtype)} {safe(statement.name)}_lane[{self._block}];", statement)

    def _shared(self) -> frozenset[str]:
        """Outer values that a loop over lanes needs and another one makes."""
        parts = [part for sweep in self._sweeps for part in (sweep.outer, (*sweep.again, *sweep.inner))]
        reduced = frozenset(s.name for s in self._loops.body if isinstance(s, ir.Reduce))
        return reduced.union(*(from_outside(part, arguments) for part in parts))
