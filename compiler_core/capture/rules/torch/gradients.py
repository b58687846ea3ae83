"""Rules for backwards in a frame, with ``capture_backward=True``: ``torch.autograd.grad``, ``Tensor.backward``.

The gradients are one node, a call of ``torch.autograd.grad``, which runs when the joint graph is traced: its operations
become nodes as those of the forward do.  ``backward`` then accumulates them as eager PyTorch does: ``.grad`` of a leaf
that has none is set, that of another leaf is added to in place.

Autograd's graph must lie within the captured graph.  So a tensor from outside that has a history breaks the graph, and
so does a leaf with hooks.  A result whose history was freed by the backward leaves the graph without it, and gets
another that raises eager's error (`autograd_function.with_spent_history`).  A tensor that the frame makes and sets to
require gradients is a leaf within the graph; one that would leave it, with its history, breaks the graph where it is
set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from compiler_core.capture.rules.table import handles
from compiler_core.capture.rules.torch.functions import split_arguments
from compiler_core.capture.values.base import Args, Kwargs, Value
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.sequences import ListValue, TupleValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import AttrSource
from compiler_core.support import transform_levels as levels
from compiler_core.support.opaque_ops import OpaqueFunction
from compiler_core.support.tensors import history, is_dense, storage_id
from compiler_core.support.torch_state import grad_mode_change

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


@handles(torch.autograd.grad)
def _grad(
    tx: Interpreter,
    outputs: Value,
    inputs: Value,
    grad_outputs: Value = NONE,
    retain_graph: Value = NONE,
    create_graph: Value = NONE,
    only_inputs: Value | None = None,
    allow_unused: Value = NONE,
    is_grads_batched: Value = NONE,
    materialize_grads: Value = NONE,
) -> Value:
    _check_wanted(tx, "torch.autograd.grad()")
    _check_option(tx, "is_grads_batched", is_grads_batched)
    _check_option(tx, "materialize_grads", materialize_grads)
    if only_inputs is not None and not only_inputs.truth(tx):
        raise Unsupported("backward", "torch.autograd.grad(only_inputs=False)")
    options = {"retain_graph": retain_graph, "allow_unused": allow_unused}
    if create_graph.truth(tx):
        options |= {"create_graph": ConstantValue(True)}
        options |= {"retain_graph": ConstantValue(True)} if tx.is_none(retain_graph) else {}
    found = _gradients(tx, _tensors(tx, outputs), _tensors(tx, inputs), grad_outputs, options)
    return TupleValue(found)


@handles(torch.autograd.backward)
def _backward(
    tx: Interpreter,
    tensors: Value,
    grad_tensors: Value = NONE,
    retain_graph: Value = NONE,
    create_graph: Value = NONE,
    grad_variables: Value = NONE,
    inputs: Value = NONE,
) -> Value:
    _check_wanted(tx, "torch.autograd.backward()")
    if not tx.is_none(grad_variables):
        raise Unsupported("backward", "torch.autograd.backward(grad_variables=...)")
    return backward(tx, tensors, grad_tensors, retain_graph, create_graph, inputs)


def method(tx: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    """``tensor.backward(*args, **kwargs)``"""
    _check_wanted(tx, "Tensor.backward()")
    if len(args) > 4 or not kwargs.keys() <= {"gradient", "retain_graph", "create_graph", "inputs"}:
        raise Unsupported("backward", "Tensor.backward() with arguments that it does not take")
    return backward(tx, tensor, *args, **kwargs)


def backward(
    tx: Interpreter,
    tensors: Value,
    gradient: Value = NONE,
    retain_graph: Value = NONE,
    create_graph: Value = NONE,
    inputs: Value = NONE,
) -> Value:
    """``tensors.backward(gradient, ...)``, of one tensor or a sequence of them."""
    roots, asked = _tensors(tx, tensors), None if tx.is_none(inputs) else _tensors(tx, inputs)
    for each in asked or ():
        each.node(tx)
    leaves = [v for v in tx.graph.inputs if isinstance(v, TensorValue) and v.fake(tx).requires_grad]
    if asked is not None:
        if len(set(asked)) != len(asked) or not set(asked) <= set(leaves):
            raise Unsupported("backward", "backward(inputs=...) with a tensor of the frame, or with one twice")
        leaves = asked
    if not leaves:  # eager raises
        raise Unsupported("backward", "no leaf that requires a gradient is in the graph")
    _check_option(tx, "create_graph", create_graph)
    options = {"retain_graph": retain_graph, "allow_unused": ConstantValue(True)}
    split_arguments(tx, gradient)  # it gets its node
    known = tx.graph.known_memory()
    found = _gradients(tx, roots, leaves, gradient, options)
    change = grad_mode_change(False) if torch.is_grad_enabled() else None
    if change is not None:
        tx.graph.change_state(change)
    for leaf, grad in zip(leaves, found, strict=True):
        if isinstance(grad, TensorValue):
            _accumulate(tx, leaf, grad, known)
    if change is not None:
        tx.graph.change_state(grad_mode_change(True))
    return NONE


def _check_wanted(tx: Interpreter, name: str) -> None:
    if not tx.graph.captures_backward:
        raise Unsupported("backward", name)


def _check_option(tx: Interpreter, name: str, option: Value) -> None:
    if option.truth(tx):
        raise Unsupported("backward", f"with {name}=True")


def _tensors(tx: Interpreter, value: Value) -> list[TensorValue]:
    values = value.unpack(tx) if isinstance(value, (ListValue, TupleValue)) else [value]
    if not values or not all(type(v) is TensorValue for v in values):
        raise Unsupported("backward", f"gradients with {value}")
    return [v for v in values if isinstance(v, TensorValue)]


def _gradients(
    tx: Interpreter,
    outputs: Sequence[TensorValue],
    inputs: Sequence[TensorValue],
    grad_outputs: Value,
    options: dict[str, Value],
) -> list[Value]:
    """Adds the node; returns a tensor or None for each of `inputs`."""
    graph = tx.graph
    if levels.depth() or graph.is_trial or graph.region is not None:
        raise Unsupported("backward", "in a transform, a hook, a checkpoint or a function of autograd")
    if distributed.is_available() and distributed.is_initialized():
        raise Unsupported("backward", "beside other ranks, which wait for gradients in hooks that capture cannot see")
    graph.keep_whole("beside gradients that it computes")
    for tensor in (*outputs, *inputs):
        tensor.node(tx)
    for value in graph.inputs:
        if isinstance(value, TensorValue) and value.fake(tx).requires_grad:
            _check_leaf(tx, value)
    if "create_graph" in options and any(_is_opaque(step) for each in outputs for step in history(each.fake(tx))):
        raise Unsupported("backward", "with create_graph=True, through an operation that is one node of the graph")
    result = graph.call_function(
        tx, torch.autograd.grad, [ListValue([*outputs]), ListValue([*inputs]), grad_outputs], options
    )
    assert isinstance(result, TupleValue)
    keeps = options["retain_graph"]
    graph.frees_history |= tx.is_none(keeps) or not keeps.truth(tx)
    gradients = result.unpack(tx)
    for tensor, grad in zip(inputs, gradients, strict=True):
        if isinstance(grad, TensorValue):
            place = tensor.node(tx).meta.get("place")
            grad.node(tx).meta |= {"role": "gradient"} | ({"place": f"{place}.grad"} if place else {})
    return gradients


def _is_opaque(step: Any) -> bool:
    """Whether a function of autograd is that of an operator whose gradients PyTorch computes in one call."""
    return getattr(type(step), "_forward_cls", None) is OpaqueFunction


def _check_leaf(tx: Interpreter, tensor: TensorValue) -> None:
    """Checks, with guards, that a tensor from outside has no history and no hooks."""
    real, source = tensor.real, tensor.source
    assert real is not None and source is not None
    if type(tensor) is not TensorValue or not tensor.fake(tx).is_leaf or not real.is_leaf:
        raise Unsupported("backward", f"{tensor} has a history from before the frame")
    guards = tx.guards
    guards.add("EQUALS_MATCH", AttrSource(source, "is_leaf"), True)
    for name in _HOOKS:
        if getattr(real, name) is not None:  # a dict, which stays when its hooks are removed
            raise Unsupported("backward", f"{tensor} has or had hooks")
        guards.add("EQUALS_MATCH", AttrSource(source, name), None)
    if tx.effects.calls_with(tensor):
        raise Unsupported("backward", f"{tensor} gets a hook in this frame")


def _accumulate(tx: Interpreter, leaf: TensorValue, grad: TensorValue, known: set[int]) -> None:
    """Adds a gradient to ``leaf.grad``, as autograd does; it is copied if it shares memory (`known`) or has gaps."""
    graph, fakes = tx.graph, (leaf.fake(tx), grad.fake(tx))
    before = leaf.get_attr(tx, "grad")
    if fakes[1].layout is not torch.strided:
        raise Unsupported("backward", "a gradient is sparse")
    if not tx.is_none(before):
        graph.call_method(tx, "add_", [before, grad])
        return
    wanted = fakes[0].stride() if is_dense(fakes[0]) else None
    new: Value = grad
    if storage_id(fakes[1]) in known or fakes[1].stride() != wanted:
        like = graph.call_function(tx, torch.empty_like, [leaf], {"requires_grad": ConstantValue(False)})
        new = graph.call_method(tx, "copy_", [like, grad])
    known.add(storage_id(fakes[1]))
    leaf.set_attr(tx, "grad", new)
