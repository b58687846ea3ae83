"""Symbolic numbers in FX graphs: where each symbol is read from, and what is computed from symbols.

A size that changes from call to call is a ``torch.SymInt``, an expression over symbols such as "4*s77".  Each symbol is
a size or a stride of an input, or an input itself (a Python number).  An expression may become simpler when guards are
added, so it is read from the number each time and not kept.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx as fx

from compiler_core.errors import CutawayError
from compiler_core.support import size_expr
from compiler_core.support.operators import Fact, operators_with
from compiler_core.support.size_expr import Int, prod
from compiler_core.torch_private import (
    DisablePythonDispatcher,
    DispatchKey,
    OpOverload,
    enable_python_dispatcher,
    upsample_compute_output_size,
)

MAX_SYMBOLIC_INT = 2**31
"""Larger Python integers are not made symbolic, so that what is computed from symbols fits into 64 bits."""
EXPRESSION_NAMES: dict[str, Any] = {"math": math, "torch": torch}
"""The names that the text of an expression over symbols may use besides those of the symbols."""
ASSUMPTION_FAILED = "a condition that the graph takes for granted does not hold"
"""The message of the checks of such conditions in a graph, by which their errors are recognised."""
aten = torch.ops.aten
_READ_OPERATORS = {"size": aten.sym_size.int, "stride": aten.sym_stride.int}


class NoOrigin(CutawayError):
    """No input of the graph has a symbol as a size or stride by itself, so its value cannot be read."""


@dataclass(frozen=True)
class Origin:
    """Where a symbol's value is read: a placeholder itself, or one of its sizes or strides."""

    placeholder: fx.Node
    value: Any = field(compare=False)
    """The ``torch.SymInt`` that is just the symbol."""
    method: str = ""
    dim: int = 0

    @property
    def name(self) -> str:
        """The symbol when it was made; guards may have replaced it since, by a number or by other symbols."""
        return str(self.value.node._expr)

    def __str__(self) -> str:
        return f"{self.placeholder.name}.{self.method}({self.dim})" if self.method else self.placeholder.name


def check_condition(condition: str, *numbers: Any) -> None:
    """Raises RuntimeError if a condition on numbers that data decide does not hold.  `condition` is a lambda."""
    if not function_of_text(condition)(*numbers):
        raise RuntimeError(ASSUMPTION_FAILED)


@functools.cache
def function_of_text(text: str) -> Callable[..., Any]:
    """Returns the function of a lambda over symbols."""
    function: Callable[..., Any] = eval(text, dict(EXPRESSION_NAMES))
    return function


def is_symbolic(value: Any) -> bool:
    """Returns whether a value is a symbolic number of PyTorch."""
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def has_symbols(value: Any) -> bool:
    """Returns whether a value is symbolic, or a tensor with a symbolic size."""
    return any(map(is_symbolic, value.shape)) if isinstance(value, torch.Tensor) else is_symbolic(value)


def python_decompositions(symbolic: bool) -> AbstractContextManager[None]:
    """A context in which PyTorch decomposes composite operators in Python, if sizes are symbolic.

    Some C++ decompositions specialise symbolic sizes: that of `linear` for three dimensions does in PyTorch 2.11.
    """
    context: AbstractContextManager[None] = enable_python_dispatcher() if symbolic else nullcontext()
    return context


def as_in_eager(function: Any) -> AbstractContextManager[None]:
    """A context inside of `python_decompositions` for a call of `function`: it is decomposed by eager's C++, or not
    at all, if the decomposition in Python differs.

    Dropout that drops nothing returns its argument; in Python, a copy.  One that drops all has NaN for NaN, not 0.
    """
    context: AbstractContextManager[None] = nullcontext()
    if function in (torch.nn.functional.dropout, torch.dropout, aten.dropout, aten.dropout.default):
        context = DisablePythonDispatcher()
    elif any(part in str(getattr(function, "__name__", "")) for part in ("interpolate", "upsample")):
        context = _whole_interpolations()
    return context


@contextmanager
def _whole_interpolations() -> Iterator[None]:
    """A context inside of `python_decompositions` in which interpolations are not decomposed: in Python, they round
    otherwise than eager's kernels, have other strides, and give NaN for infinities."""
    keys = DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd
    changed: dict[OpOverload, dict[Any, Any]] = {}
    for operator in operators_with(Fact.INTERPOLATION):
        default = operator.overloadpacket.default
        whole = functools.partial(_interpolate, default)
        changed[operator] = {} if operator is default else dict.fromkeys(keys, whole)
    with ExitStack() as stack:
        for operator, kernels in changed.items():
            stack.callback(setattr, operator, "py_kernels", operator.py_kernels)
            stack.callback(operator._dispatch_cache.clear)
            operator.py_kernels = {k: v for k, v in operator.py_kernels.items() if k not in keys} | kernels
            operator._dispatch_cache.clear()
        yield


