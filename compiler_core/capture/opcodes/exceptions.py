"""Opcodes that raise exceptions and handle them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler_core.bytecode import Instruction
from compiler_core.capture.opcodes.stack import InterpreterState
from compiler_core.capture.values.base import ObservedException, Value, observed_exception
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.user.exceptions import OUTER, ExceptionValue, TracebackValue, as_exception
from compiler_core.capture.values.user.generators import runtime_error_from_stop
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    pass


class ExceptionOpcodes(InterpreterState):
    """Raising and handling exceptions."""

    def LOAD_ASSERTION_ERROR(self, instruction: Instruction) -> None:
        self.push(StaticValue(AssertionError))

    def RAISE_VARARGS(self, instruction: Instruction) -> None:
        if not instruction.arg:
            raise ObservedException(self._handled(), has_context=True)
        what, *causes = self.pop_many(instruction.arg)
        exception = as_exception(self._tx, what)
        for cause in causes:
            exception.set_cause(cause if self._tx.is_none(cause) else as_exception(self._tx, cause))
        raise ObservedException(exception)

    def _handled(self) -> ExceptionValue:
        found = self._tx.handled_exception()
        if found is None:
            raise Unsupported("exception", "raise of an exception that the caller handles")
        return found

    def RERAISE(self, instruction: Instruction) -> None:
        raise ObservedException(self.pop(), has_context=True)

    # --- handlers

    def PUSH_EXC_INFO(self, instruction: Instruction) -> None:
        exception = self.pop()
        assert isinstance(exception, ExceptionValue)
        self.push(OUTER)
        self.push(exception)
        self.handled_exceptions.append(exception)

    def POP_EXCEPT(self, instruction: Instruction) -> None:
        self.pop()
        self.handled_exceptions.pop()

    def CHECK_EXC_MATCH(self, instruction: Instruction) -> None:
        wanted = self.pop()
        cls = self.stack[-1].python_type()
        self.push(ConstantValue(any(c in cls.__mro__ for c in self._exception_classes(wanted))))

    def _exception_classes(self, wanted: Value) -> list[Any]:
        classes = wanted.constant(self._tx)
        found = list(classes) if isinstance(classes, tuple) else [classes]
        if not all(isinstance(c, type) and issubclass(c, BaseException) for c in found):
            text = "catching classes that do not inherit from BaseException is not allowed"
            raise observed_exception(TypeError, text)
        return found

    def WITH_EXCEPT_START(self, instruction: Instruction) -> None:
        leave, exception = self.stack[-4], self.stack[-1]
        args: list[Value] = [StaticValue(exception.python_type()), exception, TracebackValue()]
        self.push(self._tx.call_and_push(leave, args, {}))

    def CLEANUP_THROW(self, instruction: Instruction) -> None:
        """Ends ``yield from`` if the exception thrown into it is the StopIteration of the inner iterator."""
        exception = self.stack[-1]
        assert isinstance(exception, ExceptionValue)
        if not issubclass(exception.cls, StopIteration):
            raise ObservedException(exception, has_context=True)
        del self.stack[-3:]
        self.stack += [NONE, exception.get_attr(self._tx, "value")]

    def stop_iteration_error(self) -> None:
        """Replaces a StopIteration that leaves a generator's body by a RuntimeError (PEP 479)."""
        exception = self.stack[-1]
        assert isinstance(exception, ExceptionValue)
        if issubclass(exception.cls, StopIteration):
            self.stack[-1] = runtime_error_from_stop(exception)
