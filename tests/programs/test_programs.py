# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""Many small programs, each of one feature of Python or PyTorch, compared with eager.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

from __future__ import annotations

import collections
import copy
import functools
import itertools
import math
import operator
import random
import warnings

import pytest
import torch
import torch.nn.functional as F

from compiler_core.tools.testing import same_as_eager


@same_as_eager()
def test_slice_then_alias(x):
    a = [1, 2, 3]
    b = a[:]
    b.append(4)
    c = a + []
    c[0] = 9
    return a, b, c, x + 1


@same_as_eager()
def test_tuple_identity(x):
    t = (x, 1)
    return t is tuple(t), tuple([1]) is tuple([1]), x + 1


@same_as_eager(inputs=lambda: (torch.randn(3), {"a": {"b": [1]}}))
def test_nested_update(x, d):
    d["a"]["b"].append(x + 1)
    d["a"]["c"] = d["a"]["b"]
    e = d["a"].copy()
    e["z"] = 1
    return d, e


@same_as_eager(inputs=lambda: (torch.randn(3), [torch.randn(3)]))
def test_tensor_in_list_inplace(x, l):
    l[0].add_(x)
    l.append(l[0])
    l[1].mul_(2)
    return l[0] + 1


@same_as_eager(inputs=lambda: (torch.randn(3),))
def test_shadow(x):
    len = lambda v: 7
    return x + len(x)


@same_as_eager()
def test_kwonly(x):
    def f(a, /, b, *, c=3, **k):
        return a + b * c, k

    return f(x, 2), f(x, b=1, c=2, d=4, a=3)


@same_as_eager()
def test_badcall(x):
    def f(a):
        return a

    try:
        f(x, 2)
    except TypeError as e:
        return str(e), x + 1


@same_as_eager()
def test_unhash(x):
    y = x + 1
    try:
        return {[]: 1}
    except TypeError as e:
        return str(e), y


@same_as_eager()
def test_bigint(x):
    return (
        x + 1,
        2**100,
        10**20 // 3,
        -5 // 2,
        -5 % 3,
        1 << 70,
        True + True,
        ~5,
        5 ^ 3,
        7 & 2,
        1.5 // 1,
        3 / 2,
        divmod(-7, 2),
    )


@same_as_eager()
def test_strcmp(x):
    return (
        x + 1,
        "a" < "b",
        "abc"[::-1],
        "a" * 3,
        "ab",
        b"ab"[0],
        "x".join(["a", "b"]),
        "%r %s" % (1, "z"),
        "abc".find("c"),
        "A".lower(),
        str(1.0),
        repr("a"),
        f"{1e-5:e}",
        f"{3!r:>5}",
    )


@same_as_eager()
def test_starexpr(x):
    a = [*range(3), *"ab"]
    b = {*()}
    c = (*a,)
    return a, c, x + 1, len(b)


@same_as_eager()
def test_dictcomp_order(x):
    d = {k: v for k, v in zip("cab", range(3))}
    d2 = {**d, "a": 5}
    return list(d2.items()), d, x + 1, dict(zip("ab", [1, 2])), dict([("a", 1)]), dict(a=x)


@same_as_eager()
def test_reversed_enum(x):
    return (
        [i for i in reversed(range(3))],
        [*reversed([1, 2])],
        list(enumerate("ab", 1)),
        x + 1,
        sorted({"b": 1, "a": 2}),
        max([1, 5, 2], key=lambda v: -v),
        min("b", "a"),
        sum([[1], [2]], []),
    )


@same_as_eager()
def test_chained_assign(x):
    a = b = [x]
    a.append(1)
    c, d = a, b
    c += [2]
    return a, b, c is d


@same_as_eager()
def test_aug(x):
    y = x
    y += 1
    z = x
    z = z + 1
    w = x.view(-1)
    w *= 2
    return x, y, z, w, y is x


@same_as_eager()
def test_aug_int(x):
    n = 1
    m = n
    n += 1
    t = (1,)
    u = t
    t += (2,)
    return n, m, t, u, x + 1


@same_as_eager()
def test_gen_partial(x):
    def g():
        n = yield_count = 0
        while True:
            yield n
            n += 1

    it = g()
    a = next(it), next(it)
    return a, x + next(it)


