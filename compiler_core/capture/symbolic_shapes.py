"""Symbolic sizes and numbers of one capture: PyTorch's ShapeEnv, with our sources and the user's lines.

A symbol stands for one size, stride or number of an outside object.  Whatever is decided about it on the way is
kept by the ShapeEnv as a guard; `Symbols.conditions` lists them all, once the backend is done.
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import sympy
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._guards import SLoc
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatefulSymbolicContext,
    StatelessSymbolicContext,
    StrictMinMaxConstraint,
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
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.printers import PythonPrinter
from torch.utils._sympy.value_ranges import ValueRanges

from compiler_core.capture.dynamic_policy import Policy, Wanted
from compiler_core.errors import UsageError
from compiler_core.guards.conditions import NAMES, Condition
from compiler_core.guards.sources import Computed, Extent, Source
from compiler_core.records import ItemId, Symbol
from compiler_core.support.fx_symbols import LARGEST

MOST_STEPS = 40
"""Of Python's arithmetic that each call does again, for one number."""
SYMBOLIC = (torch.SymInt, torch.SymFloat)


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

    def _get_stack_summary(self, is_debug: bool = False, framework_loc: Any = None) -> tuple[SLoc, str]:
        """Where a symbol or guard is from, in PyTorch's messages.  We know the line; PyTorch would look for it in the
        stack, each time, and import `torch.export` to know which frames are its own."""
        return SLoc(framework_loc or self.line, None), ""


