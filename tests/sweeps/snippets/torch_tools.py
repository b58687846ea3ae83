# mypy: ignore-errors
# ruff: noqa
"""PyTorch's own tools inside of a compiled function: hooks, modes, transforms, functions with gradients, containers."""

import contextlib
import functools
import math
import random
import warnings

import numpy as np
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
import torch.utils.checkpoint as checkpoint
from torch import nn
from torch._higher_order_ops.wrap import wrap, wrap_with_autocast, wrap_with_set_grad_enabled
from torch.nn.utils import parametrize, parametrizations, rnn
from torch.utils.data import default_collate

from tests.sweeps.snippets.corpus import program

X = lambda: (torch.randn(4, 4),)
NET = lambda: (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)), torch.randn(4, 4))


@program(X)
def tensor_hooks(x):
    y = x.sin()
    y.register_hook(lambda g: g.clamp(-0.1, 0.1))
    return (y**2).sum()


@program(NET)
def functional_call_with_other_weights(m, x):
    weights = {n: p * 0.5 for n, p in m.named_parameters()}
    return torch.func.functional_call(m, weights, x)


@program(NET)
def per_sample_gradients(m, x):
    params = {k: v.detach() for k, v in m.named_parameters()}

    def loss(params, sample):
        return torch.func.functional_call(m, params, (sample[None],)).pow(2).sum()

    return torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(params, x)


@program(X)
def jacobians(x):
    f = lambda v: (v.sin() * v.sum()).square()
    return torch.func.jacrev(f)(x[0]), torch.func.jacrev(f, chunk_size=2)(x[1])


@program(X)
def gradients_with_more(x):
    gram, aux = torch.func.grad(lambda v: ((v @ v.T).sum(), v.mean()), has_aux=True)(x)
    value, pullback, more = torch.func.vjp(lambda v: (v.exp() @ v, v.sum()), x, has_aux=True)
    return (
        gram,
        aux,
        value,
        pullback(torch.ones_like(value)),
        more,
        torch.func.grad_and_value(lambda v: v.square().sum())(x),
    )


@program(X)
def mapped_over_dimensions(x):
    pairwise = torch.vmap(torch.vmap(lambda a, b: (a - b).abs().amax(), (None, 0)), (0, None))
    noisy = torch.vmap(lambda v: v + torch.randn(4), randomness="different")
    return pairwise(x, x), noisy(x), torch.vmap(torch.diag, out_dims=1)(x), torch.vmap(lambda d: d["a"] * 2)({"a": x})


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lo, hi=1.0):
        ctx.save_for_backward(x)
        ctx.bounds = lo, hi
        return x.clamp(lo, hi).round()

    @staticmethod
    def backward(ctx, grad):
        (x,), (lo, hi) = ctx.saved_tensors, ctx.bounds
        return grad * ((x >= lo) & (x <= hi)), None, None


@program(X)
def straight_through(x):
    return Straight.apply(x * 2, -1.0) * x


class Split(torch.autograd.Function):
    @staticmethod
    def forward(x, n):
        return x.sin(), (x > 0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(inputs[0])
        ctx.n = inputs[1]
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, g, _):
        if not ctx.needs_input_grad[0] or g is None:
            return None, None
        return g * ctx.saved_tensors[0].cos() * ctx.n, None


@program(X)
def function_with_setup_context(x):
    y, positive = Split.apply(x, 3)
    return y.where(positive, 0.1)


class Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.neg() * ctx.alpha, None


@program(NET)
def gradient_reversal(m, x):
    return Reversal.apply(m(x), 0.5).log_softmax(-1)


@program(NET)
def checkpointed_segments(m, x):
    run = lambda start, end: lambda y: functools.reduce(lambda v, layer: layer(v), list(m)[start:end], y)
    y = checkpoint.checkpoint(run(0, 2), x, use_reentrant=False)
    return checkpoint.checkpoint_sequential(m, 2, x, use_reentrant=False) + m[2](y)


