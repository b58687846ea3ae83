# mypy: ignore-errors
# ruff: noqa
"""Attention of language models: heads, masks, positions, caches."""

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import nn

from tests.sweeps.snippets.corpus import program


def heads(x, n):
    b, t, c = x.shape
    return x.view(b, t, n, c // n).transpose(1, 2)


def qkv(t=6, d=8):
    return tuple(torch.randn(2, 4, t, d) for _ in range(3))


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


@program(lambda: qkv()[:2])
def rotary(q, k):
    inv = 1.0 / (10000 ** (torch.arange(0, q.shape[-1], 2, dtype=torch.float32) / q.shape[-1]))
    freqs = torch.outer(torch.arange(q.shape[-2], dtype=inv.dtype), inv)
    emb = torch.cat((freqs, freqs), dim=-1)
    cos, sin = emb.cos()[None, None], emb.sin()[None, None]
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


@program(lambda: (qkv()[0],))
def rotary_complex(q):
    freqs = 1.0 / (10000.0 ** (torch.arange(0, q.shape[-1], 2)[: q.shape[-1] // 2].float() / q.shape[-1]))
    t = torch.arange(q.shape[2])
    cis = torch.polar(torch.ones(len(t), len(freqs)), torch.outer(t, freqs))
    z = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))
    return torch.view_as_real(z * cis).flatten(3).type_as(q)


@program(lambda: (qkv()[0],))
def rotary_ntk_scaled(q, base=10000, scale=2.0):
    d = q.size(-1)
    base = base * scale ** (d / (d - 2))
    inv = torch.tensor([base ** (-i / d) for i in range(0, d, 2)])
    angle = torch.einsum("i,j->ij", torch.arange(q.size(-2)).float(), inv).repeat_interleave(2, dim=-1)
    twisted = torch.stack((-q[..., 1::2], q[..., ::2]), dim=-1).reshape(q.shape)
    return q * angle.cos() + twisted * angle.sin()


def slopes(n):
    def power_of_two(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(n).is_integer():
        return power_of_two(n)
    closest = 2 ** math.floor(math.log2(n))
    return power_of_two(closest) + slopes(2 * closest)[0::2][: n - closest]


@program(lambda: qkv())
def alibi(q, k, v):
    m = torch.tensor(slopes(6)[: q.shape[1]]).view(-1, 1, 1)
    position = torch.arange(q.shape[-2])
    bias = -(position[None] - position[:, None]).abs() * m
    return F.softmax(q @ k.mT / math.sqrt(q.size(-1)) + bias, -1) @ v


class MaskKind(Enum):
    CAUSAL = "causal"
    WINDOW = "window"
    PREFIX = "prefix"


def make_mask(kind, t, size=2):
    i, j = torch.arange(t)[:, None], torch.arange(t)[None]
    match kind:
        case MaskKind.CAUSAL:
            return j <= i
        case MaskKind.WINDOW:
            return (j <= i) & (i - j < size)
        case MaskKind.PREFIX:
            return (j <= i) | (j < size)


@program(lambda: qkv())
def masks_by_kind(q, k, v):
    outs = {kind.value: F.scaled_dot_product_attention(q, k, v, make_mask(kind, q.size(2))) for kind in MaskKind}
    return sum(outs.values()), list(outs)


class RelativeBias(nn.Module):
    def __init__(self, heads=4, buckets=8, max_distance=16):
        super().__init__()
        self.buckets, self.max_distance = buckets, max_distance
        self.table = nn.Embedding(buckets, heads)

    @staticmethod
    def bucket(relative, bidirectional=True, num_buckets=8, max_distance=16):
        result = 0
        if bidirectional:
            num_buckets //= 2
            result = result + (relative > 0).to(torch.long) * num_buckets
            relative = relative.abs()
        else:
            relative = -torch.min(relative, torch.zeros_like(relative))
        max_exact = num_buckets // 2
        is_small = relative < max_exact
        large = max_exact + (
            torch.log(relative.float() / max_exact) / math.log(max_distance / max_exact) * (num_buckets - max_exact)
        ).to(torch.long)
        large = torch.min(large, torch.full_like(large, num_buckets - 1))
        return result + torch.where(is_small, relative, large)

    def forward(self, q_len, k_len):
        relative = torch.arange(k_len)[None] - torch.arange(q_len)[:, None]
        buckets = self.bucket(relative, num_buckets=self.buckets, max_distance=self.max_distance)
        return self.table(buckets).permute([2, 0, 1]).unsqueeze(0)


@program(lambda: (RelativeBias(), *qkv()))
def t5_relative_bias(bias, q, k, v):
    scores = torch.matmul(q, k.transpose(3, 2))
    scores += bias(q.size(2), k.size(2))
    weights = nn.functional.softmax(scores.float(), dim=-1).type_as(scores)
    return torch.matmul(nn.functional.dropout(weights, p=0.1, training=True), v)


@dataclass
class AttentionConfig:
    dim: int = 16
    heads: int = 4
    kv_heads: Optional[int] = None
    bias: bool = False
    rope: dict = field(default_factory=lambda: {"type": "linear", "factor": 2.0})

    @property
    def head_dim(self):
        return self.dim // self.heads

    def __post_init__(self):
        self.kv_heads = self.kv_heads or self.heads


def repeat_kv(x, n):
    if n == 1:
        return x
    b, h, t, d = x.shape
    return x[:, :, None].expand(b, h, n, t, d).reshape(b, h * n, t, d)


class GroupedQueryAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.groups = config.heads // config.kv_heads
        self.q_proj = nn.Linear(config.dim, config.dim, bias=config.bias)
        self.kv_proj = nn.Linear(config.dim, 2 * config.kv_heads * config.head_dim, bias=config.bias)
        self.o_proj = nn.Linear(config.dim, config.dim, bias=config.bias)

    def forward(self, x, mask=None, **kwargs):
        b, t, _ = x.size()
        q = heads(self.q_proj(x), self.config.heads)
        k, v = (heads(y, self.config.kv_heads) for y in self.kv_proj(x).chunk(2, -1))
        if (rope := self.config.rope) and rope.get("type") == "linear":
            q = q / rope["factor"]
        k, v = map(lambda y: repeat_kv(y, self.groups), (k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None and t > 1)
        out = self.o_proj(out.transpose(1, 2).contiguous().view(b, t, -1))
        return (out, q) if kwargs.get("output_queries") else (out,)


@program(lambda: (GroupedQueryAttention(AttentionConfig(kv_heads=2)), torch.randn(2, 5, 16)))
def grouped_query(m, x):
    out, q = m(x, output_queries=True)
    return m(out)[0] + x, q


class DynamicCache:
    def __init__(self):
        self.key_cache, self.value_cache = [], []
        self._seen = 0

    def __len__(self):
        return len(self.key_cache)

    def __iter__(self):
        for i in range(len(self)):
            yield self.key_cache[i], self.value_cache[i]

    def __getitem__(self, i):
        if i < len(self):
            return self.key_cache[i], self.value_cache[i]
        raise KeyError(f"Cache only has {len(self)} layers, attempted to access layer with index {i}")

    def update(self, k, v, layer):
        if layer == 0:
            self._seen += k.shape[-2]
        if len(self.key_cache) <= layer:
            self.key_cache.append(k)
            self.value_cache.append(v)
        else:
            self.key_cache[layer] = torch.cat([self.key_cache[layer], k], dim=-2)
            self.value_cache[layer] = torch.cat([self.value_cache[layer], v], dim=-2)
        return self[layer]

    def get_seq_length(self, layer=0):
        return self.key_cache[layer].shape[-2] if len(self) > layer else 0

    @classmethod
    def from_legacy(cls, pairs):
        cache = cls()
        for i, (k, v) in enumerate(pairs):
            cache.update(k, v, i)
        return cache

    def to_legacy(self):
        return tuple(iter(self))


@program(lambda: qkv())
def dynamic_cache(q, k, v):
    cache = DynamicCache.from_legacy([(k, v), (k * 2, v * 2)])
    outs = []
    for layer in range(len(cache)):
        keys, values = cache.update(k[:, :, -1:], v[:, :, -1:], layer)
        outs.append(F.scaled_dot_product_attention(q, keys, values))
    try:
        cache[5]
    except KeyError as error:
        outs.append(error.args[0])
    return outs, cache.get_seq_length(), cache.to_legacy()


@program(lambda: (DynamicCache(), *qkv()))
def cache_of_caller(cache, q, k, v):
    for layer in range(2):
        k, v = cache.update(k, v, layer)
    return F.scaled_dot_product_attention(q, k, v)


class StaticCache(nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.register_buffer("k", torch.zeros(2, 4, size, 8), persistent=False)
        self.register_buffer("v", torch.zeros(2, 4, size, 8), persistent=False)

    def update(self, position, k, v):
        self.k.index_copy_(2, position, k)
        self.v[:, :, position] = v
        return self.k, self.v


@program(lambda: (StaticCache(), torch.tensor([2, 3]), *qkv(2)), grad=False)
def static_cache(cache, position, q, k, v):
    with torch.no_grad():
        keys, values = cache.update(position, k, v)
        mask = torch.arange(keys.size(2))[None] <= position[:, None]
        return F.scaled_dot_product_attention(q, keys, values, mask)


class BlockSpec(NamedTuple):
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    scale: float = 1.0

    def split(self, size):
        return zip(self.k.split(size, 2), self.v.split(size, 2))


@program(lambda: qkv(8))
def online_softmax(q, k, v):
    spec = BlockSpec(q, k, v, scale=q.shape[-1] ** -0.5)
    m = q.new_full((*q.shape[:-1], 1), -torch.inf)
    l, acc = torch.zeros_like(m), torch.zeros_like(q)
    for kb, vb in spec.split(4):
        s = q @ kb.mT * spec.scale
        m_new = torch.maximum(m, s.amax(-1, keepdim=True))
        p, alpha = (s - m_new).exp(), (m - m_new).exp()
        l, acc, m = l * alpha + p.sum(-1, keepdim=True), acc * alpha + p @ vb, m_new
    return acc / l


@program(lambda: qkv())
def linear_attention(q, k, v):
    q, k = F.elu(q) + 1, F.elu(k) + 1
    state = torch.einsum("bhtd,bhte->bhtde", k, v).cumsum(2)
    z = 1 / (torch.einsum("bhtd,bhtd->bht", q, k.cumsum(2)) + 1e-6)
    return torch.einsum("bhtd,bhtde,bht->bhte", q, state, z)


@program(lambda: (nn.MultiheadAttention(16, 4, batch_first=True, dropout=0.1), torch.randn(2, 5, 16)))
def multihead_with_padding(m, x):
    padding = torch.arange(5)[None] >= torch.tensor([[3], [5]])
    out, weights = m(x, x, x, key_padding_mask=padding, need_weights=True, average_attn_weights=False)
    return out, weights.mean((0, 2))


@program(lambda: qkv())
def attention_sinks(q, k, v, sink_size=1, window=3):
    sinks, recent = k[:, :, :sink_size], k[:, :, -window:]
    keys = torch.cat([sinks, recent], 2)
    values = torch.cat([v[:, :, :sink_size], v[:, :, -window:]], 2)
    logits = torch.cat([q @ keys.mT, q.new_zeros(*q.shape[:3], 1)], -1)
    return logits.softmax(-1)[..., :-1] @ values


@program(lambda: (torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]]), torch.randn(2, 4, 8)))
def expanded_padding_mask(attention_mask, x):
    b, t = attention_mask.shape
    expanded = attention_mask[:, None, None, :].expand(b, 1, t, t).to(x.dtype)
    inverted = 1.0 - expanded
    mask = inverted.masked_fill(inverted.to(torch.bool), torch.finfo(x.dtype).min)
    causal = torch.full((t, t), torch.finfo(x.dtype).min)
    position = torch.arange(causal.size(-1))
    causal.masked_fill_(position < (position + 1).view(causal.size(-1), 1), 0)
    return torch.softmax(x @ x.mT + (mask + causal[None, None]).clamp(min=torch.finfo(x.dtype).min)[:, 0], -1)


@program(lambda: (torch.randn(2, 8, 16),))
def local_blocks(x, block=4):
    b, t, c = x.shape
    pad = (block - t % block) % block
    x = F.pad(x, (0, 0, 0, pad)).unflatten(1, (-1, block))
    around = torch.cat([F.pad(x, (0, 0, 0, 0, 1, 0))[:, :-1], x], dim=2)
    scores = torch.einsum("bnic,bnjc->bnij", x, around)
    i, j = torch.arange(block)[:, None], torch.arange(2 * block)
    scores.masked_fill_(j - block > i, float("-inf"))
    return (scores.softmax(-1) @ around).flatten(1, 2)[:, :t]


@program(lambda: (nn.Linear(16, 48), nn.LayerNorm(4), nn.LayerNorm(4), torch.randn(2, 5, 16)))
def query_key_norm(proj, q_norm, k_norm, x):
    q, k, v = proj(x).reshape(2, 5, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
    q, k = q_norm(q), k_norm(k)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v)


class Latent(nn.Module):
    def __init__(self, d=16, rank=4, rope=2):
        super().__init__()
        self.down, self.up = nn.Linear(d, rank + rope), nn.Linear(rank, 2 * d)
        self.norm = nn.RMSNorm(rank)
        self.sizes = [rank, rope]

    def forward(self, x):
        compressed, k_rope = self.down(x).split(self.sizes, dim=-1)
        k, v = self.up(self.norm(compressed)).tensor_split(2, dim=-1)
        return torch.cat([k, k_rope], dim=-1), v


@program(lambda: (Latent(), torch.randn(2, 5, 16)))
def multi_latent(m, x):
    k, v = m(x)
    return torch.baddbmm(torch.zeros(1), k, k.mT, beta=0, alpha=0.5).softmax(-1, dtype=torch.float64).to(v) @ v


@program(lambda: (torch.randn(6, 8), torch.tensor([0, 2, 6])))
def document_mask(x, offsets):
    ids = torch.bucketize(torch.arange(x.size(0)), offsets[1:], right=True)
    same = ids.unsqueeze(0) == ids.unsqueeze(1)
    bias = torch.zeros_like(same, dtype=x.dtype).masked_fill_(same.logical_not(), float("-inf"))
    return torch.addmm(bias, x, x.t()).softmax(1) @ x, torch.bincount(ids, minlength=2)


@program(lambda: qkv())
def capped_and_clipped(q, k, v, cap=5.0):
    scores = cap * torch.tanh(q @ k.transpose(-1, -2) / cap)
    top = scores.topk(3, dim=-1)
    kept = torch.full_like(scores, -1e9).scatter(-1, top.indices, top.values)
    return kept.softmax(-1) @ v


@program(lambda: (torch.randn(1, 5, 16), {"self": GroupedQueryAttention(AttentionConfig())}))
def attention_of_registry(x, registry):
    kinds = ["self", *("cross",) * 0, "self"]
    return [x := registry[kind](x, mask=None)[0] for kind in kinds]
