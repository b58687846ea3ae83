"""Programs whose sizes are symbols, each compared with eager at sizes that it was not compiled for.

    python tests/cases/symbolic_programs.py BACKEND [NAME ...]

prints a JSON object: program -> verdict.  Triton's interpreter wants its variable before Triton is
imported, so the test starts this as a process.
"""

from __future__ import annotations

import json
import os
import random
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import compiler_core
from tests.cases import captured, triton_interpreter

SIZES = (2, 3, 4, 7, 8, 13, 31, 64, 97, 128, 257)
MAX_ELEMENTS = 10_000_000
Program = tuple[Callable[..., Any], Callable[[int, int], list[torch.Tensor]]]


def t(*shape: int) -> torch.Tensor:
    return torch.randn(shape, requires_grad=True)


def attention(x: torch.Tensor) -> Any:
    batch, length, width = x.shape
    heads = x.view(batch, length, 4, width // 4).transpose(1, 2)
    scores = heads @ heads.transpose(-1, -2) / (width // 4) ** 0.5
    mask = torch.ones(length, length, dtype=torch.bool).tril()
    weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
    return (weights @ heads).transpose(1, 2).reshape(batch, length, width)


def rotary(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    angle = torch.arange(x.shape[0])[:, None].float()
    return x * angle.cos() + turned * angle.sin()


def next_token_loss(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> Any:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def writes_input(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x.mul_(y.sum(0)), x[1:], x.t()


def views_of_output(x: torch.Tensor) -> Any:
    y = x.cos()
    return y, y.view(-1), y[:, : y.shape[1] // 2]


PROGRAMS: dict[str, Program] = {
    "broadcast": (lambda x, y: (x + y).relu() * torch.cos(x), lambda n, m: [t(n, m), t(m)]),
    "broadcast_column": (lambda x, y: (x + y[:, None]).exp() * x.shape[0], lambda n, m: [t(n, m), t(n)]),
    "softmax": (lambda x: F.softmax(x, -1).transpose(0, 1).contiguous() * 2, lambda n, m: [t(n, m)]),
    "log_softmax": (lambda x: F.log_softmax(x, 0), lambda n, m: [t(n, m)]),
    "column_sums": (lambda x: (x * x).sum(0) + x.mean(0), lambda n, m: [t(n, m)]),
    "reductions": (lambda x: (x.mean(), x.var(1), x.amax(1), x.std()), lambda n, m: [t(n, m)]),
    "layer_norm": (lambda x: F.layer_norm(x, x.shape[-1:]), lambda n, m: [t(n, m)]),
    "layer_norm_static": (lambda x: F.gelu(F.layer_norm(x, (24,))), lambda n, m: [t(n, m, 24)]),
    "rms_norm": (rms_norm, lambda n, m: [t(n, m), t(m)]),
    "attention": (attention, lambda n, m: [t(n % 7 + 2, m % 40 + 2, 16)]),
    "next_token_loss": (next_token_loss, lambda n, m: [t(n, m, 11), torch.randint(0, 11, (n, m))]),
    "cat_slices": (lambda x, y: torch.cat([x, y[:, 1:]], 1).sin(), lambda n, m: [t(n, m), t(n, m + 3)]),
    "reshape": (lambda x: (x * 2).view(-1, 4).sin().sum(1), lambda n, m: [t(n, 4 * m)]),
    "chunk": (lambda x: [p * 2 for p in x.chunk(2, 1)], lambda n, m: [t(n, 2 * m)]),
    "split": (lambda x: x.split(x.shape[0] // 2)[0] * 3, lambda n, m: [t(2 * n, m)]),
    "rotary": (rotary, lambda n, m: [t(n, 2 * m)]),
    "constants": (lambda x: x + torch.zeros(x.shape[0] * 2, x.shape[1])[: x.shape[0]], lambda n, m: [t(n, m)]),
    "roll": (lambda x: (x.roll(-1, 0), x.roll(1, 1), x.roll(5, 1), x.roll(x.shape[0] - 1, 0)), lambda n, m: [t(n, m)]),
    "triangle": (lambda x: x.tril() + x.triu(1), lambda n, m: [t(n, m)]),
    "flatten": (lambda x: x.flatten(0, 1).sum(0) * x.size(1), lambda n, m: [t(n, m, 5)]),
    "index": (lambda x, i: x[i] * 2, lambda n, m: [t(n, m), torch.randint(0, n, (m,))]),
    "gather": (lambda x, i: x.gather(1, i).sin(), lambda n, m: [t(n, m), torch.randint(0, m, (n, m))]),
    "sort": (lambda x: x.cumsum(0).sort(1)[0] + 1, lambda n, m: [t(n, m)]),
    "scaled": (lambda x: x / x.shape[0] ** 0.5, lambda n, m: [t(n, m)]),
    "dropout": (lambda x: F.dropout(x, 0.3) * 2, lambda n, m: [t(n, m)]),
    "random": (lambda x: x * torch.rand_like(x) + torch.rand(x.shape[0], 1), lambda n, m: [t(n, m)]),
    "writes_input": (writes_input, lambda n, m: [torch.randn(n, m), t(5, m)]),
    "adds_in_place": (lambda x: x.add_(1).view(-1), lambda n, m: [torch.randn(n, m)]),
    "views_of_input": (lambda x: (x.sin()[1:], x.view(x.shape[1], -1), x.expand(3, -1, -1)), lambda n, m: [t(n, m)]),
    "views_of_output": (views_of_output, lambda n, m: [t(n, m)]),
    "linear": (lambda x, w: F.linear(x, w).relu(), lambda n, m: [t(n, m % 40 + 2, 12), t(9, 12)]),
    "linear_bias": (lambda x, w, b: F.linear(x, w, b).relu(), lambda n, m: [t(n, m % 40 + 2, 12), t(9, 12), t(9)]),
    "products": (lambda x, y: (x @ y).sin() @ x, lambda n, m: [t(n, m, 6), t(6, m)]),
    "einsum": (lambda x, w: torch.einsum("bnd,hd->bhn", x, w).tanh(), lambda n, m: [t(n, m, 6), t(4, 6)]),
    "bilinear": (lambda x, y, w: F.bilinear(x, y, w), lambda n, m: [t(n, m, 3), t(n, m, 4), t(5, 3, 4)]),
}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.block = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.head = nn.Linear(16, 50)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return next_token_loss(self.head(self.block(self.embedding(tokens))), tokens)


class Decoder(nn.Module):
    """A layer of a language model: norms without means, rotary positions, causal attention, no biases."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.norms = nn.ModuleList(nn.RMSNorm(16) for _ in range(2))
        self.qkv, self.out = nn.Linear(16, 48, bias=False), nn.Linear(16, 16, bias=False)
        self.gate, self.up, self.down = (nn.Linear(*size, bias=False) for size in ((16, 40), (16, 40), (40, 16)))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        q, k, v = self.qkv(self.norms[0](x)).view(*tokens.shape, 3, 2, 8).permute(2, 0, 3, 1, 4)
        angle = torch.arange(tokens.shape[1])[:, None] * 10.0 ** -torch.arange(4.0).repeat(2)
        q, k = (part * angle.cos() + torch.cat([-part[..., 4:], part[..., :4]], -1) * angle.sin() for part in (q, k))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y = self.norms[1](x)
        return torch.as_tensor(x + self.down(F.silu(self.gate(y)) * self.up(y)))


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.body(x).mean((2, 3)))


MODULES: dict[str, tuple[Callable[[], nn.Module], Callable[[int, int], torch.Tensor]]] = {
    "transformer": (Block, lambda n, m: torch.randint(0, 50, (n % 7 + 2, m % 30 + 2))),
    "decoder": (Decoder, lambda n, m: torch.randint(0, 50, (n % 7 + 2, m % 30 + 2))),
    "convolutions": (Convolutions, lambda n, m: t(n % 9 + 2, 3, m % 20 + 8, 12)),
}


MAY_SPECIALISE = frozenset({"views_of_input", "views_of_output", "writes_input", "next_token_loss"})
"""Programs in which a size of 2 is another case than more."""


def verdict(name: str, backend: str, sizes: Sequence[int] = SIZES, calls: int = 3) -> str:
    """ "ok", or how the program differs from eager at one of several sizes drawn from `sizes`, or why it was compiled
    more than once."""
    function, make = PROGRAMS[name]
    draw = random.Random(name + backend)
    compiler_core.reset()
    with compiler_core.record() as record:
        compiled = compiler_core.compile(function, backend=backend, dynamic=True, strict=True)
        for _ in range(calls):
            n = draw.choice(sizes)
            m = draw.choice([size for size in sizes if n * size < MAX_ELEMENTS])
            try:
                arguments = make(n, m)
                expected = captured.outcome(function, arguments, True)
                captured.assert_equal(captured.outcome(function, arguments, True, compiled), expected, 1e-4)
            except Exception:
                return f"{n} x {m}: {traceback.format_exc()}"
    compiles = len(record.compiles)
    return "ok" if compiles == 1 or name in MAY_SPECIALISE else f"{compiles} compiles"


if __name__ == "__main__":
    backend, *names = sys.argv[1:]
    if os.environ.get("TRITON_INTERPRET") == "1":
        triton_interpreter.extend()
    json.dump({name: verdict(name, backend, SIZES[:8], 2) for name in names or PROGRAMS}, sys.stdout, indent=1)
