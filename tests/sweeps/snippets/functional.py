# mypy: ignore-errors
# ruff: noqa
"""Functions of functions: `torch.func`, derivatives of all orders, parametrizations, functions with gradients, modes."""

import contextlib
import functools
import math
import operator
import warnings
from collections import namedtuple
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch import nn
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

from tests.sweeps.snippets.corpus import program

X = lambda: (torch.randn(3, 4),)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    jvp(torch.sin, (torch.ones(1),), (torch.ones(1),))  # the first use warns, in eager PyTorch
MLP = lambda: (nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)), torch.randn(3, 4))


@program(X)
def jacobian_vector_products(x):
    f = lambda v: v.sin() * v.sum()
    value, tangent = jvp(f, (x,), (torch.ones_like(x),))
    (_, aux), _ = jvp(lambda a, b: (a @ b, a.sum()), (x, x.T), (x, x.T.clone()))
    return value, tangent, aux


@program(X)
def forward_jacobians(x):
    return jacfwd(torch.exp)(x[0]), jacfwd(lambda a, b: a * b.sum(), argnums=(0, 1))(x[0], x[1])


@program(X)
def hessians(x):
    f = lambda v: (v**3).sum() + v.prod()
    H = hessian(f)(x[0])
    return H.diagonal(), jacfwd(jacrev(f))(x[1]), torch.trace(H)


@program(MLP)
def laplacian_of_network(m, x):
    u = lambda p: m(p).sum()
    laplacian = lambda p: torch.diagonal(hessian(u)(p), 0).sum()
    return vmap(laplacian)(x)


@program(MLP)
def divergence_of_field(m, x):
    f = lambda p: F.pad(m(p), (0, 2))
    exact = vmap(lambda p: jacrev(f)(p).trace())(x)
    eps = torch.ones_like(x)
    y, pull = vjp(f, x)
    return exact, (pull(eps)[0] * eps).sum(-1), y


@program(MLP)
def ensembles_of_stacked_modules(m, x):
    models = [m, m]
    params = {
        k: torch.stack([dict(n.named_parameters())[k] * (i + 1) for i, n in enumerate(models)])
        for k, _ in m.named_parameters()
    }
    out = vmap(lambda p, x: functional_call(m, p, (x,)), in_dims=(0, None), randomness="same")(params, x)
    return out.mean(0), out.std(0)


@program(MLP)
def neural_tangent_kernel(m, x):
    params = {k: v.detach() for k, v in m.named_parameters()}
    f = lambda p, v: functional_call(m, p, (v[None],))[0]
    jac = vmap(jacrev(f), (None, 0))(params, x)
    jac = [j.flatten(2) for j in jac.values()]
    return torch.stack([torch.einsum("Naf,Mbf->NMab", j, j) for j in jac]).sum(0)


@program(MLP)
def per_sample_norms_clipped(m, x):
    params = dict(m.named_parameters())
    loss = lambda p, v, y: F.mse_loss(functional_call(m, p, (v.unsqueeze(0),)), y.unsqueeze(0))
    g, losses = vmap(grad_and_value(loss), in_dims=(None, 0, 0))(
        {k: v.detach() for k, v in params.items()}, x, torch.zeros(3, 2)
    )
    norms = torch.stack([v.flatten(1).norm(dim=1) for v in g.values()]).norm(dim=0)
    scale = (1.0 / (norms + 1e-6)).clamp(max=1.0)
    return {k: torch.einsum("i,i...->...", scale, v) for k, v in g.items()}, losses


@program(MLP)
def fisher_diagonal(m, x):
    params, buffers = {k: v.detach() for k, v in m.named_parameters()}, dict(m.named_buffers())
    logp = lambda p, v: functional_call(m, (p, buffers), (v[None],)).log_softmax(-1)[0, 0]
    scores = vmap(grad(logp), (None, 0))(params, x)
    return {k: v.square().mean(0) for k, v in scores.items()}


@program(MLP)
def natural_gradient_step(m, x):
    params = tuple(p.detach() for p in m.parameters())
    names = [n for n, _ in m.named_parameters()]
    f = lambda *p: functional_call(m, dict(zip(names, p)), x)
    y, pull = vjp(f, *params)
    v = pull(torch.ones_like(y))
    _, Jv = jvp(f, params, v)
    return [p - 0.1 * d for p, d in zip(params, v)], Jv


@program(X)
def mapped_with_defaults(x):
    f = lambda a, b=2.0, *, scale: a * b * scale
    return (
        vmap(partial(f, scale=3.0))(x),
        vmap(partial(f, scale=1.0), in_dims=1, out_dims=1)(x),
        vmap(lambda a: (a.sum(), {"m": a.max()}), chunk_size=2)(x),
        vmap(torch.dot)(x, x), vmap(vmap(torch.square))(x), vmap(lambda i: x[i])(torch.tensor([2, 0])),
    )  # fmt: skip


