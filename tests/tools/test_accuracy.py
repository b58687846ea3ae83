"""Errors of kernels compared with float64: right kernels have small ones, wrong kernels are found."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import compiler_core
from compiler_core.records import Accuracy, Record
from compiler_core.tools.accuracy import check_accuracy, relative_error


def checked(program: Any, *inputs: Any, **options: Any) -> Record:
    with compiler_core.record() as result:
        value = compiler_core.compile(program, strict=True, **options)(*inputs)
        if value.requires_grad:
            value.sum().backward()
    check_accuracy(result)
    assert result.notes == []
    return result


def found(record: Record) -> dict[str, Accuracy]:
    return {a.node.partition(":")[2]: a for c in record.compiles for a in c.accuracy}


def block(x: torch.Tensor, w: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(F.gelu(x.t() @ w), (8,))[at].softmax(0)


INPUTS = torch.randn(16, 6), torch.randn(16, 8, requires_grad=True), torch.tensor([0, 5, 5])


def test_each_value_that_a_kernel_writes_is_compared() -> None:
    result = checked(block, *INPUTS)
    errors = found(result)
    assert {"forward#mm", "forward#rsqrt", "backward#mm_1"} <= errors.keys()
    for name, each in errors.items():
        assert each.error is not None, name
        assert each.eager is not None
        assert each.error <= 2 * each.eager + 2e-7, name
    assert max(each.error or 0 for each in errors.values()) > 0, "single precision is not exact"
    items = {a.item(s.key) for c in result.compiles for a in c.artifacts for s in a.spans}
    assert {a.node for c in result.compiles for a in c.accuracy} <= items
    assert Record.from_json(result.to_json()) == result


def test_a_wrong_kernel_is_found() -> None:
    result = checked(lambda x: (x * 0.5).tanh().sum(1), torch.randn(6, 40))
    assert (found(result)["forward#sum_1"].error or 0) < 1e-5
    (kernels,) = (a for c in result.compiles for a in c.artifacts if a.name == "forward.cpp")
    kernels.text = kernels.text.replace("0.5", "0.4")
    check_accuracy(result)
    wrong = found(result)["forward#sum_1"]
    assert (wrong.error or 0) > 0.05
    assert (wrong.eager or 0) < 1e-5


def test_narrow_types_have_their_error() -> None:
    x = torch.randn(64, 64)
    wide, narrow = (
        found(checked(lambda x: x.exp() + 1, x.to(t)))["forward#add"] for t in (torch.float32, torch.bfloat16)
    )
    assert (wide.error or 0) < 1e-6
    assert 1e-4 < (narrow.error or 0) < 1e-2
    assert (narrow.eager or 0) >= (narrow.error or 0) / 2


@pytest.mark.parametrize(
    ("program", "inputs"),
    [
        (lambda x: F.dropout(x, 0.5).exp().sum(0), (torch.randn(9, 5, requires_grad=True),)),
        (lambda x, n: (x + n).sum(0) @ x.t(), (torch.randn(5, 7), 3)),
        (lambda x: F.max_pool2d(x.sin(), 2).exp(), (torch.randn(1, 2, 8, 8, requires_grad=True),)),
        (lambda x: x.sin() * torch.arange(20.0) + torch.tensor([0.1]), (torch.randn(20),)),
        (lambda x: x.half().float().cumsum(0), (torch.randn(20),)),
    ],
    ids=["random", "symbols", "calls", "constants", "casts"],
)
def test_all_kinds_of_graphs(program: Any, inputs: tuple[Any, ...]) -> None:
    errors = found(checked(program, *inputs, dynamic=True))
    assert errors
    assert all(each.error is not None and each.error < 1e-3 for each in errors.values()), errors


def with_noise(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return ((x @ w).cos() * torch.randn(16, 8)).exp().sum()


@pytest.mark.parametrize("rows", [16, 8])
def test_the_backward_is_compared_though_the_forward_draws_random_numbers(rows: int) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 4))
    for program, inputs in (
        (with_noise, (torch.randn(16, 8), torch.randn(8, 8, requires_grad=True))),
        (lambda x: net(x).sum(), (torch.randn(rows, 8),)),
    ):
        with compiler_core.record() as record:
            compiler_core.compile(program)(*inputs).backward()
        check_accuracy(record)
        assert not record.notes
        errors = found(record)
        assert any(name.startswith("backward#") for name in errors)
        assert all(each.error is not None and each.error < 1e-5 for each in errors.values()), errors


def test_nodes_after_random_numbers_that_are_not_written_are_left_out() -> None:
    with compiler_core.record() as record:
        compiler_core.compile(lambda x: F.rrelu(x, training=True).cos())(torch.randn(16, 8))
    check_accuracy(record)
    assert all(each.error is not None and each.error < 1e-5 for each in found(record).values())
    assert [("within a kernel" in note, "nodes of forward.wrapper" in note) for note in record.notes] == [(True, True)]


def test_relative_error() -> None:
    nan, inf = float("nan"), float("inf")
    exact = torch.tensor([2.0, nan, inf, -4.0], dtype=torch.float64)
    assert relative_error(torch.tensor([2.0, nan, inf, -4.0]), exact) == 0
    assert relative_error(torch.tensor([3.0, nan, inf, -4.0]), exact) == 0.25
    assert relative_error(torch.tensor([nan, nan, inf, -4.0]), exact) is None
    assert relative_error(torch.tensor([2.0, nan, -inf, -4.0]), exact) is None
    assert relative_error(torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 0, 0])) == 0.5
