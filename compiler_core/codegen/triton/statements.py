"""Prints single statements of the loop IR as Triton: indices, addresses, masks, values."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import torch

from compiler_core.codegen.triton.ops import (
    TYPES,
    accumulate_statement,
    expression,
    identity,
    literal,
    scan,
)
from compiler_core.loops import ir
from compiler_core.loops.ir import affine
from compiler_core.loops.schedule.block_sizes import Blocks, current_rules
from compiler_core.support.size_expr import Int, Size, Undecided, hint
from compiler_core.support.texts import unused_name

_RESERVED = {
    *("tl", "triton", "libdevice", "float", "range", "start", "i", "j", "part", "row"),
    *("i_mask", "j_mask", "BLOCK_I", "BLOCK_J"),
}
PrintedLine = tuple[str, tuple[int, ...]]
"""A line, and the numbers of the statements that it was printed from."""


class StatementPrinter:
    """Prints the statements of one kernel; `lines` is the text so far."""

    def __init__(self, loops: ir.Loops, blocks: Blocks) -> None:
        self.loops, self.blocks = loops, blocks
        self.lines: list[PrintedLine] = []
        self._statement_numbers = {id(statement): k for k, statement in enumerate(loops.body)}
        self._dependences: dict[ir.Statement, tuple[bool, bool]] = {}
        self._given = {s.given: f"has_{s.buffer}" for s in loops.body if isinstance(s, ir.Load) and s.given}
        """The variables with the values of the flags that say which buffers are there."""
        self._names = _local_names(loops, self._given.values())
        self._one_row = bool(loops.inner) and self.blocks.i == 1
        self._shape = "[BLOCK_J]" if self._one_row else "[BLOCK_I, BLOCK_J]" if loops.inner else "[BLOCK_I]"
        """The shape of an inner value's block, or of a value's if there are no inner indices."""
        self._to_int64 = ".to(tl.int64)" if needs_int64(loops) else ""
        """The conversion of a program id or an index, if 32 bits may be too few."""
        self._i_mask = loops.row_numel % self.blocks.i != 0
        self._j_mask = bool(loops.inner) and loops.inner_numel % self.blocks.j != 0

    def _emit(self, text: str, *statements: ir.Statement, indent: int = 1) -> None:
        self.lines.append(("    " * indent + text, tuple(self._statement_numbers[id(s)] for s in statements)))

    def _terms(self, address: ir.Address) -> list[tuple[str, Int]]:
        """Returns the indices of an address with their strides; the flattened index if the address is contiguous."""
        rank = len(self.loops.outer)
        terms: list[tuple[str, Int]] = []
        for letter, part, sizes in (
            ("i", slice(0, rank), self.loops.outer),
            ("j", slice(rank, None), self.loops.inner),
        ):
            names, strides = self.loops.index_names[part], address.strides[part]
            flat = len(sizes) > 1 and strides == affine.row_major_address(sizes, range(len(sizes)), len(sizes)).strides
            terms += [(letter, 1)] if flat else zip(names, strides, strict=True)
        return terms

    def _address(self, address: ir.Address) -> str:
        terms = self._terms(address)
        sum_ = ir.Address(tuple(s for _, s in terms), address.offset, address.values)
        return sum_.text([name for name, _ in terms], self._names.__getitem__)

    def _reduce_axis(self) -> str:
        """Returns the arguments of a reduction along the inner indices: the axis, and whether it is kept."""
        return "0" if self._one_row else "1, keep_dims=True"

    def _reduce_operand(self, statement: ir.Reduce | ir.Scan) -> str:
        """Returns the operand of a reduction as a block, in which masked elements are the operation's identity."""
        value, dtype = statement.value, statement.dtype
        if isinstance(value, ir.Literal):
            text = f"tl.full({self._shape}, {literal(value)}, {TYPES[dtype]})"
        else:
            text = self._names[value]
            # Triton 3.6 cannot compile a scan of one row in a block of many
            one_row_of_many = isinstance(statement, ir.Scan) and not (self._one_row or self._depends_on(statement)[0])
            if value not in self.loops.inner_names or one_row_of_many:
                text = f"tl.broadcast_to({text}, {self._shape})"
        return f"tl.where(j_mask, {text}, {identity(statement.op, dtype)})" if self._j_mask else text

    def _statement(self, statement: ir.Statement, indent: int) -> None:
        if isinstance(statement, ir.Store) and statement.reduction:  # a block of a mix-order reduction
            value, dtype = self._arguments(statement, "store")[0], self.loops.dtype(statement.value)
            if self._i_mask:
                value = f"tl.where(i_mask, {value}, {identity(statement.reduction, dtype)})"
            text = accumulate_statement(statement.reduction, dtype, f"{statement.buffer}_acc", value)
        elif isinstance(statement, ir.Store):
            value = self._arguments(statement, "store")[0]
            write, order = ("atomic_add", ', sem="relaxed"') if statement.mode == "+=" else ("store", "")
            text = f"tl.{write}({self._pointer(statement)}, {value}{self._mask(statement)}{order})"
        elif isinstance(statement, ir.Position):
            value, mask = self._arguments(statement, "position")[0], self._mask(statement)
            low = f"({value} >= 0) & ({value} < {statement.size})"
            self._emit(f'tl.device_assert({low}, "index out of range"{mask})', statement, indent=indent)
            text = f"{self._names[statement.name]} = {self._broadcast(value, self._shape_of_mask(statement))}"
        else:
            text = f"{self._names[statement.name]} = {self._right_hand_side(statement)}"
        self._emit(text, statement, indent=indent)

    def _right_hand_side(self, statement: ir.ValueStatement) -> str:
        if isinstance(statement, ir.Load):
            other = ", other=0" if statement.given else ""
            return f"tl.load({self._pointer(statement)}{self._mask(statement)}{other})"
        if isinstance(statement, ir.Index):
            address = self._address(statement.address)
            dtype = TYPES[statement.dtype]
            sums = any(statement.address.strides) or statement.address.values
            computed = sums or isinstance(statement.address.offset, Size)
            return f"({address}).to({dtype})" if computed else f"tl.full([], {address}, {dtype})"
        if isinstance(statement, ir.Scalar):
            return statement.number.name
        if isinstance(statement, ir.Scan):
            return scan(statement.op, self._reduce_operand(statement), self._reduce_axis()[0])
        assert isinstance(statement, ir.Compute)
        if self._has_shared_divisor(statement):
            return f"_divide_by_shared({', '.join(self._arguments(statement, 'div'))})"
        of = self.loops.dtype(statement.arguments[0])
        return expression(statement.op, statement.dtype, self._arguments(statement, statement.op), of)

    def _has_shared_divisor(self, statement: ir.Compute) -> bool:
        """Returns whether each element of a row is divided by one float32; a division costs ten multiplications."""
        inner, divisor = self.loops.inner_names, statement.arguments[-1]
        is_float32 = statement.op == "div" and statement.dtype is torch.float32
        return is_float32 and statement.name in inner and isinstance(divisor, str) and divisor not in inner

    def _arguments(self, statement: ir.Compute | ir.Position | ir.Store, op: str) -> list[str]:
        numbers = statement.arguments[1:] if op == "where" else statement.arguments
        with_value = any(isinstance(a, str) for a in numbers)
        return [
            literal(a, op, with_value) if isinstance(a, ir.Literal) else self._names[a] for a in statement.arguments
        ]

    def _pointer(self, statement: ir.Load | ir.Store) -> str:
        """Returns the pointers of an access, broadcast to a larger block if necessary."""
        address = self._address(statement.address)
        pointer = f"{statement.buffer}_ptr" + (f" + {address}" if address != "0" else "")
        if isinstance(statement, ir.Store):
            shape = self._shape if statement.mode != "=" else ""  # every element is added, also to equal addresses
        else:
            shape = self._shape_of_mask(statement)
        return self._broadcast(pointer, shape)

    def _broadcast(self, text: str, shape: str) -> str:
        return f"tl.broadcast_to({text}, {shape})" if shape else text

    def _shape_of_mask(self, statement: ir.Load | ir.Position) -> str:
        """Returns the shape of a statement's mask if it is larger than that of its pointers or of its value; else an
        empty string.  Triton requires pointers not to be smaller than the mask."""
        masked, unmasked = self._depends_on(statement), self._depends_on(replace(statement, within=()))
        inner_differs = masked[1] != unmasked[1]
        outer_differs = masked[0] != unmasked[0] and not self._one_row  # one row at a time: outer values are scalars
        if not (inner_differs or outer_differs):
            return ""
        return self._shape if masked[1] or not self.loops.inner else "[BLOCK_I, 1]"

    def _mask(self, statement: ir.Load | ir.Position | ir.Store) -> str:
        """Returns the ``mask=`` argument of an access or assertion, or an empty string."""
        is_atomic = isinstance(statement, ir.Store) and statement.mode != "="
        outer, inner = (True, True) if is_atomic else self._depends_on(statement)
        masks = []
        if self._i_mask and outer:
            masks.append("i_mask")
        if self._j_mask and inner:
            masks.append("j_mask")
        within = () if isinstance(statement, ir.Store) else statement.within
        masks += [text for r in within for text in self._bounds_conditions(r)]
        if isinstance(statement, ir.Load) and statement.given:
            masks.append(self._given[statement.given])
        return f", mask={' & '.join(masks)}" if masks else ""

    def _depends_on(self, statement: ir.Statement) -> tuple[bool, bool]:
        """Returns whether a statement depends on the outer indices of a block, and whether on the inner indices."""
        if statement not in self._dependences:
            rank = len(self.loops.outer)
            start = rank - self.loops.sequential_rank if self.loops.column_stores else 0
            parts = [(any(a.strides[start:rank]), any(a.strides[rank:])) for a in ir.addresses(statement)]
            made = {s.name: s for s in self.loops.body if not isinstance(s, ir.Store)}
            used = statement.arguments[1:] if isinstance(statement, ir.Store) else statement.arguments
            parts += [self._depends_on(made[name]) for name in used if isinstance(name, str)]
            inner = not isinstance(statement, ir.Reduce) and any(j for _, j in parts)
            self._dependences[statement] = any(i for i, _ in parts), inner
        return self._dependences[statement]

    def _bounds_conditions(self, within: ir.Range) -> list[str]:
        """Returns those of the conditions of a range that do not always hold."""
        address, size = within
        text = self._address(address)
        above, below = f"({text} >= 0)", f"({text} < {size})"
        try:
            low, high = affine.bounds(address, self.loops.space, self.loops.position_sizes)
            needed = ((above, low < 0), (below, high >= size))
            return [condition for condition, is_needed in needed if is_needed]
        except Undecided:
            return [above, below]


def _local_names(loops: ir.Loops, others: Iterable[str]) -> dict[str, str]:
    """Returns each value's name in the kernel: its own, with underscores appended if it is taken, as `others` are."""
    taken = _RESERVED | set(loops.index_names) | set(others) | {f"{name}_ptr" for name in loops.arguments}
    taken |= {f"{s.buffer}_acc" for s in loops.column_stores}
    names: dict[str, str] = {}
    for statement in loops.body:
        if not isinstance(statement, ir.Store):
            name = unused_name(statement.name, taken)
            names[statement.name] = name
            taken |= {name, f"{name}_acc", f"{name}_block", f"{name}_next"}
    return names


def needs_int64(loops: ir.Loops) -> bool:
    """Returns whether an index or an address may exceed 32 bits."""
    if loops.symbols:
        return True
    sizes = list(map(hint, loops.space))
    reach = [
        abs(hint(a.offset))
        + sum(abs(hint(s)) * n for s, n in zip(a.strides, sizes, strict=True))
        + sum(abs(hint(f)) * hint(loops.position_sizes[name]) for name, f in a.values)
        for a in loops.addresses
    ]
    return max([math.prod(sizes), *reach]) >= current_rules().max_int32_reach
