"""Graphs whose sizes are symbols: equal to eager at fresh sizes, for values, gradients, mutations and aliases."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.unit import captured

SIZES = [2, 3, 4, 7, 8, 13, 31, 64, 97, 128, 257]
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
}


@pytest.mark.parametrize("backend", ["aot_eager", "cpp"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, backend: str) -> None:
    function, make = PROGRAMS[name]
    draw = random.Random(name + backend)
    with captured.compiled(function, backend, dynamic=True) as made:
        for _ in range(3):
            arguments = make(draw.choice(SIZES), draw.choice(SIZES))
            _assert_equal(function, made, arguments)


def _assert_equal(function: Callable[..., Any], made: captured.Compiled, arguments: list[torch.Tensor]) -> None:
    expected = captured.outcome(copy.deepcopy(function), arguments, True)
    found = captured.outcome(function, arguments, True, made)
    assert not [f.detail for c in made.compiles for f in c.failures]
    captured.assert_equal(found, expected, 2e-5)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.block = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.head = nn.Linear(16, 50)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return next_token_loss(self.head(self.block(self.embedding(tokens))), tokens)


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.body(x).mean((2, 3)))


MODULES: dict[str, tuple[Callable[[], nn.Module], Callable[[int, int], torch.Tensor]]] = {
    "transformer": (Block, lambda n, m: torch.randint(0, 50, (n % 7 + 2, m % 30 + 2))),
    "convolutions": (Convolutions, lambda n, m: t(n % 9 + 2, 3, m % 20 + 8, 12)),
}


@pytest.mark.parametrize("backend", ["aot_eager", "cpp"])
@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("training", [True, False])
def test_modules(name: str, backend: str, training: bool) -> None:
    kind, make = MODULES[name]
    torch.manual_seed(3)
    module, draw = kind().train(training), random.Random(name)
    twin = copy.deepcopy(module)
    with captured.compiled(module, backend, dynamic=True) as made:
        for _ in range(3):
            arguments = [make(draw.choice(SIZES), draw.choice(SIZES))]
            module.zero_grad()
            twin.zero_grad()
            expected = captured.outcome(twin, arguments, True)
            captured.assert_equal(captured.outcome(module, arguments, True, made), expected, 2e-5)
    assert not [f.detail for c in made.compiles for f in c.failures]
