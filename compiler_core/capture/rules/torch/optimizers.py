"""Rules for optimizers, gradient scalers and schedulers in a frame, with ``capture_backward=True``.

They are Python code over tensors and are inlined, with what PyTorch has for compilers in it: ``is_compiling()`` holds.
What their first step makes, such as zeros, is made while the step is captured, so that the first step needs no other
graph than the next ones.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim import SGD, Adadelta, Adam, Adamax, Muon, NAdam, Optimizer, RAdam, RMSprop
from torch.optim.lr_scheduler import LRScheduler

from compiler_core.capture.made_state import MadeState
from compiler_core.capture.rules.python.operators import binary
from compiler_core.capture.rules.table import handles, handles_each, has_tensor, public_name
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import ListValue, TupleValue
from compiler_core.capture.values.contexts import GradModeValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.functions import FunctionValue
from compiler_core.capture.values.user.object_attributes import InstanceValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import InstanceDictSource
from compiler_core.hook.skip_rules import skip_reason
from compiler_core.records.capture import BreakReason
from compiler_core.support import transform_levels as levels
from compiler_core.support.tensors import HALF_TYPES
from compiler_core.torch_private import fused_sgd, optimizer_get_value, optimizer_stack_if_compiling

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


@handles(inspect.unwrap(Optimizer.zero_grad))
def _zero_grad(tx: Interpreter, optimizer: Value, set_to_none: Value | None = None) -> Value:
    """Sets each ``.grad`` to None, whether there is one or not: a guard on that would fail at the second step."""
    to_none = set_to_none is None or set_to_none.truth(tx)
    if not to_none or not hasattr(getattr(optimizer, "real", None), "_zero_grad_profile_name"):
        return _inline(tx, inspect.unwrap(Optimizer.zero_grad), optimizer, ConstantValue(to_none))
    for group in optimizer.get_attr(tx, "param_groups").unpack(tx):
        for parameter in group.get_item(tx, ConstantValue("params")).unpack(tx):
            parameter.set_attr(tx, "grad", NONE)
    return NONE


def _init_group_of(cls: type) -> Any:
    """Returns the method of an optimizer's class that makes the state; stock torch.compile wraps it when it is used."""
    return inspect.unwrap(getattr(cls, "_init_group", type))


def _momentum_of_sgd(optimizer: SGD, group: dict[str, Any], *lists: list[Any]) -> None:
    """Makes the state of SGD, whose first step has the gradient g as momentum: ``momentum * -0.0 + g`` is exactly g."""
    _init_group_of(SGD)(optimizer, group | {"momentum": 0}, *lists)  # checks fused ones
    if group["momentum"] == 0 or group["dampening"] != 0 or group["differentiable"]:
        return
    if group["fused"] and any(optimizer.state.get(p) for p in group["params"]):
        return  # the fused kernel takes the momentum of all parameters or of none
    for p in group["params"]:
        if p.grad is not None:
            optimizer.state[p]["momentum_buffer"] = torch.full_like(p, -0.0, memory_format=torch.preserve_format)


_CHECK_ONCE = "_need_device_dtype_check_for_fused"
"""An attribute of `SGD`, which its first step sets to False."""
_STATE_OF_FIRST_STEP: dict[Any, Callable[..., Any]] = {
    **{fn: fn for fn in map(_init_group_of, (Adadelta, Adam, Adamax, Muon, NAdam, RAdam, RMSprop))},
    _init_group_of(SGD): _momentum_of_sgd,
}
"""The methods that make an optimizer's state in its first step, and what makes it before, from groups alone."""


@handles_each(*_STATE_OF_FIRST_STEP)
def _init_group(fn: Any, tx: Interpreter, optimizer: Value, group: Value, *lists: Value) -> Value:
    state, real = optimizer.get_attr(tx, "state"), getattr(optimizer, "real", None)
    if isinstance(state, DictValue) and not state.is_loaded and real is not None and state.real is real.state:
        if _may_make_state(tx) and (new := _without_state(tx, optimizer, real)):
            tx.capture.make_state(optimizer.source, real, partial(_make_state, fn, new, len(lists)))
    return _inline(tx, fn, optimizer, group, *lists)


