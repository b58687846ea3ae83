"""Finds instructions of PTX that compute with bits which nothing sets.

Triton 3.6's LLVM computes small quotients of an index in 16 bits and in pairs; of three quotients, one is in a pair
with an undefined half.  Where it then takes the pair for a 32-bit offset, the kernel loads from wild addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_PAIR = re.compile(r"mov\.b32\s+%r\d+,\s*\{")
_STATEMENT = re.compile(r"(?:@!?%p\d+\s+)?[a-z][\w.]*\s+(\{[^}]*\}|[^,]+)(?:,(.*))?")
_REGISTER = re.compile(r"%r[sd]?\d+\b")
_HALVES_APART = re.compile(r"mov\.b32 \{|\S+x2 |prmt\.|cvt\.u16\.u32 |shr\.u32 %r\d+, %r\d+, 16$")
"""Instructions that keep the halves of a 32-bit register apart, or read the one that is set."""


class _Instruction(NamedTuple):
    text: str
    results: list[str]
    operands: list[str]


def reads_of_undefined_bits(ptx: str) -> list[str]:
    """Returns the instructions that read all of a 32-bit register of which nothing sets one half."""
    if not _PAIR.search(ptx):  # most kernels have no such registers, and need not be parsed
        return []
    instructions = list(_instructions(ptx))
    known = {register for each in instructions for register in each.results}
    half_set = {
        each.results[0]
        for each in instructions
        if each.text.startswith("mov.b32 %r") and any(o.startswith("%rs") and o not in known for o in each.operands)
    }
    return [i.text for i in instructions if half_set.intersection(i.operands) and not _HALVES_APART.match(i.text)]


def _instructions(ptx: str) -> Iterator[_Instruction]:
    for statement in re.split(r"[;\n]", re.sub(r"//.*", "", ptx)):
        if match := _STATEMENT.fullmatch(statement.strip("{} \t")):
            results, operands = match.groups(default="")
            text = " ".join(statement.split())
            yield _Instruction(text, _REGISTER.findall(results), _REGISTER.findall(operands))
