"""Compares autograd around a compiled function with autograd around the function itself.

Each program takes `c`, which compiles a function or returns it unchanged, and returns what is compared.  Errors are
compared as well.
"""

from __future__ import annotations

import itertools
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import nn
from torch.autograd import grad
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint

import compiler_core
from compiler_core.tools.testing import check, difference
from tests.sampling import pairs

PROGRAMS: dict[str, Callable[[Any], Any]] = {}


def program(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS[function.__name__] = function
    return function


def outcome(function: Callable[[Any], Any], compile_: Callable[[Any], Any]) -> Any:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(compile_)
        except Exception as error:
            return error


def t(*shape: int, requires_grad: bool = True) -> torch.Tensor:
    return torch.randn(shape).requires_grad_(requires_grad)


def one(x, w):
    return (x @ w).sin().relu()


def two(x, w):
    return (x * w).sin(), (x + w).cos()


def gradients(*tensors: torch.Tensor) -> list[torch.Tensor | None]:
    return [t.grad for t in tensors]


# ---- hooks ---------------------------------------------------------------------------------


@program
def hook_on_an_output(c):
    f, x, w, log = c(one), t(3, 3), t(3, 3), []
    y = f(x, w)
    y.register_hook(lambda g: (log.append(g.clone()), g * 2)[1])
    y.sum().backward()
    return log, gradients(x, w)


@program
def hook_on_a_leaf_and_without_it(c):
    f, x, w = c(one), t(3, 3), t(3, 3)
    hook = x.register_hook(lambda g: g * 2)
    f(x, w).sum().backward()
    hook.remove()
    f(x, w).sum().backward()
    return gradients(x, w)


@program
def hook_on_an_input_that_is_no_leaf(c):
    f, x, w = c(one), t(3, 3), t(3, 3)
    v = x * 1
    v.retain_grad()
    v.register_hook(lambda g: g * 3)
    f(v, w).sum().backward()
    return gradients(v, x, w)


@program
def hook_after_accumulation(c):
    f, x, w, log = c(one), t(3, 3), t(3, 3), []
    x.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.clone()))
    f(x, w).sum().backward()
    return log, gradients(x, w)


@program
def hook_on_the_node(c):
    f, x, w = c(one), t(3, 3), t(3, 3)
    y = f(x, w)
    y.grad_fn.register_prehook(lambda g: (g[0] * 2,))
    y.sum().backward()
    return gradients(x, w)


@program
def gradient_of_an_output_retained(c):
    f, x, w = c(two), t(3), t(3)
    a, b = f(x, w)
    a.retain_grad()
    (a * 2 + b).sum().backward()
    return gradients(a, x, w)


# ---- which outputs, which inputs, how often ------------------------------------------------


@program
def backward_through_one_output(c):
    f, x, w = c(two), t(3), t(3)
    f(x, w)[0].sum().backward()
    return gradients(x, w)


@program
def backward_through_outputs_one_by_one(c):
    f, x, w = c(two), t(3), t(3)
    a, b = f(x, w)
    a.sum().backward()
    b.sum().backward()
    return gradients(x, w)


@program
def backward_twice(c):
    y = c(one)(t(3, 3), t(3, 3)).sum()
    y.backward()
    y.backward()


@program
def backward_twice_through_one_of_two(c):
    a, _ = c(two)(t(3), t(3))
    a.sum().backward()
    a.sum().backward()


@program
def graph_retained(c):
    f, x, w = c(one), t(3, 3), t(3, 3)
    y = f(x, w).sum()
    y.backward(retain_graph=True)
    y.backward()
    return gradients(x, w)


@program
def grad_of_some_inputs(c):
    f, x, w = c(two), t(3), t(3)
    a, b = f(x, w)
    return grad(a.sum(), [x], retain_graph=True), grad(b, [w], torch.ones(3)), gradients(x, w)


@program
def grad_of_an_unused_input(c):
    x, y = t(3), t(3)
    z = c(lambda x, y: x * 2)(x, y).sum()
    return grad(z, [x, y], allow_unused=True, retain_graph=True), grad(z, [x, y], materialize_grads=True)