@program(NET)
def autocast(m, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = m(x)
        with torch.autocast(device_type="cpu", enabled=False):
            z = y.float() @ x
    return y, z, torch.is_autocast_enabled("cpu")


@program(NET)
def grad_modes(m, x):
    with torch.set_grad_enabled(False):
        a = m(x)
        with torch.enable_grad():
            b = m(x)
    torch.set_grad_enabled(True)
    return a, b, torch.is_grad_enabled(), a.requires_grad


@torch.no_grad()
def normalised(x):
    return x / x.norm()


@program(X)
def decorated_with_no_grad(x):
    return x * normalised(x)


@program(X)
def pytrees(x):
    tree = {"a": [x, (x.sin(), None)], "b": 3}
    doubled = pytree.tree_map(lambda v: v * 2 if torch.is_tensor(v) else v, tree)
    leaves, spec = pytree.tree_flatten(doubled)
    both = pytree.tree_map_only(torch.Tensor, torch.exp, tree)
    return (
        pytree.tree_unflatten(leaves[::-1], spec),
        both,
        spec.num_leaves,
        pytree.tree_all(lambda v: v is not None, tree),
    )


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).mT


SYMMETRIC, NORMED = nn.Linear(4, 4), parametrizations.weight_norm(nn.Linear(4, 4))
parametrize.register_parametrization(SYMMETRIC, "weight", Symmetric())


@program(X)
def parametrised(x):
    with parametrize.cached():
        y = SYMMETRIC(x) + SYMMETRIC(x.mT)
    return NORMED(y), parametrize.is_parametrized(SYMMETRIC)


@program(lambda: (nn.LSTM(4, 5, num_layers=2, batch_first=True, dropout=0.2), torch.randn(2, 3, 4)))
def long_short_term(m, x):
    out, (h, c) = m(x, None)
    return out[:, -1], h.mean(0), c


@program(lambda: (nn.GRUCell(4, 5), torch.randn(3, 2, 4)))
def unrolled_cell(cell, xs):
    h, hs = torch.zeros(2, 5), []
    for x in xs:
        h = cell(x, h)
        hs.append(h)
    return torch.stack(hs), rnn.pad_sequence([hs[0], hs[1][:1]], batch_first=True, padding_value=-1.0)


@program(X)
def default_dtype_and_device(x):
    with torch.device("cpu"):
        a = torch.zeros(2)
    b = torch.tensor([1, 2.5], dtype=torch.get_default_dtype(), device=torch.device("cpu", index=None))
    return (
        a + b,
        x.device.type,
        torch.finfo(x.dtype).eps,
        torch.iinfo(torch.int8).max,
        x.is_cuda,
        str(x.dtype).split(".")[-1],
    )


@program(X)
def inspected_tensors(x):
    y = x[::2, 1:].T
    info = (
        y.stride(),
        y.is_contiguous(),
        y.storage_offset(),
        y.element_size(),
        y.dim(),
        y.numel(),
        y.is_leaf,
        y.requires_grad,
    )
    return (
        y,
        info,
        torch.is_floating_point(y),
        y.shape[-1:] + (2,),
        torch.Size([2, 3]).numel(),
        y.layout is torch.strided,
        len(y),
    )


@program(X)
def shapes_computed(x):
    shape = torch.broadcast_shapes(x.shape, (1, 4), (4, 1))
    return (
        x.expand(shape).new_zeros((*shape, 2)),
        torch.result_type(x, 1),
        torch.promote_types(torch.int8, torch.float16),
        torch.can_cast(torch.float, torch.int),
    )


@program(X)
def out_variants_and_in_place(x):
    buf = torch.empty(4, 4)
    with torch.no_grad():
        torch.mul(x, 2, out=buf)
    y = x.clone()
    y[0].fill_(1)
    y[:, 1] += buf[:, 0]
    y.diagonal().zero_()
    y.masked_fill_(y > 1, 0.5).clamp_(min=-1)
    y.index_put_((torch.tensor([0]), torch.tensor([1])), torch.tensor(9.0), accumulate=True)
    return y, buf


@program(X)
def view_chains(x):
    y = x.clone()
    v = y.view(2, 8)[:, ::2].transpose(0, 1)
    v += 1
    y.unsqueeze_(0).squeeze_(0).t_()
    w = y.as_strided((2, 2), (4, 1))
    return y, v, w, torch.atleast_3d(w), y.view(torch.int32)[0, 0] == 0


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.add:
            return torch.mul(*args, **kwargs)
        return func(*args, **kwargs)


@program(X)
def function_mode(x):
    with Mode():
        return torch.add(x, 3) + x.sin()


class Tagged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        return out

    def doubled(self):
        return self * 2


@program(X)
def tensor_subclass(x):
    t = x.as_subclass(Tagged)
    y = t.doubled() + 1
    return y.as_subclass(torch.Tensor), isinstance(y, Tagged)


