# mypy: ignore-errors
# ruff: noqa
"""Diffusion and other generative models: schedulers, samplers, time embeddings, quantisers, flows."""

import inspect
import math
from dataclasses import dataclass
from enum import IntEnum, auto
from functools import wraps
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.sweeps.snippets.corpus import program

LATENT = lambda: (torch.randn(2, 3, 4, 4), torch.tensor([3, 7]))


class FrozenConfig(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        raise Exception(f"You cannot use ``__setattr__`` on a {self.__class__.__name__} instance.")


def register_to_config(init):
    @wraps(init)
    def inner(self, *args, **kwargs):
        parameters = {n: p.default for n, p in inspect.signature(init).parameters.items() if n != "self"}
        self.config = FrozenConfig({**parameters, **dict(zip(parameters, args)), **kwargs})
        init(self, *args, **kwargs)

    return inner


class SchedulerMixin:
    order = 1

    @property
    def init_noise_sigma(self):
        return getattr(self, "_sigma", 1.0)

    def __len__(self):
        return self.config.num_train_timesteps

    def scale_model_input(self, sample, timestep=None):
        return sample


@dataclass
class SchedulerOutput:
    prev_sample: torch.Tensor
    pred_original_sample: "torch.Tensor | None" = None


class DDIM(SchedulerMixin):
    @register_to_config
    def __init__(
        self,
        num_train_timesteps=10,
        beta_start=1e-4,
        beta_end=0.02,
        beta_schedule="linear",
        clip_sample=True,
        prediction_type="epsilon",
    ):
        if beta_schedule == "linear":
            self.betas = torch.linspace(beta_start, beta_end, num_train_timesteps, dtype=torch.float32)
        elif beta_schedule == "scaled_linear":
            self.betas = torch.linspace(beta_start**0.5, beta_end**0.5, num_train_timesteps) ** 2
        elif beta_schedule == "squaredcos_cap_v2":
            bar = lambda t: math.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2
            n = num_train_timesteps
            self.betas = torch.tensor([min(1 - bar((i + 1) / n) / bar(i / n), 0.999) for i in range(n)])
        else:
            raise NotImplementedError(f"{beta_schedule} is not implemented for {self.__class__}")
        self.alphas_cumprod = torch.cumprod(1.0 - self.betas, dim=0)
        self.final_alpha_cumprod = torch.tensor(1.0)
        self.timesteps = torch.arange(num_train_timesteps - 1, -1, -1)

    def set_timesteps(self, n):
        ratio = self.config.num_train_timesteps // n
        self.timesteps = torch.from_numpy((np.arange(0, n) * ratio).astype(np.int64)).flip(0)

    def add_noise(self, x, noise, t):
        a, b = self.alphas_cumprod[t] ** 0.5, (1 - self.alphas_cumprod[t]) ** 0.5
        a, b = a.flatten(), b.flatten()
        while len(a.shape) < len(x.shape):
            a, b = a.unsqueeze(-1), b.unsqueeze(-1)
        return a * x + b * noise

    def step(self, eps, t, sample, eta=0.0, generator=None, return_dict=True):
        prev = t - self.config.num_train_timesteps // 5
        a_t = self.alphas_cumprod[t]
        a_prev = self.alphas_cumprod[prev] if prev >= 0 else self.final_alpha_cumprod
        b_t = 1 - a_t
        match self.config.prediction_type:
            case "epsilon":
                x0 = (sample - b_t**0.5 * eps) / a_t**0.5
            case "sample":
                x0 = eps
            case "v_prediction":
                x0 = (a_t**0.5) * sample - (b_t**0.5) * eps
            case other:
                raise ValueError(f"prediction_type given as {other}")
        if self.config.clip_sample:
            x0 = x0.clamp(-1, 1)
        variance = (1 - a_prev) / (1 - a_t) * (1 - a_t / a_prev)
        std = eta * variance ** (0.5)
        out = a_prev**0.5 * x0 + (1 - a_prev - std**2) ** (0.5) * eps
        if eta > 0:
            out = out + std * torch.randn(eps.shape, generator=generator, dtype=eps.dtype)
        return SchedulerOutput(out, x0) if return_dict else (out,)


@program(LATENT)
def noise_added(x, t):
    return DDIM().add_noise(x, torch.randn_like(x), t)


@program(lambda: (DDIM(beta_schedule="squaredcos_cap_v2", prediction_type="v_prediction"), LATENT()[0]))
def scheduler_of_caller(scheduler, x):
    for t in (8, 4, 1):
        out = scheduler.step(torch.tanh(scheduler.scale_model_input(x, t)), t, x, eta=0.5)
        x = out.prev_sample
    return out, len(scheduler) * scheduler.init_noise_sigma


@program(lambda: (DDIM(5), LATENT()[0]))
def attribute_of_config(scheduler, x):
    try:
        scheduler.config.beta = 1
    except Exception as e:
        message = e.args[0]
    return (
        x * scheduler.config.beta_end,
        message,
        hasattr(scheduler.config, "beta"),
        "{beta_schedule}".format(**scheduler.config),
    )


def timestep_embedding(t, dim, flip_sin_to_cos=False, downscale_freq_shift=1.0, scale=1, max_period=10000):
    assert len(t.shape) == 1, "Timesteps should be a 1d-array"
    half = dim // 2
    exponent = -math.log(max_period) * torch.arange(start=0, end=half, dtype=torch.float32)
    emb = torch.exp(exponent / (half - downscale_freq_shift))
    emb = scale * t[:, None].float() * emb[None, :]
    emb = torch.cat([torch.sin(emb), torch.cos(emb)], dim=-1)
    if flip_sin_to_cos:
        emb = torch.cat([emb[:, half:], emb[:, :half]], dim=-1)
    return F.pad(emb, (0, 1, 0, 0)) if dim % 2 == 1 else emb


class ResBlock(nn.Module):
    def __init__(self, c, temb=8, scale_shift=True, up=False):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(1, c), nn.GroupNorm(1, c)
        self.conv1, self.conv2 = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1)
        self.emb = nn.Linear(temb, (2 if scale_shift else 1) * c)
        self.scale_shift, self.up = scale_shift, up
        self.nonlinearity = nn.SiLU()

    def forward(self, x, temb, *args, **kwargs):
        if len(args) > 0 or kwargs.get("scale", None) is not None:
            raise TypeError("The `scale` argument is deprecated")
        h = self.nonlinearity(self.norm1(x))
        if self.up:
            x, h = (F.interpolate(y, scale_factor=2.0, mode="nearest") for y in (x, h))
        h = self.conv1(h)
        temb = self.emb(self.nonlinearity(temb))[:, :, None, None]
        if self.scale_shift:
            shift, scale = torch.chunk(temb, 2, dim=1)
            h = self.norm2(h) * (1 + scale) + shift
        else:
            h = self.norm2(h + temb)
        return x + self.conv2(F.dropout(self.nonlinearity(h), 0.1, self.training))


