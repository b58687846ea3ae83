# mypy: ignore-errors
# ruff: noqa
"""Code of model libraries: adapters, quantised layers, caches in pages, samplers, optimisers, graphs, signals, physics."""

import collections
import functools
import itertools
import math
import typing
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import rnn

from tests.sweeps.snippets.corpus import program

X = lambda: (torch.randn(4, 8),)


class LoraLinear(nn.Module):
    def __init__(self, base, r=2, alpha=4, dropout=0.1, names=("default",)):
        super().__init__()
        self.base = base
        self.lora_A = nn.ModuleDict({n: nn.Linear(base.in_features, r, bias=False) for n in names})
        self.lora_B = nn.ModuleDict({n: nn.Linear(r, base.out_features, bias=False) for n in names})
        self.scaling = {n: alpha / r for n in names}
        self.dropout = nn.Dropout(dropout)
        self.active, self.merged = list(names), []

    def delta(self, name):
        return self.lora_B[name].weight @ self.lora_A[name].weight * self.scaling[name]

    def forward(self, x, *args, **kwargs):
        previous = x.dtype
        out = self.base(x, *args, **kwargs)
        for name in self.active:
            if name not in self.lora_A.keys() or name in self.merged:
                continue
            a, b = self.lora_A[name], self.lora_B[name]
            out = out + b(a(self.dropout(x.to(a.weight.dtype)))) * self.scaling[name]
        return out.to(previous)


@program(lambda: (LoraLinear(nn.Linear(8, 8), names=("a", "b")), *X()))
def lora(m, x):
    y = m(x)
    with torch.no_grad():
        m.base.weight += m.delta("a")
    m.merged.append("a")
    return y, m(x), m.scaling


class Dora(LoraLinear):
    def __init__(self, base):
        super().__init__(base)
        self.magnitude = nn.Parameter(base.weight.norm(dim=1).detach())

    def forward(self, x):
        w = self.base.weight + self.delta("default")
        norm = torch.linalg.norm(w, dim=1).detach()
        return (self.magnitude / norm)[None] * F.linear(x, w) + self.base.bias


@program(lambda: (Dora(nn.Linear(8, 8)), *X()))
def dora(m, x):
    return m(x)


def replace_layers(module, match, make):
    for name, child in list(module.named_children()):
        if match(child):
            setattr(module, name, make(child))
        else:
            replace_layers(child, match, make)
    return module


class Int8Linear(nn.Module):
    def __init__(self, source):
        super().__init__()
        scale = source.weight.detach().abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", (source.weight.detach() / scale).round().to(torch.int8))
        self.register_buffer("scale", scale.squeeze(1))
        self.bias = source.bias

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype)) * self.scale + self.bias


@program(
    lambda: (
        replace_layers(
            nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 4))),
            lambda m: isinstance(m, nn.Linear),
            Int8Linear,
        ),
        *X(),
    )
)
def layers_replaced(m, x):
    return m(x), [type(c).__name__ for c in m.modules()]


@program(lambda: (torch.randint(0, 16, (8, 8)), torch.rand(8, 2), *X()))
def nf4_by_table(codes, absmax, x, block=4):
    table = torch.tensor(
        [
            -1.0,
            -0.6962,
            -0.5251,
            -0.3949,
            -0.2844,
            -0.1848,
            -0.0911,
            0.0,
            0.0796,
            0.1609,
            0.2461,
            0.3379,
            0.4407,
            0.5626,
            0.723,
            1.0,
        ]
    )
    w = (table[codes].view(8, -1, block) * absmax[..., None]).flatten(1)
    return x @ w.T


@program(X)
def quantised_by_torch(x):
    scale, zero = torch.tensor(0.1), torch.tensor(3, dtype=torch.int32)
    a = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)
    b = torch.fake_quantize_per_channel_affine(x, torch.full((8,), 0.1), torch.zeros(8, dtype=torch.int32), 1, 0, 255)
    return a, b, torch.fake_quantize_per_tensor_affine(x, scale, zero, 0, 255)


@program(lambda: (torch.randn(8, 8), torch.randn(16, 8)), grad=False)
def error_feedback_quantisation(w, calibration):
    H = calibration.T @ calibration + 0.1 * torch.eye(8)
    Hinv = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(H)), upper=True)
    w, q = w.clone(), torch.zeros_like(w)
    for i in range(w.size(1)):
        q[:, i] = (w[:, i] * 4).round() / 4
        err = (w[:, i] - q[:, i]) / Hinv[i, i]
        w[:, i:] -= err[:, None] * Hinv[i, i:][None]
    return q, (w - q).abs().mean()


@program(X)
def pruned_two_of_four(x):
    groups = x.abs().view(-1, 4)
    keep = torch.zeros_like(groups, dtype=torch.bool).scatter_(1, groups.topk(2, dim=1).indices, True)
    mask = keep.view_as(x)
    threshold = x.abs().flatten().kthvalue(int(0.5 * x.numel())).values
    return x * mask, x * (x.abs() > threshold), mask.sum(1)


class PagedCache:
    def __init__(self, pages=6, size=2, heads=2, dim=4):
        self.data = torch.zeros(pages, size, heads, dim)
        self.size, self.free, self.tables = size, list(range(pages)), defaultdict(list)
        self.lengths: Dict[int, int] = {}

    def append(self, seq, kv):
        n = self.lengths.get(seq, 0)
        for i, token in enumerate(kv):
            page, slot = divmod(n + i, self.size)
            if page >= len(self.tables[seq]):
                self.tables[seq].append(self.free.pop(0))
            self.data[self.tables[seq][page], slot] = token
        self.lengths[seq] = n + len(kv)

    def gather(self, seq):
        return self.data[self.tables[seq]].flatten(0, 1)[: self.lengths[seq]]

    def release(self, seq):
        self.free += self.tables.pop(seq)
        del self.lengths[seq]


@program(lambda: (torch.randn(3, 2, 4), torch.randn(2, 2, 4)), grad=False)
def paged_cache(a, b):
    cache = PagedCache()
    cache.append(0, a)
    cache.append(1, b)
    cache.append(0, b)
    out = torch.einsum("hd,thd->ht", a[0], cache.gather(0)).softmax(-1)
    cache.release(1)
    return out, cache.gather(0), sorted(cache.free), dict(cache.tables)