@same_as_eager()
def test_gen_return(x):
    def inner():
        yield 1
        return 5

    def outer():
        r = yield from inner()
        yield r

    return list(outer()), x + 1


@same_as_eager()
def test_nested_fn_default(x):
    fs = []
    for i in range(3):

        def f(y, i=i, acc=[]):
            acc.append(i)
            return y + i + len(acc)

        fs.append(f)
    return [f(x) for f in fs], [f(x) for f in fs]


@same_as_eager()
def test_late_binding(x):
    fs = [lambda: i for i in range(3)]
    return [f() for f in fs], x + 1


@same_as_eager()
def test_closure_loop(x):
    out = []
    for i in range(3):

        def f():
            return x * i

        out.append(f)
    return [f() for f in out]


@same_as_eager()
def test_exc_in_loop(x):
    n = 0
    for i in range(5):
        try:
            if i == 3:
                raise ValueError
            n += i
        except ValueError:
            continue
        finally:
            n += 10
    return x + n, n


@same_as_eager()
def test_with_nested(x):
    with torch.no_grad(), torch.enable_grad():
        y = x * 2
    return y, y.requires_grad


@same_as_eager(inputs=lambda: (torch.randn(3, requires_grad=True),))
def test_early_return_in_no_grad(x):
    def f(v):
        with torch.no_grad():
            if v.dim() == 1:
                return v * 2
        return v

    a = f(x)
    b = x * 2
    return a, b, torch.is_grad_enabled()


@same_as_eager(inputs=lambda: (torch.randn(3, requires_grad=True),))
def test_return_inside_no_grad(x):
    with torch.no_grad():
        for i in range(3):
            if i == 1:
                return x * 2


@same_as_eager(inputs=lambda: (torch.randn(3, requires_grad=True),))
def test_detach_and_views(x):
    a = x.detach()
    b = a.view(-1)
    c = x.data_ptr() == a.data_ptr()
    y = x * 2
    z = y[0]
    return a, b, c, y, z, y.is_leaf, x.is_leaf


@same_as_eager(inputs=lambda: (torch.randn(3, requires_grad=True),))
def test_rg_new(x):
    y = torch.zeros(3, requires_grad=True)
    w = torch.ones(3).requires_grad_()
    z = (x * y * w).sum()
    return y, z, w


@same_as_eager(inputs=lambda: (torch.randn(3, requires_grad=True),))
def test_leaf_inplace(x):
    try:
        x.add_(1)
    except RuntimeError as e:
        return str(e)


@same_as_eager(inputs=lambda: (torch.randn(3, requires_grad=True),))
def test_grad_call(x):
    y = (x**2).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    return g * 2


@same_as_eager()
def test_setitem_variants(x):
    y = x.clone()
    y[0, 1] = 7
    y[:, 2] = x[0]
    y[y > 0] = -1
    y[...] = y + 1
    y[[0, 1]] = 0
    y[torch.tensor([2])] = 5
    return y


@same_as_eager()
def test_index_variants(x):
    i = torch.tensor([0, 2])
    m = torch.tensor([True, False, True, False])
    return x[i], x[i, i], x[None], x[:, None, ...], x[-1:], x[1:, 1:], x[True], x[()]


@same_as_eager()
def test_bool_mask(x):
    return x[x > 0]


@same_as_eager()
def test_nonzero(x):
    return torch.nonzero(x > 0), (x > 0).nonzero(as_tuple=True)


@same_as_eager()
def test_scalars(x):
    a = torch.tensor(3)
    b = a.item()
    c = int(a) + 1
    d = range(int(a))
    return b, c, list(d), x + a


@same_as_eager()
def test_tensor_idx_list(x):
    l = [1, 2, 3, 4]
    i = torch.tensor(2)
    return l[i], x + 1


@same_as_eager()
def test_tensor_range(x):
    return [x * i for i in range(torch.tensor(3))]


@same_as_eager()
def test_tensor_eq_none(x):
    return x == None, x != None, (x == x).all(), x is None


@same_as_eager()
def test_in_list(x):
    return x in [x], x + 1


@same_as_eager()
def test_copying(x):
    return copy.copy([x]), copy.deepcopy([1, x + 1])


