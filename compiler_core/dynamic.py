"""Symbolic sizes and numbers of one capture: PyTorch's ShapeEnv, with our sources and the user's lines.

A symbol stands for one size, stride or number of an outside object.  Whatever is decided about it on the way is
kept by the ShapeEnv as a guard; `Symbols.conditions` lists them all, once the backend is done.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import sympy
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatefulSymbolicContext,
    StatelessSymbolicContext,
)
from torch.utils._sympy.functions import (
    BitwiseFn_bitwise_and,
    BitwiseFn_bitwise_or,
    BitwiseFn_bitwise_xor,
    CleanDiv,
    FloorDiv,
    LShift,
    Max,
    Min,
    Mod,
    PowByNatural,
    PythonMod,
    RShift,
)
from torch.utils._sympy.printers import PythonPrinter

from compiler_core.guards.conditions import Condition
from compiler_core.policy import Policy
from compiler_core.record import ItemId
from compiler_core.sources import Extent, Source


class Environment(ShapeEnv):
    """A ShapeEnv that notes for each of its guards which line of the user's asked.  No two sizes share a symbol
    because they happen to be equal, and what only the data can tell breaks the graph."""

    def __init__(self) -> None:
        super().__init__(duck_shape=False, allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)
        self.line: ItemId | None = None
        """The user's line at work."""
        self.lines: list[ItemId | None] = []

    def evaluate_expr(self, *args: Any, **kwargs: Any) -> Any:
        result = super().evaluate_expr(*args, **kwargs)
        self.lines += [self.line] * (len(self.guards) - len(self.lines))
        return result


