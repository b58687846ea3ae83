"""Assembles instructions into a code object."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, cast

from compiler_core.bytecode import opset
from compiler_core.bytecode.flow import stack_size
from compiler_core.bytecode.instructions import (
    HandlerRegion,
    Instruction,
    instruction_indices,
    slots,
    write_exception_table,
    write_line_table,
)
from compiler_core.errors import CompilerBug


def assemble(instructions: Sequence[Instruction], code: CodeType, **replace: Any) -> CodeType:
    """Returns a code object that runs `instructions`.

    Args:
        instructions: operands are taken from ``argval`` and ``target``.  A jump may be given as forward or backward;
            its actual direction is determined here.  The instructions are not changed.
        code: the template for all other fields.
        replace: fields that differ from the template, as for `types.CodeType.replace`.

    Names and constants that the tables lack are appended to them, and unknown locals to ``co_varnames``.

    Raises:
        CompilerBug: an instruction is invalid, or its cell or free variable is unknown.
    """
    where = instruction_indices(instructions)
    for i, instruction in enumerate(instructions):
        _check_references(instruction, i, where)
    tables = _Tables(code, replace, instructions)
    units = [tables.encode(_with_jump_direction(instruction, i, where)) for i, instruction in enumerate(instructions)]
    starts = _resolve_jumps(instructions, units, where)
    sizes = [end - start for start, end in itertools.pairwise(starts)]
    places = ((n, instruction.positions) for n, instruction in zip(sizes, instructions, strict=True))
    first_line = replace.get("co_firstlineno", code.co_firstlineno)
    fields: dict[str, Any] = {
        "co_code": b"".join(unit.emit() for of_one in units for unit in of_one),
        "co_stacksize": stack_size(instructions),
        "co_linetable": write_line_table(places, first_line),
        "co_exceptiontable": write_exception_table(_exception_regions(instructions, starts, where)),
    }
    return code.replace(**(fields | replace | tables.code_fields()))


@dataclass(slots=True)
class _Unit:
    """A machine instruction: its EXTENDED_ARG prefixes, itself and its cache entries."""

    opname: str
    arg: int
    prefixes: int = 0

    @property
    def size(self) -> int:
        return self.prefixes + 1 + opset.cache_units(self.opname)

    def widen(self) -> bool:
        """Adds the prefixes that the operand needs; returns whether any were missing."""
        needed = max(0, (self.arg.bit_length() - 1) // 8)
        grown, self.prefixes = needed > self.prefixes, max(needed, self.prefixes)
        return grown

    def emit(self) -> bytes:
        prefixes = (bytes((opset.EXTENDED_ARG, self.arg >> 8 * k & 255)) for k in range(self.prefixes, 0, -1))
        own = bytes((opset.number(self.opname), self.arg & 255))
        return b"".join(prefixes) + own + bytes(2 * opset.cache_units(self.opname))


def _check_references(instruction: Instruction, at: int, where: dict[Instruction, int]) -> None:
    """Raises `CompilerBug` unless the opcode, the jump target and the handler of the instruction exist."""
    opname, target, handler = instruction.opname, instruction.target, instruction.handler
    if not opset.is_supported(opname):
        raise CompilerBug(f"instruction {at}: this Python has no {opname}")
    if (opset.number(opname) in opset.HAS_JUMP) != (target is not None):
        raise CompilerBug(f"instruction {at}, {opname}: a jump needs a target, and nothing else has one")
    if target is not None and target not in where:
        raise CompilerBug(f"instruction {at}, {opname}, jumps to {target}, which is not in the list")
    if handler is not None and handler.target not in where:
        raise CompilerBug(f"instruction {at}, {opname}, has its handler at {handler.target}, which is not in the list")


def _with_jump_direction(instruction: Instruction, at: int, where: dict[Instruction, int]) -> tuple[str, Instruction]:
    """Returns the opname for the direction in which the target lies."""
    opname, target = instruction.opname, instruction.target
    if opset.number(opname) not in opset.HAS_JUMP:
        return opname, instruction
    assert target is not None
    back = where[target] <= at
    if opname == "JUMP_FORWARD" and back:
        return "JUMP_BACKWARD", instruction
    if opname.startswith("JUMP_BACKWARD") and not back:
        return "JUMP_FORWARD", instruction
    wanted = ("FORWARD", "BACKWARD") if back else ("BACKWARD", "FORWARD")
    if opname.startswith("POP_JUMP"):
        opname = opname.replace(*wanted)
    if back and "BACKWARD" not in opname:
        raise CompilerBug(f"instruction {at}, {opname}, only jumps forward; its target is instruction {where[target]}")
    return opname, instruction


def _resolve_jumps(
    instructions: Sequence[Instruction], units: Sequence[Sequence[_Unit]], where: dict[Instruction, int]
) -> list[int]:
    """Sets the operand of every jump and the size of every unit; returns the start of each instruction and the end, in
    units."""
    growing = True
    while growing:
        starts = [0]
        for of_one in units:
            starts.append(starts[-1] + sum(unit.size for unit in of_one))
        for i, instruction in enumerate(instructions):
            if instruction.target is not None:
                units[i][0].arg = abs(starts[where[instruction.target]] - starts[i + 1])
        growing = sum(unit.widen() for of_one in units for unit in of_one) > 0  # each of them, not just the first
    return starts


def _exception_regions(
    instructions: Sequence[Instruction], starts: Sequence[int], where: dict[Instruction, int]
) -> Iterator[HandlerRegion]:
    first, total = 0, len(instructions)
    for i in range(1, total + 1):
        handler = instructions[first].handler
        if i < total and instructions[i].handler == handler:
            continue
        if handler is not None:
            target = 2 * starts[where[handler.target]]
            yield HandlerRegion(2 * starts[first], 2 * starts[i], target, handler.depth, handler.lasti)
        first = i


class _Tables:
    """The names, constants and fast locals of the code object that is being assembled."""

    def __init__(self, code: CodeType, replace: dict[str, Any], instructions: Sequence[Instruction]) -> None:
        self._names: list[str] = list(replace.get("co_names", code.co_names))
        self._consts = list(replace.get("co_consts", code.co_consts))
        self._varnames = list(replace.get("co_varnames", code.co_varnames))
        cellvars = replace.get("co_cellvars", code.co_cellvars)
        freevars = replace.get("co_freevars", code.co_freevars)
        known = {*self._varnames, *cellvars, *freevars}
        used = dict.fromkeys(name for instruction in instructions for name in _local_names(instruction))
        self._varnames += [name for name in used if name not in known]
        self._slots = slots(self._varnames, cellvars, freevars)
        self._template = slots(code.co_varnames, code.co_cellvars, code.co_freevars)
        self._name_index: dict[str, int] = {name: i for i, name in reversed(list(enumerate(self._names)))}
        self._const_index: dict[int, int] = {id(value): i for i, value in reversed(list(enumerate(self._consts)))}
        """Keyed by ``id``, so that equal constants which are different objects stay different."""
        self._slots_of: dict[object, list[int]] = {}
        for i, slot in enumerate(self._slots):
            self._slots_of.setdefault(slot.name, []).append(i)

    def code_fields(self) -> dict[str, Any]:
        return {
            "co_names": tuple(self._names),
            "co_consts": tuple(self._consts),
            "co_varnames": tuple(self._varnames),
            "co_nlocals": len(self._varnames),
        }

    def encode(self, directed: tuple[str, Instruction]) -> list[_Unit]:
        opname, instruction = directed
        if opname in opset.PAIRS:
            return self._pair(instruction)
        if opname == "LOAD_CONST" and opset.is_small_int(instruction.argval) and instruction.arg is None:
            return [_Unit("LOAD_SMALL_INT", cast(int, instruction.argval))]
        number, arg = opset.number(opname), opset.SUBSCRIPT if opset.is_subscript(opname) else instruction.arg or 0
        if number in opset.HAS_CONST:
            arg = self._const(instruction)
        elif number in opset.HAS_NAME:
            bits = opset.flag_bits(opname)
            arg = self._name(instruction, arg >> bits) << bits | arg & (1 << bits) - 1
        elif number in opset.HAS_LOCAL:
            kinds = ("cell", "free", "local") if opname == "LOAD_CLOSURE" else ("local", "cell", "free")
            arg = self._slot(instruction.argval, instruction.arg, kinds)
        elif number in opset.HAS_FREE:
            arg = self._slot(instruction.argval, instruction.arg, ("cell", "local", "free"))
        elif number in opset.HAS_JUMP:
            arg = 0
        unit = _Unit(opname, arg)
        unit.widen()
        return [unit]

    def _pair(self, instruction: Instruction) -> list[_Unit]:
        """Returns one unit, or two if a slot does not fit into four bits."""
        first, second = instruction.argval if isinstance(instruction.argval, tuple) else (None, None)
        kinds = ("local", "cell", "free")
        low, high = self._slot(second, None, kinds), self._slot(first, None, kinds)
        if max(low, high) < 16:
            return [_Unit(instruction.opname, high << 4 | low)]
        one, two = opset.PAIRS[instruction.opname]
        units = [_Unit(one, high), _Unit(two, low)]
        for unit in units:
            unit.widen()
        return units

    def _slot(self, name: object, arg: int | None, kinds: Sequence[str]) -> int:
        """Returns the slot of `name`.  If a name is both a local and a free variable (inlined comprehensions), the
        template's slot `arg` decides."""
        found = self._slots_of.get(name)
        if found is None:
            raise CompilerBug(f"{name!r} is not a local, cell or free variable of the code being assembled")
        if arg is not None and arg < len(self._template) and self._template[arg].name == name:
            kinds = (self._template[arg].kind, *kinds)
        return min(found, key=lambda i: kinds.index(self._slots[i].kind))

    def _name(self, instruction: Instruction, hint: int) -> int:
        name = instruction.argval
        if not isinstance(name, str):
            raise CompilerBug(f"{instruction.opname} needs a name as its argval, not {name!r}")
        if hint < len(self._names) and self._names[hint] == name:
            return hint
        if name not in self._name_index:
            self._name_index[name] = len(self._names)
            self._names.append(name)
        return self._name_index[name]

    def _const(self, instruction: Instruction) -> int:
        value, hint = instruction.argval, instruction.arg
        if hint is not None and hint < len(self._consts) and self._consts[hint] is value:
            return hint
        found = self._const_index.setdefault(id(value), len(self._consts))
        if found == len(self._consts):
            self._consts.append(value)
        return found


def _local_names(instruction: Instruction) -> tuple[str, ...]:
    if instruction.opname in opset.PAIRS and isinstance(instruction.argval, tuple):
        return instruction.argval
    is_local = opset.number(instruction.opname) in opset.HAS_LOCAL and instruction.opname != "LOAD_CLOSURE"
    return (instruction.argval,) if is_local and isinstance(instruction.argval, str) else ()