@program(
    lambda: (
        torch.randn(1, 2, 4, 8),
        torch.tensor([[0, 1, 2, 3]]),
        torch.tensor([[0, 0, 1, 1]]),
        torch.tensor([[0, 1, 0, 1]]),
    )
)
def rotary_of_sections(q, t, h, w, sections=(1, 1, 2)):
    inv = 10000.0 ** -(torch.arange(0, 8, 2).float() / 8)
    freqs = torch.stack([t, h, w])[..., None] * inv
    parts = [m[i % 3] for i, m in enumerate(freqs.split(sections, dim=-1))]
    emb = torch.cat(parts * 2, dim=-1).unsqueeze(1)
    q1, q2 = q[..., ::2], q[..., 1::2]
    rotated = torch.stack([-q2, q1], -1).flatten(-2)
    return q * emb.cos() + rotated * emb.sin()


@program(lambda: (torch.randn(1, 2, 6, 8),))
def rotary_with_yarn(q, base=10000.0, factor=4.0, original=4, fast=32, slow=1):
    dim = q.size(-1)
    correction = lambda rotations: dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(base))
    low, high = max(math.floor(correction(fast)), 0), min(math.ceil(correction(slow)), dim - 1)
    ramp = torch.clamp((torch.arange(dim // 2).float() - low) / max(high - low, 0.001), 0, 1)
    inv = 1.0 / base ** (torch.arange(0, dim, 2).float() / dim)
    inv = inv / factor * (1 - (1 - ramp)) + inv * (1 - ramp)
    angles = torch.outer(torch.arange(q.size(2)).float(), inv).repeat(1, 2)
    scale = 0.1 * math.log(factor) + 1.0
    half = torch.cat([-q[..., dim // 2 :], q[..., : dim // 2]], -1)
    return (q * angles.cos() + half * angles.sin()) * scale


@program(lambda: (torch.randn(2, 12), torch.randint(0, 12, (2, 5))), grad=False)
def sampler_pipeline(logits, history):
    counts = torch.zeros_like(logits).scatter_add_(1, history, torch.ones_like(history, dtype=logits.dtype))
    logits = logits - 0.3 * counts - 0.2 * (counts > 0)
    dry = torch.zeros_like(logits)
    for i in range(history.size(1) - 1):
        match = (history[:, i] == history[:, -1]).float()[:, None]
        dry.scatter_add_(1, history[:, i + 1, None], match * 0.8)
    logits = logits - dry
    eta = torch.minimum(
        torch.tensor(0.05), torch.exp(torch.distributions.Categorical(logits=logits).entropy().neg()) * 0.2
    )
    probs = logits.softmax(-1)
    probs = probs.masked_fill(probs < eta[:, None], 0)
    probs = probs / probs.sum(-1, keepdim=True)
    u = torch.rand(2, 1)
    return (probs.cumsum(-1) < u).sum(-1), probs


@dataclass(order=True)
class Hypothesis:
    score: float
    tokens: List[int] = field(compare=False)

    def extend(self, token, by):
        return Hypothesis(self.score + by, [*self.tokens, token])


@program(lambda: (torch.randn(4),))
def beams_of_objects(x):
    table = {0: [(1, -0.5), (2, -1.0)], 1: [(3, -0.25)], 2: [(3, -0.1), (0, -2.0)], 3: []}
    beams = [Hypothesis(0.0, [0])]
    for _ in range(2):
        grown = [h.extend(t, s) for h in beams for t, s in table[h.tokens[-1]]] or beams
        beams = sorted(grown, reverse=True)[:2]
    best = max(beams, key=lambda h: h.score / len(h.tokens))
    return x[best.tokens], best.tokens, [h.score for h in beams]


class Optimizer:
    def __init__(self, params, **defaults):
        self.groups = [{"params": list(params), **defaults}]
        self.state = defaultdict(dict)

    @torch.no_grad()
    def step(self, grads):
        it = iter(grads)
        for group in self.groups:
            for p in group["params"]:
                self.update(p, next(it), group, self.state[p])


class Nadam(Optimizer):
    def update(self, p, g, group, state):
        if not state:
            state.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p), mu=1.0)
        state["step"] += 1
        b1, b2, t = *group["betas"], state["step"]
        mu = b1 * (1 - 0.5 * 0.96 ** (t * 0.004))
        state["mu"] *= mu
        state["m"].lerp_(g, 1 - b1)
        state["v"].mul_(b2).addcmul_(g, g, value=1 - b2)
        denom = (state["v"] / (1 - b2**t)).sqrt_().add_(1e-8)
        p.addcdiv_(g, denom, value=-group["lr"] * (1 - mu) / (1 - state["mu"]))


@program(lambda: (nn.Linear(8, 2), *X()))
def nadam_by_hand(m, x):
    opt = Nadam(m.parameters(), lr=0.1, betas=(0.9, 0.99))
    for k in (1.0, 0.5):
        opt.step([torch.full_like(p, k) for p in m.parameters()])
    return m(x), opt.state[m.weight]["step"], len(opt.state)


@program(lambda: (torch.randn(6, 4), torch.randn(6, 4)), grad=False)
def shampoo_and_soap(p, g):
    L, R = g @ g.T + 1e-2 * torch.eye(6), g.T @ g + 1e-2 * torch.eye(4)

    def root(a, k):
        e, q = torch.linalg.eigh(a)
        return q @ torch.diag(e.clamp(min=1e-6) ** (-1 / k)) @ q.T

    return p - 0.1 * root(L, 4) @ g @ root(R, 4)


@program(lambda: (torch.randn(6), torch.randn(6)), grad=False)
def two_loop_recursion(x, g):
    ys, ss, q, alphas = [g * 0.5, g.flip(0)], [x * 0.1, x.roll(1)], g.clone(), []
    for s, y in reversed(list(zip(ss, ys))):
        a = (s @ q) / (y @ s)
        alphas.append(a)
        q.sub_(a * y)
    q *= (ss[-1] @ ys[-1]) / ys[-1].square().sum()
    for (s, y), a in zip(zip(ss, ys), reversed(alphas)):
        q += s * (a - (y @ q) / (y @ s))
    return -q


@program(lambda: ([torch.randn(3, 4), torch.randn(4)], [torch.randn(3, 4), torch.randn(4)]), grad=False)
def foreach_optimiser(params, grads):
    m, v = torch._foreach_mul(grads, 0.1), [torch.square(g) for g in grads]
    torch._foreach_lerp_(m, grads, 0.5)
    denom = torch._foreach_sqrt(v)
    torch._foreach_add_(denom, 1e-8)
    params = torch._foreach_addcdiv(params, m, denom, value=-0.1)
    torch._foreach_clamp_min_(params, -1)
    return params, torch._foreach_norm(params, 2), torch._foreach_div(m, [2.0, 4.0]), torch._foreach_maximum(m, v)


class Warmup:
    def __init__(self, base, steps):
        self.base, self.steps, self.n = base, steps, 0

    def __iter__(self):
        while True:
            self.n += 1
            yield self.base * min(self.n / self.steps, (self.steps / self.n) ** 0.5)


@program(X)
def schedules_as_iterators(x):
    s = Warmup(1.0, 2)
    lrs = [lr for lr, _ in zip(s, range(4))]
    return sum(x[i] * lr for i, lr in enumerate(lrs)), lrs, s.n


@program(lambda: (nn.Linear(8, 5), nn.Linear(8, 5), *X()))
def distilled(student, teacher, x, T=2.0, alpha=0.5):
    with torch.no_grad():
        t = teacher(x)
    s = student(x)
    kd = F.kl_div(F.log_softmax(s / T, 1), F.log_softmax(t / T, 1), log_target=True, reduction="batchmean") * T * T
    rkd = F.smooth_l1_loss(*(F.normalize(torch.pdist(v)[None])[0] for v in (s, t)))
    order = (torch.sort(t, descending=True)[1][:, :2] == torch.sort(s, descending=True)[1][:, :2]).float().mean()
    return alpha * kd + (1 - alpha) * F.cross_entropy(s, t.argmax(1)) + rkd, order


@program(lambda: (torch.randn(4, 8), torch.randn(4, 8), torch.tensor([0, 1, 0, 2])))
def contrastive_family(a, b, labels, t=0.1):
    a, b = F.normalize(a, dim=1), F.normalize(b, dim=1)
    sim = a @ b.T / t
    sigmoid = -F.logsigmoid(sim * (2 * torch.eye(4) - 1)).sum(-1).mean()
    same = labels[:, None] == labels[None]
    logits = (a @ a.T / t).masked_fill(torch.eye(4, dtype=torch.bool), -1e9)
    logp = logits - logits.logsumexp(1, keepdim=True)
    positives = same & ~torch.eye(4, dtype=torch.bool)
    supcon = -(logp * positives).sum(1) / positives.sum(1).clamp(min=1)
    uniform = torch.pdist(a).pow(2).mul(-2).exp().mean().log()
    queue = torch.cat([b, torch.zeros(2, 8)])[-4:]
    moco = F.cross_entropy(
        torch.cat([(a * b).sum(1, keepdim=True), a @ queue.T.detach()], 1), torch.zeros(4, dtype=torch.long)
    )
    return sigmoid, supcon.mean(), uniform, moco, (a - b).norm(dim=1).pow(2).mean()


@program(lambda: (torch.randn(7, 4), torch.tensor([0, 0, 1, 1, 1, 2, 2]), torch.tensor([0, 2, 5, 7])))
def pooling_of_graphs(x, batch, ptr):
    n = 3
    ones = x.new_ones(len(x))
    count = torch.zeros(n).scatter_add_(0, batch, ones)
    mean = torch.zeros(n, 4).index_add_(0, batch, x) / count[:, None]
    maxed = torch.segment_reduce(x, "max", lengths=ptr.diff(), axis=0)
    centred = x - mean[batch]
    var = torch.zeros(n, 4).index_add(0, batch, centred**2) / count[:, None]
    score = (x @ torch.ones(4)).tanh()
    key = batch * 10.0 - score
    order = key.argsort(stable=True)
    rank = torch.arange(len(x)) - ptr[batch[order]]
    return mean, maxed, var, x[order] * score[order, None], rank < 2


@program(lambda: (torch.randn(5, 4), torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 0, 4, 3, 0]])))
def graph_transforms(x, edges):
    row, col = edges
    n = x.size(0)
    adj = torch.zeros(n, n).index_put((row, col), torch.ones(6), accumulate=True)
    deg = adj.sum(1)
    lap = torch.diag(deg) - adj
    walk = torch.stack(
        [torch.linalg.matrix_power(adj / deg.clamp(min=1)[:, None], k).diagonal() for k in range(1, 4)], 1
    )
    reach = adj + torch.eye(n) > 0
    for _ in range(3):
        reach = (reach.float() @ reach.float()) > 0
    parent = torch.arange(n)
    for _ in range(3):
        parent = torch.minimum(parent, torch.full((n,), n).scatter_reduce(0, col, parent[row], "amin"))
    return x * deg[:, None] @ lap.new_ones(4, 1), walk, reach, parent, lap.trace()


@program(lambda: (torch.randn(4, 8), torch.tensor([[0, 1, 1, 3], [1, 0, 2, 2]])))
def sparse_tensors(x, index):
    a = torch.sparse_coo_tensor(index, torch.ones(4), (4, 4)).to_dense()
    return a @ x


@program(lambda: ([torch.randn(2, 3), torch.randn(4, 3)],))
def padded_and_unpadded(parts):
    padded = rnn.pad_sequence(parts, batch_first=True, padding_value=-1.0)
    lengths = [len(p) for p in parts]
    return padded, [r[:n] for r, n in zip(padded, lengths)]


@program(
    lambda: (nn.LSTMCell(3, 4), nn.RNN(3, 4, nonlinearity="relu"), nn.LSTM(3, 4, proj_size=2), torch.randn(5, 2, 3))
)
def recurrent_kinds(cell, rnn_, proj, x):
    h = c = x.new_zeros(2, 4)
    outs = []
    for t in range(x.size(0)):
        h, c = cell(x[t], (h, c))
        outs.append(h)
    y, hn = rnn_(x)
    z, (hp, cp) = proj(x)
    return torch.stack(outs), y, hn, z, hp.shape, cp


class HashEmbedding(nn.Module):
    def __init__(self, tables, dim):
        super().__init__()
        self.bag = nn.EmbeddingBag(tables, dim, mode="sum", include_last_offset=True)
        self.register_buffer("primes", torch.tensor([31, 37]))

    def forward(self, ids, offsets, weights=None):
        hashed = (ids[:, None] * self.primes + 7) % self.bag.num_embeddings
        return self.bag(hashed[:, 0], offsets, per_sample_weights=weights), F.embedding(hashed, self.bag.weight).sum(1)


@program(lambda: (HashEmbedding(11, 4), torch.tensor([3, 99, 12, 7]), torch.tensor([0, 1, 4]), torch.rand(4)))
def bags_of_hashes(m, ids, offsets, weights):
    return m(ids, offsets, weights), m(ids, offsets)[0]


@program(lambda: (torch.randn(4, 3, 8),))
def factorisation_machines(e):
    square_of_sum, sum_of_square = e.sum(1) ** 2, (e**2).sum(1)
    i, j = map(list, zip(*itertools.combinations(range(e.size(1)), 2)))
    inner = (e[:, i] * e[:, j]).sum(-1)
    outer = torch.einsum("bfi,bgj->bfgij", e[:, :2], e[:, 1:]).flatten(1)
    compressed = torch.einsum("bhd,bmd,ohm->bod", e, e, torch.ones(2, 3, 3))
    return 0.5 * (square_of_sum - sum_of_square).sum(1), inner, outer.mean(1), compressed


@program(lambda: (torch.randn(3, 6), torch.rand(3, 6) > 0.5))
def ranking_losses(scores, clicked):
    rel = clicked.float()
    order = scores.argsort(1, descending=True)
    gains = rel.gather(1, order) / torch.log2(torch.arange(2, 8).float())
    ideal = rel.sort(1, descending=True).values / torch.log2(torch.arange(6) + 2.0)
    pair = scores[:, :, None] - scores[:, None]
    bpr = -(F.logsigmoid(pair) * (rel[:, :, None] > rel[:, None])).sum((1, 2))
    shifted = torch.where(order.argsort(1) >= 0, scores, 0.0)
    list_mle = (torch.logcumsumexp(shifted.flip(1), 1).flip(1) - shifted).sum(1)
    return (
        gains.sum(1) / ideal.sum(1).clamp(min=1e-6),
        bpr,
        list_mle,
        F.margin_ranking_loss(scores[:, 0], scores[:, 1], torch.ones(3)),
    )


@program(X)
def rearranged(x):
    def parse(side):
        out, group = [], None
        for token in side.replace("(", " ( ").replace(")", " ) ").split():
            if token == "(":
                group = []
            elif token == ")":
                out.append(tuple(group))
                group = None
            elif group is not None:
                group.append(token)
            else:
                out.append((token,))
        return out

    def einops(t, pattern, op=None, **sizes):
        left, right = map(parse, pattern.split("->"))
        for group, n in zip(left, t.shape):
            known = math.prod(sizes[a] for a in group if a in sizes)
            sizes |= {a: n // known for a in group if a not in sizes}
        names = [a for g in left for a in g]
        t = t.reshape([sizes[a] for a in names])
        flat = [a for g in right for a in g]
        gone = [names.index(a) for a in names if a not in flat]
        if gone:
            t = getattr(t, op)(dim=gone)
            names = [a for a in names if a in flat]
        t = t.permute([names.index(a) for a in flat if a in names])
        return t.reshape([math.prod(sizes[a] for a in g) for g in right])

    return (
        einops(x, "b (h d) -> h b d", h=2),
        einops(x, "(a b) c -> a c", "amax", a=2),
        einops(x, "b (x y z) -> (z b) (x y)", x=2, y=2),
    )


@program(lambda: (torch.randn(16),))
def signals(x):
    window = torch.hann_window(8)
    spec = torch.stft(x[None], 8, 4, window=window, return_complex=True, center=True)
    back = torch.istft(spec, 8, 4, window=window, length=16)
    envelope = torch.fft.ifft(torch.fft.fft(x) * torch.tensor([1.0] + [2.0] * 7 + [1.0] + [0.0] * 7)).abs()
    lags = torch.fft.irfft(torch.fft.rfft(x, 32).abs() ** 2)[:16]
    phase = torch.angle(spec).diff(dim=-1)
    wrapped = phase - 2 * math.pi * torch.round(phase / (2 * math.pi))
    return back, envelope, lags, wrapped.cos(), spec.abs().clamp(min=1e-5).log10().mul(20)


@program(lambda: (torch.randn(8, 8),))
def spectral_solvers(u):
    k = torch.fft.fftfreq(8, 1 / 8) * 2 * math.pi
    k2 = k[:, None] ** 2 + k[None] ** 2
    hat = torch.fft.fft2(u)
    inverse = torch.where(k2 == 0, torch.zeros(()), -1 / torch.where(k2 == 0, 1.0, k2))
    psi = torch.fft.ifft2(hat * inverse).real
    dx = torch.fft.ifft2(1j * k[:, None] * hat).real
    mask = (k.abs() < 2 / 3 * k.abs().max()).float()
    dct = torch.fft.fft(torch.cat([u, u.flip(-1)], -1))[..., :8].real
    return psi, dx, torch.fft.ifft2(hat * mask * mask[:, None]).real, dct, torch.fft.rfftn(u, norm="forward").imag


@program(lambda: (torch.randn(3, 4), torch.randn(3, 4)))
def complex_layers(re, im):
    z = torch.view_as_complex(torch.stack([re, im], -1).contiguous())
    w = torch.complex(torch.eye(4), torch.ones(4, 4) * 0.1)
    y = z @ w.conj().T
    modrelu = F.relu(y.abs() - 0.1) * y / (y.abs() + 1e-6)
    return (
        torch.view_as_real(modrelu),
        y.real.mean(),
        torch.cat([y.real, y.imag], -1),
        y.abs().square().sum(),
        (z * z.conj()).real,
        torch.sgn(z).imag,
    )


class Particle(NamedTuple):
    pos: Tensor
    vel: Tensor
    mass: float = 1.0


@program(lambda: (Particle(torch.randn(4, 2), torch.zeros(4, 2)), 0.01))
def symplectic_steps(p, dt):
    def acceleration(pos):
        r = pos[:, None] - pos[None]
        return -(r / (r.square().sum(-1, keepdim=True) + 0.1) ** 1.5).sum(1)

    w = 1 / (2 - 2 ** (1 / 3))
    for c in (w, 1 - 2 * w, w):
        vel = p.vel + 0.5 * c * dt * acceleration(p.pos)
        pos = p.pos + c * dt * vel
        p = p._replace(pos=pos, vel=vel + 0.5 * c * dt * acceleration(pos))
    return p, (p.mass * p.vel.square().sum() / 2)


TABLEAU = {
    "heun": ([[], [1.0]], [0.5, 0.5]),
    "rk4": ([[], [0.5], [0.0, 0.5], [0.0, 0.0, 1.0]], [1 / 6, 1 / 3, 1 / 3, 1 / 6]),
}


@program(lambda: (torch.randn(3),))
def integrators_by_tableau(y):
    f = lambda t, y: torch.stack([y[1], -y[0] + t * 0.1, y[0] * y[2]])

    def solve(method, y, ts):
        A, b = TABLEAU[method]
        c = [sum(a) for a in A]
        for t0, t1 in itertools.pairwise(ts):
            h, ks = t1 - t0, []
            for ci, row in zip(c, A):
                ks.append(f(t0 + ci * h, y + h * sum((a * k for a, k in zip(row, ks)), torch.zeros(3))))
            y = y + h * sum(bi * k for bi, k in zip(b, ks))
        return y

    return {name: solve(name, y, [0.0, 0.2, 0.4]) for name in TABLEAU}


@program(lambda: (torch.randn(6, 3),))
def rotations_of_points(p):
    a, b = p[:3], p[3:]
    e1 = F.normalize(a, dim=-1)
    e2 = F.normalize(b - (e1 * b).sum(-1, keepdim=True) * e1, dim=-1)
    R = torch.stack([e1, e2, torch.linalg.cross(e1, e2)], -1)
    K = torch.zeros(3, 3, 3)
    K[:, 0, 1], K[:, 0, 2], K[:, 1, 2] = -a[:, 2], a[:, 1], -a[:, 0]
    K = K - K.mT
    theta = a.norm(dim=-1)[:, None, None]
    rodrigues = torch.eye(3) + K / theta * theta.sin() + (K / theta) @ (K / theta) * (1 - theta.cos())
    trace = R.diagonal(dim1=-2, dim2=-1).sum(-1)
    H = (p - p.mean(0)).T @ (p - p.mean(0))
    return R, rodrigues, torch.acos(((trace - 1) / 2).clamp(-1 + 1e-6, 1 - 1e-6)), torch.linalg.eigvalsh(H)


@program(lambda: (torch.rand(5, 5),))
def images_by_hand(img):
    integral = F.pad(img.cumsum(0).cumsum(1), (1, 0, 1, 0))
    box = integral[2:, 2:] - integral[:-2, 2:] - integral[2:, :-2] + integral[:-2, :-2]
    sobel = torch.tensor([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])
    gx, gy = F.conv2d(img[None, None], torch.stack([sobel, sobel.T])[:, None], padding="same")[0]
    hist = torch.histc(img.detach(), 4, 0, 1)
    lut = (hist.cumsum(0) / img.numel()).clamp(0, 1)
    dilated = F.max_pool2d((img > 0.5).float()[None], 3, 1, 1)
    return (
        box,
        torch.atan2(gy, gx + 1e-6),
        lut[(img * 4).long().clamp(max=3)],
        dilated,
        -F.max_pool2d(-dilated, 3, 1, 1),
    )


class Registry(dict):
    def register(self, *names):
        def wrap(f):
            for n in names or [f.__name__]:
                self[n] = f
            return f

        return wrap

    def __missing__(self, key):
        raise KeyError(f"{key!r} is not one of {', '.join(sorted(self))}")


LOSSES = Registry()


@LOSSES.register("l1", "mae")
def _(x, y, **kw):
    return (x - y).abs().mean()


@LOSSES.register()
def charbonnier(x, y, eps=1e-3):
    return ((x - y) ** 2 + eps**2).sqrt().mean()


@program(X)
def losses_by_registry(x):
    weights = {"mae": 1.0, "charbonnier": (0.5, {"eps": 0.1})}
    total, logs = 0.0, {}
    for name, spec in weights.items():
        w, kw = spec if isinstance(spec, tuple) else (spec, {})
        logs[f"loss/{name}"] = (value := LOSSES[name](x, x.flip(0), **kw)).detach()
        total = total + w * value
    try:
        LOSSES["l2"]
    except KeyError as e:
        missing = e.args[0]
    return total, logs, missing


@dataclass
class Output:
    loss: Optional[Tensor] = None
    logits: Tensor = None
    hidden: Optional[Tuple[Tensor, ...]] = None

    def __getitem__(self, k):
        return getattr(self, k) if isinstance(k, str) else self.to_tuple()[k]

    def to_tuple(self):
        return tuple(v for v in vars(self).values() if v is not None)

    def keys(self):
        return [k for k, v in self.__dict__.items() if v is not None]


def capture_outputs(f):
    @functools.wraps(f)
    def wrapper(self, *args, output_hidden: Optional[bool] = None, return_dict=True, **kwargs):
        collected, handles = [], []
        if output_hidden if output_hidden is not None else self.config.get("output_hidden", False):
            kwargs["collect"] = collected.append
        out = f(self, *args, **kwargs)
        out.hidden = tuple(collected) or None
        return out if return_dict else out.to_tuple()

    return wrapper


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = {"output_hidden": False}
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(2)])

    @capture_outputs
    def forward(self, x, labels=None, collect=lambda h: None):
        for layer in self.layers:
            x = layer(x).relu()
            collect(x)
        loss = None if labels is None else F.cross_entropy(x, labels)
        return Output(loss=loss, logits=x)


