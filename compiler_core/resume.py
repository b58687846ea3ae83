"""Splitting a frame at a graph break: where to split, what to run, and how to go on.

A *resume function* is a copy of the frame's code that takes what was on the stack and the live
locals as arguments and jumps to the instruction after the break.  It is an ordinary function that
the frame hook compiles in its turn.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from dis import Positions

from compiler_core.bytecode import Instruction, assemble, disassembled, index, make

PROLOGUE = ("COPY_FREE_VARS", "MAKE_CELL", "RESUME", "RETURN_GENERATOR")
BEFORE_3_13 = sys.version_info < (3, 13)


@dataclass(frozen=True)
class Split:
    """Where capture stops: before instruction `at`, which then runs as it is (`run`), or in which a
    resume function goes on at once."""

    at: int
    run: bool


def find_split(instructions: Sequence[Instruction], at: int) -> Split:
    """A break inside a loop, try or with block splits the frame before the block."""
    where = index(instructions)
    start = at
    while (outer := _block_start(instructions, where, start)) < start:
        start = outer
    alone = start == at and instructions[at].opname not in NOT_ALONE and not _in_block(instructions, where, at)
    return Split(start, alone)


def _block_start(instructions: Sequence[Instruction], where: dict[Instruction, int], at: int) -> int:
    start = at
    for i, instruction in enumerate(instructions):
        target = instruction.target
        if target is not None and where[target] <= start <= i:
            start = where[target]
    if instructions[start].opname == "FOR_ITER" and instructions[start - 1].opname == "GET_ITER":
        start -= 1
    return start if instructions[start].handler is None else _protected_start(instructions, start)


def _in_block(instructions: Sequence[Instruction], where: dict[Instruction, int], at: int) -> bool:
    """Whether `at` is the first instruction of a loop or lies in a protected block."""
    loops = any(x.target is not None and where[x.target] <= at <= i for i, x in enumerate(instructions))
    return loops or instructions[at].handler is not None


def _protected_start(instructions: Sequence[Instruction], at: int) -> int:
    """The first instruction of the protected block around `at`, or the one that set it up."""
    start = at
    while start > 0 and instructions[start - 1].handler is not None:
        start -= 1
    set_up = ("BEFORE_WITH", "LOAD_FAST_AND_CLEAR", "SWAP", "BUILD_LIST", "BUILD_SET", "BUILD_MAP", "GET_ITER", "NOP")
    while start > 0 and instructions[start - 1].opname in set_up and instructions[start].opname != "BEFORE_WITH":
        start -= 1
        if instructions[start].opname in ("BEFORE_WITH", "GET_ITER"):
            break
    return start


def stack_inputs(instruction: Instruction) -> int:
    """How many values an instruction takes off the stack."""
    name, arg = instruction.opname, instruction.arg or 0
    counted = {
        "CALL": arg + 2,
        "CALL_KW": arg + 3,
        "CALL_FUNCTION_EX": 3 + (arg & 1),
        "BUILD_TUPLE": arg,
        "BUILD_LIST": arg,
        "BUILD_SET": arg,
        "BUILD_STRING": arg,
        "BUILD_SLICE": arg,
        "BUILD_MAP": 2 * arg,
        "BUILD_CONST_KEY_MAP": arg + 1,
        "RAISE_VARARGS": arg,
        "FORMAT_VALUE": 2 if arg & 4 else 1,
    }
    if name in counted:
        return counted[name]
    if name in JUMPS_ON_TENSOR:
        return 1
    return _INPUTS.get(name, 0)


_INPUTS = {
    "BINARY_OP": 2, "COMPARE_OP": 2, "IS_OP": 2, "CONTAINS_OP": 2, "BINARY_SUBSCR": 2, "STORE_SUBSCR": 3,
    "DELETE_SUBSCR": 2, "BINARY_SLICE": 3, "STORE_SLICE": 4, "UNARY_NEGATIVE": 1, "UNARY_POSITIVE": 1,
    "UNARY_INVERT": 1, "UNARY_NOT": 1, "TO_BOOL": 1, "GET_ITER": 1, "LOAD_ATTR": 1, "LOAD_METHOD": 1, "STORE_ATTR": 2,
    "DELETE_ATTR": 1, "LOAD_SUPER_ATTR": 3, "IMPORT_NAME": 2, "IMPORT_FROM": 1, "STORE_GLOBAL": 1, "STORE_DEREF": 1,
    "STORE_FAST": 1, "POP_TOP": 1, "BEFORE_WITH": 1, "UNPACK_SEQUENCE": 1, "UNPACK_EX": 1, "LIST_TO_TUPLE": 1,
    "LIST_EXTEND": 1, "LIST_APPEND": 1, "SET_ADD": 1, "SET_UPDATE": 1, "MAP_ADD": 2, "DICT_UPDATE": 1, "DICT_MERGE": 1,
    "CONVERT_VALUE": 1, "FORMAT_SIMPLE": 1, "FORMAT_WITH_SPEC": 2, "CALL_INTRINSIC_1": 1, "MAKE_FUNCTION": 1,
    "SET_FUNCTION_ATTRIBUTE": 2, "GET_LEN": 0, "RETURN_VALUE": 1, "LOAD_BUILD_CLASS": 0, "MATCH_CLASS": 3,
    "GET_YIELD_FROM_ITER": 1, "GET_AWAITABLE": 1, "CALL_INTRINSIC_2": 2, "IMPORT_STAR": 1, "PRINT_EXPR": 1,
}  # fmt: skip
# They read values below those that they take, or locals and cells of their own frame: Python runs them
# where the whole frame is, in the resume function.
NOT_ALONE = frozenset({
    "LIST_EXTEND", "LIST_APPEND", "SET_ADD", "SET_UPDATE", "MAP_ADD", "DICT_UPDATE", "DICT_MERGE", "COPY", "SWAP",
    "IMPORT_FROM", "GET_LEN", "MATCH_KEYS", "MATCH_MAPPING", "MATCH_SEQUENCE", "LOAD_FAST", "LOAD_FAST_CHECK",
    "LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "DELETE_FAST", "LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF",
    "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF", "LOAD_FROM_DICT_OR_GLOBALS", "MAKE_FUNCTION", "LOAD_CLOSURE",
})  # fmt: skip
JUMPS_ON_TENSOR = {
    f"POP_JUMP{way}_IF_{truth}": truth == "TRUE" for way in ("", "_FORWARD", "_BACKWARD") for truth in ("TRUE", "FALSE")
}
OR_POP = {"JUMP_IF_TRUE_OR_POP": True, "JUMP_IF_FALSE_OR_POP": False}


def broken_instruction(instruction: Instruction, kw_names: tuple[str, ...]) -> list[Instruction]:
    """The instruction that broke the graph, to be run by Python with the user's line; its result, if
    any, is one value with no NULL about it."""
    name = instruction.opname
    if name == "CALL":
        made = make.call(instruction.arg or 0, kw_names)
    elif name in ("LOAD_METHOD", "LOAD_ATTR"):
        made = [make.load_attr(str(instruction.argval))]
    elif name == "LOAD_GLOBAL":
        made = [make.load_global(str(instruction.argval))]
    elif name == "LOAD_SUPER_ATTR":
        made = [Instruction(name, (instruction.arg or 0) & ~1, instruction.argval)]
    else:
        made = [dataclasses.replace(instruction)]
    for each in made:
        each.positions, each.handler, each.offset = instruction.positions, None, None
    return made


def pushes_null(instruction: Instruction) -> bool:
    """Whether the instruction also pushes a NULL (for a call to come), which `broken_instruction` leaves out."""
    if instruction.opname == "LOAD_METHOD":
        return True
    if instruction.opname == "LOAD_ATTR":
        return sys.version_info >= (3, 12) and bool((instruction.arg or 0) & 1)
    return instruction.opname in ("LOAD_GLOBAL", "LOAD_SUPER_ATTR") and bool((instruction.arg or 0) & 1)


@dataclass(frozen=True)
class Layout:
    """What a resume function is given: for each place of the stack whether it holds a value (or a
    NULL), the names of live locals, and the names of cells, which become its free variables."""

    target: int
    stack: tuple[bool, ...]
    names: tuple[str, ...]
    cells: tuple[str, ...]
    first: str | None = None
    """The method's `self`, where the body may call ``super()``, which reads the first argument."""


