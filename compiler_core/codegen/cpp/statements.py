"""Prints single statements of the loop IR as C++; the base of all kernel printers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from compiler_core.codegen.cpp.accumulators import accumulator, update
from compiler_core.codegen.cpp.half_types import CHUNK, COMPUTE_TYPES, HALF_TYPES
from compiler_core.codegen.cpp.ops import expression, literal
from compiler_core.codegen.cpp.source_writer import Loop, SourceWriter, identifier, memory_type
from compiler_core.loops import ir
from compiler_core.loops.ir import affine
from compiler_core.support.size_expr import Int, Undecided, total

FAULT = "fault"
"""The variable that is not 0 if a position was out of range."""


class StatementPrinter:
    """Prints statements of one kernel, and the loops around conversions of half types."""

    def __init__(self, text: SourceWriter, loops: ir.Loops, buffers: dict[str, ir.Buffer]) -> None:
        self._text, self._loops, self._buffers = text, loops, buffers
        self._statement_numbers = {id(s): k for k, s in enumerate(loops.body)}
        self._dtypes = {s.name: s.dtype for s in loops.body if not isinstance(s, ir.Store)}
        self._names = loops.index_names
        casts = [s for s in loops.body if isinstance(s, ir.Compute) and s.op == "cast"]
        self._copies_only = not any(d in HALF_TYPES for s in casts for d in (s.dtype, self._dtype(s.arguments[0])))
        """Whether half types are only copied, so that their bits need no conversion."""
        self._float_arrays: dict[int, str] = {}
        """For a load or store of float16, by id: the element of a float array that it uses in place of memory."""
        self._before_rounding: dict[str, ir.Argument] = {}
        """For each half that the loop rounds from a float: that float."""
        self._double_sums: dict[str, str] = {}
        """For each float sum that becomes a mean: the variable with the sum in double."""
        self._extents: list[tuple[Int, Int]] = []
        """The part of each index's range that is being printed; empty if it is the whole range."""
        self._fault_variable = FAULT

    # -- text -------------------------------------------------------------------------------

    def _line(self, line: str, of: ir.Statement | str | None = None) -> None:
        """Writes a line that prints statement `of`, or the statement that computes the value of that name."""
        if isinstance(of, str):
            of = next(s for s in self._loops.body if not isinstance(s, ir.Store) and s.name == of)
        self._text.add(line, self._loops.name, () if of is None else (self._statement_numbers[id(of)],))

    def _buffer_type(self, buffer: str) -> str:
        return memory_type(self._buffers[buffer].dtype)

    # -- statements -------------------------------------------------------------------------

    def _statements(self, statements: Sequence[ir.Statement]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, statement: ir.Statement) -> None:
        if isinstance(statement, ir.Store):
            sign = "+=" if statement.mode == "+=" else "="
            self._line(f"{self._target(statement)} {sign} {self._stored_value(statement)};", statement)
        elif isinstance(statement, ir.Position):
            self._position(statement)
        elif isinstance(statement, ir.Scan):
            run = accumulator(statement, "run") + ("[lane]" if ir.has_contiguous_outer(self._loops) else "")
            self._line(update(statement, run, self._argument(statement.value)), statement)
            kind = ir.SHORT[statement.dtype]
            self._line(f"const {kind} {identifier(statement.name)} = ({kind}){run};", statement)
        else:
            left = f"const {self._value_type(statement.dtype)} {identifier(statement.name)}"
            self._line(f"{left} = {self._right_hand_side(statement)};", statement)
            if isinstance(statement, ir.Compute) and statement.op == "cast" and statement.dtype in HALF_TYPES:
                self._before_rounding[statement.name] = statement.arguments[0]

    def _target(self, store: ir.Store) -> str:
        return self._float_arrays.get(id(store), f"out_{store.buffer}[{self._address(store.address)}]")

    def _stored_value(self, store: ir.Store) -> str:
        """Returns the stored value as C++."""
        dtype, value = self._buffers[store.buffer].dtype, self._argument(self._value_before_rounding(store))
        if self._copies_only or dtype not in HALF_TYPES or id(store) in self._float_arrays:
            return value
        return f"{ir.SHORT[dtype]}_of_f32({value})"

    def _value_before_rounding(self, store: ir.Store) -> ir.Argument:
        """Returns the value of a store; for float16 the one before rounding, since the store itself rounds."""
        if self._buffers[store.buffer].dtype is not torch.float16 or not isinstance(store.value, str):
            return store.value
        before = self._before_rounding.get(store.value, store.value)
        return before if isinstance(before, str) else store.value  # a number is in no array

    def _position(self, statement: ir.Position) -> None:
        """Prints a position: sets the fault variable if it is out of range, and uses 0 in its place.

        Positions outside of the statement's ranges are not read, so they may have any value.
        """
        value, name = self._argument(statement.value), identifier(statement.name)
        fits = f"(u64){value} < (u64)({statement.size})"
        within = self._bounds_condition(statement.within)
        bad = f"!({fits})" + (f" && {within}" if within else "")
        self._line(f"{self._fault_variable} |= {bad};", statement)
        self._line(f"const i64 {name} = {fits} ? {value} : 0;", statement)

    def _address(self, address: ir.Address) -> str:
        return address.text(self._names, identifier)

    def _bounds_condition(self, ranges: Sequence[ir.Range]) -> str:
        """Returns the condition that all `ranges` hold; empty if they always hold."""
        holds = [self._always_holds(r) for r in ranges]
        # one unsigned comparison: negative numbers become large ones
        tests = (f"(u64)({self._address(r.address)}) < (u64)({r.size})" for r in ranges)
        return "false" if False in holds else " && ".join(t for t, h in zip(tests, holds, strict=True) if h is None)

    def _always_holds(self, within: ir.Range) -> bool | None:
        """Returns whether a range holds everywhere in the printed part of the loop, or nowhere; None if neither is
        known."""
        address, size = within
        moved = address.offset + total(s * low for s, (low, _) in zip(address.strides, self._extents, strict=False))
        sizes = [end - start for start, end in self._extents] or self._loops.space
        positions = {s.name: s.size for s in self._loops.body if isinstance(s, ir.Position)}
        try:
            low, high = affine.bounds(replace(address, offset=moved), sizes, positions)
            if low >= 0 and high < size:
                return True
            return False if high < 0 or low >= size else None
        except Undecided:
            return None

    def _right_hand_side(self, statement: ir.ValueStatement) -> str:
        if isinstance(statement, ir.Load):
            if id(statement) in self._float_arrays:
                return self._float_arrays[id(statement)]
            element = f"in_{statement.buffer}[{self._address(statement.address)}]"
            if self._value_type(statement.dtype) != ir.SHORT[statement.dtype]:
                element = f"f32_of_{ir.SHORT[statement.dtype]}({element})"
            within = self._bounds_condition(statement.within)
            return f"{within} ? {element} : 0" if within else element
        if isinstance(statement, ir.Index):
            return self._address(statement.address)
        if isinstance(statement, ir.Scalar):
            return statement.number.name
        assert isinstance(statement, ir.Compute)
        args = [self._argument(a) for a in statement.arguments]
        numerator = statement.arguments[0] if statement.op == "div" else None
        if numerator in self._double_sums and not self._loops.is_inner(statement):
            return f"(f32)({self._double_sums[str(numerator)]} / {args[1]})"
        return expression(statement.op, statement.dtype, args, self._dtype(statement.arguments[-1]))

    def _argument(self, argument: ir.Argument) -> str:
        if isinstance(argument, str):
            return identifier(argument)
        return literal(argument.value, self._compute_type(argument.dtype))

    # -- half types -------------------------------------------------------------------------

    def _dtype(self, argument: ir.Argument) -> torch.dtype:
        return argument.dtype if isinstance(argument, ir.Literal) else self._dtypes[argument]

    def _compute_type(self, dtype: torch.dtype) -> torch.dtype:
        """Returns the type in which the loop computes with values of `dtype`."""
        return dtype if self._copies_only else COMPUTE_TYPES.get(dtype, dtype)

    def _value_type(self, dtype: torch.dtype) -> str:
        """Returns the C++ type of a local value."""
        return ir.SHORT[self._compute_type(dtype)]

    def _array_type(self, dtype: torch.dtype) -> str:
        """Returns the C++ element type of a local array."""
        return memory_type(self._compute_type(dtype))

    def _chunks(self, loop: Loop, step: int = CHUNK) -> Loop:
        return replace(loop, name="chunk", step=step)

    @contextmanager
    def _chunk(self, loop: Loop, chunks: Loop, halves: Sequence[ir.Load | ir.Store]) -> Iterator[None]:
        """Opens a scope for `loop` over one of `chunks`, in which float arrays replace the accesses `halves`."""
        step, rest = chunks.step, f"{chunks.end} - chunk"
        self._line(f"const i64 lanes = {rest} < {step} ? {rest} : {step};")
        with self._float_array_scope(halves, self._names.index(loop.name), "chunk", f"{loop.name} - chunk", step):
            yield

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
        arrays = [self._float_array_name(s) for s in halves]
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

    def _float_array_name(self, access: ir.Load | ir.Store) -> str:
        if isinstance(access, ir.Store):
            return f"out{self._statement_numbers[id(access)]}_wide"
        return f"{identifier(access.name)}_wide"

    def _half_accesses(self, statements: Sequence[ir.Statement], at: int) -> list[ir.Load | ir.Store]:
        """Returns the loads and stores of float16 that are contiguous along index `at`.

        Compilers do not vectorise loops with such conversions, so they are done for whole arrays.
        """
        if self._copies_only:
            return []
        results = {s.name for s in statements if not isinstance(s, ir.Store)}
        found = [s for s in statements if isinstance(s, (ir.Load, ir.Store)) and s.address.strides[at] == 1]
        return [
            s
            for s in found
            if self._buffers[s.buffer].dtype is torch.float16
            and not results.intersection(name for name, _ in s.address.values)
            and not (self._bounds_condition(s.within) if isinstance(s, ir.Load) else s.mode == "+=" or s.reduction)
        ]