@program(lambda: (Encoder(), *X()))
def outputs_collected(m, x):
    a, b = m(x, output_hidden=True), m(x, return_dict=False, labels=torch.tensor([0, 1, 2, 3]))
    return a.logits, a.hidden, a["logits"] is a[0], a.keys(), b, {**a}


@program(X)
def jagged_by_offsets(x):
    lengths = [1, 3]
    offsets = [0, *itertools.accumulate(lengths)]
    rows = [x[a:b] for a, b in zip(offsets, offsets[1:])]
    dense = torch.zeros(2, max(lengths), 8)
    for i, r in enumerate(rows):
        dense[i, : len(r)] = r
    index = torch.repeat_interleave(torch.arange(2), torch.tensor(lengths), output_size=4)
    return dense, index, torch.cat([r.mean(0, keepdim=True) for r in rows]), torch.stack([*map(torch.sum, rows)])


@program(
    lambda: (
        torch.randn(3, 4, 6),
        torch.tensor([[1, 2], [2, 3], [1, 1]]),
        torch.tensor([4, 4, 3]),
        torch.tensor([2, 2, 2]),
    )
)
def connectionist_loss(logits, targets, input_lengths, target_lengths):
    logp = logits.log_softmax(-1).transpose(0, 1)
    greedy = logits.argmax(-1)
    kept = torch.cat([torch.ones(3, 1, dtype=torch.bool), greedy[:, 1:] != greedy[:, :-1]], 1) & (greedy != 0)
    alpha = torch.full((3, 5), -1e9)
    extended = torch.zeros(3, 5, dtype=torch.long).index_copy(1, torch.tensor([1, 3]), targets)
    emit = logp.gather(2, extended.expand(4, 3, 5))
    alpha[:, :2] = emit[0, :, :2]
    skip = (extended != 0) & (extended != extended.roll(2, 1))
    for t in range(1, 4):
        one, two = F.pad(alpha, (1, 0), value=-1e9)[:, :5], F.pad(alpha, (2, 0), value=-1e9)[:, :5]
        step = torch.stack([alpha, one, torch.where(skip, two, -1e9)]).logsumexp(0) + emit[t]
        alpha = torch.where((t < input_lengths)[:, None], step, alpha)
    return -alpha[:, -2:].logsumexp(1) / target_lengths, kept.sum(1)


