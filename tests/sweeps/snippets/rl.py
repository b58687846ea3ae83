# mypy: ignore-errors
# ruff: noqa
"""Reinforcement learning: policies, returns, buffers, distributions."""

import copy
from collections import namedtuple
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, Dict, NamedTuple, TypedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import (
    Bernoulli,
    Categorical,
    Independent,
    MultivariateNormal,
    Normal,
    TransformedDistribution,
    kl_divergence,
)
from torch.distributions.transforms import AffineTransform, TanhTransform

from tests.sweeps.snippets.corpus import program

ROLLOUT = lambda: (torch.randn(5, 3), torch.randn(5, 3), torch.randint(0, 2, (5, 3)).float())


def mlp(sizes, activation=nn.Tanh, output_activation=nn.Identity):
    layers = []
    for j in range(len(sizes) - 1):
        act = activation if j < len(sizes) - 2 else output_activation
        layers += [nn.Linear(sizes[j], sizes[j + 1]), act()]
    return nn.Sequential(*layers)


@program(ROLLOUT)
def generalized_advantages(rewards, values, dones, gamma=0.99, lam=0.95):
    advantages, last = torch.zeros_like(rewards), 0
    for t in reversed(range(len(rewards))):
        nonterminal = 1.0 - dones[t]
        next_value = values[t + 1] if t + 1 < len(rewards) else torch.zeros(3)
        delta = rewards[t] + gamma * next_value * nonterminal - values[t]
        advantages[t] = last = delta + gamma * lam * nonterminal * last
    returns = advantages + values
    return (advantages - advantages.mean()) / (advantages.std() + 1e-8), returns


@program(ROLLOUT)
def discounted_returns(rewards, values, dones):
    returns, R = [], 0
    for r, d in zip(rewards.flip(0).unbind(), dones.flip([0])):
        R = r + 0.9 * R * (1 - d)
        returns.insert(0, R)
    return torch.stack(returns)


@program(ROLLOUT)
def v_trace(rewards, values, log_rhos, discount=0.9):
    rhos = torch.exp(log_rhos)
    clipped, cs = rhos.clamp(max=1.0), torch.clamp(rhos, max=1.0)
    next_values = torch.cat([values[1:], values[-1:]], dim=0)
    deltas = clipped * (rewards + discount * next_values - values)
    acc, result = torch.zeros_like(values[0]), []
    for t in range(
        discounts.shape[0] - 1 if (discounts := torch.full_like(rewards, discount)) is None else len(rewards) - 1,
        -1,
        -1,
    ):
        acc = deltas[t] + discounts[t] * cs[t] * acc
        result.append(acc)
    result.reverse()
    return torch.stack(result).add(values).detach()


class Actor(nn.Module):
    def _distribution(self, obs):
        raise NotImplementedError

    def forward(self, obs, act=None):
        pi = self._distribution(obs)
        return pi, (None if act is None else self._log_prob(pi, act))

    def _log_prob(self, pi, act):
        return pi.log_prob(act)


class CategoricalActor(Actor):
    def __init__(self):
        super().__init__()
        self.logits_net = mlp([3, 8, 2])

    def _distribution(self, obs):
        return Categorical(logits=self.logits_net(obs))


class GaussianActor(Actor):
    def __init__(self):
        super().__init__()
        self.log_std = nn.Parameter(torch.as_tensor(-0.5 * np.ones(2, dtype=np.float32)))
        self.mu_net = mlp([3, 8, 2])

    def _distribution(self, obs):
        return Normal(self.mu_net(obs), torch.exp(self.log_std))

    def _log_prob(self, pi, act):
        return super()._log_prob(pi, act).sum(axis=-1)


@program(lambda: (CategoricalActor(), GaussianActor(), torch.randn(4, 3)))
def clipped_policy_loss(discrete, gaussian, obs, clip=0.2):
    act, adv = torch.tensor([0, 1, 1, 0]), obs.sum(-1).detach()
    pi, logp = discrete(obs, act)
    ratio = torch.exp(logp - logp.detach() + 0.1)
    loss = -(torch.min(ratio * adv, torch.clamp(ratio, 1 - clip, 1 + clip) * adv)).mean()
    info = dict(ent=pi.entropy().mean(), cf=(ratio.gt(1 + clip) | ratio.lt(1 - clip)).float().mean())
    _, glogp = gaussian(obs, torch.zeros(4, 2))
    return loss, info, glogp


@program(lambda: (GaussianActor(), torch.randn(4, 3)))
def squashed_gaussian(actor, obs):
    pi = actor._distribution(obs)
    u = pi.rsample()
    logp = pi.log_prob(u).sum(-1) - (2 * (np.log(2) - u - F.softplus(-2 * u))).sum(1)
    return torch.tanh(u) * 2.0, logp


