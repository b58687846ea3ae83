"""Code that runs the instruction that broke the graph and then continues in resume functions."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Sequence

from compiler_core.bytecode import Instruction, make
from compiler_core.capture.bytecode_emitter import Emitter
from compiler_core.capture.interpreter import Interpreter
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.errors import Unsupported
from compiler_core.resume import resume_functions
from compiler_core.resume.break_points import StoppedCapture
from compiler_core.resume.frame_state import StackSlot
from compiler_core.resume.resume_calls import ResumeCalls
from compiler_core.resume.resume_functions import (
    JUMP_CONDITIONS,
    JUMP_OR_POP_CONDITIONS,
    NULL,
    VALUE,
    BreakingInstruction,
)

# the instructions of the handler that Python generates around an except block, to clear the name that it binds
_CLEANUP_OPNAMES = frozenset({"LOAD_CONST", "STORE_FAST", "DELETE_FAST", "COPY", "SWAP", "POP_TOP", "POP_EXCEPT"})
_RAISING_OPNAMES = frozenset({"RAISE_VARARGS", "RERAISE"})
MakeInstructionCode = Callable[[Interpreter, BreakingInstruction, Sequence[str]], types.CodeType]


def breaking_targets(tx: Interpreter, stopped: StoppedCapture | None) -> list[int]:
    """Returns the instructions at which an active frame may continue after the break."""
    assert stopped is not None
    innermost = tx is stopped.frames[-1]
    if innermost and not stopped.runs_instruction:
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
    """

    def __init__(self, emit: Emitter, calls: ResumeCalls, instruction_code: MakeInstructionCode) -> None:
        self.emit, self._calls, self._instruction_code = emit, calls, instruction_code
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
                self.emit.load_kept(slot.value)
            else:
                self.emit.add(resume_functions.load_stack_slot("", slot.kind))
        return breaking.body

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
            self.emit.load_kept(value)
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
