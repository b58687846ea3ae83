# mypy: ignore-errors
# ruff: noqa
"""Layers: mixtures of experts, state spaces, recurrences, quantised weights, interpolation, geometry, tables, series."""

import functools
import math
import typing
from collections import namedtuple
from dataclasses import dataclass, field
from functools import cached_property, partial, partialmethod

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.sweeps.snippets.corpus import program

TOKENS = lambda: (torch.randn(2, 6, 8),)


class Experts(nn.Module):
    def __init__(self, d=8, n=4, k=2):
        super().__init__()
        self.gate, self.k = nn.Linear(d, n, bias=False), k
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 16), nn.GELU(approximate="tanh"), nn.Linear(16, d)) for _ in range(n)
        )

    def forward(self, x):
        shape, x = x.shape, x.flatten(0, 1)
        weights, chosen = torch.topk(self.gate(x).softmax(-1, dtype=torch.float), self.k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            w = (weights * (chosen == i)).sum(-1, keepdim=True)
            out += w * expert(x)
        return out.view(shape), self.balance(chosen)

    def balance(self, chosen):
        n = len(self.experts)
        density = F.one_hot(chosen, n).sum(1).float().mean(0)
        return n * (density * density).sum()


@program(lambda: (Experts(), *TOKENS()))
def mixture_of_experts(m, x):
    return m(x)


@program(lambda: (torch.randn(4, 8, 8), torch.randn(8, 4), *TOKENS()))
def experts_with_capacity(w, gate, x, capacity=5):
    flat = x.flatten(0, 1)
    probs = (flat @ gate).softmax(-1)
    expert = probs.argmax(-1)
    onehot = F.one_hot(expert, 4)
    position = (onehot.cumsum(0) - 1) * onehot
    kept = onehot * (position < capacity)
    dispatch = kept[..., None] * F.one_hot(position.clamp(0, capacity - 1), capacity)
    inputs = torch.einsum("tec,td->ecd", dispatch.float(), flat)
    return torch.einsum("tec,ecd,t->td", dispatch.float(), torch.bmm(inputs, w), probs.amax(-1)).view_as(x)


@program(lambda: (torch.randn(4, 8, 8), *TOKENS()))
def sorted_tokens(w, x):
    flat = x.flatten(0, 1)
    expert = torch.arange(len(flat)) % 4
    order = torch.argsort(expert, stable=True)
    groups = flat[order].view(4, -1, 8)
    out = torch.bmm(groups, w).flatten(0, 1)
    return torch.empty_like(out).index_copy(0, order, out).view_as(x)


@program(TOKENS)
def selective_scan(x, n=3):
    b, t, d = x.shape
    A = -torch.exp(torch.log(torch.arange(1, n + 1).float()).repeat(d, 1))
    delta = F.softplus(x)
    B, C = x[..., :n], x[..., -n:]
    dA = torch.exp(delta[..., None] * A)
    dBx = delta[..., None] * B[:, :, None] * x[..., None]
    h, ys = x.new_zeros(b, d, n), []
    for i in range(t):
        h = dA[:, i] * h + dBx[:, i]
        ys.append(torch.einsum("bdn,bn->bd", h, C[:, i]))
    return torch.stack(ys, dim=1) * F.silu(x)


@program(TOKENS)
def state_space_by_convolution(x):
    t = x.size(1)
    kernel = torch.exp(-torch.arange(t) * 0.3)[:, None] * torch.ones(x.size(2))
    y = torch.fft.irfft(torch.fft.rfft(x, n=2 * t, dim=1) * torch.fft.rfft(kernel, n=2 * t, dim=0), n=2 * t, dim=1)
    return y[:, :t] + x


@program(TOKENS)
def token_shift_recurrence(x):
    shifted = F.pad(x, (0, 0, 1, -1))
    k, v, r = (x * m + shifted * (1 - m) for m in (0.3, 0.5, 0.7))
    num, den, out = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0]), []
    for kt, vt in zip(k.unbind(1), v.unbind(1)):
        num, den = num * 0.9 + kt.exp() * vt, den * 0.9 + kt.exp()
        out.append(num / (den + 1e-8))
    return torch.sigmoid(r) * torch.stack(out, 1)


@program(TOKENS)
def retention(x, heads=2):
    q, k, v = (x.view(2, 6, heads, 4).transpose(1, 2) * s for s in (0.5, 1.0, 2.0))
    gamma = 1 - 2.0 ** (-5 - torch.arange(heads, dtype=torch.float))
    i = torch.arange(6)
    decay = torch.where(i[:, None] >= i, gamma[:, None, None] ** (i[:, None] - i).clamp(min=0), 0.0)
    return F.group_norm((q @ k.mT * decay @ v).transpose(1, 2).flatten(0, 1), 2).view(2, 6, -1)


