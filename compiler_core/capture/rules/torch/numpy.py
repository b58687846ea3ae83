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

from compiler_core.capture.rules.table import HANDLERS, handles, handles_each
from compiler_core.capture.rules.torch import functions as torch_functions  # noqa: F401  (its rules are wrapped here)
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import ConstantValue, exception_from_error
from compiler_core.capture.values.builtin.sequences import SequenceValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import AttrSource, NumpyTensorSource, Source
from compiler_core.guards.value_guards import NUMPY_NUMBERS

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter

numpy: Any = sys.modules.get("numpy")  # PyTorch imports it where it is installed
# functions and classes of NumPy that compute numbers from numbers
_PURE_NAMES = (
    "prod sum max min mean sqrt exp log log2 log10 sin cos tan tanh arctan floor ceil trunc round abs absolute sign "
    "power maximum minimum isnan isinf isfinite float16 float32 float64 int8 int16 int32 int64 uint8 bool_"
).split()
PURE_FUNCTIONS = frozenset() if numpy is None else frozenset(getattr(numpy, name) for name in _PURE_NAMES)
FUNCTION_TYPES: tuple[type, ...] = () if numpy is None else (numpy.ufunc, type(numpy.prod))
ARRAY: Any = None if numpy is None else numpy.ndarray


def is_numpy_call(function: Any, args: Sequence[Value]) -> bool:
    """Whether it is a function of NumPy that gets an array or a tensor."""
    is_of_numpy = isinstance(function, FUNCTION_TYPES) or (
        isinstance(function, (types.FunctionType, types.BuiltinFunctionType)) and function.__module__ == "numpy"
    )
    return is_of_numpy and any(isinstance(each, (ArrayValue, TensorValue)) for each in args)


class ArrayValue(Value):
    """A ``numpy.ndarray`` from outside."""

    source: Source

    def __init__(self, real: Any, source: Source) -> None:
        self.real = real
        self.source = source
        self._count = 0
        self._first: torch.Tensor | None = None
        """The first tensor that was made of the array; further ones are made from it, and so share its storage."""

    def __repr__(self) -> str:
        return self.source.text

    def python_type(self) -> type:
        return type(self.real)

    def install_guards(self, tx: Interpreter) -> None:
        tx.capture.guards.add("TYPE_MATCH", self.source, self.real)

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        self.install_guards(tx)
        if name in ("shape", "ndim", "size"):
            return tx.capture.outside.wrap(getattr(self.real, name), AttrSource(self.source, name))
        raise Unsupported("NumPy", f"ndarray.{name}")

    def length(self, tx: Interpreter) -> int:
        return self.get_attr(tx, "shape").get_item(tx, ConstantValue(0)).constant(tx)  # type: ignore[no-any-return]

    def shared_tensor(self, tx: Interpreter) -> TensorValue:
        """Returns a new tensor that shares the array's memory.

        Raises Unsupported if `torch.from_numpy` refuses the array, or warns of it because it is read-only.
        """
        self.install_guards(tx)
        try:
            if not self.real.flags.writeable:
                raise TypeError("PyTorch warns of arrays that are not writable")
            self._first = torch.from_numpy(self.real) if self._first is None else self._first
        except (TypeError, ValueError) as error:
            raise Unsupported("unsupported call", f"torch.from_numpy: {error}") from None
        self._count += 1
        return ArrayTensorValue(source=NumpyTensorSource(self.source, self._count), real=self._first.detach())


class ArrayTensorValue(TensorValue):
    """The tensor that ``torch.from_numpy`` makes of an outside array, once in each call."""

    def reconstruct(self, emit: Emitter) -> None:
        assert self.source is not None
        self.source.load(emit)


@handles(torch.from_numpy)
def _from_numpy(tx: Interpreter, array: Value) -> Value:
    if not isinstance(array, ArrayValue):
        raise Unsupported("unsupported call", f"torch.from_numpy({array})")
    return array.shared_tensor(tx)


if numpy is not None:

    @handles_each(numpy.finfo, numpy.iinfo)
    def _limits(cls: Any, tx: Interpreter, dtype: Value) -> Value:
        try:
            return StaticValue(cls(dtype.constant(tx)))
        except (TypeError, ValueError) as error:
            raise exception_from_error(error) from None


def _tensor(rule: Any, tx: Interpreter, data: Value, **kwargs: Value) -> Value:
    """``torch.tensor``, which takes the dtype of NumPy's numbers and copies arrays"""
    if isinstance(data, ArrayValue) and not kwargs:
        return tx.capture.graph.call_method(tx, "clone", [data.shared_tensor(tx)], {})
    return rule(tx, data, **_with_dtype(tx, data, kwargs))  # type: ignore[no-any-return]


def _as_tensor(rule: Any, tx: Interpreter, data: Value, *args: Value, **kwargs: Value) -> Value:
    """``torch.as_tensor``, which shares the memory of arrays"""
    if isinstance(data, ArrayValue) and not kwargs and not args:
        return data.shared_tensor(tx)
    if not args:
        kwargs = _with_dtype(tx, data, kwargs)
    return rule(tx, data, *args, **kwargs)  # type: ignore[no-any-return]


def _with_dtype(tx: Interpreter, data: Value, kwargs: dict[str, Value]) -> dict[str, Value]:
    if isinstance(data, ArrayValue):
        raise Unsupported("unsupported call", "a tensor of a NumPy array with these arguments")
    if not _has_numpy(tx, data) or "dtype" in kwargs:
        return kwargs
    if not isinstance(data, ConstantValue):
        raise Unsupported("unsupported call", "a tensor of NumPy's numbers in a list")
    dtype = torch.from_numpy(numpy.zeros(1, data.constant(tx).dtype)).dtype
    return {**kwargs, "dtype": ConstantValue(dtype)}


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
