"""Numbers that are read from tensors: ``loss.item()``, read by Python after the graph has run, and flags in buffers.

Such a number is known only then.  It can be kept, returned and computed with, where that raises nothing; generated code
makes it.  In arithmetic with a tensor, the tensor that it is read from takes its place.  All else needs the number, so
that the graph breaks there.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx as fx

from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import ConstantValue
from compiler_core.capture.values.builtin.sequences import ListValue, SliceValue, TupleValue
from compiler_core.capture.values.builtin.symbols import COMPARISONS, NEVER_RAISE, ReadValue, SymbolicNumber
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.errors import Unsupported
from compiler_core.guards.relation_guards import HOLE, FlagCondition, Step
from compiler_core.guards.sources import AttrSource, GetItemSource
from compiler_core.support import transform_levels as levels
from compiler_core.support.fx_symbols import is_symbolic
from compiler_core.support.tensors import MASK_TYPES, storage_id
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
    graph, fake = tx.graph, tensor.fake(tx)
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
    found = tx.graph.call_method(tx, method, [tensor, *map(ConstantValue, args)])
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
    return tx.graph.number_of(tx, key) if isinstance(key, ReadValue) else key


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
        return tx.graph.number_of(tx, number)
    assert isinstance(source, TensorValue)
    read_from = source.fake(tx)
    is_exact = read_from.device == fake.device and read_from.dtype in _READ_EXACTLY.get(fake.dtype, ())
    # kernels of GPUs multiply by the reciprocal of a number
    if op is operator.truediv:
        is_exact &= fake.dtype.is_floating_point and fake.device.type == "cpu"
    if not is_exact or (not fake.dtype.is_floating_point and number.cls is not int):
        return tx.graph.number_of(tx, number)
    flat = tx.graph.call_method(tx, "squeeze", [source]) if read_from.dim() else source
    return tx.graph.call_method(tx, "to", [flat, ConstantValue(fake.dtype)])


def as_tensor(tx: Interpreter, number: ReadValue) -> Value | None:
    """Returns a tensor without dimensions that has exactly the number's value; None if there may be none.

    Python computes with numbers as float64 tensors do, but for integers, which have no bounds.
    """
    source = number.args[0]
    if number.function in (item, float, int) and isinstance(source, TensorValue):
        if number.cls is not _class_of(source.fake(tx).dtype):
            return None
        flat = tx.graph.call_method(tx, "squeeze", [source]) if source.fake(tx).dim() else source
        wide = torch.float64 if number.cls is float else source.fake(tx).dtype
        return tx.graph.call_method(tx, "to", [flat, ConstantValue(wide)])
    if number.cls is not float or number.function not in NEVER_RAISE | {operator.truediv}:
        return None
    operands = [as_tensor(tx, each) if isinstance(each, ReadValue) else each for each in number.args]
    is_known = all(isinstance(each, TensorValue) or (each and each.python_type() is float) for each in operands)
    if not is_known or any(isinstance(each, TensorValue) and each.fake(tx).dtype != torch.float64 for each in operands):
        return None
    return tx.graph.call_function(tx, number.function, [each for each in operands if each])


def check(tx: Interpreter, condition: ReadValue) -> None:
    """``torch._check(condition)``, which is checked when the graph runs, and taken for granted."""
    graph = tx.graph
    if condition.function not in COMPARISONS:
        raise Unsupported("data-dependent branch")
    sides = [graph.number_of(tx, each) if isinstance(each, ReadValue) else each for each in condition.args]
    left, right = (each.sym if isinstance(each, SymbolicNumber) else each.constant(tx) for each in sides)
    torch_check(condition.function(left, right))
    graph.add_conditions(of_program=True)


# ---------------------------------------------------------------- flags in buffers
#
# Conditions on flags and counts that a module keeps in a buffer of one number, such as whether it was initialised.
#
# Where a program branches on one, the branch is chosen while it is captured, as for a number that is no tensor, and a
# guard computes the condition at each call.  That is so for buffers on a CPU that the frame has not written to before.


_OPERATORS = COMPARISONS | {
    operator.add, operator.sub, operator.mul, operator.mod, operator.floordiv, operator.truediv, operator.neg,
    operator.invert, torch.logical_not,
}  # fmt: skip
_METHODS = frozenset("eq ne lt le gt ge any all bool long float logical_not detach clone squeeze".split())
_MOST_STEPS = 8


def truth_of_flag(tx: Interpreter, value: Value) -> bool | None:
    """Returns ``bool(value)``, with a guard, where it follows from a flag; None where it does not."""
    found = _steps(tx, value)
    if found is None or levels.depth() or tx.graph.is_trial or len(found[1]) > _MOST_STEPS:
        return None
    tensor, steps = found
    if not _is_flag(tx, tensor) or storage_id(tensor.fake(tx)) in _written_before(tx, value):
        return None
    condition = FlagCondition(tuple(steps))
    assert tensor.source is not None and tensor.real is not None
    try:
        truth = condition.holds(tensor.real)
    except (ArithmeticError, RuntimeError):  # the program's, such as a remainder of a division by 0
        return None
    tx.guards.add("CONDITION_OF_FLAG", tensor.source, (condition, truth))
    return truth


def _is_flag(tx: Interpreter, tensor: TensorValue) -> bool:
    """Whether a tensor is a buffer of one number on a CPU."""
    real, source, fake = tensor.real, tensor.source, tensor.fake(tx)
    if type(tensor) is not TensorValue or real is None or type(real) is not torch.Tensor:
        return False
    place = source.base if isinstance(source, GetItemSource) else source  # of a table that the frame has changed
    is_buffer = isinstance(place, AttrSource) and "_buffers" in (place.table, place.name)
    is_number = real.numel() == 1 and real.device.type == "cpu" and real.layout is torch.strided
    inputs = tx.graph.tensors_of(storage_id(fake))
    return is_buffer and is_number and inputs in ([], [tensor])


def _written_before(tx: Interpreter, value: Value) -> Collection[int]:
    """Returns the memory that was written before the tensor was read of which `value` is made."""
    if not isinstance(value, ReadValue):
        return tx.graph.written_memory()
    inner = [each for each in value.args if isinstance(each, ReadValue)]
    return _written_before(tx, inner[0]) if inner else value.written


def _steps(tx: Interpreter, value: Value) -> tuple[TensorValue, list[Step]] | None:
    """Returns the outside tensor and the operations by which `value` follows from it and constants; else None."""
    if isinstance(value, TensorValue):
        if value.source is not None:
            return value, []
        return _steps_of_node(tx, value.node(tx))
    if not isinstance(value, ReadValue):
        return None
    operands = [each for each in value.args if not isinstance(each, ConstantValue)]
    if len(operands) != 1 or any(isinstance(each, SymbolicNumber) for each in value.args):
        return None
    if value.function not in (*_OPERATORS, item, float, int, operator.abs, round):
        return None
    return _followed_by(_steps(tx, operands[0]), value.function, [_argument(each) for each in value.args])


def _argument(value: Value) -> Any:
    return value.value if isinstance(value, ConstantValue) else HOLE


def _steps_of_node(tx: Interpreter, node: fx.Node) -> tuple[TensorValue, list[Step]] | None:
    if node.op == "placeholder":
        found = [each for each in tx.graph.inputs if isinstance(each, TensorValue) and each._node is node]
        return (found[0], []) if found else None
    is_known = node.target in (_METHODS if node.op == "call_method" else _OPERATORS)
    if not is_known or node.kwargs or len(node.all_input_nodes) != 1:
        return None
    args = [HOLE if isinstance(each, fx.Node) else each for each in node.args]
    if any(each is not HOLE and not isinstance(each, (int, float)) for each in args):
        return None
    return _followed_by(_steps_of_node(tx, node.all_input_nodes[0]), node.target, args)


def _followed_by(
    found: tuple[TensorValue, list[Step]] | None, function: Callable[..., Any] | str, args: Sequence[Any]
) -> tuple[TensorValue, list[Step]] | None:
    return None if found is None else (found[0], [*found[1], Step(function, tuple(args))])
