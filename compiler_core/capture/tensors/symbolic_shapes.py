"""Symbolic sizes and numbers of one capture: PyTorch's ShapeEnv, with the sources of symbols and the user's lines.

Sizes and numbers are symbolic that differed between calls, or that the user marked (`DynamicPolicy`).

A symbol stands for one size, stride or number of an outside object.  The ShapeEnv stores each decision about it as a
guard; `Symbols.conditions` lists them all, after the backend has run.
"""

from __future__ import annotations

import math
import operator
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    GuardOnDataDependentSymNode,
    ShapeEnv,
    StatefulSymbolicContext,
    StatelessSymbolicContext,
    StrictMinMaxConstraint,
)

from compiler_core.errors import Unsupported, UsageError
from compiler_core.guards.relation_guards import Condition
from compiler_core.guards.sources import (
    AttrSource,
    CallSource,
    CellContentsSource,
    ClosureCellSource,
    ComputedSource,
    GetItemSource,
    LocalSource,
    Source,
    TensorPropertySource,
    call_item,
    path,
)
from compiler_core.records import ItemId, Symbol
from compiler_core.support.fx_symbols import EXPRESSION_NAMES, MAX_SYMBOLIC_INT
from compiler_core.support.tensors import is_ragged_size
from compiler_core.torch_private import (
    BitwiseFn_bitwise_and,
    BitwiseFn_bitwise_or,
    BitwiseFn_bitwise_xor,
    CleanDiv,
    ConstantSource,
    FloorDiv,
    LShift,
    PowByNatural,
    PythonMod,
    PythonPrinter,
    RShift,
    SLoc,
    SympyMax,
    SympyMin,
    SympyMod,
    SymT,
    ValueRanges,
    int_oo,
    symbol_is_type,
)

MAX_ARITHMETIC_STEPS = 40
"""Steps of Python's arithmetic that each call repeats for one number."""
SYMBOLIC = (torch.SymInt, torch.SymFloat)


@dataclass(frozen=True)
class Measured:
    """Where a symbol is read that data decide: a size of a tensor of the graph, or its only element."""

    tensor: Any
    """The `TensorValue`."""
    dim: int | None

    def text(self, tensor: str) -> str:
        """Returns how Python reads it from the tensor of this name."""
        return f"{tensor}.item()" if self.dim is None else f"{tensor}.size({self.dim})"


def is_unbacked(expr: sympy.Expr) -> bool:
    """Returns whether an expression is a symbol that data decide."""
    return bool(expr.is_Symbol) and symbol_is_type(expr, (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT))


class RecordingShapeEnv(ShapeEnv):
    """A ShapeEnv that stores the user's line of each of its guards.

    Two sizes never share a symbol because they happen to be equal.  A symbol that data decide has no value yet: what
    needs one breaks the graph.
    """

    def __init__(self) -> None:
        super().__init__(duck_shape=False, allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)
        self.measured: dict[sympy.Symbol, Measured] = {}
        """The symbols that data decide."""
        self.in_operation = False
        """Whether an operation asks, and not the program."""
        self.line: ItemId | None = None
        """The user's line that is being interpreted."""
        self.lines: list[ItemId | None] = []

    def evaluate_expr(self, *args: Any, **kwargs: Any) -> Any:
        try:
            result = super().evaluate_expr(*args, **kwargs)
        except GuardOnDataDependentSymNode as error:
            result = self._assumed(error.cond)
        self.lines += [self.line] * (len(self.guards) - len(self.lines))
        return result

    def _assumed(self, condition: Any) -> bool:
        """Returns what an operation may take for granted about numbers that data decide, which the graph then checks:
        that something is not empty, or has more than one element."""
        is_equation = isinstance(condition, (sympy.Eq, sympy.Ne)) and condition.rhs in (0, 1)
        if not self.in_operation or not is_equation:
            raise Unsupported("tensor value read")
        self.guard_or_defer_runtime_assert(sympy.Ne(condition.lhs, condition.rhs), "")
        return isinstance(condition, sympy.Ne)

    def _get_stack_summary(self, is_debug: bool = False, framework_loc: Any = None) -> tuple[SLoc, str]:
        """Returns the origin of a symbol or guard for PyTorch's messages.

        PyTorch would search the stack for it each time, and import `torch.export` to recognise its own frames.
        """
        return SLoc(framework_loc or self.line, None), ""


