# mypy: ignore-errors
# ruff: noqa
"""Wrapper subclasses: jagged tensors, and classes that compute with inner tensors which they name."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from tests.sweeps.snippets.corpus import program

X = lambda: (torch.randn(5, 4),)
TWO = lambda: (TwoTensor(torch.randn(3, 4), torch.randn(3, 4)),)
OFFSETS = torch.tensor([0, 2, 5])


class Scaled(torch.Tensor):
    """A tensor that is computed when an operator needs it, such as a quantised weight."""

    @staticmethod
    def __new__(cls, data, scale, name):
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=scale.dtype)

    def __init__(self, data, scale, name):
        self.inner, self.scale, self.name_of_scheme = data, scale, name

    def __tensor_flatten__(self):
        return ["inner", "scale"], {"name": self.name_of_scheme}

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Scaled(inner["inner"], inner["scale"], context["name"])

    def full(self):
        return self.inner.float() * self.scale

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return cls(args[0].inner, args[0].scale, args[0].name_of_scheme)
        plain = [each.full() if isinstance(each, cls) else each for each in args]
        return func(*plain, **(kwargs or {}))


@program(X)
def jagged_by_offsets(x):
    jagged = torch.nested.nested_tensor_from_jagged(x.sin(), OFFSETS)
    return (jagged * 2).values(), jagged.offsets(), jagged.size(0), jagged.dim()


@program(lambda: (torch.randn(5, 4), nn.Linear(4, 2)))
def jagged_through_a_module(x, m):
    jagged = torch.nested.nested_tensor_from_jagged(x, OFFSETS, min_seqlen=2, max_seqlen=3)
    return m(jagged).relu().values().cos(), jagged.to_padded_tensor(0.0)


@program(lambda: (torch.randn(2, 4), torch.randn(3, 4)), grad=False)
def jagged_of_a_list(x, y):
    jagged = torch.nested.nested_tensor([x, y], layout=torch.jagged)
    return jagged.sum(1), jagged.mean(-1).values(), torch.cat([jagged, jagged.exp()], -1).values()


@program(X)
def two_made_here(x):
    two = TwoTensor(x.detach().sin(), x.detach().cos())
    y = two @ two.t()
    return y.a + 1, y.b.relu(), isinstance(y, TwoTensor), type(two[0]).__name__


@program(TWO, grad=False)
def two_written_to(t):
    u = t + 1
    u.mul_(3)
    t.view(-1).add_(u.view(-1))
    t.a.mul_(2)
    return u, t.sum(), t.b - 1


@program(TWO, grad=False)
def two_in_containers(t):
    rows = [r.sin() for r in t]
    with torch.no_grad():
        parts = {n: c.softmax(-1) for n, c in zip("ab", t.chunk(2))}
    return torch.stack(rows).sum(0), parts["a"], t.shape, t.dtype, len(t)


@program(lambda: (Scaled(torch.arange(12).view(3, 4), torch.tensor(0.5), "int"), torch.randn(2, 4, requires_grad=True)))
def quantised_weight(w, x):
    assert w.name_of_scheme == "int"
    return F.linear(x.tanh(), w).relu() + w.scale, w.full()[0]


class WithWrappers(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.w = nn.Parameter(TwoTensor(torch.randn(4, 4), torch.randn(4, 4)))
        self.register_buffer("b", TwoTensor(torch.zeros(4), torch.ones(4)))

    def forward(self, x):
        y = F.linear(self.norm(x).sin(), self.w, self.b)
        return y.a.cos() + y.b


@program(lambda: (WithWrappers(), torch.randn(2, 4)), grad=False)
def parameters_that_are_wrappers(m, x):
    return m(x)


class Named(torch.Tensor):
    def __new__(cls, data, name):
        made = super().__new__(cls, data)
        made.named = name
        return made


class Unnamed(torch.Tensor):
    pass


@program(lambda: (torch.randn(2, 4),))
def instances_of_tensor_subclasses(x):
    a, b = Named(x.sin(), "a"), Unnamed(x)
    return (a + 1) * len(a.named), (b @ b.T).relu(), type(b.mean()) is Unnamed