@program
def grad_of_an_unused_input_not_allowed(c):
    x, y = t(3), t(3)
    return grad(c(lambda x, y: x * 2)(x, y).sum(), [x, y])


@program
def grad_from_an_edge(c):
    f, x, w = c(two), t(3), t(3)
    edge = torch.autograd.graph.get_gradient_edge(f(x, w)[0])
    return grad([edge], [x], [torch.ones(3)])


@program
def backward_into_some_inputs(c):
    f, x, w = c(one), t(3, 3), t(3, 3)
    f(x, w).sum().backward(inputs=[w])
    return gradients(x, w)


@program
def gradients_of_a_batch(c):
    f, x, w = c(one), t(3, 3), t(3, 3)
    return grad(f(x, w), [x, w], torch.eye(9).view(9, 3, 3), is_grads_batched=True)


@program
def gradients_of_a_batch_laid_out_otherwise(c):
    x = t(3, 4)
    y, _ = c(lambda x: (x.t().sin(), x.cos()))(x)
    return [g.contiguous() for g in grad(y, x, torch.eye(12).view(12, 4, 3), is_grads_batched=True)]


@program
def vmap_over_grad(c):
    f, x, w = c(one), t(3, 3), t(3, 3)
    y = f(x, w)
    return torch.vmap(lambda v: grad(y, [x, w], v, retain_graph=True))(torch.eye(9).view(9, 3, 3))


@program
def jacobians(c):
    f, at = c(one), (t(3, 3, requires_grad=False), t(3, 3, requires_grad=False))
    jacobian = torch.autograd.functional.jacobian
    return jacobian(f, at), jacobian(f, at, vectorize=True)


@program
def one_tensor_for_two_inputs(c):
    x = t(3, 3)
    c(one)(x, x).sum().backward()
    return x.grad


@program
def gradients_accumulate(c):
    f, x, w = c(one), t(3, 3), t(3, 3)
    for _ in range(3):
        f(x, w).sum().backward()
    return gradients(x, w)


@program
def gradients_are_tensors_of_their_own(c):
    x, y, given = t(3), t(3), torch.ones(3)
    c(lambda x, y: x + y)(x, y).backward(given)
    x.grad.add_(1)
    return gradients(x, y), given


@program
def gradient_handed_in_expanded_transposed_and_cut(c):
    f, x, w = c(one), t(3, 3), t(3, 3)
    f(x, w).backward(torch.ones(1).expand(3, 3))
    f(x, w).backward(t(3, 3, requires_grad=False).t())
    f(x, w).backward(t(3, 6, requires_grad=False)[:, ::2])
    return gradients(x, w)


@program
def backward_in_another_thread(c):
    f, x, w = c(one), t(3, 3), t(3, 3)
    thread = threading.Thread(target=f(x, w).sum().backward)
    thread.start()
    thread.join()
    return gradients(x, w)


# ---- requires_grad, grad modes -------------------------------------------------------------


@program
def other_inputs_require_gradients(c):
    f, found = c(one), []
    for of_x, of_w in ((True, True), (True, False), (False, True), (False, False), (True, True)):
        x, w = t(3, 3, requires_grad=of_x), t(3, 3, requires_grad=of_w)
        y = f(x, w)
        if y.requires_grad:
            y.sum().backward()
        found.append((y.detach(), y.requires_grad, gradients(x, w)))
    return found


@program
def requires_grad_toggled(c):
    f, x, w, found = c(one), t(3, 3), t(3, 3), []
    for flag in (True, False, True, False):
        x.requires_grad_(flag)
        w.requires_grad_(not flag)
        f(x, w).sum().backward()
        found.append([None if g is None else g.clone() for g in gradients(x, w)])
    return found


@program
def layers_frozen_by_turns(c):
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    f, x, found = c(model), t(2, 3, requires_grad=False), []
    for i in range(4):
        model[0].requires_grad_(i % 2 == 0)
        model.zero_grad()
        f(x).sum().backward()
        found.append([None if p.grad is None else p.grad.clone() for p in model.parameters()])
    return found


@program
def grad_modes_by_turns(c):
    f, x, w = c(one), t(3, 3), t(3, 3)
    with torch.no_grad():
        off = f(x, w)
    on = f(x, w)
    with torch.inference_mode():
        inference = f(x, w)
    return off, on.requires_grad, inference.is_inference(), f(x, w).requires_grad


