"""Networks that need PyTorch only: copies of torchvision's ResNet-18 and of ViT, a transformer, and a token decoder."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class BasicBlock(nn.Module):
    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        x += identity
        return self.relu(x)  # type: ignore[no-any-return]


class ResNet18(nn.Module):
    """A copy of torchvision's ``resnet18``: same layers, same order."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        blocks, channels = [], 64
        for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [BasicBlock(channels, out, stride), BasicBlock(out, out, 1)]
            channels = out
        self.features = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1))
        self.fc = nn.Linear(512, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.flatten(self.features(x), 1))  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self, width: int, heads: int, is_causal: bool = True) -> None:
        super().__init__()
        self.heads, self.is_causal = heads, is_causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """Maps tokens to logits."""

    def __init__(self, blocks: int, width: int, heads: int = 4, words: int = 1000, length: int = 256) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(words, width), nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.word(tokens) + self.place[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """Attention over a fixed-size cache that the layer updates, with rotary embeddings, RMS norms and a gated MLP."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 4 * width, bias=False), nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, heads, length, width // heads))

    def forward(self, x: torch.Tensor, place: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).view(1, 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = rotated(q, turn), rotated(k, turn)
        self.keys.index_copy_(2, place, k)
        self.values.index_copy_(2, place, v)
        seen = torch.arange(self.keys.shape[2], device=x.device) <= place
        mixed = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen[None])
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))  # type: ignore[no-any-return]


def rotated(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return x * turn.cos() + torch.cat([-right, left], -1) * turn.sin()


class Decoder(nn.Module):
    """Maps one token and its position to the logits of the next."""

    def __init__(self, layers: int, width: int, heads: int, words: int = 32_000, length: int = 512) -> None:
        super().__init__()
        self.width = width // heads
        self.word, self.norm = nn.Embedding(words, width), nn.RMSNorm(width)
        self.layers = nn.ModuleList(DecoderLayer(width, heads, length) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, token: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        x = self.word(token)
        speed = torch.arange(0, self.width, 2, device=x.device) / self.width
        turn = (place / 10_000**speed).repeat(2).to(x.dtype)
        for layer in self.layers:
            x = layer(x, place, turn)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


class VisionTransformer(nn.Module):
    """A vision transformer of the base size: layers of 768 channels and 12 heads over patches of 16 pixels."""

    def __init__(self, pixels: int = 224, layers: int = 12) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 768, 16, 16)
        self.cls = nn.Parameter(torch.zeros(1, 1, 768))
        self.positions = nn.Parameter(torch.randn(1, (pixels // 16) ** 2 + 1, 768) / 50)
        self.layers = nn.ModuleList(Block(768, 12, is_causal=False) for _ in range(layers))
        self.norm = nn.LayerNorm(768)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls.expand(len(x), -1, -1), x), 1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)  # type: ignore[no-any-return]
