"""Disassembles code objects into instructions whose operands are names, objects and other instructions.

At the end are the formats of the two side tables of a code object, source positions and exception handlers.  CPython
documents them in ``Objects/locations.md`` and ``Objects/exception_handling_notes.txt``.
"""

from __future__ import annotations

import bisect
import inspect
import opcode
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from dis import Positions
from types import CodeType
from typing import NamedTuple

from compiler_core.bytecode import opset
from compiler_core.errors import CompilerBug


@dataclass(frozen=True, slots=True)
class Handler:
    """An exception handler: the stack is cut to `depth`, then the offset (if `lasti`) and the exception are pushed."""

    target: Instruction
    depth: int
    lasti: bool

    @property
    def start_depth(self) -> int:
        """The stack depth at the handler's first instruction."""
        return self.depth + self.lasti + 1


@dataclass(eq=False, slots=True, repr=False)
class Instruction:
    """One instruction.  Jumps and handlers refer to it by identity.

    `argval` is the decoded operand, which `assemble` reads: a name (LOAD_FAST, LOAD_DEREF, LOAD_GLOBAL ...), a pair of
    names (LOAD_FAST_LOAD_FAST ...), or the constant itself.  Jumps have `target` instead.  `arg` is the raw operand.
    Of the instructions above only its flag bits matter (LOAD_GLOBAL, LOAD_ATTR: ``arg & 1``, LOAD_SUPER_ATTR: ``arg &
    3``); for all others it is assembled as it is.
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
        """The source line, or None."""
        return self.positions.lineno if self.positions else None

    @property
    def can_run_alone(self) -> bool:
        """Whether generated code can run it outside its frame, given its operands from the stack."""
        if self.opname == "RERAISE":
            return self.handler is None
        if self.target is not None:
            return self.opname in opset.JUMP_CONDITIONS or self.opname in opset.JUMP_OR_POP_CONDITIONS
        return self.opname not in opset.NEEDS_FRAME

    def __repr__(self) -> str:
        if self.target is not None:
            operand = f" to {self.target.opname}@{self.target.offset}"
        else:
            operand = "" if self.argval is None and self.arg is None else f" {self.argval!r}"
        return f"<{self.opname}{operand}>"


class Slot(NamedTuple):
    """A fast local of a frame.  A parameter that is also a cell has one slot, of kind "local"."""

    name: str
    kind: str


def slots(varnames: Sequence[str], cellvars: Sequence[str], freevars: Sequence[str]) -> list[Slot]:
    """Returns the fast locals in the order of their indices: locals, cells that are not locals, free variables."""
    own = [Slot(name, "local") for name in varnames]
    cells = [Slot(name, "cell") for name in cellvars if name not in varnames]
    return own + cells + [Slot(name, "free") for name in freevars]


def argument_names(code: CodeType) -> tuple[str, ...]:
    """Returns the locals that have an argument when the code begins."""
    stars = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + stars]


def instruction_indices(instructions: Sequence[Instruction]) -> dict[Instruction, int]:
    """Returns the index of each instruction; raises `CompilerBug` if one occurs twice."""
    found = {instruction: i for i, instruction in enumerate(instructions)}
    if len(found) != len(instructions):
        twice = next(instruction for i, instruction in enumerate(instructions) if found[instruction] != i)
        raise CompilerBug(f"{twice} is in the list twice; each position needs a separate Instruction")
    return found


def disassemble(code: CodeType) -> list[Instruction]:
    """Returns the instructions of `code`, without CACHE and EXTENDED_ARG.  Raises `InvalidBytecode` for malformed code.

    On 3.13 a LOAD_FAST that pushes a cell for a closure becomes a LOAD_CLOSURE, as on 3.11 and 3.12.  What 3.14 has new
    names for gets the old ones (`opset.SPELLED`, BINARY_SUBSCR), and its NOT_TAKEN, which does nothing, is left out.
    """
    operands = _Operands(code)
    positions = list(code.co_positions())
    instructions: list[Instruction] = []
    jumps: list[tuple[Instruction, int]] = []
    at: dict[int, Instruction] = {}
    left_out: list[int] = []
    for unit in raw_units(code.co_code):
        if not opset.is_supported(unit.opname) or unit.end > len(code.co_code):
            raise InvalidBytecode(f"{unit.opname} is not a whole instruction of this Python", unit.start)
        if unit.offset // 2 >= len(positions):
            raise InvalidBytecode("the line table ends before here", unit.start)
        if unit.opname == "NOT_TAKEN":
            left_out.append(unit.start)
            continue
        instruction = Instruction(unit.opname, positions=Positions(*positions[unit.offset // 2]), offset=unit.start)
        operands.read(instruction, unit.arg)
        at |= dict.fromkeys((*left_out, unit.start), instruction)
        left_out.clear()
        instructions.append(instruction)
        if opset.number(unit.opname) in opset.HAS_JUMP:
            jumps.append((instruction, unit.end + (-2 if "BACKWARD" in unit.opname else 2) * unit.arg))
    for instruction, offset in jumps:
        if offset not in at:
            raise InvalidBytecode(
                f"{instruction.opname} jumps to offset {offset}, where no instruction starts", _start(instruction)
            )
        instruction.target = at[offset]
    _attach_handlers(code, instructions, at)
    if opset.VERSION >= (3, 13):
        _mark_closure_loads(instructions, code)
    return instructions


_CACHE: dict[int, tuple[list[Instruction], dict[Instruction, int]]] = {}


def disassemble_cached(code: CodeType) -> tuple[list[Instruction], dict[Instruction, int]]:
    """Returns the instructions of a code object and their indices.  The result is shared: callers must not change
    it."""
    known = _CACHE.get(id(code))
    if known is None:
        result = disassemble(code)
        known = _CACHE[id(code)] = (result, instruction_indices(result))
        # generated code holds graphs, so what is known of it must not keep it
        weakref.finalize(code, _CACHE.pop, id(code)).atexit = False
    return known


class RawUnit(NamedTuple):
    """The bytes ``start .. end`` of an instruction with prefixes and caches; the instruction itself is at `offset`."""

    start: int
    offset: int
    end: int
    opname: str
    arg: int


def raw_units(raw: bytes) -> Iterator[RawUnit]:
    """Splits bytes into instructions.  Invalid ones have the opname ``<number>`` or an `end` beyond the bytes."""
    start, extended, i = 0, 0, 0
    while i < len(raw):
        number, low = raw[i], raw[i + 1] if i + 1 < len(raw) else 0
        opname = opcode.opname[number]
        if number == opset.EXTENDED_ARG and i + 2 < len(raw):
            extended = (extended | low) << 8
            i += 2
            continue
        end = i + 2 + (2 * opset.cache_units(opname) if opset.is_supported(opname) else 0)
        if number == opset.EXTENDED_ARG:
            end = len(raw) + 2  # the instruction that it belongs to is missing
        yield RawUnit(start, i, end, opname, extended | low)
        start, extended, i = end, 0, end


def _start(instruction: Instruction) -> int:
    assert instruction.offset is not None
    return instruction.offset


def _attach_handlers(code: CodeType, instructions: Sequence[Instruction], at: dict[int, Instruction]) -> None:
    for start, end, target, depth, lasti in read_exception_table(code.co_exceptiontable):
        if target not in at:
            raise InvalidBytecode(
                f"exceptions from offset {start} on go to {target}, where no instruction starts", start
            )
        if start not in at or start >= end or (end not in at and end != len(code.co_code)):
            raise InvalidBytecode(
                f"the exception table has an entry from {start} to {end}, which cuts through instructions", start
            )
        handler = Handler(at[target], depth, lasti)
        first, last = (bisect.bisect_left(instructions, offset, key=_start) for offset in (start, end))
        for instruction in instructions[first:last]:
            instruction.handler = handler


def _mark_closure_loads(instructions: Sequence[Instruction], code: CodeType) -> None:
    """Renames each LOAD_FAST that loads a cell, not a value, to LOAD_CLOSURE.

    A slot that is only a cell or a free variable is unambiguous.  One that is also a local (a parameter, or the
    variable of an inlined comprehension) is loaded as a cell only to build the closure of a function that is made right
    after.
    """
    parts = slots(code.co_varnames, code.co_cellvars, code.co_freevars)
    for i, instruction in enumerate(instructions):
        if instruction.opname == "LOAD_FAST" and instruction.arg is not None and parts[instruction.arg].kind != "local":
            instruction.opname = "LOAD_CLOSURE"
        if (
            instruction.opname == "BUILD_TUPLE"
            and instruction.arg is not None
            and _makes_closure(instructions[i + 1 : i + 4])
        ):
            for load in instructions[max(0, i - instruction.arg) : i]:
                if load.opname == "LOAD_FAST":
                    load.opname = "LOAD_CLOSURE"


def _makes_closure(after: Sequence[Instruction]) -> bool:
    names = [instruction.opname for instruction in after]
    return names == ["LOAD_CONST", "MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE"] and after[2].arg == 8


class _Operands:
    """Decodes the raw operands of one code object."""

    def __init__(self, code: CodeType) -> None:
        self._code = code
        self._slots = slots(code.co_varnames, code.co_cellvars, code.co_freevars)

    def read(self, instruction: Instruction, arg: int) -> None:
        if not opset.takes_operand(instruction.opname):
            return
        try:
            instruction.arg, instruction.argval = arg, self._argval(instruction.opname, arg)
        except IndexError:
            raise InvalidBytecode(f"{instruction.opname} {arg} is outside its table", _start(instruction)) from None
        if instruction.opname == "BINARY_OP" and arg == opset.SUBSCRIPT:
            instruction.opname, instruction.arg, instruction.argval = "BINARY_SUBSCR", None, None
        elif instruction.opname == "LOAD_SMALL_INT":
            instruction.arg = None
        instruction.opname = opset.SPELLED.get(instruction.opname, instruction.opname)

    def _argval(self, opname: str, arg: int) -> object:
        number = opset.number(opname)
        if number in opset.HAS_CONST:
            return self._code.co_consts[arg]
        if number in opset.HAS_NAME:
            return self._code.co_names[arg >> opset.flag_bits(opname)]
        if opset.SPELLED.get(opname, opname) in opset.PAIRS:
            return self._slots[arg >> 4].name, self._slots[arg & 15].name
        if number in opset.HAS_LOCAL or number in opset.HAS_FREE:
            return self._slots[arg].name
        if number in opset.HAS_JUMP:
            return None
        if opname in opset.INTRINSICS:
            return opset.INTRINSICS[opname][arg]
        if opname == "LOAD_COMMON_CONSTANT":
            return opset.COMMON_CONSTANTS[arg]
        if opname == "LOAD_SPECIAL":
            return opset.SPECIAL_METHODS[arg]
        if opname == "COMPARE_OP":
            return opset.compare_symbol(arg)
        return opset.BINARY_OPERATORS[arg] if opname == "BINARY_OP" else arg


class InvalidBytecode(CompilerBug):
    """Bytecode that must not run; `offset` is the place in ``co_code``."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


