"""Code objects that continue after a graph break: resume functions, and functions of one instruction.

A *resume function* is a copy of a function's code that takes the stack and the live locals as arguments and starts at
an instruction in the middle.  It is an ordinary function, which the frame hook compiles in turn.

If the graph broke in an inlined call, the caller's resume function takes the callee's, with its arguments, calls it
first and continues with its result.  So the rest of both is captured as one graph.  If the instruction that broke the
graph raised an exception, the resume function raises it again inside the instruction's handler.
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

from compiler_core.bytecode import (
    Instruction,
    assemble,
    comprehension_variables,
    disassemble,
    make,
    opset,
    pair_halves,
    reachable,
)
from compiler_core.bytecode.opset import JUMP_CONDITIONS, JUMP_OR_POP_CONDITIONS
from compiler_core.capture.values.user.functions import RESUMED as RESUMED
from compiler_core.errors import Unsupported
from compiler_core.hook.frame_hook import never_compile

PROLOGUE = ("COPY_FREE_VARS", "MAKE_CELL", "RESUME", "RETURN_GENERATOR")
BEFORE_3_13 = sys.version_info < (3, 13)
VALUE, NULL, HANDLED = "value", "null", "handled"
"""The kinds of stack slots.  HANDLED is what Python keeps on the stack while it handles an exception; the resume
function takes that exception as the argument."""


@dataclass(frozen=True)
class ResumeLayout:
    """The parameters of a resume function, and where it starts.

    The parameters, in this order: `first`, the cells (``__cell_x``), the callee's resume function with its arguments
    (``__callee``, ``__callee0`` ...), the stack (``__stack0`` ...), the live locals, the exception (``__error``).
    """

    target: int
    """The instruction to continue at; with `reraises`, the one that raised."""
    stack: tuple[str, ...]
    names: tuple[str, ...]
    cells: tuple[str, ...]
    """The function's cell variables, and locals that may be unbound.  They are cell variables of the resume function,
    too, since Python reports an empty one as an unbound local."""
    first: str | None = None
    """The name of the method's ``self`` if the body may call ``super()``, which reads the first argument."""
    callee_args: int | None = None
    """The number of arguments of the callee's resume function, which is called before `target`; None if there is no
    callee."""
    reraises: bool = False

    @property
    def parameters(self) -> tuple[str, ...]:
        first = (self.first,) if self.first else ()
        callee = () if self.callee_args is None else ("__callee", *_numbered("__callee", self.callee_args))
        stack = (f"__stack{i}" for i, kind in enumerate(self.stack) if kind != NULL)
        error = ("__error",) if self.reraises else ()
        return (*first, *map(make.cell_parameter, self.cells), *callee, *stack, *self.names, *error)


def _numbered(name: str, count: int) -> list[str]:
    return [f"{name}{i}" for i in range(count)]


def resume_code(code: types.CodeType, layout: ResumeLayout) -> types.CodeType:
    """Returns the code of a resume function: the body of `code` with its lines and handlers, entered in the middle."""
    body = disassemble(code)
    entry, line = entry_code(body, layout), body[layout.target].lineno
    start = next(i for i, x in enumerate(body) if x.opname == "RESUME")
    kept = [x for i, x in enumerate(body) if i > start or x.opname not in PROLOGUE]
    return assemble_part(code, layout, entry, kept, line)


def assemble_part(
    code: types.CodeType,
    layout: ResumeLayout,
    entry: Sequence[Instruction],
    body: Sequence[Instruction],
    line: int | None,
    own_cells: tuple[str, ...] = (),
    parameters: tuple[str, ...] | None = None,
) -> types.CodeType:
    """Returns a part of `code` as a function.

    Args:
        code: the user's code.
        layout: the parameters, unless there are others; its `target` does not matter here.
        entry: what comes first, as `entry_code` makes it.
        body: the part, in which locals may be among the cells of `layout`.  It is changed.
        line: the line of what has none.
        own_cells: locals that become cell variables here, and are not among the cells of `layout`.
        parameters: others than those of `layout`.
    """
    parameters, free = layout.parameters if parameters is None else parameters, code.co_freevars
    new_cells = (*(name for name in layout.cells if name not in code.co_cellvars), *own_cells)
    whole = [*make.prologue((*layout.cells, *own_cells), len(free)), *entry, *_with_cells(body, new_cells)]
    positions = line_positions(line or code.co_firstlineno)
    for instruction in whole:
        instruction.positions = instruction.positions or positions
    can_run = reachable(whole)
    cells = code.co_cellvars + new_cells
    inlined = frozenset[str]().union(*comprehension_variables(body).values())
    other_slots = {*parameters, *(set(cells) - inlined), *free}
    return assemble(
        [instruction for instruction in whole if instruction in can_run],
        code,
        co_argcount=len(parameters),
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_varnames=parameters + tuple(n for n in code.co_varnames if n not in other_slots),
        co_cellvars=cells,
        co_flags=code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS),
        co_qualname=_resume_qualname(code),
    )