@program(X)
def branches_of_tensors(x):
    return torch.cond(x.sum() > 0, lambda a: a.sin() * 2, lambda a: a.cos(), (x,))


@program(lambda: (torch.randn(3, 4), torch.zeros(4)), grad=False)
def scanned(xs, init):
    from torch._higher_order_ops.scan import scan

    return scan(lambda carry, x: (carry * 0.9 + x, carry.sum()), init, xs)


@program(X)
def compiler_queries(x):
    if torch.compiler.is_compiling() and False or torch.jit.is_tracing() or torch.onnx.is_in_onnx_export():
        return x
    return (
        x + torch.compiler.is_exporting(),
        torch.cuda.is_available(),
    )


@torch.compiler.assume_constant_result
def table():
    return 3


@torch.compiler.allow_in_graph
def opaque(x):
    return x.sin() + 1


@program(X)
def markers(x):
    torch._check(x.size(0) == 4)
    torch._assert(x.ndim == 2, "two dimensions")
    return opaque(x) * table()


@torch.library.custom_op("snippets::scaled_sine", mutates_args=())
def scaled_sine(x: torch.Tensor, k: float) -> torch.Tensor:
    return torch.from_numpy(np.sin(x.numpy() * k))


@scaled_sine.register_fake
def _(x, k):
    return torch.empty_like(x)


scaled_sine.register_autograd(
    lambda ctx, g: (g * ctx.k, None), setup_context=lambda ctx, inputs, output: setattr(ctx, "k", inputs[1])
)


@program(X)
def custom_operator(x):
    return scaled_sine(x, 2.0) + torch.ops.snippets.scaled_sine(x, k=0.5)


@program(X)
def numpy_round_trip(x):
    a = x.detach().numpy()
    b = np.concatenate([a, np.ones((1, 4), dtype=np.float32)], axis=0)
    c = np.where(b > 0, b, 0).mean(axis=1, keepdims=True)
    return torch.from_numpy(c) * 2 + x.sum(), a.shape, np.pi


@program(lambda: (torch.rand(3, 4, 5),), grad=False)
def numpy_image_mirrored(image):
    pixels = image.numpy().transpose(1, 2, 0)
    return torch.from_numpy(np.flip(pixels, axis=1).copy()), torch.from_numpy(pixels[:, :, ::-1].copy())


@program(lambda: (torch.randint(0, 5, (6,)),))
def data_dependent_sizes(x):
    n = (x > 0).sum().item()
    torch._check(n >= 0)
    torch._check(n <= 6)
    return torch.zeros(n), x.new_ones(n + 1).cumsum(0)


@program(lambda: (torch.tensor([2, 1, 3]), torch.randn(6)), grad=False)
def split_by_lengths(lengths, x):
    sizes = lengths.tolist()
    for s in sizes:
        torch._check(s >= 0)
    return [p.sum() for p in torch.split(x, sizes)]


@program(lambda: (torch.randn(5), torch.tensor(2)))
def index_from_tensor(x, i):
    k = i.item()
    torch._check(k >= 0)
    torch._check(k < 5)
    return x[k], x.narrow(0, k, 1)


@program(NET)
def optimiser_like_update(m, x):
    grads = (
        torch.autograd.grad(m(x).sum(), list(m.parameters()), create_graph=False)
        if False
        else [torch.ones_like(p) for p in m.parameters()]
    )
    with torch.no_grad():
        torch._foreach_mul_(list(m.parameters()), 0.9)
        torch._foreach_add_(list(m.parameters()), grads, alpha=-0.1)
        norms = torch._foreach_norm(grads)
    return m(x), torch.stack(norms).norm()


@program(NET)
def module_surgery(m, x):
    return (
        m[:2](x),
        [n for n, _ in m.named_modules()],
        m.get_submodule("2")(m[1](m[0](x))),
        sum(p.numel() for p in m.parameters()),
        {k: v.shape for k, v in m.state_dict().items()},
        m.get_parameter("0.weight").shape,
        next(iter(m.children())).in_features,
    )


class Running(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.tensor(0))
        self.register_buffer("history", torch.zeros(3), persistent=False)
        self.register_parameter("absent", None)
        self.scale = nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, x):
        self.steps += 1
        self.history = torch.roll(self.history, 1)
        self.history[0] = x.detach().mean()
        if self.absent is not None:
            x = x + self.absent
        return x * self.scale * self.steps


@program(lambda: (Running(), *X()))
def module_state(m, x):
    return m(m(x)), m.history


