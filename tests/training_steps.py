"""Ten training steps that people write, each as one function: networks, losses, optimizers, schedules and scalers.

`PROGRAMS` has them by name.  A `Training` is made of one at a size: "small" trains in milliseconds on a CPU, "real" is
what people train on a GPU.  Random numbers are drawn in float32, so that a training in float64 has the same ones.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.distributions import Categorical

Sizes = tuple[int, ...]
Batch = list[torch.Tensor]


class Program(NamedTuple):
    step: Callable[..., torch.Tensor]
    """Trains a `Training` with a batch, and returns a loss."""
    modules: Callable[..., Sequence[nn.Module]]
    batch: Callable[..., Sequence[torch.Tensor]]
    optimizer: Callable[..., optim.Optimizer]
    small: Sizes
    """The arguments of `modules` and `batch`."""
    real: Sizes


class Training:
    """Modules, their optimizers with schedules, a scaler and averaged weights, which a step trains."""

    def __init__(
        self,
        name: str,
        size: str = "small",
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        **options: Any,
    ) -> None:
        """`options` are those of the optimizers, such as ``fused=True``."""
        torch.manual_seed(0)
        self.program, self.dtype, self.device = PROGRAMS[name], dtype, device
        self.sizes = self.program.small if size == "small" else self.program.real
        self.modules = [m.to(device=device, dtype=dtype) for m in self.program.modules(*self.sizes)]
        self.averages = [copy.deepcopy(m).requires_grad_(False) for m in self.modules]
        self.optimizers = [self.program.optimizer(m, **options) for m in self.modules]
        self.schedulers = [optim.lr_scheduler.LambdaLR(o, lambda n: min(1.0, (n + 1) / 5)) for o in self.optimizers]
        self.scaler = torch.amp.GradScaler(device, init_scale=256.0, growth_interval=8)

    def batch(self) -> Batch:
        """Returns the tensors of a batch, of the training's type and on its device."""
        made = [each.to(self.device) for each in self.program.batch(*self.sizes)]
        return [each.to(self.dtype) if each.is_floating_point() else each for each in made]

    def left(self) -> dict[str, Any]:
        """Returns all that steps change: parameters, buffers, gradients, states of optimizers, random numbers."""
        return {
            "modules": [m.state_dict() for m in self.modules],
            "averages": [m.state_dict() for m in self.averages],
            "gradients": [{name: p.grad for name, p in m.named_parameters()} for m in self.modules],
            "optimizers": [each.state_dict() for each in self.optimizers],
            "schedulers": [each.state_dict() for each in self.schedulers],
            "scaler": self.scaler.state_dict(),
            "random numbers": torch.get_rng_state(),
        }


# ---------------------------------------------------------------- steps


