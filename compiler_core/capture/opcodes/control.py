"""Opcodes for jumps, loops, ``with`` and returns."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch

from compiler_core.bytecode import Instruction
from compiler_core.capture.opcodes.stack import InterpreterState
from compiler_core.capture.rules.torch.overrides import DeviceValue
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.contexts import ContextManagerValue, ExitValue
from compiler_core.capture.values.user.generators import GeneratorValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    pass


class ControlOpcodes(InterpreterState):
    """Jumps, loops, ``with``, returns and yields."""

    def _jump(self, instruction: Instruction) -> None:
        self._tx.jump(instruction.target)

    JUMP_FORWARD = JUMP_BACKWARD = JUMP_BACKWARD_NO_INTERRUPT = _jump

    def _jump_if(self, instruction: Instruction, wanted: bool) -> None:
        if self.pop().truth(self._tx) == wanted:
            self._tx.jump(instruction.target)

    def POP_JUMP_IF_TRUE(self, instruction: Instruction) -> None:
        self._jump_if(instruction, True)

    def POP_JUMP_IF_FALSE(self, instruction: Instruction) -> None:
        self._jump_if(instruction, False)

    POP_JUMP_FORWARD_IF_TRUE = POP_JUMP_BACKWARD_IF_TRUE = POP_JUMP_IF_TRUE
    POP_JUMP_FORWARD_IF_FALSE = POP_JUMP_BACKWARD_IF_FALSE = POP_JUMP_IF_FALSE

    def POP_JUMP_IF_NONE(self, instruction: Instruction) -> None:
        if self._tx.is_none(self.pop()):
            self._tx.jump(instruction.target)

    def POP_JUMP_IF_NOT_NONE(self, instruction: Instruction) -> None:
        if not self._tx.is_none(self.pop()):
            self._tx.jump(instruction.target)

    POP_JUMP_FORWARD_IF_NONE = POP_JUMP_BACKWARD_IF_NONE = POP_JUMP_IF_NONE
    POP_JUMP_FORWARD_IF_NOT_NONE = POP_JUMP_BACKWARD_IF_NOT_NONE = POP_JUMP_IF_NOT_NONE

    def _jump_or_pop(self, instruction: Instruction, wanted: bool) -> None:
        if self.stack[-1].truth(self._tx) == wanted:
            self._tx.jump(instruction.target)
        else:
            self.pop()

    def JUMP_IF_TRUE_OR_POP(self, instruction: Instruction) -> None:
        self._jump_or_pop(instruction, True)

    def JUMP_IF_FALSE_OR_POP(self, instruction: Instruction) -> None:
        self._jump_or_pop(instruction, False)

    # --- loops

    def GET_ITER(self, instruction: Instruction) -> None:
        self.push(self.pop().iterate(self._tx))

    def FOR_ITER(self, instruction: Instruction) -> None:
        value = self.stack[-1].next_value(self._tx)
        if value is not None:
            self.push(value)
            return
        self.pop()
        self._tx.jump(instruction.target)
        if sys.version_info >= (3, 12):  # an exhausted loop skips the END_FOR that it jumps to
            self.pc += 1 if sys.version_info < (3, 13) else 2

    def END_FOR(self, instruction: Instruction) -> None:
        raise Unsupported("unsupported instruction", "END_FOR outside a loop")

    # --- with

    def BEFORE_WITH(self, instruction: Instruction) -> None:
        manager = self.pop()
        if isinstance(manager, ConstantValue) and type(manager.value) is torch.device:
            manager = DeviceValue(torch.device, {"device": manager.constant(self._tx)})
        if isinstance(manager, ContextManagerValue):
            entered = manager.enter(self._tx)
            self.push(ExitValue(manager))
            self.push(entered)
        elif isinstance(manager, ObjectValue):
            self.push(manager.get_attr(self._tx, "__exit__"))
            self.push(self._tx.call_and_push(manager.get_attr(self._tx, "__enter__"), [], {}))
        else:
            raise Unsupported("unsupported call", f"with {manager}")

    # --- leaving

    def RETURN_VALUE(self, instruction: Instruction) -> None:
        self._return(self.pop())

    def RETURN_CONST(self, instruction: Instruction) -> None:
        self._tx.LOAD_CONST(instruction)
        self._return(self.pop())

    def _return(self, value: Value) -> None:
        if self._tx.parent is None and self.capture.open_generators:
            generator = next(iter(self.capture.open_generators))
            raise Unsupported("generator", f"{generator} is left inside a try or with block")
        if self._tx.parent is None and self.capture.pending_works:
            raise Unsupported("collective", "the function returns before it has waited for the collective")
        self.returned = value

    # --- generators

    def RETURN_GENERATOR(self, instruction: Instruction) -> None:
        self.push(NONE)  # the value that the first ``next`` sends; a POP_TOP follows

    def GET_YIELD_FROM_ITER(self, instruction: Instruction) -> None:
        self.push(self.pop().iterate(self._tx))

    def SEND(self, instruction: Instruction) -> None:
        sent, iterator = self.pop(), self.stack[-1]
        if self._tx.is_none(sent):
            value = iterator.next_value(self._tx)
        elif isinstance(iterator, GeneratorValue):
            value = iterator.send(self._tx, sent)
        else:
            raise Unsupported("generator", f"a value sent into {iterator}")
        if value is not None:
            self.push(value)
            return
        if sys.version_info < (3, 12):
            self.pop()
        self.push(iterator.return_value() or NONE)
        self._tx.jump(instruction.target)

    def END_SEND(self, instruction: Instruction) -> None:
        value = self.pop()
        self.pop()
        self.push(value)

    def YIELD_VALUE(self, instruction: Instruction) -> None:
        self.yielded = self.pop()