@program(lambda: (nn.Embedding(10, 4, padding_idx=0, max_norm=None), torch.tensor([[1, 0, 3]])))
def embedding_bags(m, ids):
    return m(ids), F.embedding_bag(ids, m.weight, mode="mean"), F.one_hot(ids, 10).float() @ m.weight


@program(lambda: (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True), torch.randn(2, 3, 8)))
def transformer_layer(m, x):
    return m(x, src_mask=nn.Transformer.generate_square_subsequent_mask(3), is_causal=True)


@program(lambda: (nn.Transformer(8, 2, 1, 1, 16, batch_first=True), torch.randn(2, 3, 8), torch.randn(2, 4, 8)))
def encoder_decoder(m, src, tgt):
    return m(src, tgt, tgt_is_causal=False)


@program(X)
def profiled(x):
    with torch.profiler.record_function("block"), torch.autograd.profiler.record_function("inner"):
        return x.softmax(-1)


@program(X)
def profiled_around_a_break(x):
    with torch.profiler.record_function("block"):
        y = x.softmax(-1)
        print(y.shape)
    return y.sin()


@program(X)
def einops_like(x):
    def rearrange(x, pattern, **sizes):
        left, right = (side.split() for side in pattern.split("->"))
        names = [n.strip("()") for n in left]
        known = {n: s for n, s in sizes.items()}
        dims, shape = list(x.shape), []
        for token, dim in zip([left[0], " ".join(left[1:])], dims):
            inner = token.strip("()").split()
            missing = [n for n in inner if n not in known]
            rest = math.prod(known.get(n, 1) for n in inner)
            known.update({n: dim // rest for n in missing})
            shape += [known[n] for n in inner]
        order = [names.index(n.strip("()")) for n in right]
        return x.reshape(shape).permute(order)

    return rearrange(x, "b (h w) -> h b w", h=2)


@program(X)
def linear_algebra(x):
    a = x @ x.mT + 4 * torch.eye(4)
    l = torch.linalg.cholesky(a)
    u, s, vh = torch.linalg.svd(a.detach())
    return (
        torch.linalg.solve(a, x),
        torch.cholesky_solve(x, l),
        torch.logdet(a),
        s,
    )


@program(X)
def spectra(x):
    f = torch.fft.rfft2(x, norm="ortho")
    return (
        torch.fft.irfft2(f * f.abs(), s=x.shape, norm="ortho"),
        f.angle(),
        torch.fft.fftshift(torch.fft.fftfreq(4)),
        torch.view_as_real(f),
    )


@program(X)
def wrapped_functions(x):
    scale, log = 3, []

    def body(a, b=1):
        log.append(b)
        return {"y": a * scale + b + x}

    return (
        wrap(body, x.sin(), b=2),
        wrap(lambda a: wrap(lambda b: b.cos(), a), x),
        wrap_with_set_grad_enabled(False, lambda a: (a * 2, torch.is_grad_enabled()), x),
        wrap_with_autocast("cpu", torch.bfloat16, True, None, torch.mm, x, x),
        log,
    )


@program(X)
def iterators_by_method(x):
    rows, numbered = iter(x), enumerate("ab")
    first = rows.__next__()
    advance = numbered.__next__
    return first, advance(), advance(), rows.__iter__() is rows, "{0[k][1]} {o.shape}".format({"k": [1, 2]}, o=x)


@torch.jit.script_if_tracing
def scripted_if_traced(x, *, scale=2):
    return x * scale


@program(lambda: (torch.randn(4, 4), torch.tensor([1, 0, 2, 3])))
def what_libraries_ask(x, i):
    size = i.sum().item()
    torch._check_is_size(size, max=9)
    with warnings.catch_warnings(record=True) as caught:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            x = scripted_if_traced(x)
    casts = x.to(bool).to(float).sum(0, dtype=int), torch.zeros(2, dtype=complex), x.new_ones(2, dtype=bool)
    table = {torch.ops.aten.sin: 1, torch.sin: 2, torch.ops.aten.sin.default: 3}
    kinds = [type(iter(each)).__name__ for each in ([1], (1,), "ab")]
    asked = torch._C._are_functorch_transforms_active(), torch.autograd._is_checkpoint_valid()
    return x, casts, caught, table[torch.ops.aten.sin], kinds, asked, torch.zeros(size), OPERATORS[torch.ops.aten.cos]


OPERATORS = {torch.ops.aten.sin: 1, torch.ops.aten.cos: 2, torch.cos: 3}