def _without_state(tx: Interpreter, optimizer: Value, real: Optimizer) -> list[tuple[int, int]]:
    """Returns the places of parameters with gradients and no state: the group, and the place in it.

    There are none if the frame has changed the groups, or a gradient is sparse.
    """
    groups = optimizer.get_attr(tx, "param_groups").unpack(tx)
    if len(groups) != len(real.param_groups):
        return []
    found = list[tuple[int, int]]()
    for number, (group, of_real) in enumerate(zip(groups, real.param_groups, strict=True)):
        assert isinstance(group, DictValue)
        known = {key: value for key, value in group.known_items().items() if isinstance(value, ConstantValue)}
        if any(value.value != of_real.get(key) for key, value in known.items() if key != "lr"):
            return []
        for place, value in enumerate(group.get_item(tx, ConstantValue("params")).unpack(tx)):
            parameter = value.real if type(value) is TensorValue else None
            if parameter is None or type(parameter) not in (torch.Tensor, torch.nn.Parameter):
                return []
            grad = value.get_attr(tx, "grad")
            if isinstance(grad, TensorValue) and grad.fake(tx).layout is not torch.strided:
                return []
            if not tx.is_none(grad) and not real.state.get(parameter):
                found.append((number, place))
    return found


def _make_state(fn: Any, places: Sequence[tuple[int, int]], lists: int, optimizer: Any, made: MadeState) -> None:
    """Makes the state of the parameters at `places` that have none, as `fn` does if it gets so many empty lists."""
    if _init_group_of(type(optimizer)) is not fn:
        return
    groups = [group["params"] for group in optimizer.param_groups]
    if any(group >= len(groups) or place >= len(groups[group]) for group, place in places):
        return
    parameters = [p for p in (groups[group][place] for group, place in places) if not optimizer.state.get(p)]
    if not parameters:
        return
    for p in parameters:
        made.will_make(optimizer.state, p)
    if _CHECK_ONCE in vars(optimizer):
        made.will_make(vars(optimizer), _CHECK_ONCE)
    every = [p for group in groups for p in group]
    gradients = [p.grad for p in every]
    with torch.no_grad():
        try:
            for p in every:
                p.grad = None
            for p in parameters:
                p.grad = p.detach()  # it takes no memory
            for group in optimizer.param_groups:
                _STATE_OF_FIRST_STEP[fn](optimizer, group, *([] for _ in range(lists)))
        except RuntimeError:  # the step will raise it
            made.drop()
        finally:
            for p, grad in zip(every, gradients, strict=True):
                p.grad = grad


def _may_make_state(tx: Interpreter) -> bool:
    return not (tx.graph.region or tx.graph.is_trial or tx.graph.inference_mode or levels.depth())


def _check_inlined(tx: Interpreter, function: Any) -> None:
    """Raises Unsupported where the backward is not captured: a step breaks then."""
    if not tx.graph.captures_backward and (reason := skip_reason(function.__code__, inlining=True)):
        raise Unsupported("optimizer", f"{public_name(function)}, {reason}")


def _inline(tx: Interpreter, function: Any, *args: Value) -> Value:
    wrapped = tx.outside.wrap(function)
    assert isinstance(wrapped, FunctionValue)
    return tx.inline(wrapped, [*args], {})


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


@handles(LRScheduler.step)
def _step_scheduler(tx: Interpreter, scheduler: Value, epoch: Value = NONE) -> Value:
    """After a step of the optimizer in this frame, does not ask if it is the first one, which may warn if none was."""
    _check_inlined(tx, LRScheduler.step)
    optimizer = scheduler.get_attr(tx, "optimizer")
    stepped = optimizer.stored.get("_opt_called") if isinstance(optimizer, InstanceValue) else None
    if stepped is None or not stepped.truth(tx) or not tx.is_none(epoch) or not hasattr(LRScheduler, "_update_lr"):
        return _inline(tx, LRScheduler.step, scheduler, epoch)
    count = binary(operator.add, tx, scheduler.get_attr(tx, "_step_count"), ConstantValue(1))
    scheduler.set_attr(tx, "_step_count", count)
    scheduler.get_attr(tx, "_update_lr").call(tx, [NONE], {})
    return NONE


@handles(GradScaler.scale)
def _scale(tx: Interpreter, scaler: Value, outputs: Value) -> Value:
    """Makes the scale, which the first call makes, before the graph."""
    _check_inlined(tx, GradScaler.scale)
    real = getattr(scaler, "real", None)
    if isinstance(real, GradScaler) and isinstance(scaler, InstanceValue) and "_scale" not in scaler.stored:
        if isinstance(outputs, TensorValue) and _may_make_state(tx) and real.is_enabled() and real._scale is None:
            tx.capture.make_state(scaler.source, real, partial(_make_scale, outputs.fake(tx).device))
    return _inline(tx, GradScaler.scale, scaler, outputs)


def _make_scale(device: torch.device, scaler: Any, made: MadeState) -> None:
    if isinstance(scaler, GradScaler) and scaler.is_enabled() and scaler._scale is None:
        for name in ("_scale", "_growth_tracker"):
            made.will_make(vars(scaler), name)
        scaler._lazy_init_scale_growth_tracker(device)


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
