# mypy: ignore-errors
# ruff: noqa
"""Iterators, attributes and hooks from outside that a program uses up, deletes and sets again."""

from torch import nn
import itertools
import random
import torch

from tests.sweeps.snippets.corpus import program

XI = lambda make: lambda: (torch.randn(4, 4), make())


class P:
    def __init__(s):
        s.a = 1
        s.b = 2
        s.c = 3


@program(*[lambda: (torch.randn(3), P())] * 2)
def moved2(x, p):
    del p.b
    p.d = 4
    p.b = x * 2
    del p.b
    p.b = 7
    del p.a
    return x * p.b, p, list(p.__dict__)


@program(*[lambda: (torch.randn(3), P())] * 2)
def moved3(x, p):
    p.z = 1
    del p.z
    p.y = 3
    p.z = 2
    del p.c
    del p.z
    p.c = x
    return p, list(p.__dict__.items())


@program(*[lambda: (torch.randn(3), nn.ReLU())] * 2)
def moved_module(x, m):
    m.q = 1
    del m.q
    m.r = 3
    m.q = x
    del m.inplace
    m.inplace = False
    return m(x), list(vars(m))[-3:]


@program(*[lambda: (torch.randn(3), nn.ReLU())] * 2)
def del_missing(x, m):
    try:
        del m.nope
    except AttributeError as e:
        return x * 2, str(e)


@program(*[lambda: (torch.randn(3), P())] * 2)
def del_missing2(x, m):
    del m.a
    try:
        del m.a
    except AttributeError as e:
        return x * 2, str(e)


class D:
    def __set_name__(s, o, n):
        s.n = "_" + n

    def __get__(s, o, t=None):
        return s if o is None else getattr(o, s.n, 1.0)

    def __set__(s, o, v):
        setattr(o, s.n, v)

    def __delete__(s, o):
        delattr(o, s.n)


class W(nn.Module):
    t = D()

    @property
    def u(self):
        return self._u

    @u.setter
    def u(self, v):
        self._u = v

    @u.deleter
    def u(self):
        del self._u

    @property
    def ro(self):
        return 1


@program(*[lambda: (torch.randn(3), W())] * 2)
def desc_module(x, m):
    m.t = x * 2
    y = m.t
    del m.t
    m.u = 3
    del m.u
    m.u = x
    try:
        m.ro = 2
    except AttributeError as e:
        return y, str(e), m.t


IT = iter([1, 2, 3, 4, 5, 6, 7, 8, 9])


class H:
    def __init__(s):
        s.it = iter([1, 2, 3])
        s.ids = itertools.count(5, 2)
        s.l = [1, 2, 3]
        s.li = iter(s.l)


@program(*[XI(H)] * 2)
def held(x, h):
    a = next(h.it)
    b = list(h.it)
    return x * a, b, next(h.it, None), next(h.ids), next(h.ids), h


@program(*[XI(H)] * 2)
def same_list(x, h):
    a = next(h.li)
    h.l[0] = 7
    return x * a, h


@program(*[XI(lambda: iter([torch.ones(4), torch.zeros(4)]))] * 2)
def tensors(x, it):
    return x * next(it) + next(it), next(it, 3), next(it, 4)


O = object()


@program(*[XI(lambda: iter([O, O, 1]))] * 2, grad=False)
def objects(x, it):
    return next(it) is O, next(it) is O, sum(it)


@program(*[XI(lambda: iter((1, 2, 3, 4, 5)))] * 2)
def looped(x, it):
    for a in it:
        x = x * a
        if a == 3:
            break
    else:
        return x
    return x, list(it)


@program(*[XI(lambda: iter(range(6)))] * 2)
def zipped(x, it):
    return x, list(zip(it, it)), list(it)


@program(*[XI(lambda: iter(range(6)))] * 2)
def contains(x, it):
    return x * (3 in it), list(it)


@program(*[XI(lambda: iter(range(1)))] * 2)
def stop(x, it):
    next(it)
    try:
        next(it)
    except StopIteration as e:
        return x * 2, e.args


@program(*[XI(lambda: iter([]))] * 2)
def empty(x, it):
    return x * 2, list(it)


@program(*[XI(lambda: iter(()))] * 2)
def empty2(x, it):
    return x * 2, list(it)


@program(*[XI(lambda: iter([[1], [2]]))] * 2)
def lists(x, it):
    next(it).append(3)
    return x * next(it)[0]


C = itertools.count()


@program(*[XI(lambda: itertools.count(random.randint(0, 100)))] * 5)
def counts(x, c):
    return x * next(c)


@program(*[XI(lambda: itertools.count(1.5))] * 2)
def count_f(x, c):
    return x * next(c)


@program(*[XI(lambda: iter([random.randint(0, 100)]))] * 5)
def ints(x, c):
    return x * next(c)


@program(*[XI(lambda: H())] * 2)
def passed_on(x, h):
    it = h.it
    next(it)
    return x * 2, it


@program(*[XI(lambda: H())] * 2)
def islice(x, h):
    return (
        x * 2,
        list(itertools.islice(h.it, 2)),
        list(itertools.islice(h.ids, 2)),
        [a for a, _ in zip(h.ids, range(2))],
        h.ids,
    )


@program(*[lambda: (nn.Linear(4, 4), torch.randn(2, 4))] * 2)
def post_acc_mul(m, x):
    def hook(p):
        p.grad.mul_(2)

    m.weight.register_post_accumulate_grad_hook(hook)
    return m(x)


@program(*[lambda: (nn.Linear(4, 4), torch.randn(2, 4))] * 2)
def removed(m, x):
    h = m.weight.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(2))
    g = m.bias.register_hook(lambda g: g * 3)
    y = m(x)
    h.remove()
    h.remove()
    return y


@program(*[lambda: (nn.Linear(4, 4), torch.randn(2, 4))] * 2)
def several(m, x):
    hs = [p.register_hook(lambda g, k=k: g * k) for k, p in enumerate(m.parameters())]
    hs[1].remove()
    return m(x)
