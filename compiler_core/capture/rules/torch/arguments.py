"""Converts values to arguments of tensor operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import ConstantValue
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import ListValue, RangeValue, SliceValue, TupleValue
from compiler_core.capture.values.builtin.symbols import SymbolicNumber
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.uncaptured_tensors import DistributedTensorValue
from compiler_core.errors import Unsupported
from compiler_core.guards.constants import NUMPY_NUMBERS

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.records.capture import BreakReason


def split_arguments(tx: Interpreter, value: Any) -> tuple[Any, Any]:
    """Converts a value, or a list or dict of values, to arguments of an operation.

    Returns the argument for the run on fake tensors, and the argument for the node of the graph.
    """
    if isinstance(value, TensorValue):
        return value.fake(tx), value.node(tx)
    if isinstance(value, SymbolicNumber):
        value.install_guards(tx)
        return value.sym, tx.capture.graph.number_node(value.sym)
    if isinstance(value, ConstantValue):
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
    if isinstance(value, RangeValue):
        return list(value.value), list(value.value)
    raise _unsupported_argument(value)


def _unsupported_argument(value: Value) -> Unsupported:
    kind: BreakReason = "distributed tensor" if isinstance(value, DistributedTensorValue) else "unsupported call"
    return Unsupported(kind, f"{value} as argument of a tensor operation")


def _constant(obj: Any) -> Any:
    """Returns `obj` as an argument of an FX node; raises Unsupported if it cannot be one."""
    if isinstance(obj, NUMPY_NUMBERS):
        obj = obj.item() if not isinstance(obj.item(), bool) else obj
    if isinstance(obj, (int, float, complex, str, bool, type(None), type(Ellipsis), slice)):
        return obj
    if isinstance(obj, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
        return obj
    raise Unsupported("unsupported call", f"a {type(obj).__name__} as argument of a tensor operation")