class Symbols:
    """What is symbolic in one capture."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.env = Environment()
        self.sources: dict[sympy.Symbol, Source] = {}
        self._begun: dict[sympy.Symbol, ItemId | None] = {}
        self._equal: list[tuple[Source, sympy.Expr, ItemId | None]] = []
        """Sizes and strides that are expressions of others."""
        self._numbers: dict[Source, torch.SymInt] = {}
        self._contexts: dict[Source, StatefulSymbolicContext | None] = {}

    # ------------------------------------------------------------ outside objects

    def context(self, real: torch.Tensor, source: Source) -> StatefulSymbolicContext | None:
        """Which sizes of a tensor are symbolic, as fake tensors are told; None where none is.  It holds the symbols,
        too, for fake tensors made of it again."""
        if source not in self._contexts:
            dynamic = self.policy.sizes(real, source)
            self._contexts[source] = self._context(real, source, dynamic) if any(dynamic) else None
        return self._contexts[source]

    def note(self, fake: torch.Tensor, source: Source) -> None:
        """Which symbols the fake tensor at `source` has."""
        for method in ("size", "stride"):
            for i, extent in enumerate(getattr(fake, method)()):
                if isinstance(extent, torch.SymInt):
                    self._note(extent, Extent(source, method, i))

    def settle(self) -> None:
        """What has become a number, or the same as another, is that in fake tensors made from now on."""
        for context in filter(None, self._contexts.values()):
            known = context.shape_env_to_source_to_symbol_cache[id(self.env)]
            for name, expr in known.items():
                known[name] = self.env.replace(expr)

    def _context(self, real: torch.Tensor, source: Source, dynamic: list[bool]) -> StatefulSymbolicContext:
        sizes = [DimDynamic.DYNAMIC if each else DimDynamic.STATIC for each in dynamic]
        place = ConstantSource(source.text)
        offset = {f"{source.text}.storage_offset()": sympy.Integer(real.storage_offset())}  # stays a number
        return StatefulSymbolicContext(
            dynamic_sizes=sizes,
            tensor_source=place,
            view_base_context=_static(real._base),
            shape_env_to_source_to_symbol_cache={id(self.env): offset},
        )

    def number(self, value: int, source: Source) -> torch.SymInt:
        """A symbol for the number at `source`."""
        if source not in self._numbers:
            symbol = self.env.create_unspecified_symbol(value, ConstantSource(source.text), DimDynamic.DYNAMIC)
            made: Any = self.env.create_symintnode(symbol, hint=value)
            self._note(made, source)
            self._numbers[source] = made
        return self._numbers[source]

    def _note(self, number: torch.SymInt, source: Source) -> None:
        expr = number.node._expr
        if isinstance(expr, sympy.Symbol) and expr not in self.sources:
            self.sources[expr] = source
            self._begun[expr] = self.env.line
        else:
            self._equal.append((source, expr, self.env.line))

    def dispatching(self) -> AbstractContextManager[None]:
        """Around operations: those that C++ decomposes for plain sizes only are decomposed in Python."""
        made: AbstractContextManager[None] = enable_python_dispatcher() if self.sources else nullcontext()
        return made

    # ------------------------------------------------------------ what must hold

    def conditions(self) -> Iterator[tuple[Source, Condition, ItemId | None]]:
        """All that must hold of sizes and numbers: for each the first source in it, and the user's line."""
        for symbol, source in self.sources.items():
            if isinstance(source, Extent):
                yield source, self._condition(sympy.Ge(symbol, 2, evaluate=False)), self._begun[symbol]
        for i, (source, expr, line) in enumerate(self._equal):
            place = sympy.Symbol(f"p{i}", integer=True)
            yield source, self._condition(sympy.Eq(place, expr, evaluate=False), {place: source}), line
        for guard, line in zip(self.env.guards, self.env.lines, strict=True):
            condition = self._condition(guard.expr)
            yield next(iter(condition.sources.values())), condition, line

    def _condition(self, expr: Any, places: dict[sympy.Symbol, Source] | None = None) -> Condition:
        sources = {**self.sources, **(places or {})}
        found = sorted(expr.free_symbols, key=str)
        texts = {symbol: sources[symbol].text for symbol in found}
        names = {symbol.name: sources[symbol] for symbol in found}
        return Condition(written(expr), written(expr, texts), names)

    # ------------------------------------------------------------ expressions

    def function(self, expr: sympy.Expr) -> tuple[Callable[..., int], list[Source]]:
        """A Python function that computes `expr`, and the sources of its arguments."""
        symbols = sorted(expr.free_symbols, key=str)
        names = ", ".join(symbol.name for symbol in symbols)
        made: Callable[..., int] = eval(f"lambda {names}: {written(expr)}", {})
        made.__name__ = made.__qualname__ = written(expr)
        return made, [self.sources[symbol] for symbol in symbols]


def _static(base: torch.Tensor | None) -> StatelessSymbolicContext[..., Any] | None:
    """What a tensor is a view of has no symbols."""
    return None if base is None else StatelessSymbolicContext(dynamic_sizes=[DimDynamic.STATIC] * base.dim())


# how an expression is computed step by step
OPERATIONS: dict[Any, Callable[..., Any]] = {
    sympy.Add: operator.add, sympy.Mul: operator.mul, sympy.Pow: operator.pow, PowByNatural: operator.pow,
    FloorDiv: operator.floordiv, CleanDiv: operator.floordiv, Mod: operator.mod, PythonMod: operator.mod,
    sympy.Abs: operator.abs, Max: torch.sym_max, Min: torch.sym_min, LShift: operator.lshift, RShift: operator.rshift,
    BitwiseFn_bitwise_and: operator.and_, BitwiseFn_bitwise_or: operator.or_, BitwiseFn_bitwise_xor: operator.xor,
}  # fmt: skip


class _Printer(PythonPrinter):
    """Python, with the sources' texts in place of their symbols."""

    def __init__(self, texts: dict[sympy.Symbol, str]) -> None:
        super().__init__()
        self._texts = texts

    def _print_Symbol(self, expr: sympy.Symbol) -> str:
        return self._texts.get(expr, str(expr))


def written(expr: Any, texts: dict[sympy.Symbol, str] | None = None) -> str:
    """An expression as Python."""
    text: str = _Printer(texts or {}).doprint(expr)
    return text
