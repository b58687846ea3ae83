# mypy: ignore-errors
# ruff: noqa
"""Losses, metrics, regularisers, schedules and the bookkeeping around a training step."""

import collections
import functools
import itertools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.sweeps.snippets.corpus import program

LOGITS = lambda: (torch.randn(4, 5), torch.tensor([0, 3, 2, 4]))
PAIR = lambda: (torch.randn(4, 6), torch.randn(4, 6))


@program(LOGITS)
def smoothed_cross_entropy(logits, target, eps=0.1, ignore=-100):
    logp = F.log_softmax(logits, dim=-1)
    nll = -logp.gather(dim=-1, index=target.unsqueeze(1)).squeeze(1)
    loss = (1 - eps) * nll - eps * logp.mean(dim=-1)
    pad = target.eq(ignore)
    return loss.masked_fill_(pad, 0.0).sum() / (~pad).sum()


@program(LOGITS)
def focal(logits, target, gamma=2.0, weight=(1.0, 2.0, 0.5, 1.0, 3.0)):
    ce = F.cross_entropy(logits, target, weight=torch.tensor(weight), reduction="none", label_smoothing=0.05)
    return ((1 - torch.exp(-ce)) ** gamma * ce).mean()


@program(PAIR)
def contrastive_clip(a, b):
    a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    scale = torch.tensor(np.log(1 / 0.07), dtype=torch.float32).exp().clamp(max=100)
    logits = scale * a @ b.t()
    labels = torch.arange(logits.shape[0])
    accuracy = {f"top{k}": (logits.topk(k)[1] == labels[:, None]).any(-1).float().mean() for k in (1, 2)}
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2, accuracy


@program(PAIR)
def info_nce_of_simclr(a, b, t=0.5):
    z = F.normalize(torch.cat([a, b]), dim=1)
    n = len(a)
    sim = z @ z.T / t
    sim = sim.masked_fill(torch.eye(2 * n, dtype=torch.bool), -1e9)
    target = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
    return F.cross_entropy(sim, target)


@program(PAIR)
def decorrelated(a, b, lambd=5e-3):
    bn = nn.functional.batch_norm
    a, b = (bn(v, None, None, training=True) for v in (a, b))
    c = a.T @ b / a.size(0)
    on = torch.diagonal(c).add(-1).pow(2).sum()
    off = c.flatten()[:-1].view(c.size(0) - 1, c.size(0) + 1)[:, 1:].flatten().pow(2).sum()
    std = torch.sqrt(a.var(dim=0) + 1e-4)
    return on + lambd * off + F.relu(1 - std).mean()


@program(PAIR)
def self_distillation(student, teacher, temperature=(0.1, 0.04)):
    center = teacher.mean(0, keepdim=True)
    soft = F.softmax((teacher - center) / temperature[1], dim=-1).detach()
    loss = torch.sum(-soft * F.log_softmax(student / temperature[0], dim=-1), dim=-1).mean()
    kd = (
        F.kl_div(F.log_softmax(student / 2, 1), F.log_softmax(teacher / 2, 1), log_target=True, reduction="batchmean")
        * 4
    )
    return loss, kd


@program(PAIR)
def sinkhorn(scores, _, iterations=3):
    q = torch.exp(scores / 0.5).t()
    q /= q.sum()
    k, b = q.shape
    for _ in range(iterations):
        q /= q.sum(dim=1, keepdim=True) * k
        q /= q.sum(dim=0, keepdim=True) * b
    return (q * b).t()


@program(lambda: (torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2])))
def hard_triplets(x, labels, margin=0.3):
    dist = torch.cdist(x, x)
    same = labels[:, None] == labels
    positive = (dist * same).amax(1)
    negative = dist.masked_fill(same, torch.inf).amin(1)
    return F.margin_ranking_loss(negative, positive, torch.ones_like(positive), margin=margin), (
        negative > positive
    ).float().mean()


