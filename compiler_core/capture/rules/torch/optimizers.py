"""Rules for PyTorch's optimizers and gradient scaler, whose steps are captured with ``capture_backward=True``.

They are Python code over tensors and are inlined, with what PyTorch has for compilers in it: ``is_compiling()`` holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.amp.grad_scaler import GradScaler

from compiler_core.capture.rules.table import handles, handles_each, has_tensor
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import ListValue, TupleValue
from compiler_core.capture.values.contexts import GradModeValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import InstanceDictSource
from compiler_core.records.capture import BreakReason
from compiler_core.support.tensors import HALF_TYPES
from compiler_core.torch_private import fused_sgd, optimizer_get_value, optimizer_stack_if_compiling

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


@handles(optimizer_get_value)
def _get_value(tx: Interpreter, x: Value) -> Value:
    """Returns a count of steps as a tensor of float64, in which eager PyTorch computes with its number."""
    if not isinstance(x, TensorValue):
        return x
    return tx.capture.graph.call_method(tx, "to", [x, ConstantValue(torch.float64)], {})


@handles(optimizer_stack_if_compiling)
def _stack_if_compiling(tx: Interpreter, x: Value) -> Value:
    """Returns the numbers as eager PyTorch has them: one for each parameter."""
    return x


@handles_each(torch._foreach_addcdiv, torch._foreach_addcdiv_, torch._foreach_addcmul, torch._foreach_addcmul_)
def _foreach_scaled(fn: Any, tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    """One call for each tensor if a scale is a tensor, of which PyTorch needs the value."""
    graph = tx.capture.graph
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
    graph = tx.capture.graph
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
    graph = tx.capture.graph
    of_devices = scaler_state.get_item(tx, ConstantValue("found_inf_per_device"))
    assert isinstance(of_devices, DictValue)
    found = list(of_devices.mapping(tx).values())
    tensors = {id(each): each for each in _tensors_of(tx, optimizer)}
    places = {each.fake(tx).device for each in (*tensors.values(), *found) if isinstance(each, TensorValue)}
    if len(found) != 1 or len(places) > 1 or graph.region is not None:
        raise Unsupported("optimizer", "GradScaler.step with tensors on several devices, or in a checkpoint")
    before = {key: graph.call_method(tx, "clone", [each], {}) for key, each in tensors.items()}
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
            tx.capture.awaited.append(("DICT_LENGTH", attributes, len(attributes.fetch(tx.capture.guards.scope))))
        kind: BreakReason = "optimizer" if error.context == _CHANGES_STATE else error.kind
        raise Unsupported(kind, error.context) from None
    written = {id(each) for each in graph.written_outside(region)}
    if not tx.is_none(result) or not written <= tensors.keys():
        raise Unsupported("optimizer", "GradScaler.step of an optimizer that returns something or writes to others")
    mode = GradModeValue(torch.no_grad, {})
    mode.enter(tx)
    skipped = graph.call_method(tx, "ne", [found[0], ConstantValue(0)], {})
    for key, tensor in tensors.items():
        if key in written:
            kept = graph.call_function(tx, torch.where, [skipped, before[key], tensor], {})
            graph.call_method(tx, "copy_", [tensor, kept], {})
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
    return tx.capture.graph.call_function(tx, fused_sgd, args, kwargs)
