"""The instruction set of the running CPython, where the `dis` module lacks information."""

from __future__ import annotations

import dis
import opcode
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

VERSION = sys.version_info[:2]

EXTENDED_ARG = dis.EXTENDED_ARG

HAS_CONST = frozenset(dis.hasconst)
HAS_NAME = frozenset(dis.hasname)
HAS_FREE = frozenset(dis.hasfree) | {opcode.opmap["LOAD_DEREF"]}  # 3.14 has it among those of locals
HAS_LOCAL = frozenset(dis.haslocal) - HAS_FREE
HAS_JUMP = frozenset(dis.hasjrel) - {opcode.opmap.get("END_ASYNC_FOR")}  # whose operand is for monitoring only

PAIRS = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}
"""The instructions of 3.13 that do two things, and what each half does.  The operand holds two 4-bit slots."""

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
"""Execution never continues after one of these."""

JUMP_CONDITIONS = {
    f"POP_JUMP{way}_IF_{truth}": truth == "TRUE" for way in ("", "_FORWARD", "_BACKWARD") for truth in ("TRUE", "FALSE")
}
"""Of the jumps that pop a condition: its truth if they jump."""
JUMP_OR_POP_CONDITIONS = {"JUMP_IF_TRUE_OR_POP": True, "JUMP_IF_FALSE_OR_POP": False}
"""The same of those that pop the condition only if they do not jump."""

SPELLED = {
    "LOAD_FAST_BORROW": "LOAD_FAST",
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": "LOAD_FAST_LOAD_FAST",
    "LOAD_SMALL_INT": "LOAD_CONST",
}
"""The instructions of 3.14 that `disassemble` gives as others which do the same.

A borrowed reference must not outlive what the local has; code whose parts move does not rely on that.
"""
SUBSCRIPT = 26
"""The operand of BINARY_OP that stands for BINARY_SUBSCR, since 3.14."""

NEEDS_FRAME = frozenset({
    "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "DELETE_FAST", "LOAD_DEREF",
    "STORE_DEREF", "DELETE_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF", "LOAD_CLOSURE", "COPY", "SWAP",
    "YIELD_VALUE", "GET_AWAITABLE", "RETURN_VALUE", "RETURN_CONST",
})  # fmt: skip
"""Instructions on locals, cells and the stack itself, which only code with the whole frame can run."""

_INTERPRETER_ONLY = frozenset({"CACHE", "RESERVED", "INTERPRETER_EXIT", "ENTER_EXECUTOR", "EXIT_INIT_CHECK"}) | {
    name for name in opcode.opmap if name.startswith("INSTRUMENTED_")
}
"""Instructions that only the interpreter itself creates; no compiled code object contains them."""