class Symbols:
    """The symbolic sizes and numbers of one capture."""

    def __init__(self, policy: DynamicPolicy) -> None:
        self.policy = policy
        self.env = RecordingShapeEnv()
        self.sources: dict[sympy.Symbol, Source] = {}
        self._first_lines: dict[sympy.Symbol, ItemId | None] = {}
        self._dynamic_dims: dict[Source, DynamicDim] = {}
        self._derived: list[tuple[Source, sympy.Expr, ItemId | None]] = []
        """Sizes and strides that are expressions of other symbols."""
        self._numbers: dict[Source, Any] = {}
        self._reasons: dict[Source, str] = {}
        self._steps: dict[ComputedSource, int] = {}
        self._computed: dict[Any, ComputedSource] = {}
        self._contexts: dict[Source, StatefulSymbolicContext | None] = {}

    # ------------------------------------------------------------ outside objects

    def symbolic_context(self, real: torch.Tensor, source: Source) -> StatefulSymbolicContext | None:
        """Returns which sizes of a tensor are symbolic, as `make_fake` takes it; None if none is.

        It also holds the symbols, for further fake tensors of the same tensor.
        """
        if source not in self._contexts:
            wanted, strides = self.policy.dynamic_dims(real, source), self.policy.dynamic_strides(real, source)
            self._contexts[source] = (
                self._make_context(real, source, wanted, strides) if any([*wanted, *strides]) else None
            )
            self._dynamic_dims |= {
                TensorPropertySource(source, "size", i): each for i, each in enumerate(wanted) if each is not None
            }
        return self._contexts[source]

    def note_symbols(self, fake: torch.Tensor, source: Source) -> None:
        """Notes the symbols of the fake tensor at `source`."""
        for method in ("size", "stride"):
            for i, extent in enumerate(getattr(fake, method)()):
                if isinstance(extent, torch.SymInt) and not is_ragged_size(extent):
                    self._note(extent, TensorPropertySource(source, method, i))

    def specialize_named(self, text: str) -> bool:
        """Specialises the symbols that a text (such as a warning about sizes) names; returns whether it names any."""
        named = [s for s in self.sources if re.search(rf"\b{s.name}\b", text)]
        for symbol in named:
            self.env.evaluate_expr(sympy.Eq(symbol, self.env.backed_var_to_val[symbol]))
        return bool(named)

    def apply_replacements(self) -> None:
        """Replaces symbols that have become numbers or other symbols, in fake tensors made from now on."""
        for context in filter(None, self._contexts.values()):
            known = context.shape_env_to_source_to_symbol_cache[id(self.env)]
            for name, expr in known.items():
                known[name] = self.env.replace(expr)

    def _make_context(
        self, real: torch.Tensor, source: Source, wanted: Sequence[DynamicDim | None], strides: Sequence[bool]
    ) -> StatefulSymbolicContext:
        inferred: Any = [DimDynamic.DYNAMIC if each else DimDynamic.INFER_STRIDE for each in strides] or None
        ranges: Any = [_constraint(each) for each in wanted]
        offset = {f"{source.text}.storage_offset()": sympy.Integer(real.storage_offset())}  # stays a number
        return StatefulSymbolicContext(
            dynamic_sizes=[DimDynamic.STATIC if each is None else DimDynamic.DYNAMIC for each in wanted],
            dynamic_strides=inferred,
            constraint_sizes=ranges,
            tensor_source=ConstantSource(source.text),
            view_base_context=_static_context(real._base),
            shape_env_to_source_to_symbol_cache={id(self.env): offset},
        )

    def symbol_for_number(self, value: int | float, source: Source, why: str) -> Any:
        """Returns a symbolic number for the number at `source`, whose current value is `value`."""
        if source not in self._numbers:
            self._reasons[source] = why
            symbol = self.env.create_unspecified_symbol(value, ConstantSource(source.text), DimDynamic.DYNAMIC)
            make = self.env.create_symintnode if isinstance(value, int) else self.env.create_symfloatnode
            self._numbers[source] = make(symbol, hint=value)
            self._note(self._numbers[source], source)
        return self._numbers[source]

    def computed(self, function: Any, args: Sequence[Any], value: int | float) -> Any:
        """Returns a symbolic number for ``function(*args)``, whose current value is `value`.

        Returns None if the computation, which each call repeats, takes too many steps.
        """
        sources = tuple(self.source_of(arg) if isinstance(arg, SYMBOLIC) else arg for arg in args)
        key = (function, *((type(each), each) for each in sources))
        steps = 1 + sum(self._steps.get(each, 1) for each in sources if isinstance(each, ComputedSource))
        if steps > MAX_ARITHMETIC_STEPS:
            return None
        computed = ComputedSource(_name_of(function), function, sources, _OPERATIONS.get(function, ""))
        source = self._computed.setdefault(key, computed)
        self._steps[source] = steps
        return self.symbol_for_number(value, source, "it is computed from others")

    def source_of(self, number: Any) -> Source:
        """Returns the source from which a call computes the value of a symbolic number."""
        expr = number.node.expr
        if expr.is_Symbol:
            return self.sources[expr]
        if expr not in self._computed:
            symbols = sorted(expr.free_symbols, key=str)
            text = python_text(expr)
            function = eval(f"lambda {', '.join(map(str, symbols))}: {text}", dict(EXPRESSION_NAMES))
            function.__name__ = function.__qualname__ = text
            written = f"({python_text(expr, {symbol: f'{{{i}}}' for i, symbol in enumerate(symbols)})})"
            self._computed[expr] = ComputedSource(text, function, tuple(self.sources[s] for s in symbols), written)
        return self._computed[expr]

    def _note(self, number: torch.SymInt, source: Source) -> None:
        expr = number.node._expr
        if isinstance(expr, sympy.Symbol) and expr not in self.sources:
            self.sources[expr] = source
            self._first_lines[expr] = self.env.line
        else:
            self._derived.append((source, expr, self.env.line))

    # ------------------------------------------------------------ conditions

    def conditions(self) -> Iterator[tuple[Source, Condition, ItemId | None]]:
        """Yields every condition on sizes and numbers, with the first source in it and the user's line."""
        for symbol, source in self.sources.items():
            for bound in self._bounds(symbol, source):
                yield source, self._condition(bound), self._first_lines[symbol]
        for i, (source, expr, line) in enumerate(self._derived):
            value = self._condition(expr)
            code, text, shown = (f"{a} == {b}" for a, b in (
                (f"p{i}", value.code), (source.text, value.text), (source.shown, value.shown)
            ))  # fmt: skip
            yield source, Condition(code, text, shown, {f"p{i}": source, **value.sources}, value.shown), line
        for guard, line in zip(self.env.guards, self.env.lines, strict=True):
            condition = self._condition(guard.expr)
            yield next(iter(condition.sources.values())), condition, line

    def _bounds(self, symbol: sympy.Symbol, source: Source) -> Iterator[Any]:
        """Yields the conditions that are assumed of a symbol from the beginning."""
        if isinstance(source, TensorPropertySource):
            wanted = self._dynamic_dims.get(source, DynamicDim(""))
            yield sympy.Ge(symbol, wanted.low, evaluate=False)
            if wanted.high is not None:
                yield sympy.Le(symbol, wanted.high, evaluate=False)
        elif symbol.is_integer:  # kernels compute with it in 64 bits
            yield sympy.Abs(symbol) <= MAX_SYMBOLIC_INT
        else:  # symbolic arithmetic does not model inf and nan
            yield sympy.Abs(symbol) <= sys.float_info.max

    def with_values(self, text: str) -> str:
        """Returns a text with the numbers of this call in place of the symbols' names."""
        values = {str(symbol): self.env.backed_var_to_val[symbol] for symbol in self.sources}
        return _NAME.sub(lambda found: str(values.get(found[0], found[0])), text)

    def _condition(self, expr: Any) -> Condition:
        symbols = sorted(expr.free_symbols, key=str)
        shown = {symbol: source.shown for symbol, source in self.sources.items()}
        plain = _without_sum(expr)
        condition = Condition(
            python_text(expr), python_text(expr, self._texts), python_text(plain, shown),
            {str(s): self.sources[s] for s in symbols},
        )  # fmt: skip
        numbers = [arg for arg in plain.args if arg.is_number] if len(symbols) == 1 else []
        if isinstance(plain, sympy.Eq) and numbers and symbols[0] in plain.args:
            return replace(condition, expected=python_text(numbers[0]), is_specialised=True)
        if isinstance(plain, sympy.Ge) and expr.args[0] == symbols[0] and numbers:
            return replace(condition, expected=f"at least {python_text(numbers[0])}")
        return condition

    @property
    def _texts(self) -> dict[sympy.Symbol, str]:
        return {symbol: source.text for symbol, source in self.sources.items()}

    # ------------------------------------------------------------ the record

    def check_marked(self) -> None:
        """Raises UsageError if a size that the user marked dynamic has been specialised."""
        for symbol, source in self.sources.items():
            wanted, now = self._dynamic_dims.get(source), self.env.replace(symbol)
            if now.is_number and wanted is not None and wanted.marked:
                guard, _ = self._first_guards().get((symbol, True), (None, None))
                condition = None if guard is None else python_text(guard, self._texts)
                raise UsageError(f"{source.text} was marked dynamic, but is specialised to {now}: {condition}")

    def records(self) -> list[Symbol]:
        """Returns the record of each symbol."""
        guards, texts = self._first_guards(), self._texts
        return [self._record(symbol, source, guards, texts) for symbol, source in self.sources.items()]

    def _record(self, symbol: sympy.Symbol, source: Source, guards: dict[Any, Any], texts: Any) -> Symbol:
        now, span = self.env.replace(symbol), self.env.var_to_range.get(symbol)
        wanted = self._dynamic_dims.get(source)
        if wanted is None:
            wanted = DynamicDim(self._reasons.get(source, "a stride that sizes do not explain"))
        number: type[float] = int if symbol.is_integer else float
        record = Symbol(str(symbol), source.text, number(self.env.backed_var_to_val[symbol]), wanted.why)
        record.line, record.name = self._first_lines[symbol], source.shown
        if now.is_number:
            record.became = python_text(now, texts)
        elif now != symbol:
            record.equals = python_text(now, texts)
        elif span is not None:
            record.low, record.high = (_finite(bound, number) for bound in (span.lower, span.upper))
        guard, record.condition_line = guards.get((symbol, now != symbol), (None, None))
        record.condition = None if guard is None else python_text(guard, texts)
        return record

    def _first_guards(self) -> dict[tuple[Any, bool], tuple[Any, ItemId | None]]:
        """Returns the first guard on each symbol that is an equation, and the first that is not, with their lines.

        The keys are the symbol and whether the guard is an equation.
        """
        found: dict[tuple[Any, bool], tuple[Any, ItemId | None]] = {}
        for guard, line in zip(self.env.guards, self.env.lines, strict=True):
            for symbol in guard.expr.free_symbols:
                found.setdefault((symbol, isinstance(guard.expr, sympy.Eq)), (guard.expr, line))
        return found


