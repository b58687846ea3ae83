# mypy: ignore-errors
# ruff: noqa
"""Programs with functions that are marked: disabled, graph breaks asked for, allowed in the graph, compiled twice.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import functools

import torch
import torch.nn as nn

import compiler_core as cc
from compiler_core.tools.testing import same_as_eager

one_graph = functools.partial(same_as_eager, graphs=1, breaks=[])


def helper(x):
    return x.sin() * 2


@cc.disable(recursive=False)
def only_itself(x):
    return helper(x + 1) + 1


@torch.compiler.disable(recursive=False)
def only_itself_by_stock(x):
    return helper(x + 1) + 1


@same_as_eager(graphs=3, breaks=["asked for"])
def test_disabled_but_not_what_it_calls(x):
    return only_itself(x * 2) + 1


@same_as_eager(graphs=3, breaks=["asked for"])
def test_disabled_by_stock_but_not_what_it_calls(x):
    return only_itself_by_stock(x * 2) + 1


OURS, STOCKS = functools.partial(cc.compile, backend="eager"), functools.partial(torch.compile, backend="eager")
COMPILED_PARTS = nn.ModuleList(
    [OURS(nn.Linear(4, 4)), STOCKS(nn.Linear(4, 4)), STOCKS(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))]
)
COMPILED_IN_PLACE = nn.Linear(4, 4)
COMPILED_IN_PLACE.compile(backend="eager")
WITH_HOOK = STOCKS(nn.Linear(4, 4))
WITH_HOOK.register_forward_hook(lambda module, args, result: result * 2)


@one_graph(grad=True)
def test_compiled_modules_called_inside(x):
    for part in COMPILED_PARTS:
        x = part(x)
    return (
        COMPILED_IN_PLACE(x),
        COMPILED_PARTS[0].weight.sum(),
        COMPILED_PARTS[1].bias + COMPILED_PARTS[2]._orig_mod[0].bias,
    )


@same_as_eager(breaks=["skipped function"])
def test_module_compiled_by_stock_with_a_hook(x):
    return WITH_HOOK(x + 1) + 1


@torch.compiler.nested_compile_region
def region(x, w, scale=1.0):
    return (x @ w).relu() * scale


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    @torch.compiler.nested_compile_region
    def forward(self, x):
        return self.linear(x).relu()


BLOCKS = nn.Sequential(Block(), Block())


@one_graph(grad=True)
def test_nested_regions(x):
    return BLOCKS(region(region(x, x.T @ x), x.T @ x, scale=2.0))


@torch.compiler.allow_in_graph
def whole(x):
    return x * 2 if x.dim() else x


@one_graph()
def test_allowed_in_the_graph(x):
    return whole(x + 1) + 1


class Boxed(torch.Tensor):
    @staticmethod
    def __new__(cls, inside):
        return torch.Tensor._make_wrapper_subclass(cls, inside.shape, dtype=inside.dtype)

    def __init__(self, inside):
        self.inside = inside

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        opened = [a.inside if isinstance(a, Boxed) else a for a in args]
        return Boxed(function(*opened, **(kwargs or {})))


@torch.compiler.allow_in_graph
def boxed(x):
    return Boxed(x * 2)


@same_as_eager(backend="aot_eager")
def test_allowed_in_the_graph_and_returns_a_subclass(x):
    return boxed(x + 1).sin().inside + 1


@torch.compiler.assume_constant_result
def measured():
    return sum(range(10))


@one_graph()
def test_constant_result(x):
    return x * measured()


@one_graph()
def test_written_for_torchscript(x):
    """As timm's CrossViT has it: what tells TorchScript a type means nothing to Python, but for `isinstance`."""
    parts = torch.jit.annotate(list[torch.Tensor], [])
    for i, scale in enumerate(zip([1, 2], [3, 4])):
        parts.append(x * scale[0] + scale[1])
    if torch.jit.isinstance(parts, list[torch.Tensor]) and not torch.jit.isinstance(parts, list[int]):
        return torch.stack(parts) + 1
    return x


class CallsCompiled(torch.nn.Module):
    def inner(self, x):
        return x.tanh()

    def forward(self, x):
        return torch.compile(self.inner, backend="eager")(x)


@same_as_eager(breaks=["print"], grad=True, inputs=lambda: (CallsCompiled(), torch.randn(3)))
def test_functions_compiled_inside(m, x):
    """Each is inlined.  Behind the break, it is another function in each call."""

    @torch.compile(backend="eager", fullgraph=True)
    def scaled(a, k=2):
        return a * k

    y = m(x) + scaled(x) + torch.compile(lambda v: v.cos(), backend="eager")(x)
    print("between")
    return scaled(y, k=3)
