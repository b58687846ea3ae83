"""Bytecode as text: a listing for people, and an excerpt around invalid code."""

from __future__ import annotations

from collections.abc import Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

from compiler_core.bytecode import opset
from compiler_core.bytecode.flow import reachable
from compiler_core.bytecode.instructions import Instruction, disassemble_cached, raw_units
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
