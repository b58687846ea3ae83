# mypy: ignore-errors
# ruff: noqa
"""Detection and segmentation: boxes, anchors, assignment, suppression, masks."""

import math
import warnings
from collections import namedtuple
from typing import Dict, List, Tuple

import torch
import torch.nn.functional as F
from torch import nn

from tests.sweeps.snippets.corpus import program


def boxes(n, scale=10):
    xy = torch.rand(n, 2) * scale
    return torch.cat([xy, xy + torch.rand(n, 2) * scale + 1], 1)


BOXES = lambda: (boxes(5), boxes(3))


def box_area(b):
    return (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])


def box_iou(a, b):
    lt, rb = torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:])
    inter = (rb - lt).clamp(min=0).prod(2)
    union = box_area(a)[:, None] + box_area(b) - inter
    return inter / union, union


@program(BOXES)
def generalized_iou(a, b):
    assert (a[:, 2:] >= a[:, :2]).all if callable(a.all) else True
    iou, union = box_iou(a, b)
    lt, rb = torch.min(a[:, None, :2], b[:, :2]), torch.max(a[:, None, 2:], b[:, 2:])
    area = (rb - lt).clamp(min=0).prod(2)
    return iou - (area - union) / area


@program(lambda: (boxes(4), boxes(4)))
def complete_iou_loss(pred, target, eps=1e-7):
    x1, y1, x2, y2 = pred.unbind(dim=-1)
    x1g, y1g, x2g, y2g = target.unbind(dim=-1)
    inter = (torch.min(x2, x2g) - torch.max(x1, x1g)).clamp_min(0) * (
        torch.min(y2, y2g) - torch.max(y1, y1g)
    ).clamp_min(0)
    union = (x2 - x1) * (y2 - y1) + (x2g - x1g) * (y2g - y1g) - inter
    iou = inter / (union + eps)
    diagonal = (torch.max(x2, x2g) - torch.min(x1, x1g)) ** 2 + (torch.max(y2, y2g) - torch.min(y1, y1g)) ** 2 + eps
    centers = ((x1 + x2 - x1g - x2g) / 2) ** 2 + ((y1 + y2 - y1g - y2g) / 2) ** 2
    v = (4 / (torch.pi**2)) * torch.pow(torch.atan((x2g - x1g) / (y2g - y1g)) - torch.atan((x2 - x1) / (y2 - y1)), 2)
    with torch.no_grad():
        alpha = v / (1 - iou + v + eps)
    return (1 - iou + centers / diagonal + alpha * v).mean()


class BoxCoder:
    def __init__(self, weights: Tuple[float, float, float, float], bbox_xform_clip: float = math.log(1000.0 / 16)):
        self.weights, self.bbox_xform_clip = weights, bbox_xform_clip

    def encode_single(self, reference, proposals):
        w = torch.as_tensor(self.weights, dtype=reference.dtype, device=reference.device)
        size, center = (
            proposals[:, 2:] - proposals[:, :2],
            proposals[:, :2] + 0.5 * (proposals[:, 2:] - proposals[:, :2]),
        )
        gt_size, gt_center = (
            reference[:, 2:] - reference[:, :2],
            reference[:, :2] + 0.5 * (reference[:, 2:] - reference[:, :2]),
        )
        return torch.cat((w[:2] * (gt_center - center) / size, w[2:] * torch.log(gt_size / size)), dim=1)

    def encode(self, references: List[torch.Tensor], proposals: List[torch.Tensor]):
        per_image = [len(b) for b in references]
        return self.encode_single(torch.cat(references), torch.cat(proposals)).split(per_image, 0)

    def decode(self, codes, anchors):
        wx, wy, ww, wh = self.weights
        widths, heights = anchors[:, 2] - anchors[:, 0], anchors[:, 3] - anchors[:, 1]
        dx, dy = codes[:, 0::4] / wx, codes[:, 1::4] / wy
        dw = torch.clamp(codes[:, 2::4] / ww, max=self.bbox_xform_clip)
        dh = torch.clamp(codes[:, 3::4] / wh, max=self.bbox_xform_clip)
        cx = dx * widths[:, None] + (anchors[:, 0] + 0.5 * widths)[:, None]
        cy = dy * heights[:, None] + (anchors[:, 1] + 0.5 * heights)[:, None]
        w, h = torch.exp(dw) * widths[:, None], torch.exp(dh) * heights[:, None]
        return torch.stack((cx - 0.5 * w, cy - 0.5 * h, cx + 0.5 * w, cy + 0.5 * h), dim=2).flatten(1)


