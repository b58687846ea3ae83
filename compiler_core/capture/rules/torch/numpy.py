"""Rules for NumPy: arrays from outside that become tensors, and functions of numbers.

NumPy's numbers are constants (`capture/values/builtin/constant.py`).  The contents of arrays are not captured: PyTorch
makes a tensor that shares the array's memory, which becomes an input of the graph.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.rules.table import HANDLERS, handles, handles_each, name_of
from compiler_core.capture.rules.torch import functions as torch_functions  # noqa: F401  (its rules are wrapped here)
from compiler_core.capture.values.arrays import (
    FUNCTIONS,
    UFUNCS,
    ArrayValue,
    ReversedValue,
    call_named,
    call_ufunc,
    has_array,
    reversed_by,
)
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue, exception_from_error
from compiler_core.capture.values.builtin.sequences import SequenceValue
from compiler_core.capture.values.builtin.static import StaticValue, fold
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.errors import Unsupported
from compiler_core.guards.value_guards import NUMPY_NUMBERS

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

numpy: Any = sys.modules.get("numpy")  # PyTorch imports it where it is installed
# functions and classes of NumPy that compute numbers from numbers
_PURE_NAMES = (
    "prod sum max min mean clip round sign float16 float32 float64 int8 int16 int32 int64 uint8 bool_ "
    "dtype promote_types result_type can_cast"
).split()
PURE_FUNCTIONS = frozenset() if numpy is None else frozenset([*UFUNCS, *(getattr(numpy, n) for n in _PURE_NAMES)])
NO_FUNCTIONS = ("flatten", "astype")
"""Methods of arrays that are no functions, or are in later versions of NumPy only."""
MAKE_ARRAYS = frozenset("zeros ones empty full eye identity arange linspace array".split())
_NAMES = {} if numpy is None else {getattr(numpy, n): n for n in FUNCTIONS if n not in NO_FUNCTIONS}
FUNCTION_TYPES: tuple[type, ...] = () if numpy is None else (numpy.ufunc, type(numpy.prod))


def is_numpy_call(function: Any, args: Sequence[Value]) -> bool:
    """Whether it is a function of NumPy that gets an array or a tensor."""
    is_of_numpy = isinstance(function, FUNCTION_TYPES) or (
        isinstance(function, (types.FunctionType, types.BuiltinFunctionType)) and function.__module__ == "numpy"
    )
    return is_of_numpy and any(isinstance(each, (TensorValue, ReversedValue)) or has_array(each) for each in args)


@handles(torch.from_numpy)
def _from_numpy(tx: Interpreter, array: Value) -> Value:
    if not isinstance(array, ArrayValue):
        raise Unsupported("unsupported call", f"torch.from_numpy({array})")
    if array.is_number:
        raise Unsupported("exception", "torch.from_numpy of a number")
    return array.new_tensor(tx)


if numpy is not None:

    @handles_each(*UFUNCS)
    def _ufunc(fn: Any, tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
        if not any(map(has_array, [*args, *kwargs.values()])):
            return _of_numbers(fn, tx, args, kwargs)
        return call_ufunc(tx, fn, args, kwargs)

    @handles_each(*{getattr(numpy, name) for name in FUNCTIONS if name not in NO_FUNCTIONS})
    def _function(fn: Any, tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
        name = _NAMES[fn]
        if name in MAKE_ARRAYS or any(map(has_array, [*args, *kwargs.values()])):
            return call_named(tx, name, args, kwargs)
        return _of_numbers(fn, tx, args, kwargs)

    def _of_numbers(fn: Any, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if fn in PURE_FUNCTIONS and not is_numpy_call(fn, [*args, *kwargs.values()]):
            return fold(tx, fn, args, kwargs)
        raise Unsupported("NumPy", name_of(fn))

    @handles(numpy.asarray)
    def _asarray(tx: Interpreter, array: Value, dtype: Value = NONE) -> Value:
        if not isinstance(array, ArrayValue) or array.is_number:
            return call_named(tx, "array", [array, dtype], {})
        if tx.is_none(dtype) or array.get_attr(tx, "dtype").constant(tx) == numpy.dtype(dtype.constant(tx)):
            return array
        return array.call_method(tx, "astype", [dtype], {})

    @handles_each(numpy.ndim, numpy.shape, numpy.size)
    def _sizes(fn: Any, tx: Interpreter, array: Value) -> Value:
        if not isinstance(array, ArrayValue):
            raise Unsupported("NumPy", name_of(fn))
        return array.get_attr(tx, fn.__name__)

    @handles_each(numpy.issubdtype, numpy.isscalar)
    def _query(fn: Any, tx: Interpreter, *args: Value) -> Value:
        return fold(tx, fn, args, {})

    @handles_each(numpy.flip, numpy.fliplr, numpy.flipud)
    def _flip(fn: Any, tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
        return reversed_by(tx, fn, args, kwargs)

    @handles_each(numpy.finfo, numpy.iinfo)
    def _limits(cls: Any, tx: Interpreter, dtype: Value) -> Value:
        try:
            return StaticValue(cls(dtype.constant(tx)))
        except (TypeError, ValueError) as error:
            raise exception_from_error(error) from None


def _tensor(rule: Any, tx: Interpreter, data: Value, **kwargs: Value) -> Value:
    """``torch.tensor``, which takes the dtype of NumPy's numbers and copies arrays"""
    if isinstance(data, ArrayValue) and kwargs.keys() <= {"dtype"}:
        found = tx.capture.graph.call_method(tx, "to", [data.tensor(tx), *kwargs.values()]) if kwargs else data
        return tx.capture.graph.call_method(tx, "clone", [data.tensor(tx) if found is data else found])
    return rule(tx, data, **_with_dtype(tx, data, kwargs))  # type: ignore[no-any-return]


