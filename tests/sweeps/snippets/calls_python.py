# mypy: ignore-errors
# ruff: noqa
"""What Python does with sizes and plain arguments that change from call to call."""

from collections import OrderedDict, defaultdict, deque, Counter, ChainMap
from dataclasses import dataclass, field, InitVar
from torch import Tensor
from typing import Optional, Generic, TypeVar, ClassVar
import dataclasses
import functools
import itertools
import logging
import math
import numpy as np
import operator as op
import torch
import torch.nn.functional as F

from tests.sweeps.snippets.corpus import each, program, sizes

X = lambda *tail: sizes(lambda n: (torch.randn(n, *tail),))


@program(*X(4))
def int_ops(x):
    n = x.shape[0]
    q, r = divmod(n + 5, 2)
    return x.sum() * q + r + (n << 1) + (n >> 1) + (n & 3) + (n | 4) + (n ^ 1) + abs(-n) + pow(n, 2) + round(n / 2)


@program(*X(4))
def math_ops(x):
    n = x.shape[0]
    return x * (
        math.ceil(n / 2)
        + math.floor(n / 3)
        + math.sqrt(n)
        + math.log(n)
        + math.gcd(4, 2)
        + math.prod(x.shape)
        + math.hypot(n, 2)
    )


@program(*X(4))
def math_int(x):
    n = x.shape[0]
    return x * (math.isqrt(16) + math.comb(5, 2) + n.bit_length())


@program(*X(4))
def minmax(x):
    n, m = x.shape
    return x[: min(n, 4)], x * max(n, m, 2), max(x.shape), min(x.shape, default=1), sorted(x.shape)[0] * x


@program(*X(4))
def sum_shape(x):
    return x * sum(x.shape) + sum(s * 2 for s in x.shape) + len(x) + x.numel() + x.nelement() + x.dim() + x.stride(0)


@program(*X(4))
def any_all(x):
    return x if any(s == 1 for s in x.shape) else x * 2 if all(s > 2 for s in x.shape) else x * 3


@program(*X(4))
def size_in_dict(x):
    d = {"rows": x.shape[0], "cols": x.shape[1]}
    d.update(total=d["rows"] * d["cols"])
    return x * d["total"], d


@program(*X(4))
def float_of(x):
    return x / float(x.shape[0]) + int(x.shape[0] * 0.5) + x * (x.size(0) ** -0.5) + 1 / x.shape[-2]


@program(*X(4))
def range_loop_sizes(x):
    y = x
    for i in range(0, x.shape[1], 2):
        y = y + x[:, i : i + 2].sum() * x.shape[0]
    return y


