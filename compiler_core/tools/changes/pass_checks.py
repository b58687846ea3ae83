"""The rules that the result of a graph pass must follow."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx

from compiler_core.config import PassPoint
from compiler_core.errors import GraphPassError
from compiler_core.support.fx_graphs import node_signature
from compiler_core.support.tensors import tensors_in
from compiler_core.torch_private import FakeTensor, OpOverload, OpOverloadPacket, jit_resolve_packet, tree_leaves


def new_nodes(after: fx.Graph, before: fx.Graph) -> list[fx.Node]:
    """Returns the nodes that are new or changed, in order."""
    known = set(map(node_signature, before.nodes))
    return [n for n in after.nodes if n.op not in ("placeholder", "output") and node_signature(n) not in known]


def checked(result: Any, before: fx.GraphModule, at: PassPoint) -> fx.GraphModule:
    """Returns the result of a pass with the values of its nodes; raises GraphPassError if it breaks a rule."""
    if not isinstance(result, fx.GraphModule):
        raise GraphPassError(f"it returned {type(result).__name__}, not a GraphModule or None")
    try:
        result.graph.lint()
    except RuntimeError as error:
        raise GraphPassError(f"the graph is not well formed: {error}") from error
    _check_inputs(result.graph, before.graph)
    new = new_nodes(result.graph, before.graph)
    for node in new:
        _check_call(node, at)
    _compute_values(result, new)
    _check_outputs(result.graph, before.graph, at)
    result.recompile()
    return result


def _check_inputs(after: fx.Graph, before: fx.Graph) -> None:
    names = [", ".join(n.name for n in graph.find_nodes(op="placeholder")) for graph in (before, after)]
    if names[0] != names[1]:
        raise GraphPassError(f"the inputs must stay {names[0] or 'none'}; they are {names[1] or 'none'} now")


def _check_call(node: fx.Node, at: PassPoint) -> None:
    """Checks the operation of a new node; names the overload that a packet such as ``torch.ops.aten.add`` means."""
    if node.op == "call_module":
        raise GraphPassError(f"{node.name} calls a module; call its function of torch.nn.functional")
    if at == "captured" or node.op == "get_attr" or node.target is operator.getitem:
        return
    target: Any = node.target
    if isinstance(target, OpOverloadPacket):
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
        node.target = target = getattr(target, jit_resolve_packet(target._qualified_op_name, *args, **kwargs))
    if not isinstance(target, OpOverload):
        name = getattr(target, "__name__", target)
        raise GraphPassError(f"{node.name} calls {name}; in this graph, call operators of torch.ops.aten")
    if target._schema.is_mutable:
        raise GraphPassError(f"{node.name} calls {target}, which writes to its argument; call the one that does not")


def _compute_values(gm: fx.GraphModule, new: Sequence[fx.Node]) -> None:
    """Computes ``meta["val"]`` of new nodes, and of those that depend on them, with fake tensors."""
    values = [value for n in gm.graph.nodes for value in tensors_in(n.meta.get("val"))]
    fake_mode = next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)
    affected = set(new)
    for node in gm.graph.nodes:
        if node in affected or (node.op.startswith("call") and affected.intersection(node.all_input_nodes)):
            affected.add(node)
            try:
                with fake_mode or contextlib.nullcontext():
                    node.meta["val"] = _value(gm, node, fake_mode)
            except Exception as error:
                raise GraphPassError(f"{node.name} cannot run: {type(error).__name__}: {error}") from error


def _value(gm: fx.GraphModule, node: fx.Node, fake_mode: Any) -> Any:
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    if node.op == "get_attr":
        value = operator.attrgetter(str(node.target))(gm)
        return fake_mode.from_tensor(value) if fake_mode and isinstance(value, torch.Tensor) else value
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _check_outputs(after: fx.Graph, before: fx.Graph, at: PassPoint) -> None:
    olds, news = _flat_outputs(before), _flat_outputs(after)
    if len(olds) != len(news):
        raise GraphPassError(f"the graph must return {len(olds)} values; it returns {len(news)} now")
    is_half = at in ("forward", "backward")
    for number, (old, new) in enumerate(zip(olds, news, strict=True)):
        kinds = [_kind(each, with_strides=is_half) for each in (old, new)]
        if kinds[0] != kinds[1]:
            raise GraphPassError(f"output {number} must stay {kinds[0]}; it is {kinds[1]} now")
    for old, new in zip(olds, news, strict=True):
        if is_half and isinstance(new, fx.Node) and new is not old:
            new.meta["role"] = old.meta.get("role")
            if at == "forward" and new.name != old.name:  # the backward takes saved values by their names
                _take_name(new, old.name, is_free=new.op != "placeholder" and news.count(new) == 1)


def _flat_outputs(graph: fx.Graph) -> list[Any]:
    return list(tree_leaves(graph.output_node().args[0]))


def _kind(output: Any, with_strides: bool) -> str:
    value = output.meta.get("val") if isinstance(output, fx.Node) else output
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}" if isinstance(output, fx.Node) else repr(value)
    strides = f" with strides {list(value.stride())}" if with_strides else ""
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} on {value.device}{strides}"


def _take_name(node: fx.Node, name: str, is_free: bool) -> None:
    """Renames an output of the forward to the name of the one that it replaces."""
    taken = next((n for n in node.graph.nodes if n.name == name), None)
    if not is_free or (taken is not None and taken.users):
        raise GraphPassError(f"output {name} must remain a separate node, not {node.name}")
    if taken is not None:
        node.graph.erase_node(taken)
    node.name = name
