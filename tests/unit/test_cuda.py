"""Whole programs on a real GPU, through the default backend, against eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import compiler_core
from compiler_core.record import Record

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")]


def walk_through(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    x = inputs["x"].cos().cos()
    if x.mean() > 0.5:
        x = x / 1.1
    return x * inputs["y"]


def gradients(fn: Callable[..., Any], tensors: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """The value of `fn` and the gradients of its inputs."""
    leaves = {k: t.detach().requires_grad_() for k, t in tensors.items()}
    value = fn(leaves)
    value.sum().backward()
    return [value.detach(), *(t.grad for t in leaves.values() if t.grad is not None)]


def no_failure(record: Record) -> None:
    assert [f.message for c in record.compiles for f in c.failures] == []
    assert all(c.outcome == "compiled" for c in record.compiles)


def test_walk_through() -> None:
    with compiler_core.record() as record:
        fast = compiler_core.compile(walk_through, strict=True)
        for n in (10, 8, 10):
            tensors = {k: torch.randn(n, device="cuda") for k in "xy"}
            torch.testing.assert_close(gradients(fast, tensors), gradients(walk_through, tensors), atol=1e-6, rtol=1e-6)
    no_failure(record)
    assert [len(f.compiles) for f in record.frames] == [2, 2, 0]
    assert {k.language for c in record.compiles for k in c.kernels} == {"triton"}


def test_training() -> None:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 10)).cuda()
    other = copy.deepcopy(model)
    x, y = torch.randn(128, 32, device="cuda"), torch.randint(10, (128,), device="cuda")
    with compiler_core.record() as record:
        fast = compiler_core.compile(step, strict=True)
        optimizers = [torch.optim.Adam(m.parameters(), lr=1e-2) for m in (model, other)]
        for _ in range(5):
            got, want = fast(model, optimizers[0], x, y), step(other, optimizers[1], x, y)
            torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)
    no_failure(record)
    assert any(k.language == "triton" for c in record.compiles for k in c.kernels)


def test_transformer_block() -> None:
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True).cuda()
    x = torch.randn(4, 16, 32, device="cuda")
    with compiler_core.record() as record:
        fast = compiler_core.compile(block, strict=True)
        torch.testing.assert_close(fast(x), block(x), atol=1e-5, rtol=1e-4)
    no_failure(record)


def test_dropout_draws_eagers_stream() -> None:
    def noisy(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        return F.dropout(inputs["x"].cos(), 0.5)

    x = torch.randn(1000, device="cuda")
    fast = compiler_core.compile(noisy)
    torch.manual_seed(1)
    want = gradients(noisy, {"x": x})
    torch.manual_seed(1)
    torch.testing.assert_close(gradients(fast, {"x": x}), want)
