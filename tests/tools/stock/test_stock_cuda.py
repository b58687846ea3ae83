"""Observing stock torch.compile on a GPU: Triton kernels, CUDA graphs, autotuning."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._inductor.utils import fresh_cache

import compiler_core

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
    pytest.mark.filterwarnings("ignore"),  # Inductor's own
]


def gelu_sum(x: torch.Tensor) -> torch.Tensor:
    y = torch.nn.functional.gelu(x) * 2
    return y.sum(-1)


def grow(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x.cos()


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x @ y


def test_a_triton_kernel_is_linked_to_the_users_lines() -> None:
    with fresh_cache(), compiler_core.record(engine="torch") as record:
        torch.compile(gelu_sum)(torch.randn(64, 512, device="cuda"))
    (compile_,) = record.compiles
    assert [f.message for f in compile_.failures] == []
    assert [kernel.language for kernel in compile_.kernels] == ["triton"]
    kernel = next(a for a in compile_.artifacts if a.pane == "kernel")
    erf = next(kernel.item(s.key) for s in kernel.spans if "erf(" in kernel.lines(s))
    lines = {record.text(item).strip() for item in record.linked(erf) if item.startswith("src:")}
    assert lines == {"y = torch.nn.functional.gelu(x) * 2"}
    assert compile_.fusions[0].nodes


def test_skipped_cuda_graphs_have_a_reason() -> None:
    with fresh_cache(), compiler_core.record(engine="torch") as record:
        compiled = torch.compile(grow, mode="reduce-overhead")
        for _ in range(3):
            compiled(torch.ones(8, device="cuda"))
    reasons = [graph.reason for c in record.compiles for graph in c.cuda_graphs]
    assert any("mutated" in reason for reason in reasons), reasons


def test_autotuning_records_all_choices() -> None:
    x = torch.randn(256, 256, device="cuda", dtype=torch.bfloat16)
    options: Any = {"max_autotune": True, "max_autotune_gemm_backends": "TRITON,ATEN"}
    with fresh_cache(), compiler_core.record(engine="torch") as record:
        torch.compile(product, options=options)(x, x)
    name, *tried = record.compiles[0].find("autotuning").text.splitlines()
    assert name == "mm(256x256, 256x256)"
    assert len(tried) > 2
    assert any("triton_mm" in row for row in tried)
