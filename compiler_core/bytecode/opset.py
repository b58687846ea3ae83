"""The running CPython's instruction set, as far as `dis` leaves something to say about it."""

from __future__ import annotations

import dis
import opcode
import sys
from typing import Any

VERSION = sys.version_info[:2]

EXTENDED_ARG = dis.EXTENDED_ARG

HAS_CONST = frozenset(dis.hasconst)
HAS_NAME = frozenset(dis.hasname)
HAS_LOCAL = frozenset(dis.haslocal)
HAS_FREE = frozenset(dis.hasfree)
HAS_JUMP = frozenset(dis.hasjrel)

PAIRS = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}
"""3.13's two-in-one instructions, and what each half does; the operand holds two 4-bit slots."""

TERMINATORS = frozenset(
    {
        "RETURN_VALUE",
        "RETURN_CONST",
        "RAISE_VARARGS",
        "RERAISE",
        "INTERPRETER_EXIT",
        "JUMP_FORWARD",
        "JUMP_BACKWARD",
        "JUMP_BACKWARD_NO_INTERRUPT",
    }
)
"""Execution never goes on to the instruction after one of these."""

_FLAG_BITS = {"LOAD_GLOBAL": 1} if VERSION < (3, 12) else {"LOAD_GLOBAL": 1, "LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2}
_ENTRIES: Any = opcode._inline_cache_entries  # type: ignore[attr-defined]
_OPERATORS: list[tuple[str, str]] = opcode._nb_ops  # type: ignore[attr-defined]

BINARY_OPERATORS = tuple(symbol for _, symbol in _OPERATORS)
"""Operand of BINARY_OP to ``+``, ``-=`` ..."""


def number(opname: str) -> int:
    """The opcode to emit for `opname`.  LOAD_CLOSURE is a LOAD_FAST since 3.13."""
    if opname == "LOAD_CLOSURE" and VERSION >= (3, 13):
        return opcode.opmap["LOAD_FAST"]
    return opcode.opmap[opname]


def exists(opname: str) -> bool:
    """Whether this version can execute `opname` (the compiler's own pseudo instructions are above 255)."""
    return opname in opcode.opmap and number(opname) <= 255


def takes_operand(opname: str) -> bool:
    numbers: Any = getattr(dis, "hasarg", None)  # since 3.12; pseudo instructions made HAVE_ARGUMENT too coarse
    return number(opname) in numbers if numbers is not None else number(opname) >= dis.HAVE_ARGUMENT


def caches(opname: str) -> int:
    """How many inline cache units follow `opname`."""
    if isinstance(_ENTRIES, dict):
        return int(_ENTRIES.get(opcode.opname[number(opname)], 0))
    return int(_ENTRIES[number(opname)])


def flag_bits(opname: str) -> int:
    """How many low bits of the operand are flags; the table index is above them."""
    return _FLAG_BITS.get(opname, 0)


def compare_symbol(operand: int) -> str:
    """The operator of COMPARE_OP; newer versions keep a type mask below it."""
    shift = 5 if VERSION >= (3, 13) else 4 if VERSION >= (3, 12) else 0
    return dis.cmp_op[operand >> shift]


def stack_effect(opname: str, operand: int | None, jump: bool) -> int:
    """Net change of the stack's depth when the instruction jumps, or goes on."""
    if opname == "RETURN_GENERATOR":
        return 1  # the value first sent in; `dis` counts it since 3.13 only
    return dis.stack_effect(number(opname), (operand or 0) if takes_operand(opname) else None, jump=jump)