_OF_CELLS = {
    "LOAD_FAST": "LOAD_DEREF", "LOAD_FAST_CHECK": "LOAD_DEREF", "STORE_FAST": "STORE_DEREF",
    "DELETE_FAST": "DELETE_DEREF",
}  # fmt: skip


def _with_cells(instructions: Sequence[Instruction], names: Sequence[str]) -> list[Instruction]:
    """Changes instructions so that these locals are cell variables; returns them in order, with those that are added.

    Variables of inlined comprehensions (3.12) stay locals: meanwhile, the cell is on the stack.

    Raises:
        Unsupported: one instruction writes both the variable of a comprehension and that of the same name around it.
    """
    found: list[Instruction] = []
    inlined = comprehension_variables(instructions)
    for instruction in instructions:
        halves = [instruction]
        if instruction.opname in opset.PAIRS and not {n for _, n in pair_halves(instruction)}.isdisjoint(names):
            first, second = pair_halves(instruction)
            if first == second:
                raise Unsupported("unsupported operation", "one local that is written twice in a row")
            halves.append(dataclasses.replace(instruction, opname=second[0], arg=None, argval=second[1]))
            instruction.opname, instruction.arg, instruction.argval = first[0], None, first[1]
        for half in halves:
            if half.opname in _OF_CELLS and half.argval in names and half.argval not in inlined.get(instruction, ()):
                half.opname, half.arg = _OF_CELLS[half.opname], None
        found += halves
    return found


# for tracebacks; weak, since code that runs is alive
_originals: weakref.WeakValueDictionary[tuple[str, str, int], types.CodeType] = weakref.WeakValueDictionary()


def original_code(code: types.CodeType) -> types.CodeType | None:
    """Returns the user's code that a resume function or a function of one instruction was made from; None for other
    code."""
    return _originals.get(_code_key(code)) if code.co_qualname.endswith(RESUMED) else None


def _resume_qualname(code: types.CodeType) -> str:
    if not code.co_qualname.endswith(RESUMED):
        _originals[_code_key(code)] = code
    return code.co_qualname.removesuffix(RESUMED) + RESUMED


