"""Rules for backwards and optimizers in a frame, with ``capture_backward=True``: ``Tensor.backward``, steps.

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

import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed
from torch.amp.grad_scaler import GradScaler
from torch.optim import Adadelta, Adam, Adamax, NAdam, RAdam, RMSprop

from compiler_core.capture.rules.table import handles, handles_each, has_tensor
from compiler_core.capture.rules.torch.functions import split_arguments
from compiler_core.capture.values.base import Args, Kwargs, Value
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import ListValue, TupleValue
from compiler_core.capture.values.contexts import GradModeValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.functions import FunctionValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import AttrSource, InstanceDictSource
from compiler_core.records.capture import BreakReason
from compiler_core.support import transform_levels as levels
from compiler_core.support.opaque_ops import OpaqueFunction
from compiler_core.support.tensors import HALF_TYPES, history, is_dense, storage_id
from compiler_core.support.torch_state import grad_mode_change
from compiler_core.torch_private import fused_sgd, optimizer_get_value, optimizer_stack_if_compiling

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


# ---------------------------------------------------------------- optimizers and gradient scaler
#
# They are Python code over tensors and are inlined, with what PyTorch has for compilers in it:
# ``is_compiling()`` holds.


@handles(inspect.unwrap(torch.optim.Optimizer.zero_grad))
def _zero_grad(tx: Interpreter, optimizer: Value, set_to_none: Value | None = None) -> Value:
    """Sets each ``.grad`` to None, whether there is one or not: a guard on that would fail at the second step."""
    to_none = set_to_none is None or set_to_none.truth(tx)
    if not to_none or not hasattr(getattr(optimizer, "real", None), "_zero_grad_profile_name"):
        function = tx.outside.wrap(inspect.unwrap(torch.optim.Optimizer.zero_grad))
        assert isinstance(function, FunctionValue)
        return tx.inline(function, [optimizer, ConstantValue(to_none)], {})
    for group in optimizer.get_attr(tx, "param_groups").unpack(tx):
        for parameter in group.get_item(tx, ConstantValue("params")).unpack(tx):
            parameter.set_attr(tx, "grad", NONE)
    return NONE


_MAKES_ZEROS = tuple({each._init_group: each for each in (Adadelta, Adam, Adamax, NAdam, RAdam, RMSprop)})
"""The methods that make an optimizer's state in its first step, and make zeros and ones."""


@handles_each(*_MAKES_ZEROS)
def _init_group(fn: Any, tx: Interpreter, optimizer: Value, group: Value, *lists: Value) -> Value:
    """Makes the state now, so that the first step needs no other graph than the next ones."""
    state, real = optimizer.get_attr(tx, "state"), getattr(optimizer, "real", None)
    if isinstance(state, DictValue) and not state.is_loaded and real is not None and state.real is real.state:
        _make_state(fn, tx, optimizer, real, len(lists))
    function = tx.outside.wrap(fn)
    assert isinstance(function, FunctionValue)
    return tx.inline(function, [optimizer, group, *lists], {})


def _make_state(fn: Any, tx: Interpreter, optimizer: Value, real: torch.optim.Optimizer, count: int) -> None:
    """Calls `fn` for each group of an outside optimizer, and `count` lists, as if its parameters had gradients."""
    if tx.graph.region is not None or tx.graph.is_trial or tx.graph.inference_mode or levels.depth():
        return
    groups = optimizer.get_attr(tx, "param_groups").unpack(tx)
    if len(groups) != len(real.param_groups):
        return  # the frame has added one
    parameters = list[torch.Tensor]()
    for group, of_real in zip(groups, real.param_groups, strict=True):
        assert isinstance(group, DictValue)
        known = {key: value for key, value in group.known_items().items() if isinstance(value, ConstantValue)}
        if any(value.value != of_real.get(key) for key, value in known.items() if key != "lr"):
            return  # the frame has changed it
        for value in group.get_item(tx, ConstantValue("params")).unpack(tx):
            parameter = value.real if type(value) is TensorValue else None
            if parameter is None or type(parameter) not in (torch.Tensor, torch.nn.Parameter):
                return
            if not tx.is_none(value.get_attr(tx, "grad")) and not real.state.get(parameter):
                parameters.append(parameter)
    every = [p for group in real.param_groups for p in group["params"]]
    gradients, keys = [p.grad for p in every], set(real.state)
    tx.capture.made_state += [(real.state, p) for p in parameters if p not in keys]
    with torch.no_grad():
        try:
            for p in every:
                p.grad = None
            for p in parameters:
                p.grad = p.detach()  # it takes no memory
            for each in real.param_groups:
                fn(real, each, *([] for _ in range(count)))
        except RuntimeError:  # the step will raise it
            tx.capture.drop_made_state()
        finally:
            for p, grad in zip(every, gradients, strict=True):
                p.grad = grad


@handles(optimizer_get_value)
def _get_value(tx: Interpreter, x: Value) -> Value:
    """Returns a count of steps as a tensor of float64, in which eager PyTorch computes with its number."""
    if not isinstance(x, TensorValue):
        return x
    return tx.graph.call_method(tx, "to", [x, ConstantValue(torch.float64)])


@handles(optimizer_stack_if_compiling)
def _stack_if_compiling(tx: Interpreter, x: Value) -> Value:
    """Returns the numbers as eager PyTorch has them: one for each parameter."""
    return x


