"""Rules for ``torch.utils.checkpoint.checkpoint`` and ``flex_attention``: functions that the backward runs again.

The function is inlined, and its nodes are marked.  Eager PyTorch saves nothing inside a checkpoint and runs the
function a second time in the backward.  Here the mark tells the partition to do the same with the operations
(`autograd/mincut.py`), except for the results that the policy of a selective checkpoint keeps.  Python code runs only
once, so a function for which a second run would show breaks the graph: one that changes objects or tensors from
outside.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.traceback import annotate
from torch.utils import checkpoint

from compiler_core.capture.rules.table import handles, handles_named
from compiler_core.capture.values.base import ObservedException, Value
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.sequences import ListValue, TupleValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.errors import Unsupported
from compiler_core.support import transform_levels as levels
from compiler_core.torch_private import flex_attention_hop

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

CHANGES = "in a checkpoint, whose second run makes this change again"


class SelectiveContextValue(Value):
    """One of the two contexts of ``create_selective_checkpoint_contexts(policy)``."""

    def __init__(self, policy: Value) -> None:
        self.policy = policy


@handles(checkpoint.create_selective_checkpoint_contexts)
def _selective_contexts(tx: Interpreter, policy: Value, allow_cache_entry_mutation: Value = NONE) -> Value:
    return TupleValue([SelectiveContextValue(policy), SelectiveContextValue(policy)])


def _policy_of(tx: Interpreter, context_fn: Value | None) -> Value | None:
    """Returns the policy of the contexts that `context_fn` makes; None if they do nothing."""
    if context_fn is None or context_fn.same_object(StaticValue(checkpoint.noop_context_fn)):
        return None
    contexts = context_fn.call(tx, [], {})
    context = contexts.unpack(tx)[0] if isinstance(contexts, TupleValue) else None
    if not isinstance(context, SelectiveContextValue) or tx.capture.graph.region is not None:
        raise Unsupported("checkpoint", "with a context_fn whose contexts are not those of a selective checkpoint")
    return context.policy


def _kept_operators(tx: Interpreter, policy: Value, called: Iterable[Any]) -> Iterator[Any]:
    """Yields those of the operators `called` whose results the policy keeps for the backward."""
    if isinstance(policy, ListValue):
        yield from (each.constant(tx) for each in policy.unpack(tx))
        return
    context = tx.capture.outside.wrap(checkpoint.SelectiveCheckpointContext(is_recompute=False))
    for operator in called:
        try:
            choice = policy.call(tx, [context, StaticValue(operator)], {}).constant(tx)
        except ObservedException as error:  # of a policy that looks at the operator's arguments
            raise Unsupported("checkpoint", f"whose policy, given an operator alone, raises {error.context}") from None
        if choice in _OFFLOADS:
            raise Unsupported("checkpoint", "whose policy moves results to the CPU")
        if choice in (True, checkpoint.CheckpointPolicy.MUST_SAVE, checkpoint.CheckpointPolicy.PREFER_SAVE):
            yield operator


_OFFLOADS = {each for each in checkpoint.CheckpointPolicy if "OFFLOAD" in each.name}


@handles(checkpoint.checkpoint)
def _checkpoint(
    tx: Interpreter,
    function: Value,
    /,
    *args: Value,
    use_reentrant: Value | None = None,
    context_fn: Value | None = None,
    debug: Value | None = None,
    determinism_check: Value | None = None,
    early_stop: Value | None = None,
    preserve_rng_state: Value | None = None,
    **kwargs: Value,
) -> Value:
    if levels.depth():
        raise Unsupported("checkpoint", "in a transform of torch.func")
    if use_reentrant is None or tx.is_none(use_reentrant):
        raise Unsupported("checkpoint", "without use_reentrant, of which PyTorch warns")
    if use_reentrant.truth(tx) and (kwargs or not any(_requires_grad(tx, arg) for arg in args)):
        raise Unsupported(
            "checkpoint", "use_reentrant=True, with keywords or without an input that requires a gradient"
        )
    policy = _policy_of(tx, context_fn)
    if debug is not None and debug.truth(tx):
        raise Unsupported("checkpoint", "with debug=True")
    for each in (determinism_check, early_stop):  # they change nothing of a second run that is the same
        if each is not None:
            each.constant(tx)
    graph = tx.capture.graph
    if graph.region is not None and not graph.region.number:
        raise Unsupported("checkpoint", "in a function of an operator such as torch.cond")
    region, drew, graph.mode.has_drawn = graph.region or graph.new_region(), graph.mode.has_drawn, False
    try:
        with tx.capture.inside(region, CHANGES), graph.mode.noting_operators() as called:
            result = function.call(tx, list(args), kwargs)
            if policy is not None:
                graph.keep_results(region, _kept_operators(tx, policy, list(called)))
    finally:
        drawn_inside, graph.mode.has_drawn = graph.mode.has_drawn, drew or graph.mode.has_drawn
    if graph.written_outside(region):
        raise Unsupported("checkpoint", "its function writes to a tensor from outside, and a second run writes again")
    if drawn_inside and preserve_rng_state is not None and not preserve_rng_state.truth(tx):
        raise Unsupported("checkpoint", "preserve_rng_state=False, so a second run draws other random numbers")
    return result


def _requires_grad(tx: Interpreter, value: Value) -> bool:
    return isinstance(value, TensorValue) and value.fake(tx).requires_grad


# ---------------------------------------------------------------- flex_attention
#
# Its Python code is inlined down to PyTorch's own eager implementation, which is made of ordinary operators: `vmap` of
# the program's functions over the matrix of scores, and a softmax.  They are marked as a checkpoint, so that the
# backward computes the scores again, as PyTorch's does.


@handles(type(flex_attention_hop).__call__)
def _flex_attention(tx: Interpreter, operator: Value, query: Value, *args: Value, **kwargs: Value) -> Value:
    module: Any = sys.modules["torch._higher_order_ops.flex_attention"]
    function = tx.capture.outside.wrap(module.math_attention)
    region = tx.capture.graph.region or tx.capture.graph.new_region()
    with tx.capture.inside(region, "in a function of flex_attention"):
        result, *statistics = function.call(tx, [query, *args], kwargs).unpack(tx)
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


@handles_named("torch._higher_order_ops.invoke_subgraph.invoke_subgraph_placeholder")
def _nested_region(tx: Interpreter, func: Value, /, *args: Value, **kwargs: Value) -> Value:
    """``torch.compiler.nested_compile_region``, whose function is inlined at each call."""
    return func.call(tx, list(args), kwargs)


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
