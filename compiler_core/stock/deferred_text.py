"""Texts that are made when they are read, not while PyTorch compiles.

What PyTorch would print for its structured log, a graph or a guard tree, takes longer to print than to keep: a mark
stands in the text's place until the record closes.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from compiler_core.stock import versions

_MARK = re.compile("\x00(\\d+)\x00")
_SHOWN = ("val", "tensor_meta", "example_value")
"""Where a node's shape is printed from."""


class Later:
    """Makes texts from what was kept."""

    def __init__(self) -> None:
        self._makers: list[Callable[[], str]] = []

    def keep(self, make: Callable[[], str]) -> str:
        self._makers.append(make)
        return f"\x00{len(self._makers) - 1}\x00"

    def whole(self, text: str) -> str:
        """The text with what its marks stand for."""
        return _MARK.sub(self._made, text) if "\x00" in text else text

    def _made(self, mark: re.Match[str]) -> str:
        at = int(mark[1])
        return self._makers[at]() if at < len(self._makers) else mark[0]

    def graph(self, module: GraphModule, **options: Any) -> str:
        """``module.print_readable(**options)``, as the graph is now."""
        nodes = _Nodes(module)
        return self.keep(lambda: nodes.module().print_readable(**options))

    def install(self, stack: ExitStack, alone: Callable[[], bool]) -> None:
        """Until `stack` closes, PyTorch's log gets marks; only where nobody else reads it."""
        if (log := versions.trace_function()) is None:
            return
        for owner, name, keep in self._kept():
            _instead(stack, owner, name, log.__code__, alone, keep)

    def _kept(self) -> Iterable[tuple[Any, str, Callable[..., str | None]]]:
        yield GraphModule, "print_readable", self._graph
        if (tree := versions.guard_tree()) is not None:
            original = tree.__str__
            yield tree, "__str__", lambda manager: self.keep(lambda: original(manager))

    def _graph(self, module: GraphModule, **options: Any) -> str | None:
        return None if symbolic(module.graph) else self.graph(module, **options)


class _Nodes:
    """A graph as it is now, in less time than copying or printing it takes."""

    def __init__(self, module: GraphModule) -> None:
        self._name = type(module).__name__
        self._codegen = module.graph._codegen
        self._nodes = [(n, n.op, n.target, n.args, n.kwargs, n.name, n.type, n.meta.copy()) for n in module.graph.nodes]
        self._children = {name: _Nodes(m) for name, m in module.named_children() if isinstance(m, GraphModule)}

    def module(self) -> GraphModule:
        """A module that can be printed, not run."""
        graph = Graph()
        made: dict[torch.fx.Node, torch.fx.Node] = {}
        for node, op, target, args, kwargs, name, type_, meta in self._nodes:
            args, kwargs = (torch.fx.map_arg(each, made.__getitem__) for each in (args, kwargs))
            made[node] = graph.create_node(op, target, args, kwargs, name, type_)
            made[node].meta = meta
        graph._codegen = self._codegen
        module = GraphModule.__new__(GraphModule)
        torch.nn.Module.__init__(module)
        module._graph = graph
        module._modules = {name: child.module() for name, child in self._children.items()}
        type(module).__name__ = self._name
        return module


def symbolic(graph: Graph) -> bool:
    """Whether sizes in it have symbols, which a later decision may turn into others."""
    return any(_has_symbols(n.meta[key]) for n in graph.nodes for key in _SHOWN if key in n.meta)


def _has_symbols(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return bool(value._has_symbolic_sizes_strides)
    if isinstance(value, (list, tuple)):
        return any(map(_has_symbols, value))
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def _instead(
    stack: ExitStack, owner: Any, name: str, log: Any, alone: Callable[[], bool], keep: Callable[..., str | None]
) -> None:
    """``owner.name`` gives a mark where a text for PyTorch's log is made, until `stack` closes."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def printed(self: Any, *args: Any, **kwargs: Any) -> Any:
        # the log calls a function that makes the text, and that calls us
        caller = sys._getframe(1).f_back
        if not args and caller is not None and caller.f_code is log and alone():
            if (mark := keep(self, **kwargs)) is not None:
                return mark
        return original(self, *args, **kwargs)

    stack.callback(setattr, owner, name, original)
    setattr(owner, name, printed)
