# mypy: ignore-errors
# ruff: noqa
"""Models, losses, samplers and optimizers that are called with other sizes and other plain arguments."""

from collections import OrderedDict, defaultdict, deque, namedtuple
from torch import nn, Tensor
from typing import Optional, Union, NamedTuple
from typing import Optional, Union, NamedTuple, Protocol, Callable
import abc
import collections
import contextlib
import dataclasses
import enum
import functools
import inspect
import itertools
import math
import operator as op
import torch
import torch.nn.functional as F
import types

from tests.sweeps.snippets.corpus import program, sizes


@dataclasses.dataclass
class Config:
    hidden: int = 8
    heads: int = 2
    layers: int = 2
    act: str = "gelu"
    dropout: float = 0.0
    use_cache: bool = True
    rope: Optional[dict] = None

    @property
    def head_dim(self):
        return self.hidden // self.heads


ACT2FN = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu}


@dataclasses.dataclass
class ModelOutput:
    last: Tensor
    hidden: Optional[tuple] = None
    past: Optional[list] = None

    def to_tuple(self):
        return tuple(getattr(self, f.name) for f in dataclasses.fields(self) if getattr(self, f.name) is not None)

    def __getitem__(self, i):
        return self.to_tuple()[i]


class Attn(nn.Module):
    def __init__(self, cfg, idx):
        super().__init__()
        self.cfg = cfg
        self.idx = idx
        self.qkv = nn.Linear(cfg.hidden, 3 * cfg.hidden)
        self.o = nn.Linear(cfg.hidden, cfg.hidden)

    def forward(self, x, mask: Optional[Tensor] = None, past: Optional[list] = None, **kwargs):
        B, T, _ = x.shape
        q, k, v = (t.view(B, T, self.cfg.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        if past is not None:
            if len(past) > self.idx:
                pk, pv = past[self.idx]
                k = torch.cat([pk, k], 2)
                v = torch.cat([pv, v], 2)
                past[self.idx] = (k, v)
            else:
                past.append((k, v))
        w = q @ k.mT / math.sqrt(self.cfg.head_dim)
        if mask is not None:
            w = w + mask[..., : w.shape[-1]]
        w = w.softmax(-1, dtype=torch.float32).to(q.dtype)
        out = self.o((w @ v).transpose(1, 2).reshape(B, T, -1))
        return (out, w) if kwargs.get("output_attentions", False) else (out,)


class Block(nn.Module):
    def __init__(self, cfg, i):
        super().__init__()
        self.attn = Attn(cfg, i)
        self.n1 = nn.LayerNorm(cfg.hidden)
        self.n2 = nn.LayerNorm(cfg.hidden)
        self.mlp = nn.Sequential(
            OrderedDict(up=nn.Linear(cfg.hidden, 16), act=nn.Identity(), down=nn.Linear(16, cfg.hidden))
        )
        self.act = ACT2FN[cfg.act]

    def forward(self, x, **kw):
        a, *rest = self.attn(self.n1(x), **kw)
        x = x + a
        return (x + self.mlp.down(self.act(self.mlp.up(self.n2(x)))), *rest)


class Model(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.layers = nn.ModuleList(Block(cfg, i) for i in range(cfg.layers))

    def forward(self, x, mask=None, past=None, output_hidden=None, return_dict=None, **kw):
        output_hidden = output_hidden if output_hidden is not None else getattr(self.cfg, "output_hidden", False)
        return_dict = return_dict if return_dict is not None else True
        hs = () if output_hidden else None
        atts = ()
        for i, l in enumerate(self.layers[: self.cfg.layers]):
            if output_hidden:
                hs += (x,)
            out = l(x, mask=mask, past=past, **kw)
            x = out[0]
            if len(out) > 1:
                atts += (out[1],)
        if not return_dict:
            return tuple(v for v in (x, hs, past, atts) if v is not None)
        return ModelOutput(x, hs, past)


M = Model(Config())


@program(*sizes(lambda n: (torch.randn(2, n, 8),)))
def tf_plain(x):
    return M(x).to_tuple()


@program(*sizes(lambda n: (torch.randn(2, n, 8), n % 2 == 0)))
def tf_flags(x, flag):
    return M(x, output_hidden=flag, return_dict=not flag, output_attentions=flag)[0]


@program(*sizes(lambda n: (torch.randn(1, n, 8),)))
def tf_cache(x):
    past = []
    out = M(x, past=past)
    out2 = M(out[0][:, -1:], past=past)
    return out2[0], [k.shape for k, v in past]


@program(
    *sizes(
        lambda n: (torch.randn(1, n, 8), [(torch.randn(1, 2, 2 * n, 4), torch.randn(1, 2, 2 * n, 4)) for _ in range(2)])
    )
)
def tf_cache_outside(x, past):
    return M(x, past=past)


class StaticCache:
    __slots__ = ("k", "v", "pos")

    def __init__(self, n):
        self.k = torch.zeros(1, n, 4)
        self.v = torch.zeros(1, n, 4)
        self.pos = 0

    def update(self, k, v):
        t = k.shape[1]
        self.k[:, self.pos : self.pos + t] = k.detach()
        self.v[:, self.pos : self.pos + t] = v.detach()
        self.pos += t
        return self.k[:, : self.pos], self.v[:, : self.pos]


@program(*sizes(lambda n: (torch.randn(1, n, 4), StaticCache(16))))
def slots_cache(x, c):
    a, b = c.update(x, x * 2)
    a2, b2 = c.update(x[:, :1], x[:, :1])
    return a2.sum() + b2.sum() + x.sum(), c.pos


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


class Rope(nn.Module):
    inv_freq: Tensor

    def __init__(self, dim, base=10000.0, cfg=None):
        super().__init__()
        self.register_buffer("inv_freq", 1 / base ** (torch.arange(0, dim, 2).float() / dim), persistent=False)
        self.max_seen = 0

    @torch.no_grad()
    def forward(self, x, pos):
        f = torch.einsum("i,j->ij", pos.float(), self.inv_freq)
        e = torch.cat((f, f), -1)
        return e.cos()[None].to(x.dtype), e.sin()[None].to(x.dtype)


R = Rope(8)


@program(*sizes(lambda n: (torch.randn(2, n, 8),)))
def rope(x):
    c, s = R(x, torch.arange(x.shape[1], device=x.device))
    return x * c + rotate_half(x) * s


class DynRope(Rope):
    def forward(self, x, pos):
        n = x.shape[1]
        if n > self.max_seen:
            self.max_seen = n
            self.register_buffer("cached", pos.float()[:, None] * self.inv_freq, persistent=False)
        return self.cached[:n].cos()


@program(*sizes(lambda n: (torch.randn(2, n, 8), DynRope(8))))
def rope_dynamic(x, r):
    return r(x, torch.arange(x.shape[1]))


@program(*sizes(lambda n: (torch.randn(2, n), n)))
def causal_mask(x, n):
    T = x.shape[1]
    min_ = torch.finfo(x.dtype).min
    m = torch.full((T, T + 1), fill_value=min_, dtype=x.dtype)
    m = torch.triu(m, diagonal=1) if T != 1 else m
    m *= torch.arange(T + 1) > n - 3
    return m[None, None].expand(x.shape[0], 1, -1, -1) + x[:, None, None, :1]


REG = {}


def register(name=None):
    def deco(f):
        @functools.wraps(f)
        def inner(*a, **k):
            return f(*a, **k)

        REG[name or f.__name__] = inner
        return inner

    return deco


@register()
def mse(p, t, *, reduction="mean"):
    return getattr((p - t).square(), reduction)()


@register("huber")
def huber(p, t, delta=1.0, **kw):
    d = (p - t).abs()
    return torch.where(d < delta, 0.5 * d * d, delta * (d - 0.5 * delta)).mean()


@program(
    *[
        lambda n=n: (torch.randn(n, 4), torch.randn(n, 4), k)
        for n, k in zip((3, 4, 5, 6, 7), ("mse", "huber", "mse", "huber", "mse"))
    ]
)
def registry(p, t, kind):
    return REG[kind](p, t)


@program(*[lambda n=n: (torch.randn(n, 4), torch.randn(n, 4), 0.1 * n) for n in (3, 4, 5, 6, 7)])
def kw_plumb(p, t, w):
    losses = {k: f(p, t) for k, f in REG.items()}
    losses["total"] = sum(w * v for v in losses.values())
    return {k: v for k, v in sorted(losses.items(), key=lambda kv: kv[0])}


def timed(fn=None, *, scale=1.0):
    if fn is None:
        return functools.partial(timed, scale=scale)

    def w(self, *a, **k):
        return fn(self, *a, **k) * scale * self.gain

    w.calls = 0
    return w


class Deco(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(4))

    @timed
    def a(self, x):
        return x.sin()

    @timed(scale=2.0)
    def b(self, x, p=1):
        return x**p

    def forward(self, x, *a, **k):
        return self.a(x) + self.b(x, *a, **k)


D = Deco()


@program(*sizes(lambda n: (torch.randn(n, 4), n)))
def deco_methods(x, p):
    return D(x, p=p)


class Mode(enum.Enum):
    MEAN = "mean"
    MAX = "max"
    CLS = "cls"

    @classmethod
    def parse(cls, s):
        return cls(s) if isinstance(s, str) else s

    def __call__(self, x):
        match self:
            case Mode.MEAN:
                return x.mean(1)
            case Mode.MAX:
                return x.amax(1)
            case _:
                return x[:, 0]


@program(
    *[
        lambda n=n, m=m: (torch.randn(2, n, 4), m)
        for n, m in ((3, "mean"), (4, "max"), (5, Mode.CLS), (6, "mean"), (7, Mode.MAX))
    ]
)
def enum_call(x, m):
    return Mode.parse(m)(x)


class Flag(enum.IntFlag):
    N = 0
    FLIP = 1
    NORM = 2
    ALL = 3


@program(*[lambda n=n: (torch.randn(2, n + 1, 4), Flag(n)) for n in range(4)])
def intflag(x, f):
    if f & Flag.FLIP:
        x = x.flip(-1)
    if Flag.NORM in f:
        x = F.normalize(x, dim=-1)
    return x


@program(
    *[lambda v=v: (torch.randn(3, 4), v) for v in (1, 2.5, "relu", (2, 3), {"op": "add", "by": 3}, [0.1, 0.2], None)]
)
def match_many(x, spec):
    match spec:
        case None:
            return x
        case int() as k if k > 1:
            return x * k
        case int(k):
            return x - k
        case float():
            return x / spec
        case str(name):
            return getattr(torch, name)(x)
        case (a, b):
            return x * a + b
        case {"op": "add", "by": by, **rest}:
            return x + by + len(rest)
        case [first, *others]:
            return x * first + sum(others)


class Pt(NamedTuple):
    x: Tensor
    y: Tensor
    tag: str = "p"

    @property
    def norm(self):
        return (self.x**2 + self.y**2).sqrt()

    def shift(self, d):
        return self._replace(x=self.x + d)


@program(*sizes(lambda n: (Pt(torch.rand(n), torch.rand(n)), n * 0.5)))
def named_tuple(p, d):
    q = p.shift(d)
    x, y, *_ = q
    match q:
        case Pt(x=a, tag="p"):
            return q.norm + a, q._asdict(), x + y, q._fields
    return None


class Base(abc.ABC, nn.Module):
    def __init__(self, *, dim, **kw):
        super().__init__(**kw)
        self.dim = dim
        self.proj = nn.Linear(dim, dim)

    @abc.abstractmethod
    def core(self, x): ...
    def forward(self, x):
        return self.post(self.core(self.pre(x)))

    def pre(self, x):
        return x

    def post(self, x):
        return x


class NormMixin:
    def pre(self, x):
        x = super().pre(x)
        return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.eps)

    @property
    def eps(self):
        return type(self).EPS

    EPS = 1e-3


class ResMixin:
    def forward(self, x):
        return x + super().forward(x)


class ScaleMixin:
    _scale = None

    @property
    def scale(self):
        if self._scale is None:
            self._scale = 1 / math.sqrt(self.dim)
        return self._scale

    @scale.setter
    def scale(self, v):
        self._scale = v

    def post(self, x):
        return super().post(x) * self.scale


class Net(ResMixin, NormMixin, ScaleMixin, Base):
    EPS = 1e-2

    def core(self, x):
        return self.proj(x)


N = Net(dim=4)


@program(*sizes(lambda n: (torch.randn(n, 4),)))
def mixins(x):
    return N(x)


@program(*sizes(lambda n: (torch.randn(n, 4), float(n))))
def prop_setter(x, s):
    N.scale = s
    y = N(x)
    del N._scale
    return y, N.scale


class Desc:
    def __set_name__(self, o, n):
        self.n = "_" + n

    def __get__(self, o, t=None):
        return self if o is None else getattr(o, self.n, 1.0)

    def __set__(self, o, v):
        setattr(o, self.n, max(0.0, v))


class WithDesc(nn.Module):
    t = Desc()

    def __init__(self):
        super().__init__()
        self.t = 2.0

    def forward(self, x, v=None):
        if v is not None:
            self.t = v
        return x / (self.t + 1)


W = WithDesc()


@program(*sizes(lambda n: (torch.randn(n, 4), float(n - 5))))
def descriptor(x, v):
    return W(x, v), W(x)


class Compose:
    def __init__(self, *fs):
        self.fs = list(fs)

    def __call__(self, x, **kw):
        for f in self.fs:
            x = f(x, **{k: v for k, v in kw.items() if k in inspect.signature(f).parameters})
        return x

    def __or__(self, o):
        return Compose(*self.fs, o)

    def __len__(self):
        return len(self.fs)

    def __getitem__(self, i):
        return Compose(*self.fs[i]) if isinstance(i, slice) else self.fs[i]

    def __iter__(self):
        return iter(self.fs)

    def __contains__(self, f):
        return f in self.fs

    def __repr__(self):
        return f"{type(self).__name__}({len(self)})"


def jitter(x, amount=0.1):
    return x + amount


def flip(x):
    return x.flip(-1)


T = Compose(jitter, flip)


@program(*sizes(lambda n: (torch.randn(n, 4), n * 1.0)))
def compose(x, a):
    t = T | torch.nn.functional.relu.__wrapped__ if hasattr(F.relu, "__wrapped__") else T | (lambda y: y.relu())
    assert jitter in t and len(t) == 3, f"{t}"
    return t[:2](x, amount=a), repr(t), [f.__name__ for f in t][:2]


class AttrDict(dict):
    def __getattr__(self, k):
        try:
            return self[k]
        except KeyError as e:
            raise AttributeError(k) from e

    __setattr__ = dict.__setitem__


@program(*[lambda n=n: (torch.randn(n, 4), AttrDict(a=torch.ones(4), cfg=AttrDict(k=n))) for n in (3, 4, 5, 6)])
def attrdict(x, d):
    d.out = x * d.a * d.cfg.k
    return getattr(d, "missing", None), d.out, hasattr(d, "b"), d


class Meter:
    def __init__(self):
        self.sum = 0.0
        self.n = 0
        self.hist = deque(maxlen=3)

    def update(self, v, n=1):
        self.sum = self.sum + v * n
        self.n += n
        self.hist.append(v)

    @property
    def avg(self):
        return self.sum / max(1, self.n)


@program(*sizes(lambda n: (torch.randn(n, 4), Meter())))
def meter(x, m):
    for row in x.detach().unbind():
        m.update(row.mean(), len(row))
    return m.avg, x.sin()


@contextlib.contextmanager
def scaled(m, s):
    old = m.gain_
    m.gain_ = s
    try:
        yield m
    finally:
        m.gain_ = old


class G:
    gain_ = 1.0


@program(*sizes(lambda n: (torch.randn(n, 4), G(), n * 0.5)))
def ctx_scale(x, g, s):
    with scaled(g, s) as h, contextlib.nullcontext(), torch.no_grad():
        y = x * h.gain_
    return y, x * g.gain_


@program(*sizes(lambda n: (torch.randn(n, 4), n)))
def exit_stack(x, n):
    out = []
    with contextlib.ExitStack() as st:
        for i in range(n % 3):
            st.enter_context(torch.autocast("cpu", dtype=torch.bfloat16, enabled=bool(i)))
        st.callback(out.append, n)
        y = x @ x.T
    return y.dtype, out, y


@program(*[lambda n=n: (torch.randn(n, 4), k) for n, k in ((3, "a"), (4, "b"), (5, "z"), (6, "a"), (7, "b"))])
def try_else(x, k):
    t = {"a": 1.0, "b": 2.0}
    log = []
    try:
        s = t[k]
    except KeyError as e:
        s = 0.5
        log.append(str(e))
    else:
        log.append("ok")
        s += 1
    finally:
        log.append("done")
    return x * s, log


@program(*sizes(lambda n: (torch.randn(n, 4),)))
def nonlocal_counter(x):
    calls = 0

    def visit(t, depth=0):
        nonlocal calls
        calls += 1
        return t if depth == 2 else visit(t[: t.shape[0] // 2 + 1].sin(), depth + 1) * 2

    y = visit(x)
    return y, calls


def to_2tuple(x):
    return tuple(x) if isinstance(x, collections.abc.Iterable) and not isinstance(x, str) else (x,) * 2


class PatchEmbed(nn.Module):
    def __init__(self, img=8, p=2, dim=8, strict=False):
        super().__init__()
        self.p = to_2tuple(p)
        self.img = to_2tuple(img)
        self.grid = tuple(s // q for s, q in zip(self.img, self.p))
        self.strict = strict
        self.proj = nn.Conv2d(3, dim, self.p, self.p)

    def forward(self, x):
        B, C, H, W = x.shape
        if self.strict:
            assert H == self.img[0], f"Input height ({H}) doesn't match model ({self.img[0]})."
        pad_h = (self.p[0] - H % self.p[0]) % self.p[0]
        pad_w = (self.p[1] - W % self.p[1]) % self.p[1]
        if pad_h or pad_w:
            x = F.pad(x, (0, pad_w, 0, pad_h))
        return self.proj(x).flatten(2).transpose(1, 2)


PE = PatchEmbed()


@program(*sizes(lambda n: (torch.randn(2, 3, n, n + 1),), 8, 9, 10, 11, 12))
def patch_embed(x):
    return PE(x)


def drop_path(x, p: float = 0.0, training=False, scale_by_keep=True):
    if p == 0.0 or not training:
        return x
    keep = 1 - p
    shape = (x.shape[0],) + (1,) * (x.ndim - 1)
    r = x.new_empty(shape).bernoulli_(keep)
    if keep > 0.0 and scale_by_keep:
        r.div_(keep)
    return x * r


@program(*sizes(lambda n: (torch.randn(n, 4, 2), 0.1 * (n % 3))))
def droppath(x, p):
    return drop_path(x, p, True)


def window_partition(x, ws):
    B, H, W, C = x.shape
    x = x.view(B, H // ws, ws, W // ws, ws, C)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, ws * ws, C)


@program(*sizes(lambda n: (torch.randn(2, 2 * n, 2 * n, 3), n % 2)))
def swin_shift(x, shift):
    x = torch.roll(x, (-shift, -shift), (1, 2)) if shift else x
    w = window_partition(x, 2)
    img = torch.zeros(1, x.shape[1], x.shape[2], 1)
    cnt = 0
    for h, v in itertools.product((slice(0, -2), slice(-2, -1), slice(-1, None)), repeat=2):
        img[:, h, v] = cnt
        cnt += 1
    return w, window_partition(img, 2).squeeze(-1)


class SE(nn.Module):
    def __init__(self, c, r=4, act: str | type[nn.Module] = nn.ReLU, gate="sigmoid"):
        super().__init__()
        self.fc1 = nn.Conv2d(c, c // r, 1)
        self.fc2 = nn.Conv2d(c // r, c, 1)
        self.act = act() if isinstance(act, type) else getattr(nn, act)()
        self.gate = getattr(torch, gate)

    def forward(self, x):
        return x * self.gate(self.fc2(self.act(self.fc1(x.mean((2, 3), keepdim=True)))))


S = SE(8)


@program(*sizes(lambda n: (torch.randn(2, 8, n, n),)))
def se(x):
    return S(x)


class FPN(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.ModuleDict({str(i): nn.Conv2d(c, 4, 1) for i, c in enumerate((3, 6))})
        self.names = ["c2", "c3"]

    def forward(self, feats: dict[str, Tensor]):
        names = list(feats)
        xs = list(feats.values())
        last = self.inner[str(len(xs) - 1)](xs[-1])
        res = [last]
        for i in range(len(xs) - 2, -1, -1):
            lat = self.inner[str(i)](xs[i])
            last = lat + F.interpolate(last, size=lat.shape[-2:], mode="nearest")
            res.insert(0, last)
        names.append("pool")
        res.append(F.max_pool2d(res[-1], 1, 2, 0))
        return OrderedDict(zip(names, res, strict=True))


FP = FPN()


@program(*sizes(lambda n: (OrderedDict(c2=torch.randn(1, 3, 2 * n, 2 * n), c3=torch.randn(1, 6, n, n)),)))
def fpn(f):
    return FP(f)


def box_iou(a, b):
    area = lambda t: (t[:, 2] - t[:, 0]) * (t[:, 3] - t[:, 1])
    lt = torch.max(a[:, None, :2], b[:, :2])
    rb = torch.min(a[:, None, 2:], b[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh.prod(-1)
    return inter / (area(a)[:, None] + area(b) - inter)


@program(*sizes(lambda n: (torch.rand(n, 4).sort(-1)[0], torch.rand(n + 1, 4).sort(-1)[0])))
def iou(a, b):
    m = box_iou(a, b)
    v, i = m.max(1)
    return v, i, (v > 0.5).sum()


@program(*sizes(lambda n: (torch.rand(2, n, 4), torch.randint(0, 4, (2,)), 0.3)))
def mixup(x, y, lam):
    perm = torch.arange(x.size(0)).flip(0)
    t = F.one_hot(y, 4).float()
    return lam * x + (1 - lam) * x[perm], lam * t + (1 - lam) * t[perm]


@program(*sizes(lambda n: (torch.rand(1, 3, n + 4, n + 4), (n, n + 1))))
def center_crop(x, size):
    th, tw = size
    *_, h, w = x.shape
    i = int(round((h - th) / 2.0))
    j = int(round((w - tw) / 2.0))
    return x[..., i : i + th, j : j + tw]


class Scheduler:
    order = 1

    def __init__(self, n=10, kind="linear", **cfg):
        self.betas = {"linear": torch.linspace(1e-3, 0.2, n), "cos": torch.linspace(0.01, 0.3, n)}[kind]
        self.ac = (1 - self.betas).cumprod(0)
        self.n = n
        self.config = types.SimpleNamespace(**cfg)
        self.timesteps = list(range(n - 1, -1, -3))
        self._step = 0

    def add_noise(self, x, noise, t):
        a = self.ac.to(x)[t] ** 0.5
        s = (1 - self.ac.to(x)[t]) ** 0.5
        while a.dim() < x.dim():
            a, s = a.unsqueeze(-1), s.unsqueeze(-1)
        return a * x + s * noise

    def step(self, eps, t, x, *, eta=0.0, return_dict=True):
        prev = t - self.n // 3
        a = self.ac[t]
        b = self.ac[prev] if prev >= 0 else torch.tensor(1.0)
        x0 = (x - (1 - a).sqrt() * eps) / a.sqrt()
        self._step += 1
        if getattr(self.config, "clip", False):
            x0 = x0.clamp(-1, 1)
        out = b.sqrt() * x0 + (1 - b).sqrt() * eps
        return types.SimpleNamespace(prev=out, x0=x0) if return_dict else (out,)


@program(*sizes(lambda n: (torch.randn(n, 3), torch.randn(n, 3), torch.randint(0, 10, (n,)), Scheduler())))
def sched_noise(x, e, t, s):
    return s.add_noise(x, e, t)


@program(*sizes(lambda n: (torch.randn(n, 3), Scheduler(clip=True))))
def sampler_loop(x, s):
    for i, t in enumerate(s.timesteps):
        x = s.step(x.tanh(), t, x, return_dict=i % 2 == 0)
        x = x.prev if isinstance(x, types.SimpleNamespace) else x[0]
    return x, s._step


@program(*sizes(lambda n: (torch.arange(n), 8)))
def timestep_embed(t, dim):
    half = dim // 2
    f = torch.exp(-math.log(10000) * torch.arange(half, dtype=torch.float32) / (half - 1))
    a = t[:, None].float() * f[None]
    e = torch.cat([a.sin(), a.cos()], -1)
    return F.pad(e, (0, 1, 0, 0)) if dim % 2 else e


class AdaGN(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gn = nn.GroupNorm(2, c)
        self.emb = nn.Linear(5, 2 * c)

    def forward(self, x, emb=None, *, scale_shift=True):
        h = self.gn(x)
        if (e := emb) is not None and scale_shift:
            s, b = self.emb(e)[..., None, None].chunk(2, 1)
            h = h * (1 + s) + b
        return h


AG = AdaGN(4)


@program(*sizes(lambda n: (torch.randn(2, 4, n, n), torch.randn(2, 5) if n % 2 else None)))
def adagn(x, e):
    return AG(x, e)


@program(*sizes(lambda n: (torch.randn(2, n, 4), {"text": torch.randn(2, 3, 4), "scale": n / 2, "neg": None})))
def cfg_guidance(x, c):
    neg = c.get("neg")
    neg = torch.zeros_like(c["text"]) if neg is None else neg
    e = torch.cat([neg, c["text"]])
    h = torch.cat([x] * 2)
    o = h @ e.mT
    u, t = o.chunk(2)
    return u + c["scale"] * (t - u)


@program(*sizes(lambda n: (torch.randn(2, 20), dict(temperature=0.7 + n / 10, top_k=n, top_p=0.9))))
def sample_filter(logits, kw):
    def temp(l, temperature=1.0, **_):
        return l / temperature

    def topk(l, top_k=0, **_):
        if top_k <= 0:
            return l
        k = min(top_k, l.size(-1))
        return l.masked_fill(l < l.topk(k)[0][..., -1:], -float("inf"))

    def topp(l, top_p=1.0, **_):
        if not 0 < top_p < 1:
            return l
        s, i = l.sort(descending=True)
        r = s.softmax(-1).cumsum(-1) > top_p
        r[..., 1:] = r[..., :-1].clone()
        r[..., 0] = False
        return l.masked_fill(r.scatter(1, i, r), -float("inf"))

    return functools.reduce(lambda l, f: f(l, **kw), (temp, topk, topp), logits)


@program(*sizes(lambda n: (torch.randn(2, 3, 11), n)))
def greedy_loop(h, steps):
    ids = torch.zeros(2, 1, dtype=torch.long)
    done = torch.zeros(2, dtype=torch.bool)
    for _ in range(steps):
        nxt = (h.mean(1) * ids.sum(-1, keepdim=True).cos()).argmax(-1)
        nxt = torch.where(done, 0, nxt)
        done |= nxt == 3
        ids = torch.cat([ids, nxt[:, None]], -1)
    return ids, done


@dataclasses.dataclass(order=True)
class Beam:
    score: float
    toks: list = dataclasses.field(compare=False, default_factory=list)

    def extend(self, t, s):
        return dataclasses.replace(self, score=self.score + s, toks=[*self.toks, t])


@program(*sizes(lambda n: (torch.randn(4, 5), n)))
def beams(x, n):
    bs = [Beam(0.0)]
    for i in range(3):
        bs = sorted((b.extend(j, (i * j) % n - 1.0) for b in bs for j in range(2)), reverse=True)[:2]
    return x * bs[0].score, bs[0].toks, [b.score for b in bs]


class StopList(list):
    def __call__(self, ids, **kw):
        return any(c(ids, **kw) for c in self)


@program(*sizes(lambda n: (torch.randn(1, n), n)))
def stopping(x, n):
    crit = StopList([lambda i, **k: i.shape[1] >= k.get("mx", 5)])
    k = 0
    while not crit(x, mx=8):
        x = torch.cat([x, x[:, -1:] * 2], 1)
        k += 1
    return x, k


class LogitsProc(Protocol):
    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor: ...


class Rep:
    def __init__(self, p):
        self.p = p

    def __call__(self, ids, s):
        g = torch.gather(s, 1, ids)
        g = torch.where(g < 0, g * self.p, g / self.p)
        return s.scatter(1, ids, g)


@program(*sizes(lambda n: (torch.randint(0, 9, (2, n)), torch.randn(2, 9), 1 + n / 10)))
def rep_penalty(ids, s, p):
    procs: list[LogitsProc] = [Rep(p), lambda i, s: s.log_softmax(-1)]
    for f in procs:
        s = f(ids, s)
    return s


class MP(nn.Module):
    def __init__(self, aggr="add"):
        super().__init__()
        self.aggr = aggr
        self.lin = nn.Linear(4, 4)
        self._p = {
            k: list(inspect.signature(getattr(self, k)).parameters)[s:] for k, s in (("message", 0), ("update", 1))
        }

    def propagate(self, ei, size=None, **kw):
        j, i = ei
        d = {}
        for a in self._p["message"]:
            d[a] = kw[a[:-2]][j if a.endswith("_j") else i] if a[-2:] in ("_i", "_j") else kw.get(a)
        m = self.message(**d)
        n = size or kw["x"].size(0)
        out = torch.zeros(n, m.size(-1)).index_add(0, i, m)
        if self.aggr == "mean":
            out = out / torch.zeros(n).index_add(0, i, torch.ones(i.numel())).clamp(min=1)[:, None]
        return self.update(out, **{k: kw[k] for k in self._p["update"] if k in kw})

    def message(self, x_j, x_i, w=None):
        return self.lin(x_j - x_i) if w is None else w[:, None] * self.lin(x_j - x_i)

    def update(self, out, x):
        return out + x

    def forward(self, x, ei, w=None):
        return self.propagate(ei, x=x, w=w)


G1 = MP("mean")


@program(*sizes(lambda n: (torch.randn(n, 4), torch.randint(0, n, (2, 2 * n)), torch.rand(2 * n) if n % 2 else None)))
def pyg(x, ei, w):
    return G1(x, ei, w)


class Data:
    def __init__(self, **kw):
        self._store = dict(kw)

    def __getattr__(self, k):
        if k == "_store":
            raise AttributeError(k)
        return self._store.get(k)

    def __setattr__(self, k, v):
        self.__dict__.__setitem__(k, v) if k == "_store" else self._store.__setitem__(k, v)

    def __contains__(self, k):
        return k in self._store

    @property
    def keys(self):
        return [k for k, v in self._store.items() if v is not None]

    def __iter__(self):
        for k in sorted(self.keys):
            yield k, self._store[k]

    @property
    def num_nodes(self):
        return self.x.size(0)


@program(*sizes(lambda n: (Data(x=torch.randn(n, 4), ei=torch.randint(0, n, (2, n)), y=None),)))
def pyg_data(d):
    d.deg = torch.zeros(d.num_nodes).scatter_add_(0, d.ei[1], torch.ones(d.ei.size(1)))
    return {k: v * 1 for k, v in d}, d.keys, "deg" in d, d.pos


@program(*sizes(lambda n: (torch.randn(n, 4), torch.randint(0, 3, (n,)).sort()[0])))
def global_pool(x, b):
    return {r: torch.zeros(3, 4).scatter_reduce(0, b[:, None].expand_as(x), x, r) for r in ("sum", "amax", "mean")}


Transition = namedtuple("Transition", "obs act rew done", defaults=(None,))


class Buffer:
    def __init__(self, cap=8):
        self.d = deque(maxlen=cap)

    def push(self, *a):
        self.d.append(Transition(*a))

    def __len__(self):
        return len(self.d)

    def batch(self):
        return Transition(
            *(torch.stack([x if torch.is_tensor(x) else torch.tensor(float(x)) for x in c]) for c in zip(*self.d))
        )


@program(*sizes(lambda n: (torch.randn(n, 4), Buffer())))
def replay(x, b):
    for i, r in enumerate(x):
        b.push(r, i, i * 0.5, i % 2 == 0)
    t = b.batch()
    return t.obs.mean(0) * t.rew.sum(), t._replace(obs=None), len(b)


@program(*sizes(lambda n: (torch.randn(n), torch.randn(n + 1), torch.zeros(n))))
def gae(r, v, d, gamma=0.99, lam=0.95):
    adv, last = torch.zeros_like(r), 0.0
    for t in reversed(range(len(r))):
        delta = r[t] + gamma * v[t + 1] * (1 - d[t]) - v[t]
        last = delta + gamma * lam * (1 - d[t]) * last
        adv[t] = last
    return adv, adv + v[:-1]


@program(*sizes(lambda n: (torch.randn(n, 3), torch.randn(n, 3), torch.randn(n), 0.1 + n / 50)))
def ppo(lp, old, adv, clip):
    d = torch.distributions.Categorical(logits=lp)
    a = torch.zeros(len(adv), dtype=torch.long)
    ratio = (d.log_prob(a) - old.log_softmax(-1)[:, 0]).exp()
    pg = -torch.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv).mean()
    return pg - 0.01 * d.entropy().mean()


@program(*sizes(lambda n: (torch.randn(n, 3),)))
def tanh_normal(x):
    m, s = x.split([1, 2], -1)
    s = s.clamp(-5, 2).exp().mean(-1, keepdim=True)
    d = torch.distributions.TransformedDistribution(
        torch.distributions.Normal(m, s, validate_args=False),
        [torch.distributions.transforms.TanhTransform()],
        validate_args=False,
    )
    a = d.rsample()
    return d.log_prob(a).sum(-1)


@program(*[lambda i=i: (torch.randn(3, 4), {"lr": 0.1 / i, "clip": 0.2, "steps": i}) for i in range(1, 6)])
def hp_dict(x, hp):
    w = x
    for _ in range(hp["steps"]):
        w = w - hp["lr"] * w.clamp(-hp["clip"], hp["clip"])
    return w


class SGDM:
    def __init__(self, params, lr=0.1, **kw):
        self.groups = [{"params": list(params), "lr": lr, **kw}]
        self.state = defaultdict(dict)

    @torch.no_grad()
    def step(self, grads):
        for g in self.groups:
            for p, d in zip(g["params"], grads, strict=True):
                if wd := g.get("wd", 0):
                    d = d.add(p, alpha=wd)
                st = self.state[p]
                buf = st.setdefault("m", torch.zeros_like(p))
                buf.mul_(g.get("mom", 0.9)).add_(d)
                p.sub_(buf, alpha=g["lr"])
                st["step"] = st.get("step", 0) + 1


@program(
    *sizes(
        lambda n: ([torch.randn(n, 2), torch.randn(n)], [torch.randn(n, 2), torch.randn(n)]),
    ),
    grad=False,
)
def sgdm(ps, gs):
    o = SGDM(ps, wd=0.01)
    o.step(gs)
    o.step(gs)
    return ps, [o.state[p]["step"] for p in ps]


@program(*sizes(lambda n: (torch.randn(n, 4), torch.randn(n, 4), n)), grad=False)
def adam_fn(p, g, step):
    b1, b2 = 0.9, 0.999
    m = g * (1 - b1)
    v = g * g * (1 - b2)
    return p - 1e-3 * (m / (1 - b1**step)) / ((v / (1 - b2**step)).sqrt() + 1e-8)


def ema(avg, new, decay: Union[float, Callable[[int], float]], step=0):
    d = decay(step) if callable(decay) else decay
    return {k: avg[k].lerp(v, 1 - d) for k, v in new.items() if v.is_floating_point()}


@program(*[lambda i=i: (nn.Linear(3, 3).state_dict(), i) for i in range(1, 6)], grad=False)
def ema_prog(sd, i):
    return ema(sd, {k: v + 1 for k, v in sd.items()}, lambda s: min(0.9, (1 + s) / (10 + s)), i)


@program(
    *sizes(
        lambda n: ([torch.randn(n), torch.randn(2, n)], float(n)),
    ),
    grad=False,
)
def clip_norm(gs, mx):
    t = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g, 2.0) for g in gs]), 2.0)
    c = (mx / (t + 1e-6)).clamp(max=1.0)
    for g in gs:
        g.mul_(c)
    return t


@program(*sizes(lambda n: (torch.randn(2, 16 * n),)))
def stft_mag(x):
    w = torch.hann_window(16)
    s = torch.stft(x, 16, 8, window=w, return_complex=True)
    return s.abs().clamp_min(1e-5).log()


@program(*sizes(lambda n: (torch.randn(1, 2, n * 4),)))
def pre_emph(x, c=0.97):
    return torch.cat([x[..., :1], x[..., 1:] - c * x[..., :-1]], -1).unfold(-1, 4, 2) * torch.hamming_window(4)


class CausalConv(nn.Conv1d):
    def __init__(self, *a, **k):
        super().__init__(*a, **k)
        self._pad = (self.kernel_size[0] - 1) * self.dilation[0]

    def forward(self, x, cache=None):
        x = F.pad(x, (self._pad, 0)) if cache is None else torch.cat([cache, x], -1)
        return super().forward(x), x[..., -self._pad :]


CC = CausalConv(2, 2, 3, dilation=2)


@program(*sizes(lambda n: (torch.randn(1, 2, n + 4),)))
def streaming(x):
    outs = []
    c = None
    for part in x.split(3, -1):
        o, c = CC(part, c)
        outs.append(o)
    return torch.cat(outs, -1)


@program(*sizes(lambda n: (torch.randn(2, n, 3), torch.tensor([n, n - 1]))))
def len_mask(x, l):
    m = torch.arange(x.size(1))[None] < l[:, None]
    y = x.masked_fill(~m[..., None], 0)
    return y.sum(1) / l[:, None], m.sum()
