"""Code that runs the instruction that broke the graph, and then calls the resume functions of the active frames."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from compiler_core.bytecode import Instruction, live_locals, make
from compiler_core.bytecode.opset import JUMP_CONDITIONS, JUMP_OR_POP_CONDITIONS
from compiler_core.capture.bytecode_emitter import EmitFunction, Emitter
from compiler_core.capture.interpreter import Interpreter
from compiler_core.capture.values import base
from compiler_core.capture.values.base import UNBOUND, Value
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.user.exceptions import OUTER
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import Box
from compiler_core.resume import resume_functions
from compiler_core.resume.resume_functions import (
    HANDLED,
    NULL,
    VALUE,
    BreakingInstruction,
    ResumeLayout,
)


class StackSlot(NamedTuple):
    """A slot of a frame's stack: its kind (see `resume_functions`), and the value to rebuild for it."""

    kind: str
    value: Value


class FrameState:
    """The state of one active frame that is needed at any instruction where the frame may continue (`targets`)."""

    def __init__(self, tx: Interpreter, targets: Sequence[int]) -> None:
        self.tx = tx
        self.code: types.CodeType = tx.code
        self.targets = targets
        self.stack = _stack_slots(tx)
        self._live = live_locals(tx.instructions)
        self.first = _first_argument(tx)

    def names(self, target: int) -> list[str]:
        """Returns the locals that are live at an instruction."""
        first = self.first[0] if self.first else None
        live = sorted(self._live[target])
        return [n for n in live if n != first and self.tx.locals.get(n, UNBOUND) is not UNBOUND]

    @property
    def all_names(self) -> list[str]:
        """The locals that are live at any of the targets."""
        return list(dict.fromkeys(n for target in self.targets for n in self.names(target)))

    def values(self, stack: Sequence[StackSlot]) -> list[Value]:
        """Returns all values that are needed after the break, if the stack is then `stack`."""
        found = [p.value for p in stack if p.kind != NULL] + [self.tx.locals[n] for n in self.all_names]
        return [*found, *([self.first[1]] if self.first else []), *self.tx.cells.values()]


def _stack_slots(tx: Interpreter) -> list[StackSlot]:
    handled = iter(tx.handled_exceptions)
    places = []
    for value in tx.stack:
        if value is OUTER:
            places.append(StackSlot(HANDLED, next(handled)))
        else:
            places.append(StackSlot(NULL if value in (base.NULL, UNBOUND) else VALUE, value))
    return places


def _first_argument(tx: Interpreter) -> tuple[str, Value] | None:
    """Returns the first argument of a method that may call ``super()``, with the name of it in a resume function."""
    if "__class__" not in tx.code.co_freevars or not tx.code.co_argcount:
        return None
    name = tx.code.co_varnames[0]
    cell = tx.cells.get(name)
    if cell is not None and not any(x.opname == "STORE_DEREF" and x.argval == name for x in tx.instructions):
        return "__self", cell.get(tx)
    value = tx.locals.get(name, UNBOUND)
    if value is UNBOUND:
        raise Unsupported("unsupported operation", "a break in a method that changes its self")
    return name, value


MakeResumeCode = Callable[[Interpreter, ResumeLayout], types.CodeType]


class ResumePoint(NamedTuple):
    """How an active frame continues: at the instruction `target`, with this stack and these locals."""

    target: int
    stack: Sequence[StackSlot]
    names: Sequence[str]
    results: Sequence[str] = ()
    """Temporaries with the values to put on top of the stack."""
    kinds: Sequence[str] = ()
    """The kinds of the stack slots that `results` fill, see `resume_functions`."""
    error: str | None = None
    """The temporary with an exception to raise at `target`."""
    callee: Sequence[EmitFunction] = ()
    """What pushes the resume function of the frame that this one called, and its arguments."""