@program(X)
def mapped_over_nested_arguments(x):
    Pair = {"a": x, "b": [x + 1, x.sin()]}
    f = lambda d, k: d["a"] * k + d["b"][0] - d["b"][1].sum()
    return vmap(f, in_dims=({"a": 0, "b": [0, None]}, None))(Pair, 2.0)


@program(X)
def mapped_conditions(x):
    step = lambda v: torch.where(v.sum() > 0, v * 2, -v)
    pad = lambda v, n: torch.where(torch.arange(4) < n, v, 0.0)
    return vmap(step)(x), vmap(pad)(x, torch.tensor([1, 2, 3]))


@program(X)
def mapped_lookups(x):
    index = torch.tensor([[0, 1], [2, 2], [3, 0]])
    return (
        vmap(torch.gather, (0, None, 0))(x, 0, index),
        vmap(lambda r, i: r.index_select(0, i))(x, index),
        vmap(F.one_hot, (0, None))(index, 4),
    )


@program(X)
def mapped_solvers(x):
    a = x[:, :, None] * x[:, None] + torch.eye(4)
    return (
        vmap(torch.linalg.det)(a),
        vmap(torch.trace)(a),
        vmap(torch.linalg.matrix_exp)(a),
        vmap(torch.linalg.solve_ex)(a, x)[0],
        vmap(torch.linalg.solve)(a, x),
        vmap(lambda m: torch.linalg.cholesky(m) @ torch.linalg.inv(m))(a),
    )


@program(X)
def derivatives_of_all_orders(x):
    f = lambda v: torch.exp(v) * torch.sin(v)
    out = []
    for _ in range(3):
        f = grad(f)
        out.append(vmap(f)(x[0]))
    return out


@program(X)
def gradients_of_trees(x):
    loss = lambda params, x: ((x @ params["layer"][0] + params["bias"]).relu() ** 2).mean()
    params = {"layer": (torch.ones(4, 2), None)[:1], "bias": torch.zeros(2)}
    g = grad(loss)(params, x)
    new = pytree.tree_map(lambda p, d: p - 0.1 * d, params, g)
    gx, gp = grad(loss, argnums=(1, 0))(new, x)
    return g, new, gx, gp["bias"]


@program(X)
def implicit_fixed_points(x):
    f = lambda z, w: torch.tanh(z * 0.5 + w)
    z = torch.zeros_like(x)
    for _ in range(5):
        z = f(z, x)
    z = z.detach()
    _, pull = vjp(lambda v: f(v, x), z)
    g = torch.ones_like(z)
    adjoint = g
    for _ in range(3):
        adjoint = g + pull(adjoint)[0]
    return z, vjp(lambda w: f(z, w), x)[1](adjoint)[0]


@program(X)
def newton_by_jacobian(x):
    f = lambda v: torch.stack([v[0] ** 2 + v[1] - 1, v[0] - v[1] ** 2, v[2] * 2 - v[3], v[3] + v[0] - 1])
    v = x[0].detach().abs() + 0.5
    for _ in range(2):
        v = v - torch.linalg.solve(jacfwd(f)(v) + 0.01 * torch.eye(4), f(v))
    return v, f(v)


@program(X)
def gradient_penalty(x):
    w = torch.linspace(-1, 1, 4)[:, None]
    critic = lambda v: torch.tanh(v @ w).sum()
    mixed = torch.lerp(x, x.flip(0), torch.rand(3, 1))
    g, score = grad_and_value(critic)(mixed)
    return score, ((g.norm(2, dim=1) - 1) ** 2).mean()


@program(MLP)
def langevin_samples(m, x):
    y = x.detach()
    for _ in range(2):
        g = grad(lambda v: m(v).sum())(y)
        y = (y - 0.1 * g + 0.01 * torch.randn_like(y)).detach()
    return y


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).T

    def right_inverse(self, a):
        return a.triu()


class Scaled(nn.Module):
    def __init__(self, k=2.0):
        super().__init__()
        self.k = nn.Parameter(torch.tensor(k))

    def forward(self, w):
        return w * self.k


def parametrised():
    m = nn.Linear(4, 4)
    parametrize.register_parametrization(m, "weight", Symmetric())
    parametrize.register_parametrization(m, "weight", Scaled())
    parametrize.register_parametrization(m, "bias", Scaled(0.5))
    return m


STACKED = parametrised()
CAYLEY = parametrizations.orthogonal(nn.Linear(4, 4), orthogonal_map="cayley")
SPECTRAL = parametrizations.spectral_norm(nn.Linear(4, 5)).eval()


@program(X)
def parametrizations_stacked(x):
    m = STACKED
    with parametrize.cached():
        y = m(x) + F.linear(x, m.weight)
    return (
        y,
        parametrize.is_parametrized(m, "bias"),
        len(m.parametrizations.weight),
        m.parametrizations.weight.original.shape,
    )


