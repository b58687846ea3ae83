"""Prints loops in blocks of a fixed number of elements, so that float16 is converted with vector instructions.

Compilers do not vectorise a loop that converts float16, although the processor converts a vector in one instruction.
So the body of a block is distributed (`distribute`): a short loop up to a conversion, the conversion of an array, a
short loop after it.  The number of elements is a constant, so the compiler keeps these arrays in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace

import torch

from compiler_core.codegen.cpp.kernel import FAULT, SIMD, KernelPrinter, Loop, block_of
from compiler_core.codegen.cpp.ops import identifier
from compiler_core.codegen.cpp.prelude import CHUNK
from compiler_core.loops import ir

Reads = Callable[[ir.Statement], Set[str]]
"""Returns the names of the values that a statement reads."""
VECTOR_BYTES = 64
"""Bytes of the longest vector registers; a block has as many elements as the narrowest type needs to fill one."""


class BlockPrinter(KernelPrinter):
    """Prints vectorised loops, in blocks if they convert float16."""

    _row_values: frozenset[str] = frozenset()
    """Values that are also read outside of the block."""
    _simd = SIMD
    """The pragma of a vectorised loop on one thread."""

    def _vectorised_loop(self, loop: Loop, statements: Sequence[ir.Statement], threads: str | None) -> None:
        """Prints a vectorised loop, in blocks if float16 is converted; `threads` is the pragma for threads."""
        if not self._conversions(statements, loop.name):
            with self._nest([loop], threads.replace(" for", " for simd") if threads else self._simd):
                self._statements(statements)
            return
        part = block_of(loop, "chunk", CHUNK) if threads else loop
        with self._nest([replace(loop, name="chunk", step=CHUNK)] if threads else [], threads):
            with self._block_loop(part, self._lane_count(statements, loop.name)), self._lane_fault_flags(statements):
                self._block_body(loop.name, statements)
            self._line("});")

    @contextmanager
    def _block_loop(self, loop: Loop, lanes: int) -> Iterator[None]:
        """Opens a call of ``each`` for `loop` in blocks; the caller closes it after the scope."""
        self._line(f"each<{lanes}>({loop.start}, {loop.end}, [&](i64 from, auto count) INLINE {{")
        with self._text.nested():
            self._line("constexpr i32 lanes = count;")
            yield

    @contextmanager
    def _lane_fault_flags(self, statements: Sequence[ir.Statement]) -> Iterator[None]:
        """Opens a scope in which each lane of a block has a flag for positions out of range."""
        if not any(isinstance(s, ir.Position) for s in statements):
            yield
            return
        self._line(f"i64 {FAULT}_block[lanes] = {{}};")
        self._fault_variable = f"{FAULT}_block[lane]"
        yield
        self._fault_variable = FAULT
        self._line(f"for (i64 at : {FAULT}_block) {FAULT} |= at;")

    def _block_body(self, index: str, statements: Sequence[ir.Statement]) -> None:
        """Prints `statements` for a block of `index`: loops over its lanes, and conversions of whole arrays."""
        converted, outside = self._conversions(statements, index), self._before_rounding
        self._before_rounding = {**outside, **self._rounded_casts(statements)}
        printed = [s for s in statements if id(s) in converted or result_name(s) not in self._before_rounding]
        parts = distribute(printed, lambda s: id(s) in converted, self._values_read)
        arrays = {s.name for s in printed if id(s) in converted and not isinstance(s, ir.Store)}
        arrays |= {a for part in parts for a in live_in(part, self._values_read)} & {*map(result_name, printed)}
        for name in sorted(arrays):
            dtype = self._loops.dtypes[name]
            # booleans get 32 bits, to have as many lanes as most values
            kind = "u32" if dtype is torch.bool else self._array_type(dtype)
            self._line(f"{kind} {identifier(name)}_block[lanes];", name)
        for part in parts:
            if id(part[0]) in converted:
                for statement in part:
                    self._convert(statement, index)
            else:
                self._lane_loop(part, index, arrays)
        self._before_rounding = outside

    def _lane_loop(self, part: Sequence[ir.Statement], index: str, arrays: Set[str]) -> None:
        with self._lane_scope(index):
            for name in sorted(live_in(part, self._values_read) & arrays):
                self._read_from(name, f"{identifier(name)}_block[lane]")
            for statement in part:
                self._lane_statement(statement)
                if result_name(statement) in arrays:
                    name = identifier(result_name(statement))
                    self._line(f"{name}_block[lane] = {name};", statement)

    @contextmanager
    def _lane_scope(self, index: str) -> Iterator[None]:
        self._line(SIMD)
        self._line("for (i32 lane = 0; lane < lanes; ++lane) {")
        with self._text.nested():
            self._line(f"const i64 {index} = from + lane;")
            yield
        self._line("}")

    def _convert(self, statement: ir.Statement, index: str) -> None:
        """Prints a load, cast or store of float16 for a whole block."""
        names = ["from" if name == index else name for name in self._names]
        if isinstance(statement, ir.Load):
            source = f"in_{statement.buffer} + {statement.address.text(names, identifier)}"
            self._line(f"widen<lanes>({identifier(statement.name)}_block, {source});", statement)
            return
        if isinstance(statement, ir.Store):
            target = f"out_{statement.buffer} + {statement.address.text(names, identifier)}"
            value = identifier(str(self._value_before_rounding(statement)))
            self._line(f"narrow<lanes>({target}, {value}_block);", statement)
            return
        exact = identifier(str(statement.arguments[0]))
        self._line(f"round<lanes>({identifier(result_name(statement))}_block, {exact}_block);", statement)
        if result_name(statement) in self._row_values:
            with self._lane_scope(index):
                self._read_from(result_name(statement), f"{identifier(result_name(statement))}_block[lane]")
                self._store_for_later_sweeps(statement)

    # -- analysis -----------------------------------------------------------------------------

    def _conversions(self, statements: Sequence[ir.Statement], index: str) -> Set[int]:
        """Returns the ids of the loads, casts and stores of float16 that are done for a whole block."""
        before, rounded = self._before_rounding, self._rounded_casts(statements)
        self._before_rounding = {**before, **rounded}
        results = {*map(result_name, statements)}
        read = {a for s in statements for a in self._values_read(s)} | self._row_values
        moved = self._half_accesses([s for s in statements if not self._is_stored(s)], self._names.index(index))
        found = {id(s) for s in moved if isinstance(s, ir.Load) or self._value_before_rounding(s) in results}
        found |= {id(s) for s in statements if result_name(s) in rounded and result_name(s) in read}
        self._before_rounding = before
        return found

    def _rounded_casts(self, statements: Sequence[ir.Statement]) -> dict[str, ir.Argument]:
        """Returns, for each float16 that one of `statements` rounds from a float, that float."""
        floats = {
            result_name(s) for s in statements if not isinstance(s, ir.Store) and self._value_type(s.dtype) == "f32"
        }
        casts = (s for s in statements if isinstance(s, ir.Compute) and s.op == "cast" and not self._is_stored(s))
        return {s.name: s.arguments[0] for s in casts if s.dtype is torch.float16 and s.arguments[0] in floats}

    def _values_read(self, statement: ir.Statement) -> Set[str]:
        """Returns the values that a statement's C++ reads; a store of float16 reads the value before rounding."""
        if self._is_stored(statement):
            return frozenset()
        read = argument_names(statement)
        if isinstance(statement, ir.Store) and isinstance(statement.value, str):
            return read - {statement.value} | {str(self._value_before_rounding(statement))}
        return read

    def _lane_count(self, statements: Sequence[ir.Statement], index: str) -> int:
        """Returns the number of lanes of a block; with fewer, compilers use shorter vectors for the whole loop."""
        converted = self._conversions(statements, index)
        touched = [s for s in statements if isinstance(s, (ir.Load, ir.Store)) and id(s) not in converted]
        return VECTOR_BYTES // min([4, *(self._buffers[s.buffer].dtype.itemsize for s in touched)])

    # -- hooks for rows -----------------------------------------------------------------------

    def _lane_statement(self, statement: ir.Statement) -> None:
        """Prints a statement in a loop over a block."""
        self._statements([statement])

    def _is_stored(self, statement: ir.Statement) -> bool:
        """Returns whether the statement's value was stored by an earlier sweep."""
        return False

    def _store_for_later_sweeps(self, statement: ir.Statement) -> None:
        """Stores a value for later sweeps."""


