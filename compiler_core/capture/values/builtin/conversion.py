"""Conversion of what capture computes with constants: the value of a new Python object, or of what computing raises."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.values.base import Value, constants
from compiler_core.capture.values.builtin.constant import (
    ConstantValue,
    MatchValue,
    check_arguments,
    exception_from_error,
    is_atom,
)
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import ListValue, RangeValue, SliceValue, TupleValue
from compiler_core.capture.values.builtin.sets import SetValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.builtin.symbols import arithmetic, from_number, is_symbolic, symbolic_text
from compiler_core.errors import Unsupported
from compiler_core.support.eager_warnings import silenced

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


def format_text(tx: Interpreter, obj: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """``obj.format(*args, **kwargs)``"""
    if not kwargs and (symbolic := symbolic_text(str.format, tx, ConstantValue(obj), *args)) is not None:
        return symbolic
    return evaluate(
        lambda: obj.format(
            *(tx.format_operand(a) for a in args), **{k: tx.format_operand(v) for k, v in kwargs.items()}
        )
    )


def fold(tx: Interpreter, fn: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Calls `fn`, which must have no side effect, on constants, or on symbolic numbers if it is arithmetic."""
    if not kwargs and is_symbolic(args) and (found := arithmetic(fn, tx, args)) is not None:
        return found
    raw, raw_kwargs = constants(tx, args, kwargs)
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


def from_python(obj: Any) -> Value:
    """Returns the value of a new Python object that capture computed."""
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
