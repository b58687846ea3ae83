"""Conditions on flags and counts that a module keeps in a buffer of one number, such as whether it was initialised.

Where a program branches on one, the branch is chosen while it is captured, as for a number that is no tensor, and a
guard computes the condition at each call.  That is so for buffers on a CPU that the frame has not written to before.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx as fx

from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import ConstantValue
from compiler_core.capture.values.builtin.deferred import ReadValue
from compiler_core.capture.values.builtin.symbols import COMPARISONS, SymbolicNumber
from compiler_core.capture.values.reads import item
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.guards.flag_conditions import HOLE, Condition, Step
from compiler_core.guards.sources import AttrSource, GetItemSource
from compiler_core.support import transform_levels as levels
from compiler_core.support.tensors import storage_id

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

_OPERATORS = COMPARISONS | {
    operator.add, operator.sub, operator.mul, operator.mod, operator.floordiv, operator.truediv, operator.neg,
    operator.invert, torch.logical_not,
}  # fmt: skip
_METHODS = frozenset("eq ne lt le gt ge any all bool long float logical_not detach clone squeeze".split())
_MOST_STEPS = 8


def truth_of_flag(tx: Interpreter, value: Value) -> bool | None:
    """Returns ``bool(value)``, with a guard, where it follows from a flag; None where it does not."""
    found = _steps(tx, value)
    if found is None or levels.depth() or tx.capture.graph.is_trial or len(found[1]) > _MOST_STEPS:
        return None
    tensor, steps = found
    if not _is_flag(tx, tensor) or storage_id(tensor.fake(tx)) in _written_before(tx, value):
        return None
    condition = Condition(tuple(steps))
    assert tensor.source is not None and tensor.real is not None
    try:
        truth = condition.holds(tensor.real)
    except (ArithmeticError, RuntimeError):  # the program's, such as a remainder of a division by 0
        return None
    tx.capture.guards.add("CONDITION_OF_FLAG", tensor.source, (condition, truth))
    return truth


def _is_flag(tx: Interpreter, tensor: TensorValue) -> bool:
    """Whether a tensor is a buffer of one number on a CPU."""
    real, source, fake = tensor.real, tensor.source, tensor.fake(tx)
    if type(tensor) is not TensorValue or real is None or type(real) is not torch.Tensor:
        return False
    place = source.base if isinstance(source, GetItemSource) else source  # of a table that the frame has changed
    is_buffer = isinstance(place, AttrSource) and "_buffers" in (place.table, place.name)
    is_number = real.numel() == 1 and real.device.type == "cpu" and real.layout is torch.strided
    inputs = tx.capture.graph.tensors_of(storage_id(fake))
    return is_buffer and is_number and inputs in ([], [tensor])


def _written_before(tx: Interpreter, value: Value) -> Collection[int]:
    """Returns the memory that was written before the tensor was read of which `value` is made."""
    if not isinstance(value, ReadValue):
        return tx.capture.graph.written_memory()
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
        found = [each for each in tx.capture.graph.inputs if isinstance(each, TensorValue) and each._node is node]
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
