# mypy: ignore-errors
# ruff: noqa
"""How modules are built and driven: containers, hooks, wrappers, states, adapters, plugins."""

import collections
import contextlib
import copy
import functools
import inspect
import itertools
import types
import warnings
import weakref
from collections import OrderedDict
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import nn

from tests.sweeps.snippets.corpus import program

X = lambda: (torch.randn(2, 4),)


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = nn.ParameterList([nn.Parameter(torch.full((4,), float(i))) for i in range(3)])
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Identity()})
        self.table = nn.ParameterDict({"w": nn.Parameter(torch.ones(4))})
        self.register_buffer("mask", torch.tensor([1.0, 0.0, 1.0, 1.0]))
        self.plain = [nn.Linear(4, 4)]
        self.options = {"order": ("b", "a"), "scale": 0.5}

    def forward(self, x):
        for name in self.options["order"]:
            x = self.heads[name](x)
        for i, s in enumerate(self.scales):
            x = x + s * i
        for key, w in self.table.items():
            x = x * w
        return (
            self.plain[0](x) * self.mask * self.options["scale"],
            len(self.scales),
            "a" in self.heads,
            list(self.heads.keys()),
        )


@program(lambda: (Outer(), *X()))
def containers_of_all_kinds(m, x):
    return m(x)


def hooked():
    m = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    m.features = []
    m[1].register_forward_hook(lambda mod, args, out: m.features.append(out.detach().mean()))
    m[2].register_forward_pre_hook(lambda mod, args: (args[0] * 2,))
    m.register_forward_hook(lambda mod, args, kwargs, out: {"out": out, "n": len(kwargs)}, with_kwargs=True)
    return m


@program(lambda: (hooked(), *X()))
def hooks_from_outside(m, x):
    result = m(x)
    return result["out"], result["n"], m.features


class Extractor(nn.Module):
    def __init__(self, model, layers):
        super().__init__()
        self.model, self._features = model, {name: torch.empty(0) for name in layers}
        for name in layers:
            dict(model.named_modules())[name].register_forward_hook(self.save(name))

    def save(self, name):
        def fn(_, __, output):
            self._features[name] = output

        return fn

    def forward(self, x):
        _ = self.model(x)
        return self._features


@program(lambda: (Extractor(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), ["0", "2"]), *X()))
def feature_extractor(m, x):
    return dict(m(x))


class Wrapper(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.module, name)

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


@program(lambda: (Wrapper(Wrapper(nn.Linear(4, 3))), *X()))
def wrapped_modules(m, x):
    inner = m
    while hasattr(inner, "module") and isinstance(inner, Wrapper):
        inner = inner.module
    return m(x), m.in_features, type(inner).__name__, m.weight.shape


class Block(nn.Module):
    def __init__(self, d=4):
        super().__init__()
        self.fc = nn.Linear(d, d)

    def forward(self, x, scale=1.0, *, cache=None):
        h = self.fc(x) * scale
        if cache is not None:
            cache[id(self) and "last"] = h
        return h


@program(lambda: (nn.ModuleList(Block() for _ in range(3)), *X()))
def module_list_edited(blocks, x):
    order = [*blocks[:2], *reversed(blocks), blocks[-1]]
    cache = {}
    for b in order:
        x = b(x, scale=0.5, cache=cache)
    return x, cache["last"], len(blocks), blocks[0] is order[0], isinstance(blocks[1:], nn.ModuleList)


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("ema", torch.zeros(4))
        self.register_buffer("count", torch.tensor(0, dtype=torch.long))
        self.last: Optional[torch.Tensor] = None
        self.history: list[Any] = []

    def forward(self, x):
        if self.training:
            self.ema = 0.9 * self.ema + 0.1 * x.detach().mean(0)
            self.count.add_(1)
        self.history.append(x.shape[0])
        self.last, previous = x, self.last
        return x - self.ema, previous is None

    def reset(self):
        self.last = None
        self.history.clear()
        self.ema.zero_()


@program(lambda: (Stateful(), *X()))
def states_of_modules(m, x):
    a = m(x)
    b = m(x * 2)
    total = sum(m.history)
    m.reset()
    m.eval()
    return a, b, total, m(x)


@program(lambda: (nn.Linear(4, 4), nn.Linear(4, 4), *X()))
def tied_and_shared(a, b, x):
    shared = {id(p) for p in itertools.chain(a.parameters(), b.parameters())}
    mixed = F.linear(x, a.weight, b.bias) + F.linear(x, b.weight.T)
    return mixed, len(shared), a.weight is b.weight


class FiLM(nn.Module):
    def __init__(self, base, cond=3):
        super().__init__()
        self.base, self.to_scale = base, nn.Linear(cond, 2 * base.out_features)
        self._forward_base = base.forward

    def forward(self, x, c):
        gamma, beta = self.to_scale(c)[..., None, :].squeeze(-2).chunk(2, -1)
        return torch.addcmul(beta, self._forward_base(x), 1 + gamma)


@program(lambda: (FiLM(nn.Linear(4, 5)), *X(), torch.randn(2, 3)))
def modulated(m, x, c):
    return m(x, c)


def patched():
    m = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    original = m[0].forward
    m[0].forward = lambda x: original(x).relu()
    m[1].forward = types.MethodType(lambda self, x: F.linear(x, self.weight) * 2, m[1])
    return m


@program(lambda: (patched(), *X()))
def patched_forwards(m, x):
    return m(x)


