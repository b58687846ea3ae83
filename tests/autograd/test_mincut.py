"""Tests of the estimates of costs that the partition and the record use."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F

import compiler_core
from compiler_core.autograd.mincut import count_operations

aten = torch.ops.aten


def shaped(*size: int) -> torch.Tensor:
    return torch.empty(size, device="meta")


@pytest.mark.parametrize("kind", ["flash", "efficient", "cudnn"])
def test_attention_with_grouped_heads_counts_as_with_all_heads(kind: str) -> None:
    query, grouped, full = shaped(2, 8, 16, 32), shaped(2, 2, 16, 32), shaped(2, 8, 16, 32)
    forward = getattr(aten, f"_scaled_dot_product_{kind}_attention").default
    backward = getattr(aten, f"_scaled_dot_product_{kind}_attention_backward").default
    assert count_operations(forward, (query, grouped, grouped), {}, None) == 2 * 2 * 2 * 8 * 16 * 16 * 32
    want = count_operations(backward, (query, query, full, full), {}, None)
    assert count_operations(backward, (query, query, grouped, grouped), {}, None) == want


def test_a_call_that_pytorchs_formula_does_not_take_is_not_counted() -> None:
    assert count_operations(aten.mm.default, (shaped(2, 3), shaped(4, 5)), {}, None) is None


def test_attention_with_grouped_heads_compiles() -> None:
    query = torch.randn(2, 8, 16, 32, requires_grad=True)
    keys, values = (torch.randn(2, 2, 16, 32, requires_grad=True) for _ in range(2))

    def attend(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(query, keys, values, enable_gqa=True, is_causal=True).sin()

    with mock.patch.dict(
        "torch.utils.flop_counter.flop_registry", {aten._scaled_dot_product_flash_attention_for_cpu: refuse}
    ):
        got = compiler_core.compile(attend, strict=True)(query, keys, values)
    torch.testing.assert_close(got, attend(query, keys, values))


def refuse(*args: Any, **kwargs: Any) -> int:
    raise AssertionError("the shapes differ")
