"""Rules for ``torch.func``: ``vmap``, ``grad``, ``vjp``, ``jvp`` and what PyTorch makes of these, such as ``hessian``.

PyTorch implements them in Python, over a few functions in C++ that enter and leave levels, wrap tensors for a level
and take them out (`support/transform_levels.py`).  The Python code is interpreted as other code is, with the
transformed function in it; the functions in C++ become nodes of the graph.  While it captures, the same levels are
active, with fake tensors in the wrappers.  A transform that cannot be captured runs as a whole after a graph break.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

from compiler_core.capture.rules.table import handles, handles_each
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.sequences import ListValue, TupleValue
from compiler_core.capture.values.builtin.static import from_python
from compiler_core.capture.values.builtin.symbols import SymbolicNumber
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.errors import Unsupported
from compiler_core.support import transform_levels as levels
from compiler_core.support.torch_state import StateChange
from compiler_core.torch_private import (
    VF,
    C,
    are_functorch_transforms_active,
    associative_scan,
    eager_transforms,
    is_fwd_grad_enabled,
    saved_tensors_hooks_disable,
    saved_tensors_hooks_disabled_message,
    saved_tensors_hooks_enable,
    set_fwd_grad_enabled,
    vmap,
)

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


functorch = levels.functorch


def _in_c_and_python(name: str, home: Any = functorch) -> list[Any]:
    """Returns the function `name` of PyTorch in C++, and its wrapper in Python, which recent versions have."""
    try:
        from compiler_core.torch_private import predispatch
    except ImportError:
        return [getattr(home, name)]
    return list({id(f): f for f in (getattr(home, name), getattr(predispatch, name, None)) if f is not None}.values())


# ------------------------------------------------------------ levels


_LEVELS: dict[str, tuple[Any, Any]] = {
    "vmap": (levels.enter_vmap, levels.leave_vmap),
    "grad": (levels.enter_grad, levels.leave_grad),
    "jvp": (levels.enter_jvp, levels.leave_jvp),
}
"""The kinds of levels, and the functions that enter and leave one."""


def _enter(tx: Interpreter, *args: Value, kind: str) -> Value:
    """Enters a level; returns its number.  Of ``vmap``, `args` are the size of the batch and the randomness."""
    if tx.graph.is_inference_mode(tx.guards):  # results are no inference tensors even there
        raise Unsupported("transform", "in inference mode")
    _state(functorch.maybe_current_level, tx)  # the number depends on the levels around the frame
    enter, leave = _LEVELS[kind]
    given = tuple(each.sym if isinstance(each, SymbolicNumber) else each.constant(tx) for each in args)
    tx.graph.change_state(StateChange(enter, given, leave, ()))
    return ConstantValue(levels.depth())


def _leave(tx: Interpreter, *, kind: str) -> Value:
    enter, leave = _LEVELS[kind]
    args = tx.graph.last_change(enter).args
    tx.graph.change_state(StateChange(leave, (), enter, args))
    return ConstantValue(levels.depth() + 1)


for _kind in _LEVELS:
    handles(*_in_c_and_python(f"_{_kind}_increment_nesting"))(functools.partial(_enter, kind=_kind))
    handles(*_in_c_and_python(f"_{_kind}_decrement_nesting"))(functools.partial(_leave, kind=_kind))


@handles(*_in_c_and_python("_enter_dual_level", C))
def _enter_dual_level(tx: Interpreter) -> Value:
    if not levels.depth():
        raise Unsupported("transform", "forward-mode differentiation outside of jvp")
    tx.graph.change_state(StateChange(levels.enter_dual_level, (), levels.leave_dual_level, ()))
    return ConstantValue(0)


@handles(*_in_c_and_python("_exit_dual_level", C))
def _leave_dual_level(tx: Interpreter, level: Value) -> Value:
    tx.graph.change_state(StateChange(levels.leave_dual_level, (), levels.enter_dual_level, ()))
    return NONE


# ------------------------------------------------------------ what holds inside a level


@handles_each(
    is_fwd_grad_enabled,
    functorch.get_inplace_requires_grad_allowed,
    functorch.maybe_current_level,
    are_functorch_transforms_active,
)
def _state(query: Any, tx: Interpreter) -> Value:
    """Returns a setting as it is at this point of the frame; outside of transforms, it is guarded."""
    return from_python(query() if levels.depth() else tx.guards.ask(query))


_SETTERS = {
    set_fwd_grad_enabled: (is_fwd_grad_enabled, levels.set_forward_gradients),
    functorch.set_inplace_requires_grad_allowed: (
        functorch.get_inplace_requires_grad_allowed,
        levels.allow_requires_grad,
    ),
}
"""For each function that changes a setting, the one that reads it, and what the graph calls."""


@handles_each(*_SETTERS)
def _set_state(setter: Any, tx: Interpreter, enabled: Value) -> Value:
    query, change = _SETTERS[setter]
    before = _state(query, tx).constant(tx)
    tx.graph.change_state(StateChange(change, (bool(enabled.constant(tx)),), change, (before,)))
    return NONE


@handles(saved_tensors_hooks_disabled_message)
def _hooks_error_message(tx: Interpreter) -> Value:
    return from_python(tx.guards.ask(saved_tensors_hooks_disabled_message))


@handles(saved_tensors_hooks_disable, saved_tensors_hooks_enable)
def _forbid_hooks(tx: Interpreter, message: Value | None = None, fail_if_non_empty: Value | None = None) -> Value:
    """Does nothing, where no hooks on saved tensors are active: a graph contains none."""
    if tx.guards.ask(levels.has_saved_tensor_hooks) or tx.graph.region is not None:
        raise Unsupported("transform", "with hooks on saved tensors")
    return NONE


_LOADERS = [vars(vmap)["lazy_load_decompositions"], vars(forward_ad).get("_maybe_load_decompositions")]


@handles_each(*filter(None, _LOADERS))
def _load_rules(fn: Any, tx: Interpreter) -> Value:
    """Loads PyTorch's rules for ``vmap`` and ``jvp``, once in a process."""
    fn()
    return NONE