def _name_of(function: Any) -> str:
    name = str(function.__name__)
    return f"{function.__module__}.{name}" if function.__module__ == "math" else name


def _finite(bound: Any, number: type[float]) -> float | None:
    return number(bound) if bound.is_finite and abs(bound) < sys.maxsize - 1 else None


def _constraint(wanted: DynamicDim | None) -> StrictMinMaxConstraint | None:
    if wanted is None or (wanted.low, wanted.high) == (2, None):
        return None
    high = int_oo if wanted.high is None else sympy.Integer(wanted.high)
    return StrictMinMaxConstraint(warn_only=False, vr=ValueRanges(sympy.Integer(wanted.low), high))


def _static_context(base: torch.Tensor | None) -> StatelessSymbolicContext[..., Any] | None:
    """Returns the context of a view's base, which has no symbols."""
    return None if base is None else StatelessSymbolicContext(dynamic_sizes=[DimDynamic.STATIC] * base.dim())


_OPERATIONS = {
    operator.add: "({0} + {1})", operator.sub: "({0} - {1})", operator.mul: "({0} * {1})",
    operator.truediv: "({0} / {1})", operator.floordiv: "({0} // {1})", operator.mod: "({0} % {1})",
    operator.pow: "({0} ** {1})", operator.neg: "(-{0})",
}  # fmt: skip
"""How operations on numbers are written."""
_NAME = re.compile(r"\b[a-z]+\d+\b")
# the function that computes each kind of expression in the graph
OPERATIONS: dict[Any, Callable[..., Any]] = {
    sympy.Add: operator.add, sympy.Mul: operator.mul, sympy.Pow: operator.pow, PowByNatural: operator.pow,
    FloorDiv: operator.floordiv, CleanDiv: operator.floordiv, SympyMod: operator.mod, PythonMod: operator.mod,
    sympy.Abs: operator.abs, SympyMax: torch.sym_max, SympyMin: torch.sym_min,
    LShift: operator.lshift, RShift: operator.rshift,
    BitwiseFn_bitwise_and: operator.and_, BitwiseFn_bitwise_or: operator.or_, BitwiseFn_bitwise_xor: operator.xor,
}  # fmt: skip


