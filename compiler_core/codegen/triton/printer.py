"""The loop IR printed as Triton kernels.

A kernel's programs share out the outer indices, `BLOCK_I` of them each; without inner indices
everything has the shape ``[BLOCK_I]``.  With them, an outer value has the shape ``[BLOCK_I, 1]``
and an inner value ``[BLOCK_I, BLOCK_J]`` (or ``[1, BLOCK_J]``), so that they broadcast as they
are; where a program does one row at a time, an outer value is a scalar instead, and an inner one
has the shape ``[BLOCK_J]``.  A block that covers all inner indices is read once and kept (a
persistent reduction); else each of the body's sweeps is a loop over blocks.

Where loops without a reduction go through memory in two directions (a transpose), or have values
that belong to a row, the last index is printed as an inner one and programs share out tiles.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

import torch

from compiler_core.codegen.source import Code, Line
from compiler_core.codegen.triton.ops import (
    HELPERS,
    POINTERS,
    TYPES,
    accumulate,
    by_reciprocal,
    compute,
    identity,
    literal,
    reduce,
    scan,
)
from compiler_core.loops import ir
from compiler_core.loops.fuse.merge_bodies import without_names
from compiler_core.loops.ir import affine
from compiler_core.loops.schedule import size_rules
from compiler_core.loops.schedule.block_sizes import Blocks, as_printed, choose_blocks, programs
from compiler_core.support.interrupts import safe_point
from compiler_core.support.size_expr import Int, Size, Undecided, factor_text, hint, prod

_HEADER = """\
import triton
import triton.language as tl
from triton.language.extra import libdevice
"""
_RESERVED = {"tl", "triton", "libdevice", "float", "range", "start", "i", "j", "i_mask", "j_mask", "BLOCK_I", "BLOCK_J"}
AHEAD = 48 * 1024
"""Rows of up to so many bytes are loaded into shared memory while those before are computed with."""
NOT_TUNED: Mapping[str, Blocks] = {}
_Line = tuple[str, tuple[int, ...]]
"""A line, and the numbers of the statements that it prints."""


def generate(program: ir.Program, tuned: Mapping[str, Blocks] = NOT_TUNED) -> Code:
    """All loops of `program` as one module, as `triton_module` wants it, with the blocks that were `tuned` for some."""
    printed = _printed(program, tuned)
    body = "\n".join(line for lines, _ in printed.values() for line, _ in lines)
    helpers = [f"\n\n@triton.jit\n{text}" for name, text in HELPERS.items() if re.search(rf"\b{name}\b", body)]
    text = _HEADER + "".join(helpers)
    found: list[Line] = []
    for name, (lines, _) in printed.items():
        text += "\n\n"
        before = text.count("\n")
        text += "".join(f"{line}\n" for line, _ in lines)
        found += [Line(before + k, name, made) for k, (_, made) in enumerate(lines, 1)]
    launches = "".join(f'    "{name}": {launch},\n' for name, (_, launch) in printed.items())
    return Code("triton", f"{text}\n\nLAUNCHES = {{\n{launches}}}\n", tuple(found))


def _printed(program: ir.Program, tuned: Mapping[str, Blocks]) -> dict[str, tuple[list[_Line], str]]:
    """Each kernel's lines and its entry in ``LAUNCHES``.

    Of several that differ by names alone, as those of a network's layers do, all but the first are other names of it:
    a kernel takes Triton a third of a second.
    """
    printed: dict[str, tuple[list[_Line], str]] = {}
    known: dict[Hashable, str] = {}
    for loops in (as_printed(step) for step in program.steps if isinstance(step, ir.Loops)):
        safe_point()
        name, blocks = loops.name, tuned.get(loops.name) or choose_blocks(loops)
        first = known.setdefault((without_names(loops, program.buffers), blocks), name)
        if first == name:
            kernel = _Kernel(loops, program.buffers, blocks)
            printed[name] = kernel.lines, kernel.launch()
        else:
            printed[name] = [(f"{name} = {first}  # which does the same", ())], printed[first][1]
    return printed


class _Kernel:
    """One kernel: `lines` are its text."""

    def __init__(self, loops: ir.Loops, buffers: dict[str, ir.Buffer], blocks: Blocks) -> None:
        self.loops, self.blocks = loops, blocks
        self.lines: list[_Line] = []
        self._number = {id(statement): k for k, statement in enumerate(loops.body)}
        self._reaches: dict[ir.Statement, tuple[bool, bool]] = {}
        self._types = {s.name: s.dtype for s in loops.body if not isinstance(s, ir.Store)}
        self._names = _local_names(loops)
        self._one_row = bool(loops.inner) and self.blocks.i == 1
        self._shape = "[BLOCK_J]" if self._one_row else f"[BLOCK_I{', BLOCK_J' if loops.inner else ''}]"
        self._wide = _reaches_far(loops)
        self._i_mask = (loops.outer[-1] if loops.columns else loops.outer_numel) % self.blocks.i != 0
        self._j_mask = bool(loops.inner) and loops.inner_numel % self.blocks.j != 0
        self._signature(buffers)
        if loops.columns:
            self._walk()
            return
        self._outer_index()
        one_block = isinstance(loops.inner_numel, int) and self.blocks.j >= loops.inner_numel
        if not loops.inner or self.blocks.tiled or one_block:
            self._in_one_block()
        else:
            self._sweeps(ir.sweeps(loops))

    def launch(self) -> str:
        """The kernel's entry in ``LAUNCHES``."""
        asserts = ', "asserts": True' if self.loops.may_fail else ""
        return f'{{"grid": {self._grid()}, "num_warps": {self.blocks.num_warps}{asserts}}}'

    def _grid(self) -> str:
        """How many programs there are: a number, or a function of the kernel's numbers."""
        outer, blocks = self.loops.outer_numel, self.blocks
        if self.loops.columns:
            return str(self.loops.outer[0])
        inner = self.loops.inner_numel if blocks.tiled else 1
        if isinstance(outer, int) and isinstance(inner, int):
            return str(programs(self.loops, self.blocks))
        tiles = f" * triton.cdiv({inner}, {blocks.j})" if blocks.tiled else ""
        return f"lambda {', '.join(self._numbers())}: triton.cdiv({outer}, {blocks.i}){tiles}"

    def _tiles(self) -> str:
        """How many programs share out the inner indices."""
        inner = self.loops.inner_numel
        return str(-(-inner // self.blocks.j)) if isinstance(inner, int) else f"tl.cdiv({inner}, BLOCK_J)"

    def _numbers(self) -> tuple[str, ...]:
        return self.loops.symbols + self.loops.scalars

    def _emit(self, text: str, *statements: ir.Statement, indent: int = 1) -> None:
        self.lines.append(("    " * indent + text, tuple(self._number[id(s)] for s in statements)))

    def _signature(self, buffers: dict[str, ir.Buffer]) -> None:
        heading, _ = next(iter(self.loops.lines()))
        pointers = [f'{name}_ptr: "{POINTERS[buffers[name].dtype]}"' for name in self.loops.arguments]
        numbers = [f'{name}: "i64"' for name in self.loops.symbols]
        types = {s.number.name: s.dtype for s in self.loops.body if isinstance(s, ir.Scalar)}
        numbers += [f'{name}: "{POINTERS[types[name]].removeprefix("*")}"' for name in self.loops.scalars]
        sizes = ({"BLOCK_I": self.blocks.i} if not self._one_row else {}) | (
            {"BLOCK_J": self.blocks.j} if self.blocks.j else {}
        )
        blocks = [f"{name}: tl.constexpr = {size}" for name, size in sizes.items()]
        self._emit(f"# {heading}", indent=0)
        self._emit("@triton.jit", indent=0)
        self._emit(f"def {self.loops.name}(", indent=0)
        for parameter in pointers + numbers + blocks:
            self._emit(f"{parameter},")
        self._emit("):", indent=0)

    def _outer_index(self) -> None:
        program = "tl.program_id(0)" + (".to(tl.int64)" if self._wide else "")
        if self.blocks.tiled:
            program += f" // {self._tiles()}"
        names = self.loops.index_names[: len(self.loops.outer)]
        self._index("i", self._rows(f"{program} * BLOCK_I + ", program), names, self.loops.outer)

    def _rows(self, block: str, row: str) -> str:
        """The numbers of the rows that begin after `block`, or that of the one row."""
        if self._one_row:
            return row
        return f"{block}tl.arange(0, BLOCK_I){'[:, None]' if self.loops.inner else ''}"

    def _inner_index(self, start: str, indent: int) -> None:
        names = self.loops.index_names[len(self.loops.outer) :]
        text = f"{start}tl.arange(0, BLOCK_J){'' if self._one_row else '[None, :]'}" + (
            ".to(tl.int64)" if self._wide else ""
        )
        self._index("j", text, names, self.loops.inner, indent)

    def _index(self, letter: str, text: str, names: Sequence[str], sizes: Sequence[Int], indent: int = 1) -> None:
        """Index, mask, and the indices that the flattened one is made of, as far as they are used."""
        flat = names[0] if len(names) == 1 else letter
        self._emit(f"{flat} = {text}", indent=indent)
        if self._j_mask if letter == "j" else self._i_mask:
            self._emit(f"{letter}_mask = {flat} < {prod(sizes)}", indent=indent)
        for k in range(len(names) if len(names) > 1 else 0):
            below = prod(sizes[k + 1 :])
            if self._is_used(names[k]):
                quotient = f"{flat} // {factor_text(below)}" if below != 1 else flat
                self._emit(f"{names[k]} = {quotient}" + (f" % {factor_text(sizes[k])}" if k else ""), indent=indent)

    def _is_used(self, index: str) -> bool:
        addresses = [a for s in self.loops.body for a in ir.addresses(s)]
        return any(name == index and stride for a in addresses for name, stride in self._terms(a))

    def _terms(self, address: ir.Address) -> list[tuple[str, Int]]:
        """The indices of an address with their strides; the flattened one where it steps as that."""
        rank = len(self.loops.outer)
        terms: list[tuple[str, Int]] = []
        for letter, part, sizes in (
            ("i", slice(0, rank), self.loops.outer),
            ("j", slice(rank, None), self.loops.inner),
        ):
            names, strides = self.loops.index_names[part], address.strides[part]
            flat = len(sizes) > 1 and strides == affine.contiguous(sizes, range(len(sizes)), len(sizes)).strides
            terms += [(letter, 1)] if flat else zip(names, strides, strict=True)
        return terms

    def _address(self, address: ir.Address) -> str:
        terms = self._terms(address)
        sum_ = ir.Address(tuple(s for _, s in terms), address.offset, address.values)
        return sum_.text([name for name, _ in terms], self._names.__getitem__)

    def _in_one_block(self) -> None:
        if self.loops.inner:
            tile = f"tl.program_id(0){'.to(tl.int64)' * self._wide} % {self._tiles()} * BLOCK_J + "
            self._inner_index(tile if self.blocks.tiled else "", 1)
        elif self._i_mask and self._ends_between_vectors():
            self._with_and_without_mask()
            return
        self._statements(self.loops.body, 1)

    def _ends_between_vectors(self) -> bool:
        """Whether a mask keeps loads from being 16 bytes wide, since it may end within such a piece."""
        numel = self.loops.outer_numel
        return isinstance(numel, Size) or (numel % 16 != 0 and numel > self.blocks.i)

    def _with_and_without_mask(self) -> None:
        """The body twice: only the last program needs a mask."""
        self._emit(f"if (tl.program_id(0) + 1){'.to(tl.int64)' * self._wide} * BLOCK_I <= {self.loops.outer_numel}:")
        self._i_mask = False
        self._statements(self.loops.body, 2)
        self._emit("else:")
        self._i_mask = True
        self._statements(self.loops.body, 2)

    def _statements(self, statements: Sequence[ir.Statement], indent: int) -> None:
        for statement in statements:
            if isinstance(statement, ir.Reduce):
                text = reduce(statement.op, statement.dtype, self._block(statement), self._along_row())
                self._emit(f"{self._names[statement.name]} = {text}", statement, indent=indent)
            else:
                self._statement(statement, indent)

    def _walk(self) -> None:
        """A part of the rows, some at a time; what is stored over them is kept until all are done."""
        (part, row), rows = self.loops.index_names[:2], self.loops.outer[1]
        self._emit(f"{part} = tl.program_id(0)" + (".to(tl.int64)" if self._wide else ""))
        self._inner_index("", 1)
        for s in self.loops.columns:
            nothing = f"tl.full({self._shape}, {identity(s.over, self._dtype(s.value))}, {TYPES[self._dtype(s.value)]})"
            self._emit(f"{s.buffer}_acc = {nothing}", s)
        same = _same_for_all_rows(self.loops)
        self._statements(same, 1)
        step = 1 if self._one_row else "BLOCK_I"
        ahead = ", num_stages=2" if self._bytes_of_rows() <= AHEAD else ""
        self._emit(f"for start in tl.range(0, {rows}, {step}{ahead}):")
        self._emit(f"{row} = {self._rows('start + ', 'start')}", indent=2)
        self._emit(f"i = {rows}*{part} + {row}", indent=2)
        if self._i_mask:
            self._emit(f"i_mask = {row} < {rows}", indent=2)
        self._statements([s for s in self.loops.body if s not in same], 2)
        for s in self.loops.columns:
            total = f"{s.buffer}_acc"
            total = total if self._one_row else reduce(s.over, self._dtype(s.value), total, "0, keep_dims=True")
            mask = ", mask=j_mask" if self._j_mask else ""
            self._emit(f"tl.store({self._place(s)}, {total}{mask})", s)

    def _bytes_of_rows(self) -> int:
        """What is loaded of the rows that a program does at a time."""
        loads = [s for s in self.loops.body if isinstance(s, ir.Load) and any(s.address.strides[:2])]
        return sum(s.dtype.itemsize * self.blocks.i * (self.blocks.j if self.loops.is_inner(s) else 1) for s in loads)

    def _keep(self, statement: ir.Store) -> str:
        """One more block of what is stored over the rows."""
        dtype = self._dtype(statement.value)
        value = self._arguments(statement, "store")[0]
        if self._i_mask:
            value = f"tl.where(i_mask, {value}, {identity(statement.over, dtype)})"
        return accumulate(statement.over, dtype, f"{statement.buffer}_acc", value)

    def _dtype(self, argument: ir.Argument) -> torch.dtype:
        return argument.dtype if isinstance(argument, ir.Literal) else self._types[argument]

    def _sweeps(self, sweeps: Sequence[ir.Sweep]) -> None:
        """Each run over the rows; a maximum and the sum of exponentials below it take one run together."""
        done = 0
        for k, sweep in enumerate(sweeps):
            if k < done:
                continue
            if (online := online_softmax(sweep, sweeps[k + 1 : k + 2])) is not None:
                self._online_sweep(sweep, *online)
                for statement in sweeps[k + 1].outer:
                    self._statement(statement, 1)
                done = k + 2
            else:
                self._sweep(sweep)

    def _online_sweep(self, sweep: ir.Sweep, largest: ir.Reduce, total: ir.Reduce) -> None:
        """Online softmax (Milakov and Gimelshein, 2018): the sum so far is scaled whenever a larger element comes.

        In blocks of which all elements so far are -inf the difference to the maximum is NaN; there the sum is 0.
        """
        for statement in sweep.outer:
            self._statement(statement, 1)
        x, s = self._names[largest.name], self._names[total.name]
        self._emit(f'{x}_acc = tl.full({self._shape}, float("-inf"), tl.float32)', largest)
        self._emit(f"{s}_acc = tl.full({self._shape}, 0.0, tl.float32)", total)
        self._emit(f"for start in range(0, {self.loops.inner_numel}, BLOCK_J):")
        self._inner_index("start + ", 2)
        for statement in (*sweep.again, *sweep.inner):
            if statement is not largest:
                self._statement(statement, 2)
        self._emit(f"{x}_block = {self._block(largest)}", largest, indent=2)
        self._emit(f"{x}_next = _maximum({x}_acc, {x}_block)", largest, indent=2)
        text = f"{s}_acc * _exp_below({x}_acc, {x}_next) + _exp_below({x}_block, {x}_next)"
        self._emit(f"{s}_acc = {text}", total, indent=2)
        self._emit(f"{x}_acc = {x}_next", largest, indent=2)
        self._emit(f"{x} = {reduce('max', torch.float32, f'{x}_acc', self._along_row())}", largest)
        scaled = f"{s}_acc * libdevice.exp({x}_acc - {x})"
        self._emit(f"{s} = {reduce('sum', torch.float32, scaled, self._along_row())}", total)

    def _sweep(self, sweep: ir.Sweep) -> None:
        for statement in sweep.outer:
            self._statement(statement, 1)
        reductions = [s for s in sweep.inner if isinstance(s, ir.Reduce)]
        for scanned in (s for s in (*sweep.again, *sweep.inner) if isinstance(s, ir.Scan)):
            nothing = identity(scanned.op, scanned.dtype)
            text = f"tl.full({'[]' if self._one_row else '[BLOCK_I, 1]'}, {nothing}, {TYPES[_carried(scanned)]})"
            self._emit(f"{self._names[scanned.name]}_acc = {text}", scanned)
        for s in reductions:
            nothing = f"tl.full({self._shape}, {identity(s.op, s.dtype)}, {TYPES[s.dtype]})"
            self._emit(f"{self._names[s.name]}_acc = {nothing}", s)
        if sweep.inner:
            stages = self.blocks.stages
            blocks, ahead = ("tl.range", f", num_stages={stages}") if stages > 1 else ("range", "")
            self._emit(f"for start in {blocks}(0, {self.loops.inner_numel}, BLOCK_J{ahead}):")
            self._inner_index("start + ", 2)
        for statement in (*sweep.again, *sweep.inner):
            if isinstance(statement, ir.Reduce):
                accumulator = f"{self._names[statement.name]}_acc"
                text = accumulate(statement.op, statement.dtype, accumulator, self._block(statement))
                self._emit(text, statement, indent=2)
            elif isinstance(statement, ir.Scan):
                self._carry_on(statement)
            else:
                self._statement(statement, 2)
        for s in reductions:
            name = self._names[s.name]
            self._emit(f"{name} = {reduce(s.op, s.dtype, f'{name}_acc', self._along_row())}", s)

    def _carry_on(self, statement: ir.Scan) -> None:
        """What the blocks before came to, with this one's values; then what all came to."""
        name, block = self._names[statement.name], self._block(statement)
        total = reduce(statement.op, statement.dtype, block, self._along_row())
        sign, dtype, wide = "+" if statement.op == "sum" else "*", TYPES[statement.dtype], TYPES[_carried(statement)]
        carry = f"{name}_acc" if wide == dtype else f"{name}_acc.to({dtype})"
        self._emit(f"{name} = {carry} {sign} {self._value(statement)}", statement, indent=2)
        added = total if wide == dtype else f"({total}).to({wide})"
        self._emit(accumulate(statement.op, _carried(statement), f"{name}_acc", added), statement, indent=2)
        if wide != dtype:  # what float32 cannot hold stays infinite
            beyond = f"tl.abs({name}_acc) > {torch.finfo(statement.dtype).max}"
            self._emit(f'{name}_acc = tl.where({beyond}, {name}_acc * float("inf"), {name}_acc)', statement, indent=2)

    def _along_row(self) -> str:
        """The axis of a block that reductions run along; it stays where outer values have it."""
        return "0" if self._one_row else "1, keep_dims=True"

    def _block(self, statement: ir.Reduce | ir.Scan) -> str:
        """What is reduced, as a block over the inner indices in which what is masked off changes nothing."""
        value, dtype = statement.value, statement.dtype
        if isinstance(value, ir.Literal):
            text = f"tl.full({self._shape}, {literal(value)}, {TYPES[dtype]})"
        else:
            text = self._names[value]
            if value not in self.loops.inner_names:
                text = f"tl.broadcast_to({text}, {self._shape})"
        return f"tl.where(j_mask, {text}, {identity(statement.op, dtype)})" if self._j_mask else text

    def _statement(self, statement: ir.Statement, indent: int) -> None:
        if isinstance(statement, ir.Store) and statement.over:
            text = self._keep(statement)
        elif isinstance(statement, ir.Store):
            value = self._arguments(statement, "store")[0]
            write, order = ("atomic_add", ', sem="relaxed"') if statement.how == "+=" else ("store", "")
            text = f"tl.{write}({self._place(statement)}, {value}{self._mask(statement)}{order})"
        elif isinstance(statement, ir.Position):
            value, mask = self._arguments(statement, "position")[0], self._mask(statement)
            low = f"({value} >= 0) & ({value} < {statement.size})"
            self._emit(f'tl.device_assert({low}, "index out of range"{mask})', statement, indent=indent)
            text = f"{self._names[statement.name]} = {value}"
        else:
            text = f"{self._names[statement.name]} = {self._value(statement)}"
        self._emit(text, statement, indent=indent)

    def _value(self, statement: ir.Made) -> str:
        if isinstance(statement, ir.Load):
            return f"tl.load({self._place(statement)}{self._mask(statement)})"
        if isinstance(statement, ir.Index):
            address = self._address(statement.address)
            dtype = TYPES[statement.dtype]
            sums = any(statement.address.strides) or statement.address.values
            computed = sums or isinstance(statement.address.offset, Size)
            return f"({address}).to({dtype})" if computed else f"tl.full([], {address}, {dtype})"
        if isinstance(statement, ir.Scalar):
            return statement.number.name
        if isinstance(statement, ir.Scan):
            return scan(statement.op, self._block(statement), self._along_row()[0])
        assert isinstance(statement, ir.Compute)
        if statement.op == "div" and statement.dtype is torch.float32:
            return self._quotient(statement)
        return self._computed(statement)

    def _quotient(self, statement: ir.Compute) -> str:
        """A division, which takes ten times a multiplication where every element has one."""
        inner, divisor = self.loops.inner_names, statement.arguments[1]
        if self.loops.inner and statement.name not in inner:
            return self._computed(statement)  # one for each row
        if isinstance(divisor, str) and self.loops.inner and divisor not in inner:
            return f"_divide_by_shared({', '.join(self._arguments(statement, 'div'))})"
        return self._computed(by_reciprocal(statement))

    def _computed(self, statement: ir.Compute) -> str:
        types = [a.dtype if isinstance(a, ir.Literal) else self._types[a] for a in statement.arguments]
        return compute(statement, types, self._arguments(statement, statement.op))

    def _arguments(self, statement: ir.Compute | ir.Position | ir.Store, op: str) -> list[str]:
        numbers = statement.arguments[1:] if op == "where" else statement.arguments
        beside = any(isinstance(a, str) for a in numbers)
        return [literal(a, op, beside) if isinstance(a, ir.Literal) else self._names[a] for a in statement.arguments]

    def _place(self, statement: ir.Load | ir.Store) -> str:
        address = self._address(statement.address)
        place = f"{statement.buffer}_ptr" + (f" + {address}" if address != "0" else "")
        if isinstance(statement, ir.Store):
            shape = self._shape if statement.how != "=" else ""  # each element is added, not each place
        else:  # a mask has the shape of the pointers, or a smaller one
            masked, plain = (self._reach(s) for s in (statement, replace(statement, within=())))
            widens = masked[self._one_row :] != plain[self._one_row :]
            of_masked = self._shape if masked[1] or not self.loops.inner else "[BLOCK_I, 1]"
            shape = of_masked if widens else ""
        if shape:
            return f"tl.broadcast_to({place}, {shape})"
        return place

    def _mask(self, statement: ir.Load | ir.Position | ir.Store) -> str:
        """Where the statement touches memory, as an argument."""
        each = isinstance(statement, ir.Store) and statement.how != "="
        reach = (True, True) if each else self._reach(statement)
        masks = ["i_mask"] * (self._i_mask and reach[0]) + ["j_mask"] * (self._j_mask and reach[1])
        within = () if isinstance(statement, ir.Store) else statement.within
        masks += [text for r in within for text in self._conditions(r)]
        return f", mask={' & '.join(masks)}" if masks else ""

    def _reach(self, statement: ir.Statement) -> tuple[bool, bool]:
        """Whether a statement differs from one outer index, and from one inner index, to another."""
        if statement not in self._reaches:
            rank = len(self.loops.outer)
            parts = [(any(a.strides[:rank]), any(a.strides[rank:])) for a in ir.addresses(statement)]
            made = {s.name: s for s in self.loops.body if not isinstance(s, ir.Store)}
            used = statement.arguments[1:] if isinstance(statement, ir.Store) else statement.arguments
            parts += [self._reach(made[name]) for name in used if isinstance(name, str)]
            inner = not isinstance(statement, ir.Reduce) and any(j for _, j in parts)
            self._reaches[statement] = any(i for i, _ in parts), inner
        return self._reaches[statement]

    def _conditions(self, within: ir.Range) -> list[str]:
        """What of a range is not so anyway."""
        address, size = within
        text = self._address(address)
        sizes = {s.name: s.size for s in self.loops.body if isinstance(s, ir.Position)}
        try:
            low, high = affine.bounds(address, self.loops.space, sizes)
            return [f"({text} >= 0)"] * (low < 0) + [f"({text} < {size})"] * (high >= size)
        except Undecided:
            return [f"({text} >= 0)", f"({text} < {size})"]


def _carried(scan: ir.Scan) -> torch.dtype:
    """The type of what a running sum carries from block to block: in float32 thousands of blocks would lose digits."""
    return torch.float64 if scan.op == "sum" and scan.dtype is torch.float32 else scan.dtype


def online_softmax(sweep: ir.Sweep, following: Sequence[ir.Sweep]) -> tuple[ir.Reduce, ir.Reduce] | None:
    """The maximum of a row and the sum of exp(x - maximum), where that is all that two sweeps do::

    m = max over j of x                 the first sweep
    d = sub(x, m); e = exp(d)           the second
    s = sum over j of e
    """
    largest = [s for s in sweep.inner if isinstance(s, ir.Reduce)]
    if len(largest) != 1 or not following or any(isinstance(s, ir.Store) for s in sweep.inner):
        return None
    if any(isinstance(s, ir.Scan) for s in (*sweep.again, *sweep.inner)):  # what blocks before came to is carried on
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


def _local_names(loops: ir.Loops) -> dict[str, str]:
    """A name in the kernel for each value: its own, unless the kernel has that for something else."""
    taken = _RESERVED | set(loops.index_names) | {f"{name}_ptr" for name in loops.arguments}
    taken |= {f"{s.buffer}_acc" for s in loops.columns}
    names: dict[str, str] = {}
    for statement in loops.body:
        if not isinstance(statement, ir.Store):
            name = statement.name
            while name in taken:
                name += "_"
            names[statement.name] = name
            taken |= {name, f"{name}_acc", f"{name}_block", f"{name}_next"}
    return names


def _same_for_all_rows(loops: ir.Loops) -> list[ir.Statement]:
    """What does not depend on an outer index."""
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


def _reaches_far(loops: ir.Loops) -> bool:
    """Whether an index or an address may not fit 32 bits."""
    if loops.symbols:
        return True
    addresses = [a for s in loops.body for a in ir.addresses(s)]
    positions = {s.name: hint(s.size) for s in loops.body if isinstance(s, ir.Position)}
    sizes = list(map(hint, loops.space))
    reach = [
        abs(hint(a.offset))
        + sum(abs(hint(s)) * n for s, n in zip(a.strides, sizes, strict=True))
        + sum(abs(hint(f)) * positions[name] for name, f in a.values)
        for a in addresses
    ]
    return max([math.prod(sizes), *reach]) >= size_rules.current().far
