# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""Lists, tuples, dicts and their views, sets, and the containers of `collections`.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import collections
import operator
import types

import torch

import compiler_core
from compiler_core.tools.testing import same_as_eager


class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __eq__(self, other):
        return isinstance(other, Point) and (self.x, self.y) == (other.x, other.y)

    def __hash__(self):
        return hash((self.x, self.y))


class Plain:
    pass


def caught(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return type(error).__name__, str(error)


# ---------------------------------------------------------------- lists and tuples


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_list_methods(x):
    a = [3, 1, 2]
    a.append(x.dim())
    a.extend((5, 6))
    a.insert(1, 9)
    a.insert(-100, 0)
    a.remove(9)
    b = a.copy()
    last = a.pop()
    first = a.pop(0)
    a.sort(reverse=True)
    b.reverse()
    return a, b, last, first, b.index(5), b.count(1), b.index(1, 2), x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_list_operators(x):
    a = [1, [2]]
    b = a * 2
    c = a + [3]
    d = a
    d += (4,)
    d *= 2
    return a, b, c, d is a, b[1] is b[3], [x] * 0, 2 * [x], a != b, [1, 2] < [1, 3], [1] <= [1, 0], x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_sequence_errors(x):
    def pop():
        [].pop()

    def index():
        (1, 2)[5]

    def remove():
        [1].remove(2)

    def compare():
        return [1] < ["a"]

    def compare_kinds():
        return [1] < (1,)

    def slice_size():
        [1, 2, 3][::2] = [1]

    return x + 1, [caught(f) for f in (pop, index, remove, compare, compare_kinds, slice_size)]


@same_as_eager(breaks=["data-dependent branch"])
def test_tensors_in_containers_by_value(x):
    return (x + 1).sum() in [x.sum()]


# ---------------------------------------------------------------- dicts


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_dict_methods(x):
    d = dict(a=1, b=x)
    d.update([("c", 3)], e=5)
    d.update({"a": 7})
    popped = d.pop("c"), d.pop("zz", None)
    d.setdefault("f", []).append(1)
    item = d.popitem()
    f = dict.fromkeys("ab", 0)
    return d, popped, item, f, d.get("zz", 4), list(reversed(d)), d.copy() is d, len(d), x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_dict_operators(x):
    a, b = {"a": 1, "b": 2}, {"b": 3, "c": x}
    c = a | b
    d = a
    d |= b
    d |= [("z", 1)]
    return c, d is a, a, {1: 2} == {1: 2.0}, {} != {1: 1}, x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_dict_views(x):
    d = {"a": 1, "b": 2}
    keys, values, items = d.keys(), d.values(), d.items()
    d["c"] = 3
    common = keys & {"a", "z"}, keys | ["y"], keys - {"a"}, items & {("a", 1)}, keys ^ {"a", "q"}
    tests = keys == {"a", "b", "c"}, ("b", 2) in items, 3 in values, keys.isdisjoint({"q"}), keys >= {"a"}
    order = list(reversed(items)), list(reversed(values))
    return list(keys), list(values), list(items), [sorted(c) for c in common], tests, order, x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_dict_items_compare_values(x):
    return {"a": [1]}.items() == {"a": [1]}.items(), {"a": [1]}.items() <= {"a": [1], "b": 2}.items(), x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_dict_changed_while_iterating(x):
    d = {"a": 1, "b": 2}
    log = []
    for k, v in d.items():
        d["b"] = 5
        log.append(v)

    def grows():
        for k in d:
            d["new"] = 1

    return log, caught(grows), d, x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_dict_errors(x):
    d = {"a": 1}

    def missing():
        d["b"]

    def delete():
        del d[(1, 2)]

    def pop():
        d.pop(3)

    def unhashable():
        d[[]] = 1

    def unhashable_in_set():
        return {1, {}}

    return x + 1, [caught(f) for f in (missing, delete, pop, unhashable, unhashable_in_set, {}.popitem)]


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_objects_as_keys(x):
    a, b = Plain(), Plain()
    d = {a: 1, b: x, int: "int"}
    p = {Point(1, 2): x + 1}
    t = {(a, 1): 2}
    return d[a], d[b], Plain() in d, d[int], p[Point(1, 2)], Point(2, 1) in p, t[a, 1], len({a, b, a}), [*d][0] is a


@same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.ones(2), {"a": 1, "b": [2]}))
def test_dict_from_outside(x, d):
    d["b"].append(x + d["a"])
    d["c"] = d.pop("a")
    d |= {"z": x}
    return d.popitem(), "a" in d


@same_as_eager(graphs=2, breaks=["asked for", "unsupported operation", "unsupported iteration"])
def test_mapping_proxy_across_a_break(x):
    d = {"a": x + 1}
    p = types.MappingProxyType(d)
    compiler_core.graph_break()
    d["b"] = x * 2
    return len(p), list(p)


@same_as_eager(graphs=1, breaks=[])
def test_text_of_mapping_proxies(x):
    p = types.MappingProxyType({"a": 1, "b": [2]})
    nested = types.MappingProxyType(types.MappingProxyType(collections.OrderedDict(a=1)))
    return x + 1, repr(p), f"{p}", repr((nested, [p])), str(types.MappingProxyType(collections.defaultdict(int, a=1)))


