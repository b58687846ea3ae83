# mypy: ignore-errors
# ruff: noqa: UP031, UP032
"""Sizes and numbers that change from call to call: what differs on the second compile is symbolic from then on."""

from __future__ import annotations

import bisect
import copy
import fractions
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from compiler_core.api.compile import compile, record_of
from compiler_core.tools.testing import Expected, check
from tests.cases.torch_version import SINCE_2_13

BACKENDS = [pytest.param("eager", marks=pytest.mark.sweep), "aot_eager"]
"""Before, PyTorch's decompositions make more sizes static."""
Inputs = Callable[[], Sequence[Any]]


def rows(*sizes: int) -> list[Inputs]:
    """Calls with matrices of so many rows."""
    return [lambda n=n: [torch.randn(n, 4)] for n in sizes]


def over(inputs: list[Inputs], compiles: int, **options: Any) -> Callable[[Callable[..., Any]], Callable[[], None]]:
    """Make a test of a program: over these calls it takes so many compiles, those of its resume functions included."""

    def decorate(program: Callable[..., Any]) -> Callable[[], None]:
        @pytest.mark.parametrize("backend", BACKENDS)
        def test(backend: str) -> None:
            tolerance = 0 if backend == "eager" else 1e-5
            expected = Expected(compiles=compiles if backend == "eager" or SINCE_2_13 else None)
            check(program, inputs, expected, backend=backend, tolerance=tolerance, **options)

        test.__name__, test.__doc__ = program.__name__, program.__doc__
        return test

    return decorate


# ---------------------------------------------------------------- sizes


@over([lambda shape=shape: [torch.randn(shape)] for n in range(3, 7) for shape in ([n], [n, 4])], 4)
def test_numbers_of_dimensions_that_alternate(x):
    return x * 2


def _walk(inputs):
    x = inputs["x"]
    y = inputs["y"]
    x = x.cos().cos()
    if x.mean() > 0.5:
        x = x / 1.1
    return x * y


def test_walk_through() -> None:
    """Two compiles of the root frame, two of its resume function, then none."""
    inputs = [lambda n=n: [{"x": torch.randn(n), "y": torch.randn(n)}] for n in (10, 8, 12, 6)]
    record = check(_walk, inputs, grad=True)
    assert [(f.kind, len(f.compiles)) for f in record.frames if f.compiles] == [("root", 2), ("resume", 2)]


@over(rows(3, 5, 7, 9), compiles=2)
def test_arithmetic(x):
    n = x.shape[0]
    return x * n, n + 1, 1 - n, n * n, n // 2, n % 3, -n, +n, abs(-n), n**2, n << 1, n >> 1, divmod(n, 2), n & 3, n | 8


class TimesRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.rows = x.size(0)
        return x * ctx.rows

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.rows


@over([lambda n=n: [torch.randn(n, 4, requires_grad=True)] for n in (3, 5, 7)], compiles=2)
def test_first_size_read_by_a_function(x):
    return TimesRows.apply(x)


@over(rows(3, 5, 7, 9), compiles=2)
def test_min_and_max(x):
    n = x.shape[0]
    return x[: min(n, 5)], max(n, 2), min(*x.shape), max([n, n + 1])


@over(rows(3, 5, 7, 2, 9), compiles=3)
def test_branch(x):
    """The comparison is guarded: each side is compiled."""
    if x.shape[0] > 4:
        return x + 1
    return x - 1


@over(rows(3, 5, 7, 9), compiles=4)
def test_loop_over_rows(x):
    """A loop over a dimension is unrolled, which makes it static."""
    total = 0
    for i in range(x.shape[0]):
        total = total + x[i] * i
    return total


@over(rows(3, 1, 5, 7, 0, 9), compiles=4)
def test_zero_and_one_are_special(x):
    return x.sum(0), x * x


