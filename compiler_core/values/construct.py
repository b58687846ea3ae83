"""Calls of classes whose instances are plain Python objects, namedtuples or members of enums."""

from __future__ import annotations

import enum
import inspect
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.errors import Unsupported
from compiler_core.values.base import Value
from compiler_core.values.constant import ConstantValue, fold
from compiler_core.values.exceptions import construct_exception
from compiler_core.values.functions import FunctionValue
from compiler_core.values.objects import ObjectValue
from compiler_core.values.rules import name_of
from compiler_core.values.sequences import TupleValue

if TYPE_CHECKING:
    from compiler_core.symbolic import Interpreter


def construct(tx: Interpreter, cls: type, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """``cls(...)`` for classes whose instances are plain Python objects, namedtuples and enums."""
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _namedtuple(tx, cls, args, kwargs)
    if issubclass(cls, enum.Enum) and len(args) == 1:
        return fold(tx, cls, args, kwargs)
    if issubclass(cls, BaseException):
        return construct_exception(tx, cls, args, kwargs)
    plain = type(cls) is type and cls.__new__ is object.__new__ and "__slots__" not in vars(cls)
    init = inspect.getattr_static(cls, "__init__")
    refused = (torch.nn.Module, torch.Tensor, torch.autograd.Function)
    if not plain or issubclass(cls, refused) or cls.__module__.startswith("torch."):
        raise Unsupported("skipped function", f"{name_of(cls)}()")
    made = ObjectValue(cls)
    if isinstance(init, types.FunctionType):
        result = FunctionValue.outside(tx.capture, init, None).call(tx, [made, *args], kwargs)
        if not ConstantValue(None).same_object(result):
            raise Unsupported("exception", "__init__() should return None")
    elif init is not object.__init__ or args or kwargs:
        raise Unsupported("unsupported call", f"{name_of(cls)}()")
    return made


def _namedtuple(tx: Interpreter, cls: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    values = dict(zip(cls._fields, args, strict=False)) | dict(kwargs)
    for name in cls._fields:
        if name not in values:
            if name not in cls._field_defaults:
                raise Unsupported("exception", f"{cls.__name__}() is missing {name!r}")
            values[name] = tx.capture.wrap_static(cls._field_defaults[name])
    if len(args) > len(cls._fields) or values.keys() - set(cls._fields):
        raise Unsupported("exception", f"{cls.__name__}() got the wrong arguments")
    return TupleValue([values[n] for n in cls._fields], cls)