@program(*X(6))
def slices(x):
    n = x.shape[0]
    s = slice(None, n // 2)
    return x[s], x[n // 2 :], x[-(n - 1) :], x[::2], x[n - 1], x[s.stop :]


@program(*X(6))
def view_neg(x):
    return (
        x.view(-1, 2, 3),
        x.reshape(x.size(0) * 2, -1),
        x.unflatten(-1, (2, -1)),
        x.flatten(),
        x.T.reshape(3, -1),
        x.expand(2, *x.shape),
    )


@program(*X(6))
def split_sizes(x):
    n = x.shape[0]
    a, b = x.split([1, n - 1])
    c = x.chunk(2)
    return a, b, [t.sum() for t in c], x.tensor_split(2)[1]


@program(*X(6))
def pad_to(x):
    n = x.shape[0]
    m = 8 * ((n + 7) // 8)
    return F.pad(x, (0, 0, 0, m - n)), -n % 8


@program(*X(6))
def arange_sizes(x):
    n = x.shape[0]
    i = torch.arange(n)
    return (
        x[i],
        x[i.flip(0)],
        torch.arange(n, 0, -1)[:, None] * x,
        torch.linspace(0, 1, n)[:, None] * x,
        torch.eye(n) @ x,
    )


@program(*X(6))
def make_new(x):
    return (
        x.new_zeros(x.shape),
        torch.zeros(x.size(0), 2),
        x.new_full((len(x),), 3.0),
        torch.empty(*x.shape, 3).fill_(1),
        torch.ones(x.shape[:-1] + (2,)),
    )


@program(*X(6))
def shape_tuple_ops(x):
    s = x.shape
    return (
        x.reshape(s[::-1]),
        x.reshape(*s[:-1], 3, -1),
        (*s, 1),
        s + (1,),
        s[:1] * 2,
        list(s),
        s.numel(),
        torch.Size([*s, 2]),
    )


@program(*X(6))
def shape_compare(x):
    if x.shape == (5, 6):
        return x * 5
    if x.shape[0] > 5 and x.shape != torch.Size([6, 6]):
        return x * 7
    return x


@program(*X(6))
def shape_key(x):
    table = {3: 1.0, 4: 2.0}
    return x * table.get(x.shape[0], 0.5)


@program(*X(6))
def fmt_shape(x):
    if x.ndim != 2:
        raise ValueError(f"bad {tuple(x.shape)}")
    assert x.shape[-1] == 6, f"expected 6, got {x.shape[-1]} for {x.shape!r}"
    return x * 2


@program(*X(6))
def isinst(x):
    n = x.shape[0]
    assert isinstance(n, int) and not isinstance(n, bool) and type(n) is int
    return x * n, isinstance(x.shape, tuple), isinstance(x, (Tensor, np.ndarray)), issubclass(type(x.shape), tuple)


@program(*each(lambda v: (torch.randn(4, 6), v), (0, 1, 2, -1, -2)))
def dim_arg(x, d):
    d = d if d >= 0 else d + x.ndim
    d = min(d, 1)
    return x.softmax(d), x.sum(d, keepdim=True), x.size(d)


@program(*each(lambda v: (torch.randn(4, 6), v), (0.1, 0.2, 0.5, 0.7, 0.9)))
def float_arg(x, p):
    return F.leaky_relu(x, p) + x.clamp(-p, p) * p + (p > 0.3) * x + x.lerp(x * 2, p) + math.exp(p)


@program(*each(lambda v: (torch.randn(4, 6), v), (True, False, True, False)))
def bool_arg(x, f):
    return (x if f else -x) * (1 + f) + int(not f)


@program(*each(lambda v: (torch.randn(4, 6), v), ("mean", "sum", "none", "mean")))
def str_arg(x, r):
    return F.mse_loss(x, x * 2, reduction=r), {"mean": torch.mean, "sum": torch.sum}.get(r, lambda t: t)(x), r.upper()


@program(*each(lambda v: (torch.randn(4, 6), v), (None, 2, None, 3)))
def opt_arg(x, k: Optional[int] = None):
    return x * (k or 1) + (0 if k is None else k)


@program(*each(lambda v: (torch.randn(4, 6), v), ((1, 2), (2, 3), (3, 4), (4, 5))))
def tuple_arg(x, ab):
    a, b = ab
    return x * a + b


@program(*each(lambda v: (torch.randn(4, 6), v), ([1, 2], [2, 3], [3, 4], [1, 2, 3])))
def list_arg(x, l):
    return sum(x * i for i in l)


@program(*each(lambda v: (torch.randn(4, 6), v), ({"a": 1}, {"a": 2}, {"a": 3}, {"a": 3, "b": 4})))
def dict_arg(x, d):
    return {k: x * v for k, v in d.items()}


@program(*each(lambda v: (torch.randn(4, 6), v), (torch.float32, torch.float64, torch.bfloat16, torch.float32)))
def dtype_arg(x, d):
    return x.to(d) * torch.finfo(d).eps


@program(*each(lambda v: (torch.randn(v, 4), torch.randn(v, 4)), (1, 2, 3, 4, 5)))
def one_then_more(a, b):
    return a + b, (a * b).squeeze(0).shape


@program(*each(lambda v: (torch.randn(v, 4),), (0, 1, 2, 3, 4)))
def zero_then_more(a):
    return a * 2, a.sum(0), len(a) == 0


@program(*each(lambda v: ([torch.randn(i + 2, 3) for i in range(v)],), (1, 2, 3, 4)))
def list_len(ts):
    return torch.cat(ts), [t.shape[0] for t in ts], len(ts)


@program(*each(lambda v: (torch.randn(4, 3, v), torch.randn(4, v, 3)), (2, 3, 4, 5, 6)))
def two_sizes(a, b):
    return a @ b, torch.bmm(a, b).shape, torch.einsum("bij,bjk->bik", a, b)


@program(*each(lambda v: (torch.randn(v, v + 1), torch.randn(v + 1, v)), (2, 3, 4, 5, 6)))
def related_sizes(a, b):
    return a @ b, torch.cat([a, b.T]), a.shape[0] + 1 == b.shape[0]


@program(*each(lambda v: (torch.randn(2, v, 8), torch.ones(2, v, dtype=torch.bool)), (3, 4, 5, 6, 7)))
def sdpa(x, m):
    q = x.view(2, -1, 2, 4).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q, attn_mask=m[:, None, None]).transpose(1, 2).flatten(2)


@program(*each(lambda v: (torch.randn(2, 3, v, v),), (4, 5, 6, 7, 8)))
def conv_sizes(x):
    return (
        F.conv2d(x, torch.ones(2, 3, 3, 3), padding=1),
        F.max_pool2d(x, 2),
        F.interpolate(x, scale_factor=2.0),
        F.adaptive_avg_pool2d(x, 2),
        F.unfold(x, 3).shape,
    )


@program(*each(lambda v: (torch.randn(2, v), v), (4, 5, 6, 7, 8)))
def topk_k(x, v):
    k = max(1, v // 2)
    return x.topk(k)[0], x.sort(-1)[0][:, :k], x.kthvalue(k)[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Spec:
    dim: int
    mult: float = 2.0
    names: tuple = ("a", "b")
    MAX: ClassVar[int] = 9

    def scaled(self):
        return dataclasses.replace(self, dim=int(self.dim * self.mult))

    def __post_init__(self):
        if self.dim > self.MAX * 10:
            raise ValueError("dim")


@program(*each(lambda v: (torch.randn(4, 6), Spec(dim=v)), (2, 3, 4, 5)))
def frozen_spec(x, s):
    t = s.scaled()
    return x * t.dim, t, s == t, hash(s) == hash(t), dataclasses.asdict(t)


@dataclass
class Batch:
    x: Tensor
    y: Optional[Tensor] = None
    meta: dict = field(default_factory=dict)
    n: int = field(init=False, default=0)
    scale: InitVar[float] = 1.0

    def __post_init__(self, scale):
        self.n = len(self.x)
        self.x = self.x * scale

    def to(self, dtype):
        return type(self)(
            *(None if v is None else v.to(dtype) for v in (self.x, self.y)), {**self.meta, "dtype": str(dtype)}
        )

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return Batch(self.x[i], None if self.y is None else self.y[i], self.meta)

    def __iter__(self):
        yield from (self[i : i + 2] for i in range(0, len(self), 2))


@program(*sizes(lambda n: (torch.randn(n, 4),)))
def batches(x):
    b = Batch(x, x * 2, scale=2.0).to(torch.float64)
    return [(c.x, c.y, len(c)) for c in b], b.meta, len(b)


T_ = TypeVar("T_")


class Reg(Generic[T_]):
    items: dict[str, type] = {}

    def __init_subclass__(cls, *, name=None, **kw):
        super().__init_subclass__(**kw)
        Reg.items[name or cls.__name__.lower()] = cls

    @classmethod
    def build(cls, name, *a, **k):
        return cls.items[name](*a, **k)

    def __class_getitem__(cls, k):
        return super().__class_getitem__(k)


class Relu(Reg[int], name="relu"):
    def __init__(self, s=1.0):
        self.s = s

    def __call__(self, x):
        return x.relu() * self.s


class Tanh(Reg[int]):
    __call__ = staticmethod(lambda x: x.tanh())


class Tree:
    def __init__(self, v, *kids):
        self.v = v
        self.kids = kids

    def walk(self):
        yield self.v
        for k in self.kids:
            yield from k.walk()

    def map(self, f):
        return Tree(f(self.v), *[k.map(f) for k in self.kids])


@program(*sizes(lambda n: (torch.randn(n, 4),)))
def trees(x):
    t = Tree(x, Tree(x * 2, Tree(x * 3)), Tree(x * 4)).map(torch.sin)
    vs = list(t.walk())
    return functools.reduce(op.add, vs), len(vs)


def gen_send():
    total = 0
    got = yield
    while got is not None:
        total = total + got
        got = yield total
    return total


@program(*sizes(lambda n: (torch.randn(n, 4),)))
def coroutine(x):
    g = gen_send()
    next(g)
    a = g.send(x)
    b = g.send(x * 2)
    try:
        g.send(None)
    except StopIteration as e:
        return a, b, e.value


@functools.singledispatch
def enc(o, **k):
    raise TypeError(type(o).__name__)


@enc.register
def _(o: int, **k):
    return torch.tensor(float(o))


@enc.register(list)
@enc.register(tuple)
def _(o, **k):
    return torch.stack([enc(i, **k) for i in o])


@enc.register
def _(o: torch.Tensor, *, scale=1.0):
    return o.mean() * scale


@program(*sizes(lambda n: (torch.randn(n, 4), n)))
def dispatch(x, n):
    return enc([x, (n, n + 1)][0], scale=2.0), enc((x, x)), enc([n, 1])


class PM:
    def op(self, kind, x):
        return getattr(x, kind)() * self.k

    sin = functools.partialmethod(op, "sin")
    cos = functools.partialmethod(op, "cos")
    k = 2.0


@program(*sizes(lambda n: (torch.randn(n, 4),)))
def partial_methods(x):
    p = PM()
    return p.sin(x) + p.cos(x)


@program(*sizes(lambda n: (torch.randn(n, 4), n)))
def coll(x, n):
    c = Counter("abca")
    c.update(a=n)
    cm = ChainMap({"k": n}, {"k": 1, "j": 2})
    dd = defaultdict(list)
    for i, r in enumerate(x.unbind(1), start=1):
        dd[i % 2].append(r)
    od = OrderedDict(a=1, b=2)
    od.move_to_end("a")
    dq = deque([1, 2, 3], maxlen=3)
    dq.append(n)
    dq.rotate(1)
    return (
        [torch.stack(v) for v in dd.values()],
        c.most_common(1)[0][0],
        cm["k"] * x,
        list(od),
        x * dq[0],
        {1, 2} & {2, n},
    )


@program(*sizes(lambda n: (torch.randn(n, 4), "a_%d" % n)))
def strings(x, s):
    k, _, v = s.partition("_")
    return (
        x * int(v),
        k.title(),
        s.split("_"),
        "{:>5}|{!r}".format(k, v),
        s.replace("a", "b"),
        f"{int(v):02d}{s=}",
        s[::-1],
        "_".join(sorted(s)),
        s.startswith(("a", "b")),
    )


@program(*sizes(lambda n: (torch.randn(n, 4),)))
def walrus_comp(x):
    return [y for t in x.unbind(1) if (y := t * 2).ndim == 1], {i: (z := t.sum()) for i, t in enumerate(x.T)}, z


@program(*sizes(lambda n: (torch.randn(n, 4),)))
def star_all(x):
    def f(a, /, b, *c, d=1, **e):
        return a * b + sum(c) * d + sum(e.values())

    first, *mid, last = x.unbind(1)
    args = (last, 2)
    return f(first, *args, *mid, d=3, **{"q": 1, **dict(w=2)}), [*mid, *args], {**{"a": first}, "b": last}


@program(*sizes(lambda n: (torch.randn(n, 4), n)))
def loops_else(x, n):
    for i in itertools.count(1):
        if i * i > n:
            break
        if i == 100:
            continue
        x = x + i
    else:
        x = x * 0
    while n > 3:
        n -= 1
        x = x * 1.5
    else:
        x = x + 1
    return x, n


@program(*sizes(lambda n: (torch.randn(n, 4),)))
def locals_globals(x):
    a = x * 2
    b = 3
    d = dict(locals())
    return d["a"] * d["b"], sorted(k for k in d if k != "d"), "sizes" in globals(), callable(globals()["sizes"])


_log = logging.getLogger("q")
_log.setLevel(logging.ERROR)


_log = logging.getLogger("q")
_log.setLevel(logging.ERROR)


@program(*sizes(lambda n: (torch.randn(n, 4),)))
def logs(x):
    _log.debug("shape %s", x.shape)
    if _log.isEnabledFor(logging.INFO):
        _log.info(f"{x.mean()}")
    return x * 2


class Divided:
    def __init__(self, k):
        self.k = k

    def __divmod__(self, x):
        return x // self.k, x

    def __rdivmod__(self, x):
        return self.k, x


@program(*sizes(lambda n: (torch.randn(n, 4), Divided(2), n)))
def divmod_of_objects(x, d, n):
    return divmod(d, x), divmod(3, d), divmod(n, d), x * sum(divmod(n, 2))


@program(*X(4))
def numpy_arange(x):
    ranges = [
        (0, 1, 0.1),
        (0.3, 2, 0.1),
        (-1.7, 3.3, 0.37),
        (5.5,),
        (1.5, 9.25),
        (3, -2, -0.3),
        (9, 1, -3),
        (1, 2, 4.0),
    ]
    narrow = [np.arange(0.3, 2, 0.1, dtype=np.float32), np.arange(0.5, 4, 1.5, dtype=np.int64)]
    found = [torch.from_numpy(a) for a in [*(np.arange(*r) for r in ranges), *narrow]]
    return found, torch.from_numpy(np.arange(x.shape[0]))[:, None] * x, np.arange(3, 1).shape, np.arange(-3).shape


@program(*each(lambda n: (torch.randn(3), n), (3, 2, -1, 0, 7)))
def numpy_arange_of_an_argument(x, n):
    return x.sum() * torch.from_numpy(np.arange(n) * 1.5), x.sum() * torch.from_numpy(np.arange(1, n + 4) * 1.5)


@program(lambda: (torch.randn(9),))
def numpy_linspace(x):
    ranges = [(-1.3, 7, 9), (2, 2, 9), (0, 5, 1), (1, 10, 9)]
    found = [torch.from_numpy(np.linspace(*r)) * x for r in ranges]
    return found, torch.from_numpy(np.linspace(0, -5.7, 4, dtype=np.int64)), np.linspace(0, 1, 5, dtype=np.float32)