@program
def flags_of_outputs(c):
    outputs = c(lambda x, y: (x * 2, y * 2, x.detach(), x > 0, x.long(), y))(t(3), t(3, requires_grad=False))
    return [(o.requires_grad, o.is_leaf, o.dtype) for o in outputs]


@program
def inference_tensor_where_a_gradient_is_wanted(c):
    with torch.inference_mode():
        x = t(3, 3, requires_grad=False)
    w = t(3, 3)
    c(one)(x, w).sum().backward()
    return w.grad


# ---- aliases and writes --------------------------------------------------------------------


@program
def inputs_and_their_views_returned(c):
    x = t(2, 3)
    a, b, d = c(lambda x: (x, x.view(-1), x[0]))(x)
    b.sum().backward()
    return a is x, b._base is x, d._base is x, x.grad


@program
def output_written_through_its_view(c):
    x = t(2, 3)

    def function(x):
        y = x * 2
        return y, y.view(-1)

    a, b = c(function)(x)
    b.mul_(3)
    a.sum().backward()
    return a, b, x.grad


@program
def input_written_through_a_view_that_was_returned(c):
    z = t(2, 3)
    x = z * 1
    v, s = c(lambda x: (x.view(-1), x.sum()))(x)
    v.mul_(3)
    (x.sum() + s).backward()
    return v, z.grad


@program
def one_of_several_views_written(c):
    a, _ = c(lambda x: (x * 2).chunk(2))(t(4, 3))
    a.mul_(2)


@program
def input_written(c):
    z = t(3)
    x = z * 1

    def function(x):
        x.mul_(2)
        return x.sin()

    y = c(function)(x)
    (y.sum() + x.sum()).backward()
    return x, z.grad, x._version


@program
def leaf_written(c):
    def function(x):
        x.mul_(2)
        return x.sin()

    c(function)(t(3))


@program
def input_written_that_shares_memory(c):
    def function(x, y):
        x.mul_(2)
        return y + 1

    base = torch.arange(6.0)
    return c(function)(base[:4], base[2:]), base


@program
def input_changed_before_the_backward(c):
    x = t(3) * 1
    y = c(lambda x: x.sin())(x)
    x.add_(1)
    y.sum().backward()


@program
def input_changed_before_a_backward_that_does_not_read_it(c):
    z = t(3)
    x = z * 1
    y = c(lambda x: x + 1)(x)
    x.add_(1)
    y.sum().backward()
    return z.grad


@program
def shapes_changed_in_place(c):
    x, y = t(2, 3, requires_grad=False), t(2, 3, requires_grad=False)
    return c(lambda x: (x.t_(), x * 2))(x), x, c(lambda x: x.unsqueeze_(0) * 2)(y), y


@program
def shape_changed_in_place_under_autograd(c):
    z = t(2, 3)
    x = z * 1
    _, y = c(lambda x: (x.transpose_(0, 1), x * 2))(x)
    y.sum().backward()
    return x, y, z.grad


@program
def memory_exchanged(c):
    def function(x, y):
        x.set_(y)
        return x * 2

    x, y = t(2, 3, requires_grad=False), t(4, requires_grad=False)
    found = c(function)(x, y)
    y.add_(1)
    return found, x


@program
def resized(c):
    x = t(2, 3, requires_grad=False)
    return c(lambda x: x.resize_(3, 2) * 2)(x), x


# ---- autocast, functions -------------------------------------------------------------------


