"""Bytecode as text: the listing that readers see, and the lines around a fault."""

from __future__ import annotations

from collections.abc import Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

from compiler_core.bytecode import opset
from compiler_core.bytecode.flow import reachable
from compiler_core.bytecode.instructions import Instruction, disassembled, raw_units
from compiler_core.records import Span
from compiler_core.support.safe_repr import shown

_AROUND = 5
_MAX_CONSTANT = 60
_NAMED: Any = (type, FunctionType, BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)
_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(...), frozenset)


def bytecode_text(code: CodeType) -> tuple[str, list[Span]]:
    """One line an instruction: source line, index (``>``: jumped to, ``~``: never run), name, operand, handler.

    A span's key is the instruction's index in ``disassemble(code)``.
    """
    instructions, where = disassembled(code)
    alive = reachable(instructions)
    entered = {x.target for x in instructions} | {x.handler.target for x in instructions if x.handler}
    lines, last = [], None
    for i, x in enumerate(instructions):
        line = x.lineno
        number = "" if line is None or line == last else str(line)
        mark = "~" if x not in alive else ">" if x in entered else " "
        caught = f"  except to {where[x.handler.target]}" if x.handler else ""
        lines.append(f"{number:>5} {mark}{i:4}  {x.opname:<28}{operand(x, where)}{caught}".rstrip())
        last = line if line is not None else last
    return "\n".join(lines), [Span(str(i), i + 1, i + 1) for i in range(len(lines))]


def operand(instruction: Instruction, where: dict[Instruction, int]) -> str:
    """The operand as a reader wants it."""
    opname, arg, argval = instruction.opname, instruction.arg or 0, instruction.argval
    if instruction.target is not None:
        return f"to {where[instruction.target]}"
    if argval is None and instruction.arg is None:
        return ""
    if isinstance(argval, str) and opset.number(opname) not in opset.HAS_CONST:
        pushes_more = opset.flag_bits(opname) and arg & 1
        return argval + {"LOAD_GLOBAL": " + NULL"}.get(opname, " as method") * bool(pushes_more)
    if opname in opset.PAIRS and isinstance(argval, tuple):
        return ", ".join(argval)
    return constant_text(argval)


def constant_text(value: Any) -> str:
    """A constant in short, without addresses, so that a text stays the same from run to run."""
    if isinstance(value, tuple):
        return f"({', '.join(map(constant_text, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, CodeType):
        return f"<code {value.co_qualname}>"
    if type(value) not in _PLAIN:
        name = f" {value.__qualname__}" if type(value) in _NAMED else ""
        return f"<{type(value).__name__}{name}>"
    text = shown(value)
    return text if len(text) <= _MAX_CONSTANT else f"{text[: _MAX_CONSTANT - 4]}...{text[-1]}"


def excerpt(code: CodeType, offset: int) -> str:
    """Some ten lines of possibly damaged bytecode, the one at `offset` marked."""
    units = list(raw_units(code.co_code))
    at = max((i for i, unit in enumerate(units) if unit.start <= offset), default=0)
    first = max(0, at - _AROUND)
    lines: Sequence[str] = [
        f"{'-->' if i == at else '   '} {unit.start:5}  {unit.opname:<28}{unit.arg or ''}".rstrip()
        for i, unit in enumerate(units[first : at + _AROUND + 1], first)
    ]
    return "\n".join(lines)
