"""Thirty programs to measure kernels with: the operations of networks between matrix products.

Each case is a function of tensors, and a function that makes its inputs from a number of rows and columns.  A case with
`trains` is timed as forward and backward together, with gradients of the floating-point inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

Tensors = Sequence[torch.Tensor]
Maker = Callable[["Make"], Tensors]


@dataclass(frozen=True)
class Make:
    """Makes inputs of one size, dtype and device."""

    rows: int
    columns: int
    dtype: torch.dtype
    device: str

    def matrix(self) -> torch.Tensor:
        return torch.randn(self.rows, self.columns, dtype=self.dtype, device=self.device)

    def row(self) -> torch.Tensor:
        return torch.randn(self.columns, dtype=self.dtype, device=self.device)

    def indices(self, count: int, below: int) -> torch.Tensor:
        return torch.randint(below, (count,), device=self.device)

    def odd(self) -> torch.Tensor:
        return torch.randn(self.rows + 1, self.columns - 3, dtype=self.dtype, device=self.device)

    def images(self) -> torch.Tensor:
        """[n, 32, 16, 16] with about rows x columns elements."""
        n = max(1, self.rows * self.columns // (32 * 16 * 16))
        return torch.randn(n, 32, 16, 16, dtype=self.dtype, device=self.device)

    def heads(self) -> torch.Tensor:
        """[batch, heads, length, 64] with about rows x columns elements."""
        length = max(1, self.rows * self.columns // (4 * 64))
        return torch.randn(1, 4, length, 64, dtype=self.dtype, device=self.device)

    def scores(self) -> torch.Tensor:
        """[batch, heads, length, length] with about rows x columns elements."""
        length = max(1, int((self.rows * self.columns / 4) ** 0.5))
        return torch.randn(1, 4, length, length, dtype=self.dtype, device=self.device)


@dataclass(frozen=True)
class Case:
    name: str
    program: Callable[..., Any]
    inputs: Maker
    trains: bool = False
    random: bool = False
    """Whether the result is random, so that runs cannot be compared."""


Registrar = Callable[..., Callable[[Callable[..., Any]], Any]]


def registrar(cases: list[Case]) -> Registrar:
    """Returns a decorator that appends a function to `cases`."""

    def case(inputs: Maker, trains: bool = False, random: bool = False) -> Callable[[Callable[..., Any]], Any]:
        def register(program: Callable[..., Any]) -> Callable[..., Any]:
            cases.append(Case(program.__name__, program, inputs, trains, random))
            return program

        return register

    return case


CASES: list[Case] = []
case = registrar(CASES)


# ---- pointwise


@case(lambda m: [m.matrix(), m.matrix(), m.row()])
def bias_gelu_mul(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.gelu(x + b) * y


@case(lambda m: [m.matrix()])
def cos_chain(x: torch.Tensor) -> torch.Tensor:
    return torch.cos(torch.cos(x)).mul(2).add(1).tanh()


@case(lambda m: [m.matrix(), m.matrix(), m.row()])
def bias_residual(x: torch.Tensor, residual: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return x + b + residual


@case(lambda m: [m.matrix(), m.matrix()])
def swiglu(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    return F.silu(gate) * x


@case(lambda m: [m.matrix(), m.matrix()], trains=True)
def swiglu_training(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    return F.silu(gate) * x


@case(lambda m: [m.matrix(), m.row()], trains=True)
def gelu_tanh_training(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.gelu(x + b, approximate="tanh")


@case(lambda m: [m.matrix()])
def clamp_where(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, x.clamp(max=1), 0.1 * x) - x.round()


@case(lambda m: [m.odd(), m.odd()])
def odd_sizes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x) * y + x


@case(lambda m: [m.matrix()])
def transposed(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous() * 2 + 1


@case(lambda m: [m.matrix(), m.matrix()], random=True)
def dropout_residual(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.dropout(x, 0.1) + y


@case(lambda m: [m.heads(), m.heads()])
def rotary(q: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    cos, sin = angle.cos(), angle.sin()
    left, right = q.chunk(2, -1)
    return q * cos + torch.cat([-right, left], -1) * sin


@case(lambda m: [m.matrix(), m.matrix()])
def concatenated(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cat([x.relu(), y * 2], 1) + 1


# ---- reductions


@case(lambda m: [m.matrix()])
def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


@case(lambda m: [m.matrix()], trains=True)
def softmax_training(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


@case(lambda m: [m.scores()])
def masked_scores(scores: torch.Tensor) -> torch.Tensor:
    length = scores.shape[-1]
    at = torch.arange(length, device=scores.device)
    return torch.softmax((scores * 0.125).masked_fill(at[None, :] > at[:, None], float("-inf")), -1)


@case(lambda m: [m.matrix(), m.row(), m.row()])
def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, w.shape, w, b)


@case(lambda m: [m.matrix(), m.row(), m.row()], trains=True)
def layer_norm_training(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, w.shape, w, b)


@case(lambda m: [m.matrix(), m.row()])
def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w


@case(lambda m: [m.matrix(), m.row()], trains=True)
def rms_norm_training(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w


@case(lambda m: [m.images(), m.images()[0, :, 0, 0].contiguous(), m.images()[0, :, 0, 0].contiguous()])
def group_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.group_norm(x, 8, w, b)


@case(lambda m: [m.images(), m.images()[0, :, 0, 0].contiguous(), m.images()[0, :, 0, 0].contiguous()], trains=True)
def group_norm_training(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.group_norm(x, 8, w, b)


@case(lambda m: [m.images(), m.images()[0, :, 0, 0].contiguous(), m.images()[0, :, 0, 0].contiguous()])
def batch_norm_relu(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.relu(F.batch_norm(x, None, None, w, b, training=True))


@case(lambda m: [m.matrix(), m.indices(m.rows, m.columns)])
def cross_entropy(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, target)


@case(lambda m: [m.matrix(), m.indices(m.rows, m.columns)], trains=True)
def cross_entropy_training(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, target)


@case(lambda m: [m.matrix(), m.matrix()])
def mean_squared_error(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((x - y) ** 2).mean()


@case(lambda m: [m.matrix()])
def largest(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.abs().amax(-1), x.argmax(-1)


@case(lambda m: [m.matrix()])
def cumulative(x: torch.Tensor) -> torch.Tensor:
    return torch.cumsum(x * 0.5, -1) + 1


# ---- indexing


@case(lambda m: [m.matrix(), m.indices(m.rows, m.rows)])
def embedding(weight: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return F.embedding(index, weight) * 2


@case(lambda m: [m.matrix(), m.indices(m.rows, m.rows)], trains=True)
def embedding_training(weight: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return F.embedding(index, weight) * 2


# ---- many tensors


@case(lambda m: [t for _ in range(8) for t in _adam_state(m)])
def adam_step(*tensors: torch.Tensor) -> list[torch.Tensor]:
    created = []
    for w, g, m, v in zip(*[iter(tensors)] * 4, strict=True):
        m = m.lerp(g, 0.1)
        v = v * 0.999 + 0.001 * g * g
        created += [w - 1e-3 * m / (v.sqrt() + 1e-8), m, v]
    return created


def _adam_state(m: Make) -> Tensors:
    part = Make(max(1, m.rows // 8), m.columns, m.dtype, m.device)
    weight, grad, first, second = (part.matrix() for _ in range(4))
    return [weight, grad, first, second.square()]
