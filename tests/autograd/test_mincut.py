"""Tests of the estimates of costs that the partition and the record use."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

import compiler_core
from compiler_core.autograd.mincut import count_operations
from compiler_core.capture.tensors.symbolic_shapes import RecordingShapeEnv
from compiler_core.torch_private import FakeTensorMode
from tests.cases.symbolic_programs import Decoder

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


def test_estimates_assume_nothing_about_sizes() -> None:
    """PyTorch's formulas compare sizes, of which each answer would be one more guard."""
    env = ShapeEnv(duck_shape=False)
    mode = FakeTensorMode(shape_env=env)

    def symbolic(*size: int) -> torch.Tensor:
        sizes: Any = StatelessSymbolicContext([DimDynamic.DYNAMIC] * len(size))
        return mode.from_tensor(torch.empty(size), symbolic_context=sizes)

    query, grouped = symbolic(2, 8, 16, 32), symbolic(2, 2, 16, 32)
    product = symbolic(2, 3), symbolic(3, 5)
    convolved = (symbolic(2, 3, 9, 9), symbolic(4, 3, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    result = symbolic(2, 4, 7, 7)
    before = len(env.guards)
    for kind in ("flash", "efficient", "cudnn"):
        attention = getattr(aten, f"_scaled_dot_product_{kind}_attention").default
        assert count_operations(attention, (query, grouped, grouped), {}, None) == 2 * 2 * 2 * 8 * 16 * 16 * 32
    assert count_operations(aten.mm.default, product, {}, None) == 2 * 2 * 3 * 5
    assert count_operations(aten.convolution.default, convolved, {}, result) == 2 * 2 * 4 * 3 * 9 * 49
    assert env.guards[before:] == []


def test_only_capture_and_tracing_assume_something_about_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deciding: list[str] = []
    evaluate = RecordingShapeEnv.evaluate_expr

    def watched(env: RecordingShapeEnv, *args: Any, **kwargs: Any) -> Any:
        before = len(env.guards)
        result = evaluate(env, *args, **kwargs)
        if len(env.guards) > before:
            files = (frame.f_code.co_filename for frame, _ in traceback.walk_stack(None))
            ours = (file.partition("/compiler_core/")[2] for file in files)
            deciding.append(next(file for file in ours if file and not file.endswith("/symbolic_shapes.py")))
        return result

    module = Decoder()

    def program(tokens: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(module(tokens if tokens.shape[0] > 4 else tokens + 1).sum())

    monkeypatch.setenv("CUTAWAY_CACHE_DIR", str(tmp_path))  # what is found in the cache is not decided again
    with mock.patch.object(RecordingShapeEnv, "evaluate_expr", watched):
        compiler_core.compile(program, dynamic=True, strict=True)(torch.randint(0, 50, (8, 19))).backward()
    assert deciding
    assert [file for file in deciding if not file.startswith(("capture/", "autograd/trace/", "autograd/joint"))] == []


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