@same_as_eager()
def test_itools(x):
    return (
        list(itertools.chain([1], [2])),
        list(itertools.product([1, 2], [3])),
        functools.reduce(operator.add, [x, x]),
        list(itertools.accumulate([1, 2, 3])),
    )


@same_as_eager()
def test_typechecks(x):
    return (
        type(x) is torch.Tensor,
        isinstance(x, (int, torch.Tensor)),
        isinstance(3, int),
        isinstance(True, int),
        type(3).__name__,
        callable(len),
        callable(3),
        isinstance([], list),
        isinstance({}, dict),
        issubclass(bool, int),
        x.__class__ is torch.Tensor,
        x + 1,
    )


@same_as_eager()
def test_attrs(x):
    return (
        x.shape,
        x.T,
        x.mT,
        x.real,
        x.grad,
        x.device.type,
        x.is_cuda,
        x.dtype.is_floating_point,
        x.stride(),
        x.storage_offset(),
        x.itemsize,
        x.names,
        x.grad_fn,
        x.layout,
    )


class WithSlots:
    __slots__ = ("a", "b")

    def __init__(s):
        s.a = 1
        s.b = [2]


@same_as_eager(inputs=lambda: (torch.randn(3), WithSlots()))
def test_slots(x, o):
    o.b.append(o.a)
    o.a = o.a + 1
    return x + o.a, o.b


class Prop:
    def __init__(s):
        s._v = 1

    @property
    def v(s):
        return s._v

    @v.setter
    def v(s, n):
        s._v = n * 2

    def __setattr__(s, k, v):
        object.__setattr__(s, k, v)

    def __enter__(s):
        s._v += 1
        return s

    def __exit__(s, *a):
        s._v += 10
        return False

    def __iter__(s):
        return iter([1, 2, s._v])

    def __contains__(s, k):
        return k == s._v

    def __bool__(s):
        return s._v > 5

    def __repr__(s):
        return f"P{s._v}"

    def __eq__(s, o):
        return isinstance(o, Prop) and s._v == o._v

    __hash__ = None

    def __iadd__(s, n):
        s._v += n
        return s

    def __neg__(s):
        return -s._v

    def __lt__(s, o):
        return s._v < o._v

    def __radd__(s, o):
        return o + s._v


@same_as_eager(inputs=lambda: (torch.randn(3), Prop()))
def test_prop(x, o):
    o.v = 4
    a = o.v
    with o as q:
        b = q.v
    o += 3
    return a, b, list(o), o.v in o, bool(o), -o, 1 + o, f"{o}", x + o.v, o == o


@same_as_eager(inputs=lambda: (torch.randn(3), Prop()))
def test_prop2(x, o):
    q = Prop()
    q.v = 3
    return q < o, o < q, q, x + 1


class Desc:
    def __get__(s, o, t=None):
        return 5 if o is None else o.z * 2


class HasDesc:
    d = Desc()
    z = 3
    cp = functools.cached_property(lambda s: s.z + 1)


@same_as_eager(inputs=lambda: (torch.randn(3), HasDesc()))
def test_desc(x, o):
    return o.d, o.cp, o.cp, x + o.z, HasDesc.d


class GA:
    def __getattr__(s, n):
        if n.startswith("q"):
            return len(n)
        raise AttributeError(n)


@same_as_eager(inputs=lambda: (torch.randn(3), GA()))
def test_ga(x, o):
    return o.qq, getattr(o, "zz", 4), hasattr(o, "y"), x + 1


@same_as_eager(
    inputs=lambda: (torch.randn(3), collections.defaultdict(list), collections.deque([1]), collections.Counter("aab"))
)
def test_odd(x, d, q, c):
    d["a"].append(x + 1)
    q.append(2)
    q.popleft()
    c.update("b")
    return d, list(q), c["b"], x * 2


class Mapped:
    names = {"old": "new"}

    def __init__(self):
        self.new = 3
        self.kinds = {"a", "b"}

    def __getattribute__(self, name):
        if name != "names" and name in super().__getattribute__("names"):
            name = super().__getattribute__("names")[name]
        return super().__getattribute__(name)


@same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.randn(3), Mapped()))
def test_getattribute(x, o):
    return x + o.old + len(o.__dict__), o.new, "a" in o.kinds, "zz" in o.__dict__


