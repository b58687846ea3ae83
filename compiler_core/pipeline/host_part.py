"""Numbers of a GPU's graph that the CPU computes, such as the bias corrections of Adam from its counts of steps.

PyTorch keeps the counts of an optimizer's steps on the CPU, one tensor without dimensions for each parameter.  Eager
PyTorch computes with them in Python.  So the part of a forward graph that only reads CPU tensors and numbers becomes
another graph, with C++ kernels.  What the GPU's part reads of it are numbers: arguments of its kernels, or elements
of one tensor if its launches are replayed as a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from compiler_core.support.fx_graphs import graph_module
from compiler_core.support.fx_symbols import is_symbolic
from compiler_core.support.node_facts import custom_operator, is_pure, may_raise
from compiler_core.support.operators import Fact, facts
from compiler_core.support.tensors import tensors_in
from compiler_core.torch_private import ConstantSource

aten = torch.ops.aten
_TAKES_NUMBER = frozenset({aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor})
"""Operators that compute the same with a number as with a tensor without dimensions."""
Run = Callable[[list[Any]], list[Any]]


@dataclass
class HostPart:
    """The two graphs that a forward graph is split into."""

    host: fx.GraphModule
    """Its first results are the numbers that the other graph needs, as tensors; the others are results of the whole."""
    numbers: int
    """How many numbers these are."""
    host_inputs: list[int]
    """The inputs of the whole that are its inputs, by their numbers."""
    device: fx.GraphModule
    device_inputs: list[int]
    """The inputs of the whole that are its first inputs.  The numbers follow."""
    results: list[tuple[bool, int]]
    """For each result of the whole: whether it is one of the host's, and which."""

    def joined(self, host: Run, device: Run) -> Run:
        """Returns the function of the whole graph, given those of its parts."""

        def run(inputs: list[Any]) -> list[Any]:
            found = host([inputs[i] for i in self.host_inputs])
            taken = [inputs[i] for i in self.device_inputs]
            computed = device([*taken, *map(torch.Tensor.item, found[: self.numbers])])
            return [found[i] if on_host else computed[i] for on_host, i in self.results]

        first, second = host.executable, device.executable  # type: ignore[attr-defined]
        run.executable = replace(  # type: ignore[attr-defined]
            second,
            may_raise=first.may_raise or second.may_raise,
            only_kernels=False,
            inline_body=None,
            in_place=[*first.in_place, *second.in_place],
            updates=first.updates or second.updates,
        )
        return run


def split_host_part(gm: fx.GraphModule) -> HostPart | None:
    """Splits a forward graph; None if nothing of it is computed on the CPU from which a GPU reads numbers."""
    graph = gm.graph
    if not any(t.is_cuda for node in graph.nodes for t in tensors_in(node.meta.get("val"))):
        return None
    host = _host_nodes(graph)
    if any(map(_may_raise, graph.nodes)):
        return None  # eager PyTorch has then changed nothing that comes later
    numbers = list(dict.fromkeys(n for node in graph.nodes if node not in host for n in _tensors_of(node, host)))
    if not numbers or not all(_is_number(number, host) for number in numbers):
        return None
    outputs = list(graph.output_node().args[0])  # type: ignore[arg-type]
    of_host = [node for node in outputs if node in host]
    placeholders = graph.find_nodes(op="placeholder")
    given = [i for i, node in enumerate(placeholders) if node in host or is_symbolic(node.meta.get("val"))]
    taken = [i for i, node in enumerate(placeholders) if node not in host or is_symbolic(node.meta.get("val"))]
    kept = [node for node in outputs if node not in host]
    first = _host_graph(gm, [placeholders[i] for i in given], host, numbers, of_host)
    second = _device_graph(gm, [placeholders[i] for i in taken], host, numbers, kept)
    places = [*numbers, *of_host]
    results = [(node in host, (places if node in host else kept).index(node)) for node in outputs]
    return HostPart(first, len(numbers), given, second, taken, results)


def _may_raise(node: fx.Node) -> bool:
    """Whether an operator raises an error for some values on a GPU, where indices are not checked."""
    raises = Fact.CHECKS_ON_REQUEST in facts(node.target) and may_raise(node)
    return raises or custom_operator(node.target) is not None


def _host_nodes(graph: fx.Graph) -> set[fx.Node]:
    """Returns the nodes that only need CPU tensors and numbers, and change nothing."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        value = node.meta.get("val")
        is_here = is_symbolic(value) or (isinstance(value, torch.Tensor) and value.device.type == "cpu")
        is_computed = node.op == "call_function" and (is_symbolic(value) or is_pure(node))
        if is_here and (node.op == "placeholder" or (is_computed and found.issuperset(node.all_input_nodes))):
            found.add(node)
    return found


def _tensors_of(node: fx.Node, host: set[fx.Node]) -> list[fx.Node]:
    """Returns the tensors of the CPU's part that a node of the GPU's part reads."""
    if node.op == "output":
        return []
    return [n for n in node.all_input_nodes if n in host and not is_symbolic(n.meta.get("val"))]


def _is_number(number: fx.Node, host: set[fx.Node]) -> bool:
    """Whether a tensor of the CPU's part is only read as a number: it has no dimensions, and its readers have some."""
    value = number.meta["val"]
    readers = [user for user in number.users if user not in host and user.op != "output"]
    others = [n.meta["val"] for user in readers for n in user.all_input_nodes if n is not number]
    if any(user.target not in _TAKES_NUMBER or not user.meta["val"].dim() for user in readers):
        return False
    if any(is_symbolic(other) or not other.is_cuda for other in others):
        return False
    return not value.dim() and value.is_floating_point()


def _host_graph(
    gm: fx.GraphModule, inputs: list[fx.Node], host: set[fx.Node], numbers: list[fx.Node], outputs: list[fx.Node]
) -> fx.GraphModule:
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in [*inputs, *(n for n in gm.graph.nodes if n in host and n.op != "placeholder")]:
        copies[node] = graph.node_copy(node, copies.__getitem__)

    graph.output([copies[node] for node in (*numbers, *outputs)])
    return _module(gm, graph)


def _device_graph(
    gm: fx.GraphModule, inputs: list[fx.Node], host: set[fx.Node], numbers: list[fx.Node], outputs: list[Any]
) -> fx.GraphModule:
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in inputs:
        copies[node] = graph.node_copy(node)
    known = (node.meta["val"].node.shape_env for node in inputs if is_symbolic(node.meta.get("val")))
    env = next(known, None) or ShapeEnv()
    for number in numbers:
        copies[number] = graph.placeholder(number.name)
        symbol = env.create_unspecified_symbol(_HINT, ConstantSource(number.name), DimDynamic.DYNAMIC)
        copies[number].meta["val"] = env.create_symfloatnode(symbol, hint=_HINT)
    for node in gm.graph.nodes:
        is_shared = node in host and is_symbolic(node.meta.get("val"))
        if node.op not in ("placeholder", "output") and (node not in host or is_shared):
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output([copies[node] if isinstance(node, fx.Node) else node for node in outputs])
    return _module(gm, graph)


_HINT = 0.5


def _module(gm: fx.GraphModule, graph: fx.Graph) -> fx.GraphModule:
    found = graph_module(gm, graph)
    found.meta = dict(gm.meta)
    return found
