"""Operators that stay whole (`whole`), as nodes of the joint graph while it is traced."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.experimental.proxy_tensor import get_proxy_slot, track_tensor_tree
from torch.utils._python_dispatch import _disable_current_modes

from compiler_core.support import opaque_ops


def traced(call: opaque_ops.WholeCall, tracer: Any, casts_are_cached: bool) -> tuple[torch.Tensor, ...]:
    """The results of `call`, whose tensors are functional, as a node; their history makes the node of the backward.

    `casts_are_cached`: whether autocast keeps casts when the program runs.
    """
    tensors = opaque_ops.tensors_in(call.args)
    grad = torch.is_grad_enabled()
    wanted = tuple(i for i, t in enumerate(tensors) if grad and t.requires_grad)
    nodes = _Nodes(call, wanted, grad, call.autocast(casts_are_cached), tracer)
    results: tuple[torch.Tensor, ...] = opaque_ops.Whole.apply(nodes.forward, nodes.backward, grad, *tensors)  # type: ignore[no-untyped-call]
    return results


class _Nodes:
    """The nodes of one call."""

    def __init__(
        self,
        call: opaque_ops.WholeCall,
        wanted: Sequence[int],
        grad: bool,
        autocast: list[opaque_ops.Autocast],
        tracer: Any,
    ) -> None:
        self._wanted, self._grad, self._autocast, self._tracer = wanted, grad, autocast, tracer
        self._tensors = [_plain(t) for t in opaque_ops.tensors_in(call.args)]
        self._call = replace(call, args=call.with_tensors(self._tensors))
        self._tape: Any = None

    def forward(self) -> tuple[torch.Tensor, ...]:
        call, packet = self._call, self._call.operator.overloadpacket
        args = call.with_tensors([self._proxy(t) for t in self._tensors])
        with _disable_current_modes():
            made = call.empty_results()
        if not self._wanted:
            node = self._node(
                opaque_ops.without_tape, (call.operator, args, self._grad, self._autocast), packet.__name__
            )
            return self._track(made, node)
        node = self._node(opaque_ops.with_tape, (call.operator, args, self._wanted, self._autocast), packet.__name__)
        results = self._track(made, node)
        self._tape = self._node(operator.getitem, (node, len(made)), f"{packet.__name__}_tape")
        self._tape.node.meta["val"] = opaque_ops.TapeOf(call, self._wanted, self._autocast)
        node.node.meta["val"] = (*node.node.meta["val"], self._tape.node.meta["val"])
        return results

    def backward(self, tangents: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """A gradient, or None, for each tensor of the call."""
        given = [None if t is None else self._proxy(_plain(t)) for t in tangents]
        node = self._node(
            opaque_ops.tape_gradients, (self._tape, given), f"{self._call.operator.overloadpacket.__name__}_backward"
        )
        with _disable_current_modes():
            made = tuple(self._call.empty_gradient(at) for at in self._wanted)
        found = dict(zip(self._wanted, self._track(made, node), strict=True))
        return [found.get(at) for at in range(len(self._tensors))]

    def _node(self, target: Any, args: tuple[Any, ...], name: str) -> Any:
        return self._tracer.create_proxy("call_function", target, args, {}, name=name)

    def _track(self, made: tuple[torch.Tensor, ...], node: Any) -> tuple[torch.Tensor, ...]:
        track_tensor_tree(made, node, constant=None, tracer=self._tracer)
        return tuple(FunctionalTensor.to_functional(t) for t in made)

    def _proxy(self, tensor: torch.Tensor) -> Any:
        slot: Any = get_proxy_slot(tensor, self._tracer)
        return slot.proxy


def _plain(tensor: torch.Tensor) -> Any:
    return tensor.from_functional() if isinstance(tensor, FunctionalTensor) else tensor
