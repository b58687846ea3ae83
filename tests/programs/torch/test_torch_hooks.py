# mypy: ignore-errors
# ruff: noqa
"""Programs over hooks: of modules (forward, backward, global), of tensors.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import functools

import pytest
import torch
import torch.nn as nn

import compiler_core
from compiler_core.tools.testing import same_as_eager

one_graph = functools.partial(same_as_eager, graphs=1, breaks=[])
LOG = []


def number_from_zero():
    """Resets the counter of hook ids, because the ids are compared, too."""
    torch.utils.hooks.RemovableHandle.next_id = 0


def hooked(register):
    """A linear layer and a tensor; `register` puts hooks on the layer."""

    def make():
        LOG.clear()
        number_from_zero()
        fc = nn.Linear(4, 4)
        register(fc)
        return fc, torch.randn(2, 4)

    return make


def doubled(module, args, output):
    return output * 2


def shifted(module, args):
    return (args[0] + 1,)


@one_graph(inputs=hooked(lambda m: m.register_forward_pre_hook(lambda m, args: args[0] * 3)))
def test_pre_hook_that_returns_one_value(fc, x):
    return fc(x)


def with_kwargs(m):
    m.register_forward_pre_hook(lambda m, args, kwargs: (args, {"input": kwargs["input"] + 1}), with_kwargs=True)
    m.register_forward_hook(lambda m, args, kwargs, out: out + kwargs["input"], with_kwargs=True)


@one_graph(inputs=hooked(with_kwargs))
def test_hooks_with_kwargs(fc, x):
    return fc(input=x)


def several(m):
    m.register_forward_hook(lambda m, a, o: o + 1)
    m.register_forward_hook(doubled)
    m.register_forward_hook(lambda m, a, o: o - 3, prepend=True)
    m.register_forward_pre_hook(shifted)


@one_graph(inputs=hooked(several))
def test_several_hooks_in_order(fc, x):
    return fc(x)


@one_graph(inputs=hooked(lambda m: m.register_forward_hook(doubled, always_call=True)))
def test_hook_that_is_always_called(fc, x):
    return fc(x)


@same_as_eager(
    graphs=1,  # a call of nn.Linear that Python makes is not compiled by itself
    breaks=["unsupported call"],
    grad=True,
    inputs=hooked(lambda m: m.register_full_backward_pre_hook(lambda m, g: (g[0] * 3,))),
)
def test_full_backward_pre_hook(fc, x):
    return fc(x * 2)


@same_as_eager(graphs=2, breaks=["skipped function", "skipped function"], inputs=hooked(lambda m: None))
def test_hook_registered_inside(fc, x):
    handle = fc.register_forward_hook(doubled)
    y = fc(x)
    handle.remove()
    return y, fc(x), len(fc._forward_hooks)


vector = functools.partial(one_graph, grad=True, inputs=lambda: (torch.randn(3),))


@vector()
def test_tensor_hook(x):
    y = x * 2
    y.register_hook(lambda g: g * 10)
    return y.sin()


@vector(backend="eager")
def test_tensor_hook_where_autograd_runs_the_graph(x):
    y = x * 2
    y.register_hook(lambda g: g * 10)
    return y.sin()


def assigned_again(x):
    scale = 2.0
    y = x * 2
    y.register_hook(lambda g: g * scale)
    scale = 3.0
    return y.sin()


def assigned_by_the_loop(x):
    z = 0
    for scale in (2.0, 3.0):
        y = x * scale
        y.register_hook(lambda g: g * scale)
        z = z + y.sin()
    return z


def list_that_changes(x):
    scales = [2.0]
    y = x * 2
    y.register_hook(lambda g: g * scales[0])
    scales[0] = 3.0
    return y.sin()


def assigned_by_another_function(x):
    def make(scale):
        def change():
            nonlocal scale
            scale = 3.0

        return (lambda g: g * scale), change

    hook, change = make(2.0)
    y = x * 2
    y.register_hook(hook)
    change()
    return y.sin()


def tensor_that_the_caller_changes(x):
    factor = torch.ones(3)
    y = x * 2
    y.register_hook(lambda g: g * factor)
    return y.sin(), factor


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, function):
        ctx.function = function
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return ctx.function(g), None


def assigned_after_a_function_of_autograd(x):
    scale = 2.0
    y = Doubled.apply(x * 1, lambda g: g * scale)
    scale = 3.0
    return y.sin()


@pytest.mark.parametrize(
    "program",
    [
        assigned_again,
        assigned_by_the_loop,
        list_that_changes,
        assigned_by_another_function,
        tensor_that_the_caller_changes,
        assigned_after_a_function_of_autograd,
    ],
    ids=lambda program: program.__name__,
)
def test_variables_that_change_before_the_backward(program):
    """A hook reads its variables when the backward runs."""
    gradients = []
    for function in (program, compiler_core.compile(program)):
        x = torch.arange(3.0, requires_grad=True)
        found = function(x)
        if isinstance(found, tuple):
            found[1].mul_(7)
            found = found[0]
        found.sum().backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)


@pytest.mark.parametrize("partial", [False, True])
def test_hooks_with_other_constants(partial):
    """Graphs with hooks that differ only in what they hold are different graphs."""

    def with_factor(factor):
        def program(x):
            scale = factor + 0.0
            y = x * 2
            y.register_hook(functools.partial(torch.mul, other=scale) if partial else lambda g: g * scale)
            return y.sin()

        return compiler_core.compile(program)

    for factor in (2.0, 5.0):
        x = torch.zeros(3, requires_grad=True)
        with_factor(factor)(x).sum().backward()
        assert torch.equal(x.grad, torch.full((3,), 2 * factor))


class Reversal(nn.Module):
    strength = 4.0

    def forward(self, x):
        y = x.exp()
        y.register_hook(self.reverse)
        return y

    def reverse(self, g):
        return -g * self.strength


@same_as_eager(grad=True, inputs=lambda: (Reversal(), torch.randn(3)))
def test_tensor_hook_that_is_a_method(net, x):
    return net(x * 2) + 1


@same_as_eager(breaks=["gradient hook"], grad=True, inputs=lambda: (torch.randn(3),))
def test_tensor_hook_that_returns_another_shape(x):
    y = x * 2
    y.register_hook(lambda g: g.sum())
    return y.sin().detach() + x


@same_as_eager(breaks=["gradient hook"], inputs=lambda: (torch.randn(3),))
def test_tensor_hook_without_gradients(x):
    try:
        x.register_hook(lambda g: g)
    except RuntimeError as error:
        return x, str(error)


@vector()
def test_hook_on_an_argument(x):
    x.register_hook(lambda g: g + 1)
    return x.sin()


@same_as_eager(
    graphs=2,
    breaks=["gradient hook", "backward", "gradient hook"],
    inputs=lambda: (torch.randn(3, requires_grad=True),),
)
def test_retain_grad(x):
    y = x * 2
    y.retain_grad()
    y.sin().sum().backward()
    return y.grad, x.grad
