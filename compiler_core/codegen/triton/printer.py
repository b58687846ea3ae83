"""Prints a program's loops as one module of Triton kernels, in the form that `triton.module` loads.

A kernel's programs share the outer indices, `BLOCK_I` of them each; without inner indices
every value has the shape ``[BLOCK_I]``.  With them, an outer value has the shape ``[BLOCK_I, 1]``
and an inner value ``[BLOCK_I, BLOCK_J]`` (or ``[1, BLOCK_J]``), so that they broadcast;
if a program processes one row at a time, an outer value is a scalar and an inner one
has the shape ``[BLOCK_J]``.  A block that covers all inner indices is loaded once (a
persistent reduction); otherwise each of the body's sweeps is a loop over blocks.

Loops without a reduction that access memory in two directions (a transposition), or have values
that belong to a row, print the last index as an inner one, and each program computes a tile.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch

from compiler_core.codegen.source import KernelSource, LineOrigin, choose_schedules
from compiler_core.codegen.triton.ops import HELPERS, POINTERS, TYPES, accumulate_statement, identity, reduce
from compiler_core.codegen.triton.statements import PrintedLine, StatementPrinter
from compiler_core.loops import ir
from compiler_core.loops.fuse.matching import structural_key
from compiler_core.loops.schedule.block_sizes import Blocks, choose_blocks, program_count, shape_for_triton
from compiler_core.loops.schedule.gpu import blocks_of, schedule
from compiler_core.loops.schedule.script import Schedule
from compiler_core.support.interrupts import safe_point
from compiler_core.support.size_expr import Int, Size, factor_text, prod

_HEADER = """\
import triton
import triton.language as tl
from triton.language.extra import libdevice
"""
NO_TUNED_BLOCKS: Mapping[str, Blocks] = {}
NO_SCHEDULES: Mapping[str, Schedule] = {}
MAX_PREFETCH_BYTES = 48 * 1024
"""Rows of at most this size are prefetched to shared memory while the rows before them are computed."""


def generate(
    program: ir.Program,
    tuned: Mapping[str, Blocks] = NO_TUNED_BLOCKS,
    schedules: Mapping[str, Schedule] = NO_SCHEDULES,
) -> KernelSource:
    """Returns the source of all loops of `program` as one Triton module, in the form that `triton.module.load` reads.

    `tuned` are the block sizes of autotuned kernels, by name; others get the sizes of `choose_blocks`.  `schedules` are
    those of kernels for which the user wrote one.  Of kernels that differ only in names, such as those of a network's
    layers, all but the first are aliases of the first, because Triton takes a third of a second to compile a kernel.
    """

    def blocks(loops: ir.Loops) -> Blocks:
        return tuned.get(loops.name) or choose_blocks(loops)

    chosen = choose_schedules(
        [shape_for_triton(step) for step in program.steps if isinstance(step, ir.Loops)],
        schedules,
        lambda loops: (structural_key(loops, program.buffers), blocks(loops)),
        lambda loops: schedule(loops, blocks(loops)),
    )
    printed: dict[str, tuple[list[PrintedLine], str]] = {}
    for name, made in chosen.items():
        safe_point()
        first = made.loops.name
        if first == name:
            printer = TritonKernelPrinter(made.loops, blocks_of(made.nest))
            printer.emit(program.buffers)
            printed[name] = printer.lines, printer.launch()
        else:
            printed[name] = [(f"{name} = {first}  # the same kernel", ())], printed[first][1]
    body = "\n".join(line for lines, _ in printed.values() for line, _ in lines)
    helpers = [f"\n\n@triton.jit\n{text}" for name, text in HELPERS.items() if re.search(rf"\b{name}\b", body)]
    text = _HEADER + "".join(helpers)
    found: list[LineOrigin] = []
    for name, (lines, _) in printed.items():
        text += "\n\n"
        before = text.count("\n")
        text += "".join(f"{line}\n" for line, _ in lines)
        found += [LineOrigin(before + k, name, made) for k, (_, made) in enumerate(lines, 1)]
    launches = "".join(f'    "{name}": {launch},\n' for name, (_, launch) in printed.items())
    return KernelSource("triton", f"{text}\n\nLAUNCHES = {{\n{launches}}}\n", tuple(found), chosen)


class TritonKernelPrinter(StatementPrinter):
    """Prints one kernel."""

    def emit(self, buffers: Mapping[str, ir.Buffer]) -> None:
        """Prints the kernel to `lines`."""
        loops = self.loops
        self._signature(buffers)
        for flag, variable in self._given.items():
            self._emit(f"{variable} = tl.load({flag}_ptr)")
        if loops.column_stores:
            self._mix_order_loop()
            return
        self._outer_index()
        one_block = isinstance(loops.inner_numel, int) and self.blocks.j >= loops.inner_numel
        if not loops.inner or self.blocks.tiled or one_block:
            self._single_block()
        else:
            self._print_sweeps(ir.sweeps(loops))

    def launch(self) -> str:
        """Returns the kernel's entry in ``LAUNCHES``."""
        asserts = ', "asserts": True' if self.loops.may_fail else ""
        return f'{{"grid": {self._grid()}, "num_warps": {self.blocks.num_warps}{asserts}}}'

    def _grid(self) -> str:
        """Returns the launch grid as Python: the number of programs, or a function of the kernel's scalar arguments."""
        outer, blocks = self.loops.outer_numel, self.blocks
        if self.loops.column_stores:
            return str(program_count(self.loops))
        inner = self.loops.inner_numel if blocks.tiled else 1
        if isinstance(outer, int) and isinstance(inner, int):
            return str(program_count(self.loops, self.blocks))
        tiles = f" * triton.cdiv({inner}, {blocks.j})" if blocks.tiled else ""
        numbers = self.loops.symbols + self.loops.scalars
        return f"lambda {', '.join(numbers)}: triton.cdiv({outer}, {blocks.i}){tiles}"

    def _tiles_per_row(self) -> str:
        """Returns the number of programs that share the inner indices of a row."""
        inner = self.loops.inner_numel
        return str(-(-inner // self.blocks.j)) if isinstance(inner, int) else f"tl.cdiv({inner}, BLOCK_J)"

    def _signature(self, buffers: Mapping[str, ir.Buffer]) -> None:
        heading, _ = next(iter(self.loops.lines()))
        pointers = [f'{name}_ptr: "{POINTERS[buffers[name].dtype]}"' for name in self.loops.arguments]
        numbers = [f'{name}: "i64"' for name in self.loops.symbols]
        types = {s.number.name: s.dtype for s in self.loops.body if isinstance(s, ir.Scalar)}
        numbers += [f'{name}: "{POINTERS[types[name]].removeprefix("*")}"' for name in self.loops.scalars]
        blocks = [] if self._one_row else [f"BLOCK_I: tl.constexpr = {self.blocks.i}"]
        if self.blocks.j:
            blocks.append(f"BLOCK_J: tl.constexpr = {self.blocks.j}")
        self._emit(f"# {heading}", indent=0)
        self._emit("@triton.jit", indent=0)
        self._emit(f"def {self.loops.name}(", indent=0)
        for parameter in pointers + numbers + blocks:
            self._emit(f"{parameter},")
        self._emit("):", indent=0)

    def _outer_index(self) -> None:
        program = "tl.program_id(0)" + self._to_int64
        if self.blocks.tiled:
            program += f" // {self._tiles_per_row()}"
        names = self.loops.index_names[: len(self.loops.outer)]
        self._print_index("i", self._row_indices(f"{program} * BLOCK_I + ", program), names, self.loops.outer)

    def _row_indices(self, block: str, row: str) -> str:
        """Returns the row indices of a block that starts at `block`, or `row` if the program has one row at a time."""
        if self._one_row:
            return row
        return f"{block}tl.arange(0, BLOCK_I){'[:, None]' if self.loops.inner else ''}"

    def _inner_index(self, start: str, indent: int) -> None:
        names = self.loops.index_names[len(self.loops.outer) :]
        text = f"{start}tl.arange(0, BLOCK_J){'' if self._one_row else '[None, :]'}"
        self._print_index("j", text + self._to_int64, names, self.loops.inner, indent)

    def _print_index(self, letter: str, text: str, names: Sequence[str], sizes: Sequence[Int], indent: int = 1) -> None:
        """Prints a flattened index, its mask, and those of the indices it consists of that are used."""
        flat = names[0] if len(names) == 1 else letter
        self._emit(f"{flat} = {text}", indent=indent)
        is_masked = self._j_mask if letter == "j" else self._i_mask
        if is_masked:
            self._emit(f"{letter}_mask = {flat} < {prod(sizes)}", indent=indent)
        self._split_index(flat, names, sizes, indent)

    def _split_index(self, flat: str, names: Sequence[str], sizes: Sequence[Int], indent: int = 1) -> None:
        """Prints those of the indices that a flattened index consists of that are used."""
        if flat == names[0]:
            return
        for k, name in enumerate(names):
            below = prod(sizes[k + 1 :])
            if any(n == name and stride for a in self.loops.addresses for n, stride in self._terms(a)):
                quotient = f"{flat} // {factor_text(below)}" if below != 1 else flat
                remainder = f" % {factor_text(sizes[k])}" if k else ""
                self._emit(f"{name} = {quotient}{remainder}", indent=indent)

    def _single_block(self) -> None:
        """Prints a kernel whose block covers all inner indices, or a tile of them."""
        numel = self.loops.outer_numel
        if self.loops.inner:
            tile = f"tl.program_id(0){self._to_int64} % {self._tiles_per_row()} * BLOCK_J + "
            self._inner_index(tile if self.blocks.tiled else "", 1)
        elif self._i_mask and (isinstance(numel, Size) or (numel % 16 != 0 and numel > self.blocks.i)):
            # the mask may end inside 16 bytes, which prevents vector loads of that width
            self._with_and_without_mask()
            return
        self._statements(self.loops.body, 1)

    def _with_and_without_mask(self) -> None:
        """Prints the body twice, without and with a mask, because only the last program needs it."""
        self._emit(f"if (tl.program_id(0) + 1){self._to_int64} * BLOCK_I <= {self.loops.outer_numel}:")
        self._i_mask = False
        self._statements(self.loops.body, 2)
        self._emit("else:")
        self._i_mask = True
        self._statements(self.loops.body, 2)

    def _statements(self, statements: Sequence[ir.Statement], indent: int) -> None:
        for statement in statements:
            if isinstance(statement, ir.Reduce):
                text = reduce(statement.op, statement.dtype, self._reduce_operand(statement), self._reduce_axis())
                self._emit(f"{self._names[statement.name]} = {text}", statement, indent=indent)
            else:
                self._statement(statement, indent)

    def _mix_order_loop(self) -> None:
        """Prints a mix-order reduction: a loop over the rows of a part, with accumulators of the columns."""
        loops, rows = self.loops, self.loops.row_numel
        first = len(loops.outer) - loops.sequential_rank
        programs, sequential = loops.index_names[:first], loops.index_names[first : len(loops.outer)]
        part = programs[0] if len(programs) == 1 else "part"
        row = sequential[0] if len(sequential) == 1 else "row"
        self._emit(f"{part} = tl.program_id(0)" + self._to_int64)
        self._split_index(part, programs, loops.outer[:first])
        self._inner_index("", 1)
        for s in loops.column_stores:
            dtype = loops.dtype(s.value)
            self._emit(f"{s.buffer}_acc = tl.full({self._shape}, {identity(s.reduction, dtype)}, {TYPES[dtype]})", s)
        same = _row_invariant(self.loops)
        self._statements(same, 1)
        step = 1 if self._one_row else "BLOCK_I"
        loads = [s for s in loops.body if isinstance(s, ir.Load) and self._depends_on(s)[0]]
        sizes = [s.dtype.itemsize * self.blocks.i * (self.blocks.j if loops.is_inner(s) else 1) for s in loads]
        ahead = ", num_stages=2" if sum(sizes) <= MAX_PREFETCH_BYTES else ""
        self._emit(f"for start in tl.range(0, {rows}, {step}{ahead}):")
        self._emit(f"{row} = {self._row_indices('start + ', 'start')}", indent=2)
        self._emit(f"i = {rows}*{part} + {row}", indent=2)
        if self._i_mask:
            self._emit(f"i_mask = {row} < {rows}", indent=2)
        self._split_index(row, sequential, loops.outer[first:], 2)
        self._statements([s for s in self.loops.body if s not in same], 2)
        for s in self.loops.column_stores:
            total = f"{s.buffer}_acc"
            if not self._one_row:
                total = reduce(s.reduction, self.loops.dtype(s.value), total, "0, keep_dims=True")
            mask = ", mask=j_mask" if self._j_mask else ""
            self._emit(f"tl.store({self._pointer(s)}, {total}{mask})", s)

    def _print_sweeps(self, sweeps: Sequence[ir.Sweep]) -> None:
        """Prints the sweeps over the rows; a maximum and the sum of exponentials below it become one sweep."""
        remaining = list(sweeps)
        while remaining:
            sweep = remaining.pop(0)
            online = online_softmax(sweep, remaining[:1])
            if online is None:
                self._print_sweep(sweep)
                continue
            self._print_online_softmax(sweep, *online)
            for statement in remaining.pop(0).outer:
                self._statement(statement, 1)

    def _print_online_softmax(self, sweep: ir.Sweep, largest: ir.Reduce, total: ir.Reduce) -> None:
        """Prints online softmax (Milakov and Gimelshein, 2018): the running sum is rescaled when the maximum grows.

        While all elements so far are -inf, the difference to the maximum is NaN; there the sum is 0 (`_exp_below`).
        """
        for statement in sweep.outer:
            self._statement(statement, 1)
        x, s = self._names[largest.name], self._names[total.name]
        self._emit(f'{x}_acc = tl.full({self._shape}, float("-inf"), tl.float32)', largest)
        self._emit(f"{s}_acc = tl.full({self._shape}, 0.0, tl.float32)", total)
        self._emit(f"for start in range(0, {self.loops.inner_numel}, BLOCK_J):")
        self._inner_index("start + ", 2)
        for statement in (*sweep.recomputed, *sweep.inner):
            if statement is not largest:
                self._statement(statement, 2)
        self._emit(f"{x}_block = {self._reduce_operand(largest)}", largest, indent=2)
        self._emit(f"{x}_next = _maximum({x}_acc, {x}_block)", largest, indent=2)
        text = f"{s}_acc * _exp_below({x}_acc, {x}_next) + _exp_below({x}_block, {x}_next)"
        self._emit(f"{s}_acc = {text}", total, indent=2)
        self._emit(f"{x}_acc = {x}_next", largest, indent=2)
        self._emit(f"{x} = {reduce('max', torch.float32, f'{x}_acc', self._reduce_axis())}", largest)
        scaled = f"{s}_acc * libdevice.exp({x}_acc - {x})"
        self._emit(f"{s} = {reduce('sum', torch.float32, scaled, self._reduce_axis())}", total)

    def _print_sweep(self, sweep: ir.Sweep) -> None:
        for statement in sweep.outer:
            self._statement(statement, 1)
        reductions = [s for s in sweep.inner if isinstance(s, ir.Reduce)]
        for scanned in (s for s in (*sweep.recomputed, *sweep.inner) if isinstance(s, ir.Scan)):
            nothing = identity(scanned.op, scanned.dtype)
            text = f"tl.full({'[]' if self._one_row else '[BLOCK_I, 1]'}, {nothing}, {TYPES[_carry_dtype(scanned)]})"
            self._emit(f"{self._names[scanned.name]}_acc = {text}", scanned)
        for s in reductions:
            nothing = f"tl.full({self._shape}, {identity(s.op, s.dtype)}, {TYPES[s.dtype]})"
            self._emit(f"{self._names[s.name]}_acc = {nothing}", s)
        if sweep.inner:
            stages = self.blocks.stages
            blocks, ahead = ("tl.range", f", num_stages={stages}") if stages > 1 else ("range", "")
            self._emit(f"for start in {blocks}(0, {self.loops.inner_numel}, BLOCK_J{ahead}):")
            self._inner_index("start + ", 2)
        for statement in (*sweep.recomputed, *sweep.inner):
            if isinstance(statement, ir.Reduce):
                accumulator = f"{self._names[statement.name]}_acc"
                text = accumulate_statement(statement.op, statement.dtype, accumulator, self._reduce_operand(statement))
                self._emit(text, statement, indent=2)
            elif isinstance(statement, ir.Scan):
                self._scan_block(statement)
            else:
                self._statement(statement, 2)
        for s in reductions:
            name = self._names[s.name]
            self._emit(f"{name} = {reduce(s.op, s.dtype, f'{name}_acc', self._reduce_axis())}", s)

    def _scan_block(self, statement: ir.Scan) -> None:
        """Prints the scan of a block: its values combined with the carry of earlier blocks, then the new carry."""
        name, block = self._names[statement.name], self._reduce_operand(statement)
        total = reduce(statement.op, statement.dtype, block, self._reduce_axis())
        sign = "+" if statement.op == "sum" else "*"
        dtype, wide = TYPES[statement.dtype], TYPES[_carry_dtype(statement)]
        carry = f"{name}_acc" if wide == dtype else f"{name}_acc.to({dtype})"
        self._emit(f"{name} = {carry} {sign} {self._right_hand_side(statement)}", statement, indent=2)
        added = total if wide == dtype else f"({total}).to({wide})"
        self._emit(
            accumulate_statement(statement.op, _carry_dtype(statement), f"{name}_acc", added), statement, indent=2
        )
        if wide != dtype:  # a sum beyond the range of float32 becomes infinite and stays so, as in float32
            beyond = f"tl.abs({name}_acc) > {torch.finfo(statement.dtype).max}"
            self._emit(f'{name}_acc = tl.where({beyond}, {name}_acc * float("inf"), {name}_acc)', statement, indent=2)


def _carry_dtype(scan: ir.Scan) -> torch.dtype:
    """Returns the type of a scan's carry: float64 for sums of float32, which lose digits over thousands of blocks."""
    return torch.float64 if scan.op == "sum" and scan.dtype is torch.float32 else scan.dtype


def online_softmax(sweep: ir.Sweep, following: Sequence[ir.Sweep]) -> tuple[ir.Reduce, ir.Reduce] | None:
    """Returns the maximum m and the sum s if two sweeps do exactly the following, else None::

    m = max over j of x                 the first sweep
    d = sub(x, m); e = exp(d)           the second sweep
    s = sum over j of e
    """
    largest = [s for s in sweep.inner if isinstance(s, ir.Reduce)]
    if len(largest) != 1 or not following or any(isinstance(s, ir.Store) for s in sweep.inner):
        return None
    if any(
        isinstance(s, ir.Scan) for s in (*sweep.recomputed, *sweep.inner)
    ):  # a scan carries values from block to block
        return None
    (m,), rest = largest, following[0].inner
    if m.op != "max" or m.dtype is not torch.float32 or not isinstance(m.value, str) or len(rest) != 3:
        return None
    d, e, total = rest
    below = isinstance(d, ir.Compute) and (d.op, d.arguments) == ("sub", (m.value, m.name))
    power = isinstance(e, ir.Compute) and isinstance(d, ir.Compute) and (e.op, e.arguments) == ("exp", (d.name,))
    if not (below and power and isinstance(total, ir.Reduce) and isinstance(e, ir.Compute)):
        return None
    return (m, total) if (total.op, total.value, total.dtype) == ("sum", e.name, torch.float32) else None


def _row_invariant(loops: ir.Loops) -> list[ir.Statement]:
    """Returns the statements that do not depend on an outer index."""
    rank = len(loops.outer)
    same: list[ir.Statement] = []
    names: set[ir.Argument] = set()
    for s in loops.body:
        addressed = any(any(a.strides[:rank]) for a in ir.addresses(s))
        known = all(isinstance(a, ir.Literal) or a in names for a in s.arguments)
        if not isinstance(s, (ir.Store, ir.Reduce)) and not addressed and known:
            same.append(s)
            names.add(s.name)
    return same