# ------------------------------------------------------------ tensors


@handles_each(functorch.is_batchedtensor, functorch.is_functorch_wrapped_tensor, functorch.is_gradtrackingtensor)
def _query(fn: Any, tx: Interpreter, tensor: Value) -> Value:
    assert isinstance(tensor, TensorValue)
    return ConstantValue(fn(tensor.fake(tx)))


@handles_each(
    *_in_c_and_python("_add_batch_dim"), *_in_c_and_python("_remove_batch_dim"), *_in_c_and_python("_unwrap_for_grad"),
    functorch._wrap_for_grad,
)  # fmt: skip
def _wrap(fn: Any, tx: Interpreter, *args: Value) -> Value:
    return tx.graph.call_function(tx, getattr(levels, fn.__name__.removeprefix("_")), args)


@handles(eager_transforms._set_tensor_requires_grad)
def _require_gradients(tx: Interpreter, tensor: Value) -> Value:
    return tx.graph.call_method(tx, "requires_grad_", [tensor])


@handles(eager_transforms._autograd_grad)
def _gradients(tx: Interpreter, outputs: Value, inputs: Value, *args: Value, **kwargs: Value) -> Value:
    """The gradients within a level: one node, of which autograd makes operations."""
    lists = [TupleValue(list(each.unpack(tx))) for each in (outputs, inputs)]
    return tx.graph.call_function(tx, eager_transforms._autograd_grad, [*lists, *args], kwargs)


@handles_each(*_in_c_and_python("_make_dual", VF), *_in_c_and_python("_unpack_dual", VF))
def _dual_tensor(fn: Any, tx: Interpreter, *args: Value, level: Value) -> Value:
    return tx.graph.call_function(tx, getattr(torch, fn.__name__), args, {"level": level})


@handles(associative_scan.__globals__["associative_scan_op"])  # of a module that its function hides
def _associative_scan(tx: Interpreter, combine_fn: Value, leaves: Value, additional_inputs: Value) -> Value:
    """Combines the elements along the first dimension one after the other, as a loop would."""
    graph = tx.graph
    rows = zip(*(graph.call_method(tx, "unbind", [t]).unpack(tx) for t in tx.list_of(leaves)), strict=True)
    states = [list(next(rows))]
    for row in rows:
        tx.capture.count_iteration()
        states.append(tx.list_of(combine_fn.call(tx, [*states[-1], *row], {})))
    columns = [ListValue(list(column)) for column in zip(*states, strict=True)]
    return ListValue([graph.call_function(tx, torch.stack, [column]) for column in columns])
