"""Going on after a graph break: resume functions, and the instruction that broke the graph on its own.

A *resume function* is a copy of a function's code that takes what was on the stack and the live
locals as arguments and goes on at an instruction in the middle.  It is an ordinary function that the
frame hook compiles in its turn.  Where the break was in an inlined call, the resume function of the
caller first calls that of the callee, which it is given with its arguments, and goes on with what it
returns; so what is left of both is captured as one.  Where the instruction that broke raised, the
resume function raises that exception again, at the instruction's own handler.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from dis import Positions

from compiler_core.bytecode import Instruction, assemble, disassemble, make, opset, reachable
from compiler_core.capture.values.user.functions import RESUMED as RESUMED

PROLOGUE = ("COPY_FREE_VARS", "MAKE_CELL", "RESUME", "RETURN_GENERATOR")
BEFORE_3_13 = sys.version_info < (3, 13)
VALUE, NULL, HANDLED = "value", "null", "handled"
"""What a place of the stack holds.  HANDLED: what Python keeps there while an exception is being handled; the
resume function is given that exception."""


@dataclass(frozen=True)
class Layout:
    """What a resume function is given and how it begins.

    Its parameters, in this order: `first`, the cells (``__cell_x``), the callee's resume function with its arguments
    (``__callee``, ``__callee0`` ...), the stack (``__stack0`` ...), the live locals, the exception (``__error``).
    """

    target: int
    """The instruction to go on at; with `raises`, the one that raised."""
    stack: tuple[str, ...]
    names: tuple[str, ...]
    cells: tuple[str, ...]
    """Cells of the function, which stay its own: Python calls one that is empty a local variable without a value."""
    first: str | None = None
    """The method's `self`, where the body may call ``super()``, which reads the first argument."""
    callee_args: int | None = None
    """How many arguments the callee's resume function takes, which is called before `target`; None: no callee."""
    raises: bool = False

    @property
    def parameters(self) -> tuple[str, ...]:
        first = (self.first,) if self.first else ()
        callee = () if self.callee_args is None else ("__callee", *_numbered("__callee", self.callee_args))
        stack = (f"__stack{i}" for i, kind in enumerate(self.stack) if kind != NULL)
        return (*first, *map(make.handed_cell, self.cells), *callee, *stack, *self.names, *(("__error",) * self.raises))


def _numbered(name: str, count: int) -> list[str]:
    return [f"{name}{i}" for i in range(count)]


def resume_code(code: types.CodeType, layout: Layout) -> types.CodeType:
    """The code of a resume function: the body, lines and handlers as they were, entered in the middle."""
    body = disassemble(code)
    parameters, free = layout.parameters, code.co_freevars
    elsewhere = {*parameters, *code.co_cellvars, *free}
    start = next(i for i, x in enumerate(body) if x.opname == "RESUME")
    kept = [x for i, x in enumerate(body) if i > start or x.opname not in PROLOGUE]
    whole = [*make.prologue(layout.cells, len(free)), *_entry(body, layout), *kept]
    line = on_line(body[layout.target].lineno or code.co_firstlineno)
    for instruction in whole:
        instruction.positions = instruction.positions or line
    alive = reachable(whole)
    return assemble(
        [x for x in whole if x in alive],
        code,
        co_argcount=len(parameters),
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_varnames=parameters + tuple(n for n in code.co_varnames if n not in elsewhere),
        co_flags=code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS),
        co_qualname=_resumed_name(code),
    )


# for tracebacks; what a compiled function runs is alive while it runs
_originals: weakref.WeakValueDictionary[tuple[str, str, int], types.CodeType] = weakref.WeakValueDictionary()


def original(code: types.CodeType) -> types.CodeType | None:
    """The function that a resume function's code, or an instruction's on its own, is of; None for other code."""
    return _originals.get(_name_of(code)) if code.co_qualname.endswith(RESUMED) else None


def _resumed_name(code: types.CodeType) -> str:
    if not code.co_qualname.endswith(RESUMED):
        _originals[_name_of(code)] = code
    return code.co_qualname.removesuffix(RESUMED) + RESUMED