class ResumeCalls:
    """Emits calls of resume functions.

    Args:
        emit: the emitter of the generated code.
        frames: the active frames, outermost first.
        resume_code: makes the code of a resume function.
        in_list: whether it is a loop function, which takes its arguments in a list.
    """

    def __init__(
        self, emit: Emitter, frames: Sequence[FrameState], resume_code: MakeResumeCode, in_list: bool = False
    ) -> None:
        self.emit, self.frames, self._resume_code, self._in_list = emit, frames, resume_code, in_list

    def resume(
        self, target: int, stack: Sequence[StackSlot], results: Sequence[str] = (), kinds: Sequence[str] = ()
    ) -> None:
        """Continues in the innermost frame at `target`, with `results` on top of `stack`."""
        level = len(self.frames) - 1
        self._return_resumed(level, ResumePoint(target, stack, self.frames[level].names(target), results, kinds))

    def raise_again(self, level: int, error: str) -> None:
        """Continues in the exception handler of the frame at `level`; the frames that it called have ended.

        `error` is the temporary with the exception.
        """
        frame = self.frames[level]
        at = frame.tx.pc if level == len(self.frames) - 1 else frame.tx.pc - 1
        handler = frame.tx.instructions[at].handler
        assert handler is not None
        names = frame.names(frame.tx.index[handler.target])
        self._return_resumed(level, ResumePoint(at, frame.stack[: handler.depth], names, error=error))

    def _return_resumed(self, level: int, point: ResumePoint) -> None:
        """Returns the result of the outermost frame's resume function, which first calls the one of the next frame,
        and so on down to `level`."""
        function, loads = self._resume_frame(self.frames[level], point)
        for frame in reversed(self.frames[:level]):
            callee: list[EmitFunction] = [partial(self.emit.add, function), *loads]
            point = ResumePoint(frame.tx.pc, frame.stack, frame.all_names, callee=callee)
            function, loads = self._resume_frame(frame, point)
        self.emit.add(*make.load_callable([function]))
        for load in loads:
            load()
        self.emit.drop_all()
        if self._in_list:
            self.emit.add(make.build_list(len(loads)))
        self.emit.add(*make.call(1 if self._in_list else len(loads)), make.return_value())

    def _resume_frame(self, frame: FrameState, point: ResumePoint) -> tuple[Instruction, list[EmitFunction]]:
        """Returns an instruction that pushes the resume function of one frame, and what pushes its arguments."""
        tx, load, load_temp = frame.tx, self.emit.load_kept, self.emit.load_temp
        cells = tuple(n for n in frame.code.co_cellvars if n in tx.cells)
        kinds = (*(slot.kind for slot in point.stack), *point.kinds)
        callee_args = len(point.callee) - 1 if point.callee else None
        first, owner = frame.first or (None, None)
        reraises = point.error is not None
        layout = ResumeLayout(point.target, kinds, tuple(point.names), cells, first, callee_args, reraises)
        loads: list[EmitFunction] = [partial(load, owner)] if owner is not None else []
        loads += [partial(load, tx.cells[n]) for n in cells]
        loads += point.callee
        loads += [partial(load, slot.value) for slot in point.stack if slot.kind != NULL]
        loads += [partial(load_temp, name) for name in point.results]
        loads += [partial(load, tx.locals[n]) for n in point.names]
        loads += [partial(load_temp, point.error)] if point.error is not None else []
        return self._resume_function(frame, layout), loads

    def _resume_function(self, frame: FrameState, layout: ResumeLayout) -> Instruction:
        """Returns an instruction that pushes the resume function.  One with free variables is made by generated code,
        from the frame's cells."""
        code = self._resume_code(frame.tx, layout)
        f_globals, name = frame.tx.f_globals, _resume_name(frame.tx, layout.target)
        free = frame.code.co_freevars
        if not free:
            return make.load_const(types.FunctionType(code, f_globals, name))
        emit = self.emit
        emit.add(*make.load_callable([make.load_const(make_resume_function)]))
        emit.constant(code)
        emit.constant(name)
        emit.constant(Box(f_globals))
        for each in free:
            emit.load_kept(frame.tx.cells[each])
        emit.add(*make.call(3 + len(free)))
        return make.load_fast(emit.store_temp())


def _resume_name(tx: Interpreter, target: int) -> str:
    """Returns ``resume_18_of_function``.  The code object keeps the name that tracebacks show."""
    line = tx.instructions[target].lineno or tx.code.co_firstlineno
    return f"resume_{line}_of_{tx.code.co_name.strip('<>')}"


def make_resume_function(code: types.CodeType, name: str, f_globals: Box, *cells: types.CellType) -> types.FunctionType:
    """Makes a resume function that shares cells with its frame.  Called by generated code."""
    return types.FunctionType(code, f_globals.value, name, None, cells)


