"""The running CPython's instruction set, as far as `dis` leaves something to say about it."""

from __future__ import annotations

import dis
import opcode
import sys
from collections.abc import Callable, Sequence
from functools import cache
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
        "JUMP_FORWARD",
        "JUMP_BACKWARD",
        "JUMP_BACKWARD_NO_INTERRUPT",
    }
)
"""Execution never goes on to the instruction after one of these."""

_NEVER_WRITTEN = frozenset({"CACHE", "RESERVED", "INTERPRETER_EXIT", "ENTER_EXECUTOR", "EXIT_INIT_CHECK"}) | {
    name for name in opcode.opmap if name.startswith("INSTRUMENTED_")
}
"""The interpreter's own; no code object that a compiler makes has them."""

_FLAG_BITS = {"LOAD_GLOBAL": 1} if VERSION < (3, 12) else {"LOAD_GLOBAL": 1, "LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2}
_ENTRIES: Any = opcode._inline_cache_entries  # type: ignore[attr-defined]
_OPERATORS: list[tuple[str, str]] = opcode._nb_ops  # type: ignore[attr-defined]

INTRINSICS: dict[str, Sequence[str]] = {
    "CALL_INTRINSIC_1": getattr(opcode, "_intrinsic_1_descs", ()),
    "CALL_INTRINSIC_2": getattr(opcode, "_intrinsic_2_descs", ()),
}
"""What the operand of these stands for (3.12 on)."""

BINARY_OPERATORS = tuple(symbol for _, symbol in _OPERATORS)
"""Operand of BINARY_OP to ``+``, ``-=`` ..."""


@cache
def number(opname: str) -> int:
    """The opcode to emit for `opname`.  LOAD_CLOSURE is a LOAD_FAST since 3.13."""
    if opname == "LOAD_CLOSURE" and VERSION >= (3, 13):
        return opcode.opmap["LOAD_FAST"]
    return opcode.opmap[opname]


@cache
def exists(opname: str) -> bool:
    """Whether this version can execute `opname` (pseudo instructions are numbered above 255)."""
    return opname in opcode.opmap and number(opname) <= 255 and opname not in _NEVER_WRITTEN


@cache
def takes_operand(opname: str) -> bool:
    numbers: Any = getattr(dis, "hasarg", None)  # since 3.12; pseudo instructions made HAVE_ARGUMENT too coarse
    return number(opname) in numbers if numbers is not None else number(opname) >= dis.HAVE_ARGUMENT


@cache
def caches(opname: str) -> int:
    """How many inline cache units follow `opname`."""
    if isinstance(_ENTRIES, dict):
        return int(_ENTRIES.get(opname, 0))
    return int(_ENTRIES[number(opname)])


def flag_bits(opname: str) -> int:
    """How many low bits of the operand are flags; the table index is above them."""
    return _FLAG_BITS.get(opname, 0)


def compare_symbol(operand: int) -> str:
    """The operator of COMPARE_OP; newer versions keep a type mask below it."""
    shift = 5 if VERSION >= (3, 13) else 4 if VERSION >= (3, 12) else 0
    return dis.cmp_op[operand >> shift]


_LEAST_DEPTHS = {
    1: "GET_AITER GET_ANEXT GET_AWAITABLE GET_ITER GET_LEN GET_YIELD_FROM_ITER BEFORE_WITH "
    "BEFORE_ASYNC_WITH CONVERT_VALUE FORMAT_SIMPLE FOR_ITER IMPORT_FROM LIST_TO_TUPLE LOAD_ATTR LOAD_METHOD "
    "LOAD_FROM_DICT_OR_DEREF LOAD_FROM_DICT_OR_GLOBALS MATCH_MAPPING MATCH_SEQUENCE PUSH_EXC_INFO RETURN_VALUE "
    "STORE_FAST_LOAD_FAST TO_BOOL UNARY_INVERT UNARY_NEGATIVE UNARY_NOT UNARY_POSITIVE UNPACK_EX UNPACK_SEQUENCE "
    "YIELD_VALUE ASYNC_GEN_WRAP CALL_INTRINSIC_1 JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP",
    2: "BINARY_OP BINARY_SUBSCR CALL_INTRINSIC_2 CHECK_EG_MATCH CHECK_EXC_MATCH COMPARE_OP CONTAINS_OP END_SEND "
    "FORMAT_WITH_SPEC IMPORT_NAME IS_OP MATCH_KEYS PREP_RERAISE_STAR SEND SET_FUNCTION_ATTRIBUTE",
    3: "BINARY_SLICE CLEANUP_THROW LOAD_SUPER_ATTR MATCH_CLASS",
    4: "WITH_EXCEPT_START",
}
_DEPTHS = {name: depth for depth, names in _LEAST_DEPTHS.items() for name in names.split()}
_COUNTED_DEPTHS: dict[str, Callable[[int], int]] = {
    "BUILD_TUPLE": lambda n: n,
    "BUILD_LIST": lambda n: n,
    "BUILD_SET": lambda n: n,
    "BUILD_STRING": lambda n: n,
    "BUILD_SLICE": lambda n: n,
    "BUILD_MAP": lambda n: 2 * n,
    "BUILD_CONST_KEY_MAP": lambda n: n + 1,
    "COPY": lambda n: n,
    "SWAP": lambda n: n,
    "LIST_APPEND": lambda n: n + 1,
    "LIST_EXTEND": lambda n: n + 1,
    "SET_ADD": lambda n: n + 1,
    "SET_UPDATE": lambda n: n + 1,
    "DICT_UPDATE": lambda n: n + 1,
    "DICT_MERGE": lambda n: n + (3 if VERSION < (3, 13) else 4),  # an error names the callable below
    "MAP_ADD": lambda n: n + 2,
    "CALL": lambda n: n + 2 if VERSION >= (3, 12) else 2,  # 3.11 counts the arguments as gone at PRECALL
    "CALL_KW": lambda n: n + 3,
    "CALL_FUNCTION_EX": lambda flags: 3 + (flags & 1),
    "FORMAT_VALUE": lambda flags: 1 + bool(flags & 4),
    "MAKE_FUNCTION": lambda flags: 1 + (flags & 15).bit_count(),
    "PRECALL": lambda n: n + 2,
    "RERAISE": lambda lasti: 1 + bool(lasti),
}


def least_depth(opname: str, operand: int | None) -> int:
    """How deep the stack must be for the instruction to run, its results not counted."""
    if opname in _COUNTED_DEPTHS:
        return _COUNTED_DEPTHS[opname](operand or 0)
    return max(_DEPTHS.get(opname, 0), -stack_effect(opname, operand, jump=False))


def stack_effect(opname: str, operand: int | None, jump: bool) -> int:
    """Net change of the stack's depth when the instruction jumps, or goes on."""
    if opname == "RETURN_GENERATOR":
        return 1  # the value first sent in; `dis` counts it since 3.13 only
    return dis.stack_effect(number(opname), (operand or 0) if takes_operand(opname) else None, jump=jump)
