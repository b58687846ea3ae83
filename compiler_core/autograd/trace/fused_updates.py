"""The kernels of optimizers with ``fused=True`` as operations on single tensors.

They compute what PyTorch's kernels compute (``ATen/native/cpu/FusedAdamKernel.cpp`` and its kin), in float32 for
shorter types.  Like these, they write no tensor where `found_inf` is 1, and leave gradients divided by `grad_scale`.
The arguments are those of the kernels: for each parameter a gradient and the tensors of the optimizer's state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from compiler_core.support.tensors import HALF_TYPES
from compiler_core.torch_private import fused_adagrad, fused_adam, fused_adamw, fused_sgd

Tensors = Sequence[torch.Tensor]


class _Update:
    """The new values of the tensors of one parameter, which `write` writes."""

    def __init__(self, found_inf: torch.Tensor | None, grad_scale: torch.Tensor | None) -> None:
        self._found_inf, self._grad_scale = found_inf, grad_scale
        self._written: list[tuple[torch.Tensor, torch.Tensor]] = []

    def gradient(self, grad: torch.Tensor, maximize: bool, param: torch.Tensor, decay: float) -> torch.Tensor:
        """Returns the gradient that the update takes, with the `decay` of its parameter."""
        value = as_computed(grad)
        if self._grad_scale is not None:
            value = value / self._grad_scale
            self.set(grad, value)
        value = -value if maximize else value
        return value + param * decay if decay != 0 else value

    def set(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        self._written.append((tensor, value))

    def write(self) -> None:
        for tensor, value in self._written:
            value = value.to(tensor.dtype)
            tensor.copy_(value if self._found_inf is None else torch.where(self._found_inf == 1, tensor, value))


def as_computed(x: torch.Tensor) -> torch.Tensor:
    """Returns a tensor in the type in which kernels compute."""
    return x.float() if x.dtype in HALF_TYPES else x


def _updates(
    count: int, found_inf: torch.Tensor | None, grad_scale: torch.Tensor | None
) -> Iterator[tuple[int, _Update]]:
    """Yields an update for each parameter, and writes it when the caller has made it."""
    for at in range(count):
        update = _Update(found_inf, grad_scale)
        yield at, update
        update.write()


def adam(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors,
    state_steps: Tensors,
    *,
    amsgrad: bool,
    lr: float | torch.Tensor,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    grad_scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
    decoupled: bool = False,
) -> None:
    """Replaces ``torch._fused_adam_`` and, with a `decoupled` weight decay, ``torch._fused_adamw_``."""
    for at, update in _updates(len(params), found_inf, grad_scale):
        param, step = as_computed(params[at]), state_steps[at].double()
        grad = update.gradient(grads[at], maximize, param, 0.0 if decoupled else weight_decay)
        if decoupled and weight_decay != 0:
            param = param - param * (lr * weight_decay)
        mean = torch.lerp(as_computed(exp_avgs[at]), grad, 1 - beta1)
        square = as_computed(exp_avg_sqs[at]) * beta2 + grad * grad * (1 - beta2)
        update.set(exp_avgs[at], mean)
        update.set(exp_avg_sqs[at], square)
        if amsgrad:
            square = torch.maximum(as_computed(max_exp_avg_sqs[at]), square)
            update.set(max_exp_avg_sqs[at], square)
        denominator = square.sqrt() / (1 - beta2**step).sqrt() + eps
        update.set(params[at], param - mean / denominator * (lr / (1 - beta1**step)))


def sgd(
    params: Tensors,
    grads: Tensors,
    momentum_buffer_list: Tensors,
    *,
    weight_decay: float,
    momentum: float,
    lr: float | torch.Tensor,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
) -> None:
    """Replaces ``torch._fused_sgd_``."""
    for at, update in _updates(len(params), found_inf, grad_scale):
        param = as_computed(params[at])
        grad = update.gradient(grads[at], maximize, param, weight_decay)
        if momentum_buffer_list:
            buffer = momentum_buffer_list[at]
            moving = grad if is_first_step else as_computed(buffer) * momentum + grad * (1 - dampening)
            update.set(buffer, moving)
            grad = grad + moving * momentum if nesterov else moving
        update.set(params[at], param - grad * lr)


def adagrad(
    params: Tensors,
    grads: Tensors,
    state_sums: Tensors,
    state_steps: Tensors,
    *,
    lr: float | torch.Tensor,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    grad_scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
) -> None:
    """Replaces ``torch._fused_adagrad_``."""
    for at, update in _updates(len(params), found_inf, grad_scale):
        param = as_computed(params[at])
        grad = update.gradient(grads[at], maximize, param, weight_decay)
        total = as_computed(state_sums[at]) + grad * grad
        update.set(state_sums[at], total)
        rate = lr / (1 + (state_steps[at].double() - 1) * lr_decay)
        update.set(params[at], param - grad / (total.sqrt() + eps) * rate)


FUSED_UPDATES: dict[Any, Callable[..., None]] = {
    fused_adam: adam,
    fused_adamw: functools.partial(adam, decoupled=True),
    fused_sgd: sgd,
    fused_adagrad: adagrad,
}
"""What replaces each kernel."""
