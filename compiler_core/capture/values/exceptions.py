"""Exceptions as values: raised by rules and by the program, caught in captured code."""

from __future__ import annotations

import builtins
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Raised, Value, raised
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.capture.values.constant import NONE, ConstantValue, is_atom
from compiler_core.capture.values.static import StaticValue
from compiler_core.capture.values.user.descriptors import lookup
from compiler_core.capture.values.user.functions import FunctionValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import Attribute, Source

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter

# their constructors do more with two arguments than keep them
PARSES = (OSError, ImportError, SyntaxError, UnicodeError)
_C_ATTRIBUTES = (types.GetSetDescriptorType, types.MemberDescriptorType)
_REFUSED = (UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError, BaseExceptionGroup)


class ExceptionValue(ObjectValue):
    """An exception.  One that was raised while capturing has a traceback that only Python can give it,
    so it cannot be rebuilt."""

    def __init__(
        self, cls: type[BaseException], args: Sequence[Value] = (), real: Any = None, source: Source | None = None
    ) -> None:
        super().__init__(cls, real, source)
        self.args = TupleValue(list(args))
        self.cause: Value = NONE
        self.suppress_context = False
        self.context: Value | None = NONE
        """What was being handled as it was raised; None where that is not known."""
        self.was_raised = False

    def __repr__(self) -> str:
        return f"{self.cls.__name__}: {', '.join(map(str, self.args._values or ()))}".removesuffix(": ")

    # --- attributes

    def _descriptor(self, tx: Interpreter, name: str, descriptor: Any) -> Value | None:
        if self.source is None and isinstance(descriptor, _C_ATTRIBUTES):
            found = self._builtin_attribute(name)
            if found is not None:
                return found
        if self.source is not None and name == "args":
            return tx.capture.wrap(self.real.args, Attribute(self.source, "args"))
        return super()._descriptor(tx, name, descriptor)

    def _builtin_attribute(self, name: str) -> Value | None:
        if name == "args":
            return self.args
        if name == "__cause__":
            return self.cause
        if name == "__suppress_context__":
            return ConstantValue(self.suppress_context)
        if name == "__context__":
            return self.context
        if name == "__traceback__" and not self.was_raised:
            return NONE
        if name == "value" and issubclass(self.cls, StopIteration):
            return next(iter(self.args._values or ()), NONE)
        return None

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        if self.source is None and name == "__cause__":
            self.set_cause(value)
        elif self.source is None and name == "args":
            self.args = TupleValue(tx.list_of(value))
        elif self.was_raised and name == "__traceback__":
            pass  # as it has one, only Python's own could be looked at
        elif self.source is None and isinstance(lookup(self.cls, name), _C_ATTRIBUTES):
            raise Unsupported("unsupported mutation", f"{self}.{name} = ...")
        else:
            super().set_attr(tx, name, value)

    def set_cause(self, cause: Value) -> None:
        self.cause, self.suppress_context = cause, True

    def set_context(self, handled: ExceptionValue | None) -> None:
        """It is raised while `handled` is being handled, or (None) nothing that the capture knows of."""
        self.was_raised = True
        if handled is None:
            self.context = None
        elif handled is not self:
            _cut_cycle(handled, self)
            self.context = handled

    def all_args(self, tx: Interpreter) -> list[Value]:
        if self.source is None:
            return self.args.items(tx)
        return tx.list_of(self.get_attr(tx, "args"))

    # --- across a break

    def children(self) -> Sequence[Value]:
        return () if self.source is not None else [self.args, *super().children()]

    def rebuild(self, emit: Emitter) -> None:
        if self.was_raised or self.suppress_context:
            raise Unsupported("exception", f"{self.cls.__name__}, which was raised before, across a break")
        parts = [StaticValue(self.cls), self.args, DictValue(dict(self.stored))]
        emit.call_object(make_exception, parts)


def _cut_cycle(start: ExceptionValue, new: ExceptionValue) -> None:
    """No chain of contexts from `start` may lead to `new`, whose context it becomes."""
    at: Value | None = start
    while isinstance(at, ExceptionValue):
        if at.context is new:
            at.context = NONE
        at = at.context


def make_exception(cls: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any]) -> BaseException:
    """Called by generated code to make an exception that the frame made."""
    base: Any = builtin_base(cls)
    made: BaseException = base.__new__(cls, *args)
    base.__init__(made, *args)
    made.__dict__.update(attributes)
    return made


def builtin_base(cls: type) -> type[BaseException]:
    """The nearest class of `cls` that is Python's own."""
    found: type[BaseException] = next(c for c in cls.__mro__ if vars(builtins).get(c.__name__) is c)
    return found


def construct_exception(
    tx: Interpreter, cls: type[BaseException], args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """``cls(...)``"""
    if issubclass(cls, _REFUSED) or cls.__new__ is not builtin_base(cls).__new__:
        raise Unsupported("unsupported call", f"{cls.__name__}()")
    made = ExceptionValue(cls, args)
    init = next(vars(c)["__init__"] for c in cls.__mro__ if "__init__" in vars(c))
    if isinstance(init, types.FunctionType):
        made.special(tx, "__init__")  # for its guard
        result = FunctionValue.outside(tx.capture, init, None).call(tx, [made, *args], kwargs)
        if not tx.is_none(result):
            raise Unsupported("exception", "__init__() should return None")
    else:
        initialise(tx, made, args, kwargs)
    return made


def initialise(tx: Interpreter, made: ExceptionValue, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """``Exception.__init__(made, *args)``"""
    if kwargs or (len(args) > 1 and issubclass(made.cls, PARSES)):
        raise Unsupported("unsupported call", f"{made.cls.__name__}() with these arguments")
    made.args = TupleValue(list(args))
    return NONE


def from_error(error: Exception) -> Raised | Unsupported:
    """What to raise for an exception that Python raised as it computed with constants."""
    if isinstance(error, _REFUSED) or not all(map(is_atom, error.args)):
        return Unsupported("exception", f"{type(error).__name__}: {error}")
    return raised(type(error), *error.args)


def as_exception(tx: Interpreter, value: Value) -> ExceptionValue:
    """What ``raise value`` raises: an exception, or a class of exceptions called without arguments."""
    if isinstance(value, StaticValue) and isinstance(value.obj, type) and issubclass(value.obj, BaseException):
        value = value.call(tx, [], {})
    if isinstance(value, ExceptionValue):
        value.look(tx)
        return value
    if isinstance(value, (ConstantValue, TupleValue)):
        raise raised(TypeError, "exceptions must derive from BaseException")
    raise Unsupported("exception", f"raise {value}")


class OuterException(Value):
    """What was being handled before an exception was: Python keeps it on the stack below the exception."""


OUTER = OuterException()


class TracebackValue(Value):
    """The traceback that ``__exit__`` is given: only Python has it."""

    def python_type(self) -> type:
        return types.TracebackType

    def truth(self, tx: Interpreter) -> bool:
        return True
