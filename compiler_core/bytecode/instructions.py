"""Bytecode as a list of instructions whose operands are names, objects and other instructions."""

from __future__ import annotations

import opcode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dis import Positions
from types import CodeType
from typing import NamedTuple

from compiler_core.bytecode import opset
from compiler_core.bytecode.tables import read_exception_table
from compiler_core.errors import CompilerBug


@dataclass(frozen=True, slots=True)
class Handler:
    """Where an exception goes: the stack is cut to `depth`, then (`lasti`: the offset and) the exception is pushed."""

    target: Instruction
    depth: int
    lasti: bool


@dataclass(eq=False, slots=True, repr=False)
class Instruction:
    """One instruction; identity is what jumps and handlers refer to.

    `argval` is the meaning of the operand and what `assemble` reads: a name (LOAD_FAST, LOAD_DEREF, LOAD_GLOBAL ...),
    a pair of names (LOAD_FAST_LOAD_FAST ...), the constant itself; a jump has `target` instead.  `arg` is the raw
    operand: of those it matters for the flag bits only (LOAD_GLOBAL, LOAD_ATTR: ``arg & 1``, LOAD_SUPER_ATTR:
    ``arg & 3``), of every other instruction it is what is assembled.
    """

    opname: str
    arg: int | None = None
    argval: object = None
    target: Instruction | None = None
    positions: Positions | None = None
    handler: Handler | None = None
    offset: int | None = None

    def __repr__(self) -> str:
        if self.target is not None:
            operand = f" to {self.target.opname}@{self.target.offset}"
        else:
            operand = "" if self.argval is None and self.arg is None else f" {self.argval!r}"
        return f"<{self.opname}{operand}>"


class Slot(NamedTuple):
    """One fast local of a frame.  A parameter that is also a cell has one slot, of kind "local"."""

    name: str
    kind: str


def slots(varnames: Sequence[str], cellvars: Sequence[str], freevars: Sequence[str]) -> list[Slot]:
    """The fast locals in the order of their index: locals, cells that are no locals, free variables."""
    own = [Slot(name, "local") for name in varnames]
    cells = [Slot(name, "cell") for name in cellvars if name not in varnames]
    return own + cells + [Slot(name, "free") for name in freevars]


def index(instructions: Sequence[Instruction]) -> dict[Instruction, int]:
    """Where each instruction is; CompilerBug when one is there twice."""
    found = {instruction: i for i, instruction in enumerate(instructions)}
    if len(found) != len(instructions):
        twice = next(x for i, x in enumerate(instructions) if found[x] != i)
        raise CompilerBug(f"{twice} is in the list twice; every place needs an Instruction of its own")
    return found


def disassemble(code: CodeType) -> list[Instruction]:
    """The instructions of `code`, without CACHE and EXTENDED_ARG.

    On 3.13 a LOAD_FAST of a cell or free variable's slot reads LOAD_CLOSURE, as it does on 3.11 and 3.12.
    """
    operands = _Operands(code)
    positions = [Positions(*p) for p in code.co_positions()]
    made: list[Instruction] = []
    jumps: list[tuple[Instruction, int]] = []
    at: dict[int, Instruction] = {}
    for start, offset, opname, arg in _units(code.co_code):
        instruction = operands.instruction(opname, arg)
        instruction.positions, instruction.offset = positions[offset // 2], start
        at[start] = instruction
        made.append(instruction)
        if opset.number(opname) in opset.HAS_JUMP:
            after = offset + 2 + 2 * opset.caches(opname)
            jumps.append((instruction, after + (-2 if "BACKWARD" in opname else 2) * arg))
    for instruction, offset in jumps:
        instruction.target = _at(at, offset, f"the target of {instruction.opname}")
    _attach_handlers(code, made, at)
    return made


def _units(raw: bytes) -> Iterator[tuple[int, int, str, int]]:
    """(offset of its first EXTENDED_ARG or itself, own offset, opname, operand) of each instruction."""
    start, extended, i = 0, 0, 0
    while i < len(raw):
        number, low = raw[i], raw[i + 1]
        if number == opset.EXTENDED_ARG:
            extended = (extended | low) << 8
            i += 2
            continue
        opname = opcode.opname[number]
        yield start, i, opname, extended | low
        i += 2 + 2 * opset.caches(opname)
        start, extended = i, 0


def _at(at: dict[int, Instruction], offset: int, what: str) -> Instruction:
    if offset not in at:
        raise CompilerBug(f"{what} is offset {offset}, where no instruction starts")
    return at[offset]


def _attach_handlers(code: CodeType, made: Sequence[Instruction], at: dict[int, Instruction]) -> None:
    for start, end, target, depth, lasti in read_exception_table(code.co_exceptiontable):
        handler = Handler(_at(at, target, "an exception handler"), depth, lasti)
        for instruction in made:
            if instruction.offset is not None and start <= instruction.offset < end:
                instruction.handler = handler


class _Operands:
    """Turns raw operands into what they mean in one code object."""

    def __init__(self, code: CodeType) -> None:
        self._code = code
        self._slots = slots(code.co_varnames, code.co_cellvars, code.co_freevars)
        self._cells = {*code.co_cellvars, *code.co_freevars}

    def instruction(self, opname: str, arg: int) -> Instruction:
        if not opset.takes_operand(opname):
            return Instruction(opname)
        try:
            if opname == "LOAD_FAST" and self._is_cell(arg):
                opname = "LOAD_CLOSURE"
            return Instruction(opname, arg, self._argval(opname, arg))
        except IndexError:
            raise CompilerBug(f"{opname} {arg} is out of the range of its table") from None

    def _is_cell(self, slot: int) -> bool:
        name, kind = self._slots[slot]
        return opset.VERSION >= (3, 13) and (kind != "local" or name in self._code.co_cellvars)

    def _argval(self, opname: str, arg: int) -> object:
        number = opset.number(opname)
        if number in opset.HAS_CONST:
            return self._code.co_consts[arg]
        if number in opset.HAS_NAME:
            return self._code.co_names[arg >> opset.flag_bits(opname)]
        if opname in opset.PAIRS:
            return self._slots[arg >> 4].name, self._slots[arg & 15].name
        if number in opset.HAS_LOCAL or number in opset.HAS_FREE:
            return self._slots[arg].name
        if number in opset.HAS_JUMP:
            return None
        if opname == "COMPARE_OP":
            return opset.compare_symbol(arg)
        return opset.BINARY_OPERATORS[arg] if opname == "BINARY_OP" else arg