@program(lambda: (torch.randn(2, 4), torch.randn(2, 4).exp()))
def distributions_of_torch(loc, scale):
    import torch.distributions as D

    normal = D.Independent(D.Normal(loc, scale), 1)
    mixture = D.MixtureSameFamily(D.Categorical(logits=loc), D.Normal(loc, scale))
    return (
        normal.log_prob(loc + 1), normal.entropy(), mixture.log_prob(torch.zeros(2)), normal.rsample().shape,
        D.kl_divergence(D.Normal(loc, scale), D.Normal(0.0, 1.0)), D.Bernoulli(logits=loc).log_prob(torch.ones(2, 4)),
        D.Laplace(loc, scale).cdf(loc), D.Beta(scale, scale).mean, D.Exponential(scale).variance, D.Gumbel(loc, scale).log_prob(loc),
    )  # fmt: skip


@program(lambda: (nn.ModuleDict({"actor": nn.Linear(8, 2), "critic": nn.Linear(8, 1)}), *X()))
def actor_and_critic(m, x):
    logits, value = m["actor"](x), m["critic"](x).squeeze(-1)
    action = logits.argmax(-1)
    logp = logits.log_softmax(-1).gather(-1, action[:, None])[:, 0]
    rewards, dones = torch.arange(4.0), torch.tensor([0.0, 0, 1, 0])
    targets, carry = [], value[-1].detach()
    for r, d in zip(rewards.flip(0), dones.flip(0)):
        carry = r + 0.9 * carry * (1 - d)
        targets.append(carry)
    adv = torch.stack(targets[::-1]) - value
    grpo = (rewards.view(2, 2) - rewards.view(2, 2).mean(1, keepdim=True)) / (
        rewards.view(2, 2).std(1, keepdim=True) + 1e-4
    )
    return -(logp * adv.detach()).mean() + 0.5 * adv.square().mean(), grpo