@program(lambda: (torch.randn(4, 6), torch.tensor([0, 1, 2, 0]), nn.Parameter(torch.randn(3, 6))))
def angular_margin(x, labels, weight, s=16.0, m=0.3):
    cosine = F.linear(F.normalize(x), F.normalize(weight))
    sine = torch.sqrt((1.0 - cosine.pow(2)).clamp(0, 1))
    phi = cosine * math.cos(m) - sine * math.sin(m)
    phi = torch.where(cosine > math.cos(math.pi - m), phi, cosine - math.sin(math.pi - m) * m)
    onehot = torch.zeros(cosine.size()).scatter_(1, labels.view(-1, 1).long(), 1)
    return F.cross_entropy((onehot * phi + (1.0 - onehot) * cosine) * s, labels)


@program(lambda: (torch.randn(4, 3), torch.rand(4), torch.tensor([1.0, 0.0, 1.0, 1.0])))
def survival(x, times, events):
    order = torch.argsort(times, descending=True)
    risk = x.mean(1)[order]
    log_cumsum = torch.logcumsumexp(risk, 0)
    return -((risk - log_cumsum) * events[order]).sum() / events.sum()


@program(PAIR)
def kernel_discrepancy(x, y, bandwidths=(0.5, 1.0, 2.0)):
    def kernel(a, b):
        d = torch.cdist(a, b).square()
        return sum(torch.exp(-d / (2 * s**2)) for s in bandwidths)

    return kernel(x, x).mean() + kernel(y, y).mean() - 2 * kernel(x, y).mean()


@program(PAIR)
def structural_similarity(x, y):
    x, y = x.view(1, 1, 4, 6).sigmoid(), y.view(1, 1, 4, 6).sigmoid()
    g = torch.tensor([0.25, 0.5, 0.25])
    win = torch.outer(g, g)[None, None]
    mu1, mu2 = (F.conv2d(v, win, padding=1) for v in (x, y))
    s1, s2, s12 = (
        F.conv2d(x * x, win, padding=1) - mu1**2,
        F.conv2d(y * y, win, padding=1) - mu2**2,
        F.conv2d(x * y, win, padding=1) - mu1 * mu2,
    )
    c1, c2 = 0.01**2, 0.03**2
    ssim = ((2 * mu1 * mu2 + c1) * (2 * s12 + c2)) / ((mu1**2 + mu2**2 + c1) * (s1 + s2 + c2))
    return 1 - ssim.mean(), -10 * torch.log10(F.mse_loss(x, y))


class Reduction(str, Enum):
    MEAN = "mean"
    SUM = "sum"
    NONE = "none"


class Loss(nn.Module, ABC):
    def __init__(self, reduction="mean", weight=1.0):
        super().__init__()
        self.reduction, self.weight = Reduction(reduction), weight

    @abstractmethod
    def elementwise(self, pred, target): ...

    def forward(self, pred, target, mask=None):
        loss = self.elementwise(pred, target) * self.weight
        if mask is not None:
            loss = loss[mask.expand_as(loss)] if False else loss * mask
        if self.reduction is Reduction.NONE:
            return loss
        return getattr(loss, self.reduction.value)()

    def __mul__(self, k):
        return type(self)(self.reduction.value, self.weight * k)

    __rmul__ = __mul__


class Charbonnier(Loss):
    def elementwise(self, pred, target):
        return torch.sqrt((pred - target) ** 2 + 1e-6)


class LogCosh(Loss):
    def elementwise(self, pred, target):
        d = pred - target
        return d + F.softplus(-2.0 * d) - math.log(2.0)


class Sum(nn.Module):
    def __init__(self, **losses):
        super().__init__()
        self.losses = nn.ModuleDict(losses)

    def forward(self, *args):
        parts = {name: loss(*args) for name, loss in self.losses.items()}
        return sum(parts.values()), {f"loss/{k}": v.detach() for k, v in parts.items()}


@program(lambda: (Sum(a=2 * Charbonnier(), b=LogCosh("sum")), *PAIR()))
def summed_losses(m, x, y):
    return m(x, y, (x > 0).float())


class Meter:
    def __init__(self, fmt=":.2f"):
        self.fmt = fmt
        self.reset()

    def reset(self):
        self.sum, self.count = 0.0, 0

    def update(self, value, n=1):
        self.sum = self.sum + value * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


@program(lambda: (collections.defaultdict(Meter), *LOGITS()), grad=False)
def meters(meters, logits, target):
    for k, v in {"loss": F.cross_entropy(logits, target), "acc": (logits.argmax(1) == target).float().mean()}.items():
        meters[k].update(v, n=target.size(0))
    meters["lr"].update(0.1)
    return {k: m.avg for k, m in meters.items()}, meters["loss"].count


