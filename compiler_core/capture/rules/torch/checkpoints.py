"""Rule for ``torch.utils.checkpoint.checkpoint``: the function is inlined, and its nodes are marked.

Eager PyTorch saves nothing inside a checkpoint and runs the function a second time in the backward.  Here the mark
tells the partition to do the same with the operations (`autograd/mincut.py`).  Python code runs only once, so a
function for which a second run would show breaks the graph: one that changes objects or tensors from outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.utils import checkpoint

from compiler_core.capture.rules.table import handles
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.errors import Unsupported
from compiler_core.support import transform_levels as levels

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

CHANGES = "in a checkpoint, whose second run makes this change again"


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
    if context_fn is not None and not context_fn.same_object(StaticValue(checkpoint.noop_context_fn)):
        raise Unsupported("checkpoint", "with a context_fn")
    if debug is not None and debug.truth(tx):
        raise Unsupported("checkpoint", "with debug=True")
    for each in (determinism_check, early_stop):  # they change nothing of a second run that is the same
        if each is not None:
            each.constant(tx)
    graph, effects = tx.capture.graph, tx.capture.effects
    if graph.region is not None and not graph.region.number:
        raise Unsupported("checkpoint", "in a function of an operator such as torch.cond")
    outer, frozen, drew = graph.region, effects.frozen, graph.mode.has_drawn
    region = graph.region = outer or graph.new_region()
    effects.frozen, graph.mode.has_drawn = CHANGES, False
    try:
        result = function.call(tx, list(args), kwargs)
    finally:
        drawn_inside, graph.mode.has_drawn = graph.mode.has_drawn, drew or graph.mode.has_drawn
        graph.region, effects.frozen = outer, frozen
    if graph.writes_outside(region):
        raise Unsupported("checkpoint", "its function writes to a tensor from outside, and a second run writes again")
    if drawn_inside and preserve_rng_state is not None and not preserve_rng_state.truth(tx):
        raise Unsupported("checkpoint", "preserve_rng_state=False, so a second run draws other random numbers")
    return result


def _requires_grad(tx: Interpreter, value: Value) -> bool:
    return isinstance(value, TensorValue) and value.fake(tx).requires_grad