@program(lambda: (nn.Conv2d(2, 4, 3, padding=1, groups=2), nn.GroupNorm(2, 4), torch.randn(1, 2, 5, 5)))
def convolutions_of_all_kinds(conv, norm, x):
    y = norm(conv(x))
    return (
        F.conv_transpose2d(y, conv.weight.expand(4, 1, 3, 3), stride=2, output_padding=1, padding=1, groups=4),
        F.conv2d(y, torch.ones(1, 4, 3, 3), dilation=2, padding="same"), F.avg_pool2d(y, 3, 2, ceil_mode=True, count_include_pad=False),
        F.conv1d(y.flatten(2), torch.ones(2, 4, 3), stride=2), F.conv3d(y[None], torch.ones(1, 1, 2, 2, 2)), F.channel_shuffle(y, 2),
        F.adaptive_avg_pool1d(y.flatten(2), 3), F.fractional_max_pool2d(y, 2, output_size=3, _random_samples=torch.rand(1, 4, 2)),
    )  # fmt: skip


@program(X)
def rarer_operators(x):
    idx = torch.tensor([0, 2])
    return (
        x.index_fill(0, idx, 1.0), x.index_copy(0, idx, x[:2]), x.masked_scatter(x > 0, x.flip(0)), x.select_scatter(x[0], 0, 1),
        x.slice_scatter(x[:, :2], 1, 2, 4), x.diagonal_scatter(torch.ones(4)), x.scatter(1, idx[None].expand(4, 2), 9.0),
        torch.scatter_reduce(x, 0, idx[None].expand(1, 2), x[:1, :2], "prod"), x.rot90(), x.logaddexp2(x + 1),
        x.renorm(2, 0, 1.0), torch.trapezoid(x), x.nansum(), x.sum_to_size(1, 8), torch.cartesian_prod(x[0, :2], x[1, :2]),
        torch.combinations(x[0, :3]), torch.bucketize(x.detach(), torch.tensor([0.0])), x.ldexp(torch.tensor(2)), x.frexp()[0],
        torch.float_power(x.abs(), 2), x.nextafter(x + 1), torch.special.erfcx(x), torch.special.multigammaln(x.abs() + 2, 2), x.signbit(),
        torch.gradient(x)[0], x.amax((0, 1)), x.argsort(stable=True), x.unfold(1, 2, 3), x.var(0),
    )  # fmt: skip


