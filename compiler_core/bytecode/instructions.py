"""Bytecode as a list of instructions whose operands are names, objects and other instructions."""

from __future__ import annotations

import bisect
import opcode
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dis import Positions
from types import CodeType
from typing import NamedTuple

from compiler_core.bytecode import opset
from compiler_core.bytecode.fault import Fault
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

    @property
    def lineno(self) -> int | None:
        """The line of the source that it is on, where it has one."""
        return self.positions.lineno if self.positions else None

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
    """The instructions of `code`, without CACHE and EXTENDED_ARG.  CompilerBug: what is not bytecode.

    On 3.13 a LOAD_FAST that pushes a cell for a closure reads LOAD_CLOSURE, as it does on 3.11 and 3.12.
    """
    operands = _Operands(code)
    positions = list(code.co_positions())
    made: list[Instruction] = []
    jumps: list[tuple[Instruction, int]] = []
    at: dict[int, Instruction] = {}
    for unit in raw_units(code.co_code):
        if not opset.exists(unit.opname) or unit.end > len(code.co_code):
            raise Fault(f"{unit.opname} is no whole instruction of this Python", unit.start)
        if unit.offset // 2 >= len(positions):
            raise Fault("the line table ends before here", unit.start)
        instruction = Instruction(unit.opname, positions=Positions(*positions[unit.offset // 2]), offset=unit.start)
        operands.read(instruction, unit.arg)
        at[unit.start] = instruction
        made.append(instruction)
        if opset.number(unit.opname) in opset.HAS_JUMP:
            jumps.append((instruction, unit.end + (-2 if "BACKWARD" in unit.opname else 2) * unit.arg))
    for instruction, offset in jumps:
        if offset not in at:
            raise Fault(
                f"{instruction.opname} jumps to offset {offset}, where no instruction starts", _start(instruction)
            )
        instruction.target = at[offset]
    _attach_handlers(code, made, at)
    if opset.VERSION >= (3, 13):
        _name_closures(made, code)
    return made


_KNOWN: dict[int, tuple[list[Instruction], dict[Instruction, int]]] = {}


def disassembled(code: CodeType) -> tuple[list[Instruction], dict[Instruction, int]]:
    """The instructions of a code object and where each is: made once, for readers only."""
    known = _KNOWN.get(id(code))
    if known is None:
        made = disassemble(code)
        known = _KNOWN[id(code)] = (made, index(made))
        # generated code holds graphs, so what is known of it must not keep it
        weakref.finalize(code, _KNOWN.pop, id(code)).atexit = False
    return known


class RawUnit(NamedTuple):
    """An instruction with its prefixes and caches: bytes ``start .. end``, itself at `offset`."""

    start: int
    offset: int
    end: int
    opname: str
    arg: int


def raw_units(raw: bytes) -> Iterator[RawUnit]:
    """Cut `raw` into instructions.  What is no instruction comes out as ``<number>`` or reaches past the end."""
    start, extended, i = 0, 0, 0
    while i < len(raw):
        number, low = raw[i], raw[i + 1] if i + 1 < len(raw) else 0
        opname = opcode.opname[number]
        if number == opset.EXTENDED_ARG and i + 2 < len(raw):
            extended = (extended | low) << 8
            i += 2
            continue
        end = i + 2 + (2 * opset.caches(opname) if opset.exists(opname) else 0)
        if number == opset.EXTENDED_ARG:
            end = len(raw) + 2  # the instruction that it belongs to is missing
        yield RawUnit(start, i, end, opname, extended | low)
        start, extended, i = end, 0, end


def _start(instruction: Instruction) -> int:
    assert instruction.offset is not None
    return instruction.offset


def _attach_handlers(code: CodeType, made: Sequence[Instruction], at: dict[int, Instruction]) -> None:
    for start, end, target, depth, lasti in read_exception_table(code.co_exceptiontable):
        if target not in at:
            raise Fault(f"exceptions from offset {start} on go to {target}, where no instruction starts", start)
        if start not in at or start >= end or (end not in at and end != len(code.co_code)):
            raise Fault(
                f"the exception table has an entry from {start} to {end}, which cuts through instructions", start
            )
        handler = Handler(at[target], depth, lasti)
        first, last = (bisect.bisect_left(made, offset, key=_start) for offset in (start, end))
        for instruction in made[first:last]:
            instruction.handler = handler


def _name_closures(made: Sequence[Instruction], code: CodeType) -> None:
    """Tell loads of cells from loads of values where one LOAD_FAST does both.

    A slot that is only a cell or free leaves no doubt.  One that is a local too (a parameter, or the variable of an
    inlined comprehension) is loaded as a cell only to build the closure of a function that is made right after.
    """
    parts = slots(code.co_varnames, code.co_cellvars, code.co_freevars)
    for i, instruction in enumerate(made):
        if instruction.opname == "LOAD_FAST" and instruction.arg is not None and parts[instruction.arg].kind != "local":
            instruction.opname = "LOAD_CLOSURE"
        if instruction.opname == "BUILD_TUPLE" and instruction.arg is not None and _closes_over(made[i + 1 : i + 4]):
            for load in made[max(0, i - instruction.arg) : i]:
                if load.opname == "LOAD_FAST":
                    load.opname = "LOAD_CLOSURE"


def _closes_over(after: Sequence[Instruction]) -> bool:
    names = [x.opname for x in after]
    return names == ["LOAD_CONST", "MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE"] and after[2].arg == 8


class _Operands:
    """Turns raw operands into what they mean in one code object."""

    def __init__(self, code: CodeType) -> None:
        self._code = code
        self._slots = slots(code.co_varnames, code.co_cellvars, code.co_freevars)

    def read(self, instruction: Instruction, arg: int) -> None:
        if not opset.takes_operand(instruction.opname):
            return
        try:
            instruction.arg, instruction.argval = arg, self._argval(instruction.opname, arg)
        except IndexError:
            raise Fault(f"{instruction.opname} {arg} is outside its table", _start(instruction)) from None

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
        if opname in opset.INTRINSICS:
            return opset.INTRINSICS[opname][arg]
        if opname == "COMPARE_OP":
            return opset.compare_symbol(arg)
        return opset.BINARY_OPERATORS[arg] if opname == "BINARY_OP" else arg
