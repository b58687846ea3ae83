"""C++ kernels without a reduction: nested loops, the last one vectorised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler_core.codegen.cpp.blocks import Blocks
from compiler_core.codegen.cpp.kernel import keeps_apart
from compiler_core.codegen.cpp.text import Loop, part_of
from compiler_core.loops import ir
from compiler_core.support.size_expr import Int, Undecided, hint, prod

MOST_CUTS = 9
"""Into so many parts the range of an index is cut."""


TILE = (128, 256)
"""Of a transposition: rows and columns whose pages the processor keeps track of at once."""

BLOCK = 4096
"""Elements of a long row that one thread takes in one go, where rows are too few to share out."""


class Elements(Blocks):
    """Each element once, in any order."""

    def _body(self) -> None:
        """All elements; one part after the other where loads are within ranges of an index."""
        at, ends = cuts(self._loops)
        start: Int = 0
        for end in ends:
            self._extents = [(start, end) if k == at else (0, n) for k, n in enumerate(self._loops.outer)]
            self._elements_of(self._extents)
            start = end

    def _elements_of(self, extents: Sequence[tuple[Int, Int]]) -> None:
        statements = self._sweeps[0].outer
        if not extents:
            self._statements(statements)
            return
        around, inside = self._nested(extents)
        # without loops around the last one, several parts would declare what is steady in one scope
        before, rest = self._steady(statements) if around else ([], statements)
        threads = self._pragma(1) if not around else None
        with self._nest(around, self._pragma(len(around)) if around else None), self._nest(inside[:-1], None):
            self._statements(before)
            self._vectorised(inside[-1], rest, threads)

    def _nested(self, extents: Sequence[tuple[Int, Int]]) -> tuple[list[Loop], list[Loop]]:
        """The loops that threads share out, and those inside: in tiles, where loads and stores go along different
        indices."""
        *leading, last = [Loop(n, str(end), str(start)) for n, (start, end) in zip(self._names, extents, strict=False)]
        across = _across(self._loops)
        if across is not None:
            rows = leading.pop(across)
            leading += [replace(rows, name="tile", step=TILE[0]), replace(last, name="block", step=TILE[1])]
            return leading, [part_of(rows, "tile", TILE[0]), part_of(last, "block", TILE[1])]
        start, end = extents[-1]
        if self._parallel and hint(prod(e - s for s, e in extents[:-1])) < 64 and hint(end - start) >= 2 * BLOCK:
            return [*leading, replace(last, name="block", step=BLOCK)], [part_of(last, "block", BLOCK)]
        return leading, [last]

    def _steady(self, statements: Sequence[ir.Statement]) -> tuple[list[ir.Statement], list[ir.Statement]]:
        """The statements whose values are the same for all of the last index, and the others."""
        at = len(self._loops.outer) - 1
        before: list[ir.Statement] = []
        rest: list[ir.Statement] = []
        varying: set[ir.Argument] = set()
        for s in statements:
            varies = isinstance(s, ir.Store) or any(a.strides[at] for a in ir.addresses(s))
            if varies or varying.intersection(s.arguments):
                varying.update(() if isinstance(s, ir.Store) else (s.name,))
                rest.append(s)
            else:
                before.append(s)
        return before, rest


class Scattered(Elements):
    """Elements that are written to places of which several may be one: in order, by one thread or lane each."""

    def _body(self) -> None:
        loops = [Loop(n, str(size)) for n, size in zip(self._names, self._loops.outer, strict=False)]
        statements = self._sweeps[0].outer
        if not keeps_apart(self._loops):
            with self._nest(loops, None):
                self._statements(statements)
            return
        size, last = self._loops.outer[-1], loops[-1]
        step = -(-size // (8 * 64)) * 64 if isinstance(size, int) else 512
        end = f"(block + {step} < {size} ? block + {step} : {size})"
        around = [Loop("block", str(size), step=step), *loops[:-1]]
        before, rest = self._steady(statements)
        with self._nest(around, self._pragma(1)):
            self._statements(before)
            self._vectorised(Loop(last.name, end, "block"), rest, None)


def cuts(loops: ir.Loops) -> tuple[int, list[Int]]:
    """An outer index, and where its range is best cut so that fewer loads must ask whether they are within theirs.

    The end of the last part is the end of the index.
    """
    found: dict[int, set[Int]] = {}
    for s in loops.body:
        for address, size in s.within if isinstance(s, ir.Load) else ():
            used = [k for k, stride in enumerate(address.strides) if stride]
            if len(used) == 1 and address.strides[used[0]] == 1 and not address.values:
                found.setdefault(used[0], set()).update((-address.offset, size - address.offset))
    for at, ends in found.items():
        try:
            inside = sorted(e for e in ends if 0 < e < loops.space[at])
        except Undecided:
            continue
        if inside and len(inside) < MOST_CUTS:
            return at, [*inside, loops.space[at]]
    return 0, [loops.outer[0] if loops.outer else 1]


def _across(loops: ir.Loops) -> int | None:
    """An index, before the last one and of as great a range, along which lies what is read or written far apart
    along the last."""
    *others, last = range(len(loops.outer)) if len(loops.outer) > 1 else (0,)
    for statement in loops.body:
        if isinstance(statement, (ir.Load, ir.Store)) and abs(hint(statement.address.strides[last])) > 1:
            for at in others:
                if statement.address.strides[at] == 1 and hint(loops.outer[at]) > TILE[0] // 2:
                    return at if hint(loops.outer[last]) > TILE[1] // 2 else None
    return None
