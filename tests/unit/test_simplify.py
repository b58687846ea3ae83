"""Rewrites of functional graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from compiler_core.simplify import bias_apart, is_random

aten = torch.ops.aten


def products(program: Callable[..., Any], dtype: torch.dtype = torch.float32, device: str = "cuda") -> list[str]:
    """The matrix products of `program` after `bias_apart`, for tensors on a device that need not be here."""
    sizes = (64, 32), (16, 32), (16,)
    with FakeTensorMode():
        gm = make_fx(program)(*(torch.empty(s, device=device, dtype=dtype) for s in sizes))
    bias_apart(gm.graph)
    gm.graph.lint()
    return [str(n.target) for n in gm.graph.nodes if n.target in (aten.mm.default, aten.addmm.default)]


def test_the_bias_of_a_product_is_added_where_the_sum_is_read() -> None:
    def through_a_view(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.linear(x, w, b).view(8, 8, 16).relu()

    def returned(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.linear(x, w, b)

    def read_by_a_product(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.linear(x, w, b).relu() @ F.linear(x, w, b).t()

    assert products(through_a_view) == ["aten.mm.default"]
    assert products(returned) == ["aten.addmm.default"]
    assert products(read_by_a_product) == ["aten.mm.default", "aten.addmm.default", "aten.mm.default"]
    assert products(through_a_view, torch.bfloat16) == ["aten.addmm.default"], "it would be rounded twice"
    assert products(through_a_view, device="cpu") == ["aten.addmm.default"]


def test_the_sum_is_what_it_was() -> None:
    def program(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.linear(x, w, b).relu()

    tensors = torch.randn(5, 3), torch.randn(4, 3), torch.randn(4)
    gm = make_fx(program)(*tensors)
    with FakeTensorMode():
        for node in gm.graph.nodes:
            if "val" in node.meta:
                node.meta["val"] = torch.empty(node.meta["val"].shape, device="cuda")
    bias_apart(gm.graph)
    gm.recompile()
    assert len(gm.graph.find_nodes(op="call_function", target=aten.mm.default)) == 1
    torch.testing.assert_close(gm(*tensors), program(*tensors))


def test_attention_without_dropout_draws_nothing() -> None:
    graph = fx.Graph()
    q = graph.placeholder("q")
    op = aten._scaled_dot_product_efficient_attention.default
    plain = graph.call_function(op, (q, q, q, None, True))
    none, some = (graph.call_function(op, (q, q, q, None, True, p)) for p in (0.0, 0.1))
    named = graph.call_function(op, (q, q, q, None, True), {"dropout_p": 0.5})
    dropout = graph.call_function(aten.native_dropout.default, (q, 0.5, True))
    assert [is_random(n) for n in (plain, none, some, named, dropout)] == [False, False, True, True, True]
