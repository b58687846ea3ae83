# mypy: ignore-errors
# ruff: noqa
"""Classical algorithms on tensors: filters, clustering, solvers, optimisers by hand, sequence models, simulation."""

import bisect
import collections
import dataclasses
import functools
import heapq
import itertools
import math
import operator
from dataclasses import dataclass, field
from typing import Callable, Iterator, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from tests.sweeps.snippets.corpus import program

POINTS = lambda: (torch.randn(8, 3),)
SPD = lambda: ((lambda a: a @ a.T + 4 * torch.eye(4))(torch.randn(4, 4)), torch.randn(4))


class Gaussian(NamedTuple):
    mean: torch.Tensor
    cov: torch.Tensor


@program(lambda: (torch.randn(5, 2), torch.eye(2) * 0.5))
def kalman_filter(observations, noise):
    A, belief, means = torch.tensor([[1.0, 0.1], [0.0, 1.0]]), Gaussian(torch.zeros(2), torch.eye(2)), []
    for z in observations:
        predicted = Gaussian(A @ belief.mean, A @ belief.cov @ A.T + 0.1 * torch.eye(2))
        gain = predicted.cov @ torch.linalg.inv(predicted.cov + noise)
        belief = Gaussian(predicted.mean + gain @ (z - predicted.mean), (torch.eye(2) - gain) @ predicted.cov)
        means.append(belief.mean)
    return torch.stack(means), belief


@program(POINTS)
def k_means(x, k=3):
    centers = x[:k].detach().clone()
    for _ in range(3):
        labels = torch.cdist(x, centers).argmin(1)
        onehot = F.one_hot(labels, k).to(x.dtype)
        centers = torch.where(onehot.sum(0)[:, None] > 0, onehot.T @ x / onehot.sum(0).clamp(min=1)[:, None], centers)
    return centers, labels


@program(POINTS)
def gaussian_mixture_em(x, k=2):
    mu, var, pi = x[:k].clone(), torch.ones(k, 3), torch.full((k,), 1 / k)
    for _ in range(2):
        logp = -0.5 * (((x[:, None] - mu) ** 2 / var) + var.log() + math.log(2 * math.pi)).sum(-1) + pi.log()
        r = logp.softmax(1)
        n = r.sum(0) + 1e-6
        mu, pi = r.T @ x / n[:, None], n / len(x)
        var = (r.T @ (x**2)) / n[:, None] - mu**2 + 1e-3
    return mu, var, torch.logsumexp(logp, 1).mean()


@program(POINTS)
def principal_components(x):
    c = x - x.mean(0)
    v = torch.ones(3)
    for _ in range(4):
        v = F.normalize(c.T @ (c @ v), dim=0)
    u, s, vh = torch.linalg.svd(c.detach(), full_matrices=False)
    return c @ v, (s**2 / (s**2).sum()).cumsum(0), (v @ (c.T @ c) @ v)


@program(SPD)
def conjugate_gradients(A, b):
    x, r = torch.zeros_like(b), b
    p, rs = r, r @ r
    for _ in range(4):
        Ap = A @ p
        alpha = rs / (p @ Ap)
        x, r = x + alpha * p, r - alpha * Ap
        rs, old = r @ r, rs
        p = r + rs / old * p
    return x, torch.linalg.cond(A.detach())


@program(SPD)
def newton_with_line_search(A, b):
    f = lambda v: 0.5 * v @ A @ v - b @ v + v.pow(4).sum() / 4
    x = torch.zeros(4)
    for _ in range(2):
        g, H = torch.func.grad(f)(x), torch.func.jacrev(torch.func.grad(f))(x)
        step = torch.linalg.solve(H, g)
        tries = torch.stack([x - t * step for t in (1.0, 0.5, 0.25)])
        x = tries[torch.vmap(f)(tries).argmin()]
    return x, f(x)


@program(SPD)
def jacobi_and_gauss_seidel(A, b):
    D = A.diagonal()
    x = torch.zeros(4)
    for _ in range(3):
        x = (b - (A @ x - D * x)) / D
    y = [torch.zeros(())] * 4
    for _ in range(2):
        for i in range(4):
            y[i] = (b[i] - sum(A[i, j] * y[j] for j in range(4) if j != i)) / A[i, i]
    return x, torch.stack(y)


