import torch


def branch(x: torch.Tensor) -> torch.Tensor:
    y = x.cos()
    if y.sum() > 0:
        y = y / 2
    return y.relu()