def _interpolate(operator: OpOverload, x: torch.Tensor, size: Any, *rest: Any) -> Any:
    """Calls the operator that an overload ``vec`` stands for; its last argument are scale factors or None."""
    *align_corners, factors = rest
    sizes = upsample_compute_output_size(x.size(), size, factors)
    return operator(x, sizes, *align_corners, *(factors or [None] * len(sizes)))


def expression(value: Any) -> Any:
    """Returns the sympy expression of a symbolic number, simplified by all guards so far."""
    return value.node.expr


def text(value: Any) -> str:
    """Returns a number as Python source; a symbolic one as an expression over symbols."""
    if not is_symbolic(value):
        return repr(value)
    from compiler_core.torch_private import PythonPrinter

    return str(PythonPrinter().doprint(expression(value)))


def hint(value: Any) -> Any:
    """Returns the value that a number had when the graph was captured; 0 if it had none."""
    if not is_symbolic(value):
        return value
    return 0 if value.node.hint is None else value.node.hint


def symbol_names(values: Iterable[Any]) -> set[str]:
    """Returns the names of the symbols in `values` (tensors and numbers)."""
    from torch.fx.experimental.symbolic_shapes import free_symbols

    return {str(s) for v in values if is_symbolic(v) or isinstance(v, torch.Tensor) for s in free_symbols(v)}


def symbol_origins(placeholders: Iterable[fx.Node]) -> dict[str, Origin]:
    """Returns where each symbol is read: from a number if there is one, else from the first tensor with that size or
    stride."""
    numbers: dict[str, Origin] = {}
    sizes: dict[str, Origin] = {}
    strides: dict[str, Origin] = {}
    for node in placeholders:
        value = node.meta.get("val")
        if is_symbolic(value):
            _add_origin(numbers, Origin(node, value))
        elif isinstance(value, torch.Tensor):
            for dim, (size, stride) in enumerate(zip(value.shape, value.stride(), strict=True)):
                _add_origin(sizes, Origin(node, size, "size", dim))
                _add_origin(strides, Origin(node, stride, "stride", dim))
    return strides | sizes | numbers


def origin_of(name: str, found: Mapping[str, Origin]) -> Origin:
    """Returns the origin of the symbol `name`; raises `NoOrigin` if it has none."""
    if name not in found:
        raise NoOrigin(f"no input of the graph shows {name}, on which a size depends")
    return found[name]


def origin_read_by(node: fx.Node) -> Origin | None:
    """Returns the origin that a node of a graph reads; None if it reads none."""
    value = node.meta.get("val")
    if node.op == "placeholder" and is_symbolic(value):
        return Origin(node, value)
    method = next((method for method, target in _READ_OPERATORS.items() if node.target is target), None)
    if method is None or node.all_input_nodes[0].op != "placeholder":
        return None
    dim: Any = node.args[1]
    return Origin(node.all_input_nodes[0], value, method, dim)


def _add_origin(found: dict[str, Origin], origin: Origin) -> None:
    if is_symbolic(origin.value) and expression(origin.value).is_symbol:
        found.setdefault(str(expression(origin.value)), origin)


def compute_sizes_from_placeholders(graph: fx.Graph) -> None:
    """Rewrites `graph` so that every symbolic number is computed from placeholders alone, and each symbol is read once,
    by a node of its name.

    Tracing reads sizes from whichever tensor has them.  After this rewrite no number needs a tensor to be computed
    first.
    """
    read = [n for n in graph.nodes if is_symbolic(n.meta.get("val")) and not _is_arithmetic(n)]
    if read:
        _SizeRewriter(graph).replace(read)


def _is_arithmetic(node: fx.Node) -> bool:
    return bool(node.all_input_nodes) and all(is_symbolic(n.meta.get("val")) for n in node.all_input_nodes)


@functools.cache
def _size_operators() -> Any:
    """Returns PyTorch's table of the operators of size expressions, with those that make an integer of a float.

    PyTorch's returns the float, or computes with sympy, if the float is a node of a graph.
    """
    from compiler_core.torch_private import OptimizedPythonReferenceAnalysis

    class SizeOperators(OptimizedPythonReferenceAnalysis):
        trunc_to_int = staticmethod(lambda x, dtype: _call(math.trunc, x))
        floor_to_int = staticmethod(lambda x, dtype: _call(math.floor, x))
        ceil_to_int = staticmethod(lambda x, dtype: _call(math.ceil, x))
        round_to_int = staticmethod(lambda x, dtype: _call(round, x))

    return SizeOperators


def _call(function: Callable[[Any], Any], x: Any) -> Any:
    """Returns ``function(x)``, or a node that computes it if `x` is a node."""
    if isinstance(x, fx.Proxy):
        return x.tracer.create_proxy("call_function", function, (x,), {})
    return function(x)