class RingCache:
    """A sliding window of keys, written in place; positions wrap around."""

    def __init__(self, size, dim):
        self.keys, self.seen = torch.zeros(size, dim), 0

    def update(self, k):
        slots = (torch.arange(len(k)) + self.seen) % len(self.keys)
        self.keys[slots] = k.detach()
        self.seen += len(k)
        return self.keys.roll(-self.seen % len(self.keys), 0)


@program(lambda: (RingCache(4, 8), *X()))
def ring_caches(cache, x):
    first = cache.update(x[:3]).clone()
    return first, cache.update(x[:2]).clone(), cache.seen


@program(lambda: (torch.randn(2, 4, 6, 8), torch.randn(2, 2, 6, 8)))
def grouped_heads_in_blocks(q, kv, block=3):
    k = kv[:, :, None].expand(-1, -1, 2, -1, -1).flatten(1, 2)
    out, lse = [], []
    for i in range(0, q.size(2), block):
        s = q[:, :, i : i + block] @ k.mT / math.sqrt(q.size(-1))
        causal = torch.arange(i, i + block)[:, None] >= torch.arange(k.size(2))
        s = s.masked_fill(~causal, torch.finfo(s.dtype).min)
        lse.append(s.logsumexp(-1))
        out.append((s - lse[-1][..., None]).exp() @ k)
    return torch.cat(out, 2), torch.cat(lse, -1)