@program(X)
def parametrizations_of_torch(x):
    return (
        CAYLEY(x),
        CAYLEY.weight @ CAYLEY.weight.T,
        SPECTRAL(x),
        torch.linalg.matrix_norm(SPECTRAL.weight.detach(), 2),
    )


@program(lambda: (torch.nn.utils.weight_norm(nn.Linear(4, 4), dim=None), *X()))
def weight_norm_of_old(m, x):
    return m(x), m.weight_g


class Clamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, low=-1.0, high=1.0):
        mask = (x > low) & (x < high)
        ctx.save_for_backward(mask)
        return x.clamp(low, high)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        return g * mask, None, None


@program(X)
def once_differentiable(x):
    return Clamp.apply(x) + Clamp.apply(x, -0.5)


class Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b, activation):
        z = x @ w.T + b
        ctx.save_for_backward(x, w, z)
        ctx.activation = activation
        ctx.shape = x.shape
        return {"relu": torch.relu, "id": lambda v: v.clone()}[activation](z), z.detach()

    @staticmethod
    def backward(ctx, g, _):
        x, w, z = ctx.saved_tensors
        if ctx.activation == "relu":
            g = g * (z > 0)
        gx = g @ w if ctx.needs_input_grad[0] else None
        return gx, g.T @ x, g.sum(0), None


@program(lambda: (nn.Linear(4, 5), *X()))
def fused_linear(m, x):
    y, z = Fused.apply(x, m.weight, m.bias, "relu")
    return y, z, Fused.apply(x, m.weight, m.bias, "id")[0].sum()


class MappedFunction(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.cube() if hasattr(x, "cube") else x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g


@program(X)
def functions_under_transforms(x):
    return vmap(MappedFunction.apply)(x), grad(lambda v: MappedFunction.apply(v).sum())(x), MappedFunction.apply(x)


@program(MLP)
def checkpoint_with_arguments(m, x):
    def block(x, scale, *, flag, extra=None):
        return m(x) * scale + (x.sum() if flag else 0)

    y = checkpoint(block, x, 2.0, flag=True, use_reentrant=False)
    return checkpoint(m[1], y, use_reentrant=False, preserve_rng_state=False), checkpoint(
        lambda *a: a[0] + a[1], y, y, use_reentrant=False
    )


@program(MLP)
def checkpoint_with_randomness(m, x):
    f = lambda v: F.dropout(m(v).relu(), 0.5)
    return checkpoint(f, x, use_reentrant=False) + checkpoint(f, x, use_reentrant=False)


@program(MLP)
def autocast_nested(m, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = m(x)
        with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False):
            b = m[0](x)
        with torch.autocast("cpu", enabled=False):
            c = m[2](m[1](m[0](x.float())))
        d = torch.cat([a, c]).softmax(-1)
    return a, b, c, d, torch.get_autocast_dtype("cpu"), torch.is_autocast_enabled("cpu")


@torch.amp.autocast("cpu", dtype=torch.bfloat16)
def low_precision(x, w):
    return x @ w


@program(X)
def autocast_as_decorator(x):
    y = low_precision(x, x.T)
    return y, F.mse_loss(y.float(), torch.zeros(3, 3)), low_precision.__name__


class Amp(torch.autograd.Function):
    @staticmethod
    @partial(torch.amp.custom_fwd, device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @partial(torch.amp.custom_bwd, device_type="cpu")
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.T, x.T @ g


@program(X)
def custom_forward_of_amp(x):
    with torch.autocast("cpu", torch.bfloat16):
        return Amp.apply(x, x.T)


@program(MLP)
def grad_modes_as_decorators(m, x):
    @torch.no_grad()
    def target(x):
        return m(x) * 2

    @torch.enable_grad()
    def online(x):
        return m(x)

    @torch.set_grad_enabled(False)
    def frozen(x):
        return m(x).sum()

    def gen():
        with torch.no_grad():
            yield m(x)

    (t,) = gen()
    return F.mse_loss(online(x), target(x)), frozen(x).requires_grad, t.requires_grad, torch.is_grad_enabled()


@program(MLP)
def frozen_and_requires_grad(m, x):
    base = m[0](x).detach()
    flags = [p.requires_grad for p in m.parameters()]
    y = m[2](m[1](base))
    return y, flags, base.is_leaf, m[0].weight.is_leaf


@program(X)
def hooks_on_tensors(x):
    y = x * 2
    for scale in (0.5, 3.0):
        y.register_hook(functools.partial(torch.mul, other=scale))
    return (y**2).sum()


class FunctionMode(torch.overrides.TorchFunctionMode):
    def __init__(self, log):
        super().__init__()
        self.log = log

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.log.append(getattr(func, "__name__", "?"))
        return func(*args, **(kwargs or {}))


@program(X)
def operators_counted(x):
    log = []
    with FunctionMode(log):
        y = torch.relu(x).sum(0) * 2
    return y, log


class Units(torch.Tensor):
    @staticmethod
    def __new__(cls, data, unit="m"):
        t = torch.Tensor._make_subclass(cls, data)
        t.unit = unit
        return t

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        units = [a.unit for a in pytree.tree_leaves(args) if isinstance(a, Units) and hasattr(a, "unit")]
        if isinstance(out, Units) and units:
            out.unit = "*".join(units) if func is torch.mul else units[0]
        return out


@program(lambda: (Units(torch.randn(3)), Units(torch.randn(3), "s")), grad=False)
def tensors_with_units(a, b):
    c = torch.mul(a, b)
    return c.as_subclass(torch.Tensor), c.unit, (a + 1).unit


class Ragged:
    """Not a tensor, but a type that PyTorch's functions know through ``__torch_function__``."""

    def __init__(self, rows):
        self.rows = rows

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        (first, *rest) = args
        return cls([func(r, *rest, **(kwargs or {})) for r in first.rows])


@program(X)
def types_with_torch_function(x):
    return torch.sum(torch.mul(Ragged([x, x[:2]]), 2), dim=0).rows


@torch.library.custom_op("functional_snippets::bump", mutates_args={"x"})
def bump(x: torch.Tensor, by: float) -> None:
    x.add_(by)


@torch.library.custom_op("functional_snippets::pair", mutates_args=())
def pair(x: torch.Tensor, n: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    return x * n, x.sum()


@pair.register_fake
def _(x, n=2):
    return torch.empty_like(x), x.new_empty(())


@program(X, grad=False)
def operators_that_mutate(x):
    y = x.clone()
    bump(y, 1.5)
    torch.ops.functional_snippets.bump(y[0], 1.0)
    return y, pair(y)[1], torch.ops.functional_snippets.pair.default(y, 3)[0]


@program(X)
def conditions_nested(x):
    inner = lambda a: torch.cond(a.mean() > 0, torch.sin, torch.cos, (a,))
    return torch.cond(x.size(0) > 2, lambda a: inner(a) * 2, lambda a: a, (x,))


@program(lambda: (torch.randn(5, 3),), grad=False)
def associative_scans(x):
    from torch._higher_order_ops.associative_scan import associative_scan

    linear = lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1])
    return associative_scan(torch.add, x, dim=0, combine_mode="generic"), associative_scan(
        linear, (x.sigmoid(), x), 0, combine_mode="generic"
    )


@program(lambda: (torch.randn(4), torch.tensor(0)), grad=False)
def loops_of_tensors(x, i):
    from torch._higher_order_ops.while_loop import while_loop

    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 0.5 + i), (i, x))


