"""Integers that may depend on symbols: sizes of loops, strides and offsets in memory.

An `Int` is an ``int`` or a `Size`: a polynomial over symbols with integer coefficients, in a normal form, so that equal
polynomials compare equal however they were computed.  Comparisons use only the lower bound of each symbol
(`Symbol.least`), never its current value.  If that does not decide a comparison, it raises `Undecided`, and the caller
does without the optimisation that asked.

    n, m = symbol("n", least=2, hint=8), symbol("m", least=2, hint=5)
    (n + 1) * m - m == n * m        True
    n * m > m                       True
    n > m                           Undecided
    divmod(4 * n * m, m)            (4*n, 0)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class Undecided(Exception):
    """The lower bounds of the symbols do not decide a comparison."""


@dataclass(frozen=True, order=True)
class Symbol:
    """A number that is known when the graph is called.  Symbols of the same name are equal."""

    name: str
    least: int = field(compare=False)
    hint: int = field(compare=False)
    """A value that it had at capture, for performance heuristics."""


Monomial = tuple[Symbol, ...]
"""A product of symbols, ordered by name."""


class Size:
    """A polynomial that is not constant; made by arithmetic on `symbol`."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms = terms
        self._hash = hash(frozenset(terms.items()))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __repr__(self) -> str:
        """Returns the polynomial as source that is valid in Python, C++ and Triton."""
        text = ""
        for monomial, factor in _ordered(self.terms):
            factors = [s.name for s in monomial]
            if abs(factor) != 1 or not monomial:
                factors.insert(0, str(abs(factor)))
            text += _sign(factor, is_first=not text) + "*".join(factors)
        return text

    def __add__(self, other: Int) -> Int:
        return _sum(_terms(self), _terms(other))

    def __sub__(self, other: Int) -> Int:
        return self + -1 * other

    def __rsub__(self, other: int) -> Int:
        return -1 * self + other

    def __mul__(self, other: Int) -> Int:
        products = ({tuple(sorted(m + k)): a * b} for m, a in self.terms.items() for k, b in _terms(other).items())
        return _sum(*products)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Int:
        return -1 * self

    def __divmod__(self, other: Int) -> tuple[Int, Int]:
        return _divide(self, other)

    def __rdivmod__(self, other: int) -> tuple[Int, Int]:
        return _divide(other, self)

    def __floordiv__(self, other: Int) -> Int:
        return _divide(self, other)[0]

    def __rfloordiv__(self, other: int) -> Int:
        return _divide(other, self)[0]

    def __mod__(self, other: Int) -> Int:
        return _divide(self, other)[1]

    def __rmod__(self, other: int) -> Int:
        return _divide(other, self)[1]

    def __lt__(self, other: Int) -> bool:
        return _is_positive(other - self)

    def __gt__(self, other: Int) -> bool:
        return _is_positive(self - other)

    def __le__(self, other: Int) -> bool:
        return not _is_positive(self - other)

    def __ge__(self, other: Int) -> bool:
        return not _is_positive(other - self)


def _sign(factor: int, is_first: bool) -> str:
    if is_first:
        return "-" if factor < 0 else ""
    return " - " if factor < 0 else " + "


Int = int | Size


@dataclass(frozen=True)
class Real:
    """A float that depends on symbols.  Python code computes it; only its name is known here."""

    name: str

    def __repr__(self) -> str:
        return self.name


def symbol(name: str, least: int, hint: int) -> Size:
    """Returns a new symbol as a polynomial.  `least` is its lower bound, `hint` its value at capture."""
    return Size({(Symbol(name, least, hint),): 1})


def prod(numbers: Iterable[Int]) -> Int:
    """Returns the product of `numbers`."""
    result: Int = 1
    for number in numbers:
        result = result * number
    return result


def are_contiguous(size: Sequence[Any], stride: Sequence[Any]) -> bool:
    """Returns whether a tensor of this size and stride is contiguous; False if a number is symbolic."""
    numbers = [*size, *stride]
    return all(type(n) is int for n in numbers) and all(
        at == prod(size[k + 1 :]) for k, (n, at) in enumerate(zip(size, stride, strict=True)) if n != 1
    )


def hint(number: Int) -> int:
    """Returns the value of `number` at capture, for performance heuristics; correctness must not depend on it."""
    return number if isinstance(number, int) else evaluate(number, lambda s: s.hint)


