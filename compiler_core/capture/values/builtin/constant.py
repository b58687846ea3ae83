"""Python constants: numbers, strings, None, dtypes, devices, and immutable objects of the standard library.

What dates, fractions, paths and patterns compute is known at capture, except for what also depends on the file system,
the clock, the time zone or the context of decimal arithmetic: those attributes and operations break the graph.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import operator
import pathlib
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.values.base import (
    Args,
    Call,
    Kwargs,
    NamedMethodValue,
    ObservedException,
    Value,
    missing_attribute,
    observed_exception,
    to_index,
    type_errors_left_to_python,
)
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import Box, call_item
from compiler_core.guards.value_guards import LIBRARY_CONSTANTS, NUMPY_NUMBERS
from compiler_core.support.texts import safe_repr

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.guards.sources import Source


_CLOCKED = frozenset("today now utcnow fromtimestamp utcfromtimestamp timestamp astimezone strftime".split())
"""Methods of dates that depend on the clock, the time zone or the locale."""
_EXACT = frozenset({
    "as_tuple", "as_integer_ratio", "is_finite", "is_infinite", "is_nan", "is_signed", "is_zero", "real", "imag",
    "__class__", "__float__", "__int__", "__hash__", "__bool__",
})  # fmt: skip
"""Attributes of decimals that do not depend on the context of decimal arithmetic."""
_EXACT_FUNCTIONS = frozenset(
    {operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, float, int, bool, hash}
)

CONSTRUCTORS: tuple[Any, ...] = (
    fractions.Fraction, datetime.timedelta, datetime.date, datetime.time, datetime.datetime,
    pathlib.PurePath, pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.Path,
)  # fmt: skip
"""Classes whose calls depend only on their arguments."""


def is_plain_object(obj: Any) -> bool:
    """Whether `obj` is of such a type; a time with a time zone, whose rules may change, is not."""
    return type(obj) in LIBRARY_CONSTANTS and getattr(obj, "tzinfo", None) is None


def check_attribute(obj: Any, name: str) -> None:
    """Raises Unsupported if an attribute of a plain object depends on more than the object."""
    impure = name in _CLOCKED if isinstance(obj, (datetime.date, datetime.time)) else False
    if isinstance(obj, pathlib.PurePath):
        impure = name not in dir(pathlib.PurePath)
    if isinstance(obj, decimal.Decimal):
        impure = name not in _EXACT
    if impure:
        raise Unsupported(
            "unsupported attribute", f"{type(obj).__name__}.{name}, which depends on more than the object"
        )


def check_arguments(function: Any, arguments: Sequence[Any]) -> None:
    """Raises Unsupported for calls that depend on the context of decimal arithmetic, or on the locale."""
    types = {type(each) for each in arguments}
    if decimal.Decimal in types and (float in types or function not in _EXACT_FUNCTIONS):
        raise Unsupported("unsupported operation", "decimal arithmetic, which depends on its context")
    if function is format and isinstance(arguments[0], (datetime.date, datetime.time)) and any(arguments[1:]):
        raise Unsupported("unsupported operation", "the format of a date, which depends on the locale")


ATOMS = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), type(NotImplemented))
TORCH_ATOMS = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo, torch.iinfo)
NUMPY_ATOMS = (*NUMPY_NUMBERS, *((sys.modules["numpy"].dtype,) if NUMPY_NUMBERS else ()))


UNSUPPORTED_EXCEPTIONS = (UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError, BaseExceptionGroup)
"""Their arguments are checked or changed, or contain other exceptions."""


def is_instance(obj: Any, classes: Any) -> bool:
    """``isinstance(obj, classes)`` by ``type(obj)``: a mock may have another ``__class__``."""
    return issubclass(type(obj), classes)


def is_atom(obj: Any) -> bool:
    """Whether `obj` is immutable, compares by value, and can be a constant of a graph or a code object."""
    return type(obj) in ATOMS or is_instance(obj, (*TORCH_ATOMS, *NUMPY_ATOMS, enum.Enum)) or is_plain_object(obj)


class ConstantValue(Value):
    """A constant.

    A constant from outside is guarded when something first depends on its value, so a number that is only passed on
    causes no recompile.
    """

    def __init__(self, value: Any, source: Source | None = None) -> None:
        self.value = value
        self.source = source

    def __repr__(self) -> str:
        return safe_repr(self.value)

    def python_type(self) -> type:
        return type(self.value)

    def install_guards(self, tx: Interpreter) -> None:
        tx.guards.add("EQUALS_MATCH", self.source, self.value)

    def guard_type(self, tx: Interpreter) -> None:
        """Adds the guards under which the type stays the same.  Other numbers than NumPy's are guarded by value."""
        if self.source is not None and issubclass(self.python_type(), NUMPY_NUMBERS):
            tx.guards.add("TYPE_MATCH", self.source, self.value)
        else:
            self.install_guards(tx)

    def is_constant(self) -> bool:
        return True

    def constant(self, tx: Interpreter) -> Any:
        self.install_guards(tx)
        return self.value

    def truth(self, tx: Interpreter) -> bool:
        return bool(self.constant(tx))

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name == "__class__":
            self.guard_type(tx)
            return tx.outside.wrap(self.python_type())
        if name == "item" and issubclass(self.python_type(), NUMPY_NUMBERS):
            return NamedMethodValue(self, name)
        obj = self.constant(tx)
        if isinstance(obj, enum.Enum):
            return tx.enum_attribute(self, name)
        check_attribute(obj, name)
        try:
            found = getattr(obj, name)
        except AttributeError:
            raise missing_attribute(type(obj), name) from None
        if is_atom(found):
            return ConstantValue(found)
        if callable(found):
            return NamedMethodValue(self, name)
        if is_plain_object(obj):
            return tx.from_python(found)
        raise Unsupported("unsupported attribute", f"{obj!r}.{name}")

    def forwarded_call(self, tx: Interpreter, args: Args, kwargs: Kwargs) -> Call | None:
        """Calls the ``__call__`` of a member of an enum."""
        if isinstance(self.value, enum.Enum) and callable(self.value):
            return tx.enum_attribute(self, "__call__"), list(args), kwargs
        return None

    def call_method(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "item" and not args and not kwargs and issubclass(self.python_type(), NUMPY_NUMBERS):
            return tx.fold(call_item, [self])
        obj = self.constant(tx)
        if isinstance(obj, str) and name == "join" and len(args) == 1:
            with type_errors_left_to_python("the argument of str.join"):
                args = [tx.new_list(tx.list_of(args[0]))]
        if isinstance(obj, str) and name == "format":
            return tx.format_text(obj, args, kwargs)
        if type(obj) is re.Pattern and name == "sub":
            return tx.call_static(re.sub, [self, *args], kwargs)
        if type(obj) is re.Pattern:
            check_plain(getattr(obj, name), args, kwargs)
        return tx.fold(getattr(obj, name), args, kwargs)

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        return tx.fold(operator.getitem, [self, to_index(tx, key)])

    def contains(self, tx: Interpreter, item: Value) -> bool:
        return tx.fold(operator.contains, [self, item]).truth(tx)

    def length(self, tx: Interpreter) -> int:
        found: int = tx.fold(len, [self]).constant(tx)
        return found

    def unpack(self, tx: Interpreter) -> list[Value]:
        obj = self.constant(tx)
        if not isinstance(obj, (str, bytes)):
            raise observed_exception(TypeError, f"{type(obj).__name__!r} object is not iterable")
        return [ConstantValue(v) for v in obj]

    def iterate(self, tx: Interpreter) -> Value:
        return tx.new_iterator(self.unpack(tx), self)

    def same_object(self, other: Value) -> bool:
        if not isinstance(other, ConstantValue) or other.python_type() is not self.python_type():
            return False  # and a number or text that is symbolic stays so: reading its value specialises the frame
        return self.value is other.value

    def reconstruct(self, emit: Emitter) -> None:
        if type(self.value) is str and sys.intern(self.value) is not self.value:
            # code objects intern constants that could be identifiers, which would change the string's identity
            emit.constant(Box(self.value))
            emit.load_attr("value")
        else:
            emit.constant(self.value)


class MatchValue(ConstantValue):
    """The match of a regular expression that the frame has made."""

    def reconstruct(self, emit: Emitter) -> None:
        raise Unsupported("unsupported operation", "a match of a regular expression is needed after a graph break")


NONE = ConstantValue(None)


def is_not_implemented(value: Value) -> bool:
    """``value is NotImplemented``"""
    return value.same_object(ConstantValue(NotImplemented))


def check_plain(function: Any, args: Args, kwargs: Kwargs) -> None:
    """Raises Unsupported if an argument is not a constant but, for instance, a function that would be called."""
    if not all(isinstance(each, ConstantValue) for each in (*args, *kwargs.values())):
        raise Unsupported("skipped function", f"{function.__name__}() with these arguments")


@contextmanager
def errors_of_program(*kinds: type[Exception]) -> Iterator[None]:
    """Context manager for a computation with constants: what it raises of these kinds, the program raises there."""
    try:
        yield
    except kinds as error:
        raise exception_from_error(error) from None


def exception_from_error(error: Exception) -> ObservedException | Unsupported:
    """Returns what to raise for an exception that a computation with constants raised."""
    if isinstance(error, UNSUPPORTED_EXCEPTIONS) or not all(map(is_atom, error.args)):
        return Unsupported("exception", f"{type(error).__name__}: {error}")
    return observed_exception(type(error), *error.args)