def _as_tensor(rule: Any, tx: Interpreter, data: Value, *args: Value, **kwargs: Value) -> Value:
    """``torch.as_tensor``, which shares the memory of arrays"""
    if isinstance(data, ArrayValue):
        found = data.new_tensor(tx)
        if data.is_number:
            return _tensor(rule, tx, data, **kwargs)
        return rule(tx, found, *args, **kwargs) if args or kwargs else found
    if not args:
        kwargs = _with_dtype(tx, data, kwargs)
    return rule(tx, data, *args, **kwargs)  # type: ignore[no-any-return]


def _with_dtype(tx: Interpreter, data: Value, kwargs: dict[str, Value]) -> dict[str, Value]:
    if isinstance(data, ArrayValue):
        raise Unsupported("unsupported call", "a tensor of a NumPy array with these arguments")
    if not _has_numpy(tx, data) or "dtype" in kwargs:
        return kwargs
    try:
        dtype = torch.tensor(_ones(tx, data), device="cpu").dtype
    except (TypeError, ValueError) as error:
        raise Unsupported("unsupported call", f"a tensor of NumPy's numbers: {error}") from None
    return {**kwargs, "dtype": ConstantValue(dtype)}


def _ones(tx: Interpreter, data: Value) -> Any:
    """Returns a one of the same type for each number."""
    if isinstance(data, SequenceValue):
        return [_ones(tx, each) for each in data.unpack(tx)]
    cls: Any = data.python_type()
    if not issubclass(cls, (int, float, complex, *NUMPY_NUMBERS)):
        raise Unsupported("unsupported call", f"a tensor of NumPy's numbers and {data}")
    data.guard_type(tx)
    return cls(1)


def _has_numpy(tx: Interpreter, data: Value) -> bool:
    if isinstance(data, SequenceValue):
        return any(_has_numpy(tx, v) for v in data.unpack(tx))
    return isinstance(data, ConstantValue) and issubclass(data.python_type(), NUMPY_NUMBERS)


def _wrap_rule(wrapper: Any, function: Any) -> None:
    """Replaces the rule of `function` by `wrapper`, which gets the rule as its first argument."""
    rule = HANDLERS[function]

    def wrapped(tx: Interpreter, data: Value, *args: Value, **kwargs: Value) -> Value:
        return wrapper(rule, tx, data, *args, **kwargs)  # type: ignore[no-any-return]

    HANDLERS[function] = wrapped


_wrap_rule(_tensor, torch.tensor)
_wrap_rule(_as_tensor, torch.as_tensor)
_wrap_rule(_as_tensor, torch.asarray)