def span(size: Sequence[Any], stride: Sequence[Any]) -> Any:
    """Returns how many elements of memory a tensor spans, from its first element to its last one; it is not empty."""
    return sum(((length - 1) * step for length, step in zip(size, stride, strict=True)), start=1)


def are_dense(size: Sequence[Any], stride: Sequence[Any], value: Callable[[Any], int] = hint) -> bool:
    """Returns whether a tensor of this size and stride has neither gaps nor elements that share memory.

    This is PyTorch's "non-overlapping and dense".  `value` gives the number to sort a size or stride by: its hint.
    """
    numel = 1
    dims = [(step, length) for step, length in zip(stride, size, strict=True) if length != 1]
    for step, length in sorted(dims, key=lambda dim: (value(dim[0]), value(dim[1]))):
        if step != numel:
            return False
        numel *= length
    return True


def total(numbers: Iterable[Int]) -> Int:
    """Returns the sum of `numbers`."""
    result: Int = 0
    for number in numbers:
        result = result + number
    return result


def evaluate(number: Int, value: Callable[[Symbol], Any]) -> Any:
    """Returns `number` with each symbol replaced by ``value(symbol)``."""
    if isinstance(number, int):
        return number
    return sum(factor * functools.reduce(lambda a, s: a * value(s), m, 1) for m, factor in number.terms.items())


def symbols_in(value: Any) -> Iterator[str]:
    """Yields the names of the symbols in a number, or in nested sequences of numbers."""
    if isinstance(value, Real):
        yield value.name
    elif isinstance(value, Size):
        yield from (s.name for monomial in value.terms for s in monomial)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from symbols_in(inner)


def factor_text(number: Int) -> str:
    """Returns `number` as source, in parentheses if it could not stand as a factor or divisor otherwise."""
    text = str(number)
    return text if isinstance(number, int) or text.isidentifier() else f"({text})"


def _terms(number: Int) -> Mapping[Monomial, int]:
    return number.terms if isinstance(number, Size) else {(): number}


def _sum(*parts: Mapping[Monomial, int]) -> Int:
    total: dict[Monomial, int] = {}
    for part in parts:
        for monomial, factor in part.items():
            total[monomial] = total.get(monomial, 0) + factor
    kept = {m: f for m, f in total.items() if f}
    return Size(kept) if kept.keys() - {()} else kept.get((), 0)


def _ordered(terms: Mapping[Monomial, int]) -> list[tuple[Monomial, int]]:
    """Returns the terms by decreasing degree, then by name: an order that multiplication preserves."""
    return sorted(terms.items(), key=lambda term: (-len(term[0]), term[0]))


def _divide(number: Int, divisor: Int) -> tuple[Int, Int]:
    """Returns quotient and remainder by polynomial long division; the remainder is 0 exactly if `divisor` divides
    `number`."""
    quotient: Int = 0
    rest: Int = 0
    monomial, factor = _ordered(_terms(divisor))[0]
    while number != 0:
        lead, count = _ordered(_terms(number))[0]
        other = _without(lead, monomial)
        times = count // factor if other is not None else 0
        part = _sum({other or (): times}) if times else _sum({lead: count})
        if times:
            quotient, number = quotient + part, number - part * divisor
        else:
            rest, number = rest + part, number - part
    return quotient, rest


def _without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """Returns `monomial` divided by `divisor` if the result is a monomial, else None."""
    left = list(monomial)
    for symbol in divisor:
        if symbol not in left:
            return None
        left.remove(symbol)
    return tuple(left)


def _is_positive(difference: Int) -> bool:
    """Returns whether `difference` is greater than 0; raises `Undecided` if the lower bounds do not decide it."""
    if isinstance(difference, int):
        return difference > 0
    if (least := _least(difference)) is not None and least > 0:
        return True
    if (most := _least(-difference)) is not None and most >= 0:
        return False
    raise Undecided(f"whether {difference} is greater than 0")


def _least(number: Int) -> int | None:
    """Returns the lower bound of `number` if each of its terms grows with the symbols, else None."""
    beyond = evaluate(number, lambda s: symbol(s.name, 0, 0) + s.least)
    terms = _terms(beyond)
    return terms.get((), 0) if all(factor >= 0 for m, factor in terms.items() if m) else None