@program
def autocast_inside(c):
    def function(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (x @ w).sin().float().sum()

    x, w = t(3, 3), t(3, 3)
    y = c(function)(x, w)
    y.backward()
    return y, gradients(x, w)


@program
def autocast_around(c):
    f, found = c(lambda x, w: (x @ w).sin()), []
    for dtype, enabled in ((torch.bfloat16, True), (torch.bfloat16, False), (torch.float16, True)):
        x, w = t(3, 3), t(3, 3)
        with torch.autocast("cpu", dtype=dtype, enabled=enabled):
            y = f(x, w)
        y.float().sum().backward()
        found.append((y, gradients(x, w)))
    return found


class Seven(torch.autograd.Function):
    """A function whose backward is not its derivative."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 7 * x


@program
def function_of_the_users(c):
    x = t(3)
    y = c(lambda x: Seven.apply(x.sin()) + 1)(x)
    y.sum().backward()
    return y, x.grad


@program
def sparse_gradient(c):
    table = nn.Embedding(5, 3, sparse=True)
    c(lambda i: table(i).sin().sum())(torch.tensor([1, 2, 2])).backward()
    return table.weight.grad.to_dense(), table.weight.grad.is_sparse


@program
def complex_gradient(c):
    x = torch.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    c(lambda x: (x * x.conj()).real.sum())(x).backward()
    return x.grad


@program
def integer_outputs(c):
    x = t(5)
    (values, indices), order = c(lambda x: (x.topk(2), x.argsort()))(x)
    values.sum().backward()
    return values, indices, order, x.grad


# ---- gradients of gradients, forward mode, transforms --------------------------------------


@program
def second_derivative(c):
    x = t(3)
    (g,) = grad(c(lambda x: (x.sin() * x).sum())(x), x, create_graph=True)
    return g, grad((g * g).sum(), x)


@program
def third_derivative(c):
    x = t(3)
    g, found = c(lambda x: (x**4).sum())(x), []
    for _ in range(3):
        (g,) = grad(g.sum(), x, create_graph=True)
        found.append(g)
    return found


@program
def hessian(c):
    return torch.autograd.functional.hessian(c(lambda x: (x.sin() * x).sum()), t(3, requires_grad=False))


@program
def forward_mode(c):
    f, x, w = c(one), t(3, 3, requires_grad=False), t(3, 3, requires_grad=False)
    f(x, w)  # compiled before there are tangents
    with forward_ad.dual_level():
        return tuple(forward_ad.unpack_dual(f(forward_ad.make_dual(x, torch.ones(3, 3)), w)))


@program
def forward_mode_in_the_function(c):
    def within(x, broken):
        with forward_ad.dual_level():
            y = forward_ad.make_dual(x, torch.ones(3)).sin()
            if broken:
                print(end="")
            return tuple(forward_ad.unpack_dual(y * 2)), y

    f, x = c(within), t(3, requires_grad=False)
    return f(x, False), f(x, True)


@program
def forward_mode_of_what_is_new(c):
    f, x = c(lambda x: forward_ad.unpack_dual(x * 2).tangent), t(3, requires_grad=False)
    with forward_ad.dual_level():
        return f(forward_ad.make_dual(x, torch.ones(3)))


@program
def forward_mode_beside_backward(c):
    f, x, w = c(one), t(3, 3), t(3, 3)
    f(x, w)
    with forward_ad.dual_level():
        value, tangent = forward_ad.unpack_dual(f(forward_ad.make_dual(x, torch.ones(3, 3)), w))
        (value.sum() + tangent.sum()).backward()
        return value, tangent, gradients(x, w)


@program
def transforms(c):
    f, x = c(lambda x: (x.sin() * 2).sum()), t(3, requires_grad=False)
    f(x)
    rows = torch.stack([x, x + 1])
    return (
        torch.func.grad(f)(x),
        torch.vmap(f)(rows),
        torch.func.jvp(f, (x,), (torch.ones(3),)),
        torch.func.jacfwd(f)(x),
    )


# ---- what is saved -------------------------------------------------------------------------


@program
def hooks_on_saved_tensors(c):
    f, x, w = c(one), t(3, 3), t(3, 3)
    with torch.autograd.graph.saved_tensors_hooks(lambda s: s.detach().clone(), lambda s: s):
        y = f(x, w)
    y.sum().backward()
    return gradients(x, w)


@program
def hooks_on_saved_tensors_that_lay_them_out_otherwise(c):
    f, base, found = c(lambda x: (x.sin() * x.exp()).cos()), t(6, 10, requires_grad=False), []
    around = torch.autograd.graph.saved_tensors_hooks
    for lay_out in (torch.Tensor.contiguous, lambda s: s.t().contiguous().t()):
        for x in (base.t().detach().requires_grad_(), base[:, ::2].detach().requires_grad_()):
            with around(lambda s: s, lay_out):
                y = f(x)
            y.sum().backward()
            found.append(x.grad)
    return found


@program
def hooks_on_saved_tensors_see_no_tensor_of_the_compilers(c):
    f, x, w, seen = c(one), t(3, 3), t(3, 3), set()
    with torch.autograd.graph.saved_tensors_hooks(lambda s: (seen.add(type(s)), s)[1], lambda s: s):
        f(x, w).sum().backward()
    return seen


@program
def hooks_on_saved_tensors_not_allowed(c):
    f, x, w = c(one), t(3, 3), t(3, 3)
    with torch.autograd.graph.disable_saved_tensors_hooks("no"):
        f(x, w).sum().backward()
    return gradients(x, w)


@program
def saved_tensors_may_be_changed(c):
    f, x, w = c(one), t(3, 3), t(3, 3)
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        v = x * 1
        y = f(v, w)
        v.add_(5)
        y.sum().backward()
    return gradients(x, w)


@program
def checkpoints(c):
    f, x, w = c(one), t(3, 3), t(3, 3)
    for reentrant in (False, True, False):
        checkpoint(lambda a, b: (f(a, b) * 2).tanh() @ f(b, a), x, w, use_reentrant=reentrant).sum().backward()
    return gradients(x, w)


@program
def checkpoint_of_a_model(c):
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.BatchNorm1d(3)), t(4, 3)
    checkpoint(c(model), x, use_reentrant=False).sin().sum().backward()
    return x.grad, [p.grad for p in model.parameters()], list(model.buffers())


@program
def anomaly(c):
    x = torch.zeros(3, requires_grad=True)
    with torch.autograd.detect_anomaly():
        c(lambda x: x.sqrt() * 0)(x).sum().backward()


# ---- gradients and saved tensors that are not what the backward was compiled for -------------------------------------


def rows(*values: float) -> torch.Tensor:
    """Returns a sparse gradient for a 4 by 3 result."""
    with torch.sparse.check_sparse_tensor_invariants(True):
        return torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.tensor(values).reshape(2, 1).expand(2, 3), (4, 3))


@program
def gradient_that_is_sparse(c):
    w = t(4, 3)
    c(lambda w: w.sin().cos())(w).backward(rows(1.0, 2.0))
    return w.grad.layout, w.grad.to_dense()


def with_own_kernels(of: torch.Tensor) -> TwoTensor:
    """Returns a tensor without memory, whose class computes with two others."""
    return TwoTensor(of, of * 2)


@program
def gradients_of_a_class_with_its_own_kernels(c):
    w, v, found = t(4, 3), t(3, 4), []
    functions = [lambda w: w.sin().cos(), lambda w: (w * 2, w.exp()), lambda w: (w * torch.rand(4, 3)).sin()]
    for compiled in map(c, functions):
        for argument, create_graph in [(w, False), (w, True), (v.t(), False)]:
            y = compiled(argument)
            results = y if isinstance(y, tuple) else [y]
            tangents = [with_own_kernels(torch.ones_like(y)) for y in results]
            found += grad(results, argument, tangents, create_graph=create_graph)
    return [(g.a, g.b) for g in found]


@program
def gradient_of_a_class_with_torch_function(c):
    def called(cls, func, types, args=(), kwargs=None):
        raise AssertionError("autograd calls no functions of Python")

    labelled = type("Labelled", (torch.Tensor,), {"__torch_function__": classmethod(called)})
    w = t(4, 3)
    y = c(lambda w: w.sin().cos())(w)
    with torch._C.DisableTorchFunctionSubclass():
        tangent = torch.ones(8, 3).as_subclass(labelled)[::2]
    return grad(y, w, tangent)


@program
def sparse_gradient_of_embedding_of_a_computed_weight(c):
    w = t(10, 3)
    nn.functional.embedding(torch.tensor([1, 2, 1]), c(lambda w: w * 2 + 1)(w), sparse=True).sum().backward()
    return w.grad.layout, w.grad.to_dense()


@program
def sparse_gradient_among_others(c):
    w, v = t(4, 3), t(3, 3)
    y, z = c(lambda w, v: (w * 2, (w @ v).sin()))(w, v)
    torch.autograd.backward([y, z], [rows(1.0, 2.0), torch.ones(4, 3)])
    return w.grad.to_dense(), v.grad


@program
def sparse_gradient_added_to_a_dense_one(c):
    w = t(4, 3)
    c(lambda w: w.cos() * w.sum(1, keepdim=True))(w).backward(rows(1.0, 2.0))
    return w.grad.to_dense()


@program
def sparse_gradient_twice(c):
    w = t(4, 3)
    y = c(lambda w: w.sin())(w)
    y.backward(rows(1.0, 2.0), retain_graph=True)
    y.backward(rows(3.0, 4.0))
    y.backward(rows(3.0, 4.0))


@program
def sparse_gradient_where_the_graph_cannot_run_again(c):
    w = t(4, 3)
    c(lambda w: nn.functional.dropout(w * 2, 0.5) + 0)(w).backward(rows(1.0, 2.0))
    return w.grad.to_dense()


def saved_as(unpack: Callable[[torch.Tensor], Any], function: Callable[..., Any] | None = None) -> Any:
    function = function or (lambda w: w.exp() * 2)

    def run(c):
        w = t(4, 3)
        compiled = c(function)
        for _ in range(2):
            with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, unpack):
                y = compiled(w)
            y.backward(torch.ones_like(y))
        compiled(w).sum().backward()
        return w.grad

    return run


SAVED = {
    "double": lambda saved: saved.double(),
    "half": lambda saved: saved.half(),
    "int": lambda saved: saved.int(),
    "other_strides": lambda saved: saved.t().contiguous().t(),
    "fewer_rows": lambda saved: saved[:1],
    "expanded": lambda saved: saved[:1, :1].expand(4, 3),
    "more_rows": lambda saved: torch.cat([saved, saved]),
    "on_another_device": lambda saved: saved.to("meta"),
    "sparse": lambda saved: saved.to_sparse().to_dense(),
    "negative": torch._neg_view,
    "within_a_larger_one": lambda saved: torch.cat([saved, saved])[4:],
    "nothing": lambda saved: None,
    "two": lambda saved: with_own_kernels(saved.detach()),
}
for name, unpack in SAVED.items():
    PROGRAMS[f"saved_{name}"] = saved_as(unpack)
PROGRAMS["saved_double_by_sin"] = saved_as(SAVED["double"], lambda w: torch.sin(w))
PROGRAMS["saved_double_by_several"] = saved_as(SAVED["double"], lambda w: torch.sin(w) * torch.exp(w) + w.cos())


# ---- writes to an input, in the graph and again before the backward -------------------------

WRITES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "no_grad": lambda x, w: (torch.no_grad()(x.mul_)(2), (x * w).sin())[1],
    "detach": lambda x, w: (x.detach().mul_(2), (x * w).sin())[1],
    "data": lambda x, w: (x.data.mul_(2), (x * w).sin())[1],
    "data_used_before": lambda x, w: ((x * w).sin(), x.data.mul_(2))[0],
    "data_and_no_grad": lambda x, w: (x.data.mul_(2), (x * w).sin(), torch.no_grad()(x.add_)(1))[1],
}


def written_again(function, leaf, again):
    def run(c):
        start, w = t(3), t(3)
        x = start if leaf else start * 1
        y = c(function)(x, w)
        if again:
            with torch.no_grad():
                x.add_(1)
        y.sum().backward()
        return x.detach(), x._version, gradients(start, w)

    return run


for name, write in WRITES.items():
    for leaf, again in itertools.product((True, False), repeat=2):
        PROGRAMS[f"written_by_{name}_{leaf}_{again}"] = written_again(write, leaf, again)


DETACHED: dict[str, Callable[[torch.Tensor], Any]] = {
    "detach": lambda x: (x.sum(), x.log().detach()),
    "data": lambda x: (x.sum(), x.rsqrt().data),
    "two views": lambda x: (x.sum(), (y := x.log()).detach().view(-1), y.detach()),
    "norm": lambda x: (x.sum(), x.norm(dim=-1).detach()),
    "standard deviation": lambda x: (x.sum(), x.std(-1).detach()),
}


@pytest.mark.parametrize("program", DETACHED.values(), ids=DETACHED)
def test_nothing_flows_back_through_what_is_returned_without_history(program: Callable[[torch.Tensor], Any]) -> None:
    """A gradient of zeros would: 0 times the infinite slope of a logarithm at 0 is NaN."""
    check(program, lambda: (torch.zeros(2, 3),), grad=True, backend="aot_eager")


ABSENT: dict[str, Callable[[torch.Tensor], Any]] = {
    "slope": lambda x: ((y := x * 2).sum(), y.log().sum()),
    "three": lambda x: ((y := x * 2).sum(), y.log().sum(), (y - 1).log().sum()),
    "product": lambda x: (x.sum(), (x / x) @ x.T),
    "parts": lambda x: ((y := x + 1)[0].sum(), (y - 1)[1:].rsqrt().sum(), torch.cat([y, x.log()]).sum()),
    "tuple": lambda x: (*(x * 3).unbind(), x.log().sum()),
    "view of a view": lambda x: ((y := x.log()).view(-1)[1:], y[0].detach(), x.sum()),
}


@pytest.mark.parametrize(("name", "backend"), pairs(ABSENT, ["aot_eager", "cpp"], 2))
def test_nothing_flows_back_through_results_that_the_loss_does_not_use(name: str, backend: str) -> None:
    """Gradients of zeros would become NaN where slopes are infinite."""
    compiled = compiler_core.compile(ABSENT[name], backend=backend, strict=True)
    for size in ((2, 3), (2, 3), (4, 5)):
        count = len(ABSENT[name](torch.zeros(size)))
        for used in itertools.product([False, True], repeat=count):
            gradients = []
            for function in (ABSENT[name], compiled):
                x = torch.zeros(size).requires_grad_()
                losses = [r.sum() for r, use in zip(function(x), used, strict=True) if use and r.requires_grad]
                if losses:
                    torch.stack(losses).sum().backward()
                gradients.append(x.grad)
            assert difference(gradients[0], gradients[1], 1e-6) is None, used


class Squared(torch.autograd.Function):
    """Counts how often its backward runs."""

    calls = 0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        Squared.calls += 1
        x: torch.Tensor = ctx.saved_tensors[0]
        return 2 * x * gradient


def without_gradient(y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        scale = y.abs().max()
    return (w * scale).sin()


UNREACHED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "detach": lambda y, w: (y.detach() * w).sin(),
    "no_grad": without_gradient,
    "comparison": lambda y, w: (w * (y > 0)).sin(),
    "position": lambda y, w: w[:, y.argmax(-1)].sin(),
    "shape": lambda y, w: (w * y.shape[0] + torch.zeros_like(y)).sin(),
    "copy": lambda y, w: (y.detach().clone().add_(1) * w).sin(),
}
"""Functions of two tensors, of which the first gets no gradient."""


@pytest.mark.parametrize("backend", ["aot_eager", "cpp"])
@pytest.mark.parametrize("name", UNREACHED)
def test_nothing_flows_back_to_an_input_that_gets_no_gradient(name: str, backend: str) -> None:
    """As a discriminator's step: the generator's graph is still there for the generator's own step."""
    found = []
    for function in (UNREACHED[name], compiler_core.compile(UNREACHED[name], backend=backend, strict=True)):
        torch.manual_seed(0)
        Squared.calls = 0
        seen: list[Any] = []
        x, w = t(3, 3), t(3, 3)
        y = Squared.apply(x)
        y.register_hook(seen.append)
        function(y, w).sum().backward()
        found.append([Squared.calls, len(seen), *gradients(x, w)])
        y.sum().backward()
        found[-1] += [Squared.calls, len(seen), *gradients(x, w)]
    assert found[0][0] == 0
    assert difference(found[0], found[1], 1e-5) is None


@pytest.mark.parametrize(("name", "backend"), pairs(PROGRAMS, ["aot_eager", "cpp"], 2))
def test_same_as_eager(name: str, backend: str) -> None:
    want = outcome(PROGRAMS[name], lambda function: function)
    got = outcome(PROGRAMS[name], lambda function: compiler_core.compile(function, backend=backend))
    if isinstance(want, Exception) or isinstance(got, Exception):
        assert (type(got), str(got)) == (type(want), str(want))
    else:
        assert difference(want, got, 1e-5) is None
