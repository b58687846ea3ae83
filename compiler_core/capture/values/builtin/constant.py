"""Python constants: numbers, strings, None, dtypes, devices and the like."""

from __future__ import annotations

import enum
import operator
import re
import sys
import types
import typing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.values.base import ObservedException, Value, observed_exception, to_index
from compiler_core.capture.values.builtin.methods import NamedMethodValue
from compiler_core.capture.values.builtin.plain_objects import check_arguments, check_attribute, is_plain_object
from compiler_core.errors import Unsupported
from compiler_core.guards.constants import NUMPY_NUMBERS
from compiler_core.guards.sources import Box
from compiler_core.support.safe_repr import safe_repr
from compiler_core.support.silenced_warnings import silenced

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.guards.sources import Source

ATOMS = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), type(NotImplemented))
TORCH_ATOMS = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo, torch.iinfo)


UNSUPPORTED_EXCEPTIONS = (UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError, BaseExceptionGroup)
"""Their arguments are checked or changed, or contain other exceptions."""


def is_instance(obj: Any, classes: Any) -> bool:
    """``isinstance(obj, classes)`` by ``type(obj)``: a mock may have another ``__class__``."""
    return issubclass(type(obj), classes)


def is_atom(obj: Any) -> bool:
    """Whether `obj` is immutable, compares by value, and can be a constant of a graph or a code object."""
    return type(obj) in ATOMS or is_instance(obj, (*TORCH_ATOMS, *NUMPY_NUMBERS, enum.Enum)) or is_plain_object(obj)


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
        if self.source is not None:
            tx.capture.guards.add("EQUALS_MATCH", self.source, self.value)

    def is_constant(self) -> bool:
        return True

    def constant(self, tx: Interpreter) -> Any:
        self.install_guards(tx)
        return self.value

    def truth(self, tx: Interpreter) -> bool:
        return bool(self.constant(tx))

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        obj = self.constant(tx)
        if isinstance(obj, enum.Enum):
            return tx.enum_attribute(self, name)
        check_attribute(obj, name)
        try:
            found = getattr(obj, name)
        except AttributeError:
            raise observed_exception(
                AttributeError, f"{type(obj).__name__!r} object has no attribute {name!r}"
            ) from None
        if is_atom(found):
            return ConstantValue(found)
        if callable(found):
            return NamedMethodValue(self, name)
        if is_plain_object(obj):
            return from_python(found)
        raise Unsupported("unsupported attribute", f"{obj!r}.{name}")

    def forwarded_call(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Value, list[Value], dict[str, Value]] | None:
        """Calls the ``__call__`` of a member of an enum."""
        if isinstance(self.value, enum.Enum) and callable(self.value):
            return tx.enum_attribute(self, "__call__"), list(args), kwargs
        return None

    def call_method(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        obj = self.constant(tx)
        if isinstance(obj, str) and name == "join" and len(args) == 1:
            from compiler_core.capture.values.builtin.sequences import ListValue

            return fold(tx, obj.join, [ListValue(tx.list_of(args[0]))], {})
        if isinstance(obj, str) and name == "format":
            return _formatted(tx, obj, args, kwargs)
        if type(obj) is re.Pattern:
            check_plain(getattr(obj, name), args, kwargs)
        return fold(tx, getattr(obj, name), args, kwargs)

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        return fold(tx, operator.getitem, [self, to_index(tx, key)], {})

    def contains(self, tx: Interpreter, item: Value) -> bool:
        return fold(tx, operator.contains, [self, item], {}).truth(tx)

    def length(self, tx: Interpreter) -> int:
        found: int = fold(tx, len, [self], {}).constant(tx)
        return found

    def unpack(self, tx: Interpreter) -> list[Value]:
        obj = self.constant(tx)
        if not isinstance(obj, (str, bytes)):
            raise observed_exception(TypeError, f"{type(obj).__name__!r} object is not iterable")
        return [ConstantValue(v) for v in obj]

    def iterate(self, tx: Interpreter) -> Value:
        from compiler_core.capture.values.builtin.iterators import IteratorValue

        return IteratorValue(self.unpack(tx), self)

    def same_object(self, other: Value) -> bool:
        return isinstance(other, ConstantValue) and self.value is other.value

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


def check_plain(function: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> None:
    """Raises Unsupported if an argument is not a constant but, for instance, a function that would be called."""
    if not all(isinstance(each, ConstantValue) for each in (*args, *kwargs.values())):
        raise Unsupported("skipped function", f"{function.__name__}() with these arguments")


def _formatted(tx: Interpreter, obj: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    from compiler_core.capture.values.builtin.symbols import symbolic_text

    if not kwargs and (symbolic := symbolic_text(str.format, tx, ConstantValue(obj), *args)) is not None:
        return symbolic
    return evaluate(
        lambda: obj.format(
            *(tx.format_operand(a) for a in args), **{k: tx.format_operand(v) for k, v in kwargs.items()}
        )
    )


def fold(tx: Interpreter, fn: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Calls `fn`, which must have no side effect, on constants, or on symbolic numbers if it is arithmetic."""
    from compiler_core.capture.values.builtin.symbols import arithmetic, is_symbolic

    if not kwargs and is_symbolic(args) and (found := arithmetic(fn, tx, args)) is not None:
        return found
    raw = [a.constant(tx) for a in args]
    raw_kwargs = {k: v.constant(tx) for k, v in kwargs.items()}
    check_arguments(fn, raw)
    return evaluate(lambda: fn(*raw, **raw_kwargs))


def evaluate(compute: Callable[[], Any]) -> Value:
    """Calls `compute`; returns its result as a value, or raises its exception as an observed one.

    A computation that warns is left to Python, which warns in each call.
    """
    before = len(silenced())
    try:
        result = compute()
    except (Unsupported, RecursionError):
        raise
    except Exception as error:
        raise exception_from_error(error) from None
    if len(warned := silenced()) > before:
        raise Unsupported("unsupported operation", f"a computation that warns: {warned[-1].message}")
    return from_python(result)


def exception_from_error(error: Exception) -> ObservedException | Unsupported:
    """Returns what to raise for an exception that a computation with constants raised."""
    if isinstance(error, UNSUPPORTED_EXCEPTIONS) or not all(map(is_atom, error.args)):
        return Unsupported("exception", f"{type(error).__name__}: {error}")
    return observed_exception(type(error), *error.args)


def from_python(obj: Any) -> Value:
    """Returns the value of a new Python object that capture computed."""
    from compiler_core.capture.values.builtin.mappings import DictValue
    from compiler_core.capture.values.builtin.sequences import ListValue, RangeValue, SliceValue, TupleValue
    from compiler_core.capture.values.builtin.sets import SetValue
    from compiler_core.capture.values.builtin.static import StaticValue
    from compiler_core.capture.values.builtin.symbols import from_number

    if is_atom(obj):
        return ConstantValue(obj)
    if isinstance(obj, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return from_number(obj)
    if type(obj) in (tuple, torch.Size):
        return TupleValue([from_python(v) for v in obj], type(obj))
    if type(obj) is list:
        return ListValue([from_python(v) for v in obj])
    if type(obj) is dict:
        return DictValue({k: from_python(v) for k, v in obj.items()})
    if type(obj) in (types.UnionType, types.GenericAlias) or isinstance(obj, typing._GenericAlias):  # type: ignore[attr-defined]
        return StaticValue(obj)
    if type(obj) in (set, frozenset):
        return SetValue.from_members(obj)
    if type(obj) is range:
        return RangeValue(obj)
    if type(obj) is re.Match:
        return MatchValue(obj)
    if type(obj) is slice:
        return SliceValue([from_python(v) for v in (obj.start, obj.stop, obj.step)])
    raise Unsupported("unsupported operation", f"a new object of type {type(obj).__name__}")
