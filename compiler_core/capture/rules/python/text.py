"""Rules for text: str, repr, ascii, format, f-strings and ``%``."""

from __future__ import annotations

import operator
import re
import types
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.rules.table import handles, handles_each
from compiler_core.capture.values.base import Value, observed_exception
from compiler_core.capture.values.builtin.constant import ConstantValue, MatchValue, check_plain
from compiler_core.capture.values.builtin.mappings import DictValue, key_value
from compiler_core.capture.values.builtin.sequences import ListValue, TupleValue
from compiler_core.capture.values.builtin.static import evaluate, fold
from compiler_core.capture.values.builtin.symbols import ReadValue, SymbolicText, symbolic_text
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.exceptions import PARSING_EXCEPTIONS, ExceptionValue, builtin_base
from compiler_core.capture.values.user.functions import FunctionValue, MethodValue
from compiler_core.capture.values.user.objects import ObjectValue, SubclassValue, type_or_object
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


@handles_each(re.match, re.search, re.fullmatch, re.findall, re.split, re.sub, re.subn, re.escape, re.compile)
def _regular_expression(fn: Any, tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
    if fn is re.sub and len(args) == 3 and not kwargs and not isinstance(args[1], ConstantValue):
        return _substituted(tx, *args)
    check_plain(fn, args, kwargs)
    return fold(tx, fn, args, kwargs)


def _substituted(tx: Interpreter, pattern: Value, function: Value, text: Value) -> Value:
    """``re.sub(pattern, function, text)``, which calls the function for each match."""
    parts, end, string = [], 0, text.constant(tx)
    for match in re.finditer(pattern.constant(tx), string):
        parts += [string[end : match.start()], _require_str(function.call(tx, [MatchValue(match)], {}))]
        end = match.end()
    return ConstantValue("".join([*parts, string[end:]]))


class FormatProxy:
    """Stands for a value while Python formats a text; supports only conversion to text."""

    def __init__(self, tx: Interpreter, value: Value) -> None:
        self._tx = tx
        self._value = value

    def __str__(self) -> str:
        return text_of(self._tx, self._value)

    def __repr__(self) -> str:
        return repr_of(self._tx, self._value)

    def __format__(self, spec: str) -> str:
        return format_of(self._tx, self._value, spec)

    def __getattr__(self, name: str) -> Any:
        return format_operand(self._tx, self._value.get_attr(self._tx, name))

    def __getitem__(self, key: Any) -> Any:
        return format_operand(self._tx, self._value.get_item(self._tx, ConstantValue(key)))

    def _unknown(self, *args: Any) -> Any:
        if isinstance(self._value, TensorValue):
            raise Unsupported("tensor value read", "formatting a tensor")
        raise Unsupported("unsupported operation", f"formatting {self._value} as something other than text")

    __int__ = __index__ = __float__ = _unknown


def format_operand(tx: Interpreter, value: Value) -> Any:
    """Returns the object that Python formats in place of `value`: the constant, or a `FormatProxy`."""
    if isinstance(value, ConstantValue) or (value.is_constant() and not isinstance(value, TupleValue)):
        return value.constant(tx)
    if isinstance(value, ReadValue):
        raise Unsupported("tensor value read", f"formatting {value}")
    return FormatProxy(tx, value)


def as_text(tx: Interpreter, value: Value) -> Value:
    """``str(value)``, which stays symbolic if it is made from sizes."""
    if isinstance(value, ObjectValue) and (method := value.special_method(tx, "__str__")) is not None:
        text = method.call(tx, [], {})
        return text if isinstance(text, SymbolicText) else ConstantValue(_require_str(text))
    if isinstance(value, ExceptionValue) and builtin_base(value.cls).__str__ is BaseException.__str__:
        args = value.all_args(tx)
        if len(args) == 1:
            return as_text(tx, args[0])
    return symbolic_text(str, tx, value) or ConstantValue(text_of(tx, value))


def text_of(tx: Interpreter, value: Value) -> str:
    """``str(value)``"""
    if isinstance(value, ObjectValue) and value.special_method(tx, "__str__") is not None:
        return _require_str(as_text(tx, value))
    if isinstance(value, ExceptionValue):
        return exception_text(tx, value)
    if isinstance(value, DictValue) and value.cls is types.MappingProxyType:
        return text_of(tx, value.target(tx))
    return repr_of(tx, value) if not value.is_constant() else str(value.constant(tx))


def exception_text(tx: Interpreter, exception: ExceptionValue) -> str:
    """``str(exception)`` for an exception whose class defines no ``__str__`` in Python."""
    args, base = exception.all_args(tx), builtin_base(exception.cls)
    if base.__str__ is BaseException.__str__:
        if not args:
            return ""
        return text_of(tx, args[0] if len(args) == 1 else TupleValue(args))
    if exception.source is not None and issubclass(base, PARSING_EXCEPTIONS):  # its text depends on more than `args`
        raise Unsupported("unsupported call", f"str of {exception.cls.__name__}")
    return str(base(*(format_operand(tx, a) for a in args)))


def repr_of(tx: Interpreter, value: Value) -> str:
    """``repr(value)``"""
    if isinstance(value, TensorValue):
        raise Unsupported("tensor value read", "a tensor as text")
    if isinstance(value, (ListValue, TupleValue)) and value.cls in (list, tuple):
        return _sequence(tx, value)
    if isinstance(value, DictValue) and value.cls is dict:
        items = value.mapping(tx).items()
        return "{" + ", ".join(f"{repr_of(tx, key_value(tx, k))}: {repr_of(tx, v)}" for k, v in items) + "}"
    if isinstance(value, DictValue) and value.cls is types.MappingProxyType:
        return f"mappingproxy({repr_of(tx, value.target(tx))})"
    if isinstance(value, ObjectValue) and isinstance(method := value.special_method(tx, "__repr__"), MethodValue):
        return _require_str(_without_recursion_check(method).call(tx, [], {}))
    if isinstance(value, SubclassValue) and type(value.contents) in (DictValue, ListValue, TupleValue):
        return repr_of(tx, value.contents)
    if isinstance(value, ExceptionValue):
        args = value.all_args(tx)
        inside = f"({repr_of(tx, args[0])})" if len(args) == 1 else repr_of(tx, TupleValue(args))
        return f"{value.cls.__name__}{inside}"
    return repr(value.constant(tx))


def _sequence(tx: Interpreter, value: ListValue | TupleValue) -> str:
    parts = [repr_of(tx, v) for v in value.unpack(tx)]
    if value.cls is list:
        return f"[{', '.join(parts)}]"
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def format_of(tx: Interpreter, value: Value, spec: str) -> str:
    """``format(value, spec)``"""
    if isinstance(value, TensorValue):
        raise Unsupported("tensor value read", "formatting a tensor")
    if isinstance(value, ObjectValue) and (method := value.special_method(tx, "__format__")) is not None:
        return _require_str(method.call(tx, [ConstantValue(spec)], {}))
    if isinstance(value, (ObjectValue, ListValue, DictValue, TupleValue)):
        if spec:
            name = value.python_type().__name__
            raise observed_exception(TypeError, f"unsupported format string passed to {name}.__format__")
        return text_of(tx, value)
    return _require_str(fold(tx, format, [value, ConstantValue(spec)]))


def percent_format(tx: Interpreter, template: str, value: Value) -> Value:
    """``template % value``"""
    if (symbolic := symbolic_text(operator.mod, tx, ConstantValue(template), value)) is not None:
        return symbolic
    if isinstance(value, TupleValue) and issubclass(value.cls, tuple):
        return evaluate(lambda: template % tuple(format_operand(tx, v) for v in value.unpack(tx)))
    if isinstance(value, DictValue):
        return evaluate(lambda: template % {k: format_operand(tx, v) for k, v in value.mapping(tx).items()})
    if isinstance(value, SubclassValue) and isinstance(value.contents, TupleValue):
        return percent_format(tx, template, value.contents)
    if issubclass(type_or_object(value), tuple):
        raise Unsupported("unsupported operation", f"a text % {value}")
    return evaluate(lambda: template % format_operand(tx, value))


def _require_str(value: Value) -> str:
    if isinstance(value, ConstantValue) and type(value.value) is str:
        return value.value
    raise Unsupported("unsupported operation", f"{value} as text")


def _without_recursion_check(method: Value) -> Value:
    """Removes the wrapper of a dataclass's ``__repr__``, which checks for recursion by thread and id."""
    function = method.function if isinstance(method, MethodValue) else None
    if isinstance(function, FunctionValue) and function.fn is not None:
        inner = getattr(function.fn, "__wrapped__", None)
        filename = function.code.co_filename
        if isinstance(inner, types.FunctionType) and filename.endswith(("dataclasses.py", "reprlib.py")):
            assert isinstance(method, MethodValue)
            return MethodValue(FunctionValue(inner.__code__, inner.__globals__, inner.__qualname__,
                closure=function.closure[:0], fn=inner), method.owner)  # fmt: skip
    return method


@handles(str)
def _str(tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    if len(args) != 1 or kwargs:
        return fold(tx, str, args, kwargs)
    if isinstance(args[0], TensorValue):
        raise Unsupported("tensor value read", "str(tensor)")
    return as_text(tx, args[0])


@handles(repr)
def _repr(tx: Interpreter, obj: Value) -> Value:
    return symbolic_text(repr, tx, obj) or ConstantValue(repr_of(tx, obj))


@handles(ascii)
def _ascii(tx: Interpreter, obj: Value) -> Value:
    return ConstantValue(ascii(format_operand(tx, obj)))


@handles(format)
def _format(tx: Interpreter, obj: Value, spec: Value | None = None) -> Value:
    if type(obj) is TensorValue and obj.python_type() is torch.Tensor and not obj.fake(tx).dim():
        obj = tx.item_of(obj)
    if (symbolic := symbolic_text(format, tx, obj, *([] if spec is None else [spec]))) is not None:
        return symbolic
    form = "" if spec is None else spec.constant(tx)
    if not form and isinstance(obj, ObjectValue) and obj.special_method(tx, "__format__") is None:
        return as_text(tx, obj)
    return ConstantValue(format_of(tx, obj, form))
