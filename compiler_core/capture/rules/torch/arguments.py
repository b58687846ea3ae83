"""Values as arguments of tensor operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import ListValue, RangeValue, SliceValue, TupleValue
from compiler_core.capture.values.constant import ConstantValue
from compiler_core.capture.values.symbols import SymbolicNumber
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.errors import Unsupported
from compiler_core.guards.constants import NUMPY_NUMBERS

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


def arguments(tx: Interpreter, value: Any) -> tuple[Any, Any]:
    """A value, or list or dict of values, as (what fake execution takes, what a node takes)."""
    if isinstance(value, TensorValue):
        return value.fake(tx), value.node(tx)
    if isinstance(value, SymbolicNumber):
        value.look(tx)
        return value.sym, tx.capture.number(value.sym)
    if isinstance(value, ConstantValue):
        constant = _constant(value.constant(tx))
        return constant, constant
    if isinstance(value, TupleValue):
        fakes, nodes = arguments(tx, value.items(tx))
        if value.cls not in (tuple, torch.Size):
            raise _refused(value)
        return tuple(fakes), tuple(nodes)
    if isinstance(value, ListValue):
        return arguments(tx, list(value.items(tx)))
    if isinstance(value, DictValue) and value.cls is dict:
        return arguments(tx, dict(value.mapping(tx)))
    if isinstance(value, SliceValue):
        fakes, nodes = arguments(tx, value.parts)
        return slice(*fakes), slice(*nodes)
    if isinstance(value, list):
        both = [arguments(tx, v) for v in value]
        return [f for f, _ in both], [n for _, n in both]
    if isinstance(value, dict):
        pairs = {k: arguments(tx, v) for k, v in value.items()}
        return {k: f for k, (f, _) in pairs.items()}, {k: n for k, (_, n) in pairs.items()}
    if isinstance(value, RangeValue):
        return list(value.value), list(value.value)
    raise _refused(value)


def _refused(value: Value) -> Unsupported:
    return Unsupported("unsupported call", f"{value} as argument of a tensor operation")


def _constant(obj: Any) -> Any:
    """`obj` as an argument of an FX node, or Unsupported."""
    if isinstance(obj, NUMPY_NUMBERS):
        obj = obj.item() if not isinstance(obj.item(), bool) else obj
    if isinstance(obj, (int, float, complex, str, bool, type(None), type(Ellipsis), slice)):
        return obj
    if isinstance(obj, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
        return obj
    raise Unsupported("unsupported call", f"a {type(obj).__name__} as argument of a tensor operation")
