"""Rules for the methods of torch.nn.Module that user code calls or overrides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from compiler_core.capture.rules.table import handles
from compiler_core.capture.values.base import Value, observed_exception
from compiler_core.capture.values.builtin.constant import NONE
from compiler_core.capture.values.classes import lookup_in_mro
from compiler_core.capture.values.user.module_calls import call_with_hooks
from compiler_core.capture.values.user.modules import CALL_METHODS, ModuleValue
from compiler_core.errors import Unsupported
from compiler_core.torch_private import infer_lazy_parameters, module_call_impl

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


@handles(torch.nn.Module.__setattr__)
def _module_setattr(tx: Interpreter, owner: Value, name: Value, value: Value) -> Value:
    assert isinstance(owner, ModuleValue)
    owner.module_setattr(tx, name.constant(tx), value)
    return NONE


@handles(torch.nn.Module.__getattr__)
def _module_getattr(tx: Interpreter, owner: Value, name: Value) -> Value:
    assert isinstance(owner, ModuleValue)
    wanted = name.constant(tx)
    found = owner.find_registered(tx, wanted)
    if found is None:
        owner.guard_unregistered(tx, wanted)
        raise observed_exception(AttributeError, f"{owner.cls.__name__!r} object has no attribute {wanted!r}")
    return found


@handles(infer_lazy_parameters)
def _infer_parameters(tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    raise Unsupported("skipped function", "the first call of a lazy module, which makes its parameters")


@handles(torch.nn.Module.__call__)
def _module_call(tx: Interpreter, owner: Value, /, *args: Value, **kwargs: Value) -> Value:
    assert isinstance(owner, ModuleValue)
    if lookup_in_mro(owner.cls, "_call_impl") is not CALL_METHODS["_call_impl"]:
        return owner.get_attr(tx, "_call_impl").call(tx, args, kwargs)
    return call_with_hooks(tx, owner, args, kwargs)


@handles(module_call_impl)
def _module_call_impl(tx: Interpreter, owner: Value, /, *args: Value, **kwargs: Value) -> Value:
    assert isinstance(owner, ModuleValue)
    return call_with_hooks(tx, owner, args, kwargs)