@program(TOKENS)
def delta_rule(x):
    k, v, beta = F.normalize(x, dim=-1), x.roll(1, -1), x.sigmoid().mean(-1, keepdim=True)
    S, outs = x.new_zeros(2, 8, 8), []
    for t in range(x.shape[1]):
        kt, vt, bt = k[:, t], v[:, t], beta[:, t]
        pred = torch.einsum("bij,bj->bi", S, kt)
        S = S + bt[..., None] * (vt - pred)[..., :, None] * kt[..., None, :]
        outs += [(S @ kt.unsqueeze(-1)).squeeze(-1)]
    return torch.stack(outs, dim=1)


class FakeQuant(nn.Module):
    def __init__(self, bits=8, symmetric=True, channel_dim=None):
        super().__init__()
        self.qmin, self.qmax = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if symmetric else (0, 2**bits - 1)
        self.symmetric, self.dim = symmetric, channel_dim
        self.register_buffer("scale", torch.ones(()), persistent=True)
        self.observing = True

    def qparams(self, x):
        dims = None if self.dim is None else [d for d in range(x.ndim) if d != self.dim]
        lo, hi = (x.amin(), x.amax()) if dims is None else (x.amin(dims, keepdim=True), x.amax(dims, keepdim=True))
        if self.symmetric:
            return torch.maximum(lo.abs(), hi.abs()).clamp(min=1e-8) / self.qmax, torch.zeros_like(hi)
        scale = (hi - lo).clamp(min=1e-8) / (self.qmax - self.qmin)
        return scale, (self.qmin - lo / scale).round().clamp(self.qmin, self.qmax)

    def forward(self, x):
        scale, zero = self.qparams(x.detach())
        if self.observing and self.training and scale.ndim == 0:
            self.scale.copy_(0.9 * self.scale + 0.1 * scale)
        q = (x / scale + zero).round().clamp(self.qmin, self.qmax)
        return x + ((q - zero) * scale - x).detach()


@program(lambda: (FakeQuant(4), FakeQuant(8, False, 0), nn.Linear(8, 8), *TOKENS()))
def fake_quantised_linear(act, weight, lin, x):
    return F.linear(act(x), weight(lin.weight), lin.bias)


@program(lambda: (torch.randint(-128, 127, (8, 8), dtype=torch.int8), torch.rand(8), *TOKENS()))
def int8_weights(w, scale, x):
    absmax = x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
    xq = (x * 127 / absmax).round().to(torch.int8)
    acc = xq.flatten(0, 1).to(torch.int32) @ w.to(torch.int32).T
    return acc.view_as(x).to(x.dtype) * (absmax / 127) * scale


@program(lambda: (torch.randint(0, 255, (8, 4), dtype=torch.uint8), *TOKENS()))
def packed_int4_weights(packed, x, group=4):
    low, high = packed & 0xF, packed >> 4
    w = torch.stack((low, high), dim=-1).view(8, 8).to(torch.float32) - 8
    scale = torch.linspace(0.1, 0.2, 16).view(8, 2, 1)
    return x @ (w.view(8, -1, group) * scale).view(8, 8).t()


@program(lambda: (torch.randn(8, 8), *TOKENS()))
def ternary_weights(w, x):
    scale = 1.0 / w.abs().mean().clamp_(min=1e-5)
    u = (w * scale).round().clamp_(-1, 1) / scale
    xs = 127.0 / x.abs().max(dim=-1, keepdim=True).values.clamp_(min=1e-5)
    y = (x * xs).round().clamp_(-128, 127) / xs
    return F.linear(x + (y - x).detach(), w + (u - w).detach())


class Spline(nn.Module):
    def __init__(self, i=8, o=4, grid=3, order=2):
        super().__init__()
        h = 2 / grid
        self.register_buffer("grid", (torch.arange(-order, grid + order + 1) * h - 1).expand(i, -1).contiguous())
        self.coef, self.order = nn.Parameter(torch.randn(o, i, grid + order)), order

    def bases(self, x):
        x, g = x.unsqueeze(-1), self.grid
        b = ((x >= g[:, :-1]) & (x < g[:, 1:])).to(x.dtype)
        for k in range(1, self.order + 1):
            b = (x - g[:, : -(k + 1)]) / (g[:, k:-1] - g[:, : -(k + 1)]) * b[:, :, :-1] + (g[:, k + 1 :] - x) / (
                g[:, k + 1 :] - g[:, 1:-k]
            ) * b[:, :, 1:]
        return b.contiguous()

    def forward(self, x):
        return F.linear(self.bases(x.flatten(0, 1)).flatten(1), self.coef.flatten(1)).unflatten(0, x.shape[:-1])


