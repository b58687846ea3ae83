"""Affine index expressions: the position of an element in memory, as a function of the indices of a loop nest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from compiler_core.support.size_expr import Int, factor_text


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
