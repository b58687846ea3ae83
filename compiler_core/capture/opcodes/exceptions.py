"""Opcodes that raise exceptions and handle them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from compiler_core.bytecode import Instruction
from compiler_core.capture.opcodes.stack import Machine
from compiler_core.capture.values.base import Raised, Value, raised
from compiler_core.capture.values.constant import NONE, ConstantValue
from compiler_core.capture.values.exceptions import OUTER, ExceptionValue, TracebackValue, as_exception
from compiler_core.capture.values.static import StaticValue
from compiler_core.capture.values.user.generators import generator_raised
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


class ExceptionOpcodes(Machine):
    @property
    def _tx(self) -> Interpreter:
        return cast("Interpreter", self)

    def LOAD_ASSERTION_ERROR(self, instruction: Instruction) -> None:
        self.push(StaticValue(AssertionError))

    def RAISE_VARARGS(self, instruction: Instruction) -> None:
        if not instruction.arg:
            raise Raised(self._handled(), again=True)
        what, *causes = self.pop_many(instruction.arg)
        exception = as_exception(self._tx, what)
        for cause in causes:
            exception.set_cause(cause if self._tx.is_none(cause) else as_exception(self._tx, cause))
        raise Raised(exception)

    def _handled(self) -> ExceptionValue:
        found = self._tx.handled()
        if found is None:
            raise Unsupported("exception", "raise of what the caller handles")
        return found

    def RERAISE(self, instruction: Instruction) -> None:
        raise Raised(self.pop(), again=True)

    # --- handlers

    def PUSH_EXC_INFO(self, instruction: Instruction) -> None:
        exception = self.pop()
        assert isinstance(exception, ExceptionValue)
        self.push(OUTER)
        self.push(exception)
        self.handling.append(exception)

    def POP_EXCEPT(self, instruction: Instruction) -> None:
        self.pop()
        self.handling.pop()

    def CHECK_EXC_MATCH(self, instruction: Instruction) -> None:
        wanted = self.pop()
        cls = self.stack[-1].python_type()
        self.push(ConstantValue(any(c in cls.__mro__ for c in self._exception_classes(wanted))))

    def _exception_classes(self, wanted: Value) -> list[Any]:
        classes = wanted.constant(self._tx)
        found = list(classes) if isinstance(classes, tuple) else [classes]
        if not all(isinstance(c, type) and issubclass(c, BaseException) for c in found):
            text = "catching classes that do not inherit from BaseException is not allowed"
            raise raised(TypeError, text)
        return found

    def WITH_EXCEPT_START(self, instruction: Instruction) -> None:
        leave, exception = self.stack[-4], self.stack[-1]
        args: list[Value] = [StaticValue(exception.python_type()), exception, TracebackValue()]
        self.push(self._tx.answer(leave, args, {}))

    def CLEANUP_THROW(self, instruction: Instruction) -> None:
        """What was thrown into ``yield from`` ends it, if it is the StopIteration of the inner iterator."""
        exception = self.stack[-1]
        assert isinstance(exception, ExceptionValue)
        if not issubclass(exception.cls, StopIteration):
            raise Raised(exception, again=True)
        del self.stack[-3:]
        self.stack += [NONE, exception.get_attr(self._tx, "value")]

    def stop_iteration_error(self) -> None:
        """A StopIteration that leaves a generator's body becomes a RuntimeError (PEP 479)."""
        exception = self.stack[-1]
        assert isinstance(exception, ExceptionValue)
        if issubclass(exception.cls, StopIteration):
            self.stack[-1] = generator_raised(exception)
