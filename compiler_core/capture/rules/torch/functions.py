"""PyTorch's functions: decides which become nodes of the graph, and has rules for those that run during capture."""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.masked

from compiler_core.capture.rules.python.operators import BINARY, INPLACE, UNARY
from compiler_core.capture.rules.table import handles, handles_each, has_tensor
from compiler_core.capture.values import reads
from compiler_core.capture.values.base import Kwargs, Value, is_of_pytorch, lookup_in_mro, observed_exception
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import ListValue, SliceValue, TupleValue
from compiler_core.capture.values.builtin.static import from_python
from compiler_core.capture.values.builtin.symbols import ReadValue, SymbolicNumber, is_symbolic, symbol_for_numpy
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.tensor_subclasses import DistributedTensorValue, RaggedSizeValue, SubclassTensorValue
from compiler_core.capture.values.user.modules import CALL_METHODS, ModuleValue, call_with_hooks
from compiler_core.errors import Unsupported
from compiler_core.guards.value_guards import NUMPY_NUMBERS, number_of_numpy
from compiler_core.torch_private import (
    C_nn,
    OpOverload,
    OpOverloadPacket,
    TensorBase,
    combine_input_and_mask,
    group_tensors_by_device_and_dtype,
    infer_lazy_parameters,
    masked_ops,
    module_call_impl,
)

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.records.capture import BreakReason


FACTORIES = frozenset(
    getattr(torch, n)
    for n in "zeros ones empty full rand randn randint randperm normal arange range linspace logspace eye "
    "scalar_tensor tril_indices triu_indices empty_strided hann_window hamming_window blackman_window "
    "bartlett_window kaiser_window".split()
) | {torch.fft.fftfreq, torch.fft.rfftfreq}
READ_VALUES = (torch.is_nonzero, torch.equal, torch.allclose)
"""C functions whose result, or its size, depends on the values of tensors."""
# functions on tensors that read values, change settings or return what a graph cannot hold
NOT_IN_GRAPH = frozenset(READ_VALUES) | {
    torch.unique_consecutive, torch.from_numpy, torch.frombuffer, torch.set_num_threads, torch.from_file,
    torch.nn.functional.gaussian_nll_loss,  # it is inlined, since it checks values
}  # fmt: skip


COMMUNICATING = ("c10d.", "c10d_functional.", "_c10d_functional.", "_c10d_functional_autograd.")
"""The namespaces of operators that communicate with other ranks.  Those that a graph can hold have a rule."""


@functools.cache
def _tensor_function_ids() -> frozenset[int]:
    """Returns the ids of the C functions of torch, torch.nn.functional, torch.special, torch.fft and torch.linalg."""
    homes = [torch, torch.nn.functional, torch.special, torch.fft, torch.linalg, C_nn]
    kinds = (types.BuiltinFunctionType, types.BuiltinMethodType)
    return frozenset(id(f) for home in homes for f in vars(home).values() if isinstance(f, kinds))


def is_tensor_function(obj: Any, on_tensors: bool) -> bool:
    """Whether a call of `obj` becomes a node of the graph; `on_tensors`: whether an argument is a tensor."""
    try:
        if obj in NOT_IN_GRAPH:
            return False
        if obj in FACTORIES:
            return True
    except TypeError:
        return False
    if isinstance(obj, (OpOverload, OpOverloadPacket)):
        return not str(obj).startswith(COMMUNICATING)
    if not on_tensors:
        return obj in _OF_NUMBERS
    if getattr(obj, "__objclass__", None) in (TensorBase, torch.Tensor):
        return False  # a method: `TensorValue` decides which methods become nodes
    if obj in BINARY or obj in INPLACE or obj in UNARY:
        return True
    return is_c_function_of_torch(obj)


_OF_NUMBERS = frozenset({torch.add, torch.sub, torch.mul, torch.div, torch.true_divide, torch.floor_divide})
"""Functions that may get numbers alone, of which they make a tensor."""


def is_c_function_of_torch(obj: Any) -> bool:
    """Whether `obj` is a C function on tensors, such as ``torch.sin``."""
    return id(obj) in _tensor_function_ids()


def is_leaf_function(fn: types.FunctionType) -> bool:
    """Whether a call of a Python function of PyTorch becomes one node of the graph instead of being inlined."""
    home = fn.__module__ or ""  # functools.wraps gives it to wrappers by the user, too
    return home in _LEAF_MODULES and fn not in NOT_IN_GRAPH and is_of_pytorch(fn)


_LEAF_MODULES = ("torch.nn.functional", "torch.functional", "torch.nested")


@handles(torch.is_tensor)
def _is_tensor(tx: Interpreter, obj: Value) -> Value:
    obj.install_guards(tx)
    return ConstantValue(isinstance(obj, TensorValue))


