"""Tests of sizes as polynomials: the laws of arithmetic, checked against numbers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compiler_core.support.size_expr import Int, Undecided, are_dense, evaluate, hint, prod, symbol, symbols_in, total
from compiler_core.support.tensors import is_dense

# no test depends on how busy the machine is
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

N, M = symbol("n", 2, 8), symbol("m", 0, 5)


def polynomials() -> st.SearchStrategy[Int]:
    leaves = st.one_of(st.integers(-5, 5), st.sampled_from([N, M]))
    return st.recursive(
        leaves, lambda inner: st.tuples(inner, inner, st.sampled_from("+-*")).map(_combined), max_leaves=6
    )


def _combined(parts: tuple[Int, Int, str]) -> Int:
    a, b, sign = parts
    return a + b if sign == "+" else a - b if sign == "-" else a * b


def at(number: Int, n: int, m: int) -> int:
    return int(evaluate(number, lambda s: {"n": n, "m": m}[s.name]))


values = st.tuples(st.integers(2, 9), st.integers(0, 9))


@given(polynomials(), polynomials(), values)
def test_arithmetic_is_that_of_numbers(a: Int, b: Int, v: tuple[int, int]) -> None:
    assert at(a + b, *v) == at(a, *v) + at(b, *v)
    assert at(a - b, *v) == at(a, *v) - at(b, *v)
    assert at(a * b, *v) == at(a, *v) * at(b, *v)
    assert at(-a, *v) == -at(a, *v)


@given(polynomials(), polynomials())
def test_equal_polynomials_are_the_same(a: Int, b: Int) -> None:
    assert (a + b) * (a - b) == a * a - b * b
    assert hash(a * b + a) == hash(a * (b + 1))
    assert (a - b == 0) == (a == b)


@given(polynomials(), polynomials())
def test_division(a: Int, b: Int) -> None:
    if b != 0:
        quotient, rest = divmod(a, b)
        assert quotient * b + rest == a
        assert divmod(a * b, b) == (a, 0)


@given(polynomials(), polynomials(), values)
def test_comparisons_hold_for_every_value_or_are_left_open(a: Int, b: Int, v: tuple[int, int]) -> None:
    try:
        less, at_most = a < b, a <= b
    except Undecided:
        return
    assert less == (at(a, *v) < at(b, *v))
    assert at_most == (at(a, *v) <= at(b, *v))


@given(polynomials(), values)
def test_text_is_python(a: Int, v: tuple[int, int]) -> None:
    assert eval(repr(a), {"n": v[0], "m": v[1]}) == at(a, *v)


def test_what_is_known() -> None:
    assert N * M + N > M
    assert N >= 2
    with pytest.raises(Undecided):
        N > M  # noqa: B015
    assert prod([N, 3, M]) == 3 * N * M
    assert total([N, 1, -1 * N]) == 1
    assert hint(N * M + 1) == 41
    assert set(symbols_in([(N, 4), M * N])) == {"n", "m"}


@pytest.mark.parametrize(
    ("size", "stride"),
    [
        ((2, 3), (3, 1)),
        ((2, 3), (1, 2)),
        ((2, 3), (3, 0)),
        ((2, 3), (4, 1)),
        ((2, 2), (3, 0)),
        ((2, 1), (1, 7)),
        ((), ()),
    ],
)
def test_density_is_pytorchs(size: tuple[int, ...], stride: tuple[int, ...]) -> None:
    tensor = torch.empty_strided(size, stride)
    dense = torch.ops.aten.is_non_overlapping_and_dense(tensor)
    assert are_dense(size, stride) == is_dense(tensor) == dense
