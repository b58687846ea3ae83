"""The statements of a loop body: their operations and types, the addresses that they access, their text.

Two helpers are here, too: dead-code elimination and dependencies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Literal as OneOf
from typing import NamedTuple

import torch

from compiler_core.records import ItemId
from compiler_core.support.size_expr import Int, Real, factor_text


class Op(NamedTuple):
    """An operation: its number of arguments and its cost.

    The unit of `cost` is an addition.  It is used only to compare recomputing with storing, and to choose the number
    of threads.
    """

    arity: int
    cost: int = 1


FLOAT_FUNCTIONS = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "erf", "erfc"),
    *("sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)
"""Functions of one float.  ATen, the C library and CUDA's libdevice have each by this name, so lowering and
the printers take them from here."""
OPS: dict[str, Op] = {
    # the result has the type of the arguments; integer overflow wraps around
    **{name: Op(2) for name in ("add", "sub", "mul")},
    "div": Op(2, 4),  # floats only
    # the quotient is rounded down (floordiv) or towards 0 (truncdiv); `mod` has the sign of the divisor, `fmod` that
    # of the dividend.  An integer divisor is a Literal other than 0, since eager raises on 0.
    **{name: Op(2, 6) for name in ("floordiv", "truncdiv", "mod", "fmod")},
    **{name: Op(2, 3) for name in ("minimum", "maximum")},  # NaN if an argument is
    "pow": Op(2, 20),
    "atan2": Op(2, 20),
    "neg": Op(1),
    "abs": Op(1),
    "sign": Op(1),  # sign(NaN) and sign(0) are 0
    **{name: Op(1) for name in ("floor", "ceil", "trunc")},
    "round": Op(1),  # half to even
    "sqrt": Op(1, 4),
    "rsqrt": Op(1, 5),
    **{name: Op(1, 10) for name in FLOAT_FUNCTIONS},
    # bitwise on integers, logical on bool
    **{name: Op(2) for name in ("and", "or", "xor")},
    "not": Op(1),
    **{name: Op(2) for name in ("lshift", "rshift")},
    # the result is bool; comparisons with NaN are False, but `ne` is True
    **{name: Op(2) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "isnan": Op(1),
    "isinf": Op(1),
    "signbit": Op(1),
    "where": Op(3),  # condition is bool, the other two have the result's type
    # a random f32 in (0, 1]; see philox.py.  Arguments: the element's position in memory, then the seed, offset and
    # number of threads that a call drew (all i64), and how many elements a thread of eager's kernel computes (i32)
    "uniform": Op(5, 60),
    "cast": Op(1),  # as Tensor.to: towards 0 to an integer, ``!= 0`` to bool
}
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "signbit"})
REDUCTIONS: dict[str, float | bool] = {
    "sum": 0,
    "prod": 1,
    "max": float("-inf"),  # NaN if any element is; of an integer type, its least value
    "min": float("inf"),
    "any": False,  # of bool
    "all": True,
}
"""Each reduction, with its identity element."""
SCANS = ("sum", "prod")
"""The reductions that a `Scan` may have."""
SHORT = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "bool",
}
"""The types of the loop IR, with their names in its text.  An operator of any other type stays a call of PyTorch."""


@dataclass(frozen=True)
class Address:
    """An affine index expression ``offset + sum(stride * index) + sum(factor * value)``.

    The unit is an element; 0 is the first element of the buffer's tensor.  `strides` has a number for each index of
    the loop nest, `values` the names of `ir.Position` statements with their factors.
    """

    strides: tuple[Int, ...]
    offset: Int = 0
    values: tuple[tuple[str, Int], ...] = ()

    def text(self, names: Sequence[str], spelled: Callable[[str], str] = str) -> str:
        """The expression in a syntax that Python, C++ and Triton share; `spelled` maps the name of a value."""
        factors = [*zip(names, self.strides, strict=True), *((spelled(n), f) for n, f in self.values)]
        terms = [name if s == 1 else f"{factor_text(s)}*{name}" for name, s in factors if s]
        if self.offset or not terms:
            terms.append(str(self.offset))
        return " + ".join(terms).replace("+ -", "- ")

    def __add__(self, other: Address) -> Address:
        strides = tuple(a + b for a, b in zip(self.strides, other.strides, strict=True))
        values = dict(self.values)
        for name, factor in other.values:
            values[name] = values.get(name, 0) + factor
        return Address(strides, self.offset + other.offset, tuple((n, f) for n, f in values.items() if f))

    def __mul__(self, factor: Int) -> Address:
        values = tuple((n, f * factor) for n, f in self.values) if factor else ()
        return Address(tuple(s * factor for s in self.strides), self.offset * factor, values)

    def renamed(self, new: Callable[[str], str]) -> Address:
        """Returns the address with the name of each value replaced by `new` of it."""
        return replace(self, values=tuple((new(n), f) for n, f in self.values)) if self.values else self


class Range(NamedTuple):
    """The condition ``0 <= address < size``."""

    address: Address
    size: Int

    def text(self, names: Sequence[str]) -> str:
        return f"0 <= {self.address.text(names)} < {self.size}"


@dataclass(frozen=True)
class Literal:
    """A constant as an argument.  Literals are equal if their texts are: 0.0 and -0.0 differ, NaN equals NaN."""

    value: int | float | bool = field(compare=False)
    dtype: torch.dtype
    _text: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_text", repr(self.value))

    def __str__(self) -> str:
        return self._text


Argument = str | Literal


@dataclass(frozen=True)
class Load:
    """Reads one element of `buffer`; undefined where a range of `within` does not hold.

    `given` is empty, or the buffer of a bool: where that is False, `buffer` is not read, and the element is 0.
    """

    name: str
    dtype: torch.dtype
    buffer: str
    address: Address
    origin: tuple[ItemId, ...] = field(default=(), compare=False)
    within: tuple[Range, ...] = ()
    given: str = ""

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return _positions(self.address, self.within)


@dataclass(frozen=True)
class Index:
    """The value of an index expression, as a number."""

    name: str
    dtype: torch.dtype
    address: Address
    origin: tuple[ItemId, ...] = field(default=(), compare=False)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return _positions(self.address)


@dataclass(frozen=True)
class Position:
    """An index that is read from a tensor: `value`, which must be in ``0 .. size - 1`` where all of `within` hold."""

    name: str
    value: Argument
    size: Int
    origin: tuple[ItemId, ...] = field(default=(), compare=False)
    within: tuple[Range, ...] = ()

    dtype: torch.dtype = field(default=torch.int64, init=False, repr=False)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return (self.value, *_positions(None, self.within))


@dataclass(frozen=True)
class Scalar:
    """A number that is an argument of the kernel."""

    name: str
    number: Real
    origin: tuple[ItemId, ...] = field(default=(), compare=False)

    dtype: torch.dtype = torch.float64
    arguments: tuple[Argument, ...] = field(default=(), init=False, repr=False)


@dataclass(frozen=True)
class Compute:
    """An operation of `OPS` on elements."""

    name: str
    dtype: torch.dtype
    op: str
    arguments: tuple[Argument, ...]
    origin: tuple[ItemId, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class _InnerReduction:
    """An operation over the values of the inner indices."""

    name: str
    dtype: torch.dtype
    op: str
    value: Argument
    origin: tuple[ItemId, ...] = field(default=(), compare=False)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return (self.value,)


class Reduce(_InnerReduction):
    """The reduction over all inner indices: one value for each outer index."""


class Scan(_InnerReduction):
    """The running reduction: for each inner index, the reduction of the values up to it."""


@dataclass(frozen=True)
class Store:
    """Writes one element of `buffer`, in one of the modes of the package's grammar."""

    buffer: str
    address: Address
    value: Argument
    origin: tuple[ItemId, ...] = field(default=(), compare=False)
    mode: OneOf["=", "put", "+="] = "="
    reduction: str = ""
    """The reduction over the last outer index, if the store is one; otherwise empty."""

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return (self.value, *_positions(self.address))


