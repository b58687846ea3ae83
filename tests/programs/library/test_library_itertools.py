# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""itertools, functools and operator.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import functools
import itertools
import operator
import sys

import pytest
import torch

from compiler_core.tools.testing import same_as_eager

first = operator.itemgetter(0)
by_name = operator.attrgetter("name")


class Named:
    def __init__(self, name):
        self.name = name

    def twice(self, n=1, *, suffix=""):
        return self.name * 2 * n + suffix


def caught(function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_chain(x):
    return list(itertools.chain([1], (x,), "ab")), list(itertools.chain.from_iterable([[1], [2, 3]])), x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_islice(x):
    it = iter(range(10))
    a = list(itertools.islice(it, 3))
    b = list(itertools.islice(it, 1, 6, 2))
    return a, b, next(it), list(itertools.islice("abcd", None)), x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_combinatorics(x):
    return (
        [a * b for a, b in itertools.product([x, x + 1], [1, 2])],
        list(itertools.product("ab", repeat=2)),
        list(itertools.permutations([1, 2, 3], 2)),
        list(itertools.combinations("abc", 2)),
        list(itertools.combinations_with_replacement("ab", 2)),
    )


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_zip_longest(x):
    return list(itertools.zip_longest([1, 2, 3], "a", fillvalue=x)), list(itertools.zip_longest("ab", [1])), x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_accumulate(x):
    return (
        list(itertools.accumulate([1, 2, 3])),
        list(itertools.accumulate([x, x, 2.0])),
        list(itertools.accumulate([1, 2, 3], operator.mul, initial=10)),
        list(itertools.accumulate([3, 1, 4], max)),
    )


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_endless(x):
    rounds = itertools.cycle("ab")
    counter = itertools.count(10, 5)
    named = dict(zip("pqr", itertools.repeat(x)))
    return [next(rounds) for _ in range(5)], next(counter), next(counter), named, list(itertools.repeat(1, 3)), x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_count_with_zip(x):
    return [x + i for i, _ in zip(itertools.count(), range(3))]


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_while_iterators(x):
    data = [1, 2, 5, 1]
    return (
        list(itertools.takewhile(lambda v: v < 3, data)),
        list(itertools.dropwhile(lambda v: v < 3, data)),
        list(itertools.filterfalse(lambda v: v % 2, data)),
        list(itertools.filterfalse(None, [0, 1])),
        list(itertools.compress("abcd", [1, 0, 1, 0])),
        x + 1,
    )


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_groupby(x):
    groups = [(k, list(g)) for k, g in itertools.groupby("aabccc")]
    words = {k: len(list(g)) for k, g in itertools.groupby(["a", "b", "cc"], key=len)}
    skipped = [k for k, _ in itertools.groupby([1, 1, 2])]
    return groups, words, skipped, x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_starmap_pairwise_tee(x):
    a, b = itertools.tee([1, 2, 3])
    next(a)
    return (
        list(itertools.starmap(pow, [(2, 3), (x, 2)])),
        list(itertools.pairwise("abc")),
        list(zip(a, b)),
        [hi - lo for lo, hi in itertools.pairwise([1, 4, 9])],
    )


@pytest.mark.skipif(sys.version_info < (3, 12), reason="itertools.batched is new in 3.12")
def test_batched():
    def program(x):
        return list(itertools.batched([x, x, 1], 2)), x + 1

    same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.ones(2),))(program)()


# ---------------------------------------------------------------- functools


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_reduce(x):
    return (
        functools.reduce(lambda a, b: a * b, [x, x + 1, 2]),
        functools.reduce(operator.add, [[1], [2]], [0]),
        caught(functools.reduce, operator.add, []),
    )


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_cmp_to_key(x):
    by_length = functools.cmp_to_key(lambda a, b: len(a) - len(b))
    return sorted(["ccc", "a", "bb"], key=by_length), min(["cc", "b"], key=by_length), x + 1


@functools.lru_cache(maxsize=None)
def table(n):
    return tuple(range(n))


# ---------------------------------------------------------------- operator


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_getters(x):
    rows = [(2, "b"), (1, "a")]
    named = [Named("q"), Named("p")]
    return (
        sorted(rows, key=operator.itemgetter(0)),
        operator.itemgetter(1, 0)(rows[0]),
        [n.name for n in sorted(named, key=operator.attrgetter("name"))],
        list(map(operator.methodcaller("twice", 2, suffix="!"), named)),
        operator.attrgetter("shape", "dtype")(x),
        operator.itemgetter("k")({"k": x + 1}),
        operator.itemgetter(slice(1, None))([1, 2, 3]),
        max({"a": 1, "b": 3}.items(), key=operator.itemgetter(1)),
    )


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_getters_from_outside(x):
    return first([x + 1, 2]), by_name(Named("n")), sorted([(2, 1), (1, 2)], key=first)


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_operator_functions(x):
    d = {"a": 1}
    operator.setitem(d, "b", 2)
    operator.delitem(d, "a")
    return (
        operator.add(x, 1), operator.mul([1], 2), operator.truth([]), operator.not_(1), operator.is_(x, x),
        operator.is_not(x, 1), operator.contains([1, 2], 2), operator.getitem(d, "b"), operator.concat([1], [2]),
        operator.countOf([1, 2, 1], 1), operator.neg(3), operator.floordiv(7, 2), operator.matmul(x, x),
        operator.lt(1, 2), operator.eq([1], [1]), operator.iadd([1], [2]), operator.call(len, "abc"), d,
    )  # fmt: skip


class Toolbox:
    def scale(self, x, by):
        return x * by

    double = functools.partialmethod(scale, by=2)


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_partialmethod(x):
    return Toolbox().double(x)