@program(LOGITS, grad=False)
def classification_metrics(logits, target, n=5):
    pred = logits.argmax(-1)
    cm = torch.zeros(n, n, dtype=torch.int64).index_put_((target, pred), torch.ones_like(pred), accumulate=True)
    tp = cm.diagonal()
    precision, recall = tp / cm.sum(0).clamp(min=1), tp / cm.sum(1).clamp(min=1)
    f1 = torch.nan_to_num(2 * precision * recall / (precision + recall))
    return dict(zip(["precision", "recall", "f1"], map(torch.mean, (precision, recall, f1))))


@program(lambda: (torch.rand(8), torch.tensor([0, 1, 1, 0, 1, 0, 0, 1])), grad=False)
def area_under_curve(scores, labels):
    order = scores.argsort(descending=True)
    hits = labels[order].float()
    tps, fps = hits.cumsum(0), (1 - hits).cumsum(0)
    tpr, fpr = tps / tps[-1], fps / fps[-1]
    ap = (tps / torch.arange(1, 9) * hits).sum() / hits.sum()
    return torch.trapezoid(F.pad(tpr, (1, 0)), F.pad(fpr, (1, 0))), ap


@program(lambda: (torch.rand(8), torch.rand(8) > 0.5), grad=False)
def calibration(conf, correct, bins=4):
    edges = torch.linspace(0, 1, bins + 1)
    ece = torch.zeros(())
    for lo, hi in itertools.pairwise(edges):
        inside = conf.gt(lo) & conf.le(hi)
        w = inside.float()
        acc, avg = (correct.float() * w).sum() / w.sum().clamp(min=1), (conf * w).sum() / w.sum().clamp(min=1)
        ece += (acc - avg).abs() * w.mean()
    return ece


@dataclass
class Warmup:
    peak: float = 1e-3
    warmup: int = 10
    total: int = 100
    kind: str = "cosine"

    def __call__(self, step):
        if step < self.warmup:
            return self.peak * step / max(1, self.warmup)
        progress = (step - self.warmup) / max(1, self.total - self.warmup)
        return self.peak * {
            "cosine": lambda p: 0.5 * (1 + math.cos(math.pi * p)),
            "linear": lambda p: 1 - p,
            "poly": lambda p: (1 - p) ** 0.9,
        }[self.kind](min(progress, 1.0))


@program(lambda: (torch.randn(3), [Warmup(), Warmup(kind="poly")], 40))
def learning_rates(x, schedules, step):
    return [x * s(step) for s in schedules], [s(5) for s in schedules]


@program(lambda: (nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 2)), *PAIR()))
def parameter_groups(m, x, _):
    decay, no_decay, whitelist = set(), set(), (nn.Linear,)
    for mn, mod in m.named_modules():
        for pn, p in mod.named_parameters(recurse=False):
            full = f"{mn}.{pn}" if mn else pn
            (decay if pn.endswith("weight") and isinstance(mod, whitelist) else no_decay).add(full)
    params = dict(m.named_parameters())
    assert not decay & no_decay and decay | no_decay == params.keys()
    penalty = sum(params[n].square().sum() for n in sorted(decay))
    return m(x).mean() + 0.01 * penalty, sorted(no_decay)


@program(lambda: (nn.Linear(6, 2), nn.Linear(6, 2), *PAIR()))
def consistency_of_two_models(m, teacher, x, y):
    with torch.no_grad():
        target = teacher(x).softmax(-1)
        confident = target.max(-1).values.ge(0.6).float()
    unsupervised = (F.cross_entropy(m(y), target.argmax(-1), reduction="none") * confident).mean()
    entropy = -(target * target.clamp_min(1e-8).log()).sum(-1)
    return unsupervised, entropy, confident


@program(lambda: (nn.Linear(6, 3), *PAIR()))
def fast_gradient_sign(m, x, _):
    def loss(x):
        return F.cross_entropy(m(x), torch.zeros(4, dtype=torch.long))

    delta = torch.zeros_like(x)
    for _ in range(2):
        g = torch.func.grad(loss)(x.detach() + delta)
        delta = (delta + 0.1 * g.sign()).clamp(-0.2, 0.2)
    return loss(x + delta)