_MAX_ENTRY_UNITS = 8
_ONE_LINE, _NO_COLUMNS, _LONG, _NOWHERE = 10, 13, 14, 15


class HandlerRegion(NamedTuple):
    """The bytes ``start .. end`` are covered by the handler at `target`."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


def read_exception_table(table: bytes) -> list[HandlerRegion]:
    """Parses ``co_exceptiontable``; raises InvalidBytecode if it ends within an entry.  CPython's
    ``Objects/exception_handling_notes.txt`` describes the format."""
    units, regions = iter(table), []
    for first in units:
        start = _read_varint(first, units)
        length, target, depth_lasti = (_read_varint(None, units) for _ in range(3))
        regions.append(
            HandlerRegion(2 * start, 2 * (start + length), 2 * target, depth_lasti >> 1, bool(depth_lasti & 1))
        )
    return regions


def _read_varint(first: int | None, units: Iterator[int]) -> int:
    """Reads six bits per byte, the highest first.  Bit 6 says that more bytes follow, bit 7 that an entry starts."""
    try:
        unit = next(units) if first is None else first
        value = unit & 63
        while unit & 64:
            unit = next(units)
            value = value << 6 | unit & 63
    except StopIteration:
        raise InvalidBytecode("the exception table ends in the middle of an entry", 0) from None
    return value


def write_exception_table(regions: Iterable[HandlerRegion]) -> bytes:
    """Returns ``co_exceptiontable``, the inverse of `read_exception_table`."""
    table = bytearray()
    for start, end, target, depth, lasti in regions:
        entry = [start // 2, (end - start) // 2, target // 2, depth << 1 | lasti]
        written = bytearray().join(map(_big_endian, entry))
        written[0] |= 128
        table += written
    return bytes(table)


def _big_endian(value: int) -> bytearray:
    written = bytearray([value & 63])
    while value := value >> 6:
        written.insert(0, 64 | value & 63)
    return written


def write_line_table(entries: Iterable[tuple[int, Positions | None]], first_line: int) -> bytes:
    """Returns ``co_linetable``.  `entries` has the number of code units and the positions of each instruction in
    order."""
    table, line = bytearray(), first_line
    for units, positions in _merge_entries(entries):
        while units > 0:
            length = min(units, _MAX_ENTRY_UNITS)
            table += _location_entry(length, positions, line)
            line = line if positions.lineno is None else positions.lineno
            units -= length
    return bytes(table)


def _merge_entries(entries: Iterable[tuple[int, Positions | None]]) -> Iterator[tuple[int, Positions]]:
    """Merges adjacent entries with the same positions, as CPython does since 3.12."""
    total, place = 0, Positions()
    for units, positions in entries:
        positions = positions or Positions()
        if total and (positions != place or opset.VERSION < (3, 12)):
            yield total, place
            total = 0
        total, place = total + units, positions
    if total:
        yield total, place


def _location_entry(units: int, positions: Positions, line: int) -> bytes:
    lineno, end_lineno, column, end_column = positions
    if lineno is None:
        return _entry_header(_NOWHERE, units)
    delta = lineno - line
    if end_lineno is None or column is None or end_column is None:
        return _entry_header(_NO_COLUMNS, units) + _signed(delta)
    if lineno == end_lineno:
        if delta == 0 and column < 80 and 0 <= end_column - column < 16:
            return _entry_header(column >> 3, units) + bytes([(column & 7) << 4 | end_column - column])
        if 0 <= delta < 3 and column < 128 and end_column < 128:
            return _entry_header(_ONE_LINE + delta, units) + bytes([column, end_column])
    written = [_signed(delta), _little_endian(end_lineno - lineno), _little_endian(column + 1)]
    return _entry_header(_LONG, units) + b"".join(written) + _little_endian(end_column + 1)


def _entry_header(form: int, units: int) -> bytes:
    return bytes([128 | form << 3 | units - 1])


def _little_endian(value: int) -> bytes:
    written = bytearray()
    while value >= 64:
        written.append(64 | value & 63)
        value >>= 6
    return bytes([*written, value])


def _signed(value: int) -> bytes:
    return _little_endian(-value << 1 | 1 if value < 0 else value << 1)