# the instructions of the handler that Python generates around an except block, to clear the name that it binds
_CLEANUP_OPNAMES = frozenset({"LOAD_CONST", "STORE_FAST", "DELETE_FAST", "COPY", "SWAP", "POP_TOP", "POP_EXCEPT"})
_RAISING_OPNAMES = frozenset({"RAISE_VARARGS", "RERAISE"})
MakeInstructionCode = Callable[[Interpreter, BreakingInstruction, Sequence[str]], types.CodeType]


def breaking_targets(tx: Interpreter, innermost: bool, runs_instruction: bool) -> list[int]:
    """Returns the instructions at which an active frame may continue after the break."""
    if innermost and not runs_instruction:
        return [tx.pc]
    instruction = tx.instructions[tx.pc if innermost else tx.pc - 1]
    found = [tx.index[instruction.handler.target]] if instruction.handler is not None else []
    if not innermost:
        return [*found, tx.pc]
    if instruction.opname in JUMP_CONDITIONS or instruction.opname in JUMP_OR_POP_CONDITIONS:
        assert instruction.target is not None
        found.append(tx.index[instruction.target])
    if instruction.opname not in _RAISING_OPNAMES:
        found.append(tx.pc + 1)
    return found


class BreakCode:
    """Emits the instruction that broke the graph, and what follows it.

    Args:
        emit: the emitter of the generated code.
        calls: emits the calls of resume functions.
        instruction_code: makes the code of a function that runs only this instruction.
        replaced: a function, and what returns the one that the instruction calls in place of it.
    """

    def __init__(
        self,
        emit: Emitter,
        calls: ResumeCalls,
        instruction_code: MakeInstructionCode,
        replaced: tuple[Any, Callable[[Any], Any]] | None,
    ) -> None:
        self.emit, self._calls, self._instruction_code, self._replaced = emit, calls, instruction_code, replaced
        self._frames = calls.frames
        self._innermost = calls.frames[-1]
        tx = self._innermost.tx
        self._instruction: Instruction = tx.instructions[tx.pc]

    def run_and_resume(self) -> None:
        """Runs the instruction and continues in the innermost frame.

        If the instruction raises, and an active frame has a handler that catches the exception, continues in the
        innermost such frame.
        """
        tx, stack = self._innermost.tx, self._innermost.stack
        breaking = resume_functions.breaking_instruction(self._instruction, tx.kw_names)
        operands, below = stack[len(stack) - breaking.reads :], stack[: len(stack) - breaking.pops]
        handled, catching_level = tx.handled_exception(), self._catching_level()
        protects = catching_level is not None or handled is not None
        caught = make.nop()
        end_handling = [Instruction("POP_EXCEPT")] if handled is not None else []
        if handled is not None:
            self.emit.load_kept(handled)
            self.emit.add(*make.begin_except())
        inline = len(self._frames) == 1
        body = self._load_operands(breaking, operands) if inline else self._load_function(breaking, operands)
        self.emit.drop_except(self._values_needed_after(below))
        with self.emit.on_one_branch():
            with self.emit.protected(caught if protects else None, depth=len(end_handling)):
                if protects:  # CPython 3.13 takes what an `__init__` raises for an error of the instruction before
                    self.emit.add(make.nop())
                self.emit.add(*body)
            results = [self.emit.store_temp() for _ in range(breaking.pushes)]
            if inline or breaking.pushes == 1:  # otherwise UNPACK_SEQUENCE has left the first one on top
                results.reverse()
            if inline:
                self.emit.add(*(make.pop_top() for _ in range(breaking.kept_below)))
            self.emit.add(*end_handling)
            self._continue(below, results)
        if protects:
            self._handle_exception(caught, end_handling, catching_level)

    def _catching_level(self) -> int | None:
        """Returns the index of the innermost active frame that may catch what the instruction raises."""
        found = None
        for level, frame in enumerate(self._frames):
            if _has_catching_handler(frame.tx, frame is self._innermost):
                found = level
        return found

    def _handle_exception(self, caught: Instruction, end_handling: list[Instruction], level: int | None) -> None:
        self.emit.add(caught)
        if end_handling:
            self.emit.add(make.swap(2), *map(dataclasses.replace, end_handling))
        if level is None:
            self.emit.add(Instruction("RERAISE", 0, 0))
        else:
            self._calls.raise_again(level, self.emit.store_temp())

    def _values_needed_after(self, below: Sequence[StackSlot]) -> list[Value]:
        """Returns the values that are needed after the instruction; `below` is the stack under its operands."""
        if self._instruction.opname in JUMP_OR_POP_CONDITIONS:
            below = self._innermost.stack
        outer = [v for frame in self._frames[:-1] for v in frame.values(frame.stack)]
        return outer + self._innermost.values(below)

    def _load_operands(self, breaking: BreakingInstruction, operands: Sequence[StackSlot]) -> list[Instruction]:
        """Pushes the operands of the instruction, and returns the instruction."""
        for slot in operands:
            if slot.kind == VALUE:
                self._load_operand(slot.value, operands)
            else:
                self.emit.add(resume_functions.load_stack_slot("", slot.kind))
        return breaking.body

    def _load_operand(self, value: Value, operands: Sequence[StackSlot]) -> None:
        called = next(slot.value for slot in operands if slot.kind == VALUE)
        is_called = value is called and self._instruction.opname.startswith("CALL")
        if is_called and self._replaced and isinstance(value, StaticValue) and value.obj is self._replaced[0]:
            self.emit.call_loaded(self._replaced[1], [partial(self.emit.load_kept, value)])
        else:
            self.emit.load_kept(value)

    def _load_function(self, breaking: BreakingInstruction, operands: Sequence[StackSlot]) -> list[Instruction]:
        """Pushes a function that runs the instruction and its arguments, and returns the call of it.

        The function has the name, lines and globals of the innermost frame, so that tracebacks show that frame.
        """
        if any(isinstance(slot.value, StaticValue) and slot.value.obj is super for slot in operands):
            raise Unsupported("unsupported call", "super() reads the frame that calls it")
        tx = self._innermost.tx
        code = self._instruction_code(tx, breaking, [slot.kind for slot in operands])
        self.emit.add(*make.load_callable([make.load_const(types.FunctionType(code, tx.f_globals))]))
        values = [slot.value for slot in operands if slot.kind == VALUE]
        for value in values:
            self._load_operand(value, operands)
        unpack = [make.unpack_sequence(breaking.pushes)] if breaking.pushes != 1 else []
        return [*make.call(len(values)), *unpack]

    def _continue(self, below: list[StackSlot], results: list[str]) -> None:
        """Continues after the instruction, with `results` on top of the stack `below`."""
        name = self._instruction.opname
        if name in JUMP_CONDITIONS or name in JUMP_OR_POP_CONDITIONS:
            self._branch(below, results[0])
        elif name in _RAISING_OPNAMES:
            if len(self._frames) > 1:  # the call of the function that raises never returns; verification needs an end
                self.emit.add(make.load_const(None), make.return_value())
        else:
            kinds = [VALUE] * len(results)
            if resume_functions.pushes_null(self._instruction):
                kinds = [NULL, VALUE] if resume_functions.BEFORE_3_13 else [VALUE, NULL]
            self._calls.resume(self._innermost.tx.pc + 1, below, results, kinds)

    def _branch(self, below: list[StackSlot], condition: str) -> None:
        """Continues at the target of a conditional jump or after it; `condition` is the temporary with the condition's
        truth."""
        name, target = self._instruction.opname, self._instruction.target
        assert target is not None
        keeps_condition = name in JUMP_OR_POP_CONDITIONS
        jumps_if = JUMP_OR_POP_CONDITIONS[name] if keeps_condition else JUMP_CONDITIONS[name]
        tx, jumped = self._innermost.tx, make.nop()
        self.emit.load_temp(condition)
        self.emit.add(*make.pop_jump_if(jumps_if, jumped))
        with self.emit.on_one_branch():
            self._calls.resume(tx.pc + 1, below)
        self.emit.add(jumped)
        stack = [*below, self._innermost.stack[-1]] if keeps_condition else below
        self._calls.resume(tx.index[target], stack)


def _has_catching_handler(tx: Interpreter, innermost: bool) -> bool:
    """Returns whether the current instruction of a frame has a handler that does more than clean up."""
    instruction = tx.instructions[tx.pc if innermost else tx.pc - 1]
    while instruction.handler is not None:
        at = tx.index[instruction.handler.target]
        while tx.instructions[at].opname in _CLEANUP_OPNAMES:
            at += 1
        instruction = tx.instructions[at]
        if instruction.opname != "RERAISE":
            return True
    return False
