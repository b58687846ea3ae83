import torch


def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    hidden = x @ w
    active = torch.sigmoid(hidden) * hidden
    return active.tanh().sum()