class Falls(Mapped):
    def __getattribute__(self, name):
        try:
            return super().__getattribute__(name)
        except AttributeError:
            return 9


@same_as_eager(inputs=lambda: (torch.randn(3), Mapped(), Falls()))
def test_getattribute_that_finds_nothing(x, o, f):
    return x + getattr(o, "nothing", 2), hasattr(o, "no"), getattr(f, "nothing", 1), hasattr(f, "no"), f.none


@same_as_eager(inputs=lambda: (torch.randn(3), Mapped()))
def test_instance_dict_and_stores(x, o):
    a = o.__dict__
    o.new = 5
    a["more"] = x
    return o.new, o.more + 1, a


@same_as_eager()
def test_odd_made(x):
    d = collections.defaultdict(list)
    d["a"].append(x)
    q = collections.deque([1])
    q.append(2)
    return dict(d), list(q), x + 1


@same_as_eager()
def test_lambdas_sort(x):
    l = [(2, "a"), (1, "b")]
    l.sort(key=lambda t: t[0])
    return l, sorted(l, key=lambda t: t[1], reverse=True), x + 1


@same_as_eager()
def test_deep_struct(x):
    return {
        "a": [(x + i, {"b": [x - i]}) for i in range(2)],
        "s": slice(None, 3),
        "r": range(2),
        "t": torch.Size([1, 2]),
        "d": x.dtype,
        "n": None,
        "e": ...,
    }


@same_as_eager()
def test_many_prints(x):
    for i in range(2):
        print(i)
        x = x + 1
        if i:
            print("last", end="")
    print()
    return x


@same_as_eager()
def test_warn(x):
    y = x + 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("hey")
    return y


@same_as_eager()
def test_glob_random(x):
    random.seed(3)
    a = random.random()
    torch.manual_seed(4)
    b = torch.rand(2)
    return a, b, x + 1


@same_as_eager()
def test_dropout_seq(x):
    a = F.dropout(x, 0.5)
    print("")
    b = F.dropout(x, 0.5)
    c = torch.randperm(4)
    return a, b, c, torch.randn(2).tolist()


@same_as_eager()
def test_out_variants(x):
    o = torch.empty(4, 4)
    torch.mul(x, 2, out=o)
    r = torch.add(x, 1, out=o)
    return o, r is o


@same_as_eager()
def test_del_item(x):
    l = [1, 2, 3]
    del l[0]
    del l[-1:]
    d = {1: 2}
    del d[1]
    return l, d, x + 1


@same_as_eager()
def test_ifexp_chain(x):
    n = x.shape[0]
    return ("a" if n < 2 else "b" if n < 4 else "c"), x + 1, (n and 0) or "z", not n


@same_as_eager()
def test_while_else(x):
    i = 0
    while i < 3:
        i += 1
        if i == 7:
            break
    else:
        i = 100
    return x + i


@same_as_eager()
def test_tryfinally_return(x):
    def f():
        try:
            return x + 1
        finally:
            x.mul_(2)

    return f(), x


@same_as_eager()
def test_nonlocal_chain(x):
    a = 1

    def f():
        b = 2

        def g():
            nonlocal a, b
            a += 1
            b += a
            return b

        return g() + g() + b

    return f(), a, x + a


@same_as_eager()
def test_cls_inside_closure(x):
    k = 2

    class C:
        z = k

        def m(s):
            return x * k

    return C().m(), C.z


@same_as_eager()
def test_func_attrs(x):
    def f():
        return f.n

    f.n = 3
    return f(), x + 1, f.__name__


@same_as_eager()
def test_isinst_err(x):
    y = x + 1
    return int("z")


@same_as_eager()
def test_zerodiv(x):
    y = x + 1
    return y, 1 / 0


@same_as_eager()
def test_oob(x):
    y = x + 1
    return y[10]


@same_as_eager()
def test_keyerr(x):
    d = {"a": 1}
    y = x + 1
    return d["b"]


@same_as_eager()
def test_attrerr(x):
    y = x + 1
    return y.foo


@same_as_eager()
def test_noname(x):
    y = x + 1
    return undefined_name


@same_as_eager()
def test_strict_zip(x):
    return list(zip([1], [2], strict=True)), x + 1


