"""Symbolic numbers in FX graphs: where each symbol is read from, and what is computed from them.

A size that changes from call to call is a ``torch.SymInt``, an expression over symbols ("4*s77").
Each symbol is a size or a stride of an input, or an input itself (a Python number).  An expression
may become simpler when guards are added, so it is asked anew each time.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from compiler_core.errors import CutawayError
from compiler_core.support import size_expr
from compiler_core.support.size_expr import Int, prod

LARGEST = 2**31
"""The largest ints from outside that are symbolic: what is computed of them is to fit 64 bits."""
aten = torch.ops.aten
_READ = {"size": aten.sym_size.int, "stride": aten.sym_stride.int}


class NoOrigin(CutawayError):
    """A symbol stands in no shape of an input by itself, so that its value cannot be read."""


@dataclass(frozen=True)
class Origin:
    """Where a symbol is read: a placeholder itself, or one of its sizes or strides."""

    placeholder: fx.Node
    value: Any
    """The ``torch.SymInt`` that is the symbol alone."""
    method: str = ""
    dim: int = 0

    def __str__(self) -> str:
        return f"{self.placeholder.name}.{self.method}({self.dim})" if self.method else self.placeholder.name


def is_symbolic(value: Any) -> bool:
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def expression(value: Any) -> Any:
    """The sympy expression of a symbolic number, with all that is known by now."""
    return value.node.expr


def text(value: Any) -> str:
    """A number as Python source; a symbolic one as an expression over symbols."""
    if not is_symbolic(value):
        return repr(value)
    from torch.utils._sympy.printers import PythonPrinter

    return str(PythonPrinter().doprint(expression(value)))


def hint(value: Any) -> Any:
    """A number that `value` had when the graph was captured; 0 where there was none."""
    if not is_symbolic(value):
        return value
    return 0 if value.node.hint is None else value.node.hint


def names(values: Iterable[Any]) -> set[str]:
    """The symbols that tensors and numbers `values` speak of."""
    from torch.fx.experimental.symbolic_shapes import free_symbols

    return {str(s) for v in values if is_symbolic(v) or isinstance(v, torch.Tensor) for s in free_symbols(v)}


def origins(placeholders: Iterable[fx.Node]) -> dict[str, Origin]:
    """Where each symbol is read; from a number where it can be, else from the first tensor."""
    numbers: dict[str, Origin] = {}
    sizes: dict[str, Origin] = {}
    strides: dict[str, Origin] = {}
    for node in placeholders:
        value = node.meta.get("val")
        if is_symbolic(value):
            _note(numbers, Origin(node, value))
        elif isinstance(value, torch.Tensor):
            for dim, (size, stride) in enumerate(zip(value.shape, value.stride(), strict=True)):
                _note(sizes, Origin(node, size, "size", dim))
                _note(strides, Origin(node, stride, "stride", dim))
    return strides | sizes | numbers


def origin_of(name: str, found: Mapping[str, Origin]) -> Origin:
    if name not in found:
        raise NoOrigin(f"no input of the graph shows {name}, on which a size depends")
    return found[name]


def _note(found: dict[str, Origin], origin: Origin) -> None:
    if is_symbolic(origin.value) and expression(origin.value).is_symbol:
        found.setdefault(str(expression(origin.value)), origin)


def from_placeholders(graph: fx.Graph) -> None:
    """Compute every symbolic number from the placeholders alone, each symbol read once, under its name.

    Tracing reads sizes off whatever tensor shows them; here no number needs a tensor to be computed first.
    """
    read = [n for n in graph.nodes if is_symbolic(n.meta.get("val")) and not _is_arithmetic(n)]
    if read:
        _Numbers(graph).replace(read)


def _is_arithmetic(node: fx.Node) -> bool:
    return bool(node.all_input_nodes) and all(is_symbolic(n.meta.get("val")) for n in node.all_input_nodes)


class _Numbers:
    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._tracer = fx.proxy.GraphAppendingTracer(graph)
        placeholders = graph.find_nodes(op="placeholder")
        self._origins = origins(placeholders)
        self._first = next(n for n in graph.nodes if n.op != "placeholder")
        self._made: dict[Any, Any] = {}
        """For each expression, its node or number."""

    def replace(self, numbers: list[fx.Node]) -> None:
        for node in numbers:
            with self._graph.inserting_before(self._first):
                made = self._number(node.meta["val"], node.meta.get("origin", ()))
            if made is not node:
                _replace_uses(node, made)
        for node in reversed(numbers):
            if node.op != "placeholder" and not node.users:
                self._first = node.next if node is self._first else self._first
                self._graph.erase_node(node)

    def _number(self, value: Any, origin: Any) -> Any:
        from torch.utils._sympy.interp import sympy_interp
        from torch.utils._sympy.reference import OptimizedPythonReferenceAnalysis

        expr = expression(value)
        if expr in self._made:
            return self._made[expr]
        symbols = {s: fx.Proxy(self._symbol(s), self._tracer) for s in expr.free_symbols}
        last = self._first.prev
        made = sympy_interp(OptimizedPythonReferenceAnalysis, symbols, expr)
        node = last.next
        while node is not self._first:
            node.meta |= {"val": _value(node), "origin": origin, "rule": "size"}
            node = node.next
        self._made[expr] = made.node if isinstance(made, fx.Proxy) else made
        return self._made[expr]

    def _symbol(self, symbol: Any) -> fx.Node:
        if symbol not in self._made:
            origin = origin_of(str(symbol), self._origins)
            node = origin.placeholder
            if origin.method:
                read, args = _READ[origin.method], (node, origin.dim)
                node = self._graph.create_node("call_function", read, args, name=str(symbol))
                node.meta = {"val": origin.value, "origin": origin.placeholder.meta.get("origin", ()), "rule": "size"}
            self._made[symbol] = node
        made: fx.Node = self._made[symbol]
        return made


def _replace_uses(node: fx.Node, made: Any) -> None:
    """Have the users of `node` use `made`, a node or a number."""
    for user in list(node.users):
        user.args, user.kwargs = fx.map_arg((user.args, user.kwargs), lambda n: made if n is node else n)


def _value(node: fx.Node) -> Any:
    target: Any = node.target
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    return target(*args, **kwargs)


@dataclass(frozen=True)
class Definition:
    """How to compute a symbol: Python over the graph's inputs and the symbols `needs`."""

    text: str
    needs: frozenset[str] = frozenset()


