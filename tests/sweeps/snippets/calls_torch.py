# mypy: ignore-errors
# ruff: noqa
"""PyTorch's modules, transforms and utilities, called with other sizes."""

from torch import nn, Tensor
from torch.utils import _pytree as pytree
import collections
import functools
import torch
import torch.nn.functional as F
import torch.utils.checkpoint as ck

from tests.sweeps.snippets.corpus import program, sizes


@program(*[lambda v=v: (torch.randn(*v),) for v in ((3,), (3, 4), (3,), (3, 4), (3, 4, 5), (3,))])
def fixed_ranks(x):
    return x * 2


class Count(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.tensor(0))
        self.register_buffer("mean", torch.zeros(4))
        self.steps = 0

    def forward(self, x):
        if self.training:
            self.n += 1
            self.steps += 1
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return x - self.mean + self.n


@program(*sizes(lambda n: (torch.randn(n, 4), Count())))
def counter(x, m):
    return m(x), m.eval()(x), m.steps


MC = Count()


@program(*sizes(lambda n: (torch.randn(n, 4),)))
def counter_global(x):
    y = MC(x)
    MC.steps = 0
    return y


@program(*sizes(lambda n: (torch.randn(n, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh()))))
def checkpointed(x, m):
    return ck.checkpoint(m, x, use_reentrant=False), ck.checkpoint_sequential(m, 2, x, use_reentrant=False)


@program(
    *sizes(
        lambda n: (torch.randn(n, 2, 4), nn.MultiheadAttention(4, 2), nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0))
    )
)
def mha(x, m, e):
    return m(x, x, x, need_weights=True), e(x)


@program(
    *sizes(lambda n: (torch.randn(2, n, 4), nn.LSTM(4, 3, batch_first=True, bidirectional=True), nn.GRUCell(4, 4)))
)
def rnns(x, m, c):
    y, (h, _) = m(x)
    s = torch.zeros(2, 4)
    for t in range(x.size(1)):
        s = c(x[:, t], s)
    return y, h, s


@program(
    *sizes(
        lambda n: (torch.randint(0, 9, (n, 3)), nn.Embedding(9, 4, padding_idx=0), nn.EmbeddingBag(9, 4, mode="max"))
    )
)
def embeds(i, e, b):
    return e(i), b(i), F.embedding(i, e.weight, max_norm=None)


@program(*sizes(lambda n: (torch.randn(n, 4),)))
def random_ops(x):
    return (
        F.gumbel_softmax(x, hard=True),
        F.dropout(x, 0.3),
        torch.rand_like(x),
        torch.randint_like(x, 5),
        torch.bernoulli(x.sigmoid()),
        torch.multinomial(x.softmax(-1), 2),
        torch.randperm(x.size(0)),
        torch.normal(x, 1.0),
    )


@program(*sizes(lambda n: (torch.randn(n, 4), nn.Linear(4, 4))))
def func_call(x, m):
    ps = {k: v * 2 for k, v in m.named_parameters()}
    return torch.func.functional_call(m, ps, (x,)), torch.func.grad(lambda x: m(x).sum())(x)


@program(*sizes(lambda n: (torch.randn(n, 4), torch.randn(4))))
def vmapped(x, w):
    return (
        torch.vmap(lambda r: r @ w)(x),
        torch.vmap(lambda a, b: a * b, in_dims=(1, 0))(x, w),
        torch.func.jacrev(lambda v: (v * v).sum())(w),
    )


@program(*sizes(lambda n: (torch.randn(n, 4),)))
def pytrees(x):
    t = {"a": [x, (x * 2, None)], "b": collections.OrderedDict(c=x)}
    l, s = pytree.tree_flatten(t)
    u = pytree.tree_unflatten([v * 2 if v is not None else v for v in l], s)
    return u, pytree.tree_map_only(Tensor, torch.sin, t), len(l)


@program(*sizes(lambda n: (torch.randn(n, 4), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))), grad=False)
def mod_queries(x, m):
    tot = sum(p.numel() for p in m.parameters() if p.requires_grad)
    names = [n for n, _ in m.named_modules()]
    dev = next(m.parameters()).device
    dt = m[0].weight.dtype
    return m(x.to(dev, dt)), tot, names, len(m), list(m.state_dict()), [type(c).__name__ for c in m.children()]


@program(*sizes(lambda n: (torch.randn(n, 4),)))
def flags(x):
    if torch.jit.is_scripting() or torch.jit.is_tracing():
        return x
    if torch.onnx.is_in_onnx_export():
        return x * 3
    if torch.cuda.is_available() and x.is_cuda:
        return x * 5
    if torch.is_grad_enabled() and x.requires_grad and x.is_leaf:
        x = x * 1
    return (
        x.to(torch.get_default_dtype()).contiguous(memory_format=torch.contiguous_format),
        x.device.type,
        str(x.dtype),
        x.is_contiguous(),
        x.layout == torch.strided,
    )


@program(*sizes(lambda n: (torch.randn(n, 4),)))
def autocasts(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.T
    with torch.autocast(device_type="cpu", enabled=False):
        z = y.float() @ x
    return y, z


@torch.no_grad()
def ema_(a, b, d=0.9):
    for p, q in zip(a.parameters(), b.parameters()):
        p.lerp_(q, 1 - d)
    for p, q in zip(a.buffers(), b.buffers()):
        p.copy_(q)


@program(*sizes(lambda n: (torch.randn(n, 4), nn.Linear(4, 4), nn.Linear(4, 4))), grad=False)
def ema_mods(x, a, b):
    ema_(a, b)
    return a(x)


class Attn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, eps=1e-5, mask=None):
        ctx.save_for_backward(x, w)
        ctx.eps = eps
        ctx.mark_non_differentiable()
        return x * w / (1 + eps)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gx = g * w / (1 + ctx.eps) if ctx.needs_input_grad[0] else None
        return gx, (g * x).sum(0) / (1 + ctx.eps), None, None