RESUMED = ".<resumed>"
"""Ends the qualified name of a resume function's code, by which tracebacks know the frame that called it."""


def resume_code(code: types.CodeType, layout: Layout) -> types.CodeType:
    """The code of a resume function.  It keeps the whole body, so lines and handlers stay as they were."""
    body, _ = disassembled(code)
    target = body[layout.target]
    free = layout.cells + code.co_freevars
    on_stack = tuple(f"__stack{i}" for i, is_value in enumerate(layout.stack) if is_value)
    args = ((layout.first,) if layout.first else ()) + on_stack + layout.names
    pushes = [make.load_fast(f"__stack{i}") if v else make.push_null() for i, v in enumerate(layout.stack)]
    line = on_line(target.lineno or code.co_firstlineno)
    prologue = [*make.prologue((), len(free)), *pushes, make.jump(target)]
    for instruction in prologue:
        instruction.positions = line
    start = next(i for i, x in enumerate(body) if x.opname == "RESUME")
    kept = [x for i, x in enumerate(body) if i > start or x.opname not in PROLOGUE]
    others = tuple(n for n in code.co_varnames if n not in args and n not in free)
    flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    return assemble(
        [*prologue, *kept],
        code,
        co_argcount=len(args),
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_varnames=args + others,
        co_cellvars=(),
        co_freevars=free,
        co_flags=flags,
        co_qualname=code.co_qualname.removesuffix(RESUMED) + RESUMED,
    )


def on_line(line: int) -> Positions:
    """The position of generated code that stands for a line of the user's."""
    return Positions(line, line, None, None)
