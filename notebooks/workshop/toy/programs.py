"""Small programs for the toy compiler: three models, and a step of training."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MLP(nn.Module):
    """Three linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)])

    def forward(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i < len(self.layers) - 1:
                x = F.gelu(x)
        return x


class CNN(nn.Module):
    """Two convolutions and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3), nn.ReLU())
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))


class Layer(nn.Module):
    """A layer of a transformer: attention with two heads, then two linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads, self.before, self.after = 2, nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries, self.keys, self.values = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.out, self.up, self.down = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def by_head(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def attention(self, x: Tensor) -> Tensor:
        queries, keys, values = self.by_head(self.queries(x)), self.by_head(self.keys(x)), self.by_head(self.values(x))
        weights = torch.softmax(queries @ keys.transpose(2, 3) / queries.shape[3] ** 0.5, -1)
        return self.out((weights @ values).transpose(1, 2).reshape(x.shape))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before(x))
        return x + self.down(F.gelu(self.up(self.after(x))))


class Transformer(nn.Module):
    """A transformer of two layers, which gives each token of a text a class."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(16, 8), nn.Linear(8, 4)
        self.layers = nn.ModuleList([Layer(8), Layer(8)])

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x).flatten(0, 1)


def training_step(model: nn.Module, rate: float = 0.1) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns a step of gradient descent."""
    parameters = list(model.parameters())

    def step(inputs: Tensor, labels: Tensor) -> Tensor:
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        torch._C._set_grad_enabled(False)
        changed = []
        for parameter in parameters:
            changed.append(parameter - parameter.grad * rate)
        torch._foreach_copy_(parameters, changed)
        torch._C._set_grad_enabled(True)
        model.zero_grad()
        return loss

    return step