@program(lambda: (torch.randn(2, 5, 8), torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])))
def pooled_sentences(h, mask, kinds=("cls", "mean", "max", "last")):
    m = mask.unsqueeze(-1).to(h.dtype)
    pools = {
        "cls": lambda: h[:, 0],
        "mean": lambda: (h * m).sum(1) / m.sum(1).clamp(min=1e-9),
        "max": lambda: h.masked_fill(m == 0, -1e9).max(1).values,
        "last": lambda: h[torch.arange(2), mask.sum(1) - 1],
    }
    out = {k: F.normalize(pools[k](), p=2, dim=-1) for k in kinds}
    return out, out["mean"] @ out["cls"].T


@program(lambda: (torch.randn(6, 8), torch.tensor([2, 0, 1, 2, 0, 0])))
def grouped_experts(x, expert):
    order = expert.argsort(stable=True)
    counts = torch.bincount(expert, minlength=3)
    starts = counts.cumsum(0) - counts
    weights = torch.stack([torch.eye(8) * (i + 1) for i in range(3)])
    y = torch.einsum("nd,nde->ne", x[order], weights[expert[order]])
    load = counts.float() / counts.sum()
    return torch.zeros_like(x).index_copy(0, order, y), starts, (load * load.clamp_min(1e-9).log()).sum()


@program(lambda: (torch.randn(3, 8), torch.randn(5, 8)))
def matched_features(a, b, t=0.2):
    sim = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T
    dual = (sim / t).softmax(0) * (sim / t).softmax(1)
    row, col = dual.argmax(1), dual.argmax(0)
    mutual = col[row] == torch.arange(3)
    return dual, torch.where(mutual, row, -1), dual.amax(1)[None].expand(2, -1)


@program(lambda: (nn.Conv1d(8, 4, 1), nn.BatchNorm1d(4, track_running_stats=False), torch.randn(2, 8, 5)))
def point_features(conv, norm, points):
    y = F.leaky_relu(norm(conv(points)), 0.2)
    d = -torch.cdist(points.mT, points.mT)
    idx = d.topk(2, dim=-1)[1]
    flat = (idx + torch.arange(2).view(-1, 1, 1) * 5).view(-1)
    neighbours = y.transpose(1, 2).reshape(10, 4)[flat].view(2, 5, 2, 4)
    return neighbours.max(2)[0], y.max(-1, keepdim=True)[0].expand(-1, -1, 5)


@program(lambda: (torch.rand(2, 3, 6, 6),))
def augmented_images(x):
    ops: List[Tuple[str, Callable]] = [
        ("solarize", lambda x, v: torch.where(x < v, x, 1 - x)),
        ("posterize", lambda x, v: (x * 255).to(torch.uint8).bitwise_and(0xF0).float() / 255),
        ("cutout", lambda x, v: x * (1 - F.pad(torch.ones(1, 1, 2, 2), (1, 3, 2, 2)))),
        ("flip", lambda x, v: x.flip(-1)),
        ("contrast", lambda x, v: x.lerp(x.mean((-3, -2, -1), keepdim=True), v)),
        ("shear", lambda x, v: torch.stack([r.roll(i, -1) for i, r in enumerate(x.unbind(-2))], -2)),
    ]
    mean, std = (torch.tensor(v)[:, None, None] for v in ([0.5, 0.4, 0.3], [0.2, 0.2, 0.3]))
    return {name: ((f(x, 0.5) - mean) / std).clamp(-2, 2) for name, f in ops}


@program(lambda: (torch.randn(2, 3, 4), torch.randn(2, 3, 4)))
def rewards_and_advantages(logp, old, clip=0.2):
    ratio = (logp - old.detach()).exp()
    rewards = torch.linspace(-1, 1, 6).view(2, 3)
    whitened = (rewards - rewards.mean()) * torch.rsqrt(rewards.var() + 1e-8)
    kl = (old.exp() * (old - logp)).sum(-1)
    advantage = whitened[..., None]
    surrogate = torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
    clipped = ((ratio - 1).abs() > clip).float().mean()
    return -surrogate.mean() + 0.1 * kl.mean(), clipped, (-logp).exp().mean().log()


@program(lambda: (nn.GRUCell(4, 6), nn.Linear(6, 4), torch.randn(2, 5, 4)))
def world_model(cell, head, obs):
    h, prior, posts = torch.zeros(2, 6), [], []
    for t in range(obs.size(1)):
        h = cell(obs[:, t], h)
        mean, raw = head(h).chunk(2, -1)
        std = 2 * torch.sigmoid(raw / 2) + 0.1
        posts.append(mean + std * torch.randn_like(std))
        prior.append((mean, std))
    means, stds = (torch.stack(v, 1) for v in zip(*prior))
    kl = (
        (stds[:, 1:] / stds[:, :-1]).log()
        + (stds[:, :-1] ** 2 + (means[:, :-1] - means[:, 1:]) ** 2) / (2 * stds[:, 1:] ** 2)
        - 0.5
    )
    return torch.stack(posts, 1), kl.clamp(min=1.0).mean(), h