@program(*sizes(lambda n: (torch.randn(n, 4), torch.randn(4), n / 10)))
def custom_fn(x, w, e):
    return Attn.apply(x, w, e), Attn.apply(x, w)


class STE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bits):
        return (x * (2**bits - 1)).round() / (2**bits - 1)

    @staticmethod
    def backward(ctx, g):
        return g, None


@program(*sizes(lambda n: (torch.randn(n, 4), n)))
def ste(x, b):
    return STE.apply(x.sigmoid(), b)


class VQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(5, 4)
        self.beta = 0.25

    def forward(self, z):
        d = z.pow(2).sum(1, keepdim=True) - 2 * z @ self.emb.weight.T + self.emb.weight.pow(2).sum(1)
        i = d.argmin(1)
        q = self.emb(i)
        loss = F.mse_loss(q.detach(), z) * self.beta + F.mse_loss(q, z.detach())
        q = z + (q - z).detach()
        p = F.one_hot(i, 5).float().mean(0)
        return q, loss, (-(p * (p + 1e-9).log()).sum()).exp(), i


@program(*sizes(lambda n: (torch.randn(n, 4), VQ())))
def vq(x, m):
    return m(x)


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 3)
        self.ex = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        w, i = self.gate(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for k, e in enumerate(self.ex):
            m = (i == k).float() * w
            out = out + m.sum(-1, keepdim=True) * e(x)
        return out, {"aux": w.var()}


@program(*sizes(lambda n: (torch.randn(n, 4), MoE())))
def moe(x, m):
    return m(x)


@program(*sizes(lambda n: (torch.randn(n, 4), MoE())))
def moe_sparse(x, m):
    w, i = m.gate(x).softmax(-1).max(-1)
    out = torch.zeros_like(x)
    for k, e in enumerate(m.ex):
        idx = torch.where(i == k)[0]
        out.index_add_(0, idx, e(x[idx]) * w[idx, None])
    return out


@program(*sizes(lambda n: (torch.randn(n, 4), torch.rand(n) > 0.5)))
def masked(x, m):
    return x[m], x[m].sum(), m.nonzero().shape, torch.masked_select(x, m[:, None])


@program(*sizes(lambda n: (torch.randn(n, 4), torch.tensor(2))))
def items(x, t):
    k = t.item()
    torch._check(k >= 0)
    return x * k, x.sum() * int(t)


@program(*sizes(lambda n: (torch.randn(n, 4),)))
def where_forms(x):
    return (
        torch.where(x > 0, x, 0.0),
        x.where(x > 0, -x),
        torch.where(x > 0),
        x.masked_fill(x < 0, 0),
        x.clamp(min=x.mean()),
        torch.nan_to_num(x / 0),
    )


@program(*sizes(lambda n: (torch.randn(n, 4),)))
def inplace_chain(x):
    y = x.clone()
    y[0] = 1
    y[:, 1] += 2
    y[y > 1] = 0
    y.T[0].mul_(3)
    z = y.view(-1)
    z[::2] = 5
    y.unsqueeze_(0).squeeze_()
    return y, z


@program(*sizes(lambda n: (torch.randn(n, 4),)))
def outs(x):
    o = torch.empty(x.shape)
    torch.add(x.detach(), 1, out=o)
    torch.mul(o, 2, out=o)
    return o


@program(*sizes(lambda n: (torch.randn(n, 4, dtype=torch.complex64),)))
def cplx(x):
    return (
        torch.view_as_real(x * x.conj()),
        x.abs(),
        torch.polar(x.abs(), x.angle()),
        torch.view_as_complex(torch.view_as_real(x)),
    )


@program(*sizes(lambda n: (torch.randn(n, n),)))
def linalg(x):
    a = x @ x.T + torch.eye(x.size(0))
    return (
        torch.linalg.cholesky(a),
        torch.linalg.solve(a, x),
        torch.logdet(a),
        torch.linalg.norm(x),
        torch.linalg.eigvalsh(a),
        torch.trace(a),
    )


@program(*sizes(lambda n: (torch.randn(2, n, 3), torch.randn(2, n, 3))))
def losses(a, b):
    return (
        F.kl_div(a.log_softmax(-1), b.softmax(-1), reduction="batchmean"),
        F.cosine_embedding_loss(a[0], b[0], torch.ones(a.size(1))),
        F.triplet_margin_loss(a, b, a + 1),
        F.smooth_l1_loss(a, b, beta=0.5),
        F.cross_entropy(a.transpose(1, 2), b.argmax(-1), label_smoothing=0.1, ignore_index=0),
        F.binary_cross_entropy_with_logits(a, b.sigmoid(), pos_weight=torch.ones(3)),
        F.gaussian_nll_loss(a, b, b.exp()),
    )


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.ParameterList([nn.Parameter(torch.randn(4)) for _ in range(3)])
        self.d = nn.ParameterDict({"a": nn.Parameter(torch.randn(4))})
        self.s = nn.Parameter(torch.tensor(1.0))
        self.reg = None
        self.__dict__["free"] = nn.Linear(4, 4)

    def forward(self, x):
        self.reg = sum(p.norm() for p in self.l)
        return functools.reduce(lambda a, p: a * p, self.l, x) * self.d["a"] + self.free(x) * self.s


@program(*sizes(lambda n: (torch.randn(n, 4), Net())))
def plists(x, m):
    return m(x) + m.reg
