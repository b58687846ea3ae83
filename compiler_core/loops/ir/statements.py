"""The statements of a body, and each as a line of text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal as OneOf

import torch

from compiler_core.loops.ir.address import Address, Range
from compiler_core.loops.ir.ops import SHORT
from compiler_core.records import ItemId
from compiler_core.support.size_expr import Int, Real


@dataclass(frozen=True)
class Literal:
    """A number in the place of an argument; 0.0 and -0.0 are two, and NaN is one."""

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
    name: str
    dtype: torch.dtype
    address: Address
    origin: tuple[ItemId, ...] = field(default=(), compare=False)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return _positions(self.address)


@dataclass(frozen=True)
class Position:
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
    name: str
    number: Real
    origin: tuple[ItemId, ...] = field(default=(), compare=False)

    dtype: torch.dtype = torch.float64
    arguments: tuple[Argument, ...] = field(default=(), init=False, repr=False)


@dataclass(frozen=True)
class Compute:
    name: str
    dtype: torch.dtype
    op: str
    arguments: tuple[Argument, ...]
    origin: tuple[ItemId, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class _OverInner:
    """What goes through the values of the inner indices."""

    name: str
    dtype: torch.dtype
    op: str
    value: Argument
    origin: tuple[ItemId, ...] = field(default=(), compare=False)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return (self.value,)


class Reduce(_OverInner):
    """One value for all of them."""


class Scan(_OverInner):
    """A value for each: that of those up to it."""


@dataclass(frozen=True)
class Store:
    buffer: str
    address: Address
    value: Argument
    origin: tuple[ItemId, ...] = field(default=(), compare=False)
    how: OneOf["=", "put", "+="] = "="
    over: str = ""
    """The reduction over the last outer index, where it is one."""

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return (self.value, *_positions(self.address))


Made = Load | Index | Position | Scalar | Compute | Reduce | Scan
Statement = Made | Store


def _positions(address: Address | None, within: Sequence[Range] = ()) -> tuple[str, ...]:
    """The positions in an address and in ranges."""
    parts = [*([address] if address is not None else []), *(r.address for r in within)]
    return tuple(dict.fromkeys(name for part in parts for name, _ in part.values))


def addresses(statement: Statement) -> tuple[Address, ...]:
    """All addresses in a statement, those of its ranges too."""
    own = (statement.address,) if isinstance(statement, (Load, Index, Store)) else ()
    ranges = statement.within if isinstance(statement, (Load, Position)) else ()
    return (*own, *(r.address for r in ranges))


def readdressed(statement: Statement, change: Callable[[Address], Address]) -> Statement:
    """`statement` with every address changed."""
    if isinstance(statement, (Load, Position)) and statement.within:
        within = tuple(Range(change(r.address), r.size) for r in statement.within)
        statement = replace(statement, within=within)
    if isinstance(statement, (Load, Index, Store)):
        statement = replace(statement, address=change(statement.address))
    return statement


def statement_text(statement: Statement, index_names: Sequence[str]) -> str:
    """One line of `Loops.text`."""
    if isinstance(statement, Store):
        over = f"{statement.over} over i of " if statement.over else ""
        place = f"{statement.buffer}[{statement.address.text(index_names)}]"
        return f"store {place} {statement.how} {over}{statement.value}"
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
    if isinstance(statement, (Reduce, Scan)):
        return f"{left} = {statement.op} {'over' if isinstance(statement, Reduce) else 'up to'} j of {statement.value}"
    return f"{left} = {statement.op}({', '.join(map(str, statement.arguments))})"


def alive(body: Iterable[Statement], also: tuple[type[Statement], ...] = (Position,)) -> tuple[Statement, ...]:
    """The statements that a store needs, and those of kind `also`: positions may be out of range."""
    wanted: set[Argument] = set()
    kept: list[Statement] = []
    for statement in reversed(list(body)):
        asked = isinstance(statement, also)
        if asked or isinstance(statement, Store) or statement.name in wanted:
            wanted.update(statement.arguments)
            kept.append(statement)
    return tuple(reversed(kept))