@program(lambda: (boxes(4), boxes(4)))
def box_coder(a, b):
    coder = BoxCoder(weights=(10.0, 10.0, 5.0, 5.0))
    first, second = coder.encode([a[:1], a[1:]], [b[:1], b[1:]])
    return coder.decode(torch.cat([first, second]), b)


class AnchorGenerator(nn.Module):
    __annotations__ = {"cell_anchors": List[torch.Tensor]}

    def __init__(self, sizes=((4,), (8,)), aspect_ratios=((0.5, 1.0, 2.0),)):
        super().__init__()
        if not isinstance(sizes[0], (list, tuple)):
            sizes = tuple((s,) for s in sizes)
        if len(aspect_ratios) == 1:
            aspect_ratios = aspect_ratios * len(sizes)
        self.sizes, self.aspect_ratios = sizes, aspect_ratios
        self.cell_anchors = [self.generate(s, a) for s, a in zip(sizes, aspect_ratios)]

    def generate(self, scales, ratios, dtype=torch.float32):
        scales, ratios = torch.as_tensor(scales, dtype=dtype), torch.as_tensor(ratios, dtype=dtype)
        h = torch.sqrt(ratios)
        ws, hs = ((1 / h)[:, None] * scales[None, :]).view(-1), (h[:, None] * scales[None, :]).view(-1)
        return (torch.stack([-ws, -hs, ws, hs], dim=1) / 2).round()

    def num_anchors_per_location(self):
        return [len(s) * len(a) for s, a in zip(self.sizes, self.aspect_ratios)]

    def forward(self, image, feature_maps):
        sizes = [f.shape[-2:] for f in feature_maps]
        strides = [[torch.empty((), dtype=torch.int64).fill_(image.shape[-i] // g[-i]) for i in (2, 1)] for g in sizes]
        self.cell_anchors = [c.to(dtype=image.dtype) for c in self.cell_anchors]
        anchors = []
        for (gh, gw), (sh, sw), base in zip(sizes, strides, self.cell_anchors):
            sx, sy = torch.arange(0, gw) * sw, torch.arange(0, gh) * sh
            sy, sx = torch.meshgrid(sy, sx, indexing="ij")
            sx, sy = sx.reshape(-1), sy.reshape(-1)
            shifts = torch.stack((sx, sy, sx, sy), dim=1)
            anchors.append((shifts.view(-1, 1, 4) + base.view(1, -1, 4)).reshape(-1, 4))
        return anchors


@program(lambda: (AnchorGenerator(), torch.randn(1, 3, 16, 16), [torch.randn(1, 2, 4, 4), torch.randn(1, 2, 2, 2)]))
def anchors(m, image, features):
    return torch.cat(m(image, features)), m.num_anchors_per_location()


class Matcher:
    BELOW_LOW_THRESHOLD = -1
    BETWEEN_THRESHOLDS = -2
    __slots__ = ("high", "low", "allow_low_quality")

    def __init__(self, high, low, allow_low_quality=False):
        torch._assert(low <= high, "low_threshold should be <= high_threshold")
        self.high, self.low, self.allow_low_quality = high, low, allow_low_quality

    def __call__(self, quality):
        if quality.numel() == 0:
            raise ValueError("No proposal boxes available")
        vals, matches = quality.max(dim=0)
        every = matches.clone() if self.allow_low_quality else None
        below, between = vals < self.low, (vals >= self.low) & (vals < self.high)
        matches = torch.where(below, self.BELOW_LOW_THRESHOLD, matches)
        matches[between] = self.BETWEEN_THRESHOLDS
        if every is not None:
            best = quality.amax(1)
            update = (quality == best[:, None]).any(0)
            matches = torch.where(update, every, matches)
        return matches


@program(BOXES, grad=False)
def matcher(a, b):
    matches = Matcher(0.5, 0.3, allow_low_quality=True)(box_iou(a, b)[0])
    labels = (matches >= 0).to(torch.float32)
    labels[matches == Matcher.BETWEEN_THRESHOLDS] = -1.0
    return matches, labels


@program(lambda: (boxes(6), torch.rand(6)), grad=False)
def suppression_by_matrix(b, scores, threshold=0.3):
    order = scores.argsort(descending=True)
    iou = box_iou(b[order], b[order])[0].triu(diagonal=1)
    keep = torch.ones(len(order), dtype=torch.bool)
    for i in range(len(order)):
        keep = keep & ~((iou[i] > threshold) & keep[i])
    decay = torch.exp(-(iou**2) / 0.5).amin(0)
    return order, keep, scores[order] * decay


@program(lambda: (boxes(6), torch.rand(6), torch.tensor([0, 1, 0, 1, 2, 2])), grad=False)
def boxes_offset_by_class(b, scores, labels):
    offsets = labels.to(b) * (b.max() + 1)
    shifted = b + offsets[:, None]
    top = scores.topk(min(4, scores.numel()))
    return [x[top.indices] for x in (shifted, labels)], top.values


@program(lambda: (boxes(6), torch.rand(6)), grad=False)
def score_threshold_with_data_size(b, scores):
    keep = torch.nonzero(scores > 0.1).squeeze(1)
    torch._check(keep.numel() <= scores.numel())
    return b.index_select(0, keep).clamp(0, 8), scores[keep].sum()


@program(
    lambda: (
        torch.randn(2, 6, 5),
        torch.rand(2, 6, 4),
        [
            {"labels": torch.tensor([1, 2]), "boxes": torch.rand(2, 4)},
            {"labels": torch.tensor([0]), "boxes": torch.rand(1, 4)},
        ],
    ),
    grad=False,
)
def detr_cost_matrix(logits, pred, targets):
    bs, n = logits.shape[:2]
    prob = logits.flatten(0, 1).softmax(-1)
    ids = torch.cat([v["labels"] for v in targets])
    cost = torch.cdist(pred.flatten(0, 1), torch.cat([v["boxes"] for v in targets]), p=1) * 5 - prob[:, ids]
    sizes = [len(v["boxes"]) for v in targets]
    return [c[i].argmin(0) for i, c in enumerate(cost.view(bs, n, -1).split(sizes, -1))]


@program(
    lambda: (
        torch.randn(2, 6, 5),
        [(torch.tensor([1, 3]), torch.tensor([1, 0])), (torch.tensor([2]), torch.tensor([0]))],
        [torch.tensor([1, 2]), torch.tensor([3])],
    )
)
def detr_label_loss(logits, indices, labels):
    batch = torch.cat([torch.full_like(src, i) for i, (src, _) in enumerate(indices)])
    src = torch.cat([src for (src, _) in indices])
    target_o = torch.cat([t[j] for t, (_, j) in zip(labels, indices)])
    target = torch.full(logits.shape[:2], 4, dtype=torch.int64)
    target[batch, src] = target_o
    weight = torch.ones(5)
    weight[-1] = 0.1
    return {"loss_ce": F.cross_entropy(logits.transpose(1, 2), target, weight)}


@program(lambda: (torch.randn(2, 3, 4, 4), torch.randint(0, 2, (2, 3, 4, 4)).float()))
def focal_and_dice(logits, target, alpha=0.25, gamma=2):
    p = torch.sigmoid(logits)
    ce = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    p_t = p * target + (1 - p) * (1 - target)
    focal = ce * ((1 - p_t) ** gamma)
    if alpha >= 0:
        focal = (alpha * target + (1 - alpha) * (1 - target)) * focal
    dims = tuple(range(1, p.ndim))
    dice = 1 - (2 * (p * target).sum(dims) + 1) / (p.sum(dims) + target.sum(dims) + 1)
    return {"focal": focal.mean(), "dice": dice.mean()}


Detection = namedtuple("Detection", "boxes scores labels", defaults=(None,))


@program(lambda: (boxes(4), torch.rand(4)))
def namedtuple_results(b, scores):
    d = Detection(b, scores)
    d = d._replace(labels=torch.arange(len(scores)))
    d = Detection._make(x[1:] for x in d)
    return d, d._asdict()["scores"].sum(), Detection._fields


@program(lambda: (torch.randn(1, 18, 2, 2),))
def yolo_head(x, anchors=((1.0, 2.0), (3.0, 1.0)), stride=8):
    b, c, h, w = x.shape
    na, no = len(anchors), c // len(anchors)
    x = x.view(b, na, no, h, w).permute(0, 1, 3, 4, 2).contiguous()
    yv, xv = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    grid = torch.stack((xv, yv), 2).expand(1, na, h, w, 2).float() - 0.5
    anchor_grid = (torch.tensor(anchors) * stride).view(1, na, 1, 1, 2).expand(1, na, h, w, 2)
    xy, wh, conf = x.sigmoid().split((2, 2, no - 4), 4)
    xy = (xy * 2 + grid) * stride
    return torch.cat((xy, (wh * 2) ** 2 * anchor_grid, conf), 4).view(b, na * h * w, no)


@program(lambda: (torch.randn(2, 16, 4, 4),))
def distribution_focal_decode(x, reg_max=4):
    b, c, h, w = x.shape
    proj = torch.arange(reg_max, dtype=x.dtype).view(1, reg_max, 1, 1)
    dist = F.conv2d(x.view(b, 4, reg_max, h * w).transpose(2, 1).softmax(1), proj).view(b, 4, -1)
    lt, rb = dist.chunk(2, 1)
    points = torch.stack(torch.meshgrid(torch.arange(h), torch.arange(w), indexing="xy"), -1).view(-1, 2).T + 0.5
    return torch.cat([(points - lt + points + rb) / 2, rb + lt], 1)


@program(lambda: (torch.rand(3, 1, 7, 7), boxes(3)))
def pasted_masks(masks, b, size=(12, 12)):
    h, w = size
    x0, y0, x1, y1 = torch.split(b, 1, dim=1)
    img_y, img_x = torch.arange(0, h).float() + 0.5, torch.arange(0, w).float() + 0.5
    img_y, img_x = (img_y - y0) / (y1 - y0) * 2 - 1, (img_x - x0) / (x1 - x0) * 2 - 1
    gx, gy = img_x[:, None, :].expand(3, h, w), img_y[:, :, None].expand(3, h, w)
    return F.grid_sample(masks, torch.stack([gx, gy], dim=3), align_corners=False)[:, 0] > 0.5


@program(lambda: (torch.randn(2, 4, 8, 8), torch.randint(0, 4, (2, 8, 8))), grad=False)
def confusion_matrix(logits, target, n=4):
    pred = logits.argmax(1)
    hist = torch.bincount((n * target.flatten() + pred.flatten()), minlength=n**2).reshape(n, n).float()
    acc_global = torch.diag(hist).sum() / hist.sum()
    iu = torch.diag(hist) / (hist.sum(1) + hist.sum(0) - torch.diag(hist))
    return acc_global, iu


@program(lambda: ([torch.randn(3, 5, 6), torch.randn(3, 4, 8)],))
def batched_images(images, divisor=4):
    sizes = [tuple(i.shape[-2:]) for i in images]
    biggest = [max(s) for s in zip(*[list(i.shape) for i in images])]
    biggest[1:] = [int(math.ceil(float(v) / divisor) * divisor) for v in biggest[1:]]
    batch = images[0].new_full([len(images), *biggest], 0)
    for i, img in enumerate(images):
        batch[i, : img.shape[0], : img.shape[1], : img.shape[2]].copy_(img)
    mask = torch.ones(batch.shape[0], *batch.shape[2:], dtype=torch.bool)
    for m, (h, w) in zip(mask, sizes):
        m[:h, :w] = False
    return batch, mask, dict(enumerate(sizes))


@program(lambda: (torch.randn(1, 4, 8, 8), boxes(2, 3)))
def roi_align_by_grid(x, rois, out=2):
    h, w = x.shape[-2:]
    steps = (torch.arange(out) + 0.5) / out
    xs = rois[:, 0:1] + steps * (rois[:, 2:3] - rois[:, 0:1])
    ys = rois[:, 1:2] + steps * (rois[:, 3:4] - rois[:, 1:2])
    grid = torch.stack([xs[:, None].expand(-1, out, -1) / w, ys[:, :, None].expand(-1, -1, out) / h], -1) * 2 - 1
    return F.grid_sample(x.expand(len(rois), -1, -1, -1), grid, align_corners=False)


class FrozenBatchNorm(nn.Module):
    def __init__(self, n):
        super().__init__()
        for name, value in dict(weight=1.0, bias=0.0, running_mean=0.1, running_var=1.5).items():
            self.register_buffer(name, torch.full((n,), value))

    def _load_from_state_dict(self, state_dict, prefix, *args):
        state_dict.pop(prefix + "num_batches_tracked", None)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(self, x):
        w, b, rv, rm = (
            getattr(self, n).reshape(1, -1, 1, 1) for n in ("weight", "bias", "running_var", "running_mean")
        )
        scale = w * (rv + 1e-5).rsqrt()
        return x * scale + (b - rm * scale)


@program(lambda: (FrozenBatchNorm(3), torch.randn(2, 3, 4, 4)))
def frozen_batch_norm(m, x):
    return m(x)


class SinePosition(nn.Module):
    def __init__(self, feats=4, temperature=10000, normalize=True, scale=None):
        super().__init__()
        if scale is not None and normalize is False:
            raise ValueError("normalize should be True if scale is passed")
        self.feats, self.temperature, self.scale = feats, temperature, scale or 2 * math.pi

    def forward(self, mask):
        not_mask = ~mask
        y, x = not_mask.cumsum(1, dtype=torch.float32), not_mask.cumsum(2, dtype=torch.float32)
        y, x = (
            e / (e[tuple(slice(-1, None) if d == i else slice(None) for d in range(3))] + 1e-6) * self.scale
            for i, e in ((1, y), (2, x))
        )
        dim_t = torch.arange(self.feats, dtype=torch.float32)
        dim_t = self.temperature ** (2 * torch.div(dim_t, 2, rounding_mode="floor") / self.feats)
        enc = [
            torch.stack((p[..., 0::2].sin(), p[..., 1::2].cos()), dim=4).flatten(3)
            for p in (y[..., None] / dim_t, x[..., None] / dim_t)
        ]
        return torch.cat(enc, dim=3).permute(0, 3, 1, 2)


@program(lambda: (SinePosition(), torch.rand(2, 4, 5) > 0.8))
def sine_positions(m, mask):
    return m(mask)


@program(lambda: (torch.randn(2, 8, 4), torch.rand(2, 8, 2)))
def inverse_sigmoid_refinement(tokens, reference, eps=1e-5):
    deltas, outs = tokens[..., :2], []
    for _ in range(2):
        x = reference.clamp(min=0, max=1)
        reference = (deltas + torch.log(x.clamp(min=eps) / (1 - x).clamp(min=eps))).sigmoid()
        outs.append(reference)
        reference = reference.detach()
    return torch.stack(outs)
