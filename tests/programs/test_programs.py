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

import torch

from compiler_core.tools.testing import same_as_eager


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
def test_copying(x):
    return copy.copy([x]), copy.deepcopy([1, x + 1])


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


@same_as_eager(inputs=lambda: (torch.randn(3), Mapped()))
def test_instance_dict_and_stores(x, o):
    a = o.__dict__
    o.new = 5
    a["more"] = x
    return o.new, o.more + 1, a


@same_as_eager()
def test_attrerr(x):
    y = x + 1
    return y.foo


@same_as_eager()
def test_noname(x):
    y = x + 1
    return undefined_name


@same_as_eager()
def test_unpack_err(x):
    a, b = x, x + 1
    (c, d), e = (1, 2), 3
    try:
        f, g = [1, 2, 3]
    except ValueError as er:
        return str(er), a + b + c + d + e