@handles_each(torch._foreach_addcdiv, torch._foreach_addcdiv_, torch._foreach_addcmul, torch._foreach_addcmul_)
def _foreach_scaled(fn: Any, tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    """One call for each tensor if a scale is a tensor, of which PyTorch needs the value."""
    graph = tx.graph
    rows, scales = args[:3], [*args[3:], *kwargs.values()]
    if len(rows) < 3 or len(scales) != 1 or not has_tensor(scales[0]):
        return graph.call_function(tx, fn, args, kwargs)
    columns, [scale] = [row.unpack(tx) for row in rows], scales
    name = fn.__name__.removeprefix("_foreach_")
    each = scale.unpack(tx) if isinstance(scale, (ListValue, TupleValue)) else [scale] * len(columns[0])
    found = [
        graph.call_method(tx, name, tensors, {"value": value}) for *tensors, value in zip(*columns, each, strict=True)
    ]
    return NONE if name.endswith("_") else TupleValue(found)


@handles_each(torch._foreach_add, torch._foreach_add_)
def _foreach_add(fn: Any, tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    """One call for each tensor if the other operand is a tensor, of which PyTorch's fake kernel needs the value."""
    graph = tx.graph
    if len(args) != 2 or not isinstance(args[1], TensorValue):
        return graph.call_function(tx, fn, args, kwargs)
    tensors, other = args[0].unpack(tx), args[1]
    fakes = [each.fake(tx) for each in tensors if isinstance(each, TensorValue)]
    if other.fake(tx).dim() or {each.device for each in fakes} != {other.fake(tx).device} or other in tensors:
        raise Unsupported("unsupported call", f"{fn.__name__}() with such a tensor")
    name = fn.__name__.removeprefix("_foreach_")
    found = [graph.call_method(tx, name, [each, other], kwargs) for each in tensors]
    return NONE if name.endswith("_") else TupleValue(found)


@handles(GradScaler._maybe_opt_step)
def _step_unless_infinite(
    tx: Interpreter, scaler: Value, optimizer: Value, scaler_state: Value, *args: Value, **kwargs: Value
) -> Value:
    """Takes the step, and undoes its writes to tensors where a gradient is infinite: eager PyTorch does not take it."""
    graph = tx.graph
    of_devices = scaler_state.get_item(tx, ConstantValue("found_inf_per_device"))
    assert isinstance(of_devices, DictValue)
    found = list(of_devices.mapping(tx).values())
    tensors = {id(each): each for each in _tensors_of(tx, optimizer)}
    places = {each.fake(tx).device for each in (*tensors.values(), *found) if isinstance(each, TensorValue)}
    if len(found) != 1 or len(places) > 1 or graph.region is not None:
        raise Unsupported("optimizer", "GradScaler.step with tensors on several devices, or in a checkpoint")
    before = {key: graph.call_method(tx, "clone", [each]) for key, each in tensors.items()}
    region = graph.new_region(marked=False)
    try:
        with tx.capture.inside(region, _CHANGES_STATE):
            result = optimizer.get_attr(tx, "step").call(tx, list(args), kwargs)
    except Unsupported as error:
        state = optimizer.get_attr(tx, "state")
        if isinstance(state, DictValue) and state.source is not None:  # a later step may make it
            tx.capture.awaited.append(("DICT_LENGTH", state.source, len(state.real)))
        if optimizer.source is not None:  # of its attributes, which a scheduler adds to when it has taken a step
            attributes = InstanceDictSource(optimizer.source)
            tx.capture.awaited.append(("DICT_LENGTH", attributes, len(attributes.fetch(tx.guards.scope))))
        kind: BreakReason = "optimizer" if error.context == _CHANGES_STATE else error.kind
        raise Unsupported(kind, error.context) from None
    written = {id(each) for each in graph.written_outside(region)}
    if not tx.is_none(result) or not written <= tensors.keys():
        raise Unsupported("optimizer", "GradScaler.step of an optimizer that returns something or writes to others")
    mode = GradModeValue(torch.no_grad, {})
    mode.enter(tx)
    skipped = graph.call_method(tx, "ne", [found[0], ConstantValue(0)])
    for key, tensor in tensors.items():
        if key in written:
            kept = graph.call_function(tx, torch.where, [skipped, before[key], tensor])
            graph.call_method(tx, "copy_", [tensor, kept])
    mode.leave(tx)
    return NONE


_CHANGES_STATE = "GradScaler.step, which makes the optimizer's state or changes more than tensors"


def _tensors_of(tx: Interpreter, optimizer: Value) -> Iterator[TensorValue]:
    """Yields the parameters of an optimizer, and the tensors of its state."""
    state = optimizer.get_attr(tx, "state")
    assert isinstance(state, DictValue)
    for group in optimizer.get_attr(tx, "param_groups").unpack(tx):
        for parameter in group.get_item(tx, ConstantValue("params")).unpack(tx):
            of_it = state.lookup(tx, parameter.as_key(tx))
            values = of_it.mapping(tx).values() if isinstance(of_it, DictValue) else []
            yield from (each for each in (parameter, *values) if isinstance(each, TensorValue))


@handles(fused_sgd)
def _fused_sgd(tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
    """Leaves short types on a CPU to PyTorch, whose kernel computes wrong values for them."""
    for x in args[0].unpack(tx):
        if isinstance(x, TensorValue) and x.fake(tx).device.type == "cpu" and x.fake(tx).dtype in HALF_TYPES:
            raise Unsupported("optimizer", f"torch.optim.SGD(fused=True) of {x.fake(tx).dtype} on a CPU")
    return tx.graph.call_function(tx, fused_sgd, args, kwargs)