def _name_of(code: types.CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname.removesuffix(RESUMED), code.co_firstlineno


def _entry(body: Sequence[Instruction], layout: Layout) -> list[Instruction]:
    """From the function's start into its middle."""
    entry = [x for name in layout.cells for x in make.take_cell(name)]
    entry += [x for i, kind in enumerate(layout.stack) for x in _push(f"__stack{i}", kind)]
    if layout.raises:
        broken = body[layout.target]
        again = Instruction("RERAISE", 0, 0, positions=broken.positions, handler=broken.handler)
        return [*entry, make.load_fast("__error"), make.delete_fast("__error"), again]
    if layout.callee_args is not None:
        names = ["__callee", *_numbered("__callee", layout.callee_args)]
        loads = [make.callable_first([make.load_fast(names[0])]), *([make.load_fast(n)] for n in names[1:])]
        deletes = [make.delete_fast(n) for n in names]
        call = make.call(layout.callee_args)
        for each in call:  # the call that led to the break
            each.positions, each.handler = body[layout.target - 1].positions, body[layout.target - 1].handler
        entry += [*(x for load in loads for x in load), *deletes, *call]
    return [*entry, make.jump(body[layout.target])]


def _push(name: str, kind: str) -> list[Instruction]:
    if kind == NULL:
        return [make.push_null()]
    pushed = [make.load_fast(name), make.delete_fast(name)]
    return pushed if kind == VALUE else [*pushed, *make.handle_exception()]


# ---------------------------------------------------------------- the broken instruction


@dataclass(frozen=True)
class Broken:
    """How Python runs the instruction that broke the graph: `body` finds the top `takes` of the stack there; `consumes`
    of them, counted from the top, are gone afterwards, and `gives` new ones lie on the others."""

    body: list[Instruction]
    takes: int
    consumes: int
    gives: int

    @property
    def rest(self) -> int:
        """How many it only looked at."""
        return self.takes - self.consumes


# (values consumed, values given) of instructions that look at values below those that they consume
_LOOKS_BELOW = {
    "LIST_EXTEND": (1, 0), "LIST_APPEND": (1, 0), "SET_ADD": (1, 0), "SET_UPDATE": (1, 0), "MAP_ADD": (2, 0),
    "DICT_UPDATE": (1, 0), "DICT_MERGE": (1, 0), "IMPORT_FROM": (0, 1), "GET_LEN": (0, 1), "MATCH_MAPPING": (0, 1),
    "MATCH_SEQUENCE": (0, 1), "MATCH_KEYS": (0, 1), "CHECK_EXC_MATCH": (1, 1), "WITH_EXCEPT_START": (0, 1),
}  # fmt: skip
BRANCHES = {
    f"POP_JUMP{way}_IF_{truth}": truth == "TRUE" for way in ("", "_FORWARD", "_BACKWARD") for truth in ("TRUE", "FALSE")
}
OR_POP = {"JUMP_IF_TRUE_OR_POP": True, "JUMP_IF_FALSE_OR_POP": False}


def broken(instruction: Instruction, kw_names: tuple[str, ...]) -> Broken:
    """The instruction as generated code runs it, with the user's line.  What it gives has no NULL about it; of a
    branch, it is the truth that it depends on."""
    name, arg = instruction.opname, instruction.arg or 0
    if name in BRANCHES or name in OR_POP:
        made = Broken(make.truth(), 1, 1, 1)
    elif name == "CALL":
        made = Broken(make.call(arg, kw_names), arg + 2, arg + 2, 1)
    elif name == "RERAISE":
        made = Broken([Instruction("RERAISE", 0, 0)], 1, 1, 0)
    else:
        plain = _without_null(instruction)
        takes = opset.least_depth(plain.opname, plain.arg)
        effect = opset.stack_effect(plain.opname, plain.arg, jump=False)
        consumes, gives = _LOOKS_BELOW.get(name, (takes, takes + effect))
        made = Broken([plain], takes, consumes, gives)
    for each in made.body:
        each.positions, each.handler, each.offset = instruction.positions, None, None
    return made


def _without_null(instruction: Instruction) -> Instruction:
    name = instruction.opname
    if name in ("LOAD_METHOD", "LOAD_ATTR"):
        return make.load_attr(str(instruction.argval))
    if name == "LOAD_GLOBAL":
        return make.load_global(str(instruction.argval))
    if name == "LOAD_SUPER_ATTR":
        return Instruction(name, (instruction.arg or 0) & ~1, instruction.argval)
    return dataclasses.replace(instruction)


def pushes_null(instruction: Instruction) -> bool:
    """Whether the instruction also pushes a NULL (for a call to come), which `broken` leaves out."""
    if instruction.opname == "LOAD_METHOD":
        return True
    if instruction.opname == "LOAD_ATTR":
        return sys.version_info >= (3, 12) and bool((instruction.arg or 0) & 1)
    return instruction.opname in ("LOAD_GLOBAL", "LOAD_SUPER_ATTR") and bool((instruction.arg or 0) & 1)


def alone_code(code: types.CodeType, what: Broken, stack: Sequence[str]) -> types.CodeType:
    """A function of the name and lines of `code` that runs just this instruction: it is given the top of the stack
    and returns what the instruction gives, as a tuple unless it is one value."""
    names = [f"__stack{i}" for i, kind in enumerate(stack) if kind == VALUE]
    loads = [load_place(f"__stack{i}", kind) for i, kind in enumerate(stack)]
    result = [make.build_tuple(what.gives)] if what.gives != 1 else []
    below = [x for _ in range(what.rest) for x in (make.swap(2), make.pop_top())]
    body = [*loads, *what.body, *result, *below, make.return_value()]
    line = what.body[-1].positions or on_line(code.co_firstlineno)
    whole = [*make.prologue(), *body]
    for instruction in whole:
        instruction.positions = instruction.positions or line
    return assemble(
        whole,
        code,
        co_argcount=len(names),
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_varnames=tuple(names),
        co_cellvars=(),
        co_freevars=(),
        co_flags=inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS,
        co_qualname=_resumed_name(code),
    )


def load_place(name: str, kind: str) -> Instruction:
    """Push one place of the stack for an instruction that broke; it looks at none that is HANDLED."""
    if kind == VALUE:
        return make.load_fast(name)
    return make.push_null() if kind == NULL else make.load_const(None)


def on_line(line: int) -> Positions:
    """The position of generated code that stands for a line of the user's."""
    return Positions(line, line, None, None)