@program(X)
def trees_with_paths(x):
    tree = {"a": [x, 2], "b": (x.sin(), {"c": None})}
    named = {pytree.keystr(k): v for k, v in pytree.tree_leaves_with_path(tree) if isinstance(v, torch.Tensor)}
    total = functools.reduce(operator.add, [v.sum() for v in named.values()])
    return named, total, pytree.tree_structure(tree) == pytree.tree_structure(tree)


@program(MLP)
def modules_as_functions(m, x):
    w = torch.cat([p.flatten() for p in m.parameters()])

    def unflatten(v):
        out, i = {}, 0
        for n, p in m.named_parameters():
            out[n] = v[i : i + p.numel()].view_as(p)
            i += p.numel()
        return out

    return functional_call(m, unflatten(w * 0.5), x), functional_call(m, {"0.bias": torch.zeros(6)}, (x,), strict=False)


@program(MLP)
def meta_learned_steps(m, x):
    params = dict(m.named_parameters())
    loss = lambda p: functional_call(m, p, (x,)).square().mean()
    losses = []
    for _ in range(2):
        g, value = grad_and_value(loss)(params)
        losses.append(value)
        params = {k: p - 0.1 * g[k] for k, p in params.items()}
    return loss(params), losses


@program(X)
def stop_gradients(x):
    sg = torch.Tensor.detach
    quantised = (x * 4).round() / 4
    return x + sg(quantised - x), (sg(x) * x).sum(), x.clone().detach().mean()


@program(X)
def composed_transforms(x):
    value = lambda s: (s.sin() * s).sum()
    advantage = vmap(grad(value), in_dims=1, out_dims=1)
    return advantage(x), jacrev(lambda s: vmap(torch.sin)(s).sum(0))(x)


@program(MLP)
def directional_derivatives(m, x):
    directions = torch.eye(4)
    along = lambda v: jvp(m, (x,), (v.expand_as(x),))[1]
    return torch.stack([along(d) for d in directions], -1), vmap(along)(directions)
