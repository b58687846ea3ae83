"""What all shapes of C++ kernels have in common: the function around the loops, threads, single statements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from compiler_core.codegen.cpp.halves import CHUNK, COMPUTED, HALF
from compiler_core.codegen.cpp.ops import expression, number
from compiler_core.codegen.cpp.reduce import own, update
from compiler_core.codegen.cpp.text import Loop, Text, in_memory, safe
from compiler_core.loops import ir
from compiler_core.loops.ir import affine
from compiler_core.support.size_expr import Int, Size, Undecided, total

PARALLEL_COST = 1 << 19
"""Kernels that cost less (in additions, loads and stores) stay on one thread."""
LANES = 256
SIMD = "#pragma omp simd"
FAULT = "fault"
"""The variable that is not 0 once a position was out of range."""


class Kernel(ABC):
    """Prints one kernel."""

    def __init__(self, text: Text, loops: ir.Loops, buffers: dict[str, ir.Buffer]) -> None:
        self._text, self._loops, self._buffers = text, loops, buffers
        self._number = {id(s): k for k, s in enumerate(loops.body)}
        self._dtypes = {s.name: s.dtype for s in loops.body if not isinstance(s, ir.Store)}
        self._names = loops.index_names
        casts = [s for s in loops.body if isinstance(s, ir.Compute) and s.op == "cast"]
        self._moves = not any(d in HALF for s in casts for d in (s.dtype, self._dtype(s.arguments[0])))
        """Whether halves are only moved: then they stay bits."""
        self._wide: dict[int, str] = {}
        """What stands for the halves in memory of a load or store, where that is an array of floats."""
        self._exact: dict[str, ir.Argument] = {}
        """Of halves that the loop makes by rounding, what they were before."""
        self._unrounded: dict[str, str] = {}
        """Of sums of floats that become a mean, what they are in double."""
        self._extents: list[tuple[Int, Int]] = []
        """The part of each index's range that is being printed, where that is not all."""
        self._sweeps = ir.sweeps(loops)
        self._fault = FAULT
        work, outer = cost(loops), loops.outer_numel
        if loops.scatters and not keeps_apart(loops):
            work = 0  # two threads could write to one place
        self._is_dear = f"{work} >= {PARALLEL_COST}"
        self._parallel = isinstance(work, Size) or work >= PARALLEL_COST
        self._by_rows = self._parallel and (isinstance(outer, Size) or outer >= 8)
        inside = bool(loops.inner) and not ir.in_lanes(loops) and not self._by_rows
        self._late = isinstance(work, Size) and not inside
        """Whether the kernel, which can be cut anywhere, decides about threads when it is called."""
        self._in_row = isinstance(work, Size) and inside
        """The same for one whose rows are few, so that threads share out each of them."""
        last = loops.outer[-1] if loops.outer else 1
        self._block = min(LANES, last) if isinstance(last, int) else LANES

    def emit(self) -> None:
        if self._late:
            fault = f", i64& {FAULT}" if self._loops.may_fail else ""
            heading = f"static __attribute__((noinline)) void {self._loops.name}_part({self._takes()}{fault})"
            self._function(heading, self._body)
        body = self._on_threads if self._late else self._body
        self._function(self._heading(), (lambda: self._watched(body)) if self._loops.may_fail else body)

    def emit_call(self, other: str) -> None:
        """The function as a call of kernel `other`, which does the same."""
        returned = "return " * self._loops.may_fail
        self._function(self._heading(), lambda: self._add(f"{returned}{other}({', '.join(self._given())});"))

    def _heading(self) -> str:
        return f'extern "C" {"i64" if self._loops.may_fail else "void"} {self._loops.name}({self._takes()})'

    def _takes(self) -> str:
        reads = [f"const {self._type(b)}* __restrict in_{b}" for b in self._loops.reads]
        writes = [f"{self._type(b)}* __restrict out_{b}" for b in self._loops.writes]
        sizes = [f"i64 {name}" for name in self._loops.symbols] + [f"f64 {name}" for name in self._loops.scalars]
        return ", ".join(reads + writes + sizes)

    def _given(self) -> list[str]:
        """What the function takes, to call another with."""
        loops = self._loops
        buffers = [f"in_{b}" for b in loops.reads] + [f"out_{b}" for b in loops.writes]
        return [*buffers, *loops.symbols, *loops.scalars]

    def _function(self, heading: str, body: Callable[[], None]) -> None:
        self._add(f"{heading} noexcept {{")
        with self._text.nested():
            body()
        self._add("}")

    def _watched(self, body: Callable[[], None]) -> None:
        """`body`, and whether a position in it was out of range."""
        self._add(f"i64 {FAULT} = 0;")
        body()
        self._add(f"return {FAULT};")

    @abstractmethod
    def _body(self) -> None:
        """The loops themselves."""

    def _on_threads(self) -> None:
        """The loops that the threads share out, on one thread or on all."""
        given = [*self._given(), *([FAULT] if self._loops.may_fail else [])]
        call = f"{self._loops.name}_part({', '.join(given)});"

        def on_all() -> None:
            self._add("#pragma omp parallel")
            self._add(call)

        self._either(self._is_dear, on_all, lambda: self._add(call))

    def _either(self, condition: str, first: Callable[[], None], second: Callable[[], None]) -> None:
        self._add(f"if ({condition}) {{")
        with self._text.nested():
            first()
        self._add("} else {")
        with self._text.nested():
            second()
        self._add("}")

    # -- statements -------------------------------------------------------------------------

    def _statements(self, statements: Sequence[ir.Statement]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, statement: ir.Statement) -> None:
        if isinstance(statement, ir.Store):
            sign = "+=" if statement.how == "+=" else "="
            self._add(f"{self._target(statement)} {sign} {self._stored(statement)};", statement)
        elif isinstance(statement, ir.Position):
            self._position(statement)
        elif isinstance(statement, ir.Scan):
            run = own(statement, "run") + ("[lane]" if ir.in_lanes(self._loops) else "")
            self._add(update(statement, run, self._arg(statement.value)), statement)
            kind = ir.SHORT[statement.dtype]
            self._add(f"const {kind} {safe(statement.name)} = ({kind}){run};", statement)
        else:
            left = f"const {self._kind(statement.dtype)} {safe(statement.name)}"
            self._add(f"{left} = {self._right(statement)};", statement)
            if isinstance(statement, ir.Compute) and statement.op == "cast" and statement.dtype in HALF:
                self._exact[statement.name] = statement.arguments[0]

    def _target(self, store: ir.Store) -> str:
        return self._wide.get(id(store), f"out_{store.buffer}[{self._address(store.address)}]")

    def _stored(self, store: ir.Store) -> str:
        """What is stored, as text."""
        dtype, value = self._buffers[store.buffer].dtype, self._arg(self._exactly(store))
        if self._moves or dtype not in HALF or id(store) in self._wide:
            return value
        return f"{ir.SHORT[dtype]}_of_f32({value})"

    def _exactly(self, store: ir.Store) -> ir.Argument:
        """What is stored; float16 is rounded there, so it need not be before."""
        if self._buffers[store.buffer].dtype is not torch.float16 or not isinstance(store.value, str):
            return store.value
        return self._exact.get(store.value, store.value)

    def _position(self, statement: ir.Position) -> None:
        """A position, or 0 and a note of the fault: what is not looked at may be anything."""
        value, name = self._arg(statement.value), safe(statement.name)
        fits = f"(u64){value} < (u64)({statement.size})"
        within = self._within(statement.within)
        bad = f"!({fits})" + (f" && {within}" if within else "")
        self._add(f"{self._fault} |= {bad};", statement)
        self._add(f"const i64 {name} = {fits} ? {value} : 0;", statement)

    def _address(self, address: ir.Address) -> str:
        return address.text(self._names, safe)

    def _within(self, ranges: Sequence[ir.Range]) -> str:
        """The condition that all `ranges` hold; nothing where they do anyway."""
        holds = [self._holds(r) for r in ranges]
        # as unsigned numbers, those below 0 are the greatest
        tests = (f"(u64)({self._address(r.address)}) < (u64)({r.size})" for r in ranges)
        return "false" if False in holds else " && ".join(t for t, h in zip(tests, holds, strict=True) if h is None)

    def _holds(self, within: ir.Range) -> bool | None:
        """Whether a range holds in the part that is being printed; None where that differs or is not known."""
        address, size = within
        moved = address.offset + total(s * low for s, (low, _) in zip(address.strides, self._extents, strict=False))
        sizes = [end - start for start, end in self._extents] or self._loops.space
        positions = {s.name: s.size for s in self._loops.body if isinstance(s, ir.Position)}
        try:
            low, high = affine.bounds(replace(address, offset=moved), sizes, positions)
            return True if low >= 0 and high < size else False if high < 0 or low >= size else None
        except Undecided:
            return None

    def _right(self, statement: ir.Made) -> str:
        if isinstance(statement, ir.Load):
            if id(statement) in self._wide:
                return self._wide[id(statement)]
            element = f"in_{statement.buffer}[{self._address(statement.address)}]"
            if self._kind(statement.dtype) != ir.SHORT[statement.dtype]:
                element = f"f32_of_{ir.SHORT[statement.dtype]}({element})"
            within = self._within(statement.within)
            return f"{within} ? {element} : 0" if within else element
        if isinstance(statement, ir.Index):
            return self._address(statement.address)
        if isinstance(statement, ir.Scalar):
            return statement.number.name
        assert isinstance(statement, ir.Compute)
        args = [self._arg(a) for a in statement.arguments]
        if statement.op == "div" and statement.arguments[0] in self._unrounded and not self._loops.is_inner(statement):
            return f"(f32)({self._unrounded[str(statement.arguments[0])]} / {args[1]})"
        return expression(statement.op, statement.dtype, args, self._dtype(statement.arguments[-1]))

    def _arg(self, argument: ir.Argument) -> str:
        if isinstance(argument, str):
            return safe(argument)
        return number(argument.value, argument.dtype if self._moves else COMPUTED.get(argument.dtype, argument.dtype))

    # -- halves -----------------------------------------------------------------------------

    def _dtype(self, argument: ir.Argument) -> torch.dtype:
        return argument.dtype if isinstance(argument, ir.Literal) else self._dtypes[argument]

    def _kind(self, dtype: torch.dtype) -> str:
        """The type of a value that is not in memory."""
        return ir.SHORT[dtype if self._moves else COMPUTED.get(dtype, dtype)]

    def _in_array(self, dtype: torch.dtype) -> str:
        """The type of an array of values."""
        return in_memory(dtype if self._moves else COMPUTED.get(dtype, dtype))

    def _chunks(self, loop: Loop, step: int = CHUNK) -> Loop:
        return replace(loop, name="chunk", step=step)

    @contextmanager
    def _chunk(self, loop: Loop, chunks: Loop, halves: Sequence[ir.Load | ir.Store]) -> Iterator[None]:
        """`loop` over one of `chunks`, with arrays of floats around it in the place of `halves`."""
        step, rest = chunks.step, f"{chunks.end} - chunk"
        self._add(f"const i64 lanes = {rest} < {step} ? {rest} : {step};")
        with self._as_floats(halves, self._names.index(loop.name), "chunk", f"{loop.name} - chunk", step):
            yield

    @contextmanager
    def _as_floats(
        self, halves: Sequence[ir.Load | ir.Store], at: int, start: str, place: str, size: int
    ) -> Iterator[None]:
        """Arrays of floats in the place of the halves that lie along index `at`, around a loop over it from `start`.

        `place` is where in an array the loop is; the variable `lanes` says how many halves there are, up to `size`.
        """
        self._exact = {}
        names = [start if k == at else name for k, name in enumerate(self._names)]
        arrays = [f"{f'out{self._number[id(s)]}' if isinstance(s, ir.Store) else safe(s.name)}_wide" for s in halves]
        for array, s in zip(arrays, halves, strict=True):
            self._wide[id(s)] = f"{array}[{place}]"
            self._add(f"f32 {array}[{size}];", s)
            if isinstance(s, ir.Load):
                self._add(f"f32s_of_f16({array}, in_{s.buffer} + {s.address.text(names, safe)}, lanes);", s)
        yield
        for array, s in zip(arrays, halves, strict=True):
            if isinstance(s, ir.Store):
                self._add(f"f16s_of_f32(out_{s.buffer} + {s.address.text(names, safe)}, {array}, lanes);", s)
        self._wide = {}

    def _in_arrays(self, statements: Sequence[ir.Statement], at: int) -> list[ir.Load | ir.Store]:
        """The loads and stores of float16 one after the other along index `at`, which compilers do not vectorise."""
        if self._moves:
            return []
        made = {s.name for s in statements if not isinstance(s, ir.Store)}
        found = [s for s in statements if isinstance(s, (ir.Load, ir.Store)) and s.address.strides[at] == 1]
        return [
            s
            for s in found
            if self._buffers[s.buffer].dtype is torch.float16
            and not made.intersection(name for name, _ in s.address.values)
            and not (self._within(s.within) if isinstance(s, ir.Load) else s.how == "+=" or s.over)
        ]

    # -- text -------------------------------------------------------------------------------

    def _add(self, line: str, of: ir.Statement | str | None = None) -> None:
        """A line that prints statement `of`, or the one that makes the value of that name."""
        if isinstance(of, str):
            of = next(s for s in self._loops.body if not isinstance(s, ir.Store) and s.name == of)
        self._text.add(line, self._loops.name, () if of is None else (self._number[id(of)],))

    @contextmanager
    def _nest(self, loops: Sequence[Loop], pragma: str | None) -> Iterator[None]:
        """Nested loops around what the caller prints; `pragma` stands before the first."""
        if not loops:
            yield
            return
        if pragma:
            self._add(pragma + (f" reduction(| : {FAULT})" if self._loops.may_fail else ""))
        self._add(str(loops[0]))
        with self._text.nested(), self._nest(loops[1:], None):
            yield
        self._add("}")

    def _pragma(self, loops: int) -> str | None:
        if not self._parallel:
            return None
        which = "for" if self._late else "parallel for"
        return f"#pragma omp {which}{f' collapse({loops})' if loops > 1 else ''} schedule(static)"

    def _type(self, buffer: str) -> str:
        return in_memory(self._buffers[buffer].dtype)


def cost(loops: ir.Loops) -> Int:
    """Additions, loads and stores of one run of the kernel, roughly."""
    total: Int = 0
    for statement in loops.body:
        inner = isinstance(statement, ir.Reduce) or loops.is_inner(statement)
        each = ir.OPS[statement.op].cost if isinstance(statement, ir.Compute) else 1
        total = total + each * loops.outer_numel * (loops.inner_numel if inner else 1)
    return total


def keeps_apart(loops: ir.Loops) -> bool:
    """Whether loops that scatter write to different places for different values of the last index."""
    if not loops.outer:
        return False
    addresses = [s.address for s in loops.body if isinstance(s, ir.Store) and s.how != "="]
    return all(_last_is_apart(a, loops.outer[-1]) for a in addresses)


def _last_is_apart(address: ir.Address, size: Int) -> bool:
    """Whether all else that is in `address` leaves room for the last index below it."""
    *others, last = address.strides
    steps = [s for s in (*others, *(factor for _, factor in address.values)) if s != 0]
    return last == 1 and all(divmod(s, size)[1] == 0 for s in steps)
