"""Tests of the passes that simplify functional graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import compiler_core
from compiler_core.autograd.joint import output_nodes
from compiler_core.autograd.passes.simplify import (
    cancel_transposes,
    drop_aliases,
    fuse_relu_into_addmm,
    return_float32_gradients,
    softmax_from_log_softmax,
    split_addmm_bias,
    split_convolution_bias,
)
from compiler_core.autograd.trace.decompositions import decomposition_table
from compiler_core.support.node_facts import is_random
from tests.cases.captured import put_on_a_gpu

aten = torch.ops.aten


def products(program: Callable[..., Any], dtype: torch.dtype = torch.float32, device: str = "cuda") -> list[str]:
    """Returns the matrix products of `program` after `split_addmm_bias`, for fake tensors on a device."""
    sizes = (64, 32), (16, 32), (16,)
    with FakeTensorMode():
        gm = make_fx(program)(*(torch.empty(s, device=device, dtype=dtype) for s in sizes))
    split_addmm_bias(gm.graph)
    gm.graph.lint()
    return [str(n.target) for n in gm.graph.nodes if n.target in (aten.mm.default, aten.addmm.default)]


def test_the_bias_of_a_product_is_added_where_the_sum_is_read() -> None:
    def through_a_view(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.linear(x, w, b).view(8, 8, 16).relu()

    def of_stochastic_depth(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = F.linear(x, w, b)
        return y * y.new_empty(64, 1).bernoulli(0.9)

    def returned(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.linear(x, w, b)

    def read_by_a_product(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.linear(x, w, b).relu() @ F.linear(x, w, b).t()

    assert products(through_a_view) == ["aten.mm.default"]
    assert products(of_stochastic_depth) == ["aten.mm.default"]
    assert products(returned) == ["aten.addmm.default"]
    assert products(read_by_a_product) == ["aten.mm.default", "aten.addmm.default", "aten.mm.default"]
    assert products(through_a_view, torch.bfloat16) == ["aten.addmm.default"], "it would be rounded twice"
    assert products(through_a_view, device="cpu") == ["aten.addmm.default"]


@pytest.mark.parametrize(
    ("rows", "length", "columns", "target"),
    [
        (1024, 3072, 768, "aten.mm.default"),
        (1024, 512, 768, "aten.addmm.default"),
        (1024, 3072, 2048, "aten.addmm.default"),
        (128, 3072, 768, "aten.addmm.default"),
    ],
)
def test_the_bias_of_long_products_is_added_separately(rows: int, length: int, columns: int, target: str) -> None:
    with FakeTensorMode():
        sizes = ((columns,), (rows, length), (length, columns))
        gm = make_fx(aten.addmm)(*(torch.empty(size, device="cuda") for size in sizes))
    split_addmm_bias(gm.graph)
    assert next(str(n.target) for n in gm.graph.nodes if n.op == "call_function") == target


def test_the_sum_is_what_it_was() -> None:
    def program(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.linear(x, w, b).relu()

    tensors = torch.randn(5, 3), torch.randn(4, 3), torch.randn(4)
    gm = make_fx(program)(*tensors)
    with FakeTensorMode():
        for node in gm.graph.nodes:
            if "val" in node.meta:
                node.meta["val"] = torch.empty(node.meta["val"].shape, device="cuda")
    split_addmm_bias(gm.graph)
    gm.recompile()
    assert len(gm.graph.find_nodes(op="call_function", target=aten.mm.default)) == 1
    torch.testing.assert_close(gm(*tensors), program(*tensors))


def gradients(dtype: torch.dtype, device: str, weights_of: Callable[..., Any]) -> tuple[list[str], fx.GraphModule]:
    """Returns the products of a training graph in `dtype` after `return_float32_gradients`, and the graph."""

    def program(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor, tangents_1: torch.Tensor) -> Any:
        y = F.linear(F.linear(x.to(dtype), weights_of(w.to(dtype))).relu(), v.to(dtype))
        return y, *torch.autograd.grad(y, (x, w, v), tangents_1)

    tensors = [torch.randn(s).requires_grad_() for s in ((64, 32), (16, 32), (8, 16))]
    gm = make_fx(program)(*tensors, torch.randn(64, 8, dtype=dtype))
    gm.graph.find_nodes(op="placeholder")[-1].name = "tangents_1"
    drop_aliases(gm.graph)
    cancel_transposes(gm.graph)
    gm.graph.eliminate_dead_code()
    if device == "cuda":
        put_on_a_gpu(gm)
    expected = [tuple(node.meta["val"].stride()) for node in output_nodes(gm.graph)]
    return_float32_gradients(gm.graph)
    gm.graph.lint()
    assert [tuple(node.meta["val"].stride()) for node in output_nodes(gm.graph)] == expected
    assert all(n.meta["val"].dtype is torch.float32 for n in output_nodes(gm.graph)[1:])
    return [str(n.target).removeprefix("aten.") for n in gm.graph.nodes if "mm." in str(n.target)], gm


def test_gradients_of_autocast_are_float32_products() -> None:
    def same(w: torch.Tensor) -> torch.Tensor:
        return w

    plain = ["mm.default"] * 2
    assert gradients(torch.bfloat16, "cuda", same)[0] == [*plain, "mm.dtype", "mm.default", "mm.dtype", "mm.dtype"]
    assert gradients(torch.float16, "cuda", same)[0] == [*plain, *["mm.default"] * 4], "a scaler looks for infinities"
    assert gradients(torch.bfloat16, "cpu", same)[0] == [*plain, *["mm.default"] * 4]
    read = gradients(torch.bfloat16, "cuda", torch.sin)[0]
    assert read == [*plain, "mm.dtype", "mm.default", "mm.default", "mm.dtype"], "the gradient of sin reads one"


def convolutions(
    program: Callable[..., Any],
    trains: bool = False,
    dtype: torch.dtype = torch.float32,
    groups: int = 1,
    layout: torch.memory_format = torch.contiguous_format,
) -> tuple[fx.GraphModule, list[bool]]:
    """Returns `program` after `split_convolution_bias`, and whether each convolution and its gradient still have the
    bias."""
    sizes = (2, 4, 8, 8), (4, 4 // groups, 3, 3), (4,)
    tensors = [torch.randn(s, dtype=dtype) for s in sizes]
    tensors[0] = tensors[0].contiguous(memory_format=layout)
    gm = make_fx(program)(*(t.requires_grad_(trains) for t in tensors))
    put_on_a_gpu(gm)
    split_convolution_bias(gm.graph)
    gm.graph.eliminate_dead_code()
    gm.graph.lint()
    gm.recompile()
    forward = gm.graph.find_nodes(op="call_function", target=aten.convolution.default)
    backward = gm.graph.find_nodes(op="call_function", target=aten.convolution_backward.default)
    return gm, [n.args[2] is not None for n in forward] + [n.args[-1][2] for n in backward]


def test_the_bias_of_a_convolution_is_added_where_the_result_is_read() -> None:
    def read(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.silu(F.conv2d(x, w, b, groups=x.shape[1] // w.shape[1])).mean((2, 3))

    def returned(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, b)

    def training(*tensors: torch.Tensor) -> Any:
        return torch.autograd.grad(read(*tensors).sum(), tensors)

    assert convolutions(read)[1] == [False]
    assert convolutions(read, dtype=torch.bfloat16)[1] == [False]
    assert convolutions(returned)[1] == [True]
    assert convolutions(read, groups=4)[1] == [False]
    assert convolutions(read, groups=4, dtype=torch.bfloat16)[1] == [True], "its kernel begins with the bias"
    channels_last = convolutions(read, groups=4, dtype=torch.bfloat16, layout=torch.channels_last)[1]
    assert channels_last == [False], "cuDNN's kernel has no bias"
    gm, kept = convolutions(training, trains=True)
    assert kept == [False, False]
    tensors = [torch.randn(s, requires_grad=True) for s in ((2, 4, 8, 8), (4, 4, 3, 3), (4,))]
    for got, want in zip(gm(*tensors), training(*tensors), strict=True):
        torch.testing.assert_close(got, want)


def clipped(
    program: Callable[..., Any], rows: int = 4096, dtype: torch.dtype = torch.bfloat16, device: str = "cuda"
) -> fx.Graph:
    with FakeTensorMode():
        gm = make_fx(program)(*(torch.empty(s, device=device, dtype=dtype) for s in ((rows, 32), (64, 32), (64,))))
    for node in gm.graph.nodes:
        node.meta["origin"] = (node.name,)
    fuse_relu_into_addmm(gm.graph)
    gm.graph.eliminate_dead_code()
    gm.graph.lint()
    return gm.graph


def test_a_relu_behind_a_product_goes_into_it() -> None:
    def through_views(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.linear(x, w, b).view(8, -1, 64).relu() + 1

    def read_twice(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = F.linear(x, w, b)
        return y.relu() + y

    def scaled(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.addmm(b, x, w.t(), alpha=2).relu()

    def is_clipped(*args: Any) -> bool:
        graph = clipped(*args)
        found, left = (
            {n.target for n in graph.nodes} & {op} for op in (aten._addmm_activation.default, aten.relu.default)
        )
        assert bool(found) != bool(left)
        return bool(found)

    assert is_clipped(through_views)
    assert is_clipped(through_views, 4096, torch.float32)
    assert not is_clipped(through_views, 64, torch.float32), "cuBLAS has more kernels for the bare product"
    assert not is_clipped(through_views, 4096, torch.float64)
    assert not is_clipped(through_views, 4096, torch.bfloat16, "cpu")
    assert not is_clipped(read_twice)
    assert not is_clipped(scaled)
    (result,) = clipped(through_views).find_nodes(op="call_function", target=aten._addmm_activation.default)
    assert {"addmm", "relu"} <= set(result.meta["origin"])


def test_a_clipped_product_is_what_it_was() -> None:
    def program(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.linear(x, w, b).view(5, 2, 2).relu() * 2

    tensors = torch.randn(5, 3), torch.randn(4, 3), torch.randn(4)
    tensors[0][1, 2] = torch.nan
    gm = make_fx(program)(*tensors)
    with FakeTensorMode():
        for node in gm.graph.nodes:
            if "val" in node.meta:
                node.meta["val"] = torch.empty(node.meta["val"].shape, device="cuda", dtype=torch.bfloat16)
    fuse_relu_into_addmm(gm.graph)
    gm.recompile()
    assert len(gm.graph.find_nodes(op="call_function", target=aten._addmm_activation.default)) == 1
    torch.testing.assert_close(gm(*tensors), program(*tensors), equal_nan=True)


def test_attention_without_dropout_draws_nothing() -> None:
    graph = fx.Graph()
    q = graph.placeholder("q")
    op = aten._scaled_dot_product_efficient_attention.default
    plain = graph.call_function(op, (q, q, q, None, True))
    none, some = (graph.call_function(op, (q, q, q, None, True, p)) for p in (0.0, 0.1))
    named = graph.call_function(op, (q, q, q, None, True), {"dropout_p": 0.5})
    dropout = graph.call_function(aten.native_dropout.default, (q, 0.5, True))
    assert [is_random(n) for n in (plain, none, some, named, dropout)] == [False, False, True, True, True]


def quotients(program: Callable[..., Any], x: torch.Tensor) -> int:
    """Returns how many exponentials `softmax_from_log_softmax` replaces by quotients, and checks the values."""
    gm = make_fx(program, decomposition_table=dict(decomposition_table()))(x)
    exp = aten.exp.default
    before = len(gm.graph.find_nodes(op="call_function", target=exp))
    expected = gm(x)
    softmax_from_log_softmax(gm.graph)
    gm.graph.lint()
    gm.recompile()
    torch.testing.assert_close(gm(x), expected, equal_nan=True)
    return before - len(gm.graph.find_nodes(op="call_function", target=exp))


def log_softmax(x: torch.Tensor, over: Any, largest: Any) -> torch.Tensor:
    below = x - x.amax(largest, keepdim=True)
    return below - below.exp().sum(over, keepdim=True).log()


def test_the_exponential_of_a_log_softmax_is_a_quotient() -> None:
    inf = float("inf")
    rows = [[1.0, 2, 3], [-inf, -inf, -inf], [inf, 0, 1], [-inf, 100, -100], [float("nan"), 0, 0], [-3e38, 3e38, 0]]
    for x in (torch.randn(5, 7) * 30, torch.tensor(rows), torch.randn(1, 1)):
        assert quotients(lambda x: F.log_softmax(x, 1).exp(), x) == 1
        assert quotients(lambda x: F.log_softmax(x, 0).exp() + F.log_softmax(x, 0), x) == 1
        assert quotients(lambda x: x.log_softmax(1).mul(2).exp(), x) == 0
        assert quotients(lambda x: (x - x.exp().sum(1, keepdim=True).log()).exp(), x) == 0
        assert quotients(lambda x: log_softmax(x, 1, 1).exp(), x) == 1
        assert quotients(lambda x: log_softmax(x, (0, 1), 1).exp(), x) == 0


def test_a_batch_norm_in_evaluation_has_one_reciprocal_root_and_other_roots_stay() -> None:
    norm = torch.nn.BatchNorm2d(3).eval()
    assert norm.running_var is not None
    norm.running_var.uniform_(0.5, 2)

    def program(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = norm(x) + 1 / torch.sqrt(x.abs() + 1)
        return result

    x = torch.randn(2, 3, 4, 4)
    with compiler_core.record() as record, torch.no_grad():
        torch.testing.assert_close(compiler_core.compile(program, backend="aot_eager")(x), program(x))
    text = record.compiles[0].find("forward").text
    assert [text.count(f"aten.{name}.default") for name in ("rsqrt", "sqrt", "reciprocal")] == [1, 1, 1]
