"""``torch.autograd.Function.apply``: one node of the graph, which calls it.

Its forward and backward run as the program wrote them, when the graph does or, for backends that
differentiate, when the joint graph is made.  So both are interpreted once on the side, into nodes
that are thrown away: that guards all that they depend on, and shows that they do nothing but
compute tensors.  A Function of which that cannot be shown breaks the graph.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import FunctionCtx

from compiler_core.capture.rules.table import handles
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.capture.values.constant import NONE, ConstantValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.classes import guard_class
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import boxed, weak_cache
from compiler_core.support.torch_state import grad_mode

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

_STATIC = inspect.getattr_static(torch.autograd.Function, "apply")
APPLY = getattr(_STATIC, "__func__", _STATIC)  # from PyTorch 2.14 on it is a class method in C++


@handles(APPLY)
def _apply(tx: Interpreter, owner: Value, *args: Value) -> Value:
    cls = owner.constant(tx)
    for arg in args:
        if not isinstance(arg, TensorValue) and not arg.is_constant():
            raise Unsupported("unsupported call", f"{cls.__name__}.apply with {arg}")
        if isinstance(arg, TensorValue):
            arg.node(tx)  # an input of the graph from here on
    if tx.capture.effects:
        raise Unsupported("unsupported call", f"{cls.__name__}.apply after changes that it may look at")
    _Rehearsal(tx, cls, args).run()
    result = tx.capture.call_function(tx, applied(cls), args, {})
    _check_memory(tx, cls, args, result)
    return result


@weak_cache
def applied(cls: Any) -> Callable[..., Any]:
    """What stands in the graph: a function of the class's name that applies it."""

    box = boxed(cls)

    def apply(*args: Any) -> Any:
        return box.value.apply(*args)

    apply.__name__ = apply.__qualname__ = cls.__name__
    return apply


class _Rehearsal:
    """Forward and backward of one call, interpreted for their guards and for what they might do beside."""

    def __init__(self, tx: Interpreter, cls: type, args: Sequence[Value]) -> None:
        self.tx = tx
        self.cls = cls
        self.args = args
        self.ctx = ObjectValue(FunctionCtx)
        wanted = [isinstance(a, TensorValue) and a.fake(tx).requires_grad for a in args]
        self.differentiated = tx.capture.grad_enabled and any(wanted)
        self.ctx.stored["needs_input_grad"] = TupleValue([ConstantValue(w) for w in wanted])

    def run(self) -> None:
        with self._aside():
            outputs = self._forward()
            if "dirty_tensors" in self.ctx.stored:
                raise Unsupported("unsupported call", f"{self.cls.__name__} marks a tensor as changed in place")
            if self.differentiated:
                self._backward(outputs)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Nothing of what is captured inside stays, but for its guards."""
        capture = self.tx.capture
        last = next(iter(reversed(capture.graph.nodes)))
        before, grad_enabled = self._outside(), capture.grad_enabled
        capture.effects.frozen = f"a change made by {self.cls.__name__}"
        capture.change(grad_mode(False))
        yield
        capture.change(grad_mode(grad_enabled))
        capture.effects.frozen = ""
        if self._outside() != before:
            raise Unsupported("unsupported call", f"{self.cls.__name__} reads or changes tensors that it is not given")
        while (node := next(iter(reversed(capture.graph.nodes)))) is not last:
            capture.graph.erase_node(node)

    def _outside(self) -> tuple[int, int, list[int]]:
        """What changes when something beside the results does."""
        capture = self.tx.capture
        versions = [a.fake(self.tx)._version for a in self.args if isinstance(a, TensorValue)]
        return len(capture.inputs), len(capture.effects.tokens), versions

    def _forward(self) -> Value:
        if self.cls.setup_context is torch.autograd.Function.setup_context:  # type: ignore[attr-defined]
            return self._call("forward", self.ctx, *self.args)
        outputs = self._call("forward", *self.args)
        self._call("setup_context", self.ctx, TupleValue(list(self.args)), outputs)
        return outputs

    def _backward(self, outputs: Value) -> None:
        self.ctx.stored["saved_tensors"] = self.ctx.stored.get("to_save", TupleValue([]))
        each = outputs.items(self.tx) if isinstance(outputs, TupleValue) else [outputs]
        defined: Any = self.cls
        name = "backward" if defined.backward is not torch.autograd.Function.backward else "vjp"
        self._call(name, self.ctx, *map(self._gradient, each))

    def _gradient(self, output: Value) -> Value:
        if not isinstance(output, TensorValue):
            return NONE
        return self.tx.capture.call_function(self.tx, torch.empty_like, [output], {})

    def _call(self, name: str, *args: Value) -> Value:
        found = inspect.getattr_static(self.cls, name)
        if not isinstance(found, staticmethod) or not isinstance(found.__func__, types.FunctionType):
            raise Unsupported("unsupported call", f"{self.cls.__name__}.{name}, which is no static method in Python")
        guard_class(self.tx, self.cls, name, found)
        return self.tx.capture.wrap_static(found.__func__).call(self.tx, args, {})


def _check_memory(tx: Interpreter, cls: type, args: Sequence[Value], result: Value) -> None:
    """What PyTorch makes of an output that is, or is a view of, an argument is left to it."""
    outputs = result.items(tx) if isinstance(result, TupleValue) else [result]
    owned = {a.fake(tx).untyped_storage()._cdata for a in args if isinstance(a, TensorValue)}
    for output in outputs:
        if isinstance(output, TensorValue) and output.fake(tx).untyped_storage()._cdata in owned:
            raise Unsupported("unsupported call", f"{cls.__name__} returns memory that it was given")
