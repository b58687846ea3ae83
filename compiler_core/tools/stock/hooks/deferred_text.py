"""Defers the printing of PyTorch's log texts until the record is closed.

Printing a graph or a guard tree for the structured log takes longer than keeping what it is printed from.  While a
compile is observed and nobody else reads the log, a placeholder replaces each such text.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from compiler_core.tools.stock.hooks import torch_internals
from compiler_core.tools.stock.read.placeholders import Placeholders

_SHAPE_KEYS = ("val", "tensor_meta", "example_value")
"""Keys of a node's `meta` from which its shape is printed."""


def defer_graph(texts: Placeholders, module: GraphModule, **options: Any) -> str:
    """Returns a placeholder for ``module.print_readable(**options)`` of the graph as it is now."""
    snapshot = _GraphSnapshot(module)
    return texts.defer(lambda: snapshot.module().print_readable(**options))


def install(texts: Placeholders, stack: ExitStack, is_only_reader: Callable[[], bool]) -> None:
    """Defers the texts of PyTorch's log until `stack` closes, while `is_only_reader` returns True."""
    log_function = torch_internals.trace_function()
    if log_function is None:
        return
    for owner, name, defer in _deferrable(texts):
        _defer_for_log(stack, owner, name, log_function.__code__, is_only_reader, defer)


def _deferrable(texts: Placeholders) -> Iterable[tuple[Any, str, Callable[..., str | None]]]:
    """The methods that print texts, each with a function that returns a placeholder, or None to print now."""

    def defer_static_graph(module: GraphModule, **options: Any) -> str | None:
        return None if has_symbolic_sizes(module.graph) else defer_graph(texts, module, **options)

    yield GraphModule, "print_readable", defer_static_graph
    if (tree := torch_internals.guard_tree()) is not None:
        original = tree.__str__
        yield tree, "__str__", lambda manager: texts.defer(lambda: original(manager))


class _GraphSnapshot:
    """A copy of a graph's nodes, which takes less time than copying the graph or printing it."""

    def __init__(self, module: GraphModule) -> None:
        self._name = type(module).__name__
        self._codegen = module.graph._codegen
        self._nodes = [(n, n.op, n.target, n.args, n.kwargs, n.name, n.type, n.meta.copy()) for n in module.graph.nodes]
        children = ((name, m) for name, m in module.named_children() if isinstance(m, GraphModule))
        self._children = {name: _GraphSnapshot(child) for name, child in children}

    def module(self) -> GraphModule:
        """Returns a module that can be printed, but not run."""
        graph = Graph()
        copies: dict[torch.fx.Node, torch.fx.Node] = {}
        for node, op, target, args, kwargs, name, type_, meta in self._nodes:
            args, kwargs = (torch.fx.map_arg(each, copies.__getitem__) for each in (args, kwargs))
            copies[node] = graph.create_node(op, target, args, kwargs, name, type_)
            copies[node].meta = meta
        graph._codegen = self._codegen
        module = GraphModule.__new__(GraphModule)
        torch.nn.Module.__init__(module)
        module._graph = graph
        module._modules = {name: child.module() for name, child in self._children.items()}
        type(module).__name__ = self._name
        return module


def has_symbolic_sizes(graph: Graph) -> bool:
    """Whether the graph has symbolic sizes; a later decision may replace their symbols by others."""
    return any(_is_symbolic(n.meta[key]) for n in graph.nodes for key in _SHAPE_KEYS if key in n.meta)


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return bool(value._has_symbolic_sizes_strides)
    if isinstance(value, (list, tuple)):
        return any(map(_is_symbolic, value))
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def _defer_for_log(
    stack: ExitStack,
    owner: Any,
    name: str,
    log_code: Any,
    is_only_reader: Callable[[], bool],
    defer: Callable[..., str | None],
) -> None:
    """Replaces the method ``owner.name`` until `stack` closes: called for PyTorch's log, it returns a placeholder."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def print_or_defer(self: Any, *args: Any, **kwargs: Any) -> Any:
        # The log calls a function that makes the text, and that function calls this one.
        caller = sys._getframe(1).f_back
        if not args and caller is not None and caller.f_code is log_code and is_only_reader():
            if (placeholder := defer(self, **kwargs)) is not None:
                return placeholder
        return original(self, *args, **kwargs)

    stack.callback(setattr, owner, name, original)
    setattr(owner, name, print_or_defer)