@over([lambda b=b, t=t: [torch.randn(b, t, 8)] for b, t in ((2, 3), (4, 3), (4, 5), (3, 7), (8, 9))], compiles=3)
def test_attention(q):
    b, t, d = q.shape
    q = q.view(b, t, 2, d // 2).transpose(1, 2)
    scores = (q @ q.transpose(-1, -2)) / (d // 2) ** 0.5
    mask = torch.tril(torch.ones(t, t)) == 0
    return scores.masked_fill(mask, float("-inf")).softmax(-1) @ q


@over([lambda n=n, m=m: [torch.randn(n, 4), torch.randn(m, 4)] for n, m in ((3, 3), (5, 5), (7, 9), (4, 4), (9, 2))], 2)
def test_two_tensors_that_do_not_meet(x, y):
    """That two sizes are equal by chance is nothing to rely on."""
    return x.sum(0), y.sum(0)


@over([lambda n=n: [torch.randn(20)[n:]] for n in (3, 5, 7)], compiles=3)
def test_storage_offset(x):
    return x + x.storage_offset()


@over([lambda n=n: [torch.randn(4, n).t()] for n in (3, 5, 7, 9)], compiles=2)
def test_not_contiguous(x):
    return x + 1, x.contiguous(), x.is_contiguous(), x.stride()


@over(rows(3, 5, 7, 9), compiles=2)
def test_isinstance_of_a_size(x):
    n = x.shape[0]
    return x + 1, isinstance(n, int), isinstance(n, float), type(n) is int, n is None, n == "n" or n != 2


# ---------------------------------------------------------------- breaks


@over(rows(3, 5, 7, 9), compiles=2)
def test_texts(x):
    n = x.shape[0]
    sizes = [n, 4]
    text = "rows: " + str(n) + " of %s" % n + "%d and %s" % (n, "more") + "{} {!r}".format(n, x.shape)
    sizes = [str(sizes), str(tuple(sizes)), repr(n)]
    return x + 1, text, sizes, f"{n / 3:.2f} {n + 1!r:>4}", {"n": f"<{n}>"}


class Added:
    """A number or a text is added to it."""

    def __init__(self, n=0):
        self.n = n

    def __radd__(self, other):
        return other, other is None, None is other

    def __str__(self):
        return f"<{self.n}>"


@over(rows(3, 5, 7, 9), compiles=2)
def test_what_is_done_whatever_the_value_is(x):
    n = x.shape[0] + 1
    return x + 1, n + Added(), f"rows: {n}" + Added(), copy.deepcopy([n, f"rows: {n}"])


@over(rows(3, 5, 7, 9), compiles=2)
def test_texts_of_objects(x):
    added = Added(x.shape[0])
    try:
        raise ValueError(f"rows: {added}")
    except ValueError as error:
        return x + 1, str(added), f"{added}, {added:}", str(error), f"{error}"


@over(rows(3, 5, 7), compiles=3)
def test_text_that_is_compared(x):
    return x + 1 if f"{x.shape[0]}" == "5" else x


@over(rows(3, 5, 7, 101, 102), compiles=3)
def test_text_of_an_error(x):
    if x.shape[0] > 100:
        raise ValueError(f"too many rows in {x.shape}")
    return x * 2


@over(rows(3, 5, 7, 9), compiles=2)
def test_text_of_an_error_that_is_handled(x):
    try:
        raise ValueError(f"{x.shape[0]} rows are too many")
    except ValueError as error:
        return x * 2, error.args


# ---------------------------------------------------------------- numbers


@over([lambda n=n: [torch.randn(4), n] for n in (3, 5, 2**70, 7)], compiles=3)
def test_huge_ints(x, n):
    return x + (n % 5), n * 2


@over([lambda n=n, m=m: [torch.randn(4), n, m] for n in (3, 5, 7) for m in (4, 2**70)], compiles=6)
def test_huge_ints_beside_others(x, n, m):
    return x + 1, n >> m, n + m, n < m, n * 2**64, n**40


@over([lambda n=n: [torch.randn(4), n] for n in (3, 5, 7, -4, 8)], compiles=2)
def test_ints(x, n):
    return x * n + n // 2, n * 3, x.repeat(abs(n))


@over([lambda n=n: [torch.randn(4), n] for n in (3, 5, 0, 1, 7, True, 6)], compiles=3)
def test_zero_one_and_bools(x, n):
    return x * n


@over([lambda n=n: [torch.randn(4), n] for n in (3, 5, 0, 7)], compiles=5)
def test_division_by_zero(x, n):
    return x + 10 // n


@over([lambda n=n: [torch.randn(4), n] for n in (0.5, 0.1, 1.7, 1.0, -0.0, -3.0)], compiles=2)
def test_least_and_greatest_of_floats(x, scale):
    """A schedule's ``min(1.0, step / warmup)`` is computed at each call; it does not branch."""
    return x * min(1.0, scale / 2), max(0.0, scale), min([scale, scale * 2, 0.3]), max(float(x[0]), scale)


@over([lambda n=n: [torch.randn(4), n] for n in (0.5, 0.1, 1.7)], compiles=3)
def test_infinite_constants(x, scale):
    return x + scale / float("inf"), min(scale, float("inf")), scale * 2


@over([lambda n=n: [torch.randn(4), n] for n in (0.5, 0.1, float("inf"), float("nan"), 0.3, -0.0)], compiles=4)
def test_floats_that_are_not_finite(x, scale):
    return x * scale, scale - scale == 0


@over(rows(3, 5, 7, 9), compiles=2)
def test_numbers_made_tensors(x):
    n = x.shape[0]
    return torch.tensor(n), x + torch.tensor(n / 2), torch.full((2,), n), sorted(x.shape), math.prod(x.shape)


@over([lambda n=n: [torch.randn(4), n] for n in (2.0, 3.0, 4.0)], compiles=3)
def test_squared_again_and_again(x, scale):
    """More of Python's arithmetic than a call should do again."""
    for _ in range(50):
        scale = scale * scale - scale
        scale = scale / (1 + abs(scale))
    return x * scale


# ---------------------------------------------------------------- what is asked for


@pytest.mark.parametrize(("dynamic", "compiles"), [(True, 1), (None, 2), (False, 4)])
def test_options(dynamic: bool | None, compiles: int) -> None:
    def program(x):
        return x.view(-1) * x.shape[0]

    compiled = compile(program, backend="eager", dynamic=dynamic, strict=True)
    for n in (3, 5, 7, 9):
        x = torch.randn(n, 4)
        assert torch.equal(compiled(x), program(x))
    assert len(record_of(compiled).compiles) == compiles


def counted(*numbers: int) -> list[Inputs]:
    return [lambda n=n: [torch.randn(3), n] for n in numbers]


@over(counted(20, 21, 22, 23, 24, 25, 12, 10), compiles=4)
def test_number_among_keys(x, n):
    """A number is compared with the keys of a dict; the frame is compiled again where it is one of them."""
    changes = {12: "a", 10: "b", "c": 3}
    return x * n, changes.get(n), n in changes


@over(counted(20, 21, 22, 6, 12), compiles=5)
def test_number_among_keys_that_equal_it(x, n):
    changes = {fractions.Fraction(12): "a", 6 + 0j: "b"}
    return x * n, changes.get(n), n in changes


@over(counted(20, 21, 22, 23, 8, 9), compiles=3)
def test_number_in_an_ordered_list(x, n):
    return x * n, bisect.bisect_right([5, 10, 15], n)