_FLAG_BITS = {"LOAD_GLOBAL": 1} if VERSION < (3, 12) else {"LOAD_GLOBAL": 1, "LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2}
_CACHE_ENTRIES: Any = opcode._inline_cache_entries  # type: ignore[attr-defined]
_OPERATORS: list[tuple[str, str]] = opcode._nb_ops  # type: ignore[attr-defined]

INTRINSICS: dict[str, Sequence[str]] = {
    "CALL_INTRINSIC_1": getattr(opcode, "_intrinsic_1_descs", ()),
    "CALL_INTRINSIC_2": getattr(opcode, "_intrinsic_2_descs", ()),
}
"""The meaning of the operands of these instructions (since 3.12)."""

if VERSION >= (3, 13):
    _COMPARE_SHIFT = 5
elif VERSION >= (3, 12):
    _COMPARE_SHIFT = 4
else:
    _COMPARE_SHIFT = 0

BINARY_OPERATORS = tuple(symbol for _, symbol in _OPERATORS)
"""From the operand of BINARY_OP to ``+``, ``-=`` ..."""


COMMON_CONSTANTS: Sequence[object] = getattr(opcode, "_common_constants", ())
SPECIAL_METHODS: Sequence[str] = [getattr(each, "name", each) for each in getattr(opcode, "_special_method_names", ())]
"""The meaning of the operands of LOAD_COMMON_CONSTANT and LOAD_SPECIAL (since 3.14)."""


@cache
def number(opname: str) -> int:
    """Returns the opcode of `opname`.

    Since 3.13, LOAD_CLOSURE is a LOAD_FAST; since 3.14, BINARY_SUBSCR is a BINARY_OP.
    """
    if opname == "LOAD_CLOSURE" and VERSION >= (3, 13):
        return opcode.opmap["LOAD_FAST"]
    return opcode.opmap["BINARY_OP" if is_subscript(opname) else opname]


def is_subscript(opname: str) -> bool:
    """Whether it is BINARY_SUBSCR, where that is a BINARY_OP with the operand `SUBSCRIPT`."""
    return opname == "BINARY_SUBSCR" and VERSION >= (3, 14)


@cache
def is_supported(opname: str) -> bool:
    """Returns whether this version can execute `opname`.  Pseudo instructions have numbers above 255."""
    is_known = opname in opcode.opmap or is_subscript(opname)
    return is_known and number(opname) <= 255 and opname not in _INTERPRETER_ONLY


@cache
def takes_operand(opname: str) -> bool:
    """Returns whether `opname` uses its operand."""
    numbers: Any = getattr(dis, "hasarg", None)  # since 3.12; pseudo instructions made HAVE_ARGUMENT too coarse
    return number(opname) in numbers if numbers is not None else number(opname) >= dis.HAVE_ARGUMENT


@cache
def cache_units(opname: str) -> int:
    """Returns the number of inline cache units after `opname`."""
    if isinstance(_CACHE_ENTRIES, dict):
        return int(_CACHE_ENTRIES.get("BINARY_OP" if is_subscript(opname) else opname, 0))
    return int(_CACHE_ENTRIES[number(opname)])


def is_small_int(value: object) -> bool:
    """Whether this version has an instruction for this constant."""
    return VERSION >= (3, 14) and type(value) is int and 0 <= value < 256


def flag_bits(opname: str) -> int:
    """Returns how many low bits of the operand are flags; the table index is above them."""
    return _FLAG_BITS.get(opname, 0)


def compare_symbol(operand: int) -> str:
    """Returns the operator of COMPARE_OP.  Newer versions keep a type mask in the low bits of the operand."""
    return dis.cmp_op[operand >> _COMPARE_SHIFT]


_LEAST_DEPTHS = {
    1: "LOAD_SPECIAL POP_ITER GET_AITER GET_ANEXT GET_AWAITABLE GET_ITER GET_LEN GET_YIELD_FROM_ITER BEFORE_WITH "
    "BEFORE_ASYNC_WITH CONVERT_VALUE FORMAT_SIMPLE FOR_ITER IMPORT_FROM LIST_TO_TUPLE LOAD_ATTR LOAD_METHOD "
    "LOAD_FROM_DICT_OR_DEREF LOAD_FROM_DICT_OR_GLOBALS MATCH_MAPPING MATCH_SEQUENCE PUSH_EXC_INFO RETURN_VALUE "
    "STORE_FAST_LOAD_FAST TO_BOOL UNARY_INVERT UNARY_NEGATIVE UNARY_NOT UNARY_POSITIVE UNPACK_EX UNPACK_SEQUENCE "
    "YIELD_VALUE ASYNC_GEN_WRAP CALL_INTRINSIC_1 JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP",
    2: "BINARY_OP BINARY_SUBSCR CALL_INTRINSIC_2 CHECK_EG_MATCH CHECK_EXC_MATCH COMPARE_OP CONTAINS_OP END_SEND "
    "FORMAT_WITH_SPEC IMPORT_NAME IS_OP MATCH_KEYS PREP_RERAISE_STAR SEND SET_FUNCTION_ATTRIBUTE",
    3: "BINARY_SLICE CLEANUP_THROW LOAD_SUPER_ATTR MATCH_CLASS",
    4 if VERSION < (3, 14) else 5: "WITH_EXCEPT_START",
}
_DEPTHS = {name: depth for depth, names in _LEAST_DEPTHS.items() for name in names.split()}
_COUNTED_DEPTHS = {
    **dict.fromkeys(("BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_STRING", "BUILD_SLICE", "COPY", "SWAP"), (1, 0)),
    **dict.fromkeys(("BUILD_CONST_KEY_MAP", "LIST_APPEND", "LIST_EXTEND", "SET_ADD", "SET_UPDATE"), (1, 1)),
    "BUILD_MAP": (2, 0),
    "DICT_UPDATE": (1, 1),
    "DICT_MERGE": (1, 3 if VERSION < (3, 13) else 4),  # an error message names the callable, which is below
    "MAP_ADD": (1, 2),
    "CALL": (1, 2) if VERSION >= (3, 12) else (0, 2),  # in 3.11 PRECALL already counts the arguments as popped
    "CALL_KW": (1, 3),
    "PRECALL": (1, 2),
}
"""(factor, offset) of instructions that need ``factor * operand + offset`` values on the stack."""


def _flag_depth(opname: str, flags: int) -> int | None:
    """Returns how many values an instruction needs on the stack if its operand is a set of flags, else None."""
    if opname == "CALL_FUNCTION_EX":
        return 3 + (flags & 1) if VERSION < (3, 14) else 4
    if opname == "FORMAT_VALUE":
        return 1 + bool(flags & 4)
    if opname == "MAKE_FUNCTION":
        return 1 + (flags & 15).bit_count()
    if opname == "RERAISE":
        return 1 + bool(flags)
    return None


def least_depth(opname: str, operand: int | None) -> int:
    """Returns how many values the instruction needs on the stack, its results not counted."""
    if opname in _COUNTED_DEPTHS:
        factor, offset = _COUNTED_DEPTHS[opname]
        return factor * (operand or 0) + offset
    depth = _flag_depth(opname, operand or 0)
    if depth is not None:
        return depth
    return max(_DEPTHS.get(opname, 0), -stack_effect(opname, operand, jump=False))


def stack_effect(opname: str, operand: int | None, jump: bool) -> int:
    """Returns the net change of the stack depth if the instruction jumps, or if it does not."""
    if opname == "RETURN_GENERATOR":
        return 1  # the value first sent in; `dis` counts it since 3.13 only
    if is_subscript(opname):
        operand = SUBSCRIPT
    return dis.stack_effect(number(opname), (operand or 0) if takes_operand(opname) else None, jump=jump)
