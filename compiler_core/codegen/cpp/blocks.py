"""Loops in blocks of a fixed number of elements, whose values are vectors.

A compiler vectorises no loop that converts float16, though the processor converts a vector in one instruction.  So a
block is a short loop for the elements up to a conversion, the conversion of an array, a short loop from there on.  As
the number of elements is known the compiler keeps these arrays in registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager

import torch

from compiler_core.codegen.cpp.halves import CHUNK
from compiler_core.codegen.cpp.kernel import FAULT, SIMD, Kernel
from compiler_core.codegen.cpp.stages import arguments, from_outside, result, stages
from compiler_core.codegen.cpp.text import Loop, part_of, safe
from compiler_core.loops import ir

VECTOR = 64
"""Bytes of the longest vectors: so many elements are computed together that the narrowest fill one."""
EACH = """\
#define INLINE __attribute__((always_inline))
struct Nothing { void operator()(i32, i32) const {} };
template <i32 lanes> struct Count { constexpr operator i32() const { return lanes; } };
// body(index, lanes) for so many indices together from start to end, then for the rest in halves; before each half,
// fold(lane, other) takes what the upper lanes have found into the lower ones
template <i32 lanes, class Body, class Fold = Nothing>
static inline INLINE void each(i64 start, i64 end, Body body, Fold fold = {}) {
  const i64 rest = end - (end - start) % lanes;
  for (; start < rest; start += lanes) body(start, Count<lanes>());
  if constexpr (lanes > 1) {
    #pragma omp simd
    for (i32 lane = 0; lane < lanes / 2; ++lane) fold(lane, lane + lanes / 2);
    each<lanes / 2>(rest, end, body, fold);
  }
}
"""


class Blocks(Kernel):
    """Kernels whose vectors may be blocks."""

    _kept: frozenset[str] = frozenset()
    """Values that others than the block read, too."""

    def _vectorised(self, loop: Loop, statements: Sequence[ir.Statement], threads: str | None) -> None:
        """A loop whose turns are the lanes of vectors; in blocks where there are halves to convert."""
        if not self._conversions(statements, loop.name):
            with self._nest([loop], threads.replace(" for", " for simd") if threads else SIMD):
                self._statements(statements)
            return
        part = part_of(loop, "chunk", CHUNK) if threads else loop
        with self._nest([self._chunks(loop)] if threads else [], threads):
            with self._each(part, self._lanes(statements, loop.name)), self._watched_lanes(statements):
                self._in_stages(loop.name, statements)
            self._add("});")

    @contextmanager
    def _each(self, loop: Loop, lanes: int) -> Iterator[None]:
        """`loop` in blocks; what follows it closes the call."""
        self._add(f"each<{lanes}>({loop.start}, {loop.end}, [&](i64 from, auto count) INLINE {{")
        with self._text.nested():
            self._add("constexpr i32 lanes = count;")
            yield

    @contextmanager
    def _watched_lanes(self, statements: Sequence[ir.Statement]) -> Iterator[None]:
        """Around a block: whether a position in it was out of range."""
        if not any(isinstance(s, ir.Position) for s in statements):
            yield
            return
        self._add(f"i64 {FAULT}_block[lanes] = {{}};")
        self._fault = f"{FAULT}_block[lane]"
        yield
        self._fault = FAULT
        self._add(f"for (i64 at : {FAULT}_block) {FAULT} |= at;")

    def _in_stages(self, index: str, statements: Sequence[ir.Statement]) -> None:
        """`statements` for a block of `index`, those that convert all of it apart."""
        apart, exact = self._conversions(statements, index), self._exact
        self._exact = {**exact, **self._rounded(statements)}
        left = [s for s in statements if id(s) in apart or result(s) not in self._exact]
        parts = stages(left, lambda s: id(s) in apart, self._reads)
        arrays = {s.name for s in left if id(s) in apart and not isinstance(s, ir.Store)}
        arrays |= {a for part in parts for a in self._from_others(part, apart)} & {*map(result, left)}
        for name in sorted(arrays):
            self._add(f"{self._in_block(name)} {safe(name)}_block[lanes];", name)
        for part in parts:
            if id(part[0]) in apart:
                for statement in part:
                    self._convert(statement, index)
            else:
                self._lane_loop(part, index, arrays)
        self._exact = exact

    def _from_others(self, part: Sequence[ir.Statement], apart: Set[int]) -> Set[str]:
        """What a stage reads from arrays."""
        return {a for s in part for a in self._reads(s)} if id(part[0]) in apart else from_outside(part, self._reads)

    def _lane_loop(self, part: Sequence[ir.Statement], index: str, arrays: Set[str]) -> None:
        with self._turns(index):
            for name in sorted(from_outside(part, self._reads) & arrays):
                self._from_array(name)
            for statement in part:
                self._turn(statement)
                if result(statement) in arrays:
                    name = safe(result(statement))
                    self._add(f"{name}_block[lane] = {name};", statement)

    @contextmanager
    def _turns(self, index: str) -> Iterator[None]:
        self._add(SIMD)
        self._add("for (i32 lane = 0; lane < lanes; ++lane) {")
        with self._text.nested():
            self._add(f"const i64 {index} = from + lane;")
            yield
        self._add("}")

    def _from_array(self, name: str) -> None:
        kind = self._kind(self._dtypes[name])
        self._add(f"const {kind} {safe(name)} = ({kind}){safe(name)}_block[lane];", name)

    def _in_block(self, name: str) -> str:
        """The type of an array: truths are as wide as most values, so that vectors of both are as long."""
        return "u32" if self._dtypes[name] is torch.bool else self._in_array(self._dtypes[name])

    def _convert(self, statement: ir.Statement, index: str) -> None:
        """A load, a cast or a store of float16, for all of a block."""
        names = ["from" if name == index else name for name in self._names]
        if isinstance(statement, ir.Load):
            source = f"in_{statement.buffer} + {statement.address.text(names, safe)}"
            self._add(f"widen<lanes>({safe(statement.name)}_block, {source});", statement)
            return
        if isinstance(statement, ir.Store):
            target = f"out_{statement.buffer} + {statement.address.text(names, safe)}"
            self._add(f"narrow<lanes>({target}, {safe(str(self._exactly(statement)))}_block);", statement)
            return
        exact = safe(str(statement.arguments[0]))
        self._add(f"round<lanes>({safe(result(statement))}_block, {exact}_block);", statement)
        if result(statement) in self._kept:
            with self._turns(index):
                self._from_array(result(statement))
                self._keep(statement)

    # -- which statements ---------------------------------------------------------------------

    def _conversions(self, statements: Sequence[ir.Statement], index: str) -> Set[int]:
        """The ids of the loads, casts and stores of float16 that are done for all of a block."""
        before, rounded = self._exact, self._rounded(statements)
        self._exact = {**before, **rounded}
        made = {*map(result, statements)}
        read = {a for s in statements for a in self._reads(s)} | self._kept
        moved = self._in_arrays([s for s in statements if not self._is_known(s)], self._names.index(index))
        found = {id(s) for s in moved if isinstance(s, ir.Load) or self._exactly(s) in made}
        found |= {id(s) for s in statements if result(s) in rounded and result(s) in read}
        self._exact = before
        return found

    def _rounded(self, statements: Sequence[ir.Statement]) -> dict[str, ir.Argument]:
        """Of each float16 that is made of a float here, that float."""
        floats = {result(s) for s in statements if not isinstance(s, ir.Store) and self._kind(s.dtype) == "f32"}
        casts = (s for s in statements if isinstance(s, ir.Compute) and s.op == "cast" and not self._is_known(s))
        return {s.name: s.arguments[0] for s in casts if s.dtype is torch.float16 and s.arguments[0] in floats}

    def _reads(self, statement: ir.Statement) -> Set[str]:
        """The values that the text of a statement reads: what is stored as float16 is rounded only there."""
        if self._is_known(statement):
            return frozenset()
        read = arguments(statement)
        if isinstance(statement, ir.Store) and isinstance(statement.value, str):
            return read - {statement.value} | {str(self._exactly(statement))}
        return read

    def _lanes(self, statements: Sequence[ir.Statement], index: str) -> int:
        """With fewer, compilers take shorter vectors for all that the loop computes."""
        apart = self._conversions(statements, index)
        touched = [s for s in statements if isinstance(s, (ir.Load, ir.Store)) and id(s) not in apart]
        return VECTOR // min([4, *(self._buffers[s.buffer].dtype.itemsize for s in touched)])

    # -- what rows keep -----------------------------------------------------------------------

    def _turn(self, statement: ir.Statement) -> None:
        """A statement in a loop over a block."""
        self._statements([statement])

    def _is_known(self, statement: ir.Statement) -> bool:
        """Whether it was computed before."""
        return False

    def _keep(self, statement: ir.Statement) -> None:
        """Leave a value to others."""
