"""Prints the loop nests of a program as C++ without header files, for g++ and clang++ with OpenMP.

A nest (`loops/ir/nest.py`) is printed as it stands: which loops there are, and which of them are vectorised or
distributed over threads, is decided by its schedule (`loops/schedule/cpu.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from compiler_core.codegen.cpp.ops import (
    accumulator,
    element_type,
    identifier,
    identity,
    memory_type,
    openmp_clauses,
    propagates_nan,
    row_type,
    update,
    uses_running_sums,
)
from compiler_core.codegen.cpp.prelude import EACH_SOURCE, INSIDE_SOURCE, MAX_RUN, RUNNING_SUMS, TOTAL_SOURCE, prelude
from compiler_core.codegen.cpp.statements import FAULT, SourceWriter
from compiler_core.codegen.cpp.vectors import SIMD, Loop, VectorPrinter, loop_of
from compiler_core.codegen.source import KernelSource, choose_schedules
from compiler_core.loops import ir
from compiler_core.loops.fuse.matching import structural_key
from compiler_core.loops.ir.nest import Accumulate, Do, For, If, Local, Nest, Node, walk
from compiler_core.loops.schedule.cpu import schedule
from compiler_core.loops.schedule.script import Schedule
from compiler_core.support.interrupts import safe_point
from compiler_core.support.size_expr import Int

Schedules = Mapping[str, Schedule]
NO_SCHEDULES: Schedules = {}


def generate(program: ir.Program, simd_math: Sequence[str] = (), schedules: Schedules = NO_SCHEDULES) -> KernelSource:
    """Returns the C++ source of all loops of `program`, one function each.

    `simd_math` are the libm functions with vector versions (`compilers.simd_math`).  `schedules` are those of kernels
    that do not get the one that `schedule` chooses.  Of kernels that differ only in names, such as those of a network's
    layers, all but the first call the first, because C++ compilers are slow.
    """
    kernels = [s for s in program.steps if isinstance(s, ir.Loops)]
    chosen = choose_schedules(kernels, schedules, lambda loops: structural_key(loops, program.buffers), schedule)
    nodes = [node for made in {id(s): s for s in chosen.values()}.values() for node in walk(made.nest.body)]
    rows = any(isinstance(n, Accumulate) and n.place in ("row", "lanes") for n in nodes)
    exact = any(isinstance(n, For) and n.is_exact for n in nodes)
    sums = any(uses_running_sums(s) for k in kernels for s in k.scans)
    limited = any(isinstance(s, ir.Load) and s.within for k in kernels for s in k.body)
    helpers = [
        INSIDE_SOURCE if limited else "",
        EACH_SOURCE if exact else "",
        TOTAL_SOURCE if rows else "",
        RUNNING_SUMS if sums else "",
    ]
    text = SourceWriter((prelude(kernels, program.buffers, simd_math) + "".join(helpers)).splitlines())
    for loops in kernels:
        safe_point()
        text.add("")
        made = chosen[loops.name]
        if made.loops is loops:
            NestPrinter(text, made.nest, program.buffers).emit()
        else:
            NestPrinter(text, Nest(loops, ()), program.buffers).emit_call(made.loops.name)
    return KernelSource("cpp", "\n".join(text.lines) + "\n", tuple(text.origins), chosen)


class NestPrinter(VectorPrinter):
    """Prints one kernel."""

    def __init__(self, text: SourceWriter, nest: Nest, buffers: dict[str, ir.Buffer]) -> None:
        super().__init__(text, nest.loops, buffers)
        self._nest = nest
        self._condition = next((n.condition for n in walk(nest.body) if isinstance(n, For) and n.condition), "")
        """The condition, known at the call, for threads in the whole kernel; empty if there is none."""
        self._lane_index, self._lane_start = nest.lane_index, ""
        self._lane_count: Int = 0
        if self._lane_index:
            self._double_sums = {name: f"{identifier(name)}_lane[lane]" for name in self._mean_sums}
        self._reduced: list[str] = []
        """The reductions that have accumulators around the current loop."""

    # -- the function -----------------------------------------------------------------------------

    def emit(self) -> None:
        """Prints the kernel; if it decides about threads at the call, also a function with its loops."""
        body = self._body
        if self._condition:
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

    def _body(self) -> None:
        self._nodes(self._nest.body)

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

        self._if_else(self._condition, on_all, lambda: self._line(call))

    def _if_else(self, condition: str, first: Callable[[], None], second: Callable[[], None]) -> None:
        self._line(f"if ({condition}) {{")
        with self._text.nested():
            first()
        self._line("} else {")
        with self._text.nested():
            second()
        self._line("}")

    # -- the nodes of the nest ----------------------------------------------------------------------

    def _nodes(self, nodes: Sequence[Node]) -> None:
        """Prints the nodes of one scope."""
        scans = dict.fromkeys(s for n in nodes if isinstance(n, Accumulate) for s in n.scans)
        arrays = [n for n in nodes if isinstance(n, Local) and n.name != "lane"]
        for array in arrays:
            self._array(array)
        around = self._lane_start
        if self._lane_index and not around and any(self._holds_lanes(n) for n in nodes):
            self._count_lanes(nodes)
        for scan in scans:
            length = f"[{self._lane_count}]" if self._lane_index else ""
            self._line(f"{row_type(scan)} {accumulator(scan, 'run')}{length};", scan)
        for node in nodes:
            if node not in arrays:
                self._node(node)
        self._lane_start = around

    def _node(self, node: Node) -> None:
        if isinstance(node, Do):
            self._do(node)
        elif isinstance(node, Local):
            self._array(node)
        elif isinstance(node, If):
            self._if_else(node.condition, lambda: self._nodes(node.body), lambda: self._nodes(node.otherwise))
        elif isinstance(node, Accumulate):
            self._accumulate(node)
        else:
            self._for(node)

    def _array(self, array: Local) -> None:
        name = array.value
        self._arrays[name] = array
        is_sum = array.name == "few" and name in self._mean_sums
        kind = "f64" if is_sum else self._array_type(self._loops.dtypes[name])
        self._line(f"{kind} {identifier(name)}_{array.name}[{array.size}];", name)

    def _for(self, node: For) -> None:
        """Prints a loop; loops directly inside it that are distributed over threads, too, have one pragma with it."""
        chain = [node]
        while node.is_threaded and len(node.body) == 1 and isinstance(node.body[0], For) and node.body[0].is_threaded:
            node = node.body[0]
            chain.append(node)
        pragma = self._threads(chain)
        if node.index == self._lane_index:
            self._lanes(node)
        elif node.is_vector:
            self._vector(node, pragma)
        elif scan := self._running_sum(node):
            loop, run, to = loop_of(node), accumulator(scan, "run"), f"{identifier(scan.name)}_chunk"
            count = f"{loop.end} - {loop.start}"
            self._line(f"{run} = running_sums({to}, {self._argument(scan.value)}_chunk, {count}, {run});", scan)
        else:
            with self._nested(chain, pragma):
                self._before_rounding = {}  # values before rounding are not in arrays
                self._nodes(node.body)

    def _running_sum(self, node: For) -> ir.Scan | None:
        """Returns the scan of a loop through a block that is one call of `running_sums`: it only sums up an array."""
        scan = node.body[-1].statement if isinstance(node.body[-1], Do) else None
        if len(node.body) != 2 or not isinstance(scan, ir.Scan) or not uses_running_sums(scan):
            return None
        arrays = [self._arrays.get(str(name)) for name in (scan.value, scan.name)]
        of_block = [array for array in arrays if array and array.terms == ((node.index, node.block, 1),)]
        is_call = len(of_block) == 2 and node.size % 8 == 0 and 0 < node.size <= MAX_RUN
        return scan if is_call and not self._lane_index else None

    def _threads(self, chain: Sequence[For]) -> str:
        """Returns the OpenMP pragma of loops that are distributed over threads; empty if they are not."""
        if not chain[0].is_threaded:
            return ""
        which = "for" if chain[0].condition else "parallel for"
        simd = " simd" if chain[-1].is_vector else ""
        collapse = f" collapse({len(chain)})" if len(chain) > 1 else ""
        reductions = [s for s in self._loops.body if isinstance(s, ir.Reduce) and s.name in self._reduced]
        return f"#pragma omp {which}{simd}{collapse} schedule(static){openmp_clauses(reductions, 'all')}"

    def _vector(self, node: For, pragma: str) -> None:
        if node.index not in self._names[: len(self._loops.outer)]:
            self._sweep(node, ())
        else:
            before = self._ranges
            self._ranges = {**before, node.index: (node.start, node.end)}
            lanes = f" simdlen({node.lanes})" if node.lanes else ""
            self._vector_loop(node, pragma or SIMD + lanes)
            self._ranges = before

    # -- accumulators -------------------------------------------------------------------------------

    def _accumulate(self, node: Accumulate) -> None:
        if node.place == "columns":
            self._accumulate_columns(node)
        elif node.place == "block":
            self._accumulate_block(node)
        else:
            self._accumulate_row(node)

    def _accumulate_row(self, node: Accumulate) -> None:
        """Prints loops over a row with their accumulators, which become results or are combined with those around."""
        reductions = [r for r in node.reductions if isinstance(r, ir.Reduce)]
        around, suffix = self._reduced, self._suffix
        is_inside = bool(reductions) and reductions[0].name in around
        for scan in node.scans:
            self._line(f"{accumulator(scan, 'run')} = {identity(scan)};", scan)
        if node.place == "row":
            for reduce in reductions:
                self._declare_accumulator(reduce, row_type(reduce), "all")
            self._reduced, self._suffix = [*around, *(r.name for r in reductions)], "all"
            self._nodes(node.body)
            self._reduced, self._suffix = around, suffix
        else:
            (loop,) = node.body
            assert isinstance(loop, For)
            self._sweep(loop, reductions)
        for reduce in reductions:
            result = "all" if node.place == "row" else self._vector_result(reduce)
            if is_inside:
                self._combine(reduce, "all", result)
            else:
                self._declare_result(reduce, result)

    def _accumulate_columns(self, node: Accumulate) -> None:
        """Prints loops over rows with accumulators of the columns: in double for all rows, in the element type for a
        few of them.

        They are used through pointers: next to an array captured by reference, g++ 12 keeps a row's sums in memory
        instead of registers.
        """
        around, inner = self._columns, self._loops.inner_numel
        self._columns = "few" if around else "all"
        stores = [(s, self._as_reduction(s)) for s in self._loops.column_stores]
        for store, reduce in stores:
            kind, name = (element_type if around else row_type)(reduce), f"{store.buffer}_{self._columns}"
            self._line(f"{kind} {name}_array[{inner}], *const {name} = {name}_array;", store)
            self._line(f"for ({kind}& first : {name}_array) first = {identity(reduce)};", store)
        self._nodes(node.body)
        elements = [self._column_element(store) for store, _ in stores]
        self._columns = around
        for (store, reduce), element in zip(stores, elements, strict=True):
            if around:
                line = update(reduce, self._column_element(store), element, propagates_nan(reduce))
            else:
                line = f"{self._target(store)} = ({element_type(reduce)}){element};"
            with self._opened(Loop(self._names[-1], str(inner))):
                self._line(line, store)

    # -- loops over rows inside those over their elements -------------------------------------------

    def _holds_lanes(self, node: Node) -> bool:
        """Whether a node is a loop over the rows of a block, or has one in it, with accumulators for each."""
        is_loop = isinstance(node, For) and node.index == self._lane_index
        return is_loop or (isinstance(node, Accumulate) and node.place == "block")

    def _count_lanes(self, nodes: Sequence[Node]) -> None:
        """Prints the number of rows of the block."""
        loop = next(n for n in walk(nodes) if isinstance(n, For) and n.index == self._lane_index)
        self._lane_start, self._lane_count = loop.block or str(loop.start), loop.size or loop.end
        rest = f"{loop.end} - {self._lane_start}" if self._lane_start != "0" else str(loop.end)
        count = f"{rest} < {self._lane_count} ? {rest} : {self._lane_count}" if loop.block else rest
        self._line(f"const i64 lanes = {count};")

    def _accumulate_block(self, node: Accumulate) -> None:
        """Prints loops over the elements of a block of rows, with an accumulator for each row."""
        for reduce in (r for r in node.reductions if isinstance(r, ir.Reduce)):
            name = accumulator(reduce, "lane")
            self._line(f"{row_type(reduce)} {name}[{self._lane_count}];", reduce)
            self._line(f"for (i64 lane = 0; lane < lanes; ++lane) {name}[lane] = {identity(reduce)};", reduce)
            self._arrays[reduce.name] = Local(reduce, ((self._lane_index, "", 1),), self._lane_count, "lane")
        for scan in node.scans:
            run = accumulator(scan, "run")
            self._line(f"for (i64 lane = 0; lane < lanes; ++lane) {run}[lane] = {identity(scan)};", scan)
        for inside in node.body:
            self._node(inside)

    def _lanes(self, node: For) -> None:
        """Prints a loop over the rows of a block."""
        leaves = [n for n in node.body if isinstance(n, Do)]
        at, count = self._names.index(node.index), self._lane_count
        assert isinstance(count, int)
        halves = self._half_accesses([d.statement for d in leaves if d.how in ("compute", "keep")], node.index)
        with (
            self._float_array_scope(halves, at, self._lane_start, "lane", count),
            self._opened(Loop("lane", "lanes"), SIMD if node.is_vector else None),
        ):
            first = f"{self._lane_start} + " if self._lane_start != "0" else ""
            self._line(f"const i64 {node.index} = {first}lane;")
            self._do_all(leaves)
            for inside in node.body:
                if isinstance(inside, Accumulate):
                    self._accumulate_few(inside)

    def _accumulate_few(self, node: Accumulate) -> None:
        """Prints an unrolled loop over a few elements of a row of a block."""
        reductions = [r for r in node.reductions if isinstance(r, ir.Reduce)]
        (loop,) = node.body
        assert isinstance(loop, For)
        for reduce in reductions:
            self._line(f"{element_type(reduce)} {accumulator(reduce, 'few')} = {identity(reduce)};", reduce)
        around, self._suffix = self._suffix, "few"
        self._line(f"#pragma GCC unroll {loop.size}")
        with self._nested([loop], ""):
            self._do_all([n for n in loop.body if isinstance(n, Do)])
        self._suffix = around
        for reduce in reductions:
            few, all_rows = accumulator(reduce, "few"), accumulator(reduce, "lane[lane]")
            self._line(update(reduce, all_rows, few, propagates_nan(reduce)), reduce)
