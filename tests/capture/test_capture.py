# mypy: ignore-errors
# (the programs stand for users' code, which has no annotations)
"""Programs that are captured without a graph break, compared with eager."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import math
import operator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from compiler_core.tools.testing import same_as_eager

one_graph = same_as_eager(graphs=1, breaks=[], compiles=1)


@same_as_eager(graphs=1, breaks=[], compiles=1, grad=True)
def test_straight_line(x, y):
    z = torch.sin(x) * y + 2
    return z.cos(), z.sum(dim=-1)


@one_graph
def test_chained_comparison_of_numbers(x):
    n = x.shape[0]
    return x + (1 if 1 < n <= 4 else 2), 0 < n < 3, not n


@one_graph
def test_containers(x, y):
    d = {"a": x + 1, "b": [y, (x, y)], 3: None}
    d["c"] = d["b"][1][0] * 2
    d["b"].append(x)
    d.update(e=4)
    return d, list(d), d.pop(3), d.get("zz"), d.get("zz", 5), "a" in d


@one_graph
def test_aliased_containers(x):
    a = [x]
    b = [a, a]
    a.append(x + 1)
    return b, a


@one_graph
def test_list_methods(x):
    a = [3, 1, 2]
    a.insert(0, 9)
    a.extend((5, 6))
    a.remove(1) if 1 in a else None
    a.reverse()
    b = a.copy()
    del a[0]
    a[1:2] = [7, 7]
    return a, b, a.index(7), b.count(9), b[-1], b[::2], x + sum(a)


@one_graph
def test_unpacking(x, y):
    a, *rest, b = (x, 1, 2, y)
    (c, d), e = (a, b), rest
    first, *others = e
    return [*others, *e], {**{"k": c}, "l": d + 1}, first


@one_graph
def test_comprehensions(x):
    xs = [x * i for i in range(3) if i != 1]
    d = {f"k{i}": v + i for i, v in enumerate(xs)}
    nested = [[i * j for j in range(2)] for i in range(2)]
    return d, nested, sum(v for v in xs), {i % 2 for i in range(4)}, xs


@one_graph
def test_comprehension_keeps_outer_variable(x):
    i = 7
    a = [i for i in range(3)]
    return x + i, a


@one_graph
def test_loops(x):
    total = 0
    for i in range(10):
        if i == 2:
            continue
        if i == 5:
            break
        total += i
    else:
        total = -1
    while total < 20:
        total += 3
        x = x + total
    for a, b in zip([1, 2], (3, 4)):
        x = x * a - b
    for k, v in {"p": 1, "q": 2}.items():
        x = x + v
    else:
        x = x / 2
    return x, total, k, reversed([1]) is None


@one_graph
def test_iterators(x):
    it = iter([x, x + 1, 3])
    a = next(it)
    rest = list(it)
    m = list(map(lambda v: v * 2, rest))
    f = list(filter(None, [0, 1, 2]))
    e = next(iter([]), "end")
    return a, m, f, e, list(zip(rest, m)), list(enumerate(rest, 3)), any([0, 1]), all([1, 0])


@one_graph
def test_generator_function(x):
    def rows(n):
        for i in range(n):
            yield x + i

    return list(rows(3)), sum(rows(2))


@one_graph
def test_format_strings(x):
    return f"{x.shape[0]:>4}|{3.14159:.2f}|{'a'!r}|{x.dtype}", x + 1


@one_graph
def test_string_methods(x):
    parts = "a.b.c".split(".")
    return x + 1, "-".join(parts), "%s=%d" % ("a", 3), "{}".format(2), "abc".upper()[1:], "b" in "abc", len("abc")


@one_graph
def test_walrus_and_ternary(x):
    if (n := x.dim()) > 1:
        x = x.sum(0)
    return x if n else -x, n


@one_graph
def test_boolean_short_circuits(x):
    a = None or x
    b = [] or {} or 0
    c = 1 and "s"
    d = x is not None and x.dim() == 2
    return a + 1, b, c, d, not [], not 0


def scale(x, by=2.0, *rest, shift=0, **named):
    return x * by + shift + len(rest) + sum(named.values())


@one_graph
def test_call_forms(x):
    args, kw = (3.0, 1, 2), {"shift": 4, "z": 5}
    return scale(x), scale(x, 1.0), scale(by=3.0, x=x), scale(x, *args), scale(x, *args, **kw), scale(x, **kw)


@one_graph
def test_closures_and_lambdas(x):
    k = 2

    def inner(y):
        nonlocal k
        k += 1
        return y * k

    fs = [lambda v, i=i: v + i for i in range(3)]
    return inner(x), inner(x), k, [f(x) for f in fs]


def factorial(n):
    return 1 if n <= 1 else n * factorial(n - 1)


@one_graph
def test_recursion(x):
    return x + factorial(5)


@one_graph
def test_partial(x):
    f = functools.partial(scale, by=4.0)
    g = functools.partial(operator.add, x)
    return f(x), g(1), functools.reduce(operator.add, [1, 2, 3]) if False else 0


class Base:
    rate = 3

    def __init__(self, n):
        self.n = n

    def go(self, x):
        return x + self.n

    @property
    def twice(self):
        return 2 * self.n

    @staticmethod
    def static(x):
        return x - 1

    @classmethod
    def of(cls, n):
        return cls(n + cls.rate)

    def __call__(self, x):
        return self.go(x) * self.twice

    def __add__(self, other):
        return Base(self.n + other.n)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.n * i

    def __eq__(self, other):
        return self.n == other.n

    def __hash__(self):
        return self.n


class Derived(Base):
    rate = 4

    def __init__(self, n):
        super().__init__(n)
        self.extra = 1

    def go(self, x):
        return super().go(x) + self.extra


@one_graph
def test_objects_made_inside(x):
    d = Derived.of(2)
    e = d + Base(1)
    d.extra = 5
    return d(x), d.static(x), d.twice, e.n, len(d), d[3], bool(e), isinstance(d, Base), e == Base(7), type(d) is Base


@one_graph
def test_object_returned(x):
    d = Derived(3)
    d.tensor = x + 1
    return d, [d]


@same_as_eager(graphs=1, breaks=[], compiles=1, inputs=lambda: (torch.randn(4), Derived(3)))
def test_objects_from_outside(x, d):
    return d(x), d.rate, getattr(d, "missing", 4), hasattr(d, "n"), d.of(1).n, d


class Point(NamedTuple):
    x: Any
    y: Any = 3


Pair = collections.namedtuple("Pair", "left right")


@same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.randn(4), Pair(torch.randn(4), [1])))
def test_namedtuples(x, p):
    q = Point(x + 1)
    a, b = q
    return q, p.left * a, p.right, p, p[0], q._replace(y=4) if False else b, Pair(right=1, left=x), q[1:]


@dataclasses.dataclass
class Config:
    width: int
    names: list[str] = dataclasses.field(default_factory=list)
    scale: float = 0.5


@same_as_eager(breaks=[], inputs=lambda: (torch.randn(4), Config(3, ["a"])))
def test_dataclass(x, c):
    return x * c.scale + c.width, c.names[0], c == c


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@same_as_eager(graphs=1, breaks=[], compiles=1, inputs=lambda: (torch.randn(4), Colour.RED))
def test_enum(x, c):
    if c is Colour.RED and c == Colour.RED and c != Colour.BLUE:
        x = x + c.value
    return x, c.name, Colour(2)


@one_graph
def test_slices(x):
    s = slice(0, 2)
    return x[s], x[1:3, ::2], x[..., None, 0], x[-1], x[:, [0, 1]], x[(0, 1)], [1, 2, 3][s], s


@one_graph
def test_mask_assignment(x):
    y = x.clone()
    y[x > 0] = 0
    y[1] += 2
    y[:, 0] = x[:, 1]
    return y


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_in_place(x, y):
    x.add_(1)
    x *= y
    y[0] = 3.0
    torch.add(x, 1, out=y)
    return x, x + y


@one_graph
def test_views_of_inputs(x):
    return x[0], x.t(), x.view(16), x.reshape(2, 8), x.unsqueeze(0), x.detach(), x


@one_graph
def test_views_mutated(x):
    row = x[0]
    row.add_(1)
    x.t()[0].mul_(2)
    return row, x.sum()


@one_graph
def test_no_op_conversions_return_the_same_object(x):
    return x.contiguous(), x.to(torch.float32), x.float(), F.dropout(x, training=False), x.double(), x.expand(4, 4)


@same_as_eager(graphs=0, breaks=[], compiles=1)
def test_no_tensor_operation(x):
    return x, [x], {"x": x}, None, 3


@same_as_eager(graphs=0)
def test_shape_only(x):
    n, m = x.shape
    return n * m, x.size(), x.size(0), x.numel(), x.shape[1:], len(x), x.ndim, x.dtype is torch.float32


@same_as_eager(breaks=[], compiles=1, inputs=lambda: (torch.randn(3),) * 2)
def test_same_tensor_twice(x, y):
    x.add_(1)
    return x is y, x + y, y


@same_as_eager(graphs=1, breaks=[])
def test_identity(x, y):
    a = x
    b = [x]
    return a is x, x is y, x is not y, b is b, b is [x], None is None, b[0] is a, x + 1


@same_as_eager(graphs=1, breaks=[], grad=True)
def test_no_grad_region(x):
    y = x * 2
    with torch.no_grad():
        z = y * 3
        on = torch.is_grad_enabled()
        with torch.enable_grad():
            w = x * 4
    return y, z, w, on, z.requires_grad, w.requires_grad


@torch.no_grad()
def frozen(x):
    return x * 2


@same_as_eager(graphs=1, breaks=[], grad=True)
def test_no_grad_decorator(x):
    return frozen(x), x * 3


@same_as_eager(graphs=1, breaks=[], grad=True)
def test_requires_grad_branches(x):
    y = x * 2 if x.requires_grad else x
    return y, y.is_leaf, x.is_leaf, y.detach().requires_grad


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_random_stream(x):
    a = torch.rand(3)
    b = F.dropout(x, 0.5)
    return a + torch.randn(3), b, torch.randint(0, 9, (2,)), torch.bernoulli(torch.full((2,), 0.5)), torch.rand_like(x)


@one_graph
def test_factories(x):
    n = x.shape[0]
    z = torch.zeros(n, 2, dtype=torch.float64)
    return z, torch.arange(n) + 1, torch.tensor([1, 2]), torch.full((2,), 3.5), x.new_zeros(2), torch.ones_like(x)


@one_graph
def test_several_results(x):
    values, indices = x.max(dim=1)
    a, b = x.chunk(2)
    result = torch.topk(x, 2)
    return values, indices, a, b, result.values, x.sort(), torch.split(x, [1, 3]), x.unbind()


@one_graph
def test_iterate_tensor(x):
    total = 0
    for row in x:
        total = total + row.sum()
    a, b, c, d = x
    return total, a + d, [r * 2 for r in x[:2]]


@one_graph
def test_python_numbers(x):
    y = x * math.pi + math.sqrt(x.shape[0])
    return y, 7 // 2, -7 % 3, 2**10, divmod(7, 2), round(2.5), abs(-1), int("3"), 1e400


@one_graph
def test_nan_and_signed_zero(x):
    nan = float("nan")
    return x * nan, [nan][0] != nan, nan in [nan], -0.0, x + 0.0


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_match(x):
    command = ("go", 3)
    match command:
        case ("stop",):
            return x
        case ("go", n) if n > 5:
            return x + n
        case ("go", n):
            return x - n
        case _:
            return None


@one_graph
def test_import_inside(x):
    import math as m
    from operator import add

    return add(x, m.floor(2.5))


@one_graph
def test_delete(x):
    y = x + 1
    z = y * 2
    del y
    d = {"a": 1, "b": 2}
    del d["a"]
    return z, d


@one_graph
def test_assert_that_holds(x):
    assert x.shape[0] == 4, "never"
    return x + 1


@one_graph
def test_try_without_exception(x):
    try:
        y = x + 1
    except ValueError:
        y = x - 1
    else:
        y = y * 2
    finally:
        z = y + 3
    return y, z


@one_graph
def test_function_returned(x):
    y = x + 1

    def f(z):
        return y + z

    return f, f


@one_graph
def test_sets(x):
    s = {1, 2}
    s.add(3)
    t = frozenset([1])
    return x + len(s), 3 in s, s, t, 2 in {1, 2, 3}


@one_graph
def test_einsum_and_functional(x, y):
    a = torch.einsum("ij,jk->ik", x, y)
    b = F.softmax(a, dim=-1)
    c = F.scaled_dot_product_attention(x[None], y[None], x[None])
    return a @ b, c, F.layer_norm(x, (4,)), F.mse_loss(x, y), torch.cat([x, y]), torch.where(x > 0, x, y)


@one_graph
def test_tuple_operations(x):
    a = (1, 2) + (3,)
    b = a * 2, a < (1, 3), a == (1, 2, 3), a.index(2), max(a)
    return b, sorted([3, 1, 2], reverse=True), min(4, 2), x.shape + (1,), x + 1


@one_graph
def test_dict_views_and_order(x):
    d = {"b": 1, "a": 2}
    d["c"] = d.pop("b")
    d.setdefault("z", 5)
    return list(d.items()), list(d.values()), sorted(d), d | {"a": 9}, "c" in d.keys(), x + len(d)


@one_graph
def test_ordered_dict(x):
    d = collections.OrderedDict(a=x)
    d["b"] = x + 1
    return d


@same_as_eager(breaks=[], compiles=1, inputs=lambda: ({"a": torch.randn(2), "b": [torch.randn(2)]}, (1, 2)))
def test_arguments_in_containers(d, t):
    return d["a"] + d["b"][0] * t[1], d, t, d["b"]


@one_graph
def test_default_is_a_tensor_method(x):
    f = x.add
    g = torch.Tensor.mul
    return f(1), g(x, 2), getattr(x, "sub")(3)


@one_graph
def test_a_tensor_called_self(self, x):
    return self + x
