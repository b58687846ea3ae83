# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""Unusual uses of containers, classes and iterators, many in each program.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import collections, copy, dataclasses, enum, itertools, operator, types, math
from dataclasses import dataclass, field
import torch
from typing import NamedTuple
from compiler_core.tools.testing import same_as_eager


class DD(dict):
    def __getitem__(self, k):
        return super().__getitem__(k) * 2

    def __iter__(self):
        return iter(["z"])

    def keys(self):
        return ["a"]


class DL(list):
    def __len__(self):
        return 99

    def __iter__(self):
        return iter([7])


class OD2(collections.OrderedDict):
    def __setitem__(self, k, v):
        super().__setitem__(k, v)
        super().__setitem__("last", k)


class DefD(collections.defaultdict):
    tag = 3


class Q2(collections.deque):
    def twice(self):
        return [*self, *self]


class C2(collections.Counter):
    pass


def caught(f, *a, **k):
    try:
        return f(*a, **k)
    except Exception as e:
        return type(e).__name__, str(e)


@same_as_eager(graphs=1, breaks=["unsupported operation"])
def test_dict_subclass_with_its_own_lookup(x):
    d = DD(a=1, b=2)
    return (
        dict(d),
        {**d},
        list(d),
        d["a"],
        d.get("a"),
        list(d.items()),
        d == {"a": 1, "b": 2},
        len(d),
        d.pop("b"),
        [*d],
        d | {"q": 1},
        x + 1,
    )


@same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.ones(2), DD(a=1, b=2)))
def test_dict_subclass_with_its_own_lookup_from_outside(x, d):
    return dict(d), {**d}, list(d), d["a"], d.get("a"), list(d.items()), len(d), x + d["b"]


@same_as_eager(
    graphs=1,
    breaks=["unsupported operation", "unsupported operation", "unsupported operation", "unsupported operation"],
    inputs=lambda: (torch.ones(2), DL([1, 2])),
)
def test_list_subclass_with_its_own_length(x, d):
    return list(d), len(d), d[0], d[-1], d + [3], d == [1, 2], bool(d), x + 1


@same_as_eager(graphs=0, breaks=["unsupported call"])
def test_ordered_dict_that_stores_twice(x):
    d = OD2(a=1)
    d.update(b=2)
    d["c"] = x
    e = OD2([("p", 1)])
    return list(d.items()), list(e), e.setdefault("zz", 4), list(e)


@same_as_eager(graphs=1, breaks=[])
def test_subclasses_of_collections(x):
    d = DefD(list)
    d["a"].append(x)
    q = Q2([1, 2], maxlen=2)
    q.append(3)
    c = C2("abca")
    c.subtract("a")
    return d, d.tag, d.default_factory is list, q, q.twice(), q.maxlen, c, c["zz"], isinstance(c, dict), x + 1


@same_as_eager(
    graphs=0, breaks=[], inputs=lambda: (torch.ones(2), DefD(int, a=1), Q2([1], maxlen=3), C2("ab"), OD2(a=1))
)
def test_subclasses_of_collections_from_outside(x, d, q, c, o):
    d["b"] += 2
    q.appendleft(x)
    c["a"] += 1
    o["z"] = 5
    c.update("bb")
    return d["a"], q.twice(), c.most_common(1), list(o)


@same_as_eager(graphs=1, breaks=[])
def test_nan_in_containers(x):
    nan = float("nan")
    return (
        nan in [nan],
        [nan] == [nan],
        [float("nan")] == [float("nan")],
        (nan,) == (nan,),
        {nan: 1}.get(nan),
        min([nan, 1]),
        max(1, nan),
        sorted([2, nan, 1]),
        x + 1,
    )


@same_as_eager(graphs=0, breaks=[])
def test_views_after_changes(x):
    d = {"a": 1}
    v = d.values()
    k = d.keys()
    i = d.items()
    d.update(b=x)
    d2 = dict(d)
    del d["a"]
    return len(v), list(k), [*i], d2, k, "b" in k