class _Printer(PythonPrinter):
    """Prints expressions as Python, with the texts of sources in place of symbols."""

    def __init__(self, texts: dict[sympy.Symbol, str]) -> None:
        super().__init__()
        self._texts = texts

    def _print_Float(self, expr: sympy.Float) -> str:
        return repr(float(expr))

    def _print_Symbol(self, expr: sympy.Symbol) -> str:
        return self._texts.get(expr, str(expr))


def _without_sum(expr: Any) -> Any:
    """Returns ``v <= 3`` for ``v - 3 <= 0``, which is how PyTorch writes a comparison."""
    terms = sympy.Add.make_args(expr.lhs) if isinstance(expr, sympy.core.relational.Relational) else ()
    numbers = [each for each in terms if each.is_number]
    others = [each for each in terms if not each.is_number]
    if not numbers or not others or not expr.rhs.is_number:
        return expr
    added = [each for each in others if not each.could_extract_minus_sign()]
    taken = [-each for each in others if each.could_extract_minus_sign()]
    number = expr.rhs - sympy.Add(*numbers)
    if added:
        return type(expr)(sympy.Add(*added), sympy.Add(*taken, number), evaluate=False)
    return type(expr.reversed)(sympy.Add(*taken), -number, evaluate=False)


def python_text(expr: Any, texts: dict[sympy.Symbol, str] | None = None) -> str:
    """Returns an expression as Python source; `texts` replaces symbols."""
    text: str = _Printer(texts or {}).doprint(expr)
    return text