ValueStatement = Load | Index | Position | Scalar | Compute | Reduce | Scan
"""The statements that define a value."""
Statement = ValueStatement | Store


def _positions(address: Address | None, within: Sequence[Range] = ()) -> tuple[str, ...]:
    """Returns the names of the positions in an address and in ranges."""
    all_addresses = [r.address for r in within]
    if address is not None:
        all_addresses.insert(0, address)
    return tuple(dict.fromkeys(name for each in all_addresses for name, _ in each.values))


def addresses(statement: Statement) -> tuple[Address, ...]:
    """Returns all addresses in a statement, including those of its ranges."""
    own = (statement.address,) if isinstance(statement, (Load, Index, Store)) else ()
    ranges = statement.within if isinstance(statement, (Load, Position)) else ()
    return (*own, *(r.address for r in ranges))


def map_addresses(statement: Statement, change: Callable[[Address], Address]) -> Statement:
    """Returns `statement` with `change` applied to every address, including those of its ranges."""
    if isinstance(statement, (Load, Position)) and statement.within:
        within = tuple(Range(change(r.address), r.size) for r in statement.within)
        statement = replace(statement, within=within)
    if isinstance(statement, (Load, Index, Store)):
        statement = replace(statement, address=change(statement.address))
    return statement


def rename_arguments(statement: Statement, renamed: Mapping[str, Argument]) -> Statement:
    """Returns `statement` with its arguments replaced as `renamed` says, including positions in addresses."""
    if not any(argument in renamed for argument in statement.arguments):
        return statement

    def new(argument: Argument) -> Argument:
        return renamed.get(argument, argument) if isinstance(argument, str) else argument

    def position(name: str) -> str:
        found = renamed.get(name, name)
        assert isinstance(found, str)  # a position is never replaced by a literal
        return found

    statement = map_addresses(statement, lambda address: address.renamed(position))
    if isinstance(statement, Compute):
        return replace(statement, arguments=tuple(map(new, statement.arguments)))
    if isinstance(statement, (Reduce, Scan, Store, Position)):
        return replace(statement, value=new(statement.value))
    return statement


