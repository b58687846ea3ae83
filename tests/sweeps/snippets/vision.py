# mypy: ignore-errors
# ruff: noqa
"""Image models in the manner of timm and torchvision: blocks, patches, windows, augmentation."""

import collections.abc
import math
from collections import OrderedDict
from functools import partial
from itertools import chain, repeat

import torch
import torch.nn.functional as F
import torch.utils.checkpoint as cp
from torch import nn

from tests.sweeps.snippets.corpus import program

IMAGE = lambda: (torch.randn(2, 3, 8, 8),)


def _ntuple(n):
    def parse(x):
        if isinstance(x, collections.abc.Iterable) and not isinstance(x, str):
            return tuple(x)
        return tuple(repeat(x, n))

    return parse


to_2tuple = _ntuple(2)


def make_divisible(v, divisor=8, min_value=None, round_limit=0.9):
    min_value = min_value or divisor
    new_v = max(min_value, int(v + divisor / 2) // divisor * divisor)
    if new_v < round_limit * v:
        new_v += divisor
    return new_v


class PatchEmbed(nn.Module):
    dynamic_img_pad: torch.jit.Final[bool]

    def __init__(self, img_size=8, patch_size=4, embed_dim=16, norm_layer=None, flatten=True):
        super().__init__()
        self.img_size, self.patch_size = to_2tuple(img_size), to_2tuple(patch_size)
        self.grid_size = tuple(s // p for s, p in zip(self.img_size, self.patch_size))
        self.num_patches = math.prod(self.grid_size)
        self.flatten, self.dynamic_img_pad = flatten, True
        self.proj = nn.Conv2d(3, embed_dim, kernel_size=self.patch_size, stride=self.patch_size)
        self.norm = norm_layer(embed_dim) if norm_layer else nn.Identity()

    def forward(self, x):
        B, C, H, W = x.shape
        if self.dynamic_img_pad:
            pad_h = (self.patch_size[0] - H % self.patch_size[0]) % self.patch_size[0]
            pad_w = (self.patch_size[1] - W % self.patch_size[1]) % self.patch_size[1]
            x = F.pad(x, (0, pad_w, 0, pad_h))
        x = self.proj(x)
        if self.flatten:
            x = x.flatten(2).transpose(1, 2)
        return self.norm(x)


@program(lambda: (PatchEmbed(norm_layer=partial(nn.LayerNorm, eps=1e-6)), torch.randn(2, 3, 7, 8)))
def patch_embed(m, x):
    return m(x), m.num_patches


class DropPath(nn.Module):
    def __init__(self, drop_prob: float = 0.0, scale_by_keep: bool = True):
        super().__init__()
        self.drop_prob, self.scale_by_keep = drop_prob, scale_by_keep

    def forward(self, x):
        if self.drop_prob == 0.0 or not self.training:
            return x
        keep = 1 - self.drop_prob
        shape = (x.shape[0],) + (1,) * (x.ndim - 1)
        random_tensor = x.new_empty(shape).bernoulli_(keep)
        if keep > 0.0 and self.scale_by_keep:
            random_tensor.div_(keep)
        return x * random_tensor

    def extra_repr(self):
        return f"drop_prob={round(self.drop_prob, 3):0.3f}"


class LayerScale(nn.Module):
    def __init__(self, dim, init_values=1e-5, inplace=False):
        super().__init__()
        self.inplace = inplace
        self.gamma = nn.Parameter(init_values * torch.ones(dim))

    def forward(self, x):
        return x.mul_(self.gamma) if self.inplace else x * self.gamma


class Block(nn.Module):
    def __init__(self, dim=16, num_heads=4, drop_path=0.1, init_values=1e-2):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(OrderedDict(fc1=nn.Linear(dim, 4 * dim), act=nn.GELU(), fc2=nn.Linear(4 * dim, dim)))
        self.ls1 = LayerScale(dim, init_values, inplace=True) if init_values else nn.Identity()
        self.drop_path1 = DropPath(drop_path) if drop_path > 0.0 else nn.Identity()
        self.num_heads = num_heads

    def attn(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, N, C))

    def forward(self, x):
        x = x + self.drop_path1(self.ls1(self.attn(self.norm1(x))))
        return x + self.mlp(self.norm2(x))


class Vit(nn.Module):
    def __init__(self, depth=2, num_classes=5, global_pool="token", class_token=True, reg_tokens=2):
        super().__init__()
        assert global_pool in ("", "avg", "token", "map")
        self.patch_embed = PatchEmbed()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, 16)) if class_token else None
        self.reg_token = nn.Parameter(torch.randn(1, reg_tokens, 16)) if reg_tokens else None
        self.num_prefix_tokens = (1 if class_token else 0) + reg_tokens
        self.pos_embed = nn.Parameter(torch.randn(1, self.patch_embed.num_patches, 16) * 0.02)
        dpr = [x.item() for x in torch.linspace(0, 0.2, depth)]
        self.blocks = nn.Sequential(*[Block(drop_path=dpr[i]) for i in range(depth)])
        self.global_pool, self.grad_checkpointing = global_pool, False
        self.head = nn.Linear(16, num_classes) if num_classes > 0 else nn.Identity()

    @torch.jit.ignore
    def no_weight_decay(self):
        return {"pos_embed", "cls_token"}

    def set_grad_checkpointing(self, enable=True):
        self.grad_checkpointing = enable

    def _pos_embed(self, x):
        to_cat = []
        if self.cls_token is not None:
            to_cat.append(self.cls_token.expand(x.shape[0], -1, -1))
        if self.reg_token is not None:
            to_cat.append(self.reg_token.expand(x.shape[0], -1, -1))
        return torch.cat(to_cat + [x + self.pos_embed], dim=1)

    def forward_features(self, x):
        x = self._pos_embed(self.patch_embed(x))
        if self.grad_checkpointing and not torch.jit.is_scripting():
            for block in self.blocks:
                x = cp.checkpoint(block, x, use_reentrant=False)
            return x
        return self.blocks(x)

    def forward_head(self, x, pre_logits: bool = False):
        if self.global_pool:
            x = x[:, self.num_prefix_tokens :].mean(dim=1) if self.global_pool == "avg" else x[:, 0]
        return x if pre_logits else self.head(x)

    def forward(self, x):
        return self.forward_head(self.forward_features(x))


