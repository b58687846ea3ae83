"""Exceptions that rules or the program raise and that captured code may catch."""

from __future__ import annotations

import builtins
import types
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import (
    Args,
    Kwargs,
    NewException,
    ObservedException,
    Value,
    lookup_in_mro,
    observed_exception,
)
from compiler_core.capture.values.builtin.constant import NONE, UNSUPPORTED_EXCEPTIONS, ConstantValue
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.user.functions import FunctionValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import AttrSource, Source

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter

# their constructors interpret two or more arguments
PARSING_EXCEPTIONS = (OSError, ImportError, SyntaxError, UnicodeError)
_C_ATTRIBUTES = (types.GetSetDescriptorType, types.MemberDescriptorType)


class ExceptionValue(ObjectValue):
    """An exception.

    One that was raised during capture has a traceback, which only Python can make, so it cannot be reconstructed.
    """

    def __init__(
        self, cls: type[BaseException], args: Args = (), real: Any = None, source: Source | None = None
    ) -> None:
        super().__init__(cls, real, source)
        self.args = TupleValue(list(args))
        self.cause: Value = NONE
        self.suppress_context = False
        self.context: Value | None = NONE
        """The exception that was being handled when this one was raised; None if that is not known."""
        self.was_raised = False
        self.traceback: Value = NONE

    def __repr__(self) -> str:
        return f"{self.cls.__name__}: {', '.join(map(str, self.args._values or ()))}".removesuffix(": ")

    # --- attributes

    def _read_descriptor(self, tx: Interpreter, name: str, descriptor: Any) -> Value | None:
        if self.source is None and isinstance(descriptor, _C_ATTRIBUTES):
            found = self._builtin_attribute(name)
            if found is not None:
                return found
        if self.source is not None and name == "args":
            return tx.outside.wrap(self.real.args, AttrSource(self.source, "args"))
        return super()._read_descriptor(tx, name, descriptor)

    def _builtin_attribute(self, name: str) -> Value | None:
        if name == "args":
            return self.args
        if name == "__cause__":
            return self.cause
        if name == "__suppress_context__":
            return ConstantValue(self.suppress_context)
        if name == "__context__":
            return self.context
        if name == "__traceback__":
            return self.traceback
        if name == "value" and issubclass(self.cls, StopIteration):
            return next(iter(self.args._values or ()), NONE)
        return None

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        if self.source is None and name == "__cause__":
            self.set_cause(value)
        elif self.source is None and name == "args":
            self.args = TupleValue(tx.list_of(value))
        elif self.was_raised and name == "__traceback__":
            self.traceback = value
        elif self.source is None and isinstance(lookup_in_mro(self.cls, name), _C_ATTRIBUTES):
            raise Unsupported("unsupported mutation", f"{self}.{name} = ...")
        else:
            super().set_attr(tx, name, value)

    def set_cause(self, cause: Value) -> None:
        self.cause, self.suppress_context = cause, True

    def set_context(self, handled: ExceptionValue | None) -> None:
        """Records that it is raised while `handled` is being handled; None if that is not known."""
        self.was_raised, self.traceback = True, TracebackValue()
        if handled is None:
            self.context = None
        elif handled is not self:
            _cut_cycle(handled, self)
            self.context = handled

    def all_args(self, tx: Interpreter) -> list[Value]:
        """``list(self.args)``."""
        if self.source is None:
            return self.args.unpack(tx)
        return tx.list_of(self.get_attr(tx, "args"))

    # --- across a break

    def reconstruct(self, emit: Emitter) -> None:
        if self.was_raised or self.suppress_context:
            raise Unsupported("exception", f"{self.cls.__name__} was raised before a graph break")
        parts = [StaticValue(self.cls), self.args, DictValue(dict(self.stored))]
        emit.call_object(make_exception, parts)


def _cut_cycle(start: ExceptionValue, new: ExceptionValue) -> None:
    """Removes `new` from the chain of contexts of `start`, which becomes the context of `new`."""
    exception: Value | None = start
    while isinstance(exception, ExceptionValue):
        if exception.context is new:
            exception.context = NONE
        exception = exception.context


def make_exception(cls: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any]) -> BaseException:
    """Called by generated code: makes an exception that the frame made."""
    base: Any = builtin_base(cls)
    exception: BaseException = base.__new__(cls, *args)
    base.__init__(exception, *args)
    exception.__dict__.update(attributes)
    return exception


def builtin_base(cls: type) -> type[BaseException]:
    """Returns the first class in the MRO of `cls` that is a builtin."""
    found: type[BaseException] = next(c for c in cls.__mro__ if vars(builtins).get(c.__name__) is c)
    return found


def construct_exception(tx: Interpreter, cls: type[BaseException], args: Args, kwargs: Kwargs) -> Value:
    """``cls(*args, **kwargs)``."""
    if issubclass(cls, UNSUPPORTED_EXCEPTIONS) or cls.__new__ is not builtin_base(cls).__new__:
        raise Unsupported("unsupported call", f"{cls.__name__}()")
    exception = ExceptionValue(cls, args)
    init = next(vars(c)["__init__"] for c in cls.__mro__ if "__init__" in vars(c))
    if isinstance(init, types.FunctionType):
        exception.special_method(tx, "__init__")  # for its guard
        result = FunctionValue.from_outside(tx.outside, init, None).call(tx, [exception, *args], kwargs)
        if not tx.is_none(result):
            raise Unsupported("exception", "__init__() should return None")
    else:
        init_exception(tx, exception, args, kwargs)
    return exception


def init_exception(tx: Interpreter, new: ExceptionValue, args: Args, kwargs: Kwargs) -> Value:
    """``Exception.__init__(new, *args)``."""
    if kwargs or (len(args) > 1 and issubclass(new.cls, PARSING_EXCEPTIONS)):
        raise Unsupported("unsupported call", f"{new.cls.__name__}() with these arguments")
    new.args = TupleValue(list(args))
    return NONE


def exception_value(error: ObservedException) -> ExceptionValue:
    """Returns the value of the exception that `error` raises; it is made when it is first needed."""
    if isinstance(new := error.exception, NewException):
        args = [a if isinstance(a, Value) else ConstantValue(a) for a in new.args]
        error.exception = ExceptionValue(new.cls, args)
    assert isinstance(error.exception, ExceptionValue)
    return error.exception


def as_exception(tx: Interpreter, value: Value) -> ExceptionValue:
    """Returns the exception that ``raise value`` raises.  A class of exceptions is called without arguments."""
    if isinstance(value, StaticValue) and isinstance(value.obj, type) and issubclass(value.obj, BaseException):
        value = value.call(tx, [], {})
    if isinstance(value, ExceptionValue):
        value.install_guards(tx)
        return value
    if isinstance(value, (ConstantValue, TupleValue)):
        raise observed_exception(TypeError, "exceptions must derive from BaseException")
    raise Unsupported("exception", f"raise {value}")


class OuterExceptionValue(Value):
    """Stands for the exception that was being handled before; CPython keeps it on the stack below the present one."""


OUTER = OuterExceptionValue()


class TracebackValue(Value):
    """The traceback that ``__exit__`` receives; only Python has it."""

    always_true = True
    cls = types.TracebackType