@program(SPD)
def matrix_functions(A, b):
    Y, Z, I = A / A.norm(), torch.eye(4), torch.eye(4)
    for _ in range(5):
        T = 0.5 * (3.0 * I - Z @ Y)
        Y, Z = Y @ T, T @ Z
    root = Y * A.norm().sqrt()
    X = A.T / (A.norm(p=1) * A.norm(float("inf")))
    for _ in range(3):
        X = 2 * X - X @ A @ X
    return root @ root - A, X, torch.matrix_exp(0.1 * A)


def newton_schulz(g, steps=3):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    x = x.T if (tall := g.size(-2) > g.size(-1)) else x
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        m = x @ x.T
        x = a * x + (b * m + c * m @ m) @ x
    return (x.T if tall else x).to(g.dtype)


@dataclass
class Adam:
    lr: float = 0.1
    betas: tuple = (0.9, 0.999)
    eps: float = 1e-8
    state: dict = field(default_factory=dict)

    def step(self, name, p, g):
        s = self.state.setdefault(name, {"m": torch.zeros_like(p), "v": torch.zeros_like(p), "t": 0})
        s["t"] += 1
        b1, b2 = self.betas
        s["m"] = torch.lerp(s["m"], g, 1 - b1)
        s["v"] = s["v"].mul(b2).addcmul(g, g, value=1 - b2)
        mh, vh = s["m"] / (1 - b1 ** s["t"]), s["v"] / (1 - b2 ** s["t"])
        return p - self.lr * mh / (vh.sqrt() + self.eps)


@program(lambda: (Adam(), torch.randn(3, 4), torch.randn(3)))
def adam_by_hand(opt, w, b):
    loss = lambda w, b: (w.sum(1) + b).square().mean()
    for _ in range(2):
        gw, gb = torch.func.grad(loss, argnums=(0, 1))(w, b)
        w, b = opt.step("w", w, gw), opt.step("b", b, gb)
    return w, b, sorted(opt.state)


@program(lambda: (torch.randn(4, 3), torch.randn(4, 3)), grad=False)
def other_optimisers(p, g):
    lion = p - 0.1 * torch.sign(0.9 * g + 0.1 * g.flip(0))
    ratio = p.norm() / g.norm().clamp(min=1e-6)
    lamb = p - 0.1 * torch.where(ratio.isfinite(), ratio, 1.0) * g
    row, col = g.square().mean(1, keepdim=True), g.square().mean(0, keepdim=True)
    adafactor = p - 0.1 * g / (row * col / row.mean()).sqrt()
    return lion, lamb, adafactor, newton_schulz(g), p.mul(1 - 0.1 * 0.01).addcdiv(g, g.abs() + 1, value=-0.1)


@program(lambda: (torch.randn(3, 5, 4), torch.randn(4, 4), torch.randn(4)))
def forward_backward(emissions, transitions, start):
    logA, T = transitions.log_softmax(1), emissions.size(1)
    alpha, beta = [start.log_softmax(0) + emissions[:, 0]], [torch.zeros(3, 4)]
    for t in range(1, T):
        alpha.append((alpha[-1][:, :, None] + logA).logsumexp(1) + emissions[:, t])
        beta.insert(0, (logA + (emissions[:, T - t] + beta[0])[:, None]).logsumexp(2))
    posterior = torch.stack([a + b for a, b in zip(alpha, beta)], 1)
    return posterior.softmax(-1), alpha[-1].logsumexp(-1)


@program(lambda: (torch.randn(4), torch.randn(5)))
def time_warping(a, b, gamma=0.5):
    cost = (a[:, None] - b[None]).square()
    n, m = cost.shape
    R = {(i, j): torch.tensor(torch.inf) for i in range(n + 1) for j in range(m + 1)}
    R[0, 0] = torch.zeros(())
    for i, j in itertools.product(range(1, n + 1), range(1, m + 1)):
        prior = torch.stack([R[i - 1, j], R[i, j - 1], R[i - 1, j - 1]])
        R[i, j] = cost[i - 1, j - 1] - gamma * torch.logsumexp(-prior / gamma, 0)
    return R[n, m]


