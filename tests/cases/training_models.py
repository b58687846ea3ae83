"""Models whose training shows what a joint graph and a partition are worth.

`MODELS[name](width)` makes a function and the tensors to call it with.  The first three are those that the
bars are about; nobody tuned anything for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Made = tuple[Callable[..., torch.Tensor], list[torch.Tensor]]


def cos_cos(width: int) -> Made:
    return (lambda x: x.cos().cos()), [torch.randn(width, width, requires_grad=True)]


def transformer_block(width: int) -> Made:
    """Two layers, norm first, with dropout."""
    layers = (
        nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True, activation="gelu")
        for _ in range(2)
    )
    return nn.Sequential(*layers), [torch.randn(4, max(width // 2, 8), width, requires_grad=True)]


def mlp(width: int) -> Made:
    model = nn.Sequential(
        nn.Linear(width, 4 * width), nn.GELU(), nn.LayerNorm(4 * width), nn.Dropout(), nn.Linear(4 * width, width)
    )
    return model, [torch.randn(2 * width, width)]


def gpt2(width: int) -> Made:
    """Hugging Face's, two layers, with the loss of the next token."""
    import tests.cases.architectures  # it lets transformers be imported beside a PyTorch for the CPU

    transformers: Any = tests.cases.architectures.transformers  # type: ignore[attr-defined]
    size = {"n_embd": width, "n_layer": 2, "n_head": 4, "vocab_size": 4 * width, "n_positions": width}
    config = transformers.GPT2Config(**size, bos_token_id=0, eos_token_id=0)
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config).train()

    def loss(tokens: torch.Tensor) -> torch.Tensor:
        logits = model(input_ids=tokens, use_cache=False).logits
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    loss.parameters = model.parameters  # type: ignore[attr-defined]
    return loss, [torch.randint(0, 4 * width, (2, width // 2))]


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm, self.again = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = F.relu(self.norm(self.first(x)))
        return F.relu(self.again(self.second(y)) + x)


def conv_net(width: int) -> Made:
    """Two residual blocks with batch norm, a pool, a classifier."""
    channels = max(width // 8, 4)
    blocks = (Residual(channels), nn.MaxPool2d(2), Residual(channels), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), *blocks, nn.Linear(channels, 10))
    return model, [torch.randn(4, 3, max(width // 4, 8), max(width // 4, 8))]


class RotaryAttention(nn.Module):
    """Grouped heads, rotary positions, RMS norm and a gated MLP, as in today's language models."""

    rates: torch.Tensor

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.norm, self.after = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * width, width, bias=False)
        self.register_buffer("rates", 10_000.0 ** (-torch.arange(0, self.size, 2) / self.size))

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        angles = torch.arange(x.shape[2], device=x.device)[:, None] * self.rates
        cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
        left, right = x.chunk(2, -1)
        return x * cos + torch.cat((-right, left), -1) * sin

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        q = self.q(y).unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        k, v = self.kv(y).unflatten(-1, (self.heads, self.size)).transpose(1, 2).chunk(2, 1)
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        scores = self.rotate(q) @ self.rotate(k).transpose(-1, -2) / self.size**0.5
        hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
        x = x + self.out((scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v).transpose(1, 2).flatten(-2))
        z = self.after(x)
        out: torch.Tensor = x + self.down(F.silu(self.gate(z)) * self.up(z))
        return out


def rope_attention(width: int) -> Made:
    return RotaryAttention(width), [torch.randn(4, max(width // 2, 8), width, requires_grad=True)]


MODELS: dict[str, Callable[[int], Made]] = {
    "cos(cos(x))": cos_cos,
    "transformer block": transformer_block,
    "mlp": mlp,
    "gpt2": gpt2,
    "conv net": conv_net,
    "rope attention": rope_attention,
}


def leaves(function: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors that get gradients."""
    parameters = list(function.parameters()) if hasattr(function, "parameters") else []
    return [t for t in [*inputs, *parameters] if t.requires_grad]
