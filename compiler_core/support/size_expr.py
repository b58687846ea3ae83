"""Whole numbers that may depend on symbols: sizes of loops, strides and offsets in memory.

An `Int` is an ``int``, or a `Size`: a polynomial over symbols with whole coefficients, in normal
form, so that equal ones are the same however they were computed.  A comparison is answered from
what is known of each symbol (it is at least `Symbol.least`), never from the sizes of the moment;
where that does not decide it, `Undecided` is raised, and what asked is not done.

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
    """A comparison whose outcome the symbols' ranges leave open."""


@dataclass(frozen=True, order=True)
class Symbol:
    """A number that is known when the graph is called; it equals others of its name."""

    name: str
    least: int = field(compare=False)
    hint: int = field(compare=False)
    """A value it had, for guesses at what is fast."""


Monomial = tuple[Symbol, ...]
"""A product of symbols, in order of their names."""


class Size:
    """A polynomial that is no constant; made by arithmetic on `symbol`."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms = terms
        self._hash = hash(frozenset(terms.items()))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __repr__(self) -> str:
        """The polynomial as Python, C++ and Triton have it."""
        text = ""
        for monomial, factor in _ordered(self.terms):
            factors = [str(abs(factor))] * (abs(factor) != 1 or not monomial) + [s.name for s in monomial]
            sign = (" - " if factor < 0 else " + ") if text else "-" if factor < 0 else ""
            text += sign + "*".join(factors)
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


Int = int | Size


@dataclass(frozen=True)
class Real:
    """A float that depends on symbols: Python computes it, and only its name is known."""

    name: str

    def __repr__(self) -> str:
        return self.name


def symbol(name: str, least: int, hint: int) -> Size:
    return Size({(Symbol(name, least, hint),): 1})


def prod(numbers: Iterable[Int]) -> Int:
    made: Int = 1
    for number in numbers:
        made = made * number
    return made


def are_contiguous(size: Sequence[Any], stride: Sequence[Any]) -> bool:
    """Whether a tensor of these numbers has its elements one after the other, as far as none is symbolic."""
    numbers = [*size, *stride]
    return all(type(n) is int for n in numbers) and all(
        at == prod(size[k + 1 :]) for k, (n, at) in enumerate(zip(size, stride, strict=True)) if n != 1
    )


def total(numbers: Iterable[Int]) -> Int:
    made: Int = 0
    for number in numbers:
        made = made + number
    return made


def hint(number: Int) -> int:
    """What `number` was when the graph was captured: for guesses at what is fast, never for what is right."""
    return number if isinstance(number, int) else evaluate(number, lambda s: s.hint)


def evaluate(number: Int, value: Callable[[Symbol], Any]) -> Any:
    """`number` for values of its symbols."""
    if isinstance(number, int):
        return number
    return sum(factor * functools.reduce(lambda a, s: a * value(s), m, 1) for m, factor in number.terms.items())


def symbols_in(value: Any) -> Iterator[str]:
    """The names of the symbols in a number, or in nested sequences of numbers."""
    if isinstance(value, Real):
        yield value.name
    elif isinstance(value, Size):
        yield from (s.name for monomial in value.terms for s in monomial)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from symbols_in(inner)


def factor_text(number: Int) -> str:
    """`number` as a factor or a divisor."""
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
    """Terms by degree, then by name: an order that multiplication keeps."""
    return sorted(terms.items(), key=lambda term: (-len(term[0]), term[0]))


def _divide(number: Int, divisor: Int) -> tuple[Int, Int]:
    """Quotient and rest by long division; the rest is 0 exactly where `divisor` divides `number` as a polynomial."""
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
    """`monomial` over `divisor`, where that is one."""
    left = list(monomial)
    for symbol in divisor:
        if symbol not in left:
            return None
        left.remove(symbol)
    return tuple(left)


def _is_positive(difference: Int) -> bool:
    if isinstance(difference, int):
        return difference > 0
    if (least := _least(difference)) is not None and least > 0:
        return True
    if (most := _least(-difference)) is not None and most >= 0:
        return False
    raise Undecided(f"whether {difference} is greater than 0")


def _least(number: Int) -> int | None:
    """The least value of `number`, where each of its terms grows with the symbols."""
    beyond = evaluate(number, lambda s: symbol(s.name, 0, 0) + s.least)
    terms = _terms(beyond)
    return terms.get((), 0) if all(factor >= 0 for m, factor in terms.items() if m) else None
