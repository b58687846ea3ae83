"""Traces calls of opaque operators (`support/opaque_ops.py`) as nodes of the joint graph."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_slot, track_tensor_tree

from compiler_core.autograd.trace.outputs import count_of_writes, unwrap
from compiler_core.support import opaque_ops
from compiler_core.support.tensors import tensors_in
from compiler_core.torch_private import FunctionalTensor, disable_current_modes


def trace_opaque_call(call: opaque_ops.OpaqueCall, tracer: Any, casts_are_cached: bool) -> Any:
    """Returns what `call` returns, whose tensors are functional, and adds the node that computes them.

    Their autograd history adds the node of the backward.  `casts_are_cached`: whether autocast caches casts when the
    program runs.
    """
    tensors = tensors_in(call.args)
    grad = torch.is_grad_enabled()
    wanted = tuple(i for i, t in enumerate(tensors) if grad and t.requires_grad)
    nodes = _OpaqueNodes(call, wanted, grad, call.autocast(casts_are_cached), tracer)
    return call.value(opaque_ops.OpaqueFunction.apply(nodes.forward, nodes.backward, grad, *tensors))  # type: ignore[no-untyped-call]


class _OpaqueNodes:
    """The nodes of one call in the forward and the backward."""

    def __init__(
        self,
        call: opaque_ops.OpaqueCall,
        wanted: Sequence[int],
        grad: bool,
        autocast: list[opaque_ops.Autocast],
        tracer: Any,
    ) -> None:
        self._wanted, self._grad, self._autocast, self._tracer = wanted, grad, autocast, tracer
        self._given = tensors_in(call.args)
        self._tensors = [unwrap(t) for t in self._given]
        self._call = replace(call, args=call.with_tensors(self._tensors))
        self._tape: Any = None
        self._writes: list[tuple[torch.Tensor, int]] = []
        """The tensors that eager may save, and how often each had been written to when the call ended."""

    def forward(self) -> tuple[torch.Tensor, ...]:
        call, packet = self._call, self._call.operator.overloadpacket
        args = call.with_tensors([self._proxy(t) for t in self._tensors])
        with disable_current_modes():
            fakes = call.fake_results()
        if not self._wanted:
            node = self._node(
                opaque_ops.without_tape, (call.operator, args, self._grad, self._autocast), packet.__name__
            )
            return self._track(fakes, node)
        node = self._node(opaque_ops.with_tape, (call.operator, args, self._wanted, self._autocast), packet.__name__)
        results = self._track(fakes, node)
        self._tape = self._node(operator.getitem, (node, len(fakes)), f"{packet.__name__}_tape")
        self._tape.node.meta["val"] = opaque_ops.FakeTape(call, self._wanted, self._autocast)
        node.node.meta["val"] = (*node.node.meta["val"], self._tape.node.meta["val"])
        saved = results[:1] if opaque_ops.saves_output(call) else ()
        self._writes = [(t, count_of_writes(t)) for t in (*self._given, *saved)]
        return results

    def backward(self, tangents: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Returns a gradient, or None, for each tensor of the call.

        Raises:
            RuntimeError: the graph writes to such a tensor after the call.  Eager raises an error then, which the tape
                cannot do, because the write became a new value.
        """
        if any(count_of_writes(t) > count for t, count in self._writes):
            raise RuntimeError(f"a tensor of {self._call.operator} is written to after the call")
        given = [None if t is None else self._proxy(unwrap(t)) for t in tangents]
        node = self._node(
            opaque_ops.tape_gradients, (self._tape, given), f"{self._call.operator.overloadpacket.__name__}_backward"
        )
        with disable_current_modes():
            fakes = tuple(self._call.fake_gradient(at) for at in self._wanted)
        found = dict(zip(self._wanted, self._track(fakes, node), strict=True))
        return [found.get(at) for at in range(len(self._tensors))]

    def _node(self, target: Any, args: tuple[Any, ...], name: str) -> Any:
        return self._tracer.create_proxy("call_function", target, args, {}, name=name)

    def _track(self, fakes: tuple[torch.Tensor, ...], node: Any) -> tuple[torch.Tensor, ...]:
        track_tensor_tree(fakes, node, constant=None, tracer=self._tracer)
        return tuple(FunctionalTensor.to_functional(t) for t in fakes)

    def _proxy(self, tensor: torch.Tensor) -> Any:
        slot: Any = get_proxy_slot(tensor, self._tracer)
        return slot.proxy
