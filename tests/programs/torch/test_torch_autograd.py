# mypy: ignore-errors
# ruff: noqa
"""Programs over autograd: leaves made in the frame, backward and grad inside, autograd.Function.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import functools

import pytest
import torch
import torch.nn as nn
from torch.autograd import Function

from compiler_core.tools.testing import Expected, check, same_as_eager

one_graph = functools.partial(same_as_eager, graphs=1, breaks=[])
leaf = lambda: (torch.randn(3, requires_grad=True),)


# ---------------------------------------------------------------- leaves, backward, grad


@same_as_eager(graphs=1, breaks=["requires_grad"])
def test_requires_grad_of_an_argument_switched(x):
    x.requires_grad_(True)
    y = (x * 2).sum()
    return y, x.requires_grad, y.requires_grad


@same_as_eager(graphs=2, breaks=["requires_grad"])
def test_requires_grad_assigned(x):
    y = x.detach()
    y.requires_grad = True
    return (y * 2).sum(), y.is_leaf


@same_as_eager(graphs=2, breaks=["backward", "backward"], inputs=leaf)
def test_backward_with_gradient(x):
    y = x * x
    y.backward(torch.ones_like(y))
    torch.autograd.backward([x.sin()], [torch.ones(3)])
    return x.grad


# ---------------------------------------------------------------- autograd.Function


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 * x


class Wrong(Function):
    """Its backward is not the derivative: only a call of it gives this gradient."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x * scale

    @staticmethod
    def backward(ctx, g):
        return g * 100 * ctx.scale, None


class Modern(Function):
    @staticmethod
    def forward(x, y):
        return x * y, x + y

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y = inputs
        ctx.save_for_backward(x, y)

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g * y + h, g * x + h


@one_graph(grad=True)
def test_function_one_output_used(x, y):
    return Modern.apply(x, y)[0] * 2


class OfItsContext(Function):
    """Where the program has changed something, Python calls it: its forward is compiled by itself."""

    @staticmethod
    def forward(ctx, x, w, scale):
        ctx.mark_dirty(x)
        kept = x * w
        flags = kept > 0
        ctx.save_for_backward(kept, w)
        ctx.mark_non_differentiable(flags)
        ctx.set_materialize_grads(False)
        ctx.scale, ctx.log = scale, [scale]
        ctx.log.append(ctx.needs_input_grad)
        return x.mul_(2 if ctx.needs_input_grad[1] else 3), kept.sin(), flags

    @staticmethod
    def backward(ctx, g, gk, gf):
        kept, w = ctx.saved_tensors
        assert gf is None
        assert len(ctx.log) == 2
        grad = torch.zeros_like(kept) if g is None else g * 2 * ctx.scale
        return grad + (0 if gk is None else gk * kept.cos() * w), None, None


class ReluInPlace(Function):
    @staticmethod
    def forward(ctx, x, scale):
        product = x * scale
        ctx.mark_dirty(x.relu_())
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x, product

    @staticmethod
    def backward(ctx, g, h):
        return g * (ctx.saved_tensors[0] > 0) + h * ctx.scale, None


@one_graph(grad=True)
def test_functions_that_change_what_the_frame_made(x):
    y = x @ x.T
    row = y[0]
    same, product = ReluInPlace.apply(y, 3.0)
    for _ in range(2):
        y, _ = ReluInPlace.apply(y.cos() - row, 2.0)
    return same, row, product.sin(), y


@same_as_eager(graphs=3, breaks=["unsupported call"], grad=True)
def test_what_a_forward_does_with_its_context(x):
    x.seen, y = True, x + 1
    y, kept, flags = OfItsContext.apply(y, torch.full((), 0.5), 3)
    return y * 3 + kept, flags


@one_graph(grad=True)
def test_a_gradient_that_is_not_materialized(x):
    y, _, flags = OfItsContext.apply(x + 1, torch.full((), 0.5), 3)
    return y * 3, flags


@one_graph()
def test_function_without_gradients(x):
    with torch.no_grad():
        return Square.apply(x), Wrong.apply(x, 2)


class AddsLists(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight, tensors, names):
        ctx.save_for_backward(weight, *tensors)
        ctx.names = names
        return sum(tensors) * weight

    @staticmethod
    def backward(ctx, grad):
        weight, *tensors = ctx.saved_tensors
        return grad * sum(tensors) * len(ctx.names), None, None


@one_graph(grad=True)
def test_function_with_lists_of_tensors(x, y):
    """PyTorch does not differentiate the tensors within a list."""
    return AddsLists.apply(x, [y, x * 2], ["a", "b"]) + AddsLists.apply(x, (y, y), ["c"])


class Configured(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, config):
        ctx.save_for_backward(config["weight"])
        ctx.scale = config["scale"]
        return x * config["weight"] * config["scale"]

    @staticmethod
    def backward(ctx, grad):
        (weight,) = ctx.saved_tensors
        return grad * weight * ctx.scale, None


@one_graph(grad=True)
def test_function_with_a_dict(x, y):
    return Configured.apply(x, {"scale": 3.0, "weight": y}) + 1


class ChangesItsList(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, log):
        log.append(x * 2)
        return x + 1

    @staticmethod
    def backward(ctx, grad):
        return grad, None


@same_as_eager(grad=True)
def test_function_that_changes_its_list(x):
    log = []
    y = ChangesItsList.apply(x, log)
    return y, len(log), log[0]


class WritesInList(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, buffers):
        buffers[0].add_(1)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2, None


@same_as_eager(grad=True)
def test_function_that_writes_to_a_tensor_of_its_list(x):
    buffer = torch.zeros(3)
    return WritesInList.apply(x, [buffer]), buffer


