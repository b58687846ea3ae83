"""Rules for ``flex_attention``, whose Python code is inlined down to PyTorch's own eager implementation.

That is made of ordinary operators: `vmap` of the program's functions over the matrix of scores, and a softmax.  They
are marked as a checkpoint, so that the backward computes the scores again, as PyTorch's does.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.traceback import annotate

from compiler_core.capture.rules.table import handles, handles_named
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.torch_private import flex_attention_hop

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


@handles(type(flex_attention_hop).__call__)
def _flex_attention(tx: Interpreter, operator: Value, query: Value, *args: Value, **kwargs: Value) -> Value:
    module: Any = sys.modules["torch._higher_order_ops.flex_attention"]
    function = tx.capture.outside.wrap(module.math_attention)
    graph, effects = tx.capture.graph, tx.capture.effects
    outer, frozen = graph.region, effects.frozen
    graph.region, effects.frozen = outer or graph.new_region(), "in a function of flex_attention"
    try:
        result, *statistics = function.call(tx, [query, *args], kwargs).unpack(tx)
    finally:
        graph.region, effects.frozen = outer, frozen
    assert isinstance(query, TensorValue)
    return TupleValue([_laid_out_like(tx, result, query.fake(tx)), *statistics])


def _laid_out_like(tx: Interpreter, result: Value, query: torch.Tensor) -> Value:
    """Returns the result in the order of memory of the query; its last dimension stays the innermost."""
    strides = query.stride()
    order = [*sorted(range(query.dim() - 1), key=lambda d: strides[d], reverse=True), query.dim() - 1]

    def permuted(value: Value, dims: list[int]) -> Value:
        return tx.capture.graph.call_method(tx, "permute", [value, *map(ConstantValue, dims)], {})

    if order == list(range(query.dim())):
        return tx.capture.graph.call_method(tx, "contiguous", [result], {})
    dense = tx.capture.graph.call_method(tx, "contiguous", [permuted(result, order)], {})
    return permuted(dense, [order.index(d) for d in range(query.dim())])


@handles_named("torch._dynamo.decorators.mark_static")
def _mark_static(tx: Interpreter, tensor: Value, index: Value | None = None) -> Value:
    return NONE


@handles_named("torch._dynamo._trace_wrapped_higher_order_op.ModIndex.apply")
def _index(tx: Interpreter, cls: Value, x: Value, indices: Value) -> Value:
    """``bias[head, row, column]`` within the program's functions: the indices are tensors without dimensions."""
    return tx.capture.graph.call_function(tx, torch.ops.aten.index, [x, indices], {})


@handles(annotate)
def _annotate(tx: Interpreter, annotation: Value) -> Value:
    """A context that only marks nodes of PyTorch's graphs."""
    return tx.capture.outside.wrap(contextlib.nullcontext).call(tx, [], {})