@program(lambda: (Spline(), *TOKENS()))
def splines(m, x):
    return m(x)


@program(lambda: (torch.randn(5, 4),))
def rotations(q):
    q = F.normalize(q, dim=-1)
    r, i, j, k = torch.unbind(q, -1)
    two_s = 2.0 / (q * q).sum(-1)
    R = torch.stack((
        1 - two_s * (j * j + k * k), two_s * (i * j - k * r), two_s * (i * k + j * r),
        two_s * (i * j + k * r), 1 - two_s * (i * i + k * k), two_s * (j * k - i * r),
        two_s * (i * k - j * r), two_s * (j * k + i * r), 1 - two_s * (i * i + j * j),
    ), -1).reshape(q.shape[:-1] + (3, 3))  # fmt: skip
    euler = torch.stack([torch.atan2(-R[..., 1, 2], R[..., 2, 2]), torch.asin(R[..., 0, 2].clamp(-1, 1))], -1)
    return R, euler, torch.det(R), torch.linalg.cross(R[:, 0], R[:, 1])


Rays = namedtuple("Rays", ["origins", "directions", "near", "far"])


@program(lambda: (nn.Linear(18, 4), torch.randn(3, 3), torch.randn(3, 3)))
def volume_rendering(net, origins, directions, n=4):
    rays = Rays(origins, F.normalize(directions, dim=-1), *(torch.full((3, 1), v) for v in (0.5, 2.0)))
    t = torch.linspace(0.0, 1.0, n)
    z = rays.near * (1.0 - t) + rays.far * t
    mids = 0.5 * (z[..., 1:] + z[..., :-1])
    z = torch.cat([z[..., :1], mids], -1) + torch.rand(z.shape) * 0.01
    pts = rays.origins[..., None, :] + rays.directions[..., None, :] * z[..., :, None]
    enc = torch.cat([f(pts * 2.0**i) for i in range(3) for f in (torch.sin, torch.cos)], -1)
    raw = net(enc)
    dists = F.pad(z[..., 1:] - z[..., :-1], (0, 1), value=1e10)
    alpha = 1.0 - torch.exp(-F.relu(raw[..., 3]) * dists)
    weights = alpha * torch.cumprod(torch.cat([torch.ones(3, 1), 1.0 - alpha + 1e-10], -1), -1)[:, :-1]
    return {
        "rgb": (weights[..., None] * raw[..., :3].sigmoid()).sum(-2),
        "depth": (weights * z).sum(-1),
        "acc": weights.sum(-1),
    }


@program(lambda: (torch.randn(8, 2), torch.rand(5, 2)))
def hashed_grid(table, x, resolutions=(4, 8)):
    out = []
    for res in resolutions:
        low = (x * res).floor().long()
        frac = x * res - low
        corners = torch.stack(torch.meshgrid(*[torch.arange(2)] * 2, indexing="ij"), -1).view(-1, 2)
        idx = low[:, None] + corners
        hashed = (idx[..., 0] ^ (idx[..., 1] * 265443567)) % table.size(0)
        w = torch.where(corners.bool(), frac[:, None], 1 - frac[:, None]).prod(-1)
        out.append((table[hashed] * w[..., None]).sum(1))
    return torch.cat(out, -1)


@program(lambda: (nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)), torch.randn(3, 2)))
def runge_kutta(f, y, h=0.1):
    for _ in range(2):
        k1 = f(y)
        k2 = f(y + h / 2 * k1)
        k3 = f(y + h / 2 * k2)
        k4 = f(y + h * k3)
        y = torch.add(y, k1 + 2 * k2 + 2 * k3 + k4, alpha=h / 6)
    return y


@program(lambda: (nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)), torch.rand(5, 2)))
def physics_informed(net, xt):
    u = lambda p: net(p).squeeze(-1)
    grad = torch.vmap(torch.func.grad(u))(xt)
    second = torch.vmap(torch.func.jacrev(torch.func.grad(u)))(xt)[:, 0, 0]
    residual = grad[:, 1] + u(xt) * grad[:, 0] - 0.01 / math.pi * second
    return residual.square().mean()


@program(lambda: (nn.Linear(4, 8), nn.Linear(2, 8), torch.randn(5, 4), torch.randn(7, 2)))
def operator_network(branch, trunk, u, y):
    return torch.einsum("bi,ni->bn", branch(u), trunk(y)) + u.mean(1, keepdim=True)


