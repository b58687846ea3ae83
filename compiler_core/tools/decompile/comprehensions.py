"""Variables of comprehensions, which are part of the function around them since CPython 3.12."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from types import CodeType

from compiler_core.bytecode import Instruction, opset
from compiler_core.tools.decompile.handlers import restored_names


def with_own_names(
    instructions: Sequence[Instruction], where: Mapping[Instruction, int], taken: Iterable[str]
) -> list[Instruction]:
    """Returns the instructions, those of comprehensions with separate names for the variables that are set back
    after the comprehension."""
    names = set(taken)
    renamed: dict[tuple[int, str], str] = {}
    found = []
    for instruction in instructions:
        shown, handler, seen = instruction, instruction.handler, set[int]()
        done: set[str] = set()
        while handler is not None and (first := where[handler.target]) not in seen:
            seen.add(first)
            for name in set(restored_names(instructions, first)) - done:
                done.add(name)
                if (first, name) not in renamed:
                    renamed[first, name] = _new_name(name, names)
                shown = _renamed(shown, name, renamed[first, name])
            handler = instructions[first].handler
        found.append(shown)
    return found


def _new_name(name: str, names: set[str]) -> str:
    number = 1
    while (found := f"{name}_{number}") in names:
        number += 1
    names.add(found)
    return found


def _renamed(instruction: Instruction, name: str, own: str) -> Instruction:
    is_local = instruction.opname in opset.PAIRS or "_FAST" in instruction.opname
    values = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
    if not is_local or name not in values:
        return instruction
    changed = copy.copy(instruction)
    own_values = tuple(own if each == name else each for each in values)
    changed.argval = own_values if isinstance(instruction.argval, tuple) else own_values[0]
    return changed


def all_names(code: CodeType) -> set[str]:
    """Returns the names that a function and those nested in it use."""
    found = {*code.co_names, *code.co_varnames, *code.co_cellvars, *code.co_freevars}
    return found.union(*(all_names(each) for each in code.co_consts if isinstance(each, CodeType)))
