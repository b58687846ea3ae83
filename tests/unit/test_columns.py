"""Reductions over rows and over columns in one kernel: which loops are joined, and what they become."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from compiler_core import ir
from compiler_core.columns import join_columns
from compiler_core.fuse import fuse
from compiler_core.lower import lower
from compiler_core.rewrite import Rewritten, Wishes
from tests.kernel_programs import trace


def joined(program: Callable[..., Any], *inputs: torch.Tensor) -> Rewritten:
    done = join_columns(fuse(lower(trace(program, *inputs), "forward")), Wishes())
    for step in done.program.steps:
        if isinstance(step, ir.Loops):
            ir.check(step)
    return done


def walking(done: Rewritten) -> list[ir.Loops]:
    return [s for s in done.program.steps if isinstance(s, ir.Loops) and s.columns]


def test_the_gradient_of_a_norm_reads_its_inputs_once() -> None:
    def gradient(x: torch.Tensor, w: torch.Tensor, g: torch.Tensor) -> Any:
        mean, rstd = x.mean(1, keepdim=True), torch.rsqrt(x.var(1, keepdim=True) + 1e-6)
        return torch.ops.aten.native_layer_norm_backward(g, x, [96], mean, rstd, w, w, [True, True, True])

    done = joined(gradient, torch.randn(512, 96), torch.randn(96), torch.randn(512, 96))
    (kernel,) = walking(done)
    assert (kernel.outer, kernel.inner, len(kernel.columns)) == ((64, 8), (96,), 2)
    readers = [s for s in done.program.steps if isinstance(s, ir.Loops) and "g_1" in s.reads]
    assert readers == [kernel]
    (note,) = [r for r in done.rewrites if r.rule == "columns"]
    assert note.bytes_saved >= 512 * 96 * 4
    assert note in done.by_loops[kernel.name]
    assert "store sum_" in kernel.text()
    assert " = sum over i of " in kernel.text()


@pytest.mark.parametrize(
    ("program", "size"),
    [
        (lambda x: (F.softmax(x, 1), x.t().sum(0)), (512, 512)),  # both over rows
        (lambda x: (F.softmax(x, 1), (x + 1).sum(0)), (509, 96)),  # a prime number of rows
        (lambda x: (F.softmax(x, 1) + x.sum(0), x), (512, 96)),  # the sums are needed first
        (lambda x: (F.softmax(x, 1), F.softmax(x, 0)), (512, 96)),  # the columns are gone through again
        (lambda x: (F.softmax(x, 1), x.sum(0)), (512, 20_000)),  # more sums than registers
    ],
)
def test_what_stays_apart(program: Callable[..., Any], size: tuple[int, int]) -> None:
    assert not walking(joined(program, torch.randn(size)))


def test_a_row_that_others_need_is_still_stored() -> None:
    def program(x: torch.Tensor) -> Any:
        shares = F.softmax(x, 1)
        return shares, shares.sum(0)

    (kernel,) = walking(joined(program, torch.randn(512, 96)))
    assert len(kernel.writes) == 2
    assert len(kernel.reads) == 1