class Base(nn.Module):
    norm_cls = nn.LayerNorm

    def __init__(self, d=4):
        super().__init__()
        self.norm = self.norm_cls(d)
        self.layers = self.build(d)

    def build(self, d):
        raise NotImplementedError

    def pre(self, x):
        return self.norm(x)

    def forward(self, x):
        x = self.pre(x)
        for layer in self.layers:
            x = x + layer(x)
        return self.post(x)

    def post(self, x):
        return x


class Residual(Base):
    norm_cls = functools.partial(nn.LayerNorm, elementwise_affine=False)

    def build(self, d):
        return nn.ModuleList([nn.Sequential(nn.Linear(d, d), nn.SiLU()) for _ in range(2)])


class Pooled(Residual):
    def post(self, x):
        return super().post(x).mean(-1)

    def pre(self, x):
        return Base.pre(self, x) * 2


@program(lambda: (Pooled(), *X()))
def template_methods(m, x):
    return m(x), isinstance(m, Base), type(m).__mro__[1].__name__


@program(lambda: (nn.Sequential(OrderedDict(a=nn.Linear(4, 4), b=nn.Dropout(0.5), c=nn.BatchNorm1d(4))), *X()))
def partial_eval_mode(m, x):
    for mod in m.modules():
        if isinstance(mod, nn.modules.batchnorm._BatchNorm):
            mod.eval()
    frozen = [n for n, mod in m.named_modules() if not mod.training]
    y = m(x)
    m.train()
    return y, frozen, all(mod.training for mod in m.modules())


@program(lambda: (nn.Linear(4, 4), *X()))
def parameters_by_names(m, x):
    weights = OrderedDict((k, v) for k, v in m.named_parameters() if "weight" in k)
    noise = {k: torch.zeros_like(v).normal_(0, 0.1) for k, v in weights.items()}
    total = torch.nn.utils.parameters_to_vector(m.parameters())
    return x @ (m.weight + noise["weight"]).T, total.numel(), {k: tuple(v.shape) for k, v in m.state_dict().items()}


class Gate(nn.Module):
    def __init__(self, **branches):
        super().__init__()
        for name, branch in branches.items():
            setattr(self, f"branch_{name}", branch)
        self.names = tuple(branches)

    def __iter__(self):
        return (getattr(self, f"branch_{n}") for n in self.names)

    def __len__(self):
        return len(self.names)

    def forward(self, x, weights=None):
        weights = [1 / len(self)] * len(self) if weights is None else weights
        return sum(w * branch(x) for w, branch in zip(weights, self))


@program(lambda: (Gate(up=nn.Linear(4, 4), skip=nn.Identity()), *X()))
def branches_by_attribute(m, x):
    return m(x), m(x, weights=x.mean(0).softmax(0)[:2]), [type(b).__name__ for b in m]


class Callback:
    def on_start(self, state): ...
    def on_end(self, state): ...


class Record(Callback):
    def on_end(self, state):
        state.setdefault("seen", []).append(state["y"].mean())


class Scale(Callback):
    def __init__(self, by):
        self.by = by

    def on_start(self, state):
        state["x"] = state["x"] * self.by


class Loop:
    def __init__(self, *callbacks):
        self.callbacks = list(callbacks)

    def emit(self, event, state):
        for c in self.callbacks:
            if getattr(type(c), f"on_{event}", None) is not getattr(Callback, f"on_{event}"):
                getattr(c, f"on_{event}")(state)

    def run(self, m, x):
        state = dict(x=x)
        self.emit("start", state)
        state["y"] = m(state["x"])
        self.emit("end", state)
        return state


@program(lambda: (Loop(Scale(2.0), Record(), Callback()), nn.Linear(4, 4), *X()))
def callbacks(loop, m, x):
    state = loop.run(m, x)
    return state["y"], state["seen"], sorted(state)


@program(lambda: (nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4).eval(), torch.randn(1, 2, 5, 5)))
def folded_batch_norm(conv, bn, x):
    scale = bn.weight / torch.sqrt(bn.running_var + bn.eps)
    w = conv.weight * scale.reshape([-1] + [1] * (conv.weight.ndim - 1))
    b = (conv.bias - bn.running_mean) * scale + bn.bias
    return F.conv2d(x, w, b), bn(conv(x))


@program(lambda: (nn.Bilinear(4, 4, 3), nn.PReLU(3), nn.CosineSimilarity(dim=-1), *X()))
def rarer_modules(bilinear, prelu, cosine, x):
    y = prelu(bilinear(x, x.flip(-1)))
    return (
        y,
        cosine(x, x.roll(1, 0)),
        nn.Softmax2d()(y.view(2, 3, 1, 1)),
        nn.Unflatten(1, (2, 2))(x),
        nn.PairwiseDistance()(x, x + 1),
    )


@program(
    lambda: (
        nn.Sequential(nn.Upsample(scale_factor=2), nn.ReflectionPad2d(1), nn.MaxPool2d(2, return_indices=True)),
        torch.randn(1, 2, 3, 3),
    )
)
def pooled_and_unpooled(m, x):
    y, index = m(x)
    return (
        nn.MaxUnpool2d(2)(y, index),
        F.fold(F.unfold(x, 2), (3, 3), 2),
        F.lp_pool2d(x.abs(), 2, 2),
        F.adaptive_max_pool2d(x, (2, 2)),
    )


@program(lambda: (nn.Embedding(6, 4, max_norm=None, scale_grad_by_freq=True), torch.tensor([[1, 2, 2], [0, 5, 1]])))
def embedding_arithmetic(m, ids):
    e = m(ids)
    return e.sum(1), m.weight[ids].std(), F.embedding(ids, m.weight, padding_idx=0), m.num_embeddings, e @ m.weight.T