@program(lambda: (nn.Linear(6, 3), *PAIR()))
def model_agnostic_inner_loop(m, x, y):
    params = dict(m.named_parameters())

    def loss(p, x):
        return torch.func.functional_call(m, p, (x,)).square().mean()

    grads = torch.func.grad(loss)(params, x)
    fast = {k: v - 0.1 * grads[k] for k, v in params.items()}
    return loss(fast, y)


@program(lambda: (nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 1)), *PAIR()))
def uncertainty_by_dropout(m, x, _, n=3):
    preds = torch.stack([m(F.dropout(x, 0.3, training=True)) for _ in range(n)])
    return preds.mean(0), preds.var(0, unbiased=False)


@program(lambda: ([nn.Linear(6, 2) for _ in range(3)], *PAIR()))
def ensembles_stacked(models, x, _):
    params = {name: torch.stack([m.get_parameter(name) for m in models]) for name, _ in models[0].named_parameters()}
    base = models[0]
    call = lambda p, x: torch.func.functional_call(base, p, (x,))
    return torch.vmap(call, in_dims=(0, None))(params, x).mean(0)


class Task(nn.Module):
    registry = {}

    def __init_subclass__(cls, name=None, **kw):
        super().__init_subclass__(**kw)
        Task.registry[name or cls.__name__] = cls

    def loss(self, out, batch):
        raise NotImplementedError(f"{type(self).__name__} has no loss")


class Regression(Task, name="reg"):
    def loss(self, out, batch):
        return F.mse_loss(out.squeeze(-1), batch["y"])


class Ranking(Task, name="rank"):
    def loss(self, out, batch):
        i, j = torch.triu_indices(len(out), len(out), offset=1)
        return F.softplus(-(out[i] - out[j]).squeeze(-1) * (batch["y"][i] - batch["y"][j]).sign()).mean()


@program(lambda: (nn.Linear(6, 1), {"x": torch.randn(4, 6), "y": torch.randn(4)}))
def tasks_by_name(m, batch):
    out, total, missing = m(batch["x"]), 0.0, []
    log_vars = {"reg": torch.tensor(0.1), "rank": torch.tensor(-0.2)}
    for name, cls in Task.registry.items():
        task = cls()
        total = total + torch.exp(-log_vars[name]) * task.loss(out, batch) + log_vars[name]
    try:
        Task().loss(out, batch)
    except NotImplementedError as e:
        missing.append(str(e))
    return total, missing


@program(lambda: (torch.randn(2, 3, 4), torch.tensor([[1, 1, 0], [1, 0, 0]])))
def preference_optimisation(logits, mask, beta=0.1):
    labels = torch.tensor([[1, 2, 0], [3, 0, 0]])
    logps = torch.gather(logits.log_softmax(-1), 2, labels.unsqueeze(2)).squeeze(2)
    chosen, rejected = (logps * mask).sum(-1)
    reference = logps.detach().mean(-1)
    margin = beta * ((chosen - reference[0]) - (rejected - reference[1]))
    reward = torch.stack([chosen, rejected]).detach() * beta
    return -F.logsigmoid(margin), reward, (reward[0] > reward[1]).float()


@program(lambda: (torch.randn(6, 4), torch.randn(4, 8, requires_grad=True)))
def chunked_loss(h, w, chunks=3):
    labels = torch.arange(6) % 8
    total, count = h.new_zeros(()), 0
    for hc, lc in zip(h.chunk(chunks), labels.chunk(chunks)):
        total = total + F.cross_entropy((hc @ w).float(), lc, reduction="sum")
        count += lc.numel()
    return total / count


@program(lambda: (nn.Linear(6, 6), *PAIR()))
def clipped_by_norm(m, x, _):
    grads = [torch.full_like(p, 0.3) for p in m.parameters()]
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g, 2.0) for g in grads]), 2.0)
    coef = torch.clamp(1.0 / (norm + 1e-6), max=1.0)
    with torch.no_grad():
        for p, g in zip(m.parameters(), grads):
            p.sub_(g * coef, alpha=0.1)
    return m(x), norm
