"""Works around two faults of Triton's PTX: instructions that compute with bits which nothing sets, and wrong lines.

Triton 3.6's LLVM computes small quotients of an index in 16 bits and in pairs; of three quotients, one is in a pair
with an undefined half.  Where it then takes the pair for a 32-bit offset, the kernel loads from wild addresses.

Triton 3.8's LLVM counts the lines of inline assembly, which most loads and stores are, as lines of the kernel: a
load in line 14 whose text has five lines is in line 18, and so is what follows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_PAIR = re.compile(r"mov\.b32\s+%r\d+,\s*\{")
_STATEMENT = re.compile(r"(?:@!?%p\d+\s+)?([a-z][\w.]*)\s+(\{[^}]*\}|[^,]+)(?:,(.*))?")
_REGISTER = re.compile(r"%r[sd]?\d+")
_OPERAND = re.compile(r"%?\w+")
_INLINE_ASSEMBLY = re.compile(r"^\s*// begin inline asm$.*?^\s*// end inline asm$", re.MULTILINE | re.DOTALL)
_LOCATION = re.compile(r"^\s*\.loc\b.*\n", re.MULTILINE)
_WIDTHS = {"%rs": 16, "%r": 32, "%rd": 64}


class _Instruction(NamedTuple):
    op: str
    text: str
    results: list[str]
    operands: list[str]


def reads_of_undefined_bits(ptx: str) -> list[str]:
    """Returns the instructions that read a register of which nothing sets some bits.

    Instructions that only move, select or combine bits may read it, and those on pairs of 16 bits.
    """
    if not _PAIR.search(ptx):  # most kernels have no such registers, and need not be parsed
        return []
    instructions = list(_instructions(ptx))
    known = {register for each in instructions for register in each.results}
    undefined: dict[str, int] = {}
    """The bits that nothing sets, for each register with such bits."""
    found = []
    for each in instructions:
        if each.op in ("mov.b32", "mov.b64") and len(each.operands) > 1:
            unset = {o: _ones(_width(o)) for o in each.operands if _REGISTER.fullmatch(o) and o not in known}
            undefined[each.results[0]] = _joined(each.operands, undefined | unset)
        elif any(undefined.get(operand) for operand in each.operands):
            bits = _undefined_in_results(each, undefined)
            if bits is None:
                found.append(each.text)
            else:
                undefined |= bits
    return found


def without_assembly_locations(ptx: str) -> str:
    """Returns the PTX without locations inside of inline assembly; the one before it holds for all of its text."""
    return _INLINE_ASSEMBLY.sub(lambda found: _LOCATION.sub("", found[0]), ptx)


def _instructions(ptx: str) -> Iterator[_Instruction]:
    for statement in re.split(r"[;\n]", re.sub(r"//.*", "", ptx)):
        if match := _STATEMENT.fullmatch(statement.strip("{} \t")):
            op, results, operands = match.groups(default="")
            text = " ".join(statement.split())
            yield _Instruction(op, text, _OPERAND.findall(results), _OPERAND.findall(operands))


def _undefined_in_results(each: _Instruction, undefined: dict[str, int]) -> dict[str, int] | None:
    """Returns the undefined bits of each result; None if the instruction computes with undefined bits."""
    masks = [undefined.get(operand, 0) for operand in each.operands]
    name = each.op.partition(".")[0]
    last = each.operands[-1]
    if len(each.results) > 1:
        return _parts(each.results, masks[0]) if name == "mov" else None
    bits = masks[0]
    if name in ("or", "xor", "selp") or (name == "and" and not last.isdecimal()):
        bits = masks[0] | masks[1]
    elif name == "and":
        bits &= int(last)
    elif name in ("shl", "shr") and last.isdecimal():
        bits = bits << int(last) if name == "shl" else bits >> int(last)
    elif name == "prmt" and (selector := re.fullmatch(r"(0x[0-9a-fA-F]+|\d+)U?", last)):
        bits = _permuted(masks[0] | masks[1] << 32, int(selector[1], 0))
    elif each.op.endswith("x2"):
        bits = _whole_halves(masks)
    elif not re.fullmatch(r"mov\.[bu]\d+|cvt\.u\d+\.u\d+", each.op):
        return None
    return {each.results[0]: bits & _ones(_width(each.results[0]))}


def _joined(parts: Sequence[str], undefined: dict[str, int]) -> int:
    bits = at = 0
    for part in parts:
        bits |= undefined.get(part, 0) << at
        at += _width(part)
    return bits


def _parts(registers: Sequence[str], bits: int) -> dict[str, int]:
    found = {}
    for register in registers:
        found[register] = bits & _ones(_width(register))
        bits >>= _width(register)
    return found


def _permuted(bits: int, selector: int) -> int:
    """Returns the bytes of two registers that ``prmt`` selects."""
    return sum((bits >> 8 * (selector >> 4 * n & 7) & 0xFF) << 8 * n for n in range(4))


def _whole_halves(masks: Sequence[int]) -> int:
    return sum(0xFFFF << at for at in (0, 16) if any(mask >> at & 0xFFFF for mask in masks))


def _width(register: str) -> int:
    """Returns a register's number of bits; 16 of one that inline assembler declares, as Triton's does for halves."""
    return _WIDTHS.get(register.rstrip("0123456789"), 16)


def _ones(count: int) -> int:
    return (1 << count) - 1
