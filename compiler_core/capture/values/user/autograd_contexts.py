"""The ``ctx`` that PyTorch gives to the forward of a `torch.autograd.Function` which Python calls."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Value
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.guards.sources import AttrSource

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

_SET_BY_FORWARD = frozenset({"to_save", "dirty_tensors", "non_differentiable", "saved_for_forward"})
"""What the methods of ``ctx`` set, for autograd to read when the forward has returned: any object, unchanged."""


class AutogradContextValue(ObjectValue):
    """A ``ctx``, which has attributes of C++ besides those of its ``__dict__``."""

    def _read_descriptor(self, tx: Interpreter, name: str, descriptor: Any) -> Value | None:
        if isinstance(descriptor, types.GetSetDescriptorType):
            if name in self.stored:
                return self.stored[name]
            if name == "needs_input_grad" and self.source is not None:
                return tx.capture.outside.wrap(self.real.needs_input_grad, AttrSource(self.source, name))
        return super()._read_descriptor(tx, name, descriptor)

    def generic_set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        is_flag = name == "materialize_grads" and value.is_constant() and isinstance(value.constant(tx), bool)
        if name in _SET_BY_FORWARD or is_flag:
            self.store(tx, name, value)
        else:
            super().generic_set_attr(tx, name, value)