@same_as_eager(graphs=3, breaks=["class statement"])
def test_instances_of_local_classes_as_keys(x):
    class Local:
        pass

    a, b = Local(), Local()
    a.v = x
    s = {a, b}
    d = {a: b}
    return len(s), a in s, d[a] is b, d.get(b), copy.copy(a).v is x, x + 1


@same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.ones(2), {3, 1, 2}, frozenset("ab"), {"k": {1}}))
def test_sets_from_outside(x, s, f, d):
    t = s | {9}
    s.add(5)
    d["k"].add(2)
    s &= {1, 5, 3}
    return t, s, f - {"a"}, sorted(f), d["k"] is s, len(d["k"]), x + len(s), s == {1, 3, 5}, f.isdisjoint(s)


@same_as_eager(graphs=0, breaks=["data-dependent branch"], inputs=lambda: (torch.ones(2), [3, 1, 2]))
def test_list_from_outside_changed_in_all_ways(x, l):
    l.sort(key=lambda v: -v)
    b = l
    b += (7,)
    l[1:1] = [x, x]
    l.reverse()

    def bad():
        l.sort(key=lambda v: v.nope)

    return caught(bad)[0], l, b is l, l.pop(1), caught(l.index, 99)


@same_as_eager(graphs=1, breaks=[])
def test_iterables_that_raise_half_way(x):
    def extend_half():
        l = [0]

        def g():
            yield 1
            raise ValueError("mid")

        try:
            l.extend(g())
        except ValueError:
            pass
        return l

    def update_half():
        d = {}
        try:
            d.update([("a", 1), 5])
        except TypeError as e:
            return d, str(e)
        return d

    def set_half():
        s = {0}
        try:
            s.update([1, [], 2])
        except TypeError:
            pass
        return s

    return extend_half(), update_half(), set_half(), x + 1


@same_as_eager(graphs=1, breaks=[])
def test_slice_assignments(x):
    a = [1, 2]
    a[5:] = [9]
    a[-10:1] = (7, 8)
    a[1:1] = iter([x])
    b = [0] * 3
    b[::2] = "ab"
    c = list(range(5))
    c[1:4] = []
    del c[:1]
    return (
        a,
        b,
        c,
        caught(lambda: a.__setitem__("x", 1))[0],
        caught(lambda: a[None])[0],
        caught(lambda: tuple(a)[1.5]),
        x + 1,
    )


@same_as_eager(graphs=1, breaks=[])
def test_deque_details(x):
    q = collections.deque(range(3))

    def mutate():
        for v in q:
            q.append(v)

    e = caught(mutate)
    q.rotate(-1)
    return (
        e,
        q,
        q.index(0),
        q.count(2),
        list(reversed(q)),
        q + collections.deque([1]),
        q * 2,
        q == q.copy(),
        caught(q.remove, 77),
        caught(lambda: q[9]),
        x + 1,
    )


class E1(enum.Enum):
    A = [1, 2]
    B = {"k": 1}

    @staticmethod
    def make():
        return E1.A

    def __str__(self):
        return f"<{self.name}>"


class F1(enum.IntFlag):
    R = 4
    W = 2


@same_as_eager(graphs=1, breaks=[])
def test_enum_details(x):
    E1.A.value.append(3)
    r = (
        list(E1.A.value),
        E1.B.value["k"],
        E1.make(),
        str(E1.A),
        f"{E1.B}",
        repr(F1.R | F1.W),
        F1.R + 1,
        F1(6),
        list(F1),
        E1.__members__["A"],
    )
    E1.A.value.pop()
    return r, x + 1


@dataclass(frozen=True, order=True)
class K:
    a: int
    b: tuple = ()

    def __post_init__(self):
        object.__setattr__(self, "c", self.a * 2)


@dataclass
class Base:
    a: int
    d: dict = field(default_factory=dict)


