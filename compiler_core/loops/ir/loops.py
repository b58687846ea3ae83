"""One kernel: its body for every index of its space."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from compiler_core.loops.ir.ops import OPS
from compiler_core.loops.ir.statements import (
    Compute,
    Load,
    Position,
    Reduce,
    Scalar,
    Scan,
    Statement,
    Store,
    addresses,
    statement_text,
)
from compiler_core.records import ItemId
from compiler_core.support.size_expr import Int, hint, prod, symbols_in


@dataclass(frozen=True)
class Loops:
    """One kernel: `body` for every index of ``outer + inner``.  See the package's docstring."""

    name: str
    outer: tuple[Int, ...]
    inner: tuple[Int, ...]
    body: tuple[Statement, ...]

    @property
    def space(self) -> tuple[Int, ...]:
        return self.outer + self.inner

    @property
    def index_names(self) -> tuple[str, ...]:
        """``i0 i1 ...`` for the outer indices, ``j0 j1 ...`` for the inner ones."""
        outer, inner = (f"i{k}" for k in range(len(self.outer))), (f"j{k}" for k in range(len(self.inner)))
        return (*outer, *inner)

    @property
    def outer_numel(self) -> Int:
        return prod(self.outer)

    @property
    def inner_numel(self) -> Int:
        return prod(self.inner)

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Buffers that are loaded from, in order of first use."""
        return tuple(dict.fromkeys(s.buffer for s in self.body if isinstance(s, Load)))

    @cached_property
    def writes(self) -> tuple[str, ...]:
        """Buffers that are stored to, in order of first use."""
        return tuple(dict.fromkeys(s.buffer for s in self.body if isinstance(s, Store)))

    @cached_property
    def makes(self) -> tuple[str, ...]:
        """Those of `writes` that no earlier step made."""
        return tuple(dict.fromkeys(s.buffer for s in self.body if isinstance(s, Store) and s.how == "="))

    @property
    def needs(self) -> tuple[str, ...]:
        """What earlier steps must have made: the buffers that it reads or writes into, and numbers that were drawn."""
        return (*self.reads, *(b for b in self.writes if b not in self.makes), *self.scalars)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The buffers that the kernel takes, in this order."""
        return self.reads + self.writes

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """The symbols that sizes and addresses depend on; the kernel takes them as int64 after its buffers."""
        numbers: list[Any] = [self.space]
        for s in self.body:
            numbers += [(a.strides, a.offset, [f for _, f in a.values]) for a in addresses(s)]
            numbers += [s.size] if isinstance(s, Position) else []
            numbers += [r.size for r in s.within] if isinstance(s, (Load, Position)) else []
        return tuple(sorted(set(symbols_in(numbers))))

    @cached_property
    def scatters(self) -> bool:
        """Whether it writes into what an earlier step made."""
        return any(isinstance(s, Store) and s.how != "=" for s in self.body)

    @cached_property
    def may_fail(self) -> bool:
        """Whether the kernel can meet an index that is out of range."""
        return any(isinstance(s, Position) for s in self.body)

    @cached_property
    def scalars(self) -> tuple[str, ...]:
        """The numbers that the kernel takes after its symbols, each of its statement's type."""
        return tuple(dict.fromkeys(s.number.name for s in self.body if isinstance(s, Scalar)))

    @cached_property
    def scans(self) -> tuple[Scan, ...]:
        return tuple(s for s in self.body if isinstance(s, Scan))

    @cached_property
    def columns(self) -> tuple[Store, ...]:
        """The stores over the last outer index."""
        return tuple(s for s in self.body if isinstance(s, Store) and s.over)

    @property
    def operations(self) -> int:
        """Additions and what costs like them, for the sizes with which the graph was captured."""
        once, each = hint(self.outer_numel), hint(self.outer_numel) * hint(self.inner_numel)
        prices = (
            (s, OPS[s.op].cost if isinstance(s, Compute) else 1)
            for s in self.body
            if isinstance(s, (Compute, Reduce)) or s in self.columns
        )
        # what a reduction takes in is at the inner level
        return sum(price * (each if isinstance(s, Reduce) or self.is_inner(s) else once) for s, price in prices)

    @cached_property
    def origin(self) -> tuple[ItemId, ...]:
        return tuple(dict.fromkeys(item for s in self.body for item in s.origin))

    @cached_property
    def inner_names(self) -> frozenset[str]:
        """Names of the values that are at the inner level."""
        names: set[str] = set()
        for statement in self.body:
            if not isinstance(statement, Store) and self.is_inner(statement, names):
                names.add(statement.name)
        return frozenset(names)

    def is_inner(self, statement: Statement, inner_names: set[str] | frozenset[str] | None = None) -> bool:
        """Whether `statement` is at the inner level."""
        if isinstance(statement, (Reduce, Scalar, Scan)):
            return isinstance(statement, Scan)
        names = self.inner_names if inner_names is None else inner_names
        used = statement.arguments[1:] if isinstance(statement, Store) else statement.arguments
        return any(a in names for a in used) or any(any(a.strides[len(self.outer) :]) for a in addresses(statement))

    def lines(self) -> Iterator[tuple[str, Statement | None]]:
        """The text line by line; the heading comes with None."""
        names = self.index_names
        outer = ", ".join(f"{n} < {s}" for n, s in zip(names, self.outer, strict=False))
        inner = ", ".join(f"{n} < {s}" for n, s in zip(names[len(self.outer) :], self.inner, strict=True))
        heading = f"{self.name}: for {outer or '()'}:"
        yield f"{heading} over {inner}:" if inner else heading, None
        for statement in self.body:
            yield f"    {statement_text(statement, names)}", statement

    def text(self) -> str:
        return "\n".join(line for line, _ in self.lines()) + "\n"


def in_lanes(loops: Loops) -> bool:
    """Whether neighbours in memory differ by the last outer index rather than an inner one.

    What all neighbours share, a mask of rows say, is near for either.
    """
    if not loops.outer or loops.columns or hint(loops.outer[-1]) < 8:
        return False
    at = len(loops.outer) - 1
    inner = [s.address.strides for s in loops.body if isinstance(s, (Load, Store)) and loops.is_inner(s)]
    far = sum(s[at] not in (0, 1) for s in inner)
    return far < sum(1 not in s[at + 1 :] and any(s[at + 1 :]) for s in inner)
