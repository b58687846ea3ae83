"""Prints single statements of a C++ kernel; `SourceWriter` collects the lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from compiler_core.codegen.cpp.ops import (
    COMPUTE_TYPES,
    accumulator,
    expression,
    identifier,
    literal,
    memory_type,
    propagates_nan,
    sums_for_means,
    update,
)
from compiler_core.codegen.source import LineOrigin
from compiler_core.loops import ir
from compiler_core.loops.ir import affine
from compiler_core.loops.ir.nest import Do, Local
from compiler_core.loops.schedule.vectors import converted_accesses
from compiler_core.support.size_expr import Int, factor_text
from compiler_core.support.tensors import HALF_TYPES

FAULT = "fault"
"""The variable that is not 0 if a position was out of range."""


class SourceWriter:
    """Collects lines of source and the statements that each was printed from."""

    def __init__(self, lines: list[str]) -> None:
        self.lines, self.origins, self._depth = lines, list[LineOrigin](), 0

    def add(self, line: str, kernel: str = "", statements: tuple[int, ...] = ()) -> None:
        """Appends a line, indented; `kernel` and `statements` are its origin, if it has one."""
        self.lines.append("  " * self._depth + line if line else "")
        if kernel:
            self.origins.append(LineOrigin(len(self.lines), kernel, statements))

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Indents the lines that are added inside the block."""
        self._depth += 1
        yield
        self._depth -= 1