@program(lambda: (torch.randn(3, 4),))
def edit_distance_relaxed(scores):
    previous = torch.arange(5.0)
    for i in range(3):
        row = [previous[0] + 1]
        for j in range(4):
            row.append(torch.minimum(torch.minimum(row[-1], previous[j + 1]) + 1, previous[j] + scores[i, j].sigmoid()))
        previous = torch.stack(row)
    return previous[-1]


@program(lambda: (torch.rand(6),))
def weighted_intervals(values):
    spans = sorted([(0, 3), (1, 4), (3, 6), (5, 7), (4, 8), (7, 9)], key=operator.itemgetter(1))
    ends, best = [e for _, e in spans], [torch.zeros(())]
    for i, (start, _) in enumerate(spans):
        j = bisect.bisect_right(ends[:i], start)
        best.append(torch.maximum(best[-1], best[j] + values[i]))
    return best[-1]


@program(lambda: (torch.rand(5, 5),))
def shortest_paths(w):
    d = w.fill_diagonal(0) if not w.requires_grad else w * (1 - torch.eye(5))
    for k in range(5):
        d = torch.minimum(d, d[:, k, None] + d[None, k])
    return d, d.amax(1).amin()


@program(lambda: (torch.rand(5, 5), [(0, 1), (1, 2), (0, 3), (3, 4)]))
def tree_sums(w, edges):
    children = collections.defaultdict(list)
    for parent, child in edges:
        children[parent].append(child)

    def total(node):
        return sum((w[node, c] * total(c) for c in children[node]), start=torch.ones(()))

    order, stack = [], [0]
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(reversed(children.get(node, [])))
    return total(0), order


@program(lambda: (torch.randn(6), {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}))
def topological_evaluation(x, graph):
    ops = {"a": lambda: x.sin(), "b": torch.exp, "c": torch.neg, "d": torch.add}
    degree = {n: len(d) for n, d in graph.items()}
    ready, values = collections.deque(n for n, d in degree.items() if d == 0), {}
    while ready:
        n = ready.popleft()
        values[n] = ops[n](*(values[m] for m in graph[n]))
        for m, deps in graph.items():
            if n in deps:
                degree[m] -= 1
                if degree[m] == 0:
                    ready.append(m)
    return values


@program(POINTS)
def gaussian_process(x):
    X, y, test = x[:5, :2], x[:5, 2], x[5:, :2]
    rbf = lambda a, b: torch.exp(-0.5 * torch.cdist(a, b).square())
    L = torch.linalg.cholesky(rbf(X, X) + 0.1 * torch.eye(5))
    alpha = torch.cholesky_solve(y[:, None], L)
    v = torch.linalg.solve_triangular(L, rbf(X, test), upper=False)
    nll = 0.5 * y @ alpha[:, 0] + L.diagonal().log().sum() + 2.5 * math.log(2 * math.pi)
    return (rbf(test, X) @ alpha)[:, 0], 1 - (v**2).sum(0), nll


@program(POINTS, grad=False)
def metropolis(x, steps=3):
    logp = lambda s: -0.5 * s.square().sum(-1)
    accepted = torch.zeros(len(x))
    for _ in range(steps):
        proposal = x + 0.5 * torch.randn_like(x)
        accept = torch.rand(len(x)).log() < logp(proposal) - logp(x)
        x = torch.where(accept[:, None], proposal, x)
        accepted += accept
    return x, accepted / steps


@program(POINTS)
def hamiltonian_dynamics(q, dt=0.1):
    potential = lambda q: (0.25 * q**4 - 0.5 * q**2).sum()
    force = torch.func.grad(potential)
    p = torch.randn_like(q)
    energy = lambda q, p: potential(q) + 0.5 * p.square().sum()
    before = energy(q, p)
    for _ in range(2):
        p = p - 0.5 * dt * force(q)
        q = q + dt * p
        p = p - 0.5 * dt * force(q)
    return q, energy(q, p) - before


@program(POINTS)
def particles(x, dt=0.01):
    v = torch.zeros_like(x)
    off = 1 - torch.eye(len(x))
    for _ in range(2):
        d = x[:, None] - x[None]
        r2 = d.square().sum(-1) + torch.eye(len(x))
        inv6 = r2.clamp(min=0.5).pow(-3)
        f = (24 * (2 * inv6**2 - inv6) / r2 * off)[..., None] * d
        v = v + dt * f.sum(1).clamp(-10, 10)
        x = torch.remainder(x + dt * v, 3.0)
    return x, 0.5 * v.square().sum()


