"""Arrays and numbers of NumPy whose contents a graph computes: each is a tensor of the graph, as NumPy's object.

NumPy itself says what an operation gives: while it is captured, it runs on arrays of ones of the same dtypes and
layouts.  The tensor must have the dtype and shape of that result, and be a view where it is one; the graph breaks where
it is not so.  NumPy warns of floating-point errors, which all give an infinity or NaN: a graph in which one appears
leaves the frame to Python.
"""

from __future__ import annotations

import inspect
import operator
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.values import numpy_functions
from compiler_core.capture.values.base import NamedMethodValue, ObservedException, Value, lookup_in_mro
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.sequences import ListValue, SliceValue, TupleValue
from compiler_core.capture.values.builtin.static import StaticValue, from_python
from compiler_core.capture.values.builtin.symbols import SymbolicNumber
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import AttrSource, Source, numpy_tensor
from compiler_core.guards.value_guards import NUMPY_NUMBERS
from compiler_core.support import transform_levels as levels
from compiler_core.support.fx_symbols import hint
from compiler_core.support.size_expr import span
from compiler_core.support.tensors import storage_id

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter

numpy: Any = sys.modules.get("numpy")  # PyTorch imports it where it is installed
ARRAY: Any = None if numpy is None else numpy.ndarray
_EXACT = {  # ufuncs that give no floating-point error, with what computes them
    "equal": operator.eq, "not_equal": operator.ne, "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge, "logical_and": torch.logical_and,
    "logical_or": torch.logical_or, "logical_xor": torch.logical_xor, "logical_not": torch.logical_not,
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor, "invert": operator.invert,
    "isnan": torch.isnan, "isinf": torch.isinf, "isfinite": torch.isfinite, "signbit": torch.signbit,
    "absolute": torch.abs, "fabs": torch.abs, "negative": operator.neg, "positive": operator.pos, "floor": torch.floor,
    "ceil": torch.ceil, "trunc": torch.trunc, "rint": torch.round, "maximum": torch.maximum, "minimum": torch.minimum,
    "fmax": torch.fmax, "fmin": torch.fmin, "copysign": torch.copysign,
}  # fmt: skip
_INEXACT = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "power": operator.pow, "matmul": torch.matmul,
    "sqrt": torch.sqrt, "square": torch.square, "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1,
    "log": torch.log, "log2": torch.log2, "log10": torch.log10, "log1p": torch.log1p, "sin": torch.sin,
    "cos": torch.cos, "tan": torch.tan, "arcsin": torch.asin, "arccos": torch.acos, "arctan": torch.atan,
    "sinh": torch.sinh, "cosh": torch.cosh, "tanh": torch.tanh, "arctan2": torch.atan2, "hypot": torch.hypot,
    "logaddexp": torch.logaddexp, "deg2rad": torch.deg2rad, "rad2deg": torch.rad2deg,
}  # fmt: skip
UFUNCS: dict[Any, Any] = {} if numpy is None else {getattr(numpy, n): fn for n, fn in (_EXACT | _INEXACT).items()}
OPERATORS: dict[Any, Any] = {}
"""NumPy's functions for Python's operators."""
if numpy is not None:
    OPERATORS = {fn: ufunc for ufunc, fn in UFUNCS.items() if fn.__module__ == "_operator"}
    OPERATORS |= {operator.matmul: numpy.matmul, operator.abs: numpy.absolute}
FUNCTIONS = {name: fn for name, fn in vars(numpy_functions).items() if inspect.isfunction(fn)}
"""The functions of NumPy that have one on tensors, by name."""
_READS = frozenset({"item", "tolist", "tobytes", "tofile", "dump", "dumps"})
"""Methods of arrays that give Python their values."""
METHODS = frozenset(
    "sum mean std var prod max min argmax argmin any all cumsum cumprod dot clip reshape ravel flatten transpose "
    "swapaxes squeeze repeat copy astype".split()
)
_ROUNDED = frozenset("sum mean std var prod cumsum cumprod dot outer einsum diff astype array".split())
_TAKE_SIZES = frozenset("zeros ones empty full eye arange reshape tile repeat".split())
"""Functions that take any size that is not negative; another is an error for PyTorch, too."""
_COUNTED = frozenset("argmax argmin any all".split())


def ignores_underflow() -> bool:
    """Whether NumPy, as by default, says nothing of a result that is too small."""
    return bool(numpy.geterr()["under"] == "ignore")


