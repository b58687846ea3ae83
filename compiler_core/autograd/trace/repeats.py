"""Operators that come again with arguments of the same kind are traced once.

A deep network calls the same operators for each of its blocks, and an optimizer for each parameter.  For each call,
`make_fx` asks for a decomposition, runs it, and computes the shapes of the results.  All of that depends on the kind of
the arguments alone (shapes, strides, types, devices, numbers), so the second time the nodes of the first are copied.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot, track_tensor_tree

from compiler_core.support.fx_symbols import is_symbolic
from compiler_core.support.node_facts import is_pure, is_view
from compiler_core.support.operators import is_pointwise
from compiler_core.support.tensors import storage_id
from compiler_core.torch_private import (
    DisableTorchDispatch,
    DisableTorchFunction,
    FakeTensor,
    OpOverload,
    OpOverloadPacket,
)

Rule = Callable[..., Any]

aten = torch.ops.aten


class Repeats:
    """What was traced in one run of `make_fx`."""

    def __init__(self) -> None:
        self._traces: dict[Any, _Trace | None] = {}
        self._pending: dict[Any, tuple[fx.Node, list[Any]]] = {}
        """The first calls of operators that are not decomposed: the last node before each, and the operands."""

    def rules(self, table: Mapping[OpOverload, Rule]) -> dict[OpOverload, Rule]:
        """Returns decompositions for `make_fx` that do as those of `table`."""
        return {op: functools.partial(self._call, op, table.get(op)) for op in {*table, *_pointwise()}}

    def _call(self, op: OpOverload, rule: Rule | None, *args: Any, **kwargs: Any) -> Any:
        mode = get_proxy_mode()
        assert mode is not None
        tracer, operands, key = mode.tracer, list[Any](), None
        with DisableTorchFunction():
            try:
                kinds = _kind(args, operands), tuple((name, _kind(each, operands)) for name, each in kwargs.items())
                nodes = [_node_of(each, tracer) for each in operands]
                key = op, *kinds
            except _HasNoKind:
                pass
            if key in self._pending:
                before, of_first = self._pending.pop(key)
                first = before._next
                self._traces[key] = _Trace.of(of_first, [first], first) if first.target is op else None
            if trace := self._traces.get(key):
                return trace.copy(nodes, tracer)
        before = tracer.graph._root._prev
        result = rule(*args, **kwargs) if rule else NotImplemented
        if key is not None and key not in self._traces:
            if result is NotImplemented:
                self._pending[key] = before, nodes
            else:
                made = [before]
                while (following := made[-1]._next) is not tracer.graph._root:
                    made.append(following)
                self._traces[key] = _Trace.of(nodes, made[1:], _nodes_of(result, tracer))
        return result


@dataclass(frozen=True)
class _Trace:
    """The nodes of one call, and which of them it returned: one, or a list or tuple of some."""

    operands: list[fx.Node]
    made: list[fx.Node]
    returned: Any

    @staticmethod
    def of(operands: list[Any], made: list[fx.Node], returned: Any) -> _Trace | None:
        """Returns None for nodes that cannot be copied: those with effects, random numbers, or memory of others."""
        known, memory = {*operands}, set[int]()
        several = returned if isinstance(returned, list | tuple) else [returned]
        if len(known) != len(operands) or not {*several} <= {*made}:
            return None
        needed = {*several}
        for node in reversed(made):
            if node in needed:
                needed.update(node.all_input_nodes)
        # what a decomposition has decided by a symbol is left out
        made = [node for node in made if node in needed or isinstance(node.target, OpOverload)]
        for node in made:
            value = node.meta.get("val")
            if not (is_pure(node) and not is_view(node) and type(value) is FakeTensor and _is_plain(value)):
                return None
            if not known.issuperset(node.all_input_nodes):
                return None
            known.add(node)
            memory.add(storage_id(value))
        inputs = [each.meta["val"] for each in operands]
        if len(memory) != len(made) or memory & {storage_id(each) for each in inputs if isinstance(each, torch.Tensor)}:
            return None
        return _Trace(operands, made, returned)

    def copy(self, operands: Sequence[Any], tracer: Any) -> Any:
        """Adds the nodes to the graph again, and returns what the call returns."""
        nodes: dict[fx.Node, fx.Node] = dict(zip(self.operands, operands, strict=True))
        values: dict[Any, FakeTensor] = {}
        for node in self.made:
            target: Any = node.target
            args, kwargs = fx.map_arg((node.args, node.kwargs), nodes.__getitem__)
            name = tracer.graph._target_to_str(target.overloadpacket.__name__)
            nodes[node] = tracer.create_node("call_function", target, args, kwargs, name=name)
            values[node] = _new_like(node.meta["val"])
            track_tensor_tree(values[node], fx.Proxy(nodes[node], tracer), constant=None, tracer=tracer)
        return fx.node.map_aggregate(self.returned, values.__getitem__)


def _pointwise() -> Iterator[OpOverload]:
    """Yields the pointwise operators that write to none of their arguments, of those that PyTorch has loaded so far."""
    for packet in vars(aten).values():
        for each in vars(packet).values() if isinstance(packet, OpOverloadPacket) else ():
            if isinstance(each, OpOverload) and is_pointwise(each) and not each._schema.is_mutable:
                yield each


class _HasNoKind(Exception):
    """An argument that is neither a plain value nor a fake tensor of known size, usual layout and unknown value."""


def _kind(value: Any, operands: list[Any]) -> Any:
    """Returns what the nodes of an operator depend on of an argument; adds its tensors and symbols to `operands`."""
    if isinstance(value, torch.Tensor) or is_symbolic(value):
        for i, each in enumerate(operands):
            if each is value:
                return i
        operands.append(value)
    if is_symbolic(value):
        return type(value), value.node.expr
    if isinstance(value, torch.Tensor):
        if type(value) is not FakeTensor or not _is_plain(value):
            raise _HasNoKind
        layout = value.shape, value.stride(), value.storage_offset()
        return value.dtype, value.fake_device, *layout, value.requires_grad, value.is_conj(), value.is_neg()
    if isinstance(value, list | tuple):
        return type(value), tuple(_kind(each, operands) for each in value)
    if type(value) in (float, complex):
        return type(value), repr(value)  # -0.0 is equal to 0.0
    if value is None or type(value) in PLAIN:
        return type(value), value
    raise _HasNoKind


PLAIN = frozenset((int, bool, str, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size))


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor has memory of known sizes."""
    if tensor.layout is not torch.strided:
        return False
    return not any(map(is_symbolic, (*tensor.shape, *tensor.stride(), tensor.storage_offset())))


def _new_like(value: Any) -> FakeTensor:
    """Returns a fake tensor with new memory, without the modes that `tensors.new_like` would run through."""
    with DisableTorchDispatch():
        element = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    return FakeTensor(value.fake_mode, element, value.fake_device)


def _node_of(value: Any, tracer: Any) -> fx.Node:
    """Returns the node of a tensor or symbol."""
    slot: Any = get_proxy_slot(value, tracer, None)
    if slot is None:
        raise _HasNoKind
    if isinstance(value, torch.Tensor) and slot.constant is not None:
        raise _HasNoKind  # its value is known, too, and `make_fx` computes with it
    node: fx.Node = slot.proxy.node if isinstance(value, torch.Tensor) else slot.force().node
    return node


def _nodes_of(result: Any, tracer: Any) -> Any:
    """Returns the node of each tensor that a call returned; None for what else it returned."""
    if type(result) in (list, tuple):
        return type(result)(_nodes_of(each, tracer) for each in result)
    try:
        return _node_of(result, tracer) if isinstance(result, torch.Tensor) else None
    except _HasNoKind:
        return None