def statement_text(statement: Statement, index_names: Sequence[str]) -> str:
    """Returns the statement as a line of `Loops.text`."""
    if isinstance(statement, Store):
        over = f"{statement.reduction} over i of " if statement.reduction else ""
        place = f"{statement.buffer}[{statement.address.text(index_names)}]"
        return f"store {place} {statement.mode} {over}{statement.value}"
    left = f"{statement.name}: {SHORT[statement.dtype]}"
    within = statement.within if isinstance(statement, (Load, Position)) else ()
    where = f" where {' and '.join(r.text(index_names) for r in within)}" if within else ""
    if isinstance(statement, Load):
        given = f" if {statement.given}" if statement.given else ""
        return f"{left} = load {statement.buffer}[{statement.address.text(index_names)}]{where}{given}"
    if isinstance(statement, Position):
        return f"{left} = {statement.value} below {statement.size}{where}"
    if isinstance(statement, Index):
        return f"{left} = {statement.address.text(index_names)}"
    if isinstance(statement, Scalar):
        return f"{left} = {statement.number}"
    if isinstance(statement, Reduce):
        return f"{left} = {statement.op} over j of {statement.value}"
    if isinstance(statement, Scan):
        return f"{left} = {statement.op} up to j of {statement.value}"
    return f"{left} = {statement.op}({', '.join(_argument_texts(statement))})"


def _argument_texts(statement: Compute) -> list[str]:
    """Returns the arguments; literals whose type does not follow from the others have it: ``bf16(0.0)``."""
    literals = [each for each in statement.arguments if isinstance(each, Literal)]
    if len(literals) == len(statement.arguments) and (statement.op == "cast" or statement.op in COMPARISONS):
        return [f"{SHORT[each.dtype]}({each})" for each in literals]
    return list(map(str, statement.arguments))


def eliminate_dead_code(
    body: Iterable[Statement], also: tuple[type[Statement], ...] = (Position,)
) -> tuple[Statement, ...]:
    """Dead-code elimination: returns the statements that a store, or a statement of the types `also`, depends on.

    By default positions are kept, because the check that they are in range is an effect.
    """
    used: set[Argument] = set()
    live: list[Statement] = []
    for statement in reversed(list(body)):
        is_root = isinstance(statement, also)
        if is_root or isinstance(statement, Store) or statement.name in used:
            used.update(statement.arguments)
            live.append(statement)
    return tuple(reversed(live))


def dependencies(
    body: Sequence[Statement], values: Iterable[Argument], stop: Set[str] = frozenset()
) -> tuple[Statement, ...]:
    """Returns the statements of `body` that `values` depend on, directly or not, in order.

    Dependencies of the values in `stop` are not followed.
    """
    used = set(values)
    found: list[Statement] = []
    for statement in reversed(body):
        if not isinstance(statement, Store) and statement.name in used:
            if statement.name not in stop:
                used.update(statement.arguments)
            found.append(statement)
    return tuple(reversed(found))