class ArrayValue(Value):
    """A ``numpy.ndarray`` from outside, or an array or number that the graph computes."""

    def __init__(
        self,
        real: Any = None,
        source: Source | None = None,
        tensor: TensorValue | None = None,
        cls: Any = ARRAY,
    ) -> None:
        self.real = real
        self.source = source
        self.cls = cls
        self._tensor = tensor
        self._input: TensorValue | None = None
        """The input of the graph that shares an outside array's memory."""

    def __repr__(self) -> str:
        return self.source.text if self.source is not None else f"a {self.cls.__name__} of {self._tensor}"

    @property
    def is_number(self) -> bool:
        return self.cls is not ARRAY

    def install_guards(self, tx: Interpreter) -> None:
        tx.capture.guards.add("TYPE_MATCH", self.source, self.real)

    def tensor(self, tx: Interpreter) -> TensorValue:
        """Returns the tensor whose memory is the array's; the program does not see it."""
        if self._tensor is None:
            self._tensor = self.new_tensor(tx)
        return self._tensor

    def new_tensor(self, tx: Interpreter) -> TensorValue:
        """``torch.from_numpy(self)``

        Raises Unsupported if `torch.from_numpy` refuses the array, or warns of it because it is read-only.
        """
        if self.source is None or self._input is not None:
            return _data_of(tx, self._input or self.tensor(tx))
        self.install_guards(tx)
        try:
            if not self.real.flags.writeable:
                raise TypeError("PyTorch warns of arrays that are not writable")
            tensor = torch.from_numpy(self.real)
        except (TypeError, ValueError) as error:
            raise Unsupported("unsupported call", f"torch.from_numpy: {error}") from None
        tx.capture.guards.add("EQUALS_MATCH", AttrSource(AttrSource(self.source, "flags"), "writeable"), True)
        self._input = ArrayTensorValue(source=numpy_tensor(self.source), real=tensor)
        return self._input

    def sample(self, tx: Interpreter) -> Any:
        """Returns an array of ones of this dtype and layout, or a number."""
        fake = self.tensor(tx).fake(tx)
        sizes, strides = [hint(n) for n in fake.shape], [hint(n) for n in fake.stride()]
        length = span(sizes, strides) if fake.numel() else 0
        made = torch.ones(length, dtype=fake.dtype, device="cpu").as_strided(sizes, strides).numpy()
        return made[()] if self.is_number else made

    # --- attributes and calls

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        self.install_guards(tx)
        if name in ("shape", "ndim", "size", "dtype", "itemsize", "nbytes"):
            if self.source is not None:
                return tx.capture.outside.wrap(getattr(self.real, name), AttrSource(self.source, name))
            fake = self.tensor(tx).fake(tx)
            dtype = torch.empty(0, dtype=fake.dtype, device="cpu").numpy().dtype
            found = {
                "shape": tuple(fake.shape), "ndim": fake.dim(), "size": fake.numel(), "dtype": dtype,
                "itemsize": dtype.itemsize, "nbytes": fake.numel() * dtype.itemsize,
            }  # fmt: skip
            return from_python(found[name])
        if name == "T":
            return self.call_method(tx, "transpose", [], {})
        if callable(lookup_in_mro(self.cls, name)):
            return NamedMethodValue(self, name)
        raise Unsupported("NumPy", f"ndarray.{name}")

    def call_method(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if name in ("item", "tolist") and not args and not kwargs:
            tensor = _data_of(tx, self.tensor(tx))
            return tx.item_of(tensor) if name == "item" else tx.list_of_items(tensor)
        if name in _READS or name.startswith("__"):
            raise Unsupported("tensor value read", f"ndarray.{name}()")
        if name not in METHODS:
            raise Unsupported("NumPy", f"ndarray.{name}()")
        given = list(args)
        if name in ("reshape", "transpose") and len(args) > 1:
            given = [TupleValue(given)]
        return _call_inlined(
            tx, name, lambda a, *rest, **named: getattr(a, name)(*rest, **named), [self, *given], kwargs
        )

    def truth(self, tx: Interpreter) -> bool:
        raise Unsupported("data-dependent branch")

    def constant(self, tx: Interpreter) -> Any:
        raise Unsupported("tensor value read", "a number is needed, and this is one of NumPy's that the graph computes")

    def length(self, tx: Interpreter) -> int:
        return self.get_attr(tx, "shape").get_item(tx, ConstantValue(0)).constant(tx)  # type: ignore[no-any-return]

    def unpack(self, tx: Interpreter) -> list[Value]:
        return [self.get_item(tx, ConstantValue(i)) for i in range(self.length(tx))]

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        expected, samples = _on_samples(tx, lambda array, at: array[_first_items(at)], [self, key], {})
        if not has_array(key) and (dims := _reversed_dims(expected)):
            view = self.get_item(tx, _forward(tx, key))
            assert isinstance(view, ArrayValue)
            return ReversedValue(view, dims)
        if any(_is_mask(tx, each) for each in _arrays(key)):
            raise Unsupported("tensor value read", "an index that is a mask")
        if not has_array(key):
            return _checked(tx, self.tensor(tx).get_item(tx, key), expected, samples, [self])
        _check_index(tx, key)
        result = self.tensor(tx).get_item(tx, _as_tensors(tx, key))
        # NumPy lays the items out in another order than PyTorch
        places = sorted(range(expected.ndim), key=lambda dim: -expected.strides[dim])
        steps = [
            ("permute", places),
            ("contiguous", []),
            ("permute", [places.index(dim) for dim in range(len(places))]),
        ]
        for name, given in steps if places != sorted(places) else []:
            result = tx.capture.graph.call_method(tx, name, [result, *map(ConstantValue, given)])
        return _checked(tx, result, expected, samples, [self])

    def set_item(self, tx: Interpreter, key: Value, value: Value) -> None:
        _on_samples(tx, _set_first_items, [self, key, value], {})
        target = self.tensor(tx)
        if isinstance(value, ArrayValue):
            stored: Value = value.tensor(tx)
        else:
            stored = ConstantValue(_plain(value.constant(tx)))  # of a symbolic number, with a guard
        is_one_mask = isinstance(key, ArrayValue) and _is_mask(tx, key)
        if has_array(key) and not isinstance(stored, ConstantValue):
            raise Unsupported("NumPy", "items of an array at an index that is an array, set to an array")
        if has_array(key) and not is_one_mask:
            _check_index(tx, key)
        if target.fake(tx).dtype not in _dtypes_that_hold(tx, stored):
            raise Unsupported("NumPy", "an item of an array is set to a number of another dtype")
        target.set_item(tx, _as_tensors(tx, key), stored)

    # --- generated code

    def reconstruct(self, emit: Emitter) -> None:
        assert self._tensor is not None
        emit.value(self._tensor)
        emit.call_method("numpy", [])
        if self.is_number:
            emit.constant(())
            emit.subscript()


class ReversedValue(Value):
    """A view of an array from the end of some dimensions, which no tensor can be: it is copied, or NumPy uses it."""

    def __init__(self, array: ArrayValue, dims: Sequence[int]) -> None:
        self._array, self._dims = array, tuple(dims)

    def __repr__(self) -> str:
        return f"{self._array}, reversed"

    def python_type(self) -> type:
        return self._array.python_type()

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name in ("shape", "ndim", "size"):
            return self._array.get_attr(tx, name)
        if name != "copy":
            raise Unsupported("NumPy", f"ndarray.{name} of a reversed array")
        return NamedMethodValue(self, name)

    def call_method(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if args or kwargs:
            raise Unsupported("NumPy", f"ndarray.{name}() of a reversed array with these arguments")
        graph = tx.capture.graph
        order: dict[str, Value] = {"memory_format": ConstantValue(torch.contiguous_format)}
        in_order = graph.call_method(tx, "clone", [self._array.tensor(tx)], order)
        copied = graph.call_method(tx, "flip", [in_order, *map(ConstantValue, self._dims)])
        assert isinstance(copied, TensorValue)
        return ArrayValue(tensor=copied)

    def reconstruct(self, emit: Emitter) -> None:
        emit.call_object(numpy.flip, [self._array, ConstantValue(self._dims)])


def reversed_by(
    tx: Interpreter, function: Callable[..., Any], args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """Calls ``numpy.flip``, or a function that does the same for one dimension."""
    expected, _ = _on_samples(tx, function, args, kwargs)
    array = args[0] if args else kwargs["m"]
    if not isinstance(array, ArrayValue) or array.is_number:
        raise Unsupported("NumPy", f"{function.__name__} of {array}")
    return ReversedValue(array, _reversed_dims(expected))


def _reversed_dims(view: Any) -> list[int]:
    strides = view.strides if isinstance(view, ARRAY) else ()
    return [dim for dim, stride in enumerate(strides) if stride < 0]


def _forward(tx: Interpreter, key: Value) -> Value:
    """Returns an index with ``:`` for ``::-1``."""
    if isinstance(key, TupleValue):
        return TupleValue([_forward(tx, each) for each in key.unpack(tx)])
    if not isinstance(key, SliceValue):
        return key
    start, stop, step = (each.constant(tx) for each in key.bounds)
    if step is None or step > 0:
        return key
    if (start, stop, step) != (None, None, -1):
        raise Unsupported("NumPy", "a part of an array from its end")
    return SliceValue([NONE] * 3)


class ArrayTensorValue(TensorValue):
    """The tensor that ``torch.from_numpy`` makes of an outside array, once in each call."""

    def reconstruct(self, emit: Emitter) -> None:
        assert self.source is not None
        self.source.load(emit)


def index_of_arrays(tx: Interpreter, key: Value, is_part: bool = False) -> Value:
    """Returns an index of a tensor, or a part of one, with tensors in place of arrays and numbers of NumPy."""
    if isinstance(key, (TupleValue, SliceValue)):
        parts = key.unpack(tx) if isinstance(key, TupleValue) else key.bounds
        found = [index_of_arrays(tx, each, is_part=True) for each in parts]
        if all(new is old for new, old in zip(found, parts, strict=True)):
            return key
        return TupleValue(found) if isinstance(key, TupleValue) else SliceValue(found)
    if not isinstance(key, ArrayValue):
        return key
    fake = key.tensor(tx).fake(tx)
    takes_rows = not key.is_number and (not fake.dim() or (fake.dim() > 1 and not is_part))
    if takes_rows or fake.dtype not in (torch.int64, torch.int32, torch.bool):
        raise Unsupported("NumPy", "an index of a tensor that is such an array")
    return key.tensor(tx)


def numpy_of(tx: Interpreter, tensor: TensorValue) -> ArrayValue:
    """``tensor.numpy()``, whose writes do not count in the version of the tensor"""
    fake = tensor.fake(tx)
    is_plain = type(tensor) in (TensorValue, ArrayTensorValue) and not fake.is_conj() and not fake.is_neg()
    if fake.requires_grad or fake.device.type != "cpu" or not is_plain or levels.depth():
        raise Unsupported("tensor value read", "Tensor.numpy()")
    try:
        torch.empty(0, dtype=fake.dtype).numpy()
    except TypeError:
        raise Unsupported("tensor value read", "Tensor.numpy()") from None
    return ArrayValue(tensor=_data_of(tx, tensor))


def _is_mask(tx: Interpreter, array: ArrayValue) -> bool:
    return array.tensor(tx).fake(tx).dtype == torch.bool


def _check_index(tx: Interpreter, key: Value) -> None:
    """Raises Unsupported for an index with arrays that PyTorch would take in another way."""
    items = key.unpack(tx) if isinstance(key, TupleValue) else [key]
    arrays = [each for each in items if isinstance(each, ArrayValue)]
    at = [i for i, each in enumerate(items) if each.python_type() not in (slice, type(None), type(...))]
    if any(each.tensor(tx).fake(tx).dtype not in (torch.int64, torch.int32) for each in arrays):
        raise Unsupported("NumPy", "an index that is an array of another dtype than int64 or int32")
    if len(at) != at[-1] - at[0] + 1 or any(not each.tensor(tx).fake(tx).dim() for each in arrays):
        raise Unsupported("NumPy", "an index with arrays that slices separate, or with numbers that the graph computes")


def _first_items(key: Any) -> Any:
    """Returns an index like `key`, with arrays of zeros for arrays of ones."""
    if isinstance(key, tuple):
        return tuple(map(_first_items, key))
    return key * 0 if isinstance(key, (ARRAY, numpy.generic)) and key.dtype.kind in "iu" else key


def _set_first_items(array: Any, key: Any, value: Any) -> None:
    array[_first_items(key)] = value


def _data_of(tx: Interpreter, tensor: TensorValue) -> TensorValue:
    found = tx.capture.graph.call_function(tx, getattr, [tensor, ConstantValue("data")])
    assert isinstance(found, TensorValue)
    return found


# ------------------------------------------------------------ calls


def call_ufunc(tx: Interpreter, ufunc: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Calls a function of NumPy that works element by element, or the one of an operator."""
    expected, samples = _on_samples(tx, ufunc, args, kwargs)
    if kwargs or not _kinds(samples) <= set("biuf"):
        raise Unsupported("NumPy", ufunc.__name__)
    dtypes = ufunc.resolve_dtypes((*map(_dtype_or_type, samples), None))
    fn = UFUNCS[ufunc]
    if any(isinstance(v, SymbolicNumber) for v in args) and (dtypes[0].kind != "f" or ufunc is numpy.power):
        args = [ConstantValue(v.constant(tx)) if isinstance(v, SymbolicNumber) else v for v in args]
    _check_dtype(ufunc.__name__, dtypes[0], samples)
    as_tensors = fn.__module__ != "_operator"
    operands = [_operand(tx, *each, as_tensors) for each in zip(args, samples, dtypes, strict=False)]
    result = tx.capture.graph.call_function(tx, fn, operands)
    return _checked(tx, result, expected, samples, args, is_rounded=ufunc.__name__ in _INEXACT)


def _check_dtype(name: str, dtype: Any, samples: Sequence[Any]) -> None:
    """Breaks the graph at a dtype for which PyTorch differs, and at integers for which an operation is not defined."""
    if (name, dtype.kind) in (("remainder", "f"), ("matmul", "b")):  # other signs of zeros; PyTorch has none
        raise Unsupported("NumPy", f"{name} of {dtype}")
    if dtype.kind == "f" or name not in ("floor_divide", "remainder", "power"):
        return
    right = samples[1]
    if hasattr(right, "shape") or right <= 0:
        raise Unsupported("NumPy", f"{name} of integers by an array, or a number that is not positive")


def _operand(tx: Interpreter, value: Value, sample: Any, dtype: Any, as_tensor: bool) -> Value:
    """Returns an operand in the dtype in which NumPy computes."""
    if isinstance(value, ArrayValue):
        return _as_dtype(tx, value.tensor(tx), _torch_dtype(dtype))
    if not isinstance(value, SymbolicNumber):
        value = ConstantValue(dtype.type(sample).item())
        if not as_tensor:
            return value
    wanted: dict[str, Value] = {"dtype": ConstantValue(_torch_dtype(dtype))}
    return tx.capture.graph.call_function(tx, torch.scalar_tensor, [value], wanted)


def _as_dtype(tx: Interpreter, tensor: TensorValue, dtype: torch.dtype) -> Value:
    if tensor.fake(tx).dtype == dtype:
        return tensor
    return tx.capture.graph.call_method(tx, "to", [tensor, ConstantValue(dtype)])


def call_named(tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Calls the function of NumPy of this name by inlining that on tensors."""
    return _call_inlined(tx, name, getattr(numpy, name), args, kwargs)


def _call_inlined(
    tx: Interpreter, name: str, real: Callable[..., Any], args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    expected, samples = _on_samples(tx, real, args, kwargs)
    wanted = expected if type(expected) in (list, tuple) else [expected]
    if not wanted or not all(isinstance(each, (ARRAY, numpy.generic)) for each in wanted):
        raise Unsupported("NumPy", f"{name} that gives a {type(expected).__name__}")
    kinds, own = _kinds([*samples, *wanted]), _kinds(wanted)
    if not kinds <= set("biuf") or (own & set("iu") and "f" in kinds - own and name not in _COUNTED):
        raise Unsupported("NumPy", f"{name} with these dtypes")
    fn = FUNCTIONS[name]
    try:
        bound = inspect.signature(fn).bind(*args, **kwargs)
    except TypeError:
        raise Unsupported("NumPy", f"{name} with these arguments") from None
    if "dtype" in bound.signature.parameters:
        bound.arguments["dtype"] = ConstantValue(_torch_dtype(wanted[0].dtype))
    arrays = [each for value in [*args, *kwargs.values()] for each in _arrays(value)]
    sized = name in _TAKE_SIZES
    given = [_as_tensors(tx, v, sized) for v in bound.args]
    named = {k: _as_tensors(tx, v, sized) for k, v in bound.kwargs.items()}
    try:
        result = tx.capture.outside.wrap(fn).call(tx, given, named)
    except ObservedException as error:
        raise Unsupported("NumPy", f"{name}: {error}") from None
    samples = [s for s in samples if isinstance(s, ARRAY)]
    if wanted is expected:
        results = result.unpack(tx)
        found = [_checked(tx, *each, samples, arrays) for each in zip(results, wanted, strict=True)]
        return ListValue(found) if isinstance(expected, list) else TupleValue(found)
    return _checked(tx, result, expected, samples, arrays, is_rounded=name in _ROUNDED)


def update_in_place(tx: Interpreter, op: Any, array: ArrayValue, other: Value) -> Value:
    """``array += other`` for the operator `op` without assignment"""
    if array.is_number:
        return call_ufunc(tx, OPERATORS[op], [array, other], {})
    result = call_ufunc(tx, OPERATORS[op], [array, other], {})
    assert isinstance(result, ArrayValue)
    target, found = array.tensor(tx), result.tensor(tx)
    if target.fake(tx).dtype != found.fake(tx).dtype or target.fake(tx).shape != found.fake(tx).shape:
        raise Unsupported("NumPy", f"in place, {op.__name__} to another dtype or shape")
    tx.capture.graph.call_method(tx, "copy_", [target, found])
    return array


def operate(tx: Interpreter, op: Any, *operands: Value) -> Value:
    """An operator of which an operand is an array or a number of NumPy."""
    if op not in OPERATORS or any(not isinstance(v, (ArrayValue, ConstantValue, TensorValue)) for v in operands):
        raise Unsupported("NumPy", f"{op.__name__} of {' and '.join(map(str, operands))}")
    if isinstance(operands[0], TensorValue):
        return _with_tensor(tx, op, operands[0], operands[1])
    return call_ufunc(tx, OPERATORS[op], operands, {})


def _with_tensor(tx: Interpreter, op: Any, tensor: TensorValue, number: Any) -> Value:
    """``tensor * number``: a number of NumPy that the graph computes is for the tensor as one of Python's"""
    fake, other = tensor.fake(tx), number.tensor(tx)
    is_alike = number.is_number and fake.dim() and fake.dtype in (torch.float32, torch.float64)
    is_supported = op in (operator.add, operator.sub, operator.mul, operator.truediv)
    if not (is_supported and is_alike and other.fake(tx).dtype.is_floating_point):
        raise Unsupported("NumPy", f"{op.__name__} of a tensor and {number}")
    return tx.capture.graph.call_function(tx, op, [tensor, other])


# ------------------------------------------------------------ what NumPy gives


def _on_samples(
    tx: Interpreter, fn: Callable[..., Any], args: Sequence[Value], kwargs: dict[str, Value]
) -> tuple[Any, list[Any]]:
    """Returns what NumPy gives for arguments like these, and the arguments."""
    given, named = [_sample(tx, each) for each in args], {name: _sample(tx, each) for name, each in kwargs.items()}
    with numpy.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = fn(*given, **named)
        except Exception as error:
            raise Unsupported("exception", f"{type(error).__name__}: {error}") from None
    return result, [*_leaves([*given, *named.values()])]


def _leaves(given: Any) -> list[Any]:
    if isinstance(given, (list, tuple)):
        return [leaf for each in given for leaf in _leaves(each)]
    return [given]


def _sample(tx: Interpreter, value: Value) -> Any:
    if isinstance(value, ArrayValue):
        return value.sample(tx)
    if isinstance(value, SymbolicNumber):
        return hint(value.sym)
    if isinstance(value, (ListValue, TupleValue)):
        return (list if isinstance(value, ListValue) else tuple)(_sample(tx, each) for each in value.unpack(tx))
    if isinstance(value, SliceValue):
        return slice(*(_sample(tx, each) for each in value.bounds))
    if isinstance(value, (ConstantValue, StaticValue)):
        return value.constant(tx)
    raise Unsupported("NumPy", f"{value} as argument of a function of NumPy")


def _arrays(value: Value) -> list[ArrayValue]:
    if isinstance(value, (ListValue, TupleValue)):
        return [each for item in value.known_values() for each in _arrays(item)]
    return [value] if isinstance(value, ArrayValue) else []


def has_array(value: Value) -> bool:
    """Whether a value is an array, or a list or tuple that contains one."""
    return bool(_arrays(value))


def _as_tensors(tx: Interpreter, value: Value, symbolic: bool = False) -> Value:
    """Returns a value with tensors for arrays, and Python's numbers, which stay symbolic if `symbolic`."""
    if isinstance(value, ArrayValue):
        return value.tensor(tx)
    if isinstance(value, (ListValue, TupleValue)):
        items = [_as_tensors(tx, each, symbolic) for each in value.unpack(tx)]
        return ListValue(items) if isinstance(value, ListValue) else TupleValue(items)
    if not isinstance(value, ConstantValue) or (symbolic and isinstance(value, SymbolicNumber)):
        return value
    return ConstantValue(_plain(value.constant(tx)))


def _plain(obj: Any) -> Any:
    return obj.item() if isinstance(obj, NUMPY_NUMBERS) else obj


def _dtype_or_type(sample: Any) -> Any:
    if isinstance(sample, (bool, ARRAY, numpy.generic)):
        return numpy.asarray(sample).dtype
    if type(sample) in (int, float):
        return type(sample)
    raise Unsupported("NumPy", f"an operation of an array and a {type(sample).__name__}")


def _kinds(samples: Sequence[Any]) -> set[str]:
    return {each.dtype.kind for each in samples if isinstance(each, (ARRAY, numpy.generic))}


def _torch_dtype(dtype: Any) -> torch.dtype:
    try:
        return torch.from_numpy(numpy.empty(0, dtype)).dtype
    except TypeError:
        raise Unsupported("NumPy", f"an array of {dtype}, which PyTorch does not have") from None


def _dtypes_that_hold(tx: Interpreter, value: Value) -> tuple[torch.dtype, ...]:
    """Returns the dtypes of arrays that a value can be stored in as it is."""
    if isinstance(value, TensorValue):
        return (value.fake(tx).dtype,)
    if value.python_type() is bool:
        return (torch.bool,)
    floats = (torch.float32, torch.float64)
    return floats if value.python_type() is float else (*floats, torch.int64)


def _checked(
    tx: Interpreter,
    result: Value,
    expected: Any,
    samples: Sequence[Any],
    args: Sequence[Value],
    is_rounded: bool = False,
) -> Value:
    """Returns the array or number of NumPy that `result` is.

    Raises Unsupported if NumPy's has another dtype or shape, or shares memory with an argument where this one does not.
    """
    fake = result.fake(tx) if isinstance(result, TensorValue) else None
    if fake is None or not isinstance(expected, (ARRAY, numpy.generic)):
        raise Unsupported("NumPy", f"an operation that gives a {type(expected).__name__}")
    assert isinstance(result, TensorValue)
    if fake.dtype != _torch_dtype(expected.dtype) or tuple(map(hint, fake.shape)) != expected.shape:
        raise Unsupported("NumPy", f"an operation that gives {expected.dtype}{list(expected.shape)}")
    if fake.device.type != "cpu" or fake.requires_grad:
        raise Unsupported("NumPy", "an operation that gives no tensor of the CPU")
    memories = [storage_id(v.tensor(tx).fake(tx)) for v in args if isinstance(v, ArrayValue)]
    is_view = storage_id(fake) in memories
    is_view_of_numpy = any(numpy.may_share_memory(expected, s) for s in samples if isinstance(s, ARRAY))
    if isinstance(expected, numpy.generic):
        if is_view:
            result = tx.capture.graph.call_method(tx, "clone", [result])
    elif is_view != is_view_of_numpy and expected.size:
        raise Unsupported("NumPy", f"an operation that gives {'a view' if is_view_of_numpy else 'a new array'}")
    assert isinstance(result, TensorValue)
    if is_rounded and expected.dtype.kind == "f":
        _assume_finite(tx, result)
    return ArrayValue(tensor=result, cls=type(expected))


def _assume_finite(tx: Interpreter, result: TensorValue) -> None:
    """Lets the frame run as plain Python where a result is infinite or NaN, of which NumPy warns."""
    if not tx.capture.guards.ask(ignores_underflow):
        raise Unsupported("NumPy", "an operation while NumPy tells of underflow")
    finite = tx.capture.graph.call_function(tx, torch.isfinite, [result])
    are_all = tx.capture.graph.call_function(tx, torch.all, [finite])
    assert isinstance(are_all, TensorValue)
    if not tx.capture.graph.assume(tx, are_all, True):
        raise Unsupported("NumPy", "an operation that may warn")