@program(lambda: (Vit(), *IMAGE()))
def vit(m, x):
    decayed = [n for n, p in m.named_parameters() if n not in m.no_weight_decay() and p.ndim > 1]
    return m(x), decayed


@program(lambda: (Vit(global_pool="avg", class_token=False).eval(), *IMAGE()))
def vit_with_checkpoints(m, x):
    m.set_grad_checkpointing()
    return m(x)


@program(lambda: (Vit(), *IMAGE()))
def intermediate_layers(m, x, indices={0, 1}):
    outputs, x = [], m._pos_embed(m.patch_embed(x))
    for i, blk in enumerate(m.blocks):
        x = blk(x)
        if i in indices:
            outputs.append(x)
    prefix = [out[:, 0 : m.num_prefix_tokens] for out in outputs]
    outputs = [
        out[:, m.num_prefix_tokens :].reshape(2, *m.patch_embed.grid_size, -1).permute(0, 3, 1, 2).contiguous()
        for out in outputs
    ]
    return tuple(zip(outputs, prefix))


def window_partition(x, size: int):
    B, H, W, C = x.shape
    x = x.view(B, H // size, size, W // size, size, C)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, size, size, C)


def window_reverse(windows, size, H, W):
    B = int(windows.shape[0] / (H * W / size / size))
    x = windows.view(B, H // size, W // size, size, size, -1)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(B, H, W, -1)


@program(lambda: (torch.randn(2, 8, 8, 4),))
def shifted_windows(x, size=4, shift=2):
    B, H, W, C = x.shape
    img_mask, cnt = torch.zeros((1, H, W, 1)), 0
    slices = (slice(0, -size), slice(-size, -shift), slice(-shift, None))
    for h in slices:
        for w in slices:
            img_mask[:, h, w, :] = cnt
            cnt += 1
    mask = window_partition(img_mask, size).view(-1, size * size)
    mask = mask.unsqueeze(1) - mask.unsqueeze(2)
    mask = mask.masked_fill(mask != 0, float(-100.0)).masked_fill(mask == 0, float(0.0))
    w = window_partition(torch.roll(x, shifts=(-shift, -shift), dims=(1, 2)), size).view(-1, size * size, C)
    attn = (w @ w.transpose(-2, -1)).view(B, -1, size * size, size * size) + mask.unsqueeze(0)
    w = attn.softmax(-1).flatten(0, 1) @ w
    return torch.roll(window_reverse(w.view(-1, size, size, C), size, H, W), shifts=(shift, shift), dims=(1, 2))


@program(lambda: (nn.Parameter(torch.zeros(49, 4)), torch.randn(3, 4, 16, 16)))
def relative_position_index(table, attn, win=(4, 4)):
    coords = torch.stack(torch.meshgrid([torch.arange(win[0]), torch.arange(win[1])], indexing="ij")).flatten(1)
    relative = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0).contiguous()
    relative[:, :, 0] += win[0] - 1
    relative[:, :, 1] += win[1] - 1
    relative[:, :, 0] *= 2 * win[1] - 1
    bias = table[relative.sum(-1).view(-1)].view(win[0] * win[1], win[0] * win[1], -1)
    return attn + bias.permute(2, 0, 1).contiguous().unsqueeze(0)


class ConvNormAct(nn.Sequential):
    def __init__(self, inp, out, k=3, stride=1, groups=1, act=nn.ReLU6):
        layers = [nn.Conv2d(inp, out, k, stride, k // 2, groups=groups, bias=False), nn.BatchNorm2d(out)]
        if act is not None:
            layers.append(act(inplace=True))
        super().__init__(*layers)
        self.out_channels = out


class SqueezeExcite(nn.Module):
    def __init__(self, chs, ratio=0.25, gate=nn.Sigmoid):
        super().__init__()
        mid = make_divisible(chs * ratio)
        self.reduce, self.expand = nn.Conv2d(chs, mid, 1), nn.Conv2d(mid, chs, 1)
        self.gate = gate()

    def forward(self, x):
        s = x.mean((2, 3), keepdim=True)
        return x * self.gate(self.expand(F.silu(self.reduce(s), inplace=True)))


class InvertedResidual(nn.Module):
    def __init__(self, inp, oup, stride, expand_ratio):
        super().__init__()
        if stride not in [1, 2]:
            raise ValueError(f"stride should be 1 or 2 instead of {stride}")
        hidden = int(round(inp * expand_ratio))
        self.use_res_connect = stride == 1 and inp == oup
        layers = []
        if expand_ratio != 1:
            layers.append(ConvNormAct(inp, hidden, 1))
        layers.extend(
            [
                ConvNormAct(hidden, hidden, stride=stride, groups=hidden),
                SqueezeExcite(hidden),
                ConvNormAct(hidden, oup, 1, act=None),
            ]
        )
        self.conv = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


@program(lambda: (nn.Sequential(InvertedResidual(3, 8, 2, 2), InvertedResidual(8, 8, 1, 1.5)), *IMAGE()))
def mobilenet(m, x):
    channels = [layer.out_channels for layer in m.modules() if isinstance(layer, ConvNormAct)]
    return torch.flatten(F.adaptive_avg_pool2d(m(x), (1, 1)), 1), channels


class DenseLayer(nn.Module):
    def __init__(self, inp, growth, memory_efficient=False):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(inp), nn.Conv2d(inp, growth, 3, padding=1)
        self.memory_efficient = memory_efficient

    def bn_function(self, inputs):
        return self.conv(F.relu(self.norm(torch.cat(inputs, 1))))

    def any_requires_grad(self, inputs):
        return any(tensor.requires_grad for tensor in inputs)

    def forward(self, input):
        prev = [input] if isinstance(input, torch.Tensor) else input
        if self.memory_efficient and self.any_requires_grad(prev):
            return cp.checkpoint(lambda *inputs: self.bn_function(inputs), *prev, use_reentrant=False)
        return self.bn_function(prev)


class DenseBlock(nn.ModuleDict):
    _version = 2

    def __init__(self, n=3, inp=3, growth=4):
        super().__init__()
        for i in range(n):
            self.add_module("denselayer%d" % (i + 1), DenseLayer(inp + i * growth, growth, memory_efficient=i == 2))

    def forward(self, init_features):
        features = [init_features]
        for name, layer in self.items():
            features.append(layer(features))
        return torch.cat(features, 1)


@program(lambda: (DenseBlock().eval(), *IMAGE()))
def densenet(m, x):
    return m(x)


class IntermediateLayerGetter(nn.ModuleDict):
    def __init__(self, model, return_layers):
        self.return_layers = {str(k): str(v) for k, v in return_layers.items()}
        orig, layers = dict(self.return_layers), OrderedDict()
        for name, module in model.named_children():
            layers[name] = module
            orig.pop(name, None)
            if not orig:
                break
        super().__init__(layers)

    def forward(self, x):
        out = OrderedDict()
        for name, module in self.items():
            x = module(x)
            if name in self.return_layers:
                out[self.return_layers[name]] = x
        return out


class FeaturePyramid(nn.Module):
    def __init__(self, channels=(4, 8), out=6):
        super().__init__()
        self.inner = nn.ModuleList(nn.Conv2d(c, out, 1) for c in channels)
        self.layer = nn.ModuleList(nn.Conv2d(out, out, 3, padding=1) for _ in channels)

    def forward(self, x):
        names, x = list(x.keys()), list(x.values())
        last = self.inner[-1](x[-1])
        results = [self.layer[-1](last)]
        for idx in range(len(x) - 2, -1, -1):
            lateral = self.inner[idx](x[idx])
            last = lateral + F.interpolate(last, size=lateral.shape[-2:], mode="nearest")
            results.insert(0, self.layer[idx](last))
        return OrderedDict(list(zip(names, results)))


def backbone():
    body = nn.Sequential(OrderedDict(stem=ConvNormAct(3, 4), stage1=ConvNormAct(4, 8, stride=2), head=nn.Identity()))
    return IntermediateLayerGetter(body, {"stem": 0, "stage1": 1})


@program(lambda: (backbone(), FeaturePyramid(), *IMAGE()))
def feature_pyramid(body, fpn, x):
    return {k: v.sum() for k, v in fpn(body(x)).items()}


@program(lambda: (torch.randn(1, 5, 16),))
def resampled_positions(posemb, new=(3, 3)):
    prefix, grid = posemb[:, :1], posemb[:, 1:]
    old = int(math.sqrt(grid.shape[1]))
    grid = grid.reshape(1, old, old, -1).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, size=new, mode="bicubic", antialias=True)
    return torch.cat([prefix, grid.permute(0, 2, 3, 1).reshape(1, -1, grid.shape[1])], dim=1)


@program(lambda: (torch.rand(2, 3, 8, 8), torch.tensor([1, 3])), grad=False)
def mixup_cutmix(x, target, num_classes=5, smoothing=0.1):
    off = smoothing / num_classes
    onehot = lambda y: torch.full((y.size(0), num_classes), off).scatter_(
        1, y.long().view(-1, 1), 1.0 - smoothing + off
    )
    lam = torch.distributions.Beta(torch.tensor(0.8), torch.tensor(0.8)).sample()
    flipped = x.flip(0).mul_(1.0 - lam)
    mixed = x.mul(lam).add_(flipped)
    mixed[:, :, 2:5, 1:4] = x.flip(0)[:, :, 2:5, 1:4]
    return mixed, onehot(target) * lam + onehot(target.flip(0)) * (1.0 - lam)


@program(lambda: (torch.rand(2, 3, 8, 8),))
def color_jitter(x, order=(2, 0, 1)):
    def gray(x):
        return (x * torch.tensor([0.2989, 0.587, 0.114]).view(3, 1, 1)).sum(-3, keepdim=True)

    def blend(a, b, ratio):
        return (ratio * a + (1.0 - ratio) * b).clamp(0, 1.0).to(a.dtype)

    ops = [
        lambda x: blend(x, torch.zeros_like(x), 1.2),
        lambda x: blend(x, gray(x).mean(dim=(-3, -2, -1), keepdim=True), 0.8),
        lambda x: blend(x, gray(x), 1.1),
    ]
    for i in order:
        x = ops[i](x)
    return (x - torch.as_tensor((0.5, 0.4, 0.3))[:, None, None]) / torch.as_tensor((0.2, 0.2, 0.2))[:, None, None]


@program(lambda: (torch.rand(2, 1, 8, 8),))
def affine_grid_sample(x, angle=30.0):
    a = math.radians(angle)
    theta = torch.tensor([[math.cos(a), -math.sin(a), 0.0], [math.sin(a), math.cos(a), 0.1]])
    grid = F.affine_grid(theta.expand(x.shape[0], 2, 3), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


@program(lambda: (torch.rand(2, 3, 8, 8),))
def gaussian_blur(x, kernel_size=(3, 5), sigma=[1.0, 0.5]):
    def kernel1d(k, s):
        half = (k - 1) * 0.5
        pdf = torch.exp(-0.5 * (torch.linspace(-half, half, steps=k) / s).pow(2))
        return pdf / pdf.sum()

    kx, ky = (kernel1d(k, s) for k, s in zip(kernel_size, sigma))
    kernel = torch.mm(ky[:, None], kx[None, :]).expand(x.shape[-3], 1, kernel_size[1], kernel_size[0])
    padding = [kernel_size[0] // 2, kernel_size[0] // 2, kernel_size[1] // 2, kernel_size[1] // 2]
    return F.conv2d(F.pad(x, padding, mode="reflect"), kernel, groups=x.shape[-3])


class GlobalResponseNorm(nn.Module):
    def __init__(self, dim, channels_last=True):
        super().__init__()
        self.spatial_dim, self.channel_dim, self.wb_shape = (
            ((1, 2), -1, (1, 1, 1, -1)) if channels_last else ((2, 3), 1, (1, -1, 1, 1))
        )
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        x_g = x.norm(p=2, dim=self.spatial_dim, keepdim=True)
        x_n = x_g / (x_g.mean(dim=self.channel_dim, keepdim=True) + 1e-6)
        return x + torch.addcmul(self.bias.view(self.wb_shape), self.weight.view(self.wb_shape), x * x_n)


@program(lambda: (GlobalResponseNorm(3, channels_last=False), *IMAGE()))
def convnext_grn(m, x):
    return m(x.contiguous(memory_format=torch.channels_last))


@program(lambda: (torch.randn(2, 12, 4, 4), torch.randn(2, 2, 4, 4)))
def deformed_and_shuffled(x, flow):
    up = F.pixel_shuffle(x, 2)
    n, c, h, w = up.shape
    flow = F.interpolate(flow, scale_factor=2.0, mode="bilinear", align_corners=True)
    ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    grid = torch.stack((xs, ys), 2).float() + flow.permute(0, 2, 3, 1)
    grid = 2.0 * grid / torch.tensor([max(w - 1, 1), max(h - 1, 1)]) - 1.0
    return F.grid_sample(up, grid, align_corners=True)


@program(lambda: (torch.randn(2, 16, 6),))
def token_merging(x, r=4):
    metric = x / x.norm(dim=-1, keepdim=True)
    a, b = metric[..., ::2, :], metric[..., 1::2, :]
    node_max, node_idx = (a @ b.transpose(-1, -2)).max(dim=-1)
    edge_idx = node_max.argsort(dim=-1, descending=True)[..., None]
    unm, src = edge_idx[..., r:, :], edge_idx[..., :r, :]
    dst_idx = node_idx[..., None].gather(dim=-2, index=src)
    s, d = x[..., ::2, :], x[..., 1::2, :]
    n, t1, c = s.shape
    kept = s.gather(dim=-2, index=unm.expand(n, t1 - r, c))
    d = d.scatter_reduce(-2, dst_idx.expand(n, r, c), s.gather(dim=-2, index=src.expand(n, r, c)), reduce="mean")
    return torch.cat([kept, d], dim=1)


@program(lambda: (nn.ModuleList([nn.Linear(192, 4), nn.Linear(192, 4)]), *IMAGE()))
def heads_sharing_input(heads, x):
    flat = x.flatten(1)
    (out,) = {h(flat).shape for h in heads}
    return sum((h(flat) for h in heads), start=torch.zeros(out))


@program(lambda: (nn.Conv2d(3, 4, 3), *IMAGE()))
def weight_standardised(conv, x):
    w = F.batch_norm(conv.weight.reshape(1, 4, -1), None, None, training=True, momentum=0.0, eps=1e-6).reshape_as(
        conv.weight
    )
    same = [(0, 1)[s % 2] + 1 for s in x.shape[-2:]]
    return F.conv2d(x, w, conv.bias, conv.stride, same, conv.dilation, conv.groups)