class SpectralConv(nn.Module):
    def __init__(self, c=3, modes=2):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(c, c, modes, 2) / c)

    def forward(self, x):
        ft = torch.fft.rfft(x)
        out = torch.zeros_like(ft)
        out[..., : self.modes] = torch.einsum("bix,iox->box", ft[..., : self.modes], torch.view_as_complex(self.weight))
        return torch.fft.irfft(out, n=x.size(-1))


@program(lambda: (SpectralConv(), torch.randn(2, 3, 8)))
def fourier_operator(m, x):
    return F.gelu(m(x) + x)


class Normalizer(nn.Module):
    mode: typing.Literal["norm", "denorm"]

    def __init__(self, n, affine=True):
        super().__init__()
        if affine:
            self.weight, self.bias = nn.Parameter(torch.ones(n)), nn.Parameter(torch.zeros(n))
        self.affine = affine

    def forward(self, x, mode):
        if mode == "norm":
            self.mean = x.mean(1, keepdim=True).detach()
            self.std = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5).detach()
            x = (x - self.mean) / self.std
            return x * self.weight + self.bias if self.affine else x
        elif mode == "denorm":
            return (x - self.bias) / (self.weight + 1e-10) * self.std + self.mean
        raise NotImplementedError(mode)

    normalise = partialmethod(forward, mode="norm")


@program(lambda: (Normalizer(8), *TOKENS()))
def reversible_normalisation(m, x):
    y = m(x, "norm")
    trend = F.avg_pool1d(F.pad(y.mT, (1, 1), mode="replicate"), 3, 1).mT
    return m(trend + (y - trend) * 0.5, "denorm"), m.normalise(x).std()


@program(TOKENS)
def auto_correlation(x, k=2):
    f = torch.fft.rfft(x, dim=1)
    corr = torch.fft.irfft(f * torch.conj(f), n=x.size(1), dim=1).mean(-1)
    weights, delays = corr.topk(k, dim=-1)
    weights = weights.softmax(-1)
    index = (torch.arange(x.size(1))[None] + delays[..., None]) % x.size(1)
    gathered = torch.stack([b[i] for b, i in zip(x, index)])
    return (gathered * weights[..., None, None]).sum(1)


@program(lambda: (torch.randn(5, 6), torch.randint(0, 4, (5, 3)), nn.ModuleList(nn.Embedding(4, 2) for _ in range(3))))
def deep_and_cross(dense, sparse, tables):
    emb = [t(sparse[:, i]) for i, t in enumerate(tables)]
    x0 = torch.cat([dense, *emb], 1)
    x, w = x0, torch.linspace(-1, 1, x0.size(1))
    for layer in range(2):
        x = x0 * (x @ w)[:, None] + x
    stacked = torch.stack(emb, 1)
    li, lj = torch.tril_indices(3, 3, offset=-1)
    pairs = torch.bmm(stacked, stacked.mT)[:, li, lj]
    fm = 0.5 * (stacked.sum(1).square() - stacked.square().sum(1)).sum(1, keepdim=True)
    return torch.cat([x, pairs, fm], dim=1)


class TabularBlock(nn.Module):
    Config = namedtuple("Config", "d cats", defaults=[(3, 4)])

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.register_buffer("offsets", torch.tensor([0, *config.cats[:-1]]).cumsum(0))
        self.embedding = nn.Embedding(sum(config.cats), config.d)
        self.weight = nn.Parameter(torch.randn(6, config.d))

    @cached_property
    def n_tokens(self):
        return len(self.config.cats) + self.weight.shape[0]

    def forward(self, num, cat):
        tokens = [self.weight[None] * num[..., None], self.embedding(cat + self.offsets[None])]
        x = torch.cat(tokens, 1)
        assert x.size(1) == self.n_tokens
        return x


@program(lambda: (TabularBlock(TabularBlock.Config(4)), torch.randn(5, 6), torch.randint(0, 3, (5, 2))))
def feature_tokens(m, num, cat):
    return m(num, cat)


@program(TOKENS)
def sparsemax(x):
    z, _ = x.sort(-1, descending=True)
    k = torch.arange(1, x.size(-1) + 1, dtype=x.dtype)
    support = 1 + k * z > z.cumsum(-1)
    size = support.sum(-1, keepdim=True)
    tau = (z.cumsum(-1).gather(-1, size - 1) - 1) / size.to(x.dtype)
    return torch.clamp(x - tau, min=0)