# ---------------------------------------------------------------- sets


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_set_methods(x):
    s = {3, 1}
    s.add(2)
    s.discard(9)
    s.remove(3)
    s.update([5], (6,))
    t = s.copy()
    t.clear()
    return s, t, len(s), 5 in s, s.issubset(range(9)), s.issuperset({1}), s.isdisjoint([7]), caught(s.remove, 99), x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_set_operators(x):
    a, b = {1, 2, 3}, frozenset([3, 4])
    c = a | b, a & b, a - b, a ^ b, b | a, a.union([9], {8}), a.intersection([1]), a.difference([1], [2])
    tests = a <= a, a < a, a >= {1}, a == {3, 2, 1}, b == {3, 4}, a != b
    a |= {7}
    a &= {1, 7, 2}
    a -= {1}
    a ^= {2, 5}
    return c, tests, a, [type(v).__name__ for v in c], x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_set_pop(x):
    s = {10, 20, 30}
    return s.pop(), s.pop(), s, x + 1


def test_order_of_a_set_is_guarded():
    compiled = compiler_core.compile(lambda x, s: [x + v for v in s], backend="eager")
    for s in ({8, 0}, {0, 8}, {8, 0}, {1}):
        got = compiled(torch.zeros(1), s)
        assert [t.item() for t in got] == list(s)


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_set_changed_while_iterating(x):
    s = {1, 2}

    def grows():
        for v in s:
            s.add(v + 10)

    return caught(grows), x + 1


# ---------------------------------------------------------------- collections


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_ordered_dict(x):
    d = collections.OrderedDict(a=1, b=x, c=3)
    d.move_to_end("a")
    d.move_to_end("c", last=False)
    e = collections.OrderedDict(d)
    first = e.popitem(last=False)
    same = (
        collections.OrderedDict(a=1, b=2) == collections.OrderedDict(b=2, a=1),
        collections.OrderedDict(a=1) == {"a": 1},
    )
    return d, e, first, same, list(reversed(d)), d | {"z": 1}, x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_defaultdict(x):
    d = collections.defaultdict(list)
    d["a"].append(x)
    d["a"].append(1)
    n = collections.defaultdict(int, {"z": 5})
    for c in "hello":
        n[c] += 1
    nested = collections.defaultdict(lambda: collections.defaultdict(int))
    nested["q"]["r"] += 2
    return d, dict(n), "zz" in d, d.get("zz"), len(d), nested["q"], n.default_factory is int, x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_deque(x):
    q = collections.deque([1, 2, 3], maxlen=3)
    q.append(x)
    q.appendleft(0)
    q.rotate(1)
    r = collections.deque("abc")
    r.extendleft("xy")
    popped = r.popleft(), r.pop()
    r.remove("a")
    return (
        q,
        r,
        popped,
        q.maxlen,
        len(r),
        list(r),
        r[0],
        r == collections.deque("xb"),
        caught(collections.deque().pop),
        x + 1,
    )


@same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.ones(2), collections.deque([1, 2], maxlen=2)))
def test_deque_from_outside(x, q):
    q.append(x + q[0])
    return q[0], q.popleft()


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_chain_map(x):
    c = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
    c["n"] = 4
    return c["a"], c["b"], "b" in c, sorted(c), c.maps[0], x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_counter(x):
    c = collections.Counter("hello")
    c.update("l")
    c["z"] += 2
    return c.most_common(1), c["l"], c["none"], dict(c), c.total(), (c + collections.Counter(a=1))["a"], x + 1


class Bag(collections.UserDict):
    def twice(self, key):
        return self[key] * 2


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_user_dict(x):
    b = Bag({"a": x})
    b["b"] = 3
    b.update(c=4)
    return b.twice("a"), len(b), "b" in b, b.get("q", 1), list(b.items()), b.data


# ---------------------------------------------------------------- keys that are shapes


SEEN_SHAPES = {(1, "float"), (2, torch.float64)}


@same_as_eager(breaks=[], changes=["SEEN_SHAPES"])
def test_a_set_of_shapes(x):
    is_new = (x.shape, x.dtype) not in SEEN_SHAPES
    SEEN_SHAPES.add((x.shape, x.dtype))
    SEEN_SHAPES.add(x.shape)
    return x + len(SEEN_SHAPES), is_new, (1, "float") in SEEN_SHAPES, (4, 4) in SEEN_SHAPES


# ---------------------------------------------------------------- keys that are namedtuples


Cell = collections.namedtuple("Cell", "row column")
by_cell = {Cell(1, 2): 3.0, (5, 6): 4.0}
cells = {Cell(1, 2), Cell(3, 4)}


@same_as_eager(graphs=1, breaks=[])
def test_namedtuples_as_keys(x):
    found = by_cell[Cell(1, 2)] + by_cell[(1, 2)] + by_cell[Cell(5, 6)]
    made = {Cell(x.shape[0], 2): x, (x.shape[0], 2): x + 1}
    return x * found, made, [type(key).__name__ for key in by_cell], Cell(7, 7) in by_cell, (3, 4) in cells, len(cells)


class Reordered(tuple):
    def __hash__(self):
        return 5


@same_as_eager(graphs=1, breaks=[])
def test_tuples_with_their_own_hash_as_keys(x):
    return x + 1, {Reordered((1,)): 2}[Reordered((1,))]


class Counted:
    """A key that counts how often it is hashed and compared."""

    def __init__(self, number):
        self.number = number

    def __hash__(self):
        looked_at.append("hash")
        return 1

    def __eq__(self, other):
        looked_at.append("equal")
        return self.number == other.number


looked_at, by_counted = [], {}


@same_as_eager(changes=["looked_at"])
def test_keys_that_count(x):
    by_counted.clear()
    by_counted[Counted(1)] = 2
    made = {Counted(2): 3}
    by_counted[Counted(2)] = 4
    return x * by_counted[Counted(2)], Counted(2) in made, len(by_counted)


@same_as_eager(graphs=1, breaks=[])
def test_positions_in_sequences(x):
    return x * operator.indexOf([1, 2], 2), operator.countOf([1, 1], 1), caught(operator.indexOf, [1], 3)
