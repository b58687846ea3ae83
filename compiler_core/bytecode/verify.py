"""Verifies bytecode before it is installed: verified code cannot corrupt the interpreter's stack, slots or tables.

At the beginning is bytecode as text: a listing for people, and an excerpt around invalid code.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any, NamedTuple

from compiler_core.bytecode import opset
from compiler_core.bytecode.flow import falls_through, reachable, stack_edges
from compiler_core.bytecode.instructions import (
    Instruction,
    InvalidBytecode,
    argument_names,
    disassemble_cached,
    instruction_indices,
    raw_units,
    slots,
)
from compiler_core.bytecode.make import cell_parameter
from compiler_core.errors import CompilerBug
from compiler_core.records import Span
from compiler_core.support.texts import safe_repr

_CONTEXT_LINES = 5
_MAX_CONSTANT_LENGTH = 60
_NAMED_TYPES: Any = (type, FunctionType, BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)
_PLAIN_TYPES = (int, float, complex, str, bytes, bool, type(None), type(...), frozenset)


def bytecode_text(code: CodeType) -> tuple[str, list[Span]]:
    """Returns one line per instruction, and a span for each, whose key is its index in ``disassemble(code)``.

    A line has the source line, the index (marked ``>`` if it is a jump target, ``~`` if it never runs), the opname, the
    operand and the handler.
    """
    instructions, where = disassemble_cached(code)
    can_run = reachable(instructions)
    entered = {i.target for i in instructions} | {i.handler.target for i in instructions if i.handler}
    lines: list[str] = []
    last_line = None
    for i, instruction in enumerate(instructions):
        line = instruction.lineno
        number = "" if line is None or line == last_line else str(line)
        mark = _mark(instruction in can_run, instruction in entered)
        caught = f"  except to {where[instruction.handler.target]}" if instruction.handler else ""
        lines.append(
            f"{number:>5} {mark}{i:4}  {instruction.opname:<27} {operand(instruction, where)}{caught}".rstrip()
        )
        last_line = line if line is not None else last_line
    return "\n".join(lines), [Span(str(i), i + 1, i + 1) for i in range(len(lines))]


def _mark(can_run: bool, is_entered: bool) -> str:
    if not can_run:
        return "~"
    return ">" if is_entered else " "


def operand(instruction: Instruction, where: dict[Instruction, int]) -> str:
    """Returns the operand as text."""
    opname, arg, argval = instruction.opname, instruction.arg or 0, instruction.argval
    if instruction.target is not None:
        return f"to {where[instruction.target]}"
    if argval is None and instruction.arg is None:
        return ""
    if isinstance(argval, str) and opset.number(opname) not in opset.HAS_CONST:
        if not (opset.flag_bits(opname) and arg & 1):
            return argval
        return f"{argval} + NULL" if opname == "LOAD_GLOBAL" else f"{argval} as method"
    if opname in opset.PAIRS and isinstance(argval, tuple):
        return ", ".join(argval)
    return constant_text(argval)


def constant_text(value: Any) -> str:
    """Returns a short text of a constant without addresses, so that it is the same in each run."""
    if isinstance(value, tuple):
        return f"({', '.join(map(constant_text, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, CodeType):
        return f"<code {value.co_qualname}>"
    if type(value) not in _PLAIN_TYPES:
        name = f" {value.__qualname__}" if type(value) in _NAMED_TYPES else ""
        return f"<{type(value).__name__}{name}>"
    text = safe_repr(value)
    return text if len(text) <= _MAX_CONSTANT_LENGTH else f"{text[: _MAX_CONSTANT_LENGTH - 4]}...{text[-1]}"


def excerpt(code: CodeType, offset: int) -> str:
    """Returns some ten lines of possibly invalid bytecode, with the one at `offset` marked."""
    units = list(raw_units(code.co_code))
    at = max((i for i, unit in enumerate(units) if unit.start <= offset), default=0)
    first = max(0, at - _CONTEXT_LINES)
    lines: Sequence[str] = [
        f"{'-->' if i == at else '   '} {unit.start:5}  {unit.opname:<27} {unit.arg or ''}".rstrip()
        for i, unit in enumerate(units[first : at + _CONTEXT_LINES + 1], first)
    ]
    return "\n".join(lines)


_BEFORE_RESUME = frozenset({"COPY_FREE_VARS", "MAKE_CELL", "RETURN_GENERATOR", "POP_TOP", "NOP"})
_GENERATOR_FLAGS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_CELL_READERS = opset.HAS_FREE - {opset.number("MAKE_CELL")}


def verify(code: CodeType) -> None:
    """Raises `CompilerBug`, with ten lines around the place, unless `code` is safe to run.

    It checks operands against their tables, targets of jumps and handlers, the prologue, and pairs of instructions that
    must stay together.  On every reachable path it checks the stack depth (the same at each place on all paths, enough
    for each instruction, within ``co_stacksize``), that execution does not run past the end, that cells are made before
    they are used, and, where the interpreter no longer checks it (since 3.12), that locals are bound before they are
    loaded.
    """
    try:
        instructions, _ = disassemble_cached(code)
        if not instructions:
            raise InvalidBytecode("there is no instruction", 0)
        depths = _stack_depths(instructions, code)
        for i in depths:
            _check_adjacent(instructions, i, code)
        _check_prologue(instructions, depths, code)
        _check_slots(instructions, code)
    except InvalidBytecode as fault:
        name = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
        raise CompilerBug(f"bad bytecode in {name}: {fault}\n{excerpt(code, fault.offset)}") from None


def _invalid(instruction: Instruction, message: str) -> InvalidBytecode:
    return InvalidBytecode(f"{instruction.opname}: {message}", instruction.offset or 0)


def _stack_depths(instructions: Sequence[Instruction], code: CodeType) -> dict[int, int]:
    """Returns the stack depth before each reachable instruction."""
    where = instruction_indices(instructions)
    depths: dict[int, int] = {}
    work = [(0, 0)]
    while work:
        at, depth = work.pop()
        if at in depths:
            if depths[at] != depth:
                raise _invalid(instructions[at], f"the stack is {depths[at]} deep on one path and {depth} on another")
            continue
        depths[at] = depth
        instruction = instructions[at]
        _check_depth(instruction, depth)
        for target, after in stack_edges(instruction, depth):
            if not 0 <= after <= code.co_stacksize:
                raise _invalid(instruction, f"leaves the stack {after} deep, co_stacksize is {code.co_stacksize}")
            following = at + 1 if target is None else where[target]
            if following == len(instructions):
                raise _invalid(instruction, "execution runs past the end")
            work.append((following, after))
    return depths


def _check_depth(instruction: Instruction, depth: int) -> None:
    needed = opset.least_depth(instruction.opname, instruction.arg)
    if depth < needed:
        raise _invalid(instruction, f"needs {needed} on the stack, {depth} are there")
    if instruction.handler is not None and depth < instruction.handler.depth:
        raise _invalid(instruction, f"its handler wants {instruction.handler.depth} on the stack, {depth} are there")
    if instruction.opname in ("COPY", "SWAP") and not instruction.arg:
        raise _invalid(instruction, "counts from 1")


def _check_adjacent(instructions: Sequence[Instruction], at: int, code: CodeType) -> None:
    """Checks what the interpreter assumes about the instruction that follows or is jumped to."""
    instruction = instructions[at]
    name, target = instruction.opname, instruction.target
    after = instructions[at + 1] if at + 1 < len(instructions) else None
    follower = after.opname if after else "the end"
    if name == "PRECALL" and (follower != "CALL" or after is None or after.arg != instruction.arg):
        raise _invalid(instruction, f"a CALL of as many arguments must follow, not {follower}")
    if name == "KW_NAMES" and not _is_valid_kw_names(instruction, instructions[at + 1 :]):
        raise _invalid(instruction, "must hold names, at most as many as the call that follows has arguments")
    if name == "COPY_FREE_VARS" and (at != 0 or instruction.arg != len(code.co_freevars)):
        raise _invalid(instruction, f"must come first and copy {len(code.co_freevars)}")
    pops_iterator = "POP_TOP" if opset.VERSION < (3, 14) else "POP_ITER"
    if name == "END_FOR" and opset.VERSION >= (3, 13) and follower != pops_iterator:
        raise _invalid(instruction, f"must be followed by {pops_iterator}, not {follower}")
    if opset.VERSION >= (3, 12):
        if name == "FOR_ITER" and target and target.opname != "END_FOR":
            raise _invalid(instruction, f"must jump to an END_FOR, not {target.opname}")
        if name == "SEND" and target and target.opname != "END_SEND":
            raise _invalid(instruction, f"must jump to an END_SEND, not {target.opname}")
        if name == "YIELD_VALUE" and follower != "RESUME":
            raise _invalid(instruction, f"must be followed by RESUME, not {follower}")


def _is_valid_kw_names(keywords: Instruction, after: Sequence[Instruction]) -> bool:
    """Returns whether KW_NAMES comes directly before its call and has no more names than the call has arguments."""
    names = keywords.argval
    count = after[0].arg if after and after[0].opname in ("PRECALL", "CALL") else None
    return isinstance(names, tuple) and all(isinstance(name, str) for name in names) and len(names) <= (count or 0)


def _check_prologue(instructions: Sequence[Instruction], depths: dict[int, int], code: CodeType) -> None:
    first = next((i for i, instruction in enumerate(instructions) if instruction.opname not in _BEFORE_RESUME), 0)
    if instructions[first].opname != "RESUME":
        raise _invalid(instructions[first], "comes before RESUME")
    if code.co_freevars and instructions[0].opname != "COPY_FREE_VARS":
        raise _invalid(instructions[0], f"free variables {code.co_freevars} need COPY_FREE_VARS first")
    generates = [i for i in depths if instructions[i].opname == "RETURN_GENERATOR"]
    if code.co_flags & _GENERATOR_FLAGS and not (generates and generates[0] < first):
        raise _invalid(instructions[first], "a generator needs RETURN_GENERATOR before it")
    wrong = ("RETURN_GENERATOR", "YIELD_VALUE") if not code.co_flags & _GENERATOR_FLAGS else ()
    if misplaced := [i for i in sorted(depths) if instructions[i].opname in wrong]:
        raise _invalid(instructions[misplaced[0]], "the code is not marked as a generator")


class _Slots(NamedTuple):
    """Bit sets of slots: surely bound, surely a cell, and cells that an inlined comprehension has saved on the
    stack."""

    bound: int
    cells: int
    saved_cells: int

    def join(self, other: _Slots) -> _Slots:
        return _Slots(self.bound & other.bound, self.cells & other.cells, self.saved_cells | other.saved_cells)


def _check_slots(instructions: Sequence[Instruction], code: CodeType) -> None:
    """Propagates the states of the slots along every path, then checks each use."""
    where = instruction_indices(instructions)
    states: dict[int, _Slots] = {}
    work = [(0, _Slots((1 << len(argument_names(code))) - 1, 0, 0))]
    free = _free_bits(code)
    while work:
        at, state = work.pop()
        known = states.get(at)
        state = state if known is None else known.join(state)
        if state == known:
            continue
        states[at] = state
        instruction = instructions[at]
        stores_cell = at > 0 and _stores_cell_parameter(instructions[at - 1], instruction)
        after = _slots_after(instruction, state, free, stores_cell)
        if instruction.handler is not None:
            work.append((where[instruction.handler.target], state))
        if instruction.target is not None:
            work.append((where[instruction.target], after))
        if falls_through(instruction):
            work.append((at + 1, after))
    for at in sorted(states):
        _check_slot_use(instructions[at], states[at], code)


def _free_bits(code: CodeType) -> int:
    parts = slots(code.co_varnames, code.co_cellvars, code.co_freevars)
    return sum(1 << i for i, slot in enumerate(parts) if slot.kind == "free")


def _stores_cell_parameter(before: Instruction, instruction: Instruction) -> bool:
    """Returns whether a resume function stores a cell that it took as a parameter."""
    return instruction.opname == "STORE_FAST" and before.argval == cell_parameter(str(instruction.argval))


def _slots_after(instruction: Instruction, state: _Slots, free: int, stores_cell: bool) -> _Slots:
    bound, cells, saved = state
    if instruction.opname == "COPY_FREE_VARS":
        return _Slots(bound | free, cells | free, saved)
    for opname, bit in _slot_operations(instruction):
        if opname == "MAKE_CELL":
            bound, cells = bound | bit, cells | bit
        elif opname == "STORE_FAST":  # of a saved cell: may restore it
            bound, cells = bound | bit, (cells & ~bit) | (bit if stores_cell else saved & bit)
        elif opname == "LOAD_FAST_AND_CLEAR":
            bound, cells, saved = bound & ~bit, cells & ~bit, saved | (cells & bit)
        elif opname == "DELETE_FAST":
            bound &= ~bit
        elif opname == "LOAD_FAST_CHECK":
            bound |= bit
    return _Slots(bound, cells, saved)


def _slot_operations(instruction: Instruction) -> list[tuple[str, int]]:
    """Returns the opname and the slot's bit for each half of an instruction on slots."""
    number = opset.number(instruction.opname)
    if instruction.arg is None or (number not in opset.HAS_LOCAL and number not in opset.HAS_FREE):
        return []
    if instruction.opname in opset.PAIRS:
        bits = 1 << (instruction.arg >> 4), 1 << (instruction.arg & 15)
        return list(zip(opset.PAIRS[instruction.opname], bits, strict=True))
    return [(instruction.opname, 1 << instruction.arg)]


def _check_slot_use(instruction: Instruction, state: _Slots, code: CodeType) -> None:
    stored = 0
    for opname, bit in _slot_operations(instruction):
        number, name = opset.number(opname), instruction.argval
        if (number in _CELL_READERS or opname == "LOAD_CLOSURE") and not state.cells & bit:
            raise _invalid(instruction, f"{name!r} may not be a cell here; MAKE_CELL or COPY_FREE_VARS must come first")
        is_unchecked = opname == "LOAD_FAST" and opset.VERSION >= (3, 12)
        if is_unchecked and not (state.bound | stored) & bit:
            raise _invalid(instruction, f"{name!r} may be unbound here; use LOAD_FAST_CHECK or pass it in")
        if opname == "STORE_FAST":
            stored |= bit
        if opname == "MAKE_CELL" and instruction.argval not in (*code.co_cellvars, *code.co_freevars):
            raise _invalid(instruction, f"{instruction.argval!r} is not a cell variable")