@dataclass
class Child(Base):
    a: float = 5.0
    e: list = field(default_factory=lambda: [1])


@same_as_eager(graphs=1, breaks=[])
def test_dataclass_details(x):
    k = K(1, (2,))
    c = Child()
    c2 = Child(2, e=[x])
    c.e.append(3)
    return (
        k,
        k.c,
        hash(k) == hash(K(1, (2,))),
        K(1) < K(2),
        sorted([K(3), K(1)])[0].a,
        c,
        c2,
        Child().e,
        dataclasses.replace(k, a=5).c,
        {K(1): x}[K(1)],
        K(1) == (1, ()),
        dataclasses.asdict(c2)["e"][0] is x,
        caught(lambda: setattr(k, "a", 2)),
    )


@same_as_eager(graphs=1, breaks=["unsupported call", "unsupported call"])
def test_namespace_equality(x):
    n = types.SimpleNamespace(a=1)
    m = types.SimpleNamespace(a=1)
    return n == m, repr(n), n.a, x + 1


@same_as_eager(graphs=1, breaks=[])
def test_itertools_details(x):
    g = itertools.groupby([1, 1, 2, 2])
    k1, g1 = next(g)
    k2, g2 = next(g)
    t1, t2 = itertools.tee(iter([1, 2, 3]))
    a = next(t1)
    ac = itertools.accumulate([x, x], lambda p, q: p @ q)
    cy = itertools.cycle([])
    return (
        list(g1),
        list(g2),
        k1,
        k2,
        list(t2),
        list(t1),
        list(ac),
        list(cy),
        list(itertools.islice(itertools.count(0.5, 0.25), 3)),
        list(itertools.zip_longest()),
        list(itertools.product()),
        list(itertools.permutations([1], 2)),
    )


@same_as_eager(graphs=0, breaks=[], inputs=lambda: (torch.ones(2), collections.OrderedDict(a=1, b=2)))
def test_ordered_dict_from_outside(x, o):
    o.move_to_end("a")
    o["c"] = x
    first = o.popitem(last=False)
    return first, list(o), o == collections.OrderedDict(o), reversed(o) is None, next(reversed(o))


class Neg:
    def __init__(s, v):
        s.v = v

    def __neg__(s):
        return Neg(-s.v)

    def __add__(s, o):
        return NotImplemented

    def __radd__(s, o):
        return ("radd", o if not isinstance(o, Neg) else o.v)

    def __iadd__(s, o):
        s.v += o
        return s

    def __eq__(s, o):
        return s.v == getattr(o, "v", o)

    def __contains__(s, o):
        return o == s.v

    def __matmul__(s, o):
        return "mm"


class Neg2(Neg):
    def __radd__(s, o):
        return "sub first"


@same_as_eager(graphs=1, breaks=[])
def test_operators_of_objects(x):
    n = Neg(3)
    m = n
    m += 4
    return (
        (-n).v,
        n.v,
        m is n,
        1 + n,
        Neg(1) + Neg2(2),
        n == 7,
        7 == n,
        n != 7,
        [n] == [7],
        7 in n,
        n in [1, 7],
        n @ 2,
        caught(lambda: n + 1),
        caught(lambda: n < 3),
        x + 1,
        caught(lambda: {n: 1}),
    )


@same_as_eager(graphs=0, breaks=["exception"])
def test_reflected_operator_with_a_tensor(x):
    n = Neg(1)
    return x + n, caught(lambda: n + x)[0]


class Like:
    """Like a number on the right of an operator, and like an integer."""

    def __radd__(self, other):
        return other + 1

    def __rmul__(self, other):
        return other * 2

    def __index__(self):
        return 2


@same_as_eager(graphs=1, breaks=[])
def test_operators_of_numbers_and_objects_like_integers(x):
    return x * (3 + Like()), 2.5 * Like(), True + Like(), caught(lambda: 3 - Like())
