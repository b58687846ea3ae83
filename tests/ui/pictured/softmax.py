import torch


def softmax(x: torch.Tensor) -> torch.Tensor:
    shifted = x - x.amax(-1, keepdim=True)
    powers = shifted.exp()
    return powers / powers.sum(-1, keepdim=True)