class UNet(nn.Module):
    def __init__(self, c=3):
        super().__init__()
        self.down = nn.ModuleList([ResBlock(c), ResBlock(c, scale_shift=False)])
        self.pool, self.up = nn.AvgPool2d(2), nn.ModuleList([ResBlock(c, up=True), ResBlock(c)])
        self.mix = nn.ModuleList([nn.Conv2d(2 * c, c, 1) for _ in range(2)])

    def forward(self, sample, timestep, down_residuals=None, return_dict: bool = True):
        t = timestep
        if not torch.is_tensor(t):
            t = torch.tensor([t], dtype=torch.int64 if isinstance(t, int) else torch.float64)
        elif len(t.shape) == 0:
            t = t[None]
        emb = timestep_embedding(t.expand(sample.shape[0]), 8, flip_sin_to_cos=True).to(sample.dtype)
        states = (sample,)
        for block in self.down:
            sample = block(sample, emb)
            states += (sample,)
        if down_residuals is not None:
            states = tuple(a + b for a, b in zip(states, down_residuals))
        sample = self.pool(sample)
        for block, mix in zip(self.up, self.mix):
            *states, skip = states
            sample = block(sample, emb) if block.up else sample
            sample = mix(torch.cat([sample, skip], dim=1))
        return SimpleNamespace(sample=sample) if return_dict else (sample,)


@program(lambda: (UNet(), LATENT()[0]))
def unet(m, x):
    return m(x, 5).sample, m(x, torch.tensor(3), down_residuals=[x] * 3, return_dict=False)[0]


