"""All that two steps of training leave of a module."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from compiler_core.api.testing.trees import tensors
from compiler_core.api.testing.world import World, observe

Wrap = Callable[[torch.nn.Module], Callable[..., Any]]


def trained(
    model: torch.nn.Module, arguments: Mapping[str, Any], wrap: Wrap, *, noise: int | None = None, wide: bool = False
) -> World:
    """Train a copy of `model`, called through ``wrap(copy)``: two passes whose gradients accumulate, and a step.

    Between the passes gradients are clipped in place.  Outputs of both passes, gradients, parameters, buffers, the
    optimiser's state, arguments and random states are compared.  With `noise`, a seed, the arguments are moved by
    their last bits; with `wide` everything is in float64.
    """
    model = copy.deepcopy(model).train()
    given = {name: _moved(value, noise, wide) for name, value in arguments.items()}
    if wide:
        model = model.double()
    run = wrap(model)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    leaves = [p for p in model.parameters() if p.requires_grad]

    def step() -> Any:
        first = run(**given)
        torch.autograd.backward([_loss(first)])
        clipped = [None if p.grad is None else p.grad.detach().clone() for p in leaves]
        _clip(leaves)
        second = run(**given)
        torch.autograd.backward([_loss(second)])
        gradients = [None if p.grad is None else p.grad.detach().clone() for p in leaves]
        optimiser.step()
        return _detached(first), _detached(second), clipped, gradients

    world = observe(step, lambda: (), 0, program=lambda: None)  # what the step changes is to stay changed
    world.arguments = [given]
    world.outside = {"model": model.state_dict(), "optimiser": optimiser.state_dict()}
    return world


def _moved(value: Any, noise: int | None, wide: bool) -> Any:
    """A copy of an argument."""
    if not isinstance(value, torch.Tensor):
        return copy.deepcopy(value)
    value = value.detach().clone()
    if not value.is_floating_point():
        return value
    if noise is not None:
        generator = torch.Generator().manual_seed(noise)
        bits = torch.randint(-1, 2, value.shape, generator=generator, device="cpu").to(value)
        value = value * (1 + bits * torch.finfo(value.dtype).eps)
    return value.double() if wide else value


def _clip(leaves: Sequence[torch.nn.Parameter]) -> None:
    """Each gradient in place by a factor of its own: one that shares its memory is scaled twice."""
    with torch.no_grad():
        for number, leaf in enumerate(leaves):
            if leaf.grad is not None:
                leaf.grad.mul_(1 / (1 + number % 7))


def _loss(output: Any) -> torch.Tensor:
    """One number that depends on all floating-point tensors of a model's output."""
    values = [t for _, t in tensors(output) if t.is_floating_point() and t.requires_grad]
    return torch.stack([t.square().mean() for t in values]).sum()


def _detached(output: Any) -> list[tuple[str, torch.Tensor]]:
    return [(path, t.detach()) for path, t in tensors(output)]