@program(lambda: (torch.randn(4, 8), torch.randn(6, 8), torch.tensor([0, 1, 5, 5])))
def sampled_softmax(users, items, target):
    popularity = torch.arange(1.0, 7) / 21
    logits = users @ items.T - popularity.log()
    positive = logits.gather(1, target[:, None])
    negatives = torch.multinomial(popularity.expand(4, -1), 3, replacement=True)
    hit = negatives == target[:, None]
    sampled = torch.cat([positive, logits.gather(1, negatives).masked_fill(hit, -1e4)], 1)
    return F.cross_entropy(sampled, torch.zeros(4, dtype=torch.long)), negatives.shape, (logits >= positive).sum(1)


@program(lambda: (torch.randn(2, 9, 4),))
def multiscale_series(x, kernels=(3, 5)):
    trends = [F.avg_pool1d(F.pad(x.mT, (k // 2, k // 2), mode="replicate"), k, 1).mT for k in kernels]
    seasonal = x - torch.stack(trends).mean(0)
    patches = x.mT.unfold(-1, 3, 3).contiguous().view(2, 4, -1, 3)
    freq = torch.fft.rfft(seasonal, dim=1, norm="ortho")
    top = freq.abs().mean((0, 2)).topk(2).indices
    period = x.size(1) // (top + 1)
    return seasonal, patches.mean(-1), freq.abs(), period, torch.stack([x[:, i::3].sum(1) for i in range(3)])


@program(lambda: (torch.randn(5, 3), torch.randint(0, 4, (5,))))
def atoms_and_cells(pos, species):
    cell = torch.diag(torch.tensor([4.0, 5.0, 6.0]))
    shifts = torch.cartesian_prod(*[torch.arange(-1.0, 2)] * 3)
    d = pos[:, None, None] - pos[None, :, None] + (shifts @ cell)
    dist = d.square().sum(-1).add(1e-9).sqrt()
    near = (dist < 3) & (dist > 1e-3)
    charge = F.embedding(species, torch.tensor([[0.5], [1.0], [-0.5], [0.1]])).squeeze(-1)
    energy = 0.5 * (charge[:, None, None] * charge[None, :, None] * torch.erfc(dist) / dist * near).sum()
    cos = F.cosine_similarity(d[:, :, 13][:, :, None], d[:, :, 13][:, None], dim=-1)
    return energy, torch.func.grad(lambda p: (p.square().sum(-1) * charge).sum())(pos), cos.nan_to_num(), near.sum()


@program(lambda: (nn.ModuleDict({k: nn.Linear(8, 8) for k in "qkvo"}), *X()))
def early_stopping_of_layers(m, x):
    gates = {"q": 0.9, "k": 0.1, "v": 0.6}
    skipped = []
    for name, layer in m.items():
        if (gate := gates.get(name)) is None:
            break
        if gate < 0.5:
            skipped += [name]
            continue
        x = x + gate * layer(x)
    else:
        skipped.append("none")
    return m["o"](x), skipped


@program(lambda: (nn.Linear(8, 8), *X()))
def half_and_full_copies(m, x):
    master = {n: p.detach().float().clone() for n, p in m.named_parameters()}
    low = {n: p.to(torch.bfloat16) for n, p in m.named_parameters()}
    y = F.linear(x.bfloat16(), low["weight"], low["bias"]).float()
    scale = 2.0**7
    grads = {n: torch.full_like(p, 0.1) * scale for n, p in master.items()}
    finite = torch.stack([g.isfinite().all() for g in grads.values()]).all()
    stepped = {n: torch.where(finite, p - 0.1 * grads[n] / scale, p) for n, p in master.items()}
    return y, stepped, finite


@program(X)
def chunked_recompute(x):
    def attend(q, k):
        return (q @ k.T).softmax(-1) @ k

    from torch.utils.checkpoint import checkpoint

    parts = [checkpoint(attend, q, x, use_reentrant=False) for q in x.split(2)]
    return torch.cat(parts), sum(p.square().mean() for p in parts)


@program(lambda: (torch.randn(6, 4),), grad=False)
def low_rank_weights(w, rank=2):
    u, s, v = torch.svd_lowrank(w, q=rank, niter=3)
    up, down = u * s.sqrt(), (v * s.sqrt()).T
    residual = w - up @ down
    return (up @ down).shape, residual.norm() < w.norm(), torch.pca_lowrank(w, q=rank)[1].shape


@program(lambda: (nn.Linear(8, 4), *X()))
def intervened_activations(m, x, directions=((0, 2.0), (2, -1.0))):
    basis, coefficients = torch.linalg.qr(torch.randn(8, 8))[0], x.new_zeros(8)
    for i, c in directions:
        coefficients = coefficients.index_fill(0, torch.tensor([i]), c)
    along = (x @ basis)[:, [i for i, _ in directions]]
    ablated = x - along @ basis[:, [i for i, _ in directions]].T
    return m(x + coefficients @ basis.T), m(ablated), along.abs().mean(0)


@program(lambda: (torch.randn(3, 8), torch.randn(3, 8)))
def merged_checkpoints(a, b, t=0.3, density=0.5):
    na, nb = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    omega = torch.acos((na * nb).sum(-1, keepdim=True).clamp(-1 + 1e-6, 1 - 1e-6))
    slerp = (torch.sin((1 - t) * omega) * a + torch.sin(t * omega) * b) / torch.sin(omega)
    deltas = torch.stack([a - b, b - a.flip(0)])
    keep = deltas.abs() >= deltas.abs().flatten(1).quantile(1 - density, dim=1)[:, None, None]
    trimmed = deltas * keep
    sign = torch.sign(trimmed.sum(0))
    agree = trimmed * (torch.sign(trimmed) == sign)
    return slerp, agree.sum(0) / (agree != 0).sum(0).clamp(min=1)
