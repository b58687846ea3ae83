"""Tests of capture methods side by side: right, an error, or silently wrong, on functions that tell them apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

import compiler_core
from compiler_core.errors import UsageError

ONES = torch.ones(3, 3)
Verdicts = dict[str, str]
OURS, STOCK = "compiler_core.compile", "torch.compile"
CONCRETE = "torch.fx.symbolic_trace with concrete_args"


def branch(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.sum() < 0:
        return -y
    return y


def through_numpy(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy((x * 2).numpy() + 1) * 2


def prints(x: torch.Tensor) -> torch.Tensor:
    print("called")
    return x.sin()


def counts(x: torch.Tensor, n: int) -> torch.Tensor:
    for _ in range(n):
        x = x.sin()
    return x


def writes(x: torch.Tensor) -> torch.Tensor:
    return x.add_(1).cos()


def draws(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand(3, 3)


WRONG, ERROR, RIGHT = "silently wrong", "error", "right"


@pytest.mark.parametrize(
    ("fn", "args", "other_args", "want"),
    [
        (branch, (ONES, ONES), (-ONES, ONES), (WRONG, RIGHT, ERROR, WRONG, ERROR)),
        (through_numpy, (ONES,), (-ONES,), (WRONG, ERROR, ERROR, WRONG, ERROR)),
        (prints, (ONES,), None, (WRONG, RIGHT, WRONG, WRONG, WRONG)),
        (counts, (ONES, 2), (ONES, 3), (ERROR, RIGHT, ERROR, ERROR, ERROR)),
        (writes, (ONES,), (-ONES,), (RIGHT, RIGHT, RIGHT, WRONG, RIGHT)),
        (draws, (ONES,), (ONES,), (RIGHT, RIGHT, WRONG, WRONG, RIGHT)),
        (nn.Dropout(), (ONES,), (-ONES,), (RIGHT, RIGHT, RIGHT, WRONG, RIGHT)),
        (nn.BatchNorm1d(3), (ONES,), (torch.randn(7, 3),), (RIGHT, RIGHT, ERROR, WRONG, ERROR)),
    ],
    ids=["branch", "numpy", "prints", "counts", "writes", "draws", "dropout", "batch_norm"],
)
def test_verdicts(fn: Any, args: Sequence[Any], other_args: Sequence[Any] | None, want: tuple[str, ...]) -> None:
    found = compiler_core.capture_methods(fn, args, other_args)
    verdicts = {row.method: row.verdict for row in found.rows}
    methods = ("torch.jit.trace", "torch.jit.script", "torch.fx.symbolic_trace", CONCRETE, "torch.export")
    assert verdicts == dict(zip(methods, want, strict=True)) | {STOCK: RIGHT, OURS: RIGHT}, str(found)


def test_the_difference_is_shown() -> None:
    found = compiler_core.capture_methods(branch, (ONES, ONES), (-ONES, ONES))
    assert "with the second arguments: result tensor([[1., 1., 1.], " in found["torch.jit.trace"].message
    assert ", not tensor([[-1., -1., -1.], " in found["torch.jit.trace"].message
    assert "cannot be used as inputs to control flow" in found["torch.fx.symbolic_trace"].message
    ours = found[OURS]
    assert [len(each.graph.find_nodes(op="output")) for each in ours.modules] == [1] * len(ours.graphs)
    assert "sum" in ours.graphs[0]
    lines = str(found).splitlines()
    assert lines[0].split() == ["method", "verdict", "graphs", "operations"]
    assert len({line.index(row.verdict) for line, row in zip(lines[1:], found.rows, strict=True)}) == 1


def test_arguments_modules_and_random_state_are_as_before() -> None:
    norm, x = nn.BatchNorm1d(3), ONES.clone()
    torch.manual_seed(3)
    want = torch.rand(2)
    torch.manual_seed(3)
    compiler_core.capture_methods(norm, (x,))
    compiler_core.capture_methods(writes, (x,))
    assert torch.equal(x, ONES)
    assert norm.running_mean is not None
    assert not norm.running_mean.any()
    assert torch.equal(torch.rand(2), want)


class Alternating(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x.sin() if self.calls % 2 else x.cos()


def test_each_run_begins_with_the_same_state() -> None:
    module = Alternating()
    found = compiler_core.capture_methods(module, (torch.ones(3),), (-torch.ones(3),))
    assert found["compiler_core.compile"].verdict == found["torch.compile"].verdict == "right", found
    assert module.calls == 0


def test_concrete_args_of_the_user() -> None:
    found = compiler_core.capture_methods(counts, (ONES, 2), (ONES * 2, 2), concrete_args={"n": 2})
    assert found[CONCRETE].verdict == "right"
    assert found[CONCRETE].graphs[0].count(".sin()") == 2


def test_more_comparisons_than_stock_recompiles() -> None:
    layer = nn.Linear(3, 2)
    for _ in range(10):
        assert compiler_core.capture_methods(layer, (ONES,))[STOCK].operations == 1


def test_a_call_that_raises_is_refused() -> None:
    with pytest.raises(UsageError, match="the call itself raises TypeError: branch"):
        compiler_core.capture_methods(branch, (ONES,))


# ---------------------------------------------------------------- other arguments than the given ones


def one_or_other(x: torch.Tensor) -> torch.Tensor:
    return x.relu() if x.sum() > 0 else x.neg()


def by_size(x: torch.Tensor) -> torch.Tensor:
    return x.sin() if x.shape[0] > 3 else x.cos()


def by_flag(x: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
    return x.sin() if options["flag"] else x.cos()


def by_index(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return x[at] * 2


def test_a_constant_graph_that_agrees_by_chance_is_found() -> None:
    """Both branches return ones for the given arguments, and so does a graph without operations."""
    found = compiler_core.capture_methods(one_or_other, (ONES,), (-ONES,))
    row = found[CONCRETE]
    assert row.operations == 0
    assert row.verdict == WRONG
    assert row.message.startswith("with zeros: result"), row.message
    assert found["torch.jit.trace"].verdict == WRONG
    assert found[OURS].verdict == found[STOCK].verdict == RIGHT
    alone = compiler_core.capture_methods(one_or_other, (ONES,))
    assert alone["torch.jit.trace"].verdict == alone[CONCRETE].verdict == WRONG, alone


@pytest.mark.parametrize(("fn", "args"), [(by_size, (ONES,)), (by_flag, (ONES, {"flag": True}))])
def test_branches_on_sizes_and_flags_take_the_other_way(fn: Any, args: tuple[Any, ...]) -> None:
    found = compiler_core.capture_methods(fn, args)
    assert found["torch.fx.symbolic_trace"].verdict != RIGHT, found
    assert found["torch.jit.trace"].verdict != RIGHT, found
    assert found[OURS].verdict == found[STOCK].verdict == RIGHT, found


def test_what_was_checked_is_shown() -> None:
    found = compiler_core.capture_methods(by_index, (torch.randn(4, 3), torch.tensor([0, 2, 3])))
    ours = found[OURS]
    assert ours.verdict == RIGHT
    assert ours.message.startswith("checked with the first arguments, ")
    assert "random values" in ours.message
    assert "size 5 for 4" in ours.message
    exported = found["torch.export"]
    assert exported.verdict == RIGHT
    assert "it refuses size 5 for 4" in exported.message
    assert "large values" not in str(found)  # plain PyTorch refuses such indices
    assert len(ours.graphs) == 1  # those of other sizes are not counted