class Symbols:
    """What is symbolic in one capture."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.env = Environment()
        self.sources: dict[sympy.Symbol, Source] = {}
        self._begun: dict[sympy.Symbol, ItemId | None] = {}
        self._wanted: dict[Source, Wanted] = {}
        self._equal: list[tuple[Source, sympy.Expr, ItemId | None]] = []
        """Sizes and strides that are expressions of others."""
        self._numbers: dict[Source, Any] = {}
        self._why: dict[Source, str] = {}
        self._steps: dict[Computed, int] = {}
        self._computed: dict[Any, Computed] = {}
        self._contexts: dict[Source, StatefulSymbolicContext | None] = {}

    # ------------------------------------------------------------ outside objects

    def context(self, real: torch.Tensor, source: Source) -> StatefulSymbolicContext | None:
        """Which sizes of a tensor are symbolic, as fake tensors are told; None where none is.  It holds the symbols,
        too, for fake tensors made of it again."""
        if source not in self._contexts:
            wanted, strides = self.policy.sizes(real, source), self.policy.strides(source)
            self._contexts[source] = self._context(real, source, wanted, strides) if any([*wanted, *strides]) else None
            self._wanted |= {Extent(source, "size", i): each for i, each in enumerate(wanted) if each is not None}
        return self._contexts[source]

    def note(self, fake: torch.Tensor, source: Source) -> None:
        """Which symbols the fake tensor at `source` has."""
        for method in ("size", "stride"):
            for i, extent in enumerate(getattr(fake, method)()):
                if isinstance(extent, torch.SymInt):
                    self._note(extent, Extent(source, method, i))

    def fix(self, text: str) -> bool:
        """Make numbers of the symbols that a text names, such as a warning with sizes in it; whether it names any."""
        named = [s for s in self.sources if re.search(rf"\b{s.name}\b", text)]
        for symbol in named:
            self.env.evaluate_expr(sympy.Eq(symbol, self.env.backed_var_to_val[symbol]))
        return bool(named)

    def settle(self) -> None:
        """What has become a number, or the same as another, is that in fake tensors made from now on."""
        for context in filter(None, self._contexts.values()):
            known = context.shape_env_to_source_to_symbol_cache[id(self.env)]
            for name, expr in known.items():
                known[name] = self.env.replace(expr)

    def _context(
        self, real: torch.Tensor, source: Source, wanted: Sequence[Wanted | None], strides: Sequence[bool]
    ) -> StatefulSymbolicContext:
        inferred: Any = [DimDynamic.DYNAMIC if each else DimDynamic.INFER_STRIDE for each in strides] or None
        ranges: Any = [_range(each) for each in wanted]
        offset = {f"{source.text}.storage_offset()": sympy.Integer(real.storage_offset())}  # stays a number
        return StatefulSymbolicContext(
            dynamic_sizes=[DimDynamic.STATIC if each is None else DimDynamic.DYNAMIC for each in wanted],
            dynamic_strides=inferred,
            constraint_sizes=ranges,
            tensor_source=ConstantSource(source.text),
            view_base_context=_static(real._base),
            shape_env_to_source_to_symbol_cache={id(self.env): offset},
        )

    def number(self, value: int | float, source: Source, why: str) -> Any:
        """A symbol for the number at `source`, which is `value` now."""
        if source not in self._numbers:
            self._why[source] = why
            symbol = self.env.create_unspecified_symbol(value, ConstantSource(source.text), DimDynamic.DYNAMIC)
            make = self.env.create_symintnode if isinstance(value, int) else self.env.create_symfloatnode
            self._numbers[source] = make(symbol, hint=value)
            self._note(self._numbers[source], source)
        return self._numbers[source]

    def computed(self, function: Any, args: Sequence[Any], value: int | float) -> Any:
        """A symbol for ``function(*args)`` of symbolic numbers and others, which is `value` now; None where that
        takes too many steps."""
        sources = tuple(self.source_of(arg) if isinstance(arg, SYMBOLIC) else arg for arg in args)
        key = (function, *((type(each), each) for each in sources))
        steps = 1 + sum(self._steps.get(each, 1) for each in sources if isinstance(each, Computed))
        if steps > MOST_STEPS:
            return None
        made = self._computed.setdefault(key, Computed(_name_of(function), function, sources))
        self._steps[made] = steps
        return self.number(value, made, "it is computed of others")

    def source_of(self, number: Any) -> Source:
        """Where the value of a symbolic number comes from at a call."""
        expr = number.node.expr
        if expr.is_Symbol:
            return self.sources[expr]
        if expr not in self._computed:
            symbols = sorted(expr.free_symbols, key=str)
            text = written(expr)
            function = eval(f"lambda {', '.join(map(str, symbols))}: {text}", dict(NAMES))
            function.__name__ = function.__qualname__ = text
            self._computed[expr] = Computed(f"({text})", function, tuple(self.sources[s] for s in symbols))
        return self._computed[expr]

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
        texts = self._texts
        for symbol, source in self.sources.items():
            for bound in self._bounds(symbol, source):
                yield source, self._condition(bound, texts), self._begun[symbol]
        for i, (source, expr, line) in enumerate(self._equal):
            condition = self._condition(expr, texts)
            code, text = f"p{i} == {condition.code}", f"{source.text} == {condition.text}"
            yield source, Condition(code, text, {f"p{i}": source, **condition.sources}), line
        for guard, line in zip(self.env.guards, self.env.lines, strict=True):
            condition = self._condition(guard.expr, texts)
            yield next(iter(condition.sources.values())), condition, line

    def _bounds(self, symbol: sympy.Symbol, source: Source) -> Iterator[Any]:
        """What is taken for granted of a symbol from the beginning."""
        if isinstance(source, Extent):
            wanted = self._wanted.get(source, Wanted(""))
            yield sympy.Ge(symbol, wanted.low, evaluate=False)
            if wanted.high is not None:
                yield sympy.Le(symbol, wanted.high, evaluate=False)
        elif symbol.is_integer:  # kernels take it in 64 bits, and what is computed of it
            yield sympy.Abs(symbol) <= LARGEST
        else:  # symbols know nothing of inf and nan
            yield sympy.Abs(symbol) <= sys.float_info.max

    def _condition(self, expr: Any, texts: dict[sympy.Symbol, str]) -> Condition:
        symbols = sorted(expr.free_symbols, key=str)
        return Condition(written(expr), written(expr, texts), {str(s): self.sources[s] for s in symbols})

    @property
    def _texts(self) -> dict[sympy.Symbol, str]:
        return {symbol: source.text for symbol, source in self.sources.items()}

    # ------------------------------------------------------------ the record

    def records(self) -> list[Symbol]:
        """What the record says of each symbol; UsageError of one that was marked and has become a number."""
        guards, texts = self._first_guards(), self._texts
        return [self._record(symbol, source, guards, texts) for symbol, source in self.sources.items()]

    def _record(self, symbol: sympy.Symbol, source: Source, guards: dict[Any, Any], texts: Any) -> Symbol:
        now, span = self.env.replace(symbol), self.env.var_to_range.get(symbol)
        wanted = self._wanted.get(source) or Wanted(self._why.get(source, "a stride that sizes do not explain"))
        made = Symbol(str(symbol), source.text, float(self.env.backed_var_to_val[symbol]), wanted.why)
        made.line = self._begun[symbol]
        if now != symbol:
            made.became = written(now, texts)
        elif span is not None:
            made.low, made.high = _finite(span.lower), _finite(span.upper)
        guard, made.condition_line = guards.get((symbol, now != symbol), (None, None))
        made.condition = None if guard is None else written(guard, texts)
        if now.is_number and wanted.marked:
            raise UsageError(f"{source.text} was marked dynamic, but is specialised to {now}: {made.condition}")
        return made

    def _first_guards(self) -> dict[tuple[Any, bool], tuple[Any, ItemId | None]]:
        """For each symbol the first equation that it stands in, and the first guard of another kind."""
        found: dict[tuple[Any, bool], tuple[Any, ItemId | None]] = {}
        for guard, line in zip(self.env.guards, self.env.lines, strict=True):
            for symbol in guard.expr.free_symbols:
                found.setdefault((symbol, isinstance(guard.expr, sympy.Eq)), (guard.expr, line))
        return found


def _name_of(function: Any) -> str:
    name = str(function.__name__)
    return f"{function.__module__}.{name}" if function.__module__ == "math" else name


def _finite(bound: Any) -> float | None:
    return float(bound) if bound.is_finite and abs(bound) < sys.maxsize - 1 else None


def _range(wanted: Wanted | None) -> StrictMinMaxConstraint | None:
    if wanted is None or (wanted.low, wanted.high) == (2, None):
        return None
    high = int_oo if wanted.high is None else sympy.Integer(wanted.high)
    return StrictMinMaxConstraint(warn_only=False, vr=ValueRanges(sympy.Integer(wanted.low), high))


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

    def _print_Float(self, expr: sympy.Float) -> str:
        return repr(float(expr))

    def _print_Symbol(self, expr: sympy.Symbol) -> str:
        return self._texts.get(expr, str(expr))


def written(expr: Any, texts: dict[sympy.Symbol, str] | None = None) -> str:
    """An expression as Python."""
    text: str = _Printer(texts or {}).doprint(expr)
    return text
