"""Programs for the tests of lowering, fusion and code: traced, compiled, compared with eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.proxy_tensor import make_fx

from compiler_core.autograd.trace import decompositions
from compiler_core.config import Options
from compiler_core.pipeline.graph import compile_kernels
from compiler_core.records import Compile, Record
from compiler_core.support.fx_graphs import record_graph

Program = Callable[..., Any]


def trace(program: Program, *inputs: torch.Tensor) -> fx.GraphModule:
    """A functional graph of aten operations, with the decompositions of our compiler."""
    traced: fx.GraphModule = make_fx(
        torch.func.functionalize(program), decomposition_table=decompositions.decomposition_table()
    )(*inputs)
    return traced


def compiled(program: Program, *inputs: torch.Tensor) -> tuple[Callable[..., list[Any]], Compile]:
    """`program` as C++ kernels, and the record of how."""
    gm = trace(program, *inputs)
    record = Record()
    compile_ = record.compile(record.frame("program", "program.py", 1, "root"))
    record_graph(compile_, "forward", "forward", gm)
    return compile_kernels(gm, "forward", compile_, Options())(), compile_


def outputs(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def check(program: Program, *inputs: torch.Tensor, tolerances: Sequence[float] | None = None) -> Compile:
    """Compile `program`, run it twice and compare everything with eager.

    A tolerance of 0 asks for the same numbers; by default it goes by the result's type.
    """
    expected = outputs(program(*[_same(t) for t in inputs]))
    run, compile_ = compiled(program, *[_same(t) for t in inputs])
    for _ in range(2):
        got = run([_same(t) for t in inputs])
        assert len(got) == len(expected)
        for ours, reference, tolerance in zip(got, expected, tolerances or repeat(None), strict=False):
            assert_same(ours, reference, tolerance)
    return compile_


def assert_same(ours: torch.Tensor, expected: torch.Tensor, tolerance: float | None = None) -> None:
    assert (ours.shape, ours.dtype) == (expected.shape, expected.dtype)
    if expected.numel() > 1:
        assert ours.stride() == expected.stride()
    if tolerance is None:
        tolerance = TOLERANCE.get(expected.dtype, 0)
    torch.testing.assert_close(ours, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def _same(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides and storage offset."""
    if any(s == 0 for s in tensor.stride()):
        return tensor
    size = tensor.storage_offset() + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    if not tensor.numel():
        return tensor.clone()
    flat = torch.empty(size, dtype=tensor.dtype)
    return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).copy_(tensor)