class StatementPrinter:
    """Prints the statements of one kernel."""

    def __init__(self, text: SourceWriter, loops: ir.Loops, buffers: dict[str, ir.Buffer]) -> None:
        self._text, self._loops, self._buffers = text, loops, buffers
        self._statement_numbers = {id(s): k for k, s in enumerate(loops.body)}
        self._names = loops.index_names
        casts = [s for s in loops.body if isinstance(s, ir.Compute) and s.op == "cast"]
        self._copies_only = not any(d in HALF_TYPES for s in casts for d in (s.dtype, loops.dtype(s.arguments[0])))
        """Whether half types are only copied, so that their bits need no conversion."""
        self._float_arrays: dict[int, str] = {}
        """For a load or store of float16, by id: the element of a float array that it uses in place of memory."""
        self._before_rounding: dict[str, ir.Argument] = {}
        """For each half that the loop rounds from a float: that float."""
        self._mean_sums = sums_for_means(loops)
        self._double_sums: dict[str, str] = {}
        """For each float sum that becomes a mean: the variable with the sum in double."""
        self._ranges: dict[str, tuple[Int, Int]] = {}
        """The part of the range of each index that is being printed; the whole range if it is missing."""
        self._fault_variable = FAULT
        self._suffix = ""
        """The suffix of the accumulators to which the current loop adds elements."""
        self._columns = ""
        """The same for columns."""
        self._arrays: dict[str, Local] = {}
        """The local arrays, by the value."""
        self._lane_index = ""
        """The outer index over whose block each loop runs, if the loops over rows are inside those over elements."""

    # -- statements -------------------------------------------------------------------------

    def _line(self, line: str, of: ir.Statement | str | None = None) -> None:
        """Writes a line that prints statement `of`, or the statement that computes the value of that name."""
        if isinstance(of, str):
            of = next(s for s in self._loops.body if not isinstance(s, ir.Store) and s.name == of)
        self._text.add(line, self._loops.name, () if of is None else (self._statement_numbers[id(of)],))

    def _do(self, do: Do) -> None:
        """Prints a leaf of the nest."""
        if do.how == "read":
            self._read(do.value)
        elif do.how == "write":
            self._line(
                f"{self._element(do.value)} = {self._double_sums.get(do.value, identifier(do.value))};", do.value
            )
        else:
            self._statement(do.statement)
            if do.how == "keep":
                self._line(f"{self._element(do.value)} = {identifier(do.value)};", do.statement)

    def _read(self, name: str) -> None:
        """Prints the declaration of a value that is read from its array."""
        array, element = self._arrays[name], self._element(name)
        if name in self._mean_sums and array.name == "few":
            self._line(f"const f64 {self._double_sums[name]} = {element};", name)
            element = f"(f32){self._double_sums[name]}"
        if array.name == "lane":
            self._read_from(name, element)
        else:
            self._line(f"const {self._value_type(self._loops.dtypes[name])} {identifier(name)} = {element};", name)

    def _read_from(self, name: str, element: str) -> None:
        kind = self._value_type(self._loops.dtypes[name])
        self._line(f"const {kind} {identifier(name)} = ({kind}){element};", name)

    def _element(self, name: str) -> str:
        """Returns the element of a value's array."""
        array, terms = self._arrays[name], list[str]()
        for index, block, stride in array.terms:
            at = "lane" if index == self._lane_index else f"{index} - {block}" if block else index
            terms.append(
                at if stride == 1 else f"{factor_text(stride)}*({at})" if block else f"{factor_text(stride)}*{at}"
            )
        return f"{identifier(name)}_{array.name}[{' + '.join(terms)}]"

    def _statement(self, statement: ir.Statement) -> None:
        if isinstance(statement, ir.Store) and statement.reduction:
            reduce, few = self._as_reduction(statement), self._column_element(statement)
            self._line(update(reduce, few, self._argument(statement.value), propagates_nan(reduce)), statement)
        elif isinstance(statement, ir.Store):
            sign = "+=" if statement.mode == "+=" else "="
            self._line(f"{self._target(statement)} {sign} {self._stored_value(statement)};", statement)
        elif isinstance(statement, ir.Position):
            self._position(statement)
        elif isinstance(statement, ir.Reduce):
            self._add_to_accumulator(statement)
        elif isinstance(statement, ir.Scan):
            run = accumulator(statement, "run") + ("[lane]" if self._lane_index else "")
            self._line(update(statement, run, self._argument(statement.value)), statement)
            kind = ir.SHORT[statement.dtype]
            self._line(f"const {kind} {identifier(statement.name)} = ({kind}){run};", statement)
        else:
            left = f"const {self._value_type(statement.dtype)} {identifier(statement.name)}"
            self._line(f"{left} = {self._right_hand_side(statement)};", statement)
            if isinstance(statement, ir.Compute) and statement.op == "cast" and statement.dtype in HALF_TYPES:
                self._before_rounding[statement.name] = statement.arguments[0]

    def _add_to_accumulator(self, statement: ir.Reduce) -> None:
        value, suffix, has_nan = self._argument(statement.value), self._suffix, propagates_nan(statement)
        if self._lane_index:
            into = accumulator(statement, "few" if self._suffix == "few" else "lane[lane]")
            self._line(update(statement, into, value, has_nan), statement)
            return
        self._line(update(statement, accumulator(statement, suffix), value), statement)
        if has_nan:
            self._line(f"{accumulator(statement, 'nan_' + suffix)} |= {value} != {value};", statement)

    def _column_element(self, store: ir.Store) -> str:
        return f"{store.buffer}_{self._columns}[{self._names[-1]}]"

    def _as_reduction(self, store: ir.Store) -> ir.Reduce:
        """Returns a store over the outer indices as a reduction."""
        return ir.Reduce(store.buffer, self._loops.dtype(store.value), store.reduction, store.value)

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

    def _right_hand_side(self, statement: ir.ValueStatement) -> str:
        if isinstance(statement, ir.Load):
            if id(statement) in self._float_arrays:
                return self._float_arrays[id(statement)]
            within, address = self._bounds_condition(statement.within), self._address(statement.address)
            is_masked = within not in ("", "false") and self._is_strided(statement)
            if is_masked:
                masks = (r for r in statement.within if self._always_holds(r) is None)
                address = " & ".join(
                    [f"({address})", *(f"inside({self._address(r.address)}, {r.size})" for r in masks)]
                )
            element = f"in_{statement.buffer}[{address}]"
            if self._value_type(statement.dtype) != ir.SHORT[statement.dtype]:
                element = f"f32_of_{ir.SHORT[statement.dtype]}({element})"
            return f"{within} ? {element} : 0" if within and not is_masked else element
        if isinstance(statement, ir.Index):
            return self._address(statement.address)
        if isinstance(statement, ir.Scalar):
            return statement.number.name
        assert isinstance(statement, ir.Compute)
        args = [self._argument(a) for a in statement.arguments]
        numerator = statement.arguments[0] if statement.op == "div" else None
        if numerator in self._double_sums and not self._loops.is_inner(statement):
            return f"(f32)({self._double_sums[str(numerator)]} / {args[1]})"
        return expression(statement.op, statement.dtype, args, self._loops.dtype(statement.arguments[-1]))

    def _is_strided(self, load: ir.Load) -> bool:
        """Whether neighbours in a vector are not neighbours in memory.

        Of such loads, g++ 12 makes wrong code if they have a condition: it does not apply the condition of each of a
        few neighbours in memory, such as the channels of a pixel, to that one.  Their addresses are masked instead.
        """
        names = self._names
        return bool(names) and load.address.strides[names.index(self._lane_index or names[-1])] not in (0, 1)

    def _argument(self, argument: ir.Argument) -> str:
        if isinstance(argument, str):
            return identifier(argument)
        return literal(argument.value, self._compute_type(argument.dtype))

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
        whole = zip(self._names, self._loops.space, strict=True)
        extents = [self._ranges.get(name, (0, size)) for name, size in whole]
        return affine.always_within(within, extents, self._loops.position_sizes)

    # -- half types -------------------------------------------------------------------------

    def _compute_type(self, dtype: torch.dtype) -> torch.dtype:
        """Returns the type in which the loop computes with values of `dtype`."""
        return dtype if self._copies_only else COMPUTE_TYPES.get(dtype, dtype)

    def _value_type(self, dtype: torch.dtype) -> str:
        """Returns the C++ type of a local value."""
        return ir.SHORT[self._compute_type(dtype)]

    def _array_type(self, dtype: torch.dtype) -> str:
        """Returns the C++ element type of a local array."""
        return memory_type(self._compute_type(dtype))

    def _half_accesses(self, computed: Sequence[ir.Statement], index: str) -> list[ir.Load | ir.Store]:
        """Returns the loads and stores of float16 in a loop over `index` that are converted for whole arrays.

        Compilers do not vectorise loops with such conversions.
        """
        return [] if self._copies_only else converted_accesses(self._loops, computed, index, self._ranges)
