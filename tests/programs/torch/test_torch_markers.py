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


@cc.disable
def left_alone(x):
    return helper(x) + 1


@cc.disable(recursive=False)
def only_itself(x):
    return helper(x + 1) + 1


@torch.compiler.disable
def left_alone_by_stock(x):
    return helper(x) + 1


@torch.compiler.disable(recursive=False)
def only_itself_by_stock(x):
    return helper(x + 1) + 1


@same_as_eager(graphs=2, breaks=["asked for"])
def test_disabled(x):
    return left_alone(x * 2) + 1


@same_as_eager(graphs=3, breaks=["asked for"])
def test_disabled_but_not_what_it_calls(x):
    return only_itself(x * 2) + 1


@same_as_eager(graphs=2, breaks=["asked for"])
def test_disabled_by_stock(x):
    return left_alone_by_stock(x * 2) + 1


@same_as_eager(graphs=3, breaks=["asked for"])
def test_disabled_by_stock_but_not_what_it_calls(x):
    return only_itself_by_stock(x * 2) + 1


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    @cc.disable
    def plain(self, x):
        return self.fc(x)

    def forward(self, x):
        return self.plain(x.sin()).cos()


@same_as_eager(graphs=2, breaks=["asked for"], inputs=lambda: (Part(), torch.randn(2, 4)))
def test_disabled_method(net, x):
    return net(x)


@same_as_eager(graphs=2, breaks=["asked for"])
def test_graph_break(x):
    y = x + 1
    cc.graph_break()
    return y * 2


@same_as_eager(graphs=2, breaks=["asked for"])
def test_graph_break_of_stock(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2


@same_as_eager(graphs=2, breaks=["asked for"])
def test_graph_break_in_a_called_function(x):
    def inner(t):
        t = t + 1
        cc.graph_break()
        return t * 2

    return inner(x) - 1


COMPILED = cc.compile(helper, backend="eager")
COMPILED_BY_STOCK = torch.compile(helper, backend="eager")


@one_graph()
def test_compiled_function_called_inside(x):
    return COMPILED(x + 1) + 1


@same_as_eager(graphs=2, breaks=["stock-compiled function"])
def test_function_compiled_by_stock_called_inside(x):
    return COMPILED_BY_STOCK(x + 1) + 1


COMPILED_PART = cc.compile(nn.Linear(4, 4), backend="eager")


@same_as_eager(graphs=2, breaks=["skipped function"])
def test_compiled_module_called_inside(x):
    return COMPILED_PART(x + 1) + 1


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
def test_marked_dynamic(x):
    return x + 1 if torch.compiler.is_compiling() is None else x + 1


@same_as_eager(graphs=1, breaks=["skipped function"])
def test_mark_dynamic_inside(x):
    torch._dynamo.mark_dynamic(x, 0)
    return x + 1


@one_graph()
def test_written_for_torchscript(x):
    """As timm's CrossViT has it: what tells TorchScript a type means nothing to Python, but for `isinstance`."""
    parts = torch.jit.annotate(list[torch.Tensor], [])
    for i, scale in enumerate(zip([1, 2], [3, 4])):
        parts.append(x * scale[0] + scale[1])
    if torch.jit.isinstance(parts, list[torch.Tensor]) and not torch.jit.isinstance(parts, list[int]):
        return torch.stack(parts) + 1
    return x
