"""Generators that the program defines.  Each has its own interpreter, which stops at every yield."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import (
    Args,
    Kwargs,
    NamedMethodValue,
    ObservedException,
    Value,
    observed_exception,
)
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.containers import IteratorValue
from compiler_core.capture.values.user.exceptions import ExceptionValue, as_exception, exception_value
from compiler_core.capture.values.user.functions import FunctionValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


class GeneratorValue(IteratorValue):
    """A generator: `body` runs from one yield to the next.

    A generator that has started cannot be reconstructed after a graph break.
    """

    always_true = True
    cls = types.GeneratorType

    def __init__(self, body: Interpreter, function: FunctionValue, args: Args, kwargs: Kwargs) -> None:
        super().__init__([])
        self.body = body
        self.creating_call = (function, args, kwargs)
        self.creation_mark = body.root.stop_point
        self.started = self.running = self.finished = False

    def __repr__(self) -> str:
        return str(self.body.code.co_name)

    # --- running

    def next_value(self, tx: Interpreter) -> Value | None:
        tx.capture.count_iteration()
        return self.send(tx, NONE)

    def send(self, tx: Interpreter, value: Value) -> Value | None:
        """Runs to the next yield; returns the yielded value, or None if it returns (see `return_value`)."""
        if not self.started and not self.finished:
            if not tx.is_none(value):
                raise observed_exception(TypeError, "can't send non-None value to a just-started generator")
            self.started = True  # the first instruction of its body pushes None itself
        elif not self.finished and not self.running:
            self.body.push(value)
        return self._run(tx, None)

    def throw(self, tx: Interpreter, exception: ExceptionValue) -> Value | None:
        """Raises `exception` at the yield; returns the next yielded value, or None if it returns."""
        if not self.started or self.finished:
            self.started = self.finished = True
            raise ObservedException(exception)
        if not self.running and self.body.is_delegating():
            return self._throw_into(tx, self.body.stack[-1], exception)
        return self._run(tx, ObservedException(exception))

    def _throw_into(self, tx: Interpreter, inner: Value, exception: ExceptionValue) -> Value | None:
        """Throws into `inner`, to which the generator delegates by ``yield from``."""
        if not isinstance(inner, GeneratorValue):
            raise Unsupported("generator", f"throw() into yield from {inner}")
        try:
            if issubclass(exception.cls, GeneratorExit):
                inner.method_close(tx)
                raise ObservedException(exception)
            found = inner.throw(tx, exception)
        except ObservedException as error:
            return self._run(tx, error)
        if found is None:
            self.body.finish_delegation(inner.return_value())
            return self._run(tx, None)
        return found

    def _run(self, tx: Interpreter, thrown: ObservedException | None) -> Value | None:
        if self.running:
            raise observed_exception(ValueError, "generator already executing")
        if self.finished:
            self.body.returned = NONE
            return None
        body, location = self.body, tx.guards.location
        body.set_caller(tx)
        self.running = True
        try:
            found = body.run_to_yield(thrown)
        except ObservedException as error:
            tx.graph.current_tx, tx.guards.location = tx, location
            self.finished, self.running = True, False
            self._track_suspension(tx)
            raise _convert_stop_iteration(error) from None
        tx.graph.current_tx, tx.guards.location = tx, location
        self.finished, self.running = found is None, False
        self._track_suspension(tx)
        return found

    def _track_suspension(self, tx: Interpreter) -> None:
        """Registers a generator that is suspended in a block whose exit code runs when Python drops it."""
        if not self.finished and self.body.is_in_try_block() and not _only_passes_generator_exit(self.body):
            tx.capture.open_generators[self] = self.creation_mark
        else:
            tx.capture.open_generators.pop(self, None)

    def return_value(self) -> Value:
        return self.body.returned or NONE

    # --- methods

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name in ("send", "throw", "close", "__next__", "__iter__"):
            return NamedMethodValue(self, name)
        return super().get_attr(tx, name)

    def call_method(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        method: Any = getattr(self, f"method_{name.strip('_')}", None)
        if method is None or kwargs:
            raise Unsupported("generator", f"{self}.{name}()")
        found: Value = method(tx, *args)
        return found

    def method_iter(self, tx: Interpreter) -> Value:
        return self

    def method_next(self, tx: Interpreter) -> Value:
        return self.next_or_stop(tx)

    def method_send(self, tx: Interpreter, value: Value) -> Value:
        return self._value_or_stop(tx, self.send(tx, value))

    def method_throw(self, tx: Interpreter, what: Value, value: Value | None = None, _: Value | None = None) -> Value:
        """``generator.throw(...)``; a traceback argument is ignored."""
        if value is not None and not tx.is_none(value):
            if not isinstance(value, ExceptionValue):
                raise Unsupported("generator", "throw() with arguments of the exception")
            what = value
        return self._value_or_stop(tx, self.throw(tx, as_exception(tx, what)))

    def method_close(self, tx: Interpreter) -> Value:
        if not self.started or self.finished:
            self.finished = True
            return NONE
        try:
            yielded = self.throw(tx, ExceptionValue(GeneratorExit))
        except ObservedException as error:
            if error.matches(GeneratorExit):
                return NONE
            raise
        if yielded is not None:
            raise observed_exception(RuntimeError, "generator ignored GeneratorExit")
        return self.return_value() if sys.version_info >= (3, 13) else NONE

    def _value_or_stop(self, tx: Interpreter, found: Value | None) -> Value:
        if found is None:
            raise self.stop_iteration(tx)
        return found

    # --- across a break

    def reconstruct(self, emit: Emitter) -> None:
        """Repeats the call that made a generator that has not started."""
        if self.started or self.finished:
            raise Unsupported("generator", f"{self} is suspended and cannot be reconstructed after a graph break")
        function, args, kwargs = self.creating_call
        emit.call_value(function, args, kwargs)


_PASSIVE_OPCODES = frozenset(
    "PUSH_EXC_INFO LOAD_GLOBAL BUILD_TUPLE CHECK_EXC_MATCH COPY POP_EXCEPT NOP CALL_INTRINSIC_1".split()
)


def _only_passes_generator_exit(body: Interpreter) -> bool:
    """Whether the handlers around the present yield only let a GeneratorExit pass.

    They do if they test for builtin subclasses of Exception.  Then it does not matter when Python drops the generator.
    """
    instruction = body.instructions[body.pc - 1]
    while instruction.handler is not None:
        instruction = instruction.handler.target
        while instruction.opname != "RERAISE":
            if instruction.opname == "LOAD_GLOBAL" and not _is_builtin_exception(body, str(instruction.argval)):
                return False
            is_test = instruction.target is not None and instruction.opname.endswith("IF_FALSE")
            if instruction.opname not in _PASSIVE_OPCODES and not is_test:
                return False
            instruction = instruction.target or body.instructions[body.index[instruction] + 1]
    return True


def _is_builtin_exception(body: Interpreter, name: str) -> bool:
    found = None if name in body.f_globals else body.f_builtins.get(name)
    return isinstance(found, type) and issubclass(found, Exception)


def _convert_stop_iteration(error: ObservedException) -> ObservedException:
    """A StopIteration that leaves a generator's body becomes a RuntimeError (PEP 479)."""
    return (
        ObservedException(runtime_error_from_stop(exception_value(error)), has_context=True)
        if error.matches(StopIteration)
        else error
    )


def runtime_error_from_stop(exception: Value) -> ExceptionValue:
    """Returns the RuntimeError that replaces a StopIteration raised in a generator's body."""
    assert isinstance(exception, ExceptionValue)
    error = ExceptionValue(RuntimeError, [ConstantValue("generator raised StopIteration")])
    error.set_cause(exception)
    error.set_context(exception)
    return error
