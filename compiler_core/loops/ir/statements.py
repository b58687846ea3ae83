"""The statements of a loop body, their text, and helpers on them (dead-code elimination, dependencies)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Literal as OneOf

import torch

from compiler_core.loops.ir.address import Address, Range
from compiler_core.loops.ir.ops import COMPARISONS, SHORT
from compiler_core.records import ItemId
from compiler_core.support.size_expr import Int, Real


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
    """Reads one element of `buffer`; undefined where a range of `within` does not hold."""

    name: str
    dtype: torch.dtype
    buffer: str
    address: Address
    origin: tuple[ItemId, ...] = field(default=(), compare=False)
    within: tuple[Range, ...] = ()

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
        return f"{left} = load {statement.buffer}[{statement.address.text(index_names)}]{where}"
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
