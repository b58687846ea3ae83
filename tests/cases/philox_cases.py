"""Dropout's kernels in Triton's interpreter, against the same numbers by PyTorch's operations.

    TRITON_INTERPRET=1 python tests/cases/philox_cases.py

prints a JSON object: case -> verdict.  Tests start it as a process, since the interpreter wants its variable before
Triton is imported.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from compiler_core.autograd.trace import decompositions
from compiler_core.codegen.triton import module as triton_module
from compiler_core.codegen.triton import printer as triton
from compiler_core.loops import ir
from compiler_core.loops.fuse.rules import fuse
from compiler_core.loops.ir import philox
from compiler_core.loops.lower import lower

SIZES = (4096, 4097, 4098, 4100, 600)
DTYPES = (torch.float32, torch.float16, torch.float64)
CASES = {f"{dtype}, {n} elements": (dtype, n) for dtype in DTYPES for n in SIZES}


def on_gpu(function: Callable[..., Any], *inputs: torch.Tensor, name: str = "forward") -> ir.Program:
    """`function` of tensors like `inputs` on a GPU that need not be there, as loops and calls."""
    with FakeTensorMode():
        there = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda:0") for t in inputs]
        graph = make_fx(function, decomposition_table=decompositions.decomposition_table())(*there)
    return fuse(lower(graph, name)).program


def verdict(dtype: torch.dtype, n: int) -> str:
    """``ok``, or what differs; threads are few, so that each has several turns."""
    x, y, p = torch.randn(n).to(dtype), torch.randn(n).to(dtype), 0.3
    program = on_gpu(lambda x, y: [F.dropout(x * 2, p) - y], x, y)
    call, kernel = program.steps
    assert isinstance(call, ir.Call)
    assert isinstance(kernel, ir.Loops)
    launch = triton_module.launchers(triton_module.load(triton.generate(program).text))[kernel.name]
    numbers = seed, offset, threads = -(2**62) - 3, 2**32 - 1, 256
    tensors = {name: (x, y)[at] for at, name in enumerate(program.inputs)} | {kernel.writes[0]: torch.empty_like(x)}
    launch(*(tensors[name] for name in kernel.arguments), *numbers)
    wide = torch.promote_types(dtype, torch.float32)
    drawn = philox.uniform(torch.arange(n), seed, offset, threads, philox.vector_width(dtype, n, 0)).to(wide)
    kept = (x * 2).to(wide) * (drawn < 1 - p) * (1 / torch.tensor(1 - p, dtype=wide))
    want = (kept.to(dtype) - y) if dtype.itemsize == 2 else kept - y
    try:
        torch.testing.assert_close(tensors[kernel.writes[0]], want)
    except AssertionError as error:
        return str(error)
    return "ok" if not torch.equal(drawn < 1 - p, torch.ones_like(drawn, dtype=torch.bool)) else "nothing is dropped"


if __name__ == "__main__":
    json.dump({name: verdict(*case) for name, case in CASES.items()}, sys.stdout, indent=1)