# -- loop distribution --------------------------------------------------------------------------


def distribute(
    statements: Sequence[ir.Statement], is_bulk: Callable[[ir.Statement], bool], reads: Reads
) -> list[list[ir.Statement]]:
    """Loop distribution: assigns each statement to a loop, in dependence order, with bulk operations between loops.

    A bulk operation handles all elements of a block at once: a conversion of float16, or a scan.  Loops have even
    numbers and bulk operations odd ones.  Returns the statements of each, the first loop first.
    """
    earliest: list[int] = []
    producer: dict[str, int] = {}
    for s in statements:
        number = max((producer.get(a, 0) for a in reads(s)), default=0)
        if (number % 2 == 1) != is_bulk(s):
            number += 1
        producer[result_name(s)] = number
        earliest.append(number)
    # each statement is placed as late as its readers allow, so that few values have to be stored between loops
    numbers = earliest[:]
    first_reader: dict[str, int] = {}
    for k, s in reversed(list(enumerate(statements))):
        number = first_reader.get(result_name(s), earliest[k])
        if (number % 2 == 1) != is_bulk(s):
            number -= 1
        numbers[k] = number
        for name in reads(s):
            first_reader[name] = min(number, first_reader.get(name, number))
    return [[s for n, s in zip(numbers, statements, strict=True) if n == number] for number in sorted({*numbers})]


def live_in(statements: Sequence[ir.Statement], reads: Reads) -> Set[str]:
    """Returns the values that `statements` read and do not compute."""
    return {a for s in statements for a in reads(s)} - {*map(result_name, statements)}


def argument_names(statement: ir.Statement) -> Set[str]:
    """Returns the names of the values that a statement takes as arguments."""
    return {a for a in statement.arguments if isinstance(a, str)}


def result_name(statement: ir.Statement) -> str:
    """Returns the name of the value that a statement computes; empty for a store."""
    return "" if isinstance(statement, ir.Store) else statement.name
