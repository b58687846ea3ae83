"""Rules for ``torch.masked``: its functions of plain tensors with a mask are Python over tensors, except these two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.masked

from compiler_core.capture.rules.table import handles
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import ConstantValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.tensor_subclasses import SubclassTensorValue
from compiler_core.errors import Unsupported
from compiler_core.torch_private import combine_input_and_mask, masked_ops

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


@handles(torch.masked.is_masked_tensor)
def _is_masked_tensor(tx: Interpreter, obj: Value) -> Value:
    obj.install_guards(tx)
    return ConstantValue(issubclass(obj.python_type(), torch.masked.MaskedTensor))


@handles(combine_input_and_mask)
def _combine(tx: Interpreter, op: Value, tensor: Value, mask: Value, *args: Value) -> Value:
    """``torch.where(mask, tensor, identity)`` with the identity of the reduction `op`.

    The function defines a class for the gradients of a masked tensor, which another tensor does not need.
    """
    if isinstance(tensor, SubclassTensorValue) or not isinstance(tensor, TensorValue):
        raise Unsupported("tensor subclass", f"{tensor} as argument of a function of torch.masked")
    if tx.is_none(mask):
        return tensor
    functions = [
        tx.capture.outside.wrap_static(vars(masked_ops)[n]) for n in ("_input_mask", "_reduction_identity", "_where")
    ]
    input_mask, identity, where = functions
    chosen = input_mask.call(tx, [tensor], {"mask": mask})
    fill = identity.call(tx, [op.get_attr(tx, "__name__"), tensor, *args], {})
    return where.call(tx, [chosen, tensor, fill], {})
