"""Two dozen programs that no kernel was tuned with, to check that results of the thirty generalize.

`bench_cases --others` measures them.  Fix what they show by changes that apply to other programs as well.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tests.benchmarks.cases import Case, Make, Maker, Tensors, registrar

OTHERS: list[Case] = []
case = registrar(OTHERS)

_pair: Maker = lambda m: [m.matrix(), m.matrix()]  # noqa: E731
_tokens: Maker = lambda m: [m.heads()[0], m.heads()[0, :, :, 0] > 0]  # noqa: E731


# ---- pointwise


@case(lambda m: [m.matrix()])
def mish_chain(x: torch.Tensor) -> torch.Tensor:
    return F.mish(x) + F.softplus(x * 0.5) - F.elu(x)


@case(_pair)
def two_transposed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.t() * 2 + y.t().sigmoid()


@case(lambda m: [m.matrix()])
def rolled(x: torch.Tensor) -> torch.Tensor:
    return torch.roll(x, 1, -1) - 2 * x + torch.roll(x, -1, -1)


@case(lambda m: [m.matrix()])
def quantised(x: torch.Tensor) -> torch.Tensor:
    scale = x.abs().amax(-1, keepdim=True) / 127
    stored = (x / scale).round().clamp(-128, 127).to(torch.int8)
    return stored.to(x.dtype) * scale


@case(lambda m: [m.heads(), m.heads()])
def rotary_interleaved(q: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    cos, sin = angle[..., ::2].cos(), angle[..., ::2].sin()
    even, odd = q[..., ::2], q[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


@case(_pair, trains=True)
def geglu_training(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    return F.gelu(gate) * x + torch.tanh(x)


# ---- norms


@case(lambda m: [m.matrix(), m.matrix(), m.row()])
def gated_rms_norm(x: torch.Tensor, gate: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, w.shape, w, 1e-6) * F.silu(gate)


@case(lambda m: [m.matrix(), m.matrix(), m.row(), m.row(), m.row()], trains=True)
def scaled_residual_norm(
    x: torch.Tensor, residual: torch.Tensor, scale: torch.Tensor, w: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    return F.layer_norm(residual + scale * x, w.shape, w, b)


@case(lambda m: [m.images()], trains=True)
def instance_norm(x: torch.Tensor) -> torch.Tensor:
    return F.leaky_relu(F.instance_norm(x), 0.2)


@case(_pair, trains=True)
def cosine(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (F.normalize(x, dim=-1) * F.normalize(y, dim=-1)).sum(-1)


@case(lambda m: [m.matrix()])
def standardised_columns(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(0)) / (x.std(0) + 1e-5)


@case(_pair)
def row_correlation(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x, y = x - x.mean(-1, keepdim=True), y - y.mean(-1, keepdim=True)
    return (x * y).sum(-1) * torch.rsqrt((x * x).sum(-1) * (y * y).sum(-1))


# ---- losses


@case(_pair, trains=True)
def binary_focal(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    target = (y.detach() > 0).to(x.dtype)
    loss = F.binary_cross_entropy_with_logits(x + y * 0.1, target, reduction="none")
    return ((1 - torch.exp(-loss)) ** 2 * loss).mean()


@case(_pair, trains=True)
def distillation(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.kl_div(F.log_softmax(x / 2, -1), F.log_softmax(y / 2, -1), reduction="batchmean", log_target=True)


@case(lambda m: [m.matrix(), m.indices(m.rows, m.columns)], trains=True)
def smoothed_cross_entropy(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, target, label_smoothing=0.1)


@case(_pair, trains=True)
def masked_huber(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    counts = y > -0.5
    return torch.where(counts, F.huber_loss(x, y, reduction="none"), 0).sum().div(counts.sum())


@case(lambda m: [m.matrix(), m.matrix(), m.matrix()], trains=True)
def triplet(anchor: torch.Tensor, near: torch.Tensor, far: torch.Tensor) -> torch.Tensor:
    return F.triplet_margin_loss(anchor, near, far)


# ---- reductions of other shapes


@case(lambda m: [m.matrix()])
def logsumexp_columns(x: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(x, 0)


@case(_tokens)
def masked_pool(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    return (x * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)


@case(lambda m: [m.scores()])
def alibi_scores(scores: torch.Tensor) -> torch.Tensor:
    at = torch.arange(scores.shape[-1], device=scores.device)
    slope = torch.tensor([0.5, 0.25, 0.125, 0.0625], device=scores.device, dtype=scores.dtype)
    return torch.softmax(scores - slope[:, None, None] * (at[:, None] - at[None, :]).abs(), -1)


@case(lambda m: [m.matrix()])
def running_sums(x: torch.Tensor) -> torch.Tensor:
    return torch.cumsum(x.relu(), 0) - torch.cumsum(x.neg().relu(), 0)


@case(lambda m: [m.matrix(), m.indices(m.rows, max(1, m.rows // 4))])
def pooled_by_graph(x: torch.Tensor, graph: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x).index_add(0, graph, x.relu()) * 0.5


# ---- many tensors


@case(lambda m: [t for _ in range(8) for t in _momentum_state(m)])
def momentum_step(*tensors: torch.Tensor) -> list[torch.Tensor]:
    created: list[torch.Tensor] = []
    for w, g, m in zip(*[iter(tensors)] * 3, strict=True):
        m = 0.9 * m + g + 1e-4 * w
        created += [w - 0.1 * (g + 0.9 * m), m]
    return created


@case(lambda m: [t for _ in range(8) for t in _momentum_state(m)[:1]])
def clipped_gradients(*tensors: torch.Tensor) -> Any:
    norm = torch.stack([t.square().sum() for t in tensors]).sum().sqrt()
    return [t * (1 / (norm + 1e-6)).clamp(max=1) for t in tensors]


def _momentum_state(m: Make) -> Tensors:
    part = Make(max(1, m.rows // 8), m.columns, m.dtype, m.device)
    return [part.matrix() for _ in range(3)]
