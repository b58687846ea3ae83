"""The check before code is installed: nothing that gets through can break the interpreter's stack, slots or tables."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import CodeType
from typing import NamedTuple

from compiler_core.bytecode import opset
from compiler_core.bytecode.fault import Fault
from compiler_core.bytecode.flow import falls_through, stack_edges
from compiler_core.bytecode.instructions import Instruction, disassembled, index, slots
from compiler_core.bytecode.listing import excerpt
from compiler_core.bytecode.make import handed_cell
from compiler_core.errors import CompilerBug

_BEFORE_RESUME = frozenset({"COPY_FREE_VARS", "MAKE_CELL", "RETURN_GENERATOR", "POP_TOP", "NOP", "RESUME"})
_GENERATOR_FLAGS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_CELL_READERS = opset.HAS_FREE - {opset.number("MAKE_CELL")}


def verify(code: CodeType) -> None:
    """CompilerBug, with the ten lines around the fault, unless `code` is safe to run.

    Checked are: operands against their tables, targets of jumps and handlers, the prologue, pairs of instructions that
    must stay together; and on every path that can be reached: the stack's depth (one at each place, enough for each
    instruction, within co_stacksize), the end (none is run past), cells made before they are used and, where
    the interpreter no longer looks (3.12 on), locals bound before they are loaded.
    """
    try:
        instructions, _ = disassembled(code)
        if not instructions:
            raise Fault("there is no instruction", 0)
        depths = _stack_depths(instructions, code)
        for i in depths:
            _check_neighbours(instructions, i, code)
        _check_prologue(instructions, depths, code)
        _check_slots(instructions, code)
    except Fault as fault:
        name = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
        raise CompilerBug(f"bad bytecode in {name}: {fault}\n{excerpt(code, fault.offset)}") from None


def _fault(instruction: Instruction, message: str) -> Fault:
    return Fault(f"{instruction.opname}: {message}", instruction.offset or 0)


def _stack_depths(instructions: Sequence[Instruction], code: CodeType) -> dict[int, int]:
    """Depth before each instruction that can be reached."""
    where = index(instructions)
    depths: dict[int, int] = {}
    work = [(0, 0)]
    while work:
        at, depth = work.pop()
        if at in depths:
            if depths[at] != depth:
                raise _fault(instructions[at], f"the stack is {depths[at]} deep on one path and {depth} on another")
            continue
        depths[at] = depth
        instruction = instructions[at]
        _check_depth(instruction, depth)
        for target, after in stack_edges(instruction, depth):
            if not 0 <= after <= code.co_stacksize:
                raise _fault(instruction, f"leaves the stack {after} deep, co_stacksize is {code.co_stacksize}")
            following = at + 1 if target is None else where[target]
            if following == len(instructions):
                raise _fault(instruction, "execution runs past the end")
            work.append((following, after))
    return depths


def _check_depth(instruction: Instruction, depth: int) -> None:
    needed = opset.least_depth(instruction.opname, instruction.arg)
    if depth < needed:
        raise _fault(instruction, f"needs {needed} on the stack, {depth} are there")
    if instruction.handler is not None and depth < instruction.handler.depth:
        raise _fault(instruction, f"its handler wants {instruction.handler.depth} on the stack, {depth} are there")
    if instruction.opname in ("COPY", "SWAP") and not instruction.arg:
        raise _fault(instruction, "counts from 1")


def _check_neighbours(instructions: Sequence[Instruction], at: int, code: CodeType) -> None:
    """What the interpreter takes for granted about the instruction that follows or is jumped to."""
    x = instructions[at]
    after = instructions[at + 1] if at + 1 < len(instructions) else None
    follower = after.opname if after else "the end"
    if x.opname == "PRECALL" and (follower != "CALL" or after is None or after.arg != x.arg):
        raise _fault(x, f"a CALL of as many arguments must follow, not {follower}")
    if x.opname == "KW_NAMES" and not _announces(x, instructions[at + 1 :]):
        raise _fault(x, "must hold names, at most as many as the call that follows has arguments")
    if x.opname == "FOR_ITER" and opset.VERSION >= (3, 12) and x.target and x.target.opname != "END_FOR":
        raise _fault(x, f"must jump to an END_FOR, not {x.target.opname}")
    if x.opname == "END_FOR" and opset.VERSION >= (3, 13) and follower != "POP_TOP":
        raise _fault(x, f"must be followed by POP_TOP, not {follower}")
    if x.opname == "SEND" and opset.VERSION >= (3, 12) and x.target and x.target.opname != "END_SEND":
        raise _fault(x, f"must jump to an END_SEND, not {x.target.opname}")
    if x.opname == "YIELD_VALUE" and opset.VERSION >= (3, 12) and follower != "RESUME":
        raise _fault(x, f"must be followed by RESUME, not {follower}")
    if x.opname == "COPY_FREE_VARS" and (at != 0 or x.arg != len(code.co_freevars)):
        raise _fault(x, f"must come first and copy {len(code.co_freevars)}")


def _announces(keywords: Instruction, after: Sequence[Instruction]) -> bool:
    """Whether KW_NAMES comes right before its call and has names for arguments that are there."""
    names = keywords.argval
    count = after[0].arg if after and after[0].opname in ("PRECALL", "CALL") else None
    return isinstance(names, tuple) and all(isinstance(name, str) for name in names) and len(names) <= (count or 0)


def _check_prologue(instructions: Sequence[Instruction], depths: dict[int, int], code: CodeType) -> None:
    first = next((i for i, x in enumerate(instructions) if x.opname not in _BEFORE_RESUME or x.opname == "RESUME"), 0)
    if instructions[first].opname != "RESUME":
        raise _fault(instructions[first], "comes before RESUME")
    if code.co_freevars and instructions[0].opname != "COPY_FREE_VARS":
        raise _fault(instructions[0], f"free variables {code.co_freevars} need COPY_FREE_VARS first")
    generates = [i for i in depths if instructions[i].opname == "RETURN_GENERATOR"]
    if code.co_flags & _GENERATOR_FLAGS and not (generates and generates[0] < first):
        raise _fault(instructions[first], "a generator needs RETURN_GENERATOR before it")
    wrong = ("RETURN_GENERATOR", "YIELD_VALUE") if not code.co_flags & _GENERATOR_FLAGS else ()
    if misplaced := [i for i in sorted(depths) if instructions[i].opname in wrong]:
        raise _fault(instructions[misplaced[0]], "the code is not marked as a generator")


class _Slots(NamedTuple):
    """Sets of slots, as bits: surely bound, surely a cell, put aside by an inlined comprehension while a cell."""

    bound: int
    cells: int
    aside: int

    def join(self, other: _Slots) -> _Slots:
        return _Slots(self.bound & other.bound, self.cells & other.cells, self.aside | other.aside)


def _check_slots(instructions: Sequence[Instruction], code: CodeType) -> None:
    """Follow what is surely in each slot along every path, then look at each use."""
    where = index(instructions)
    n_args = code.co_argcount + code.co_kwonlyargcount
    n_args += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    states: dict[int, _Slots] = {}
    work = [(0, _Slots((1 << n_args) - 1, 0, 0))]
    free = _free_bits(code)
    while work:
        at, state = work.pop()
        known = states.get(at)
        state = state if known is None else known.join(state)
        if state == known:
            continue
        states[at] = state
        x = instructions[at]
        after = _after(x, state, free, handed=at > 0 and _is_handed(instructions[at - 1], x))
        if x.handler is not None:
            work.append((where[x.handler.target], state))
        if x.target is not None:
            work.append((where[x.target], after))
        if falls_through(x):
            work.append((at + 1, after))
    for at in sorted(states):
        _check_use(instructions[at], states[at], code)


def _free_bits(code: CodeType) -> int:
    parts = slots(code.co_varnames, code.co_cellvars, code.co_freevars)
    return sum(1 << i for i, slot in enumerate(parts) if slot.kind == "free")


def _is_handed(before: Instruction, x: Instruction) -> bool:
    """Whether a resume function puts one of the cells that it was handed in its place."""
    return x.opname == "STORE_FAST" and before.argval == handed_cell(str(x.argval))


def _after(x: Instruction, state: _Slots, free: int, handed: bool) -> _Slots:
    bound, cells, aside = state
    if x.opname == "COPY_FREE_VARS":
        return _Slots(bound | free, cells | free, aside)
    for opname, bit in _slot_steps(x):
        if opname == "MAKE_CELL":
            bound, cells = bound | bit, cells | bit
        elif opname == "STORE_FAST":  # of a slot put aside: may be the cell that comes back
            bound, cells = bound | bit, (cells & ~bit) | (bit if handed else aside & bit)
        elif opname == "LOAD_FAST_AND_CLEAR":
            bound, cells, aside = bound & ~bit, cells & ~bit, aside | (cells & bit)
        elif opname == "DELETE_FAST":
            bound &= ~bit
        elif opname == "LOAD_FAST_CHECK":
            bound |= bit
    return _Slots(bound, cells, aside)


def _slot_steps(x: Instruction) -> list[tuple[str, int]]:
    """(opname, bit of the slot) of each half of an instruction on slots."""
    number = opset.number(x.opname)
    if x.arg is None or (number not in opset.HAS_LOCAL and number not in opset.HAS_FREE):
        return []
    if x.opname in opset.PAIRS:
        return list(zip(opset.PAIRS[x.opname], (1 << (x.arg >> 4), 1 << (x.arg & 15)), strict=True))
    return [(x.opname, 1 << x.arg)]


def _check_use(x: Instruction, state: _Slots, code: CodeType) -> None:
    stored = 0
    for opname, bit in _slot_steps(x):
        number = opset.number(opname)
        if (number in _CELL_READERS or opname == "LOAD_CLOSURE") and not state.cells & bit:
            raise _fault(x, f"{x.argval!r} may not be a cell here; MAKE_CELL or COPY_FREE_VARS must come first")
        unchecked = opname == "LOAD_FAST" and opset.VERSION >= (3, 12)
        if unchecked and not (state.bound | stored) & bit:
            raise _fault(x, f"{x.argval!r} may be unbound here; use LOAD_FAST_CHECK or pass it in")
        stored |= bit if opname == "STORE_FAST" else 0
        if opname == "MAKE_CELL" and x.argval not in (*code.co_cellvars, *code.co_freevars):
            raise _fault(x, f"{x.argval!r} is no cell variable")