@program(lambda: (torch.randn(4, 2), torch.randn(4, 2)))
def kl_of_policies(a, b):
    p, q = (Independent(Normal(x, F.softplus(x) + 0.1), 1) for x in (a, b))
    c, d = Categorical(logits=a), Categorical(probs=b.softmax(-1))
    return kl_divergence(p, q), kl_divergence(c, d), p.entropy(), d.probs.argmax(-1)


@program(lambda: (torch.randn(4, 2),))
def transformed_distribution(mu):
    base = Normal(mu, torch.ones_like(mu))
    d = TransformedDistribution(base, [TanhTransform(cache_size=1), AffineTransform(0.0, 2.0)])
    a = d.rsample()
    return a, d.log_prob(a).sum(-1)


@program(lambda: (torch.randn(4, 3),))
def masked_categorical(logits):
    mask = torch.tensor([True, False, True])
    masked = torch.where(mask, logits, torch.finfo(logits.dtype).min)
    d = Categorical(logits=masked)
    p_log_p = torch.where(mask, d.logits * d.probs, torch.zeros(()))
    return -p_log_p.sum(-1), Bernoulli(logits=logits).log_prob((logits > 0).float())


class Batch(NamedTuple):
    obs: torch.Tensor
    act: torch.Tensor
    rew: torch.Tensor


@dataclass
class ReplayBuffer:
    obs: torch.Tensor
    rew: torch.Tensor
    size: int = 0
    ptr: int = 0
    capacity: ClassVar[int] = 6

    @classmethod
    def empty(cls, dim):
        return cls(torch.zeros(cls.capacity, dim), torch.zeros(cls.capacity))

    def store(self, obs, rew):
        self.obs[self.ptr] = obs
        self.rew[self.ptr] = rew
        self.ptr = (self.ptr + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, n):
        idx = torch.randint(0, self.size, (n,))
        return Batch(obs=self.obs[idx], act=idx, rew=self.rew[idx])


@program(lambda: (ReplayBuffer.empty(3), torch.randn(8, 3)), grad=False)
def replay_buffer(buffer, obs):
    for i, o in enumerate(obs):
        buffer.store(o, o.sum() * i)
    batch = buffer.sample(4)
    return batch.obs.mean(0), batch._replace(rew=batch.rew * 2), buffer.ptr


@program(lambda: (q := mlp([3, 8, 4], nn.ReLU), copy.deepcopy(q), torch.randn(5, 3), torch.tensor([0, 3, 1, 2, 0])))
def double_q_learning(q, target, obs, act):
    q_a = q(obs).gather(1, act.unsqueeze(-1)).squeeze(-1)
    with torch.no_grad():
        best = q(obs).argmax(dim=1, keepdim=True)
        backup = obs[:, 0] + 0.99 * target(obs).gather(1, best)[:, 0]
    return F.smooth_l1_loss(q_a, backup), (q_a - backup).abs()


@program(lambda: (mlp([3, 4, 2]), mlp([3, 4, 2]), torch.randn(5, 3)))
def polyak_update(net, target, obs, polyak=0.9):
    with torch.no_grad():
        for p, p_targ in zip(net.parameters(), target.parameters()):
            p_targ.data.mul_(polyak)
            p_targ.data.add_((1 - polyak) * p.data)
    return net(obs)


@contextmanager
def evaluating(*modules):
    was = [m.training for m in modules]
    for m in modules:
        m.eval()
    try:
        yield modules
    finally:
        for m, mode in zip(modules, was):
            m.train(mode)


@program(lambda: (nn.Sequential(mlp([3, 4, 2]), nn.Dropout()), torch.randn(5, 3)))
def modes_of_modules(critic, obs):
    with evaluating(critic) as (c,), torch.no_grad():
        value = c(obs)
    return value.mean(), critic(obs), critic.training


@program(lambda: (torch.randn(4, 5), torch.randn(4, 5)))
def quantile_huber(current, target, kappa=1.0):
    cum_prob = (torch.arange(current.shape[1]) + 0.5) / current.shape[1]
    pairwise = target.unsqueeze(-2) - current.unsqueeze(-1)
    absolute = pairwise.abs()
    huber = torch.where(absolute > kappa, absolute - 0.5 * kappa, pairwise**2 * 0.5)
    return ((cum_prob.view(1, -1, 1) - (pairwise.detach() < 0).float()).abs() * huber).sum(dim=-2).mean()


