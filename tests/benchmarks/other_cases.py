"""Programs that no kernel was tuned with when they were written, to check that results generalize.

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


# ---- small sizes, middle dimensions, indices, bytes (added on 2026-11-30, before the schedules that they led to)


def _points(m: Make, size: int) -> torch.Tensor:
    """[n, size] with about rows x columns elements."""
    return torch.randn(max(1, m.rows * m.columns // size), size, dtype=m.dtype, device=m.device)


def _square(m: Make, *last: int) -> torch.Tensor:
    """[n, *last], where n * n is about rows x columns."""
    return torch.randn(max(1, int((m.rows * m.columns) ** 0.5)), *last, dtype=m.dtype, device=m.device)


def _odd(m: Make) -> torch.Tensor:
    """[37, n, 13] with about rows x columns elements."""
    return torch.randn(37, max(1, m.rows * m.columns // (37 * 13)), 13, dtype=m.dtype, device=m.device)


@case(lambda m: [_square(m, 3), _square(m, 3)])
def pairwise_distance(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x[:, None] - y[None]).square().sum(-1).sqrt()


@case(lambda m: [_square(m, 4).abs(), _square(m, 4).abs()])
def box_iou(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    ends, other_ends = x[:, :2] + x[:, 2:], y[:, :2] + y[:, 2:]
    sides = (torch.minimum(ends[:, None], other_ends) - torch.maximum(x[:, None, :2], y[:, :2])).clamp(min=0)
    common = sides.prod(-1)
    return common / (x[:, 2:].prod(-1)[:, None] + y[:, 2:].prod(-1) - common)


@case(lambda m: [_points(m, 9).view(-1, 3, 3), _points(m, 9)[:, :3]])
def rotated_points(rotation: torch.Tensor, point: torch.Tensor) -> torch.Tensor:
    return (rotation * point[:, None, :]).sum(-1)


@case(lambda m: [_points(m, 2), _points(m, 2)])
def complex_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    (a, b), (c, d) = x.unbind(-1), y.unbind(-1)
    return torch.stack([a * c - b * d, a * d + b * c], -1)


@case(lambda m: [_points(m, 3)])
def softmax_of_three(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


@case(lambda m: [m.images()], trains=True)
def average_pool_by_hand(x: torch.Tensor) -> torch.Tensor:
    n, channels, height, width = x.shape
    return x.view(n, channels, height // 2, 2, width // 2, 2).mean((3, 5)).relu()


@case(lambda m: [m.heads()])
def positional_encoding(x: torch.Tensor) -> torch.Tensor:
    at = torch.arange(x.shape[-2], device=x.device, dtype=x.dtype)[:, None]
    turns = torch.exp(torch.arange(0, x.shape[-1], 2, device=x.device, dtype=x.dtype) * (-9.21 / x.shape[-1]))
    return x + torch.stack([(at * turns).sin(), (at * turns).cos()], -1).flatten(-2)


@case(lambda m: [m.matrix(), m.indices(max(1, m.rows // 8) * 8, m.rows).view(-1, 8)])
def bag_of_words(weight: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    return F.embedding(words, weight).mean(1)


@case(lambda m: [m.matrix(), m.indices(2 * m.rows, m.rows), m.indices(2 * m.rows, m.rows)])
def graph_messages(x: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x).index_add(0, target, (x[source] - x[target]).relu()) + x


@case(lambda m: [torch.rand(m.rows * m.columns, dtype=m.dtype, device=m.device)])
def histogram(x: torch.Tensor) -> torch.Tensor:
    bins = (x * 256).long().clamp(0, 255)
    return torch.zeros(256, dtype=x.dtype, device=x.device).index_add(0, bins, torch.ones_like(x))


@case(lambda m: [m.matrix(), m.row(), m.row().square()])
def running_statistics(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    now, center = torch.var_mean(x, 0)
    return mean.lerp(center, 0.1), var.lerp(now, 0.1)


@case(lambda m: [_odd(m)])
def sums_of_first(x: torch.Tensor) -> torch.Tensor:
    return x.exp().sum(0)


@case(lambda m: [_odd(m)])
def sums_of_middle(x: torch.Tensor) -> torch.Tensor:
    return x.sum(1)


@case(lambda m: [_odd(m)])
def means_of_first_two(x: torch.Tensor) -> torch.Tensor:
    return (x * x).mean((0, 1))


@case(lambda m: [_odd(m)])
def sums_of_first_and_last(x: torch.Tensor) -> torch.Tensor:
    return x.square().sum((0, 2))


@case(lambda m: [m.images(), m.images()[0, :, 0, 0], m.images()[0, :, 0, 0]], trains=True)
def channel_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    x = x - x.mean(1, keepdim=True)
    return w[:, None, None] * (x / torch.sqrt(x.square().mean(1, keepdim=True) + 1e-6)) + b[:, None, None]


@case(lambda m: [m.matrix() > 0, m.matrix() > 0, m.matrix()])
def kept_and_counted(a: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    keep = (a & ~b) | (x > 0.5)
    return keep, keep.sum(-1)


@case(_pair, trains=True)
def dice_loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    found, target = x.sigmoid(), (y > 0).to(x.dtype)
    return 1 - (2 * (found * target).sum(-1) + 1) / (found.sum(-1) + target.sum(-1) + 1) + y.mean()


@case(lambda m: [(m.matrix() * 40).to(torch.int8), m.matrix()[:, :1].abs(), (m.matrix() * 40).to(torch.int8)])
def added_bytes(x: torch.Tensor, scale: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((x.float() * scale + y.float() * 0.02) / 0.05).round().clamp(-128, 127).to(torch.int8)


@case(lambda m: [m.matrix()])
def median_of_three(x: torch.Tensor) -> torch.Tensor:
    a, b, c = x[:, :-2], x[:, 1:-1], x[:, 2:]
    return torch.maximum(torch.minimum(a, b), torch.minimum(torch.maximum(a, b), c))


@case(_pair)
def quantile_loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    over = y - x
    return torch.stack([torch.maximum(q * over, (q - 1) * over).mean() for q in (0.1, 0.5, 0.9)]).sum()


@case(lambda m: [m.matrix()])
def standardised(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean()) / x.std()


@case(lambda m: [m.images(), torch.randn(32, 3, 3, dtype=m.dtype, device=m.device)])
def depthwise_by_hand(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    padded, (height, width) = F.pad(x, (1, 1, 1, 1)), x.shape[2:]
    parts = [
        (padded[:, :, i : i + height, j : j + width], w[:, i, j][:, None, None]) for i in range(3) for j in range(3)
    ]
    return sum((x * w for x, w in parts), torch.zeros((), dtype=x.dtype, device=x.device))


@case(lambda m: [m.matrix().t().contiguous().t(), m.matrix(), m.row().expand(m.rows, -1)])
def mixed_strides(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return x * y + b.exp()


# ---- bits, windows, stencils (added on 2026-11-30 at 23:00 UTC, before the rules and lowerings that they led to)


def _integers(m: Make, dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(0, 2**31 - 1, (m.rows, m.columns), dtype=dtype, device=m.device)


@case(lambda m: [_integers(m, torch.int32)])
def set_bits(x: torch.Tensor) -> torch.Tensor:
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    return ((((x + (x >> 4)) & 0x0F0F0F0F) * 0x01010101) >> 24) & 0xFF


@case(lambda m: [_integers(m, torch.int64)])
def mixed_hash(x: torch.Tensor) -> torch.Tensor:
    x = (x ^ (x >> 30)) * -4658895280553007687
    x = (x ^ (x >> 27)) * -7723592293110705685
    return (x ^ (x >> 31)) % 1024


@case(lambda m: [torch.randn(*[max(4, round((m.rows * m.columns) ** (1 / 3)))] * 3, dtype=m.dtype, device=m.device)])
def heat_step(u: torch.Tensor) -> torch.Tensor:
    center = u[1:-1, 1:-1, 1:-1]
    near = u[2:, 1:-1, 1:-1] + u[:-2, 1:-1, 1:-1] + u[1:-1, 2:, 1:-1]
    near = near + u[1:-1, :-2, 1:-1] + u[1:-1, 1:-1, 2:] + u[1:-1, 1:-1, :-2]
    return F.pad(center + 0.05 * (near - 6 * center), (1, 1, 1, 1, 1, 1))


@case(lambda m: [_points(m, 9 * 16 * 16 * 16)[:, : 16 * 16 * 16].reshape(-1, 16, 16, 16)])
def windows_of_images(x: torch.Tensor) -> torch.Tensor:
    return F.unfold(x, 3, padding=1).relu()


@case(lambda m: [_points(m, 64 * 16 * 16).view(-1, 64, 16, 16)])
def shuffled_pixels(x: torch.Tensor) -> torch.Tensor:
    return F.pixel_shuffle(x, 2) * 0.5 + 0.5


@case(lambda m: [_points(m, 3 * 64 * 64).view(-1, 64, 64, 3).permute(0, 3, 1, 2)])
def margins_of_pixels(x: torch.Tensor) -> torch.Tensor:
    return F.pad(x, (2, 2, 2, 2)).relu()


def _momentum_state(m: Make) -> Tensors:
    part = Make(max(1, m.rows // 8), m.columns, m.dtype, m.device)
    return [part.matrix() for _ in range(3)]
