"""Numbers that Python reads from tensors of the graph, such as ``loss.item()``, once the graph has run.

Such a number is known only then.  It can be kept, returned and computed with, where that raises nothing; generated code
makes it.  In arithmetic with a tensor, the tensor that it is read from takes its place.  All else needs the number, so
that the graph breaks there.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import ConstantValue
from compiler_core.capture.values.builtin.deferred import ReadValue
from compiler_core.capture.values.builtin.sequences import ListValue, SliceValue, TupleValue
from compiler_core.capture.values.builtin.symbols import COMPARISONS, NEVER_RAISE, SymbolicNumber
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.errors import Unsupported
from compiler_core.support import transform_levels as levels
from compiler_core.support.fx_symbols import is_symbolic
from compiler_core.support.tensors import MASK_TYPES
from compiler_core.torch_private import torch_check

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

_DIVISIONS = frozenset({operator.truediv, operator.floordiv, operator.mod})
_WITH_TENSORS = COMPARISONS | {operator.add, operator.sub, operator.mul, operator.truediv}
_READ_EXACTLY = {
    torch.float16: frozenset({torch.float16}),
    torch.bfloat16: frozenset({torch.bfloat16}),
    torch.float32: frozenset({torch.float16, torch.bfloat16, torch.float32, torch.int64, torch.int32}),
    torch.float64: frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.int32}),
    torch.int64: frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8}),
}
"""By the dtype of a tensor: the dtypes of which a number acts on it as the tensor with the number does."""
_LARGEST = 2**63
_MOST_ITEMS = 32
"""``tolist()`` of a tensor of more elements breaks the graph, since each is read by itself."""


def read(tx: Interpreter, tensor: TensorValue, function: Callable[..., Any], cls: type | None = None) -> ReadValue:
    """Returns ``function(tensor)``, a number of class `cls`, or of that of the tensor's dtype.

    Raises Unsupported for a tensor of which this is not known to be one number.
    """
    graph, fake = tx.capture.graph, tensor.fake(tx)
    is_one = all(is_symbolic(size) or size == 1 for size in fake.shape) and fake.layout is torch.strided
    is_plain = type(tensor) is TensorValue and not fake.dtype.is_complex and fake.device.type != "meta"
    if not is_one or not is_plain or levels.depth() or graph.is_trial or graph.region is not None:
        raise Unsupported("tensor value read", f"{function.__name__}() of a tensor")
    # a copy, since the tensor may be written to later
    kept = _part(tx, "detach", tensor) if fake.requires_grad else tensor
    kept = _part(tx, "clone", kept)
    number = ReadValue(function, [kept], cls or _class_of(fake.dtype), graph.written_memory())
    if any(map(is_symbolic, fake.shape)):
        graph.number_of(tx, number)  # it raises an error here if there are several elements
    return number


def _part(tx: Interpreter, method: str, tensor: TensorValue, *args: int) -> Any:
    """Adds a call of a method that gives a part of a tensor, or a copy, of which Python reads numbers."""
    found = tx.capture.graph.call_method(tx, method, [tensor, *map(ConstantValue, args)], {})
    assert isinstance(found, TensorValue)
    if found is not tensor:
        found.node(tx).meta["read"] = True
    return found


def _class_of(dtype: torch.dtype) -> type:
    return float if dtype.is_floating_point else bool if dtype == torch.bool else int


def item(tensor: torch.Tensor) -> Any:
    """``tensor.item()``; generated code calls it."""
    return tensor.item()


def item_of(tx: Interpreter, tensor: TensorValue) -> Value:
    """``tensor.item()``"""
    return read(tx, tensor, item)


def list_of_items(tx: Interpreter, tensor: TensorValue) -> Value:
    """``tensor.tolist()``"""
    shape = tensor.fake(tx).shape
    if not shape:
        return item_of(tx, tensor)
    if not all(isinstance(size, int) for size in shape) or math.prod(shape) > _MOST_ITEMS:
        raise Unsupported("tensor value read", "tolist() of many elements")
    return ListValue([list_of_items(tx, _part(tx, "select", tensor, 0, i)) for i in range(shape[0])])


def index_of_numbers(tx: Interpreter, key: Value) -> Value:
    """Returns an index with numbers in place of tensors without dimensions, of which PyTorch reads the value."""
    if isinstance(key, SliceValue) and any(isinstance(bound, (TensorValue, ReadValue)) for bound in key.bounds):
        return SliceValue([index_of_numbers(tx, bound) for bound in key.bounds])
    if isinstance(key, TupleValue) and key.cls is tuple and key.source is None:
        read = (SliceValue, TensorValue, ReadValue)
        return TupleValue([index_of_numbers(tx, each) if isinstance(each, read) else each for each in key.unpack(tx)])
    for each in key.unpack(tx) if isinstance(key, ListValue) else [key]:
        if isinstance(each, TensorValue) and not each.fake(tx).dim() and each.fake(tx).dtype in MASK_TYPES:
            raise Unsupported("tensor value read", "an index by a mask without dimensions: its value decides a size")
    if isinstance(key, TensorValue) and _is_index(key.fake(tx)) and not levels.depth():
        key = item_of(tx, key)
    return tx.capture.graph.number_of(tx, key) if isinstance(key, ReadValue) else key


def _is_index(fake: torch.Tensor) -> bool:
    return not fake.dim() and fake.dtype in (torch.int64, torch.int32, torch.int16, torch.int8)


def compute(tx: Interpreter, op: Any, *operands: Value) -> Value:
    """Returns ``op(*operands)``, where one of them is read; Unsupported where that may raise."""
    if op is operator.add and all(each.python_type() is str for each in operands):
        return ReadValue(op, operands, str)
    if not all(map(_is_number, operands)):
        raise Unsupported("tensor value read", f"{op.__name__} of {' and '.join(map(str, operands))}")
    if op in COMPARISONS and (truth := tx.truth_of_flag(ReadValue(op, operands, bool))) is not None:
        return ConstantValue(truth)
    is_safe = op in NEVER_RAISE | COMPARISONS or (op in _DIVISIONS and _is_divisor(tx, operands[1]))
    if not is_safe:
        raise Unsupported("tensor value read", f"{op.__name__}, which needs the number now")
    for operand in operands:
        operand.install_guards(tx)
    return ReadValue(op, operands, type(op(*(v.python_type()(1) for v in operands))))


def extreme(tx: Interpreter, fn: Any, values: Sequence[Value]) -> Value:
    """``min(*values)`` or ``max(*values)``, where one of them is a number that is read, and all are of one class."""
    if len({each.python_type() for each in values}) != 1 or not all(map(_is_number, values)):
        raise Unsupported("tensor value read", f"{fn.__name__} of {' and '.join(map(str, values))}")
    for each in values:
        each.install_guards(tx)
    return ReadValue(fn, values, values[0].python_type())


def _is_number(value: Value) -> bool:
    if isinstance(value, (ReadValue, SymbolicNumber)):
        return value.python_type() is not str
    is_plain = isinstance(value, ConstantValue) and value.python_type() in (int, float, bool)
    return is_plain and not (isinstance(value.value, int) and abs(value.value) >= _LARGEST)  # type: ignore[attr-defined]


def _is_divisor(tx: Interpreter, value: Value) -> bool:
    """Whether a number is not 0, which is guarded."""
    return isinstance(value, ConstantValue) and value.truth(tx)


def as_operand(tx: Interpreter, op: Any, tensor: TensorValue, number: ReadValue) -> Value:
    """Returns what acts on `tensor` as the number does: the tensor that it is read from, or the number, for which the
    graph waits."""
    source, fake = number.args[0], tensor.fake(tx)
    is_read = number.function in (item, float, int) and isinstance(source, TensorValue)
    if not is_read or type(tensor) is not TensorValue or op not in _WITH_TENSORS:
        return tx.capture.graph.number_of(tx, number)
    assert isinstance(source, TensorValue)
    read_from = source.fake(tx)
    is_exact = read_from.device == fake.device and read_from.dtype in _READ_EXACTLY.get(fake.dtype, ())
    # kernels of GPUs multiply by the reciprocal of a number
    if op is operator.truediv:
        is_exact &= fake.dtype.is_floating_point and fake.device.type == "cpu"
    if not is_exact or (not fake.dtype.is_floating_point and number.cls is not int):
        return tx.capture.graph.number_of(tx, number)
    flat = tx.capture.graph.call_method(tx, "squeeze", [source], {}) if read_from.dim() else source
    return tx.capture.graph.call_method(tx, "to", [flat, ConstantValue(fake.dtype)], {})


def as_tensor(tx: Interpreter, number: ReadValue) -> Value | None:
    """Returns a tensor without dimensions that has exactly the number's value; None if there may be none.

    Python computes with numbers as float64 tensors do, but for integers, which have no bounds.
    """
    source = number.args[0]
    if number.function in (item, float, int) and isinstance(source, TensorValue):
        if number.cls is not _class_of(source.fake(tx).dtype):
            return None
        flat = tx.capture.graph.call_method(tx, "squeeze", [source], {}) if source.fake(tx).dim() else source
        wide = torch.float64 if number.cls is float else source.fake(tx).dtype
        return tx.capture.graph.call_method(tx, "to", [flat, ConstantValue(wide)], {})
    if number.cls is not float or number.function not in NEVER_RAISE | {operator.truediv}:
        return None
    operands = [as_tensor(tx, each) if isinstance(each, ReadValue) else each for each in number.args]
    is_known = all(isinstance(each, TensorValue) or (each and each.python_type() is float) for each in operands)
    if not is_known or any(isinstance(each, TensorValue) and each.fake(tx).dtype != torch.float64 for each in operands):
        return None
    return tx.capture.graph.call_function(tx, number.function, [each for each in operands if each], {})


def check(tx: Interpreter, condition: ReadValue) -> None:
    """``torch._check(condition)``, which is checked when the graph runs, and taken for granted."""
    graph = tx.capture.graph
    if condition.function not in COMPARISONS:
        raise Unsupported("data-dependent branch")
    sides = [graph.number_of(tx, each) if isinstance(each, ReadValue) else each for each in condition.args]
    left, right = (each.sym if isinstance(each, SymbolicNumber) else each.constant(tx) for each in sides)
    torch_check(condition.function(left, right))
    graph.add_conditions(of_program=True)