@same_as_eager()
def test_map_two(x):
    return list(map(lambda a, b: a * b, [x, 2], [3, 4])), list(filter(lambda v: v > 1, [1, 2, 3]))


@same_as_eager()
def test_splat_kw(x):
    def f(**k):
        return sorted(k), k.get("a", x) + 1

    return f(**{"a": x, "b": 1}), f()


@same_as_eager()
def test_cmp_tensors(x):
    return (x > 0) & (x < 1) | ~(x > 2), x <= x, -x, +x, abs(x), x**2, 2**x, x // 1, x % 2, 1 - x, 1 / x, x @ x


@same_as_eager()
def test_float_ops(x):
    return (
        x * 1e-300 * 1e-300,
        float("inf") - float("inf"),
        x + float("nan"),
        math.inf,
        -math.inf,
        0.1 + 0.2,
        x * complex(1, 2),
    )


@same_as_eager()
def test_dtype_promo(x):
    return (
        x + 1,
        x.int() + 1.5,
        x.half() * 2,
        torch.tensor(1) + x,
        x.to(torch.float64) + x,
        x.bool(),
        torch.promote_types(torch.int8, torch.float16),
    )


@same_as_eager()
def test_assert_msg(x):
    assert x.shape[0] == 3, f"bad {x.shape}"


@same_as_eager()
def test_double_star(x):
    return torch.stack([x, x], **{"dim": 1}), F.pad(x, (1, 1), value=3.0)


@same_as_eager()
def test_unpack_err(x):
    a, b = x, x + 1
    (c, d), e = (1, 2), 3
    try:
        f, g = [1, 2, 3]
    except ValueError as er:
        return str(er), a + b + c + d + e


@same_as_eager()
def test_list_mult(x):
    l = [[x]] * 2
    l[0].append(1)
    return l


@same_as_eager()
def test_tensor_list_aug(x):
    l = [x, x]
    l[0] += 1
    return l, l[0] is x


@same_as_eager()
def test_dict_tensor_aug(x):
    d = {"a": x}
    d["a"] *= 2
    d["n"] = d.get("n", 0) + 1
    return d


@same_as_eager()
def test_global_fn_recursive(x):
    return fib(6) + x


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


@same_as_eager()
def test_inplace_on_view_then_return(x):
    y = x * 1
    v = y[1:]
    v.zero_()
    return y


@same_as_eager()
def test_set_ops(x):
    s = {1, 2} | {3}
    t = s & {1}
    u = s - {1}
    s.discard(2)
    return s, t, u, x + 1, 1 in s, len(s), s == {1, 3}, sorted(s)


@same_as_eager()
def test_bytes_fmt(x):
    return b"a%d" % 3, "a".encode(), x + 1


@same_as_eager()
def test_lambda_default_tensor(x):
    f = lambda v=x + 1: v * 2
    return f(), f(x)


@same_as_eager()
def test_multi_ret(x):
    for i in range(3):
        for j in range(3):
            if i * j == 2:
                return x + i * 10 + j


@same_as_eager(inputs=lambda: (torch.randn(3), 3, 2.5, True, "s", None, (1, [2])))
def test_many_args(x, n, f, b, s, z, t):
    if b and s == "s" and z is None:
        x = x * n + f
    return x, t[1][0] + n, s.upper()


@same_as_eager(inputs=lambda: (torch.randn(2, 0), torch.randn(())))
def test_empty_and_zero_dim(x, s):
    return x.sum(), x.shape, s * 2, torch.cat([x, x]), s.unsqueeze(0), [r for r in x]


@same_as_eager(inputs=lambda: (torch.randn(3).expand(2, 3), torch.randn(4, 4).t(), torch.randn(4)[::2]))
def test_strided_inputs(a, b, c):
    return a + 1, b * 2, c.sum(), b.contiguous(), a.stride(), b.t()


@same_as_eager(inputs=lambda: (torch.randint(0, 5, (4,)), torch.randn(3).bool(), torch.randn(2, dtype=torch.complex64)))
def test_dtypes(a, b, c):
    return a + 1, a / 2, a // 2, b & b, ~b, c * 2, c.conj(), c.abs(), torch.view_as_real(c)
