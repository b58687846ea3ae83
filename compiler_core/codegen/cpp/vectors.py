"""Prints vector loops: those that the compiler vectorises, and those in blocks of a fixed number of elements.

Compilers do not vectorise a loop that converts float16, although the processor converts a vector in one instruction.
So the body of a block is distributed (`loop_parts`): a short loop up to a conversion, the conversion of an array, a
short loop after it.  The number of elements is a constant, so the compiler keeps these arrays in registers.

A sweep over a row processes it in vectors and the rest at the end in vectors of half the length each time
(`EACH_SOURCE`).  Float sums are accumulated in double across the blocks of a row, so that long rows lose no accuracy;
so are the last lanes of a sum that becomes a mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from compiler_core.codegen.cpp.ops import (
    accumulator,
    element_type,
    identifier,
    identity,
    literal,
    nan_flag_type,
    propagates_nan,
    update,
)
from compiler_core.codegen.cpp.statements import FAULT, StatementPrinter
from compiler_core.loops import ir
from compiler_core.loops.ir.nest import Do, For, walk
from compiler_core.loops.schedule.vectors import live_in, loop_parts

SIMD = "#pragma omp simd"
TOTAL_LANES = 4
"""Lanes that `total` adds in double; rounding the sums of so few lanes would be most of the error."""


@dataclass(frozen=True)
class Loop:
    """``for (i64 name = start; name < end; name += step)``."""

    name: str
    end: str
    start: str = "0"
    step: int = 1

    def __str__(self) -> str:
        step = f"++{self.name}" if self.step == 1 else f"{self.name} += {self.step}"
        return f"for (i64 {self.name} = {self.start}; {self.name} < {self.end}; {step}) {{"


def loop_of(node: For) -> Loop:
    """Returns a loop of the nest in C++; a loop through a block ends with the block or with the range."""
    if not node.block:
        return Loop(node.index, str(node.end), str(node.start), node.step)
    block, end = f"{node.block} + {node.size}", node.end
    if isinstance(node.end, int) and isinstance(node.start, int) and (node.end - node.start) % node.size == 0:
        return Loop(node.index, block, node.block, node.step)
    return Loop(node.index, f"({block} < {end} ? {block} : {end})", node.block, node.step)


class VectorPrinter(StatementPrinter):
    """Prints vector loops, with the accumulators of their lanes."""

    _sweeps = 0
    """The number of vector loops over rows that have been printed."""

    @contextmanager
    def _opened(self, loop: Loop, pragma: str | None = None) -> Iterator[None]:
        """Opens a loop around what the caller prints."""
        if pragma:
            self._line(pragma + (f" reduction(| : {FAULT})" if self._loops.may_fail else ""))
        self._line(str(loop))
        with self._text.nested():
            yield
        self._line("}")

    @contextmanager
    def _nested(self, chain: Sequence[For], pragma: str) -> Iterator[None]:
        """Opens loops inside each other around what the caller prints."""
        if not chain:
            yield
            return
        node, *others = chain
        before = self._ranges
        self._ranges = {**before, node.index: (node.start, node.end)}
        with self._opened(loop_of(node), pragma), self._nested(others, ""):
            yield
        self._ranges = before

    def _argument_list(self) -> list[str]:
        """Returns the names of the function's parameters, for calls of another function."""
        loops = self._loops
        buffers = [f"{'out' if b in loops.writes else 'in'}_{b}" for b in loops.arguments]
        return [*buffers, *loops.symbols, *loops.scalars]

    def _vector_loop(self, node: For, pragma: str) -> None:
        """Prints a vector loop over an outer index."""
        leaves = _leaves(node)
        loop = loop_of(node)
        if not node.is_exact:
            with self._opened(loop, pragma):
                self._do_all(leaves)
            return
        with self._block_loop(loop, node.lanes), self._lane_fault_flags(leaves):
            self._block_body(loop.name, leaves)
        self._line("});")

    def _do_all(self, leaves: Sequence[Do]) -> None:
        for do in leaves:
            self._do(do)

    @contextmanager
    def _block_loop(self, loop: Loop, lanes: int) -> Iterator[None]:
        """Opens a call of ``each`` for `loop` in blocks; the caller closes it after the scope.

        A store of one byte may write to any variable that is captured by reference, as far as a compiler knows.  It
        would load the kernel's pointers again for each element, so they are captured by value then.
        """
        stores_bytes = any(self._buffers[b].dtype.itemsize == 1 for b in self._loops.writes)
        captured = ", ".join(["&", *(self._argument_list() if stores_bytes else [])])
        self._line(f"each<{lanes}>({loop.start}, {loop.end}, [{captured}](i64 from, auto count) INLINE {{")
        with self._text.nested():
            self._line("constexpr i32 lanes = count;")
            yield

    @contextmanager
    def _lane_fault_flags(self, leaves: Sequence[Do]) -> Iterator[None]:
        """Opens a scope in which each lane of a block has a flag for positions out of range."""
        if not _has_positions(leaves):
            yield
            return
        self._line(f"i64 {FAULT}_block[lanes] = {{}};")
        self._fault_variable = f"{FAULT}_block[lane]"
        yield
        self._fault_variable = FAULT
        self._line(f"for (i64 at : {FAULT}_block) {FAULT} |= at;")

    # -- a block ------------------------------------------------------------------------------

    def _block_body(self, index: str, leaves: Sequence[Do]) -> None:
        """Prints `leaves` for a block of `index`: loops over its lanes, and conversions of whole arrays."""
        converted, outside = self._conversions(leaves, index), self._before_rounding
        self._before_rounding = {**outside, **self._rounded_casts(leaves)}
        printed = [d for d in leaves if id(d) in converted or d.value not in self._before_rounding]
        parts = loop_parts(printed, lambda d: id(d) in converted, self._values_read)
        arrays = {d.value for d in printed if id(d) in converted and d.value}
        arrays |= {a for part in parts for a in live_in(part, self._values_read)} & {d.value for d in printed}
        for name in sorted(arrays):
            dtype = self._loops.dtypes[name]
            # booleans get 32 bits, to have as many lanes as most values
            kind = "u32" if dtype is torch.bool else self._array_type(dtype)
            self._line(f"{kind} {identifier(name)}_block[lanes];", name)
        for part in parts:
            if id(part[0]) in converted:
                for do in part:
                    self._convert(do, index)
            else:
                self._lane_loop(part, index, arrays)
        self._before_rounding = outside

    def _lane_loop(self, part: Sequence[Do], index: str, arrays: Set[str]) -> None:
        with self._lane_scope(index):
            for name in sorted(live_in(part, self._values_read) & arrays):
                self._read_from(name, f"{identifier(name)}_block[lane]")
            for do in part:
                self._do(do)
                if do.value in arrays:
                    name = identifier(do.value)
                    self._line(f"{name}_block[lane] = {name};", do.statement)

    @contextmanager
    def _lane_scope(self, index: str) -> Iterator[None]:
        self._line(SIMD)
        self._line("for (i32 lane = 0; lane < lanes; ++lane) {")
        with self._text.nested():
            self._line(f"const i64 {index} = from + lane;")
            yield
        self._line("}")

    def _convert(self, do: Do, index: str) -> None:
        """Prints a load, cast or store of float16 for a whole block."""
        names = ["from" if name == index else name for name in self._names]
        statement = do.statement
        if isinstance(statement, ir.Store):
            target = f"out_{statement.buffer} + {statement.address.text(names, identifier)}"
            value = identifier(str(self._value_before_rounding(statement)))
            self._line(f"narrow<lanes>({target}, {value}_block);", statement)
            return
        name = identifier(do.value)
        if isinstance(statement, ir.Load):
            source = f"in_{statement.buffer} + {statement.address.text(names, identifier)}"
            self._line(f"widen<lanes>({name}_block, {source});", statement)
        else:
            exact = identifier(str(statement.arguments[0]))
            self._line(f"round<lanes>({name}_block, {exact}_block);", statement)
        if do.how == "keep":
            with self._lane_scope(index):
                self._read_from(do.value, f"{name}_block[lane]")
                self._line(f"{self._element(do.value)} = {name};", statement)

    def _conversions(self, leaves: Sequence[Do], index: str) -> Set[int]:
        """Returns the ids of the loads, casts and stores of float16 that are done for a whole block."""
        before, rounded = self._before_rounding, self._rounded_casts(leaves)
        self._before_rounding = {**before, **rounded}
        results = {d.value for d in leaves}
        read = {a for d in leaves for a in self._values_read(d)} | {d.value for d in leaves if d.how == "keep"}
        moved = {id(s): s for s in self._half_accesses(_computed(leaves), index)}
        found = {
            id(d)
            for d in leaves
            if isinstance(s := moved.get(id(d.statement)), ir.Load)
            or (isinstance(s, ir.Store) and self._value_before_rounding(s) in results)
        }
        found |= {id(d) for d in leaves if d.value in rounded and d.value in read}
        self._before_rounding = before
        return found

    def _rounded_casts(self, leaves: Sequence[Do]) -> dict[str, ir.Argument]:
        """Returns, for each float16 that one of `leaves` rounds from a float, that float."""
        floats = {d.value for d in leaves if d.value and self._value_type(self._loops.dtypes[d.value]) == "f32"}
        casts = (s for s in _computed(leaves) if isinstance(s, ir.Compute) and s.op == "cast")
        return {s.name: s.arguments[0] for s in casts if s.dtype is torch.float16 and s.arguments[0] in floats}

    def _values_read(self, do: Do) -> Set[str]:
        """Returns the values that a leaf's C++ reads; a store of float16 reads the value before rounding."""
        statement = do.statement
        if isinstance(statement, ir.Store) and isinstance(statement.value, str):
            return do.arguments - {statement.value} | {str(self._value_before_rounding(statement))}
        return do.arguments

    # -- a sweep over a row ---------------------------------------------------------------------

    def _sweep(self, node: For, reductions: Sequence[ir.Reduce]) -> None:
        """Prints a vector loop over a row, with an accumulator for each lane; at the end the lanes are combined.

        There may be loops around it, whose elements the lanes accumulate, too.
        """
        outermost, node = node, next(n for n in walk([node]) if isinstance(n, For) and n.is_vector)
        is_inside = outermost is not node
        leaves, around = _leaves(node), self._suffix
        # inside loops, the rest that fills no vector has other lanes, which stay in other registers
        count = node.lanes * (2 if is_inside else 1)
        lane = f"{count} - 2 * lanes + lane" if is_inside else "lane"
        self._suffix = f"lane[{lane}]"
        for reduce in reductions:
            self._declare_accumulator(reduce, element_type(reduce), f"lane[{max(count, TOTAL_LANES)}]")
        has_positions, fault = _has_positions(leaves), f"{FAULT}_{self._sweeps}"
        self._sweeps += 1
        if has_positions:
            self._line(f"i64 {fault}[{count}] = {{}};")
            self._fault_variable = f"{fault}[{lane}]"
        self._loops_of_lanes(outermost)
        if is_inside:
            self._line(f"each<{count}>(0, 0, Nothing(), [&](i32 lane, i32 other) INLINE {{")
        elif reductions or has_positions:
            self._line("}, [&](i32 lane, i32 other) INLINE {")
        if reductions or has_positions:
            with self._text.nested():
                for reduce in reductions:
                    condition = f"if (other >= {TOTAL_LANES}) " if reduce.name in self._mean_sums else ""
                    self._combine(reduce, "lane[lane]", "lane[other]", condition)
                if has_positions:
                    self._line(f"{fault}[lane] |= {fault}[other];")
        self._line("});")
        for reduce in (r for r in reductions if r.name in self._mean_sums):
            self._line(f"const f64 {accumulator(reduce, 'wide')} = total({accumulator(reduce, 'lane')});", reduce)
        if has_positions:
            self._fault_variable = FAULT
            self._line(f"{FAULT} |= {fault}[0];")
        self._suffix = around

    def _loops_of_lanes(self, node: For) -> None:
        """Prints a vector loop, whose call of ``each`` the caller closes, or loops around it."""
        if node.is_vector:
            with self._block_loop(loop_of(node), node.lanes):
                self._block_body(node.index, _leaves(node))
            return
        with self._nested([node], ""):
            self._before_rounding = {}
            for inside in node.body:
                if isinstance(inside, Do):
                    self._do(inside)
                else:
                    assert isinstance(inside, For)
                    self._loops_of_lanes(inside)
                    if inside.is_vector:
                        self._line("});")

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
        if reduce.name in self._mean_sums:
            self._double_sums[reduce.name] = accumulator(reduce, suffix)
        if propagates_nan(reduce):
            nan = literal(float("nan"), reduce.dtype)
            value = f"{accumulator(reduce, 'nan_' + suffix)} ? {nan} : {accumulator(reduce, suffix)}"
        self._line(f"const {kind} {identifier(reduce.name)} = {value};", reduce)

    # -- float16 in a loop over rows ----------------------------------------------------------------

    @contextmanager
    def _float_array_scope(
        self, halves: Sequence[ir.Load | ir.Store], at: int, start: str, place: str, size: int
    ) -> Iterator[None]:
        """Opens a scope in which float arrays replace the accesses `halves`, which are contiguous along index `at`.

        Loads are converted before, stores after the loop that the caller prints.  `start` is the first value of the
        index, `place` the position of the loop in an array; the variable `lanes` is the number of elements, at most
        `size`.
        """
        self._before_rounding = {}
        names = [start if k == at else name for k, name in enumerate(self._names)]
        numbers = self._statement_numbers
        arrays = [identifier(s.name) if isinstance(s, ir.Load) else f"out{numbers[id(s)]}" for s in halves]
        arrays = [f"{array}_wide" for array in arrays]
        for array, s in zip(arrays, halves, strict=True):
            self._float_arrays[id(s)] = f"{array}[{place}]"
            self._line(f"f32 {array}[{size}];", s)
            if isinstance(s, ir.Load):
                self._line(f"f32s_of_f16({array}, in_{s.buffer} + {s.address.text(names, identifier)}, lanes);", s)
        yield
        for array, s in zip(arrays, halves, strict=True):
            if isinstance(s, ir.Store):
                self._line(f"f16s_of_f32(out_{s.buffer} + {s.address.text(names, identifier)}, {array}, lanes);", s)
        self._float_arrays = {}


def _leaves(node: For) -> list[Do]:
    return [n for n in node.body if isinstance(n, Do)]


def _computed(leaves: Sequence[Do]) -> list[ir.Statement]:
    """Returns the statements that are executed here."""
    return [d.statement for d in leaves if d.how in ("compute", "keep")]


def _has_positions(leaves: Sequence[Do]) -> bool:
    return any(isinstance(d.statement, ir.Position) for d in leaves)