@program(lambda: (torch.randn(3, 5, 4), torch.randn(4, 4), torch.tensor([[0, 1, 2, 3, 1]] * 3)))
def conditional_random_field(emissions, transitions, tags):
    score = emissions[:, 0]
    for t in range(1, 5):
        score = torch.logsumexp(score.unsqueeze(2) + transitions + emissions[:, t, None], dim=1)
    gold = emissions.gather(2, tags[..., None]).squeeze(-1).sum(1) + transitions[tags[:, :-1], tags[:, 1:]].sum(1)
    back, best = [], emissions[:, 0]
    for t in range(1, 5):
        best, idx = (best.unsqueeze(2) + transitions).max(1)
        best = best + emissions[:, t]
        back.append(idx)
    path = [best.argmax(-1)]
    for idx in reversed(back):
        path.insert(0, idx.gather(1, path[0][:, None]).squeeze(1))
    return score.logsumexp(1) - gold, torch.stack(path, 1)


class GatedResidual(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.layers = nn.ModuleDict({"fc": nn.Linear(d, d), "gate": nn.Linear(d, 2 * d)})
        self.norm = nn.LayerNorm(d)
        for name, p in self.named_parameters():
            if "bias" in name:
                nn.init.constant_(p, 0.1)

    def forward(self, x, context=None, *, return_gate=False):
        h = self.layers["fc"](x)
        if context is not None:
            h += context
        out = self.norm(x + F.glu(self.layers["gate"](F.elu(h)), dim=-1))
        return (out, h) if return_gate else out


@program(lambda: (GatedResidual(), *TOKENS()))
def gated_residual(m, x):
    out, gate = m(x, x.mean(1, keepdim=True).clone(), return_gate=True)
    return m(out), gate


@program(lambda: (nn.ModuleList([nn.Linear(8, 8) for _ in range(4)]), *TOKENS()))
def early_exit_and_layer_drop(layers, x, keep=(True, False, True, True)):
    states = []
    for i, (layer, kept) in enumerate(zip(layers, keep)):
        if not kept:
            continue
        x = layer(x) if i % 2 == 0 else x + layer(x)
        states.append(x)
        if len(states) == 3:
            break
    else:
        states.clear()
    weights = torch.linspace(0, 1, len(states)).softmax(0)
    return (torch.stack(states) * weights.view(-1, 1, 1, 1)).sum(0)


class Reversible(nn.Module):
    def __init__(self, d=4):
        super().__init__()
        self.f, self.g = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        a, b = x.tensor_split(2, dim=-1)
        a = a + self.f(b)
        return torch.cat([a, b + self.g(a)], -1)

    def inverse(self, y):
        a, b = y.tensor_split(2, dim=-1)
        b = b - self.g(a)
        return torch.cat([a - self.f(b), b], -1)


@program(lambda: (Reversible(), *TOKENS()))
def reversible_block(m, x):
    y = m(x)
    return y, m.inverse(y)


@program(lambda: (nn.Conv1d(8, 16, 3, padding=1), nn.InstanceNorm1d(8, affine=True), *TOKENS()))
def gated_convolution(conv, norm, x):
    a, g = conv(norm(x.transpose(1, 2))).chunk(2, dim=1)
    return F.hardtanh(a * g.sigmoid(), -2, 2).transpose(1, 2).contiguous(), F.local_response_norm(x, 2)


@program(TOKENS)
def adaptive_computation(x, threshold=0.9):
    halting, remainders, updates = torch.zeros(2, 6), torch.zeros(2, 6), torch.zeros(2, 6)
    state, previous = x, torch.zeros_like(x)
    for step in range(3):
        p = torch.sigmoid(state.mean(-1) + step)
        running = (halting < 1.0).float()
        new = ((halting + p * running) > threshold).float() * running
        running = ((halting + p * running) <= threshold).float() * running
        halting = halting + p * running
        remainders = remainders + new * (1 - halting)
        halting = halting + new * remainders
        updates = updates + running + new
        w = (p * running + new * remainders).unsqueeze(-1)
        state = torch.tanh(state)
        previous = state * w + previous * (1 - w)
    return previous, remainders, updates


class InPlaceSwish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, beta):
        kept = x.clone()
        x.mul_(torch.sigmoid(beta * x))
        ctx.mark_dirty(x)
        ctx.save_for_backward(kept)
        ctx.beta = beta
        return x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(ctx.beta * x)
        return gradient * (s + ctx.beta * x * s * (1 - s)), None


@program(lambda: (torch.randn(4, 3), nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])))
def in_place_activations(x, layers):
    for layer in layers:
        y = layer(x)
        x = x + InPlaceSwish.apply(y, 1.5)
    return x, y
