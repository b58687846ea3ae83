"""Observes training: what two backward passes and an optimizer step leave behind."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from compiler_core.tools.testing.object_trees import tensors
from compiler_core.tools.testing.observed_run import ObservedRun, observe

Wrap = Callable[[torch.nn.Module], Callable[..., Any]]
"""Returns the function to call for a module: the module itself, or a compiled one."""


def observe_training(
    model: torch.nn.Module, arguments: Mapping[str, Any], wrap: Wrap, *, noise: int | None = None, wide: bool = False
) -> ObservedRun:
    """Trains a copy of `model` for one step: two passes whose gradients accumulate, and an optimizer step.

    Between the passes, gradients are scaled in place.

    Args:
        model: the module, which is copied.
        arguments: its keyword arguments, which are copied.
        wrap: returns the function to call for the copy.
        noise: a seed; the arguments are then changed in their last bits.
        wide: run everything in float64.

    Returns:
        The outputs of both passes, gradients, parameters, buffers, the optimizer's state, arguments and random states.

    Example::

        want = observe_training(net, {"x": x}, lambda copy: copy)
        got = observe_training(net, {"x": x}, compiler_core.compile)
        assert Comparison(Exact()).compare("", want, got) is None
    """
    model = copy.deepcopy(model).train()
    inputs = {name: _copied(value, noise, wide) for name, value in arguments.items()}
    if wide:
        model = model.double()
    run = wrap(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    leaves = [p for p in model.parameters() if p.requires_grad]

    def step() -> Any:
        first = run(**inputs)
        torch.autograd.backward([_loss(first)])
        clipped = [None if p.grad is None else p.grad.detach().clone() for p in leaves]
        _scale_gradients(leaves)
        second = run(**inputs)
        torch.autograd.backward([_loss(second)])
        gradients = [None if p.grad is None else p.grad.detach().clone() for p in leaves]
        optimizer.step()
        return _detached(first), _detached(second), clipped, gradients

    observed = observe(step, lambda: (), 0, program=lambda: None)  # another program, so that no change is undone
    observed.arguments = [inputs]
    observed.outside = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    return observed


def _copied(value: Any, noise: int | None, wide: bool) -> Any:
    """Copies an argument, with changed last bits (`noise`) or in float64 (`wide`)."""
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


def _scale_gradients(leaves: Sequence[torch.nn.Parameter]) -> None:
    """Scales each gradient in place by a different factor; gradients that share memory are scaled twice."""
    with torch.no_grad():
        for number, leaf in enumerate(leaves):
            if leaf.grad is not None:
                leaf.grad.mul_(1 / (1 + number % 7))


def _loss(output: Any) -> torch.Tensor:
    """Returns a scalar that depends on all floating-point tensors of a model's output."""
    values = [t for _, t in tensors(output) if t.is_floating_point() and t.requires_grad]
    return torch.stack([t.square().mean() for t in values]).sum()


def _detached(output: Any) -> list[tuple[str, torch.Tensor]]:
    return [(path, t.detach()) for path, t in tensors(output)]