@program(lambda: (torch.rand(3, 5).softmax(-1), torch.randn(3), torch.zeros(3)))
def categorical_projection(probs, rewards, dones, v_min=-2.0, v_max=2.0):
    n = probs.size(-1)
    dz, support = (v_max - v_min) / (n - 1), torch.linspace(v_min, v_max, n)
    tz = (rewards[:, None] + 0.9 * support * (1 - dones[:, None])).clamp(v_min, v_max)
    b = (tz - v_min) / dz
    l, u = b.floor().long().clamp(0, n - 1), b.ceil().long().clamp(0, n - 1)
    offset = torch.linspace(0, (len(probs) - 1) * n, len(probs)).long().unsqueeze(1).expand(-1, n)
    out = torch.zeros_like(probs)
    out.view(-1).index_add_(0, (l + offset).view(-1), (probs * (u.float() - b + (l == u))).view(-1))
    out.view(-1).index_add_(0, (u + offset).view(-1), (probs * (b - l.float())).view(-1))
    return out


class RunningMeanStd:
    def __init__(self, shape=(), epsilon=1e-4):
        self.mean, self.var, self.count = torch.zeros(shape), torch.ones(shape), epsilon

    def update(self, x):
        self.update_from_moments(x.mean(0), x.var(0, unbiased=False), x.shape[0])

    def update_from_moments(self, mean, var, count):
        delta, total = mean - self.mean, self.count + count
        m2 = self.var * self.count + var * count + delta.square() * self.count * count / total
        self.mean, self.var, self.count = self.mean + delta * count / total, m2 / total, total


@program(lambda: (RunningMeanStd((3,)), torch.randn(5, 3)), grad=False)
def running_statistics(stats, obs):
    stats.update(obs)
    return ((obs - stats.mean) / torch.sqrt(stats.var + 1e-8)).clip(-5, 5), stats.count


class PendulumEnv:
    metadata: Dict = {"dt": 0.05}

    def __init__(self, n):
        self.state = torch.stack([torch.linspace(-1, 1, n), torch.zeros(n)], 1)
        self.t = 0

    def step(self, u):
        th, thdot = self.state.T
        dt = self.metadata["dt"]
        costs = ((th + np.pi) % (2 * np.pi) - np.pi) ** 2 + 0.1 * thdot**2 + 0.001 * u**2
        thdot = torch.clip(thdot + (15.0 * torch.sin(th) + 3.0 * u) * dt, -8, 8)
        self.state = torch.stack([th + thdot * dt, thdot], 1)
        self.t += 1
        return self.obs, -costs, self.t >= 3, {"t": self.t}

    @property
    def obs(self):
        th, thdot = self.state[:, 0], self.state[:, 1]
        return torch.stack((th.cos(), th.sin(), thdot), dim=-1)


@program(lambda: (mlp([3, 4, 1]), 4))
def environment_steps(policy, n):
    env, total, done = PendulumEnv(n), 0.0, False
    obs = env.obs
    while not done:
        obs, reward, done, info = env.step(policy(obs).squeeze(-1))
        total = total + reward
    return total.mean(), info


@program(lambda: (torch.randn(4, 6), [torch.randn(3), torch.randn(3)]))
def low_level_optimal_control(x, goals, horizon=2):
    mean, std = torch.zeros(horizon, 3), torch.ones(horizon, 3)
    for i in range(2):
        samples = mean + std * torch.randn(8, horizon, 3)
        cost = sum(((samples[:, t] - g) ** 2).sum(-1) for t, g in enumerate(goals))
        elite = samples[cost.topk(3, largest=False).indices]
        mean, std = elite.mean(0), elite.std(0)
    return mean, x.mean()


@program(lambda: (torch.randn(3, 2), torch.eye(2)))
def multivariate(mu, cov):
    d = MultivariateNormal(mu, scale_tril=cov + 0.1 * torch.ones(2, 2).tril(-1))
    return d.log_prob(mu.detach() + 0.1), d.rsample().sum()


@program(
    lambda: (
        {"pixels": torch.randn(2, 4), "state": torch.randn(2, 3)},
        nn.ModuleDict({"pixels": nn.Linear(4, 5), "state": nn.Linear(3, 5)}),
    )
)
def dict_observations(obs, encoders):
    encoded = [encoders[k](obs[k]) for k in sorted(obs.keys() & set(encoders))]
    return torch.cat(encoded, dim=1), {**obs, "extra": encoded[0]}.keys()


@program(lambda: (torch.randn(8, 3), torch.randn(8), nn.Linear(3, 1)))
def minibatches_of_indices(observations, returns, critic):
    order, losses = np.arange(8).reshape(2, 4), []
    for indices in order:
        value = critic(observations[indices]).squeeze(-1)
        losses.append(F.mse_loss(value, returns[indices]))
    return torch.stack(losses).mean()
