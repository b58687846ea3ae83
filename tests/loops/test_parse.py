"""The text of a loop nest, read back: the same loop nest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from compiler_core.autograd.trace import decompositions
from compiler_core.loops import ir
from compiler_core.loops.fuse.rewriter import FusionRequests
from compiler_core.loops.lower import lower
from compiler_core.pipeline.graph import fuse_loops, schedule_loops
from compiler_core.records import Record
from compiler_core.tools.changes.loops_from_text import ParseContext, parse, symbols_of

PROGRAMS: list[Callable[[torch.Tensor], Any]] = [
    lambda x: x.softmax(-1) + 1,
    lambda x: torch.where(x > 0, x, -torch.inf).amax(0) % 2,
    lambda x: x[:, torch.tensor([0, 2, 1])] * F.pad(x, (1, 2))[:, :3],
    lambda x: x.cumsum(1) + torch.arange(x.shape[1]) * x.shape[0],
    lambda x: F.layer_norm(x, x.shape[1:]).flip(0).to(torch.bfloat16),
    lambda x: torch.zeros(5, x.shape[1], dtype=torch.bfloat16).index_add(0, torch.tensor([1, 4]), x[:2].bfloat16()),
    lambda x: x.isnan().any() | (x.long() < 3).all(),
    lambda x: F.interpolate(x[None, None], scale_factor=2.0) + F.max_pool2d(x[None, None], 2, 1).sum(),
]


def scheduled(program: Callable[..., Any], dynamic: bool) -> ir.Program:
    mode: Any = "symbolic" if dynamic else "real"
    table = decompositions.decomposition_table()
    gm = make_fx(torch.func.functionalize(program), decomposition_table=table, tracing_mode=mode)(torch.randn(4, 8))
    record = Record()
    compile_ = record.compile(record.frame("program", "program.py", 1, "root"))
    return schedule_loops(fuse_loops(lower(gm, "forward"), FusionRequests(), compile_).program)


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_text_of_loops_is_read_back(dynamic: bool) -> None:
    seen: list[ir.Loops] = []
    for each in PROGRAMS:
        program = scheduled(each, dynamic)
        dtypes = {name: buffer.dtype for name, buffer in program.buffers.items()}
        for loops in (step for step in program.steps if isinstance(step, ir.Loops)):
            seen.append(loops)
            assert parse(loops.text(), ParseContext(dtypes, symbols_of(loops), loops.scalars)) == loops
    kinds = {type(statement) for loops in seen for statement in loops.body}
    assert kinds >= {ir.Load, ir.Index, ir.Position, ir.Compute, ir.Reduce, ir.Scan, ir.Store}
    assert any(loops.symbols for loops in seen) == dynamic
