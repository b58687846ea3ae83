"""The loop IR as C++ that includes no header, for g++ and clang++ with OpenMP.

Three shapes of kernel:

    elements   no reduction: nested loops, the last one vectorised
    rows       the inner indices are walked for one outer index at a time, one sweep after the
               other; a sweep's last loop is vectorised with an OpenMP reduction
    lanes      the last outer index is the one that lies closest in memory: blocks of it are
               the vectors, and each sweep keeps one accumulator for each lane

Sums of floats are kept in double across blocks of a row, so long rows lose no accuracy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from compiler_core import ir, spaces
from compiler_core.codegen import Code, Line
from compiler_core.codegen.cpp_ops import expression, number, prelude
from compiler_core.errors import BuildError
from compiler_core.sizes import Int, Size, Undecided, hint, prod, total

PARALLEL_COST = 1 << 19
"""Kernels that cost less (in additions, loads and stores) stay on one thread."""
BLOCK = 4096
"""Elements of a long row that are summed in one go."""
LANES = 256
MOST_CUTS = 9
"""Into so many parts the range of an index is cut."""
FAULT = "fault"
"""The variable that is not 0 once a position was out of range."""
ROW_BYTES = 32 * 1024
"""Values of a row that are dear to compute are kept up to this size, else computed again."""
DEAR = 10

TAKEN = re.compile(
    r"""[ij]\d+|(in|out)_.*|.*_(part|all|nan|row|lane|run)   # indices, arguments, accumulators
    |block|lanes?|fault|as_f32|as_bits|[fiu](8|16|32|64)|bf16   # other names of ours
    |alignas|alignof|and|and_eq|asm|auto|bitand|bitor|bool|break|case|catch|char|class|compl|const|constexpr
    |continue|decltype|default|delete|do|double|else|enum|explicit|export|extern|false|float|for|friend|goto|if
    |inline|int|long|mutable|namespace|new|noexcept|not|not_eq|nullptr|operator|or|or_eq|private|protected|public
    |register|return|short|signed|sizeof|static|struct|switch|template|this|throw|true|try|typedef|typeid|typename
    |union|unsigned|using|virtual|void|volatile|while|xor|xor_eq""",
    re.VERBOSE,
)
"""Names that a value must not have in a kernel."""


def generate(program: ir.Program, simd_math: Sequence[str] = ()) -> Code:
    """The source of all loops of `program`, one function each."""
    kernels = [s for s in program.steps if isinstance(s, ir.Loops)]
    if any(k.columns for k in kernels):
        raise BuildError("rows and columns in one kernel are for GPUs; the C++ of a graph is made with the cpp backend")
    text = _Text(prelude(kernels, simd_math).splitlines())
    for loops in kernels:
        text.add("")
        _Kernel(text, loops, program.buffers).emit()
    return Code("cpp", "\n".join(text.lines) + "\n", tuple(text.origins), "addresses")


class _Text:
    """Lines, and which statements each came from."""

    def __init__(self, lines: list[str]) -> None:
        self.lines, self.origins, self._depth = lines, list[Line](), 0

    def add(self, line: str, kernel: str = "", statements: tuple[int, ...] = ()) -> None:
        self.lines.append("  " * self._depth + line if line else "")
        if kernel:
            self.origins.append(Line(len(self.lines), kernel, statements))

    @contextmanager
    def nested(self) -> Iterator[None]:
        self._depth += 1
        yield
        self._depth -= 1


@dataclass(frozen=True)
class _Loop:
    """``for (i64 name = start; name < end; name += step)``."""

    name: str
    end: str
    start: str = "0"
    step: int = 1

    def __str__(self) -> str:
        step = f"++{self.name}" if self.step == 1 else f"{self.name} += {self.step}"
        return f"for (i64 {self.name} = {self.start}; {self.name} < {self.end}; {step}) {{"


class _Kernel:
    """Prints one kernel."""

    def __init__(self, text: _Text, loops: ir.Loops, buffers: dict[str, ir.Buffer]) -> None:
        self._text, self._loops, self._buffers = text, loops, buffers
        self._number = {id(s): k for k, s in enumerate(loops.body)}
        self._dtypes = {s.name: s.dtype for s in loops.body if not isinstance(s, ir.Store)}
        self._names = loops.index_names
        self._extents: list[tuple[Int, Int]] = []
        """The part of each index's range that is being printed, where that is not all."""
        self._kept = _kept(loops)
        self._sweeps = ir.sweeps(loops, self._kept)
        work, outer = cost(loops), loops.outer_numel
        if loops.scatters and not keeps_apart(loops):
            work = 0  # two threads could write to one place
        self._is_dear = f"{work} >= {PARALLEL_COST}"
        self._parallel = isinstance(work, Size) or work >= PARALLEL_COST
        self._by_rows = self._parallel and (isinstance(outer, Size) or outer >= 8)
        inside = bool(loops.inner) and not in_lanes(loops) and not self._by_rows
        self._late = isinstance(work, Size) and not inside
        """Whether the kernel, which can be cut anywhere, decides about threads when it is called."""
        self._in_row = isinstance(work, Size) and inside
        """The same for one whose rows are few, so that threads share out each of them."""
        last = loops.outer[-1] if loops.outer else 1
        self._block = min(LANES, last) if isinstance(last, int) else LANES

    def emit(self) -> None:
        reads = [f"const {self._type(b)}* __restrict in_{b}" for b in self._loops.reads]
        writes = [f"{self._type(b)}* __restrict out_{b}" for b in self._loops.writes]
        sizes = [f"i64 {name}" for name in self._loops.symbols] + [f"f64 {name}" for name in self._loops.scalars]
        takes = ", ".join(reads + writes + sizes)
        if self._late:
            fault = f", i64& {FAULT}" if self._loops.may_fail else ""
            self._function(f"static __attribute__((noinline)) void {self._loops.name}_part({takes}{fault})", self._body)
        body = self._on_threads if self._late else self._body
        if self._loops.may_fail:
            self._function(f'extern "C" i64 {self._loops.name}({takes})', lambda: self._watched(body))
        else:
            self._function(f'extern "C" void {self._loops.name}({takes})', body)

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

    def _body(self) -> None:
        if self._loops.scatters:
            self._scattered()
        elif not self._loops.inner:
            self._elements()
        elif in_lanes(self._loops):
            self._in_lanes()
        else:
            self._rows()

    def _on_threads(self) -> None:
        """The loops that the threads share out, on one thread or on all."""
        loops = self._loops
        takes = [f"in_{b}" for b in loops.reads] + [f"out_{b}" for b in loops.writes] + [*loops.symbols, *loops.scalars]
        takes += [FAULT] if loops.may_fail else []
        call = f"{loops.name}_part({', '.join(takes)});"

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

    # -- elements ---------------------------------------------------------------------------

    def _elements(self) -> None:
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
        loops = [_Loop(n, str(end), str(start)) for n, (start, end) in zip(self._names, extents, strict=False)]
        leading, last, (start, end) = loops[:-1], loops[-1], extents[-1]
        if self._parallel and hint(prod(e - s for s, e in extents[:-1])) < 64 and hint(end - start) >= 2 * BLOCK:
            leading.append(_Loop("block", str(end), str(start), BLOCK))
            last = _Loop(last.name, _block_end(end), "block")
        # without loops around the last one, several parts would declare what is steady in one scope
        before, rest = self._steady(statements) if leading else ([], statements)
        with self._nest(leading, self._pragma(len(leading)) if leading else None):
            both = f"#pragma omp {'for simd' if self._late else 'parallel for simd'} schedule(static)"
            self._statements(before)
            with self._nest([last], both if self._parallel and not leading else "#pragma omp simd"):
                self._statements(rest)

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

    def _scattered(self) -> None:
        """Elements that are written to places of which several may be one: in order, by one thread or lane each."""
        loops = [_Loop(n, str(size)) for n, size in zip(self._names, self._loops.outer, strict=False)]
        statements = self._sweeps[0].outer
        if not keeps_apart(self._loops):
            with self._nest(loops, None):
                self._statements(statements)
            return
        size, last = self._loops.outer[-1], loops[-1]
        step = -(-size // (8 * 64)) * 64 if isinstance(size, int) else 512
        end = f"(block + {step} < {size} ? block + {step} : {size})"
        around = [_Loop("block", str(size), step=step), *loops[:-1]]
        before, rest = self._steady(statements)
        with self._nest(around, self._pragma(1)):
            self._statements(before)
            with self._nest([_Loop(last.name, end, "block")], "#pragma omp simd"):
                self._statements(rest)

    # -- rows -------------------------------------------------------------------------------

    def _rows(self) -> None:
        if not self._in_row:
            self._short_or_long(self._parallel and not self._by_rows)
        else:
            self._either(self._is_dear, lambda: self._short_or_long(True), lambda: self._short_or_long(False))

    def _short_or_long(self, parallel: bool) -> None:
        """Rows; short ones have room to keep what was dear, and how long they are the call may decide."""
        inner, kept = self._loops.inner_numel, self._kept
        if not kept or isinstance(inner, int):
            self._rows_of(inner, kept, parallel)
            return
        fitting = ROW_BYTES // max(self._dtypes[name].itemsize for name in kept)
        short, long = (fitting, kept), (0, frozenset[str]())
        self._either(
            f"{inner} <= {fitting}", lambda: self._rows_of(*short, parallel), lambda: self._rows_of(*long, parallel)
        )
        self._kept = kept

    def _rows_of(self, capacity: Int, kept: frozenset[str], parallel: bool) -> None:
        self._kept, self._sweeps = kept, ir.sweeps(self._loops, kept)
        outer = [_Loop(n, str(s)) for n, s in zip(self._names, self._loops.outer, strict=False)]
        with self._nest(outer, self._pragma(len(outer)) if self._by_rows and outer else None):
            for name in sorted(self._kept):
                self._add(f"{in_memory(self._dtypes[name])} {_safe(name)}_row[{capacity}];", name)
            for scan in self._loops.scans:
                self._add(f"{_wide(scan)} {_own(scan, 'run')};", scan)
            for sweep in self._sweeps:
                self._statements(sweep.outer)
                if sweep.inner:
                    self._sweep(sweep, parallel)

    def _sweep(self, sweep: ir.Sweep, parallel: bool) -> None:
        """One run over a row."""
        reduces = [s for s in sweep.inner if isinstance(s, ir.Reduce)]
        scans = [s for s in (*sweep.again, *sweep.inner) if isinstance(s, ir.Scan)]
        leading, last = self._inner_loops()
        for scan in scans:
            self._add(f"{_own(scan, 'run')} = {_identity(scan)};", scan)
        for reduce in reduces:
            suffix = "all" if leading else "part"
            kind = _wide(reduce) if leading else _narrow(reduce)
            self._add(f"{kind} {_own(reduce, suffix)} = {_identity(reduce)};", reduce)
            if _sees_nan(reduce):
                self._add(f"{_flag(reduce)} {_own(reduce, 'nan')} = 0;", reduce)
        pragma = f"#pragma omp parallel for schedule(static){_clauses(reduces, 'all')}"
        simd = f"#pragma omp simd{_clauses(reduces, 'part')}"
        with self._nest(leading, pragma if parallel and not scans else None):
            for reduce in reduces if leading else ():
                self._add(f"{_narrow(reduce)} {_own(reduce, 'part')} = {_identity(reduce)};", reduce)
            with self._nest([last], None if scans else simd):
                self._again(sweep)
                self._statements(sweep.inner)
            for reduce in reduces if leading else ():
                self._add(_update(reduce, _own(reduce, "all"), _own(reduce, "part")), reduce)
        for reduce in reduces:
            self._reduced(reduce, _own(reduce, "all" if leading else "part"))

    def _reduced(self, reduce: ir.Reduce, accumulator: str) -> None:
        """The result of a reduction over a row."""
        kind = ir.SHORT[reduce.dtype]
        value = f"({kind}){accumulator}"
        if _sees_nan(reduce):
            value = f"{_own(reduce, 'nan')} ? {number(float('nan'), reduce.dtype)} : {accumulator}"
        self._add(f"const {kind} {_safe(reduce.name)} = {value};", reduce)

    def _inner_loops(self) -> tuple[list[_Loop], _Loop]:
        """The loops around the vectorised one, and that one."""
        sizes, names = self._loops.inner, self._names[len(self._loops.outer) :]
        leading = [_Loop(n, str(s)) for n, s in zip(names, sizes[:-1], strict=False)]
        if isinstance(sizes[-1], int) and sizes[-1] <= BLOCK:
            return leading, _Loop(names[-1], str(sizes[-1]))
        block = _Loop("block", str(sizes[-1]), step=BLOCK)
        return [*leading, block], _Loop(names[-1], _block_end(sizes[-1]), "block")

    def _again(self, sweep: ir.Sweep) -> None:
        for statement in sweep.again:
            assert not isinstance(statement, ir.Store)
            if statement.name in self._kept:
                value = f"{_safe(statement.name)}_row[{self._row_index()}]"
                self._add(f"const {ir.SHORT[statement.dtype]} {_safe(statement.name)} = {value};", statement)
            else:
                self._statement(statement)

    def _row_index(self) -> str:
        strides = [prod(self._loops.inner[k + 1 :]) for k in range(len(self._loops.inner))]
        return ir.Address(tuple(strides)).text(self._names[len(self._loops.outer) :])

    # -- lanes ------------------------------------------------------------------------------

    def _in_lanes(self) -> None:
        *leading, size = self._loops.outer
        loops = [_Loop(n, str(s)) for n, s in zip(self._names, leading, strict=False)]
        loops.append(_Loop("block", str(size), step=self._block))
        shared = self._shared()
        with self._nest(loops, self._pragma(len(loops)) if self._parallel else None):
            self._add(f"const i64 lanes = {size} - block < {self._block} ? {size} - block : {self._block};")
            for scan in self._loops.scans:
                self._add(f"{_wide(scan)} {_own(scan, 'run')}[{self._block}];", scan)
            for sweep in self._sweeps:
                if sweep.outer:
                    self._lane_loop((), sweep.outer, shared)
                if sweep.inner:
                    self._lane_sweep(sweep, shared)

    def _lane_sweep(self, sweep: ir.Sweep, shared: frozenset[str]) -> None:
        reduces = [s for s in sweep.inner if isinstance(s, ir.Reduce)]
        for reduce in reduces:
            name = _own(reduce, "lane")
            self._add(f"{_wide(reduce)} {name}[{self._block}];", reduce)
            self._add(f"for (i64 lane = 0; lane < lanes; ++lane) {name}[lane] = {_identity(reduce)};", reduce)
        for scan in (s for s in (*sweep.again, *sweep.inner) if isinstance(s, ir.Scan)):
            run = _own(scan, "run")
            self._add(f"for (i64 lane = 0; lane < lanes; ++lane) {run}[lane] = {_identity(scan)};", scan)
        names = self._names[len(self._loops.outer) :]
        with self._nest([_Loop(n, str(s)) for n, s in zip(names, self._loops.inner, strict=True)], None):
            self._lane_loop(sweep.again, sweep.inner, shared)

    def _lane_loop(self, again: Sequence[ir.Statement], body: Sequence[ir.Statement], shared: frozenset[str]) -> None:
        """`body` for every lane; what other loops made is read from its array."""
        here = {s.name for s in (*again, *body) if not isinstance(s, (ir.Store, ir.Reduce))}
        used = {a for s in (*again, *body) for a in s.arguments if isinstance(a, str)}
        self._declare_lanes(body, shared)
        with self._nest([_Loop("lane", "lanes")], "#pragma omp simd"):
            self._add(f"const i64 {self._names[len(self._loops.outer) - 1]} = block + lane;")
            for name in sorted((used & shared) - here):
                self._add(
                    f"const {self._short(name)} {_safe(name)} = ({self._short(name)}){_safe(name)}_lane[lane];", name
                )
            for statement in (*again, *body):
                if isinstance(statement, ir.Reduce):
                    lane = f"{_own(statement, 'lane')}[lane]"
                    self._add(_update(statement, lane, self._arg(statement.value), _sees_nan(statement)), statement)
                    continue
                self._statement(statement)
                if not isinstance(statement, ir.Store) and statement.name in shared and statement in body:
                    self._add(f"{_safe(statement.name)}_lane[lane] = {_safe(statement.name)};", statement)

    def _declare_lanes(self, body: Sequence[ir.Statement], shared: frozenset[str]) -> None:
        for statement in body:
            if isinstance(statement, (ir.Store, ir.Reduce)) or statement.name not in shared:
                continue
            self._add(f"{in_memory(statement.dtype)} {_safe(statement.name)}_lane[{self._block}];", statement)

    def _shared(self) -> frozenset[str]:
        """Outer values that a loop over lanes needs and another one makes."""
        shared = {s.name for s in self._loops.body if isinstance(s, ir.Reduce)}
        sections = [part for sweep in self._sweeps for part in (sweep.outer, (*sweep.again, *sweep.inner))]
        for part in sections:
            made = {s.name for s in part if not isinstance(s, ir.Store)}
            used = {a for s in part for a in s.arguments if isinstance(a, str)}
            shared |= used - made
        return frozenset(shared)

    # -- statements -------------------------------------------------------------------------

    def _statements(self, statements: Sequence[ir.Statement]) -> None:
        for statement in statements:
            if isinstance(statement, ir.Reduce):
                value = self._arg(statement.value)
                self._add(_update(statement, _own(statement, "part"), value), statement)
                if _sees_nan(statement):
                    self._add(f"{_own(statement, 'nan')} |= {value} != {value};", statement)
            else:
                self._statement(statement)
                if not isinstance(statement, ir.Store) and statement.name in self._kept:
                    row = f"{_safe(statement.name)}_row[{self._row_index()}]"
                    self._add(f"{row} = {_safe(statement.name)};", statement)

    def _statement(self, statement: ir.Statement) -> None:
        if isinstance(statement, ir.Store):
            target = f"out_{statement.buffer}[{self._address(statement.address)}]"
            sign = "+=" if statement.how == "+=" else "="
            self._add(f"{target} {sign} {self._arg(statement.value)};", statement)
        elif isinstance(statement, ir.Position):
            self._position(statement)
        elif isinstance(statement, ir.Scan):
            run = _own(statement, "run") + ("[lane]" if in_lanes(self._loops) else "")
            self._add(_update(statement, run, self._arg(statement.value)), statement)
            kind = ir.SHORT[statement.dtype]
            self._add(f"const {kind} {_safe(statement.name)} = ({kind}){run};", statement)
        else:
            left = f"const {ir.SHORT[statement.dtype]} {_safe(statement.name)}"
            self._add(f"{left} = {self._right(statement)};", statement)

    def _position(self, statement: ir.Position) -> None:
        """A position, or 0 and a note of the fault: what is not looked at may be anything."""
        value, name = self._arg(statement.value), _safe(statement.name)
        fits = f"(u64){value} < (u64)({statement.size})"
        within = self._within(statement.within)
        bad = f"!({fits})" + (f" && {within}" if within else "")
        self._add(f"{FAULT} |= {bad};", statement)
        self._add(f"const i64 {name} = {fits} ? {value} : 0;", statement)

    def _address(self, address: ir.Address) -> str:
        return address.text(self._names, _safe)

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
            low, high = spaces.bounds(replace(address, offset=moved), sizes, positions)
            return True if low >= 0 and high < size else False if high < 0 or low >= size else None
        except Undecided:
            return None

    def _right(self, statement: ir.Made) -> str:
        if isinstance(statement, ir.Load):
            element = f"in_{statement.buffer}[{self._address(statement.address)}]"
            within = self._within(statement.within)
            return f"{within} ? {element} : 0" if within else element
        if isinstance(statement, ir.Index):
            return self._address(statement.address)
        if isinstance(statement, ir.Scalar):
            return statement.number.name
        assert isinstance(statement, ir.Compute)
        args = [self._arg(a) for a in statement.arguments]
        last = statement.arguments[-1]
        of = last.dtype if isinstance(last, ir.Literal) else self._dtypes[last]
        return expression(statement.op, statement.dtype, args, of)

    def _arg(self, argument: ir.Argument) -> str:
        return number(argument.value, argument.dtype) if isinstance(argument, ir.Literal) else _safe(argument)

    # -- text -------------------------------------------------------------------------------

    def _add(self, line: str, of: ir.Statement | str | None = None) -> None:
        """A line that prints statement `of`, or the one that makes the value of that name."""
        if isinstance(of, str):
            of = next(s for s in self._loops.body if not isinstance(s, ir.Store) and s.name == of)
        self._text.add(line, self._loops.name, () if of is None else (self._number[id(of)],))

    @contextmanager
    def _nest(self, loops: Sequence[_Loop], pragma: str | None) -> Iterator[None]:
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

    def _short(self, name: str) -> str:
        return ir.SHORT[self._dtypes[name]]


def in_memory(dtype: torch.dtype) -> str:
    """The type of an array's elements: compilers do not vectorise loops that read bool."""
    return "u8" if dtype is torch.bool else ir.SHORT[dtype]


def cost(loops: ir.Loops) -> Int:
    """Additions, loads and stores of one run of the kernel, roughly."""
    total: Int = 0
    for statement in loops.body:
        inner = isinstance(statement, ir.Reduce) or loops.is_inner(statement)
        each = ir.OPS[statement.op].cost if isinstance(statement, ir.Compute) else 1
        total = total + each * loops.outer_numel * (loops.inner_numel if inner else 1)
    return total


def in_lanes(loops: ir.Loops) -> bool:
    """Whether neighbours in memory differ by the last outer index rather than an inner one."""
    if not loops.outer or hint(loops.outer[-1]) < 8:
        return False
    at = len(loops.outer) - 1
    inner = [s.address.strides for s in loops.body if isinstance(s, (ir.Load, ir.Store)) and loops.is_inner(s)]
    return sum(s[at] == 1 for s in inner) > sum(1 in s[at + 1 :] for s in inner)


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


def _kept(loops: ir.Loops) -> frozenset[str]:
    """Dear values that a later sweep needs again and that fit beside the row."""
    if not loops.inner or in_lanes(loops):
        return frozenset()
    again = [s for sweep in ir.sweeps(loops) for s in sweep.again]
    return frozenset(
        s.name
        for s in again
        if isinstance(s, ir.Compute) and ir.OPS[s.op].cost >= DEAR and _may_fit(loops.inner_numel * s.dtype.itemsize)
    )


def _may_fit(size: Int) -> bool:
    return isinstance(size, Size) or size <= ROW_BYTES


def _block_end(size: Int) -> str:
    return f"(block + {BLOCK} < {size} ? block + {BLOCK} : {size})"


def _narrow(reduce: ir.Reduce | ir.Scan) -> str:
    """The type that a reduction accumulates in, in the vectorised loop."""
    return "u8" if reduce.op in ("any", "all") else ir.SHORT[reduce.dtype]


def _wide(reduce: ir.Reduce | ir.Scan) -> str:
    """The type that a reduction accumulates in across blocks of a row, and in lanes."""
    return "f64" if reduce.op in ("sum", "prod") and reduce.dtype is torch.float32 else _narrow(reduce)


def _sees_nan(reduce: ir.Reduce) -> bool:
    """Whether the result is NaN as soon as an element is, which `>` and `<` do not see."""
    return reduce.op in ("max", "min") and reduce.dtype.is_floating_point


def _flag(reduce: ir.Reduce) -> str:
    # as wide as the elements, so that a vector of flags is as long as one of elements
    return "u32" if reduce.dtype is torch.float32 else "i64"


def _identity(reduce: ir.Reduce | ir.Scan) -> str:
    if reduce.op in ("max", "min") and not reduce.dtype.is_floating_point:
        info = torch.iinfo(reduce.dtype)
        return number(info.min if reduce.op == "max" else info.max, reduce.dtype)
    return number(ir.REDUCTIONS[reduce.op], reduce.dtype)


def _update(reduce: ir.Reduce | ir.Scan, into: str, value: str, nan: bool = False) -> str:
    """The statement that takes one more value into an accumulator."""
    if reduce.op in ("max", "min"):
        sign = ">" if reduce.op == "max" else "<"
        return f"{into} = {value} {sign} {into}{f' || {value} != {value}' if nan else ''} ? {value} : {into};"
    return f"{into} {({'sum': '+=', 'prod': '*=', 'any': '|=', 'all': '&='})[reduce.op]} {value};"


def _clauses(reduces: Sequence[ir.Reduce], suffix: str) -> str:
    """OpenMP's reduction clauses for the accumulators of `reduces`."""
    signs = {"sum": "+", "prod": "*", "any": "|", "all": "&", "max": "max", "min": "min"}
    clauses = [f" reduction({signs[r.op]} : {_own(r, suffix)})" for r in reduces]
    clauses += [f" reduction(| : {_own(r, 'nan')})" for r in reduces if _sees_nan(r)]
    return "".join(clauses)


def _own(reduce: ir.Reduce | ir.Scan, suffix: str) -> str:
    """The name of an accumulator."""
    return f"{_safe(reduce.name)}_{suffix}"


def _safe(name: str) -> str:
    """`name`, which may mean something else in a kernel, as an identifier."""
    return f"{name}_" if TAKEN.fullmatch(name) else name
