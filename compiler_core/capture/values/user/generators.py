"""Generators of the program's: each an interpreter of its own that stops at every yield."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Raised, Value, raised
from compiler_core.capture.values.builtin.iterators import IteratorValue
from compiler_core.capture.values.constant import NONE, ConstantValue
from compiler_core.capture.values.exceptions import ExceptionValue, as_exception
from compiler_core.capture.values.user.functions import FunctionValue, MethodOfValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


class GeneratorValue(IteratorValue):
    """A generator: `body` runs from one yield to the next.  One that has begun cannot be carried across a break."""

    def __init__(
        self, body: Interpreter, function: FunctionValue, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> None:
        super().__init__([])
        self.body = body
        self.made_by = (function, args, kwargs)
        self.made_at = body.root.mark
        self.started = self.running = self.finished = False

    def __repr__(self) -> str:
        return str(self.body.code.co_name)

    def python_type(self) -> type:
        return types.GeneratorType

    def truth(self, tx: Interpreter) -> bool:
        return True

    # --- running

    def next_value(self, tx: Interpreter) -> Value | None:
        tx.capture.count_round()
        return self.send(tx, NONE)

    def send(self, tx: Interpreter, value: Value) -> Value | None:
        """What it yields next, None where it returns instead (`result` has its value)."""
        if not self.started and not self.finished:
            if not tx.is_none(value):
                raise raised(TypeError, "can't send non-None value to a just-started generator")
            self.started = True  # its first instruction pushes the None that it is sent
        elif not self.finished and not self.running:
            self.body.push(value)
        return self._run(tx, None)

    def throw(self, tx: Interpreter, exception: ExceptionValue) -> Value | None:
        """Raise `exception` where it yields; what it yields next, None where it returns instead."""
        if not self.started or self.finished:
            self.started = self.finished = True
            raise Raised(exception)
        if not self.running and self.body.delegates():
            return self._throw_into(tx, self.body.stack[-1], exception)
        return self._run(tx, Raised(exception))

    def _throw_into(self, tx: Interpreter, inner: Value, exception: ExceptionValue) -> Value | None:
        """It stands in ``yield from inner``, which is asked first."""
        if not isinstance(inner, GeneratorValue):
            raise Unsupported("generator", f"throw() into yield from {inner}")
        try:
            if issubclass(exception.cls, GeneratorExit):
                inner.method_close(tx)
                raise Raised(exception)
            found = inner.throw(tx, exception)
        except Raised as error:
            return self._run(tx, error)
        if found is None:
            self.body.delegate_ended(inner.result())
            return self._run(tx, None)
        return found

    def _run(self, tx: Interpreter, thrown: Raised | None) -> Value | None:
        if self.running:
            raise raised(ValueError, "generator already executing")
        if self.finished:
            self.body.returned = NONE
            return None
        body, at = self.body, tx.capture.at
        body.called_by(tx)
        self.running = True
        try:
            found = body.run_to_yield(thrown)
        except Raised as error:
            tx.capture.working, tx.capture.at = tx, at
            self.finished, self.running = True, False
            self._note_block(tx)
            raise _left_by(error) from None
        tx.capture.working, tx.capture.at = tx, at
        self.finished, self.running = found is None, False
        self._note_block(tx)
        return found

    def _note_block(self, tx: Interpreter) -> None:
        if not self.finished and self.body.in_block() and not _passes_exit_on(self.body):
            tx.capture.suspended[self] = self.made_at
        else:
            tx.capture.suspended.pop(self, None)

    def result(self) -> Value:
        return self.body.returned or NONE

    # --- methods

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name in ("send", "throw", "close", "__next__", "__iter__"):
            return MethodOfValue(self, name)
        return super().get_attr(tx, name)

    def call_method(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
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
        """The traceback, which only Python has, changes nothing here."""
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
        except Raised as error:
            if error.matches(GeneratorExit):
                return NONE
            raise
        if yielded is not None:
            raise raised(RuntimeError, "generator ignored GeneratorExit")
        return self.result() if sys.version_info >= (3, 13) else NONE

    def _value_or_stop(self, tx: Interpreter, found: Value | None) -> Value:
        if found is None:
            raise self.stop(tx)
        return found

    # --- across a break

    def children(self) -> Sequence[Value]:
        function, args, kwargs = self.made_by
        return () if self.started else [function, *args, *kwargs.values()]

    def rebuild(self, emit: Emitter) -> None:
        """One that nothing has asked for a value is made by the same call."""
        if self.started or self.finished:
            raise Unsupported("generator", f"{self}, which is suspended, across a break")
        function, args, kwargs = self.made_by
        emit.call_value(function, args, kwargs)


_SILENT = frozenset(
    "PUSH_EXC_INFO LOAD_GLOBAL BUILD_TUPLE CHECK_EXC_MATCH COPY POP_EXCEPT NOP CALL_INTRINSIC_1".split()
)


def _passes_exit_on(body: Interpreter) -> bool:
    """Whether all that happens when Python drops the generator where it stands is that handlers for
    builtin classes of exceptions let the GeneratorExit pass, so that it does not matter when."""
    at = body.instructions[body.pc - 1]
    while at.handler is not None:
        at = at.handler.target
        while at.opname != "RERAISE":
            if at.opname == "LOAD_GLOBAL" and not _is_builtin_exception(body, str(at.argval)):
                return False
            if at.opname not in _SILENT and not (at.target is not None and at.opname.endswith("IF_FALSE")):
                return False
            at = at.target or body.instructions[body.index[at] + 1]
    return True


def _is_builtin_exception(body: Interpreter, name: str) -> bool:
    found = None if name in body.f_globals else body.f_builtins.get(name)
    return isinstance(found, type) and issubclass(found, Exception)


def _left_by(error: Raised) -> Raised:
    """A StopIteration that leaves a generator's body becomes a RuntimeError (PEP 479)."""
    return Raised(generator_raised(error.exception), again=True) if error.matches(StopIteration) else error


def generator_raised(exception: Value) -> ExceptionValue:
    assert isinstance(exception, ExceptionValue)
    made = ExceptionValue(RuntimeError, [ConstantValue("generator raised StopIteration")])
    made.set_cause(exception)
    made.set_context(exception)
    return made