# ---------------------------------------------------------------- which sizes and numbers are symbolic


@dataclass(frozen=True)
class DynamicDim:
    """A symbolic size: the reason, its range, and whether the user marked it, so that it must stay symbolic."""

    why: str
    low: int = 2
    high: int | None = None
    marked: bool = False


@dataclass
class ObservedShape:
    """The sizes and strides that the tensor at one source had; None for one that had several values."""

    sizes: list[int | None]
    strides: list[Any]


class DynamicPolicy:
    """Which sizes and numbers are symbolic in the compiles of one code object, by source.

    If `dynamic` is True, every size and every number among the arguments is symbolic from the first compile on.  If it
    is False, only marked sizes are.  If it is None, a size or number is symbolic from its second value on.
    """

    def __init__(self, dynamic: bool | None) -> None:
        self.dynamic = dynamic
        self._shapes: dict[tuple[str, int], ObservedShape] = {}
        """By source and number of dimensions."""
        self._numbers: dict[str, Any] = {}

    def dynamic_dims(self, real: torch.Tensor, source: Source) -> list[DynamicDim | None]:
        """Returns, for each dimension of the tensor at `source`, why it is symbolic; None if it is not."""
        found = self._unmarked(real, source)
        for dim in getattr(real, "_dynamo_weak_dynamic_indices", ()):
            found[dim] = DynamicDim("it was marked as possibly dynamic")
        whole = getattr(real, "_dynamo_static_input_type", None)
        for dim in range(real.dim()) if whole else getattr(real, "_dynamo_static_indices", ()):
            found[dim] = None
        for dim in getattr(real, "_dynamo_dynamic_indices", ()):
            found[dim] = _marked_dim(real, dim, source)
        return found

    def observe(self, f_locals: Mapping[str, Any]) -> None:
        """Notes the sizes and numbers among the variables of a call that is not compiled."""
        for name, value in f_locals.items():
            if isinstance(value, torch.Tensor):
                self._unmarked(value, LocalSource(name))
            elif type(value) in (int, float):
                self.symbol_reason(value, LocalSource(name))

    def dynamic_strides(self, real: torch.Tensor, source: Source) -> list[bool]:
        """Returns, for each stride, whether it is symbolic: it had several values that sizes do not explain."""
        seen = self._shapes.get((source.text, real.dim()))
        return [] if seen is None else [stride is None for stride in seen.strides]

    def _unmarked(self, real: torch.Tensor, source: Source) -> list[DynamicDim | None]:
        if self.dynamic is False or _belongs_to_module(real, source):
            return [None] * real.dim()
        if self.dynamic:
            return [DynamicDim("dynamic=True")] * real.dim()
        key, new = (source.text, real.dim()), ObservedShape(list(real.shape), _unexplained_strides(real))
        if (seen := self._shapes.get(key)) is not None:
            new = ObservedShape(_merged(seen.sizes, new.sizes), _merged(seen.strides, new.strides))
        self._shapes[key] = new
        return [DynamicDim("it had another value before") if size is None else None for size in new.sizes]

    def symbol_reason(self, value: int | float, source: Source) -> str | None:
        """Returns why the number at `source` is symbolic, or None if it is not.

        A float is never symbolic while it is not finite, or 0, because 0.0 and -0.0 differ.  An int is not if it does
        not fit in 64 bits.
        """
        if self.dynamic is False:
            return None
        known = self._numbers.setdefault(source.text, value)
        if known is not None and known != value:
            self._numbers[source.text] = None
        if is_never_symbolic(value):
            return None
        if self._numbers[source.text] is None:
            return "it had another value before"
        if isinstance(value, float) and any(getattr(each, "name", "") == "param_groups" for each in path(source)):
            return "it is a hyperparameter of an optimizer, which schedules change"
        if isinstance(source, AttrSource) and source.name in _COUNTS:
            return "it is a scheduler's count of steps"
        return "dynamic=True" if self.dynamic and _is_argument(source) else None


