"""Prints one C++ kernel: the function around its loops, with its threads, and single statements.

It is the base of the printers of all kinds of kernel, which print the loops.  `SourceWriter` collects the lines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from compiler_core.codegen.cpp.ops import (
    COMPUTE_TYPES,
    accumulator,
    expression,
    identifier,
    literal,
    memory_type,
    update,
)
from compiler_core.codegen.cpp.prelude import CHUNK
from compiler_core.codegen.source import LineOrigin
from compiler_core.loops import ir
from compiler_core.loops.ir import affine
from compiler_core.loops.schedule.cpp_kernels import has_contiguous_outer, thread_plan
from compiler_core.support.size_expr import Int, Undecided, total
from compiler_core.support.tensors import HALF_TYPES

SIMD = "#pragma omp simd"
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


def block_of(loop: Loop, block: str, size: int) -> Loop:
    """Returns the part of `loop` in the block of `size` elements that starts at `block`."""
    return Loop(loop.name, f"({block} + {size} < {loop.end} ? {block} + {size} : {loop.end})", block)


class KernelPrinter(ABC):
    """Prints one kernel; subclasses print its loops."""

    def __init__(self, text: SourceWriter, loops: ir.Loops, buffers: dict[str, ir.Buffer]) -> None:
        self._text, self._loops, self._buffers = text, loops, buffers
        self._sweeps = ir.sweeps(loops)
        self._threads = thread_plan(loops)
        self._statement_numbers = {id(s): k for k, s in enumerate(loops.body)}
        self._names = loops.index_names
        casts = [s for s in loops.body if isinstance(s, ir.Compute) and s.op == "cast"]
        self._copies_only = not any(d in HALF_TYPES for s in casts for d in (s.dtype, loops.dtype(s.arguments[0])))
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

    # -- the function and its loops -------------------------------------------------------------

    def emit(self) -> None:
        """Prints the kernel; if it decides about threads at the call, also a function with its loops."""
        body = self._body
        if self._threads.kernel_at_call:
            fault = f", i64& {FAULT}" if self._loops.may_fail else ""
            heading = f"static __attribute__((noinline)) void {self._loops.name}_part({self._parameters()}{fault})"
            self._function(heading, self._body)
            body = self._choose_threads

        def body_with_fault_flag() -> None:
            self._line(f"i64 {FAULT} = 0;")
            body()
            self._line(f"return {FAULT};")

        self._function(self._heading(), body_with_fault_flag if self._loops.may_fail else body)

    def emit_call(self, other: str) -> None:
        """Prints the kernel as a call of kernel `other`, which does the same."""
        returned = "return " if self._loops.may_fail else ""
        call = f"{returned}{other}({', '.join(self._argument_list())});"
        self._function(self._heading(), lambda: self._line(call))

    @abstractmethod
    def _body(self) -> None:
        """Prints the kernel's loops."""

    def _heading(self) -> str:
        return f'extern "C" {"i64" if self._loops.may_fail else "void"} {self._loops.name}({self._parameters()})'

    def _parameters(self) -> str:
        loops, updated = self._loops, self._updated
        types = {b: memory_type(self._buffers[b].dtype) for b in loops.arguments}
        buffers = [
            f"{types[b]}* out_{b}" if b in updated
            else f"{types[b]}* __restrict out_{b}" if b in loops.writes
            else f"const {types[b]}* __restrict in_{b}"
            for b in loops.arguments
        ]  # fmt: skip
        sizes = [f"i64 {name}" for name in loops.symbols] + [f"f64 {name}" for name in loops.scalars]
        return ", ".join(buffers + sizes)

    @property
    def _updated(self) -> list[str]:
        """The buffers that are read and written."""
        return [b for b in self._loops.reads if b in self._loops.writes]

    def _argument_list(self) -> list[str]:
        """Returns the names of the function's parameters, for calls of another function."""
        loops = self._loops
        buffers = [f"{'out' if b in loops.writes else 'in'}_{b}" for b in loops.arguments]
        return [*buffers, *loops.symbols, *loops.scalars]

    def _function(self, heading: str, body: Callable[[], None]) -> None:
        self._line(f"{heading} noexcept {{")
        with self._text.nested():
            for name in self._updated:
                self._line(f"const {memory_type(self._buffers[name].dtype)}* in_{name} = out_{name};")
            body()
        self._line("}")

    def _choose_threads(self) -> None:
        """Prints calls of the function with the loops: on all threads if the kernel is expensive, else on one."""
        given = [*self._argument_list(), *([FAULT] if self._loops.may_fail else [])]
        call = f"{self._loops.name}_part({', '.join(given)});"

        def on_all() -> None:
            self._line("#pragma omp parallel")
            self._line(call)

        self._if_else(self._threads.condition, on_all, lambda: self._line(call))

    def _if_else(self, condition: str, first: Callable[[], None], second: Callable[[], None]) -> None:
        self._line(f"if ({condition}) {{")
        with self._text.nested():
            first()
        self._line("} else {")
        with self._text.nested():
            second()
        self._line("}")

    @contextmanager
    def _nest(self, loops: Sequence[Loop], pragma: str | None) -> Iterator[None]:
        """Opens nested loops around what the caller prints; `pragma` is written before the outermost."""
        if not loops:
            yield
            return
        if pragma:
            self._line(pragma + (f" reduction(| : {FAULT})" if self._loops.may_fail else ""))
        self._line(str(loops[0]))
        with self._text.nested(), self._nest(loops[1:], None):
            yield
        self._line("}")

    def _pragma(self, loops: int) -> str | None:
        """Returns the OpenMP pragma that distributes the outermost `loops` loops over threads, if there are threads."""
        if not self._threads.parallel:
            return None
        which = "for" if self._threads.kernel_at_call else "parallel for"
        return f"#pragma omp {which}{f' collapse({loops})' if loops > 1 else ''} schedule(static)"

    # -- statements -------------------------------------------------------------------------

    def _line(self, line: str, of: ir.Statement | str | None = None) -> None:
        """Writes a line that prints statement `of`, or the statement that computes the value of that name."""
        if isinstance(of, str):
            of = next(s for s in self._loops.body if not isinstance(s, ir.Store) and s.name == of)
        self._text.add(line, self._loops.name, () if of is None else (self._statement_numbers[id(of)],))

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
            run = accumulator(statement, "run") + ("[lane]" if has_contiguous_outer(self._loops) else "")
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
        return expression(statement.op, statement.dtype, args, self._loops.dtype(statement.arguments[-1]))

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
        address, size = within
        moved = address.offset + total(s * low for s, (low, _) in zip(address.strides, self._extents, strict=False))
        sizes = [end - start for start, end in self._extents] or self._loops.space
        try:
            low, high = affine.bounds(replace(address, offset=moved), sizes, self._loops.position_sizes)
            if low >= 0 and high < size:
                return True
            return False if high < 0 or low >= size else None
        except Undecided:
            return None

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

    def _read_from(self, name: str, element: str) -> None:
        """Prints the declaration of a value that is read from the element of an array."""
        kind = self._value_type(self._loops.dtypes[name])
        self._line(f"const {kind} {identifier(name)} = ({kind}){element};", name)

    @contextmanager
    def _float_array_scope(
        self, halves: Sequence[ir.Load | ir.Store], at: int, start: str, place: str, size: int = CHUNK
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