def classify(training: Training, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    [model], [optimizer] = training.modules, training.optimizers
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


def predict_tokens(training: Training, tokens: torch.Tensor) -> torch.Tensor:
    [model], [optimizer] = training.modules, training.optimizers
    optimizer.zero_grad()
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    training.schedulers[0].step()
    return loss.detach()


def denoise(training: Training, x: torch.Tensor) -> torch.Tensor:
    [model], [optimizer], [average] = training.modules, training.optimizers, training.averages
    times = torch.randint(0, 100, x.shape[:1], device=x.device)
    noise = torch.randn(x.shape, device=x.device).to(x.dtype)
    kept = torch.cos(times / 100 * torch.pi / 2)[:, None, None, None].to(x.dtype)
    loss = F.mse_loss(model(kept * x + (1 - kept**2).sqrt() * noise, times), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for mean, p in zip(average.parameters(), model.parameters(), strict=True):
            mean.lerp_(p, 0.05)
    return loss.detach()


def tag(training: Training, words: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
    [model], [optimizer] = training.modules, training.optimizers
    optimizer.zero_grad()
    loss = F.cross_entropy(model(words).transpose(1, 2), tags, ignore_index=0)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    return loss.detach()


def compete(training: Training, real: torch.Tensor) -> torch.Tensor:
    generator, critic = training.modules
    of_generator, of_critic = training.optimizers
    noise = torch.randn(len(real), 8, device=real.device).to(real.dtype)
    made = generator(noise)
    of_critic.zero_grad()
    true, false = critic(real), critic(made.detach())
    judged = F.binary_cross_entropy_with_logits(true, torch.ones_like(true))
    judged = judged + F.binary_cross_entropy_with_logits(false, torch.zeros_like(false))
    judged.backward()
    of_critic.step()
    of_generator.zero_grad()
    fooled = critic(made)
    loss = F.binary_cross_entropy_with_logits(fooled, torch.ones_like(fooled))
    loss.backward()
    of_generator.step()
    total: torch.Tensor = judged.detach() + loss.detach()
    return total


def improve_policy(
    training: Training, seen: torch.Tensor, actions: torch.Tensor, before: torch.Tensor, returns: torch.Tensor
) -> torch.Tensor:
    [model], [optimizer] = training.modules, training.optimizers
    logits, value = model(seen)
    policy = Categorical(logits=logits, validate_args=False)
    advantage = returns - value.detach()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = (policy.log_prob(actions) - before).exp()
    gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    loss: torch.Tensor = 0.5 * F.mse_loss(value, returns) - gain - 0.01 * policy.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    return loss.detach()


def accumulate(training: Training, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    [model], [optimizer] = training.modules, training.optimizers
    optimizer.zero_grad()
    total = torch.zeros((), device=x.device, dtype=x.dtype)
    for part, wanted in zip(x.chunk(4), labels.chunk(4), strict=True):
        loss = F.cross_entropy(model(part), wanted) / 4
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total


def mixed(training: Training, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    [model], [optimizer] = training.modules, training.optimizers
    optimizer.zero_grad()
    half = torch.bfloat16 if training.device == "cpu" else torch.float16
    with torch.autocast(training.device, dtype=half, enabled=x.dtype == torch.float32):
        loss = F.cross_entropy(model(x), labels)
    training.scaler.scale(loss).backward()
    training.scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    training.scaler.step(optimizer)
    training.scaler.update()
    return loss.detach()


# ---------------------------------------------------------------- networks


def perceptron(inputs: int, width: int, outputs: int) -> nn.Sequential:
    layers = nn.Linear(inputs, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()
    return nn.Sequential(*layers, nn.Linear(width, outputs))


class BasicBlock(nn.Module):
    """Two convolutions with batch norms, beside a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        changes = stride != 1 or inputs != width
        self.downsample = (
            nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width)) if changes else None
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        shortcut = x if self.downsample is None else self.downsample(x)
        return F.relu(out + shortcut)


class ResNet(nn.Module):
    """ResNet-18 with its first layers for small images."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        widths = [width * 2**i for i in range(4)]
        self.layers, last = nn.ModuleList(), width
        for i, each in enumerate(widths):
            parts = [BasicBlock(last if n == 0 else each, each, 2 if i and not n else 1) for n in range(blocks)]
            self.layers.append(nn.Sequential(*parts))
            last = each
        self.fc = nn.Linear(last, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        for layer in self.layers:
            x = layer(x)
        result: torch.Tensor = self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return result


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.causal = heads, causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        result: torch.Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return result


class TransformerBlock(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        result: torch.Tensor = x + self.mlp(self.norm2(x))
        return result


class VisionTransformer(nn.Module):
    def __init__(self, width: int, depth: int, patch: int, image: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(TransformerBlock(width, max(2, width // 64), False) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
        result: torch.Tensor = self.head(self.norm(self.blocks(x))[:, 0])
        return result


class GPT(nn.Module):
    """A language model whose head has the weight of its embedding."""

    def __init__(self, width: int, depth: int, words: int, length: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(TransformerBlock(width, max(2, width // 64), True) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        result: torch.Tensor = self.head(self.norm(x))
        return result


class Residual(nn.Module):
    """A block of a U-Net that knows the time step."""

    def __init__(self, inputs: int, width: int, times: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, inputs), nn.Conv2d(inputs, width, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, width), nn.Conv2d(width, width, 3, padding=1)
        self.times, self.shortcut = nn.Linear(times, width), nn.Conv2d(inputs, width, 1)

    def forward(self, x: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        h = self.conv1(F.silu(self.norm1(x))) + self.times(times)[:, :, None, None]
        result: torch.Tensor = self.shortcut(x) + self.conv2(F.silu(self.norm2(h)))
        return result


class UNet(nn.Module):
    """A U-Net with one level, attention in its middle and embeddings of time steps."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width, times = width, 4 * width
        self.times = nn.Sequential(nn.Linear(width, times), nn.SiLU(), nn.Linear(times, times))
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down1, self.smaller = Residual(width, width, times), nn.Conv2d(width, width, 3, 2, 1)
        self.down2, self.attention = Residual(width, 2 * width, times), Attention(2 * width, 2, False)
        self.up2, self.larger = Residual(2 * width, width, times), nn.Conv2d(width, width, 3, padding=1)
        self.up1, self.norm = Residual(2 * width, width, times), nn.GroupNorm(4, width)
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def embed(self, times: torch.Tensor) -> torch.Tensor:
        rates = torch.exp(-torch.arange(0, self.width, 2, device=times.device) / self.width * 9.2)
        angles = times[:, None] * rates
        result: torch.Tensor = self.times(torch.cat([angles.sin(), angles.cos()], 1).to(self.first.weight.dtype))
        return result

    def forward(self, x: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        at = self.embed(times)
        first = self.down1(self.first(x), at)
        middle = self.down2(self.smaller(first), at)
        seen = self.attention(middle.flatten(2).transpose(1, 2)).transpose(1, 2)
        middle = self.up2(middle + seen.reshape(middle.shape), at)
        large = self.larger(F.interpolate(middle, scale_factor=2.0, mode="nearest"))
        result: torch.Tensor = self.last(F.silu(self.norm(self.up1(torch.cat([first, large], 1), at))))
        return result


class Tagger(nn.Module):
    """Tags of words by a GRU in both directions."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=0)
        self.gru = nn.GRU(width, width, num_layers=2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, 5)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        states, _ = self.gru(self.embedding(words))
        result: torch.Tensor = self.out(states)
        return result


class ActorCritic(nn.Module):
    def __init__(self, seen: int, width: int, actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(seen, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.policy, self.value = nn.Linear(width, actions), nn.Linear(width, 1)

    def forward(self, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.body(seen)
        return self.policy(h), self.value(h).squeeze(-1)


# ---------------------------------------------------------------- programs


def grouped_adamw(model: nn.Module, **options: Any) -> optim.Optimizer:
    """AdamW that decays matrices only, as GPTs are trained."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return optim.AdamW(groups, 1e-3, betas=(0.9, 0.95), **options)


def images(count: int, size: int) -> Batch:
    return [torch.randn(count, 3, size, size), torch.randint(10, (count,))]


def rows(count: int, inputs: int) -> Batch:
    return [torch.randn(count, inputs), torch.randint(10, (count,))]


def played(count: int, seen: int, actions: int) -> Batch:
    return [torch.randn(count, seen), torch.randint(actions, (count,)), -torch.rand(count) - 1, torch.randn(count)]


PROGRAMS: dict[str, Program] = {
    "MLP": Program(
        classify,
        lambda n, inputs, width: [perceptron(inputs, width, 10)],
        lambda n, inputs, width: rows(n, inputs),
        lambda m, **options: optim.Adam(m.parameters(), 1e-3, **options),
        (16, 20, 32),
        (64, 256, 512),
    ),
    "ResNet": Program(
        classify,
        lambda n, size, width, blocks: [ResNet(width, blocks)],
        lambda n, size, width, blocks: images(n, size),
        lambda m, **options: optim.SGD(m.parameters(), 0.01, momentum=0.9, weight_decay=5e-4, nesterov=True, **options),
        (8, 8, 4, 1),
        (64, 64, 64, 2),
    ),
    "ViT": Program(
        classify,
        lambda n, size, patch, width, depth: [VisionTransformer(width, depth, patch, size)],
        lambda n, size, patch, width, depth: images(n, size),
        lambda m, **options: optim.AdamW(m.parameters(), 1e-3, weight_decay=0.05, **options),
        (4, 8, 4, 16, 2),
        (32, 224, 16, 384, 12),
    ),
    "GPT": Program(
        predict_tokens,
        lambda n, length, width, depth, words: [GPT(width, depth, words, length)],
        lambda n, length, width, depth, words: [torch.randint(words, (n, length))],
        grouped_adamw,
        (3, 9, 16, 2, 30),
        (16, 513, 512, 6, 8192),
    ),
    "diffusion U-Net": Program(
        denoise,
        lambda n, size, width: [UNet(width)],
        lambda n, size, width: images(n, size)[:1],
        lambda m, **options: optim.AdamW(m.parameters(), 1e-3, **options),
        (3, 8, 8),
        (32, 32, 128),
    ),
    "GRU tagger": Program(
        tag,
        lambda n, length, words, width: [Tagger(words, width)],
        lambda n, length, words, width: [torch.randint(words, (n, length)), torch.randint(5, (n, length))],
        lambda m, **options: optim.Adam(m.parameters(), 1e-3, **options),
        (4, 6, 20, 8),
        (32, 32, 5000, 128),
    ),
    "GAN": Program(
        compete,
        lambda n, width: [perceptron(8, width, 12), perceptron(12, width, 1)],
        lambda n, width: [torch.randn(n, 12)],
        lambda m, **options: optim.Adam(m.parameters(), 2e-4, betas=(0.5, 0.999), **options),
        (8, 16),
        (128, 512),
    ),
    "PPO": Program(
        improve_policy,
        lambda n, seen, width, actions: [ActorCritic(seen, width, actions)],
        lambda n, seen, width, actions: played(n, seen, actions),
        lambda m, **options: optim.Adam(m.parameters(), 3e-4, eps=1e-5, **options),
        (16, 6, 16, 4),
        (256, 8, 64, 4),
    ),
    "micro-batches": Program(
        accumulate,
        lambda n, inputs, width: [perceptron(inputs, width, 10)],
        lambda n, inputs, width: rows(n, inputs),
        lambda m, **options: optim.AdamW(m.parameters(), 1e-3, **options),
        (16, 20, 32),
        (256, 256, 512),
    ),
    "mixed precision": Program(
        mixed,
        lambda n, inputs, width: [perceptron(inputs, width, 10)],
        lambda n, inputs, width: rows(n, inputs),
        lambda m, **options: optim.AdamW(m.parameters(), 1e-3, **options),
        (16, 20, 32),
        (256, 256, 1024),
    ),
}
