# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""Special methods of users' classes, and operators in general.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import functools


from compiler_core.tools.testing import same_as_eager


class Vec:
    def __init__(self, *v):
        self.v = list(v)

    def __add__(self, other):
        if not isinstance(other, Vec):
            return NotImplemented
        return Vec(*(a + b for a, b in zip(self.v, other.v)))

    def __radd__(self, other):
        return Vec(*(other + a for a in self.v))

    def __mul__(self, k):
        return Vec(*(a * k for a in self.v))

    __rmul__ = __mul__

    def __imul__(self, k):
        self.v = [a * k for a in self.v]
        return self

    def __sub__(self, other):
        return NotImplemented

    def __matmul__(self, other):
        return sum(a * b for a, b in zip(self.v, other.v))

    def __neg__(self):
        return Vec(*(-a for a in self.v))

    def __pos__(self):
        return self

    def __invert__(self):
        return Vec(*reversed(self.v))

    def __abs__(self):
        return sum(abs(a) for a in self.v)

    def __eq__(self, other):
        return isinstance(other, Vec) and self.v == other.v

    def __hash__(self):
        return hash(tuple(self.v))

    def __len__(self):
        return len(self.v)

    def __getitem__(self, i):
        return Vec(*self.v[i]) if isinstance(i, slice) else self.v[i]

    def __setitem__(self, i, value):
        self.v[i] = value

    def __delitem__(self, i):
        del self.v[i]

    def __contains__(self, a):
        return a in self.v

    def __iter__(self):
        return iter(self.v)

    def __reversed__(self):
        return iter(self.v[::-1])

    def __bool__(self):
        return any(self.v)

    def __repr__(self):
        return f"Vec({', '.join(map(str, self.v))})"

    def __str__(self):
        return "<" + " ".join(str(a) for a in self.v) + ">"

    def __format__(self, spec):
        return "|".join(format(a, spec) for a in self.v)

    def __call__(self, x, *, plus=0):
        return x * self.v[0] + plus


@same_as_eager(graphs=1, breaks=[])
def test_arithmetic(x):
    a, b = Vec(1, 2), Vec(3, 4)
    c = a + b
    c *= 2
    return x * (a @ b), c.v, (3 * a).v, (a * 3).v, (5 + a).v, (-a).v, (~a).v, abs(-a), (+a) is a, sum([a, b]).v


class Iterated:
    def __init__(self):
        self.seen = []

    def __iter__(self):
        for each in (1, 2, 3):
            self.seen.append(each)
            yield each


class Indexed:
    def __getitem__(self, i):
        return (1, 2)[i]


@same_as_eager(graphs=1, breaks=[])
def test_in_of_what_is_iterated(x):
    a = Iterated()
    return x + 1, 2 in a, 5 in a, a.seen


@same_as_eager()
def test_in_of_other_objects(x):
    found = [2 in Indexed(), 5 in Indexed()]
    try:
        1 in Vec  # noqa: B015
    except TypeError as error:
        return x + 1, found, str(error)


@same_as_eager(graphs=1, breaks=[])
def test_container_methods(x):
    a = Vec(1, 2, 3, 4)
    a[0] = 5
    del a[1]
    first, *rest = a
    return (
        x + a[0],
        len(a),
        a[1:].v,
        3 in a,
        9 in a,
        list(a),
        list(reversed(a)),
        first,
        rest,
        bool(Vec(0)),
        not a,
        max(a),
    )


@same_as_eager(graphs=1, breaks=[])
def test_text(x):
    a = Vec(1, 2)
    return (
        x + 1,
        str(a),
        repr(a),
        f"{a} {a!r} {a:>3} {[a]} {(a,)}",
        "%s %r" % (a, a),
        "{} {!r:>12}".format(a, a),
        f"{a!s:>8}",
    )


@same_as_eager(graphs=1, breaks=[])
def test_called(x):
    return Vec(2)(x), Vec(3)(x, plus=1), callable(Vec(1)), callable(3), list(map(Vec(2), [1, 2]))


@same_as_eager(graphs=1, breaks=[])
def test_operand_errors(x):
    messages = []
    a = Vec(1)
    one, text = 1, "s"
    for attempt in (
        lambda: a - one,
        lambda: a / a,
        lambda: a < a,
        lambda: one + text,
        lambda: [] + (),
        lambda: {} | [],
        lambda: -text,
        lambda: [1] < (1,),
        lambda: [1] * [2],
        lambda: None + one,
    ):
        try:
            attempt()
        except TypeError as e:
            messages.append(str(e))
    return x + len(messages), messages


@functools.total_ordering
class Ranked:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n

    def __lt__(self, other):
        return self.n < other.n


class Base:
    def __add__(self, other):
        return "base"

    def __lt__(self, other):
        return "base <"


class Special(Base):
    def __radd__(self, other):
        return "reflected first"

    def __gt__(self, other):
        return "reflected >"


class Defaults(dict):
    def __missing__(self, key):
        self[key] = value = len(self)
        return value


@same_as_eager(graphs=1, breaks=[])
def test_missing(x):
    d = Defaults(a=5)
    return x + d["b"], d["a"], d["c"], dict(d), d.get("zzz")


class Sized:
    def __len__(self):
        return 0


class Plain:
    pass


@same_as_eager(graphs=1, breaks=[])
def test_truth(x):
    return x + 1, bool(Sized()), bool(Plain()), [1 for s in (Sized(), Plain()) if s], Plain() == Plain(), Plain() != 3


@same_as_eager(graphs=1, breaks=[])
def test_unhashable(x):
    class_ = Ranked(1)
    try:
        {class_: 1}
    except TypeError as e:
        return x + 1, str(e)


@same_as_eager(graphs=1, breaks=[])
def test_containers_in_place(x):
    a, b, s = [1, 2], {"k": 1}, {1, 2}
    a2, b2, s2 = a, b, s
    a += (3,)
    a *= 2
    b |= {"m": 2}
    s |= {3}
    s -= {1}
    return x + 1, a is a2, b is b2, s is s2, a, b, s == {2, 3}


@same_as_eager(graphs=1, breaks=[])
def test_comparing_containers(x):
    return (
        x + 1,
        [1, 2] < [1, 3],
        (1, 2) <= (1, 2),
        [1] > [],
        (2,) >= (1, 9),
        [1, 2] != [1, 2],
        (1, 2) == (1, 2, 3),
        {"a": 1} == {"a": 1.0},
        {1, 2} == {2, 1},
        {1} < {1, 2},
        "ab" < "b",
        [1] == (1,),
        {} == [],
        1 == "1",
        1 == 1.0,
        [[1], [2]] == [[1], [2]],
        range(3) == range(0, 3),
        None == 0,
        (1, [2]) < (1, [3]),
        b"a" == "a",
    )