@program(lambda: (torch.rand(6, 6),))
def heat_equation(u, steps=3):
    lap = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]])[None, None]
    for _ in range(steps):
        u = u + 0.1 * F.conv2d(F.pad(u[None, None], (1, 1, 1, 1), mode="replicate"), lap)[0, 0]
    return u, u.mean()


@program(lambda: ((torch.rand(6, 6) > 0.5).int(),))
def life(board, steps=2):
    for _ in range(steps):
        n = sum(board.roll((i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))
        board = ((n == 3) | ((board == 1) & (n == 2))).int()
    return board, board.sum()


@program(lambda: (torch.rand(8, 4), torch.randn(4, 2)))
def particle_filter(particles, sensor):
    weights = torch.full((8,), 1 / 8)
    for z in (0.1, 0.4):
        particles = particles + 0.05 * torch.randn_like(particles)
        weights = weights * torch.exp(-(((particles @ sensor).mean(1) - z) ** 2))
        weights = weights / weights.sum()
        edges = weights.detach().cumsum(0)
        picks = torch.searchsorted(edges, (torch.arange(8) + 0.5) / 8).clamp(max=7)
        particles, weights = particles[picks], torch.full((8,), 1 / 8)
    return particles.mean(0), 1 / weights.square().sum()


@program(lambda: (torch.randn(3, 3), torch.randn(3, 1)))
def linear_quadratic_regulator(A, B):
    Q, R, P, gains = torch.eye(3), torch.eye(1), torch.eye(3), []
    for _ in range(3):
        K = torch.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
        P = Q + A.T @ P @ (A - B @ K)
        gains.append(K)
    return gains[::-1][0], P.diagonal().sum()


@program(lambda: (torch.randn(4, 5), torch.rand(4), torch.rand(5)))
def optimal_transport(cost, a, b, eps=0.5):
    a, b = a / a.sum(), b / b.sum()
    f, g = torch.zeros(4), torch.zeros(5)
    for _ in range(3):
        f = eps * (a.log() - torch.logsumexp((g - cost) / eps, 1))
        g = eps * (b.log() - torch.logsumexp((f[:, None] - cost) / eps, 0))
    plan = torch.exp((f[:, None] + g - cost) / eps)
    return plan, (plan * cost).sum()


@program(lambda: (torch.randn(10), 3))
def smoothed_series(x, k):
    ema = functools.reduce(lambda acc, v: acc + [0.7 * acc[-1] + 0.3 * v], x[1:].unbind(), [x[0]])
    moving = x.unfold(0, k, 1).mean(-1)
    level, trend = x[0], x[1] - x[0]
    for v in x[2:]:
        level, previous = 0.5 * v + 0.5 * (level + trend), level
        trend = 0.3 * (level - previous) + 0.7 * trend
    return (
        torch.stack(ema),
        moving,
        level + trend,
        torch.autocorr(x) if hasattr(torch, "autocorr") else (x[1:] * x[:-1]).mean(),
    )


@program(lambda: (torch.randn(12),))
def wavelets(x, levels=2):
    details = []
    for _ in range(levels):
        even, odd = x[::2], x[1::2]
        x, d = (even + odd) / math.sqrt(2), (even - odd) / math.sqrt(2)
        details.append(d)
    for d in reversed(details):
        x = torch.stack([(x + d) / math.sqrt(2), (x - d) / math.sqrt(2)], -1).flatten()
    return x, [d.abs().mean() for d in details]


@program(lambda: (torch.randn(8),))
def radix_two_fourier(x):
    def fft(v):
        n = v.shape[-1]
        if n == 1:
            return v
        e, o = fft(v[..., ::2]), fft(v[..., 1::2])
        t = torch.polar(torch.ones(n // 2), -2 * math.pi * torch.arange(n // 2) / n) * o
        return torch.cat([e + t, e - t], -1)

    return torch.view_as_real(fft(x.to(torch.complex64)))


@program(lambda: (torch.rand(5, 5),))
def page_rank(w):
    P = w / w.sum(1, keepdim=True)
    rank = torch.full((5,), 0.2)
    for _ in range(4):
        rank, delta = 0.15 / 5 + 0.85 * (rank @ P), rank
    return rank, (rank - delta).abs().sum()


@program(lambda: (torch.randn(2, 6, 4), torch.randn(2, 4)))
def span_extraction(h, q):
    start, end = torch.einsum("btd,bd->bt", h, q), torch.einsum("btd,bd->bt", h.flip(-1), q)
    spans = start.log_softmax(1)[:, :, None] + end.log_softmax(1)[:, None]
    allowed = torch.ones(6, 6).triu().tril(2).bool()
    best = spans.masked_fill(~allowed, -torch.inf).flatten(1).max(1)
    return best.values, torch.stack([best.indices // 6, best.indices % 6], 1)


@program(lambda: (torch.randn(2, 4, 8), torch.randn(2, 3, 8)))
def routing_by_agreement(u, v, iterations=2):
    votes, b = torch.einsum("bid,bjd->bijd", u, v), torch.zeros(2, 4, 3)
    for i in range(iterations):
        c = b.softmax(-1)
        s = (c[..., None] * votes).sum(1)
        n = s.square().sum(-1, keepdim=True)
        out = n / (1 + n) * s / (n + 1e-8).sqrt()
        if i < iterations - 1:
            b = b + (votes * out[:, None]).sum(-1)
    return out


class Memory:
    def __init__(self, slots, dim):
        self.content, self.usage = torch.zeros(slots, dim), torch.zeros(slots)

    def read(self, key):
        w = F.cosine_similarity(self.content + 1e-3, key, dim=-1).softmax(0)
        self.usage = self.usage * 0.9 + w
        return w @ self.content

    def write(self, key, erase, add):
        w = (-self.usage).softmax(0)
        self.content = self.content * (1 - w[:, None] * erase) + w[:, None] * add
        return self


@program(lambda: (torch.randn(3, 4),))
def external_memory(x):
    memory = Memory(5, 4)
    return torch.stack([memory.write(v, v.sigmoid(), v).read(v) for v in x]), memory.usage


@program(lambda: (nn.GRUCell(4, 4), nn.Linear(4, 4), torch.randn(2, 3, 4)))
def scheduled_decoder(cell, out, targets, teacher=(True, False, True)):
    h, x, outputs = torch.zeros(2, 4), torch.zeros(2, 4), []
    attend = lambda h: torch.bmm(targets, h[..., None]).squeeze(-1).softmax(-1)[..., None].mul(targets).sum(1)
    for step, forced in enumerate(teacher):
        h = cell(x + attend(h), h)
        outputs.append(y := out(h))
        x = targets[:, step] if forced else y.detach()
    return torch.stack(outputs, 1)


@program(lambda: (torch.rand(4, 4), torch.rand(4)))
def projections(x, y):
    u = y.sort(descending=True).values
    css = u.cumsum(0) - 1
    rho = (u - css / torch.arange(1, 5) > 0).sum() - 1
    simplex = (y - css[rho] / (rho + 1)).clamp(min=0)
    ball = y * (1.0 / y.norm().clamp(min=1.0))
    lo, hi = x.min(), x.max()
    return simplex, ball, F.hardtanh((x - lo) / (hi - lo), 0.1, 0.9), x.clamp(min=y[:, None])


@dataclass(frozen=True)
class Dual:
    value: torch.Tensor
    slope: torch.Tensor

    def __add__(self, other):
        other = other if isinstance(other, Dual) else Dual(torch.as_tensor(other), torch.zeros(()))
        return Dual(self.value + other.value, self.slope + other.slope)

    __radd__ = __add__

    def __mul__(self, other):
        if not isinstance(other, Dual):
            return Dual(self.value * other, self.slope * other)
        return Dual(self.value * other.value, self.value * other.slope + self.slope * other.value)

    __rmul__ = __mul__

    def map(self, f: Callable, df: Callable):
        return dataclasses.replace(self, value=f(self.value), slope=self.slope * df(self.value))


@program(lambda: (torch.randn(3),))
def dual_numbers(x):
    d = Dual(x, torch.ones(3))
    y = 3 * d * d + 2 * d.map(torch.sin, torch.cos) + 1.0
    return y.value, y.slope