class Sizes:
    """The symbolic numbers of one graph as `sizes.Int`.

    What is no polynomial (a quotient rounded down, a maximum) becomes a symbol of its own, with a name
    that is not in `taken`.
    """

    def __init__(self, placeholders: Iterable[fx.Node], taken: Set[str]) -> None:
        self.definitions: dict[str, Definition] = {}
        """Of each symbol met so far; each after those that it needs."""
        self._origins, self._taken = origins(placeholders), taken
        self._made: dict[Any, Int] = {}
        """For each sympy expression that was met."""

    def of(self, value: Any) -> Int:
        """A size of a fake tensor, or the value of a node."""
        return self._of(expression(value), value.node.shape_env) if is_symbolic(value) else int(value)

    def _of(self, expr: Any, env: Any) -> Int:
        if expr not in self._made:
            self._made[expr] = self._make(expr, env)
        return self._made[expr]

    def _make(self, expr: Any, env: Any) -> Int:
        if expr.is_Integer:
            return int(expr)
        if expr.is_symbol:
            origin = origin_of(str(expr), self._origins)
            return self._symbol(str(expr), expr, env, Definition(str(origin)), hint(origin.value))
        if expr.is_Add or expr.is_Mul:
            parts = [self._of(a, env) for a in expr.args]
            return sum(parts[1:], parts[0]) if expr.is_Add else prod(parts)
        if expr.is_Pow and expr.exp.is_Integer and expr.exp > 0:
            return prod([self._of(expr.base, env)] * int(expr.exp))
        return self._opaque(expr, env)

    def _opaque(self, expr: Any, env: Any) -> Int:
        from torch.utils._sympy.printers import PythonPrinter

        hints = {s: size_expr.hint(self._of(s, env)) for s in expr.free_symbols}
        name = next(n for k in itertools.count() if (n := f"n{k}") not in self._taken and n not in self.definitions)
        definition = Definition(PythonPrinter().doprint(expr), frozenset(map(str, hints)))
        return self._symbol(name, expr, env, definition, int(expr.xreplace(hints)))

    def _symbol(self, name: str, expr: Any, env: Any, definition: Definition, hint: int) -> Int:
        self.definitions[name] = definition
        least = env.bound_sympy(expr).lower
        return size_expr.symbol(name, int(least) if least.is_Integer else -sys.maxsize, hint)