_COUNTS = frozenset({"_step_count", "last_epoch", "T_cur"})
"""Attributes of schedulers in `torch.optim.lr_scheduler`, which each step changes."""


def is_never_symbolic(value: int | float) -> bool:
    """Returns whether a number is always a constant of the graph."""
    if isinstance(value, float):
        return value == 0 or not math.isfinite(value)
    return abs(value) > MAX_SYMBOLIC_INT


def _merged(old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    return [a if a == b else None for a, b in zip(old, new, strict=True)]


def _unexplained_strides(real: torch.Tensor) -> list[Any]:
    """Returns the strides; for one that equals size times stride of a dimension, the name of that dimension instead."""
    spans = {size * stride: f"of {i}" for i, (size, stride) in enumerate(zip(real.shape, real.stride(), strict=True))}
    return [stride if stride in (0, 1) else spans.get(stride, stride) for stride in real.stride()]


def _belongs_to_module(real: torch.Tensor, source: Source) -> bool:
    """Whether a tensor is a parameter or buffer, whose sizes do not change."""
    table = source.table if isinstance(source, AttrSource) else None
    return isinstance(real, torch.nn.Parameter) or table in ("_parameters", "_buffers")


def _is_argument(source: Source) -> bool:
    """Whether a value is an argument, an item of one, or a free variable of a function that is one."""
    inside = (GetItemSource, ClosureCellSource, CellContentsSource)
    while isinstance(source, inside) or (isinstance(source, CallSource) and source.function is call_item):
        source = source.base
    return isinstance(source, LocalSource)


def _marked_dim(real: torch.Tensor, dim: int, source: Source) -> DynamicDim | None:
    ranges = {r.dim: r for r in getattr(real, "_dynamo_dynamic_range", ())}
    low, high = (ranges[dim].min, ranges[dim].max) if dim in ranges else (None, None)
    size = real.size(dim)
    if not (low or 0) <= size <= (size if high is None else high):
        raise UsageError(f"{source.text} was marked dynamic, size({dim}) from {low} to {high}, but it is {size}")
    if size in (0, 1):  # they stay numbers
        return None
    return DynamicDim("it was marked dynamic", max(low or 2, 2), high, marked=True)
