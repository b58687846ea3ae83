"""Rule for ``associative_scan``, PyTorch's operator with a combining function: it is unrolled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from compiler_core.capture.rules.table import handles
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import ConstantValue
from compiler_core.capture.values.builtin.sequences import ListValue, TupleValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.errors import Unsupported
from compiler_core.torch_private import associative_scan

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


@handles(associative_scan)
def _associative_scan(
    tx: Interpreter,
    combine_fn: Value,
    xs: Value,
    dim: Value,
    reverse: Value | None = None,
    combine_mode: Value | None = None,
) -> Value:
    """Combines the elements along `dim` one after the other, as a loop would."""
    tensors, axis = _leaves(tx, xs), dim.constant(tx)
    rows = [tx.capture.graph.call_method(tx, "unbind", [t, ConstantValue(axis)], {}).unpack(tx) for t in tensors]
    backward = reverse is not None and reverse.truth(tx)
    order = list(zip(*(row[::-1] if backward else row for row in rows), strict=True))
    state = list(order[0])
    states = [state]
    for row in order[1:]:
        tx.capture.count_iteration()
        combined = combine_fn.call(tx, [_repack(xs, state), _repack(xs, list(row))], {})
        state = _leaves(tx, combined)
        states.append(state)
    columns = [list(column) for column in zip(*(states[::-1] if backward else states), strict=True)]
    stacked = [tx.capture.graph.call_function(tx, torch.stack, [ListValue(c)], {}) for c in columns]
    moves = [ConstantValue(0), ConstantValue(axis)]
    return _repack(xs, [tx.capture.graph.call_method(tx, "movedim", [t, *moves], {}) for t in stacked])


def _leaves(tx: Interpreter, xs: Value) -> list[Value]:
    values: list[Value] = [xs] if isinstance(xs, TensorValue) else tx.list_of(xs)
    if not values or not all(isinstance(v, TensorValue) for v in values):
        raise Unsupported("unsupported call", f"associative_scan over {xs}")
    return values


def _repack(xs: Value, values: list[Value]) -> Value:
    """Returns `values` in a container of the kind of `xs`."""
    if isinstance(xs, TensorValue):
        return values[0]
    return TupleValue(values) if isinstance(xs, TupleValue) else ListValue(values)
