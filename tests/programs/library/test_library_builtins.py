# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""Python's builtins over symbolic values.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import abc
import bisect
import collections.abc
import math
import numbers
import operator
import sys
import typing

import torch

from compiler_core.tools.testing import same_as_eager


class Version:
    def __init__(self, major, minor=0):
        self.major, self.minor = major, minor

    def __lt__(self, other):
        return (self.major, self.minor) < (other.major, other.minor)

    def __gt__(self, other):
        return (self.major, self.minor) > (other.major, other.minor)

    def __int__(self):
        return self.major

    def __float__(self):
        return self.major + self.minor / 10

    def __round__(self, n=None):
        return round(float(self), n or 0)

    def __abs__(self):
        return Version(abs(self.major), abs(self.minor))

    def __divmod__(self, other):
        return divmod(self.major, other)

    def __index__(self):
        return self.major


class Sized:
    def __len__(self):
        return 2

    def __getitem__(self, i):
        if i >= 2:
            raise IndexError(i)
        return i * 10


class Walk:
    def __iter__(self):
        return iter([3, 1, 2])

    def __reversed__(self):
        return iter("backwards")


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...


class Square(Shape):
    def area(self):
        return 4


def caught(function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_isinstance(x):
    kinds = (int, float), dict, type(None), collections.abc.Sequence, collections.abc.Mapping, numbers.Number
    found = [[isinstance(v, k) for k in kinds] for v in (1, 2.0, {}, None, [], (), "s", True)]
    return found, isinstance(x, torch.Tensor), isinstance(1, int | str), isinstance(Square(), Shape), x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_issubclass_and_callable(x):
    return x + 1, issubclass(bool, int), issubclass(Square, (Shape, int)), callable(len), callable(Square), callable(3)


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_zip(x):
    short = list(zip("ab", [1, 2, 3]))
    strict = list(zip([1], [x], strict=True))
    errors = [
        caught(lambda: list(zip([1, 2], [3], strict=True))),
        caught(lambda: list(zip([1], [3, 4], strict=True))),
        caught(lambda: list(zip([1], [2], [3, 4], strict=True))),
        caught(lambda: list(zip([1, 2], [2, 3], [3], strict=True))),
    ]
    return short, strict, errors, list(zip()), dict(zip("ab", (x + 1, 2)))


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_sorted(x):
    words = ["bb", "a", "ccc"]
    versions = sorted([Version(2), Version(1, 5), Version(1)])
    pairs = sorted([(1, x), (0, x)], key=lambda p: p[0])
    return (
        sorted(words),
        sorted(words, key=len, reverse=True),
        [(v.major, v.minor) for v in versions],
        [p[0] for p in pairs],
        sorted({"b": 1, "a": 2}),
        sorted([(1, "b"), (1, "a")]),
        caught(sorted, [1, "a"]),
        sorted([3, 1, 2], key=lambda v: -v),
        x + 1,
    )


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_sum_min_max(x):
    return (
        sum([x, x + 1]),
        sum([0.1] * 10),
        sum([1, 2.5, True]),
        sum([[1], [2]], []),
        sum((0.1 for _ in range(3)), 0.3),
        sum([0.1, 0.2, 0.3, x]),
        max(3, 1, 2),
        min([4, 2, 8]),
        max("ab", "b", key=len),
        max([], default=7),
        min(Version(2), Version(1)).major,
        max([Version(1), Version(3)], key=lambda v: v.major).major,
        caught(max, []),
        caught(min, [1, "a"]),
        max((1, 2), (1, 3)),
    )


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_numbers(x):
    return (
        abs(-3), round(2.567, 2), round(2.5), round(7, -1), divmod(-7, 3), divmod(7.5, 2), pow(2, 10), pow(3, -1, 7),
        int("12"), int("ff", 16), int(3.9), float("1e3"), complex(1, 2), bool([]), int(True), float("inf"),
        (5).bit_length(), (2.5).is_integer(), (0.75).as_integer_ratio(), int.from_bytes(b"\x01\x02", "big"), hex(255),
        oct(8), bin(5), chr(97), ord("a"), math.sqrt(16), math.prod([2, 3]), math.gcd(12, 18), math.isclose(1.0, 1.0),
        caught(int, "x"), caught(divmod, 1, 0), caught(math.sqrt, -1), x + 1,
    )  # fmt: skip


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_numbers_of_objects(x):
    v = Version(3, 4)
    return int(v), float(v), round(v, 1), abs(Version(-2)).major, divmod(v, 2), operator.index(v), x + int(v)


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_iter_and_next(x):
    it = iter([1, 2])
    values = next(it), next(it), next(it, "end"), caught(next, it)
    queue = [3, 2, 0, 1]
    return values, list(iter(queue.pop, 0)), list(Sized()), list(Walk()), list(iter("ab")), queue, x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_reversed(x):
    return (
        list(reversed([1, x])), list(reversed((1, 2))), list(reversed("ab")), list(reversed(range(0, 9, 2))),
        list(reversed({"a": 1, "b": 2})), list(reversed({"a": 1}.items())), list(reversed(Sized())),
        list(reversed(Walk())), x + 1,
    )  # fmt: skip


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_reversed_while_the_list_changes(x):
    changed, shortened = [1, 2, x], [1, 2, 3]
    backwards, ended = reversed(changed), reversed(shortened)
    first = next(backwards)
    changed[0] = 9
    changed.append(7)
    del shortened[1:]
    return first, list(backwards), list(ended), x + 1


# from CPython 3.12 on, the comprehension is a loop of the frame, at which each part of it breaks
@same_as_eager(breaks=["print", *["unsupported iteration"] * (2 if sys.version_info >= (3, 12) else 1)])
def test_iterators_after_a_break(x):
    items = [1, 2, x]
    found = [iter(items), reversed(items), iter(range(3)), reversed(range(4)), reversed((1, 2)), reversed("abc")]
    y = x * next(found[0])
    taken = [next(each) for each in found]
    print("break")
    items[0] = 5
    return y + 1, taken, [(type(each).__name__, next(each), list(each)) for each in found]


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_range(x):
    r = range(2, 20, 3)
    return (
        list(r),
        r[1],
        r[-1],
        r[1:3],
        len(r),
        5 in r,
        r.index(8),
        r.count(2),
        r == range(2, 18, 3),
        r.start,
        r.step,
        x + 1,
    )


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_slice(x):
    s = slice(1, None, 2)
    return [0, 1, 2, 3][s], "abcd"[s], s.start, s.step, s.indices(4), x[s], (1, 2, 3)[slice(2)]


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_conversions(x):
    return (
        list("ab"), tuple([1, x]), set("a"), frozenset([1]), dict([("a", 1)]), dict({"a": 1}, b=2), str(1.5), repr("q"),
        bytes([1, 2]), list({"a": 1}), tuple(range(3)), list(x.shape), str([1, "a"]), str({"k": (1,)}), x + 1,
    )  # fmt: skip


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_strings(x):
    s = "Hello World"
    return (
        s.lower(), s.split(), s.replace("o", "0"), s.find("W"), s.startswith(("He", "x")), s[::-1], "-".join("abc"),
        "%s=%d %.2f" % ("a", 3, 1.5), "{:>5}|{x}".format("a", x=1), f"{s!r:>15}", s.partition(" "), s.title(), "a" in s,
        "a,b".split(","), "x".center(5, "*"), s.encode(), b"ab".hex(), "abc".index("c"), "ab" * 2, "b" > "a",
        "12".zfill(4), "1".isdigit(), s.count("l"), s.strip("Hd"), "a\tb".expandtabs(2), "ß".upper(), len(s), x + 1,
        "".join(str(v) for v in range(3)), caught("abc".index, "z"), str.lower("A"), str.maketrans("a", "b"),
    )  # fmt: skip


@same_as_eager(breaks=["unsupported call", "unsupported call"])
def test_id(x):
    return (id(x) == id(x)) is True, x + 1


T = typing.TypeVar("T")


class Box(typing.Generic[T]):
    def __init__(self, value: T):
        self.value = value


class Row(typing.TypedDict):
    a: int


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_typing_at_run_time(x):
    box = Box(x)
    other = Box[int](3)
    row = Row(a=1)
    return typing.cast(int, box.value) + other.value, row, type(row) is dict, typing.TYPE_CHECKING, list[int]((1, 2))


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_bisect(x):
    versions = [Version(1), Version(1, 2), Version(3)]
    found = bisect.bisect_right([1, 3, 3, 7], 3), bisect.bisect_left((1, 3, 3, 7), 3), bisect.bisect([], 1)
    try:
        bisect.bisect_left([1, "a"], "b")
    except TypeError as error:
        found = (*found, str(error))
    return found, bisect.bisect_right(versions, Version(1, 2)), bisect.bisect_left(versions, Version(2)), x + found[0]