@program(lambda: (UNet().eval(), LATENT()[0]), grad=False)
@torch.no_grad()
def guided_loop(m, x, scale=3.0):
    scheduler = DDIM(10)
    scheduler.set_timesteps(2)
    for t in [5, 0]:
        uncond, cond = m(torch.cat([x] * 2), t).sample.chunk(2)
        eps = uncond + scale * (cond - uncond)
        std_t, std_c = (e.std(dim=list(range(1, e.ndim)), keepdim=True) for e in (cond, eps))
        eps = 0.7 * eps * (std_t / std_c) + 0.3 * eps
        x = scheduler.step(eps, t, x).prev_sample
    return (x / 2 + 0.5).clamp(0, 1).mul(255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()


@program(LATENT)
def karras_sigmas(x, t, n=4, rho=7.0):
    ramp = np.linspace(0, 1, n)
    lo, hi = 0.1 ** (1 / rho), 10.0 ** (1 / rho)
    sigmas = torch.from_numpy(((hi + ramp * (lo - hi)) ** rho).astype(np.float32))
    sigmas = torch.cat([sigmas, sigmas.new_zeros([1])])
    for i in range(n):
        d = (x - torch.tanh(x / (sigmas[i] ** 2 + 1) ** 0.5)) / sigmas[i]
        x = x + d * (sigmas[i + 1] - sigmas[i])
    return x


@program(LATENT)
def multistep_solver(x, t):
    model_outputs = [None] * 2
    for i in range(4):
        for j in range(1):
            model_outputs[j] = model_outputs[j + 1]
        model_outputs[-1] = torch.tanh(x) * (i + 1)
        order = 1 if i < 1 else 2
        if order == 1:
            x = x - 0.1 * model_outputs[-1]
        else:
            m0, m1 = model_outputs[-1], model_outputs[-2]
            x = x - 0.1 * (m0 + 0.5 * (m0 - m1))
    return x


class Kind(IntEnum):
    EPS = auto()
    X0 = auto()
    V = auto()

    @property
    def is_noise(self):
        return self is Kind.EPS


@program(LATENT)
def losses_by_enum(x, t):
    noise, acp = torch.randn_like(x), torch.linspace(0.99, 0.1, 10)[t].view(-1, 1, 1, 1)
    targets = {Kind.EPS: noise, Kind.X0: x, Kind.V: acp.sqrt() * noise - (1 - acp).sqrt() * x}
    weights = {kind: (acp / (1 - acp)).clamp(max=5) ** (0 if kind.is_noise else 1) for kind in Kind}
    return {
        k.name: (weights[k] * F.mse_loss(x, v, reduction="none")).mean(dim=list(range(1, x.ndim)))
        for k, v in targets.items()
    }


class VectorQuantizer(nn.Module):
    def __init__(self, n=8, d=3, decay=0.9):
        super().__init__()
        self.decay = decay
        self.register_buffer("codebook", torch.randn(n, d))
        self.register_buffer("counts", torch.ones(n))
        self.register_buffer("sums", self.codebook.clone())

    def forward(self, z):
        flat = z.permute(0, 2, 3, 1).reshape(-1, z.shape[1])
        d = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.codebook.t() + self.codebook.pow(2).sum(1)
        index = d.argmin(1)
        onehot = F.one_hot(index, len(self.codebook)).type(flat.dtype)
        if self.training:
            with torch.no_grad():
                self.counts.mul_(self.decay).add_(onehot.sum(0), alpha=1 - self.decay)
                self.sums.lerp_(onehot.t() @ flat, 1 - self.decay)
                self.codebook.copy_(self.sums / self.counts.clamp(min=1e-5)[:, None])
        q = F.embedding(index, self.codebook).view(z.shape[0], *z.shape[2:], -1).permute(0, 3, 1, 2)
        loss = F.mse_loss(z, q.detach())
        perplexity = torch.exp(-(onehot.mean(0) * (onehot.mean(0) + 1e-10).log()).sum())
        return z + (q - z).detach(), loss, perplexity


@program(lambda: (VectorQuantizer(), LATENT()[0]))
def vector_quantizer(m, x):
    return m(x)


@program(LATENT)
def finite_scalar_quantisation(x, t, levels=(8, 5, 5)):
    levels = torch.tensor(levels)
    basis = torch.cumprod(torch.tensor([1] + levels.tolist()[:-1]), dim=0, dtype=torch.int32)
    z = x.permute(0, 2, 3, 1)
    half = (levels - 1) * (1 + 1e-3) / 2
    offset = torch.where(levels % 2 == 0, 0.5, 0.0)
    bounded = (z + (offset / half).atanh()).tanh() * half - offset
    q = (bounded + (bounded.round() - bounded).detach()) / (levels // 2)
    return q, ((q * (levels // 2) + levels // 2) * basis).sum(-1).to(torch.int32)


class DiagonalGaussian:
    def __init__(self, parameters, deterministic=False):
        self.mean, self.logvar = torch.chunk(parameters, 2, dim=1)
        self.logvar = torch.clamp(self.logvar, -30.0, 20.0)
        self.std = torch.exp(0.5 * self.logvar)
        if deterministic:
            self.std = torch.zeros_like(self.mean)

    def sample(self, generator=None):
        return self.mean + self.std * torch.randn(self.mean.shape, generator=generator)

    def kl(self, other=None, dims=(1, 2, 3)):
        if other is None:
            return 0.5 * torch.sum(self.mean**2 + self.std**2 - 1.0 - self.logvar, dim=dims)
        return 0.5 * torch.sum((self.mean - other.mean) ** 2 / other.std**2 + self.logvar, dim=dims)

    mode = property(lambda self: self.mean)


@program(lambda: (torch.randn(2, 8, 4, 4),))
def variational_latent(moments):
    a, b = DiagonalGaussian(moments), DiagonalGaussian(moments * 0.5, deterministic=False)
    return a.sample(), a.kl(), a.kl(b), b.mode


@program(LATENT)
def affine_coupling_flow(x, t):
    log_det = x.new_zeros(len(x))
    for flip in (False, True):
        a, b = x.flatten(1).chunk(2, 1)[:: -1 if flip else 1]
        s = torch.tanh(a)
        b = b * s.exp() + a
        log_det += s.sum(-1)
        x = torch.cat((a, b), 1).view_as(x)
    return x, log_det - 0.5 * (x**2).flatten(1).sum(1)


@program(LATENT)
def rectified_flow(x, t):
    sigma = torch.sigmoid(torch.normal(mean=0.0, std=1.0, size=(x.size(0),)))
    noise = torch.randn_like(x)
    expand = lambda s: s.view(-1, *([1] * (x.dim() - 1)))
    noisy = torch.lerp(x, noise, expand(sigma))
    return F.huber_loss(noisy.tanh(), noise - x, delta=0.5), torch.quantile(sigma, torch.tensor([0.1, 0.5]))


class EMAModel:
    def __init__(self, parameters, decay=0.99, min_decay=0.0):
        self.shadow = [p.clone().detach() for p in parameters]
        self.decay, self.min_decay, self.optimization_step = decay, min_decay, 0

    def get_decay(self, step):
        step = max(0, step - 1)
        return max(min((1 + step) / (10 + step), self.decay), self.min_decay) if step > 0 else 0.0

    @torch.no_grad()
    def step(self, parameters):
        self.optimization_step += 1
        decay = self.get_decay(self.optimization_step)
        for s, p in zip(self.shadow, parameters):
            if p.requires_grad:
                s.sub_((1 - decay) * (s - p))
            else:
                s.copy_(p)


@program(lambda: (nn.Conv2d(3, 3, 1), LATENT()[0]))
def averaged_weights(m, x):
    ema = EMAModel(m.parameters())
    for _ in range(2):
        ema.step(m.parameters())
    return torch.func.functional_call(m, dict(zip(dict(m.named_parameters()), ema.shadow)), (x,)), ema.optimization_step


class Lora(nn.Module):
    def __init__(self, base, rank=2, alpha=4):
        super().__init__()
        self.base, self.scaling = base, alpha / rank
        self.a = nn.Parameter(base.weight.new_ones(rank, base.in_features))
        self.b = nn.Parameter(base.weight.new_ones(base.out_features, rank))
        self.merged = False

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.base, name)

    def forward(self, x):
        if self.merged:
            return self.base(x)
        return self.base(x) + (x @ self.a.T @ self.b.T) * self.scaling


@program(lambda: (Lora(nn.Linear(4, 4)), LATENT()[0]))
def low_rank_adapters(m, x):
    return m(x) * m.in_features


@program(lambda: (torch.randn(2, 8), torch.randn(2, 8), 0.3))
def slerp(v0, v1, t, threshold=0.9995):
    dot = (v0 * v1 / (v0.norm(dim=-1, keepdim=True) * v1.norm(dim=-1, keepdim=True))).sum(-1, keepdim=True)
    theta = dot.clamp(-threshold, threshold).acos()
    curved = (torch.sin((1 - t) * theta) * v0 + torch.sin(t * theta) * v1) / torch.sin(theta)
    return torch.where(dot.abs() > threshold, torch.lerp(v0, v1, t), curved)


@program(lambda: (torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4)))
def generator_losses(real, fake):
    hinge = F.relu(1.0 - real).mean() + F.relu(1.0 + fake).mean()
    wasserstein = fake.mean() - real.mean()
    logistic = F.softplus(-real).mean() + F.softplus(fake).mean()
    relativistic = F.binary_cross_entropy_with_logits(real - fake.mean(0, keepdim=True), torch.ones_like(real))
    return {k: v for k, v in locals().items() if torch.is_tensor(v) and v.ndim == 0}


@program(lambda: (nn.Sequential(nn.Flatten(), nn.Linear(48, 1)), LATENT()[0]))
def gradient_penalty_by_vjp(critic, x):
    out, pullback = torch.func.vjp(critic, x)
    (g,) = pullback(torch.ones_like(out))
    return ((g.flatten(1).norm(2, dim=1) - 1) ** 2).mean()


@program(LATENT)
def sinusoid_of_fourier_features(x, t):
    weight = torch.randn(4, device=x.device)
    proj = torch.log(t.float() + 1)[:, None] * weight[None, :] * 2 * np.pi
    return torch.cat([proj.sin(), proj.cos()], -1), x * float(np.sqrt(2.0))
