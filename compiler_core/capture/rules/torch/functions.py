"""PyTorch's functions: which become nodes of the graph, and rules for those that answer now."""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.rules.python.operators import BINARY, INPLACE, UNARY
from compiler_core.capture.rules.table import HANDLERS, handles, has_tensor
from compiler_core.capture.values.base import Value, raised
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import ListValue, TupleValue
from compiler_core.capture.values.constant import NONE, ConstantValue, from_python
from compiler_core.capture.values.symbols import is_symbolic
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.classes import is_of_pytorch
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

FACTORIES = frozenset(
    getattr(torch, n)
    for n in "zeros ones empty full rand randn randint randperm normal arange range linspace logspace eye "
    "scalar_tensor tril_indices triu_indices empty_strided hann_window hamming_window blackman_window "
    "bartlett_window kaiser_window".split()
)
# C functions on tensors that read values, change settings or return what a graph cannot hold
NEVER = frozenset({
    torch.is_nonzero, torch.equal, torch.allclose, torch.from_numpy, torch.frombuffer, torch.set_num_threads,
    torch.nonzero, torch.unique_consecutive, torch.masked_select, torch.bincount, torch.from_file,
    torch.nn.functional.one_hot,
    # they look at the result and raise
    torch.linalg.cholesky, torch.linalg.inv, torch.linalg.ldl_factor, torch.linalg.lu_factor, torch.linalg.solve,
    torch.linalg.tensorsolve, torch.inverse,
})  # fmt: skip


@functools.cache
def _tensor_function_names() -> frozenset[int]:
    """ids of the C functions of torch, torch.nn.functional, torch.special, torch.fft and torch.linalg."""
    homes = [torch, torch.nn.functional, torch.special, torch.fft, torch.linalg, torch._C._nn]
    kinds = (types.BuiltinFunctionType, types.BuiltinMethodType)
    return frozenset(id(f) for home in homes for f in vars(home).values() if isinstance(f, kinds))


def is_tensor_function(obj: Any, on_tensors: bool) -> bool:
    """Whether `obj` is an operation that belongs in a graph as it is."""
    try:
        if obj in NEVER:
            return False
        if obj in FACTORIES:
            return True
    except TypeError:
        return False
    if isinstance(obj, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return True
    if not on_tensors:
        return False
    if getattr(obj, "__objclass__", None) in (torch._C.TensorBase, torch.Tensor):
        return False  # a method: called through the tensor, which knows which to refuse
    if obj in BINARY or obj in INPLACE or obj in UNARY:
        return True
    return id(obj) in _tensor_function_names()


def is_leaf_function(fn: types.FunctionType) -> bool:
    """Python functions of PyTorch that go into the graph as one node instead of being inlined."""
    home = fn.__module__ or ""  # which functools.wraps gives to what stands in for one, too
    return home in ("torch.nn.functional", "torch.functional") and fn not in NEVER and is_of_pytorch(fn)


@handles(torch.is_tensor)
def _is_tensor(tx: Interpreter, obj: Value) -> Value:
    obj.look(tx)
    return ConstantValue(isinstance(obj, TensorValue))


def _from_numbers(fn: Any, tx: Interpreter, data: Value, **kwargs: Value) -> Value:
    """A tensor of numbers, in lists of lists."""
    if has_tensor(data):
        raise Unsupported("tensor value read", f"{fn.__name__} of tensors")
    if is_symbolic([data]) and not kwargs:
        dtype = torch.int64 if data.python_type() is int else torch.get_default_dtype()
        return tx.capture.call_function(tx, torch.scalar_tensor, [data], {"dtype": ConstantValue(dtype)})
    return tx.capture.call_function(tx, fn, [data], kwargs)


HANDLERS[torch.tensor] = functools.partial(_from_numbers, torch.tensor)


def _as_tensor(fn: Any, tx: Interpreter, data: Value, dtype: Value | None = None, device: Value | None = None) -> Value:
    """A tensor that is what it should be already is given back itself."""
    wanted = {k: v for k, v in (("dtype", dtype), ("device", device)) if v is not None and v.constant(tx) is not None}
    data.look(tx)
    if not isinstance(data, TensorValue):
        return _from_numbers(fn, tx, data, **wanted)
    return data.call_method(tx, "to", [], wanted) if wanted else data


for _fn in (torch.as_tensor, torch.asarray):
    HANDLERS[_fn] = functools.partial(_as_tensor, _fn)


@handles(torch.is_grad_enabled)
def _is_grad_enabled(tx: Interpreter) -> Value:
    return ConstantValue(tx.capture.grad_enabled)


def _tensor_query(name: str, tx: Interpreter, tensor: Value) -> Value:
    return tensor.get_attr(tx, name).call(tx, [], {})


for _name in ("is_floating_point", "is_complex", "numel", "is_signed"):
    HANDLERS[getattr(torch, _name)] = functools.partial(_tensor_query, _name)


@handles(torch._assert)
def _assert(tx: Interpreter, condition: Value, message: Value) -> Value:
    if not condition.truth(tx):
        raise raised(AssertionError, message)
    return NONE


@handles(torch._C._group_tensors_by_device_and_dtype)
def _group_tensors(tx: Interpreter, lists: Value, with_indices: Value) -> Value:
    """What clipping gradients and optimisers ask; of several groups, C++ gives the order of a hash table."""
    rows = [row.items(tx) for row in lists.items(tx)]
    kinds = {(t.fake(tx).device, t.fake(tx).dtype) for t in rows[0] if isinstance(t, TensorValue)} if rows else set()
    if len(kinds) != 1 or not all(isinstance(value, TensorValue) for row in rows for value in row):
        raise Unsupported("unsupported call", "tensors of several devices or dtypes, in groups")
    indices = range(len(rows[0])) if with_indices.truth(tx) else ()
    group = TupleValue([ListValue([ListValue(row) for row in rows]), from_python(list(indices))])
    return DictValue({kinds.pop(): group})