class GivesBackItsList(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, others):
        return x * 2, others[0]

    @staticmethod
    def backward(ctx, grad, other):
        return grad * 2, None


@same_as_eager(grad=True)
def test_function_that_returns_a_tensor_of_its_list(x):
    other = torch.ones(3)
    y, same = GivesBackItsList.apply(x, [other])
    return y, same + 1


class Settings:
    gain = 1.0


class ReadsSettings(Function):
    @staticmethod
    def forward(ctx, x):
        return x * SETTINGS.gain

    @staticmethod
    def backward(ctx, g):
        return g * SETTINGS.gain


SETTINGS = Settings()


@same_as_eager(graphs=1, breaks=["unsupported call"], grad=True, changes=["SETTINGS"])
def test_function_that_reads_what_the_frame_changed(x):
    SETTINGS.gain = 5.0
    return ReadsSettings.apply(x)


@same_as_eager(graphs=3, breaks=["backward", "backward", "unsupported attribute"], inputs=leaf)
def test_function_differentiated_twice(x):
    y = Square.apply(x * 2).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    return torch.autograd.grad(g.sum(), x)[0]


# ---------------------------------------------------------------- other higher order


def normalised():
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), torch.randn(3, 4)


@one_graph(inputs=lambda: (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), torch.randn(3, 4)))
def test_functional_call_of_tied_weights(net, x):
    net[1].weight = net[0].weight
    given = {"0.weight": x.T @ x}
    call = torch.func.functional_call
    return call(net, given, (x,)), call(net, given, (x,), tie_weights=False), net[1].weight is net[0].weight


class Fails(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x, wanted):
        y = x * self.weight
        if float(y.sum()) > wanted:
            raise ValueError("too large")
        return y + self.weight


@same_as_eager(inputs=lambda: (Fails(), torch.ones(4)))
def test_functional_call_that_breaks_or_raises(net, x):
    """The module has its own parameters again."""
    y = torch.func.functional_call(net, {"weight": x * 3}, (x, 100))
    try:
        torch.func.functional_call(net, {"weight": x * 3}, (x, 1))
    except ValueError as error:
        return y, str(error), type(net.weight), net(x, 100)


@same_as_eager(inputs=normalised)
def test_functional_call_with_wrong_names(net, x):
    for given, strict in (({"nope": x}, False), ({"0.weight": x}, True)):
        try:
            torch.func.functional_call(net, given, (x,), strict=strict)
        except (AttributeError, RuntimeError) as error:
            x = x + len(str(error))
    return x


@same_as_eager(graphs=1, breaks=["skipped function", "skipped function", "skipped function"])
def test_saved_tensor_hooks(x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        return x * 2


# ---------------------------------------------------------------- functions that return views of what they get


class Reversed(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.neg() * ctx.scale, None


class Rows(Function):
    @staticmethod
    def forward(ctx, x):
        return x.t()[1:]

    @staticmethod
    def backward(ctx, gradient):
        return torch.cat([gradient[:1] * 5, gradient]).t()


class AsGiven(Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


def views_of_functions(x):
    h = x.sin()
    return h, Reversed.apply(h, 0.5).view(-1), AsGiven.apply(x), Rows.apply(AsGiven.apply(x * 2)), Rows.apply(h).exp()


def outdated_view_of_a_function(x):
    h = x * 1
    y = Reversed.apply(h, 2.0)
    h.add_(1)
    return h * 2, y


@pytest.mark.parametrize("backend", ["eager", "cpp"])
@pytest.mark.parametrize("program", [views_of_functions, outdated_view_of_a_function])
def test_views_of_what_a_function_gets(program, backend):
    expected = Expected(graphs=1, breaks=[], refusals=True)
    check(program, lambda: [torch.randn(4, 4)], expected, grad=True, backend=backend, tolerance=2e-6)


class Picked(Function):
    @staticmethod
    def forward(ctx, x, y):
        return y.view_as(y)

    @staticmethod
    def backward(ctx, gradient):
        return None, gradient


@same_as_eager(graphs=2, breaks=["unsupported call"], grad=True)
def test_view_of_one_of_two_tensors_of_a_function(x, y):
    h = x + 1
    return Picked.apply(h, y)


class Mapped(Function):
    @staticmethod
    def forward(ctx, f, x, g=None):
        ctx.save_for_backward(x)
        ctx.g = g
        return f(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return None, gradient * (x if ctx.g is None else ctx.g(x)), None


def doubled(x):
    return x * 2


class Scale:
    def __init__(self, by):
        self.by = by

    def __call__(self, v):
        return v * self.by


def functions_of_functions(x, scale, module):
    k = 3
    y = Mapped.apply(doubled, x) + Mapped.apply(lambda v: v * k, x, torch.cos) + Mapped.apply(module, x, scale)
    return y, Mapped.apply(functools.partial(torch.mul, other=k), x * 2, doubled)


@pytest.mark.parametrize("backend", ["eager", "cpp"])
def test_functions_that_get_functions(backend):
    """They are identified by what they do, objects by what they are."""
    tanh, scales = nn.Tanh(), [Scale(2), Scale(3)]
    inputs = [lambda: [torch.randn(4), scales[0], tanh], lambda: [torch.randn(4), scales[1], tanh]]
    expected = Expected(graphs=2, breaks=[], compiles=2)
    check(functions_of_functions, inputs, expected, grad=True, backend=backend, tolerance=2e-6)


@same_as_eager(breaks=["unsupported call"], grad=True)
def test_function_that_gets_a_function_of_other_tensors(x, y):
    return Mapped.apply(lambda v: v * y, x + 1)