class _SizeRewriter:
    """Computes the symbolic numbers of a graph at its start."""

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._tracer = fx.proxy.GraphAppendingTracer(graph)
        placeholders = graph.find_nodes(op="placeholder")
        self._origins = symbol_origins(placeholders)
        self._first = next(n for n in graph.nodes if n.op != "placeholder")
        self._computed: dict[Any, Any] = {}
        """From an expression to the node or number that has its value."""

    def replace(self, numbers: list[fx.Node]) -> None:
        for node in numbers:
            with self._graph.inserting_before(self._first):
                result = self._number(node.meta["val"], node.meta.get("origin", ()))
            if result is not node:
                _replace_uses(node, result)
        for node in reversed(numbers):
            if node.op != "placeholder" and not node.users:
                self._first = node.next if node is self._first else self._first
                self._graph.erase_node(node)

    def _number(self, value: Any, origin: Any) -> Any:
        from compiler_core.torch_private import sympy_interp

        expr = expression(value)
        if expr in self._computed:
            return self._computed[expr]
        symbols = {s: fx.Proxy(self._symbol(s), self._tracer) for s in expr.free_symbols}
        last = self._first.prev
        result = sympy_interp(_size_operators(), symbols, expr)
        node = last.next
        while node is not self._first:
            node.meta |= {"val": evaluate_call(node), "origin": origin, "rule": "size"}
            node = node.next
        self._computed[expr] = result.node if isinstance(result, fx.Proxy) else result
        return self._computed[expr]

    def _symbol(self, symbol: Any) -> fx.Node:
        if symbol not in self._computed:
            origin = origin_of(str(symbol), self._origins)
            node = origin.placeholder
            if origin.method:
                read, args = _READ_OPERATORS[origin.method], (node, origin.dim)
                node = self._graph.create_node("call_function", read, args, name=str(symbol))
                node.meta = {"val": origin.value, "origin": origin.placeholder.meta.get("origin", ()), "rule": "size"}
            self._computed[symbol] = node
        result: fx.Node = self._computed[symbol]
        return result


def _replace_uses(node: fx.Node, result: Any) -> None:
    """Replaces uses of `node` by `result`, a node or a number."""
    for user in list(node.users):
        user.args, user.kwargs = fx.map_arg((user.args, user.kwargs), lambda n: result if n is node else n)


def evaluate_call(node: fx.Node) -> Any:
    """Calls the operator of a node with the values of its arguments, and returns the result."""
    target: Any = node.target
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    return target(*args, **kwargs)


@dataclass(frozen=True)
class SymbolDefinition:
    """How to compute a symbol: a Python expression over the graph's inputs and the symbols in `needs`."""

    text: str
    needs: frozenset[str] = frozenset()


class SizeConverter:
    """Converts the symbolic numbers of one graph to `size_expr.Int`.

    An expression that is not a polynomial (a quotient rounded down, a maximum) becomes a new symbol, whose name is
    not in `taken`.
    """

    def __init__(self, placeholders: Iterable[fx.Node], taken: Set[str]) -> None:
        self.definitions: dict[str, SymbolDefinition] = {}
        """The definitions of all symbols so far, each after those that it needs."""
        self._origins, self._taken = symbol_origins(placeholders), taken
        self._computed: dict[Any, Int] = {}
        """From sympy expressions to their conversions."""

    def convert(self, value: Any) -> Int:
        """Converts a size of a fake tensor, or the value of a node."""
        return self._convert(expression(value), value.node.shape_env) if is_symbolic(value) else int(value)

    def _convert(self, expr: Any, env: Any) -> Int:
        if expr not in self._computed:
            self._computed[expr] = self._convert_new(expr, env)
        return self._computed[expr]

    def _convert_new(self, expr: Any, env: Any) -> Int:
        if expr.is_Integer:
            return int(expr)
        if expr.is_symbol:
            origin = origin_of(str(expr), self._origins)
            return self._symbol(str(expr), expr, env, SymbolDefinition(str(origin)), hint(origin.value))
        if expr.is_Add or expr.is_Mul:
            parts = [self._convert(a, env) for a in expr.args]
            return sum(parts[1:], parts[0]) if expr.is_Add else prod(parts)
        if expr.is_Pow and expr.exp.is_Integer and expr.exp > 0:
            return prod([self._convert(expr.base, env)] * int(expr.exp))
        return self._new_symbol(expr, env)

    def _new_symbol(self, expr: Any, env: Any) -> Int:
        from compiler_core.torch_private import PythonPrinter

        hints = {s: size_expr.hint(self._convert(s, env)) for s in expr.free_symbols}
        numbered = (f"n{k}" for k in itertools.count())
        name = next(name for name in numbered if name not in self._taken and name not in self.definitions)
        definition = SymbolDefinition(PythonPrinter().doprint(expr), frozenset(map(str, hints)))
        return self._symbol(name, expr, env, definition, int(expr.xreplace(hints)))

    def _symbol(self, name: str, expr: Any, env: Any, definition: SymbolDefinition, hint: int) -> Int:
        self.definitions[name] = definition
        least = env.bound_sympy(expr).lower
        return size_expr.symbol(name, int(least) if least.is_Integer else -sys.maxsize, hint)