@handles_each(*READ_VALUES)
def _read_values(fn: Any, tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
    raise Unsupported("tensor value read", f"torch.{fn.__name__}()")


@handles_each(torch.tensor)
def _from_numbers(fn: Any, tx: Interpreter, data: Value, **kwargs: Value) -> Value:
    """Makes a tensor of a number, or of nested lists of numbers, some of which may be tensors without dimensions."""
    if has_tensor(data):
        return _of_tensors(fn, tx, data, kwargs)
    numbers = list(_numbers(tx, data))
    is_known = not is_symbolic(numbers) and not any(isinstance(each, ReadValue) for each in numbers)
    if not is_known and not kwargs.keys() - {"dtype", "device"}:
        dtype = _dtype_of(numbers, kwargs["dtype"].constant(tx) if "dtype" in kwargs else None)
        if dtype is not None:
            return _stacked(tx, data, kwargs | {"dtype": ConstantValue(dtype)})
    return tx.graph.call_function(tx, fn, [data], kwargs)


def _of_tensors(fn: Any, tx: Interpreter, data: Value, kwargs: Kwargs) -> Value:
    """``torch.tensor([1.0, x.sum()])``, whose result has the type that its elements have together."""
    numbers = list(_numbers(tx, data))
    tensors = [each.fake(tx) for each in numbers if isinstance(each, TensorValue)]
    plain = {each.python_type() for each in numbers if not isinstance(each, TensorValue)}
    is_known = fn is torch.tensor and plain <= _TYPES.keys() and kwargs.keys() <= {"dtype"}
    is_here = {t.device for t in tensors} <= {torch.get_default_device()}
    if fn is torch.tensor and type(data) is TensorValue and is_here and kwargs.keys() <= {"dtype"}:
        return tx.graph.call_function(tx, fn, [data], kwargs)  # a copy, of which PyTorch warns
    warns = isinstance(data, TensorValue) or any(t.requires_grad for t in tensors)
    if not (is_known and is_here) or warns or any(t.dim() for t in tensors):
        raise Unsupported("tensor value read", f"{fn.__name__} of tensors")
    default = torch.get_default_dtype()
    found = [*(t.dtype for t in tensors), *(_TYPES[each] or default for each in plain)]
    wanted = kwargs["dtype"].constant(tx) if "dtype" in kwargs else None
    dtype = wanted or functools.reduce(torch.promote_types, found)
    if any(not torch.can_cast(each, dtype) for each in found):  # a number may be too large, or a fraction
        raise Unsupported("tensor value read", f"{fn.__name__} of tensors, as {dtype}")
    return _stacked(tx, data, {"dtype": ConstantValue(dtype)})


_TYPES: dict[type, torch.dtype | None] = {bool: torch.bool, int: torch.int64, float: None}
"""The dtypes of numbers; None is the default one."""


_LEGACY = {
    torch.Tensor: None, torch.FloatTensor: torch.float32, torch.DoubleTensor: torch.float64,
    torch.HalfTensor: torch.float16, torch.BFloat16Tensor: torch.bfloat16, torch.LongTensor: torch.int64,
    torch.IntTensor: torch.int32, torch.ShortTensor: torch.int16, torch.CharTensor: torch.int8,
    torch.ByteTensor: torch.uint8, torch.BoolTensor: torch.bool,
}  # fmt: skip
"""The dtypes of the old constructors; None is the default one."""


@handles_each(*_LEGACY)
def _legacy_tensor(cls: Any, tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    """``torch.FloatTensor([1, 2])``, ``torch.LongTensor(2, 3)``, which are on the CPU."""
    dtype = ConstantValue(_LEGACY[cls] or torch.get_default_dtype())
    is_size = all(each.python_type() is int for each in args) or [each.python_type() for each in args] == [torch.Size]
    if kwargs or torch.empty(0).device.type != "cpu":
        raise Unsupported("skipped function", f"torch.{cls.__name__}()")
    if is_size:
        size = args[0] if args and args[0].python_type() is torch.Size else TupleValue(list(args) or [ConstantValue(0)])
        return tx.graph.call_function(tx, torch.empty, [size], {"dtype": dtype, "device": ConstantValue("cpu")})
    if len(args) == 1 and args[0].python_type() in (list, tuple):
        return _from_numbers(torch.tensor, tx, args[0], dtype=dtype)
    raise Unsupported("skipped function", f"torch.{cls.__name__}()")


def _numbers(tx: Interpreter, data: Value) -> Iterator[Value]:
    """Yields the numbers of nested lists, in order."""
    if isinstance(data, (ListValue, TupleValue)):
        for value in data.unpack(tx):
            yield from _numbers(tx, value)
    else:
        yield data


def _dtype_of(numbers: Sequence[Value], wanted: torch.dtype | None) -> torch.dtype | None:
    """Returns the dtype of a tensor of these numbers; None if one that is too large for it would be an error."""
    types = {number.python_type() for number in numbers}
    dtype = wanted or (torch.get_default_dtype() if float in types else torch.int64)
    holds_all = dtype in (torch.float32, torch.float64) or (dtype is torch.int64 and types == {int})
    return dtype if types <= {int, float} and holds_all else None


def _stacked(tx: Interpreter, data: Value, kwargs: Kwargs) -> Value:
    """Returns the tensor of nested lists of numbers, of which some are symbolic or tensors: an operator takes one."""
    if isinstance(data, TensorValue):
        return tx.graph.call_method(tx, "to", [data, kwargs["dtype"]])
    if not isinstance(data, (ListValue, TupleValue)):
        dtype = kwargs["dtype"]
        if isinstance(data, ReadValue) and (read := reads.as_tensor(tx, data)) is not None:
            for each in (ConstantValue(torch.float64), dtype) if dtype.constant(tx).is_floating_point else (dtype,):
                read = tx.graph.call_method(tx, "to", [read, each])
            return read
        if dtype.constant(tx) is torch.int64:
            return tx.graph.call_function(tx, torch.scalar_tensor, [data], kwargs)
        double = kwargs | {"dtype": ConstantValue(torch.float64)}  # it refuses what is infinite in float32
        number = tx.graph.call_function(tx, torch.scalar_tensor, [data], double)
        return tx.graph.call_method(tx, "to", [number, dtype])
    rows = ListValue([_stacked(tx, value, kwargs) for value in data.unpack(tx)])
    return tx.graph.call_function(tx, torch.stack, [rows])


@handles_each(torch.as_tensor, torch.asarray)
def _as_tensor(fn: Any, tx: Interpreter, data: Value, dtype: Value | None = None, device: Value | None = None) -> Value:
    """``torch.as_tensor``, which returns a tensor of the right dtype and device itself."""
    wanted = {k: v for k, v in (("dtype", dtype), ("device", device)) if v is not None and v.constant(tx) is not None}
    data.install_guards(tx)
    if not isinstance(data, TensorValue):
        return _from_numbers(fn, tx, data, **wanted)
    return data.call_method(tx, "to", [], wanted) if wanted else data


@handles(torch.is_grad_enabled)
def _is_grad_enabled(tx: Interpreter) -> Value:
    return ConstantValue(tx.graph.grad_enabled)


@handles_each(torch.is_floating_point, torch.is_complex, torch.numel, torch.is_signed)
def _tensor_query(fn: Any, tx: Interpreter, tensor: Value) -> Value:
    return tensor.get_attr(tx, fn.__name__).call(tx, [], {})


@handles(torch._assert)
def _assert(tx: Interpreter, condition: Value, message: Value) -> Value:
    if isinstance(condition, TensorValue) and tx.graph.assume(tx, condition, True):
        return NONE
    if not condition.truth(tx):
        raise observed_exception(AssertionError, message)
    return NONE


@handles(group_tensors_by_device_and_dtype)
def _group_tensors(tx: Interpreter, lists: Value, with_indices: Value) -> Value:
    """Groups tensors, of which some may be None, for gradient clipping and optimizers, in the order of PyTorch's."""
    rows = [row.unpack(tx) for row in lists.unpack(tx)]
    fakes = [
        [value.fake(tx) if isinstance(value, TensorValue) else value.constant(tx) for value in row] for row in rows
    ]
    try:
        groups = group_tensors_by_device_and_dtype(fakes, True)
    except (RuntimeError, TypeError) as error:
        raise Unsupported("exception", f"{type(error).__name__}: {error}") from None
    found: dict[Any, Value] = {}
    for kind, (_, indices) in groups.items():
        members = ListValue([ListValue([row[i] for i in indices]) for row in rows])
        found[kind] = TupleValue([members, from_python(indices if with_indices.truth(tx) else [])])
    return DictValue(found)


def split_arguments(tx: Interpreter, value: Any) -> tuple[Any, Any]:
    """Converts a value, or a list or dict of values, to arguments of an operation.

    Returns the argument for the run on fake tensors, and the argument for the node of the graph.
    """
    if isinstance(value, TensorValue):
        return value.fake(tx), value.node(tx)
    if isinstance(value, SymbolicNumber):
        value.install_guards(tx)
        return value.sym, tx.graph.number_node(value.sym)
    if isinstance(value, RaggedSizeValue):
        return value.size, tx.graph.ragged_size_node(tx, value)
    if isinstance(value, ReadValue):
        return split_arguments(tx, tx.graph.number_of(tx, value))
    if isinstance(value, ConstantValue):
        if (number := symbol_for_numpy(tx, value)) is not None:
            return split_arguments(tx, number)
        constant = _constant(value.constant(tx))
        return constant, constant
    if isinstance(value, TupleValue):
        fakes, nodes = split_arguments(tx, value.unpack(tx))
        if value.cls not in (tuple, torch.Size):
            raise _unsupported_argument(value)
        return tuple(fakes), tuple(nodes)
    if isinstance(value, ListValue):
        return split_arguments(tx, list(value.unpack(tx)))
    if isinstance(value, DictValue) and value.cls is dict:
        return split_arguments(tx, dict(value.mapping(tx)))
    if isinstance(value, SliceValue):
        fakes, nodes = split_arguments(tx, value.bounds)
        return slice(*fakes), slice(*nodes)
    if isinstance(value, list):
        both = [split_arguments(tx, v) for v in value]
        return [f for f, _ in both], [n for _, n in both]
    if isinstance(value, dict):
        pairs = {k: split_arguments(tx, v) for k, v in value.items()}
        return {k: f for k, (f, _) in pairs.items()}, {k: n for k, (_, n) in pairs.items()}
    raise _unsupported_argument(value)


def _unsupported_argument(value: Value) -> Unsupported:
    kind: BreakReason = "distributed tensor" if isinstance(value, DistributedTensorValue) else "unsupported call"
    return Unsupported(kind, f"{value} as argument of a tensor operation")


def _constant(obj: Any) -> Any:
    """Returns `obj` as an argument of an FX node; raises Unsupported if it cannot be one."""
    if type(obj) is range:
        return list(obj)
    if isinstance(obj, NUMPY_NUMBERS):
        obj = number_of_numpy(obj)
    if isinstance(obj, (int, float, complex, str, bool, type(None), type(Ellipsis), slice)):
        return obj
    if isinstance(obj, (torch.dtype, torch.device, torch.layout, torch.memory_format, enum.Enum)):
        return obj
    raise Unsupported("unsupported call", f"a {type(obj).__name__} as argument of a tensor operation")


@handles(torch.nn.Module.__setattr__)
def _module_setattr(tx: Interpreter, owner: Value, name: Value, value: Value) -> Value:
    assert isinstance(owner, ModuleValue)
    owner.module_setattr(tx, name.constant(tx), value)
    return NONE


@handles(torch.nn.Module.__getattr__)
def _module_getattr(tx: Interpreter, owner: Value, name: Value) -> Value:
    assert isinstance(owner, ModuleValue)
    wanted = name.constant(tx)
    found = owner.find_registered(tx, wanted)
    if found is None:
        owner.guard_unregistered(tx, wanted)
        raise observed_exception(AttributeError, f"{owner.cls.__name__!r} object has no attribute {wanted!r}")
    return found


@handles(infer_lazy_parameters)
def _infer_parameters(tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    raise Unsupported("skipped function", "the first call of a lazy module, which makes its parameters")


@handles(torch.nn.Module.__call__)
def _module_call(tx: Interpreter, owner: Value, /, *args: Value, **kwargs: Value) -> Value:
    assert isinstance(owner, ModuleValue)
    if lookup_in_mro(owner.cls, "_call_impl") is not CALL_METHODS["_call_impl"]:
        return owner.get_attr(tx, "_call_impl").call(tx, args, kwargs)
    return call_with_hooks(tx, owner, args, kwargs)


@handles(module_call_impl)
def _module_call_impl(tx: Interpreter, owner: Value, /, *args: Value, **kwargs: Value) -> Value:
    assert isinstance(owner, ModuleValue)
    return call_with_hooks(tx, owner, args, kwargs)


# --- torch.masked: its functions of plain tensors with a mask are Python over tensors, except these two


@handles(torch.masked.is_masked_tensor)
def _is_masked_tensor(tx: Interpreter, obj: Value) -> Value:
    obj.install_guards(tx)
    return ConstantValue(issubclass(obj.python_type(), torch.masked.MaskedTensor))


@handles(combine_input_and_mask)
def _combine(tx: Interpreter, op: Value, tensor: Value, mask: Value, *args: Value) -> Value:
    """``torch.where(mask, tensor, identity)`` with the identity of the reduction `op`.

    The function defines a class for the gradients of a masked tensor, which another tensor does not need.
    """
    if isinstance(tensor, SubclassTensorValue) or not isinstance(tensor, TensorValue):
        raise Unsupported("tensor subclass", f"{tensor} as argument of a function of torch.masked")
    if tx.is_none(mask):
        return tensor
    functions = [tx.outside.wrap(vars(masked_ops)[n]) for n in ("_input_mask", "_reduction_identity", "_where")]
    input_mask, identity, where = functions
    chosen = input_mask.call(tx, [tensor], {"mask": mask})
    fill = identity.call(tx, [op.get_attr(tx, "__name__"), tensor, *args], {})
    return where.call(tx, [chosen, tensor, fill], {})
