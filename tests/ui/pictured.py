"""The programs of the README's pictures."""

import torch


def branch(x: torch.Tensor) -> torch.Tensor:
    y = x.cos()
    if y.sum() > 0:
        y = y / 2
    return y.relu()


def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    hidden = x @ w
    active = torch.sigmoid(hidden) * hidden
    return active.tanh().sum()


def softmax(x: torch.Tensor) -> torch.Tensor:
    shifted = x - x.amax(-1, keepdim=True)
    powers = shifted.exp()
    return powers / powers.sum(-1, keepdim=True)