def _code_key(code: types.CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname.removesuffix(RESUMED), code.co_firstlineno


def entry_code(body: Sequence[Instruction], layout: ResumeLayout) -> list[Instruction]:
    """Returns the instructions that lead from the start of a resume function to its target."""
    entry = [x for name in layout.cells for x in make.adopt_cell(name)]
    entry += [x for i, kind in enumerate(layout.stack) for x in _push_stack_slot(f"__stack{i}", kind)]
    if layout.reraises:
        raising = body[layout.target]
        reraise = Instruction("RERAISE", 0, 0, positions=raising.positions, handler=raising.handler)
        return [*entry, make.load_fast("__error"), make.delete_fast("__error"), reraise]
    if layout.callee_args is not None:
        names = ["__callee", *_numbered("__callee", layout.callee_args)]
        loads = [make.load_callable([make.load_fast(names[0])]), *([make.load_fast(n)] for n in names[1:])]
        deletes = [make.delete_fast(n) for n in names]
        call = make.call(layout.callee_args)
        for each in call:  # the call that led to the break
            each.positions, each.handler = body[layout.target - 1].positions, body[layout.target - 1].handler
        entry += [*(x for load in loads for x in load), *deletes, *call]
    return [*entry, make.jump(body[layout.target])]


def _push_stack_slot(name: str, kind: str) -> list[Instruction]:
    if kind == NULL:
        return [make.push_null()]
    pushed = [make.load_fast(name), make.delete_fast(name)]
    return pushed if kind == VALUE else [*pushed, *make.begin_except()]


# ---------------------------------------------------------------- the instruction that broke the graph


@dataclass(frozen=True)
class BreakingInstruction:
    """How generated code runs the instruction that broke the graph.

    `body` reads the top `reads` values of the stack, removes the top `pops` of them and pushes `pushes` new ones.
    """

    body: list[Instruction]
    reads: int
    pops: int
    pushes: int

    @property
    def kept_below(self) -> int:
        """How many values it reads but does not remove."""
        return self.reads - self.pops


# (pops, pushes) of instructions that also read values below those that they pop
_POPS_AND_PUSHES = {
    "LIST_EXTEND": (1, 0), "LIST_APPEND": (1, 0), "SET_ADD": (1, 0), "SET_UPDATE": (1, 0), "MAP_ADD": (2, 0),
    "DICT_UPDATE": (1, 0), "DICT_MERGE": (1, 0), "IMPORT_FROM": (0, 1), "GET_LEN": (0, 1), "MATCH_MAPPING": (0, 1),
    "MATCH_SEQUENCE": (0, 1), "MATCH_KEYS": (0, 1), "CHECK_EXC_MATCH": (1, 1), "WITH_EXCEPT_START": (0, 1),
}  # fmt: skip


def breaking_instruction(instruction: Instruction, kw_names: tuple[str, ...]) -> BreakingInstruction:
    """Returns the instruction as generated code runs it, with the user's source line.

    It pushes no NULL, even where the original does; of a conditional jump, it pushes the truth of the condition.
    """
    name, arg = instruction.opname, instruction.arg or 0
    if name in JUMP_CONDITIONS or name in JUMP_OR_POP_CONDITIONS:
        result = BreakingInstruction(make.to_bool(), 1, 1, 1)
    elif name == "CALL":
        result = BreakingInstruction(make.call(arg, kw_names), arg + 2, arg + 2, 1)
    elif name == "RERAISE":
        result = BreakingInstruction([Instruction("RERAISE", 0, 0)], 1, 1, 0)
    else:
        plain = _without_null(instruction)
        takes = opset.least_depth(plain.opname, plain.arg)
        effect = opset.stack_effect(plain.opname, plain.arg, jump=False)
        consumes, gives = _POPS_AND_PUSHES.get(name, (takes, takes + effect))
        result = BreakingInstruction([plain], takes, consumes, gives)
    for each in result.body:
        each.positions, each.handler, each.offset = instruction.positions, None, None
    return result


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
    """Returns whether the instruction also pushes a NULL for a call that follows, which `breaking_instruction`
    omits."""
    if instruction.opname == "LOAD_METHOD":
        return True
    if instruction.opname == "LOAD_ATTR":
        return sys.version_info >= (3, 12) and bool((instruction.arg or 0) & 1)
    return instruction.opname in ("LOAD_GLOBAL", "LOAD_SUPER_ATTR") and bool((instruction.arg or 0) & 1)


def instruction_code(code: types.CodeType, what: BreakingInstruction, stack: Sequence[str]) -> types.CodeType:
    """Returns a function with the name and lines of `code` that runs only the breaking instruction.

    It takes the instruction's operands, and returns what the instruction pushes, as a tuple unless it is one value.
    """
    names = [f"__stack{i}" for i, kind in enumerate(stack) if kind == VALUE]
    loads = [load_stack_slot(f"__stack{i}", kind) for i, kind in enumerate(stack)]
    result = [make.build_tuple(what.pushes)] if what.pushes != 1 else []
    below = [x for _ in range(what.kept_below) for x in (make.swap(2), make.pop_top())]
    body = [*loads, *what.body, *result, *below, make.return_value()]
    line = what.body[-1].positions or line_positions(code.co_firstlineno)
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
        co_qualname=_resume_qualname(code),
    )


def raising_function(error: Exception, raised_in: Sequence[tuple[types.CodeType, int]]) -> types.FunctionType:
    """Returns a function that raises `error`, once, with a traceback that shows code at lines."""
    errors = [error]  # a frame of the traceback must not refer to the error: both would stay alive
    body = [*make.load_callable([make.load_const(errors.pop)]), *make.call(0), Instruction("RAISE_VARARGS", 1, 1)]
    for code, line in reversed(raised_in):
        for instruction in (whole := [*make.prologue(), *body]):
            instruction.positions = line_positions(line)
        names = {"co_argcount": 0, "co_posonlyargcount": 0, "co_kwonlyargcount": 0, "co_varnames": ("args", "kwargs")}
        flags = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS | inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
        raising = assemble(whole, code, **names, co_cellvars=(), co_freevars=(), co_flags=flags)
        never_compile(raising)
        function = types.FunctionType(raising, {})
        body = [*make.load_callable([make.load_const(function)]), *make.call(0), make.return_value()]
    return function


def load_stack_slot(name: str, kind: str) -> Instruction:
    """Pushes one operand of the instruction that broke the graph.  No instruction reads a slot of kind HANDLED."""
    if kind == VALUE:
        return make.load_fast(name)
    return make.push_null() if kind == NULL else make.load_const(None)


def line_positions(line: int) -> Positions:
    """Returns the position of generated code for a source line of the user."""
    return Positions(line, line, None, None)
