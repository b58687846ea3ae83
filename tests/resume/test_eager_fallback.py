"""Tests of graphs that fail at run time: the frame runs as plain Python, and the record says whose failure it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.backends import registry
from compiler_core.errors import StrictError
from compiler_core.records import Failure, Record
from tests.cases.failing_backend import fails


def failures(record: Record) -> list[Failure]:
    return [failure for frame in record.frames for compile_ in frame.compiles for failure in compile_.failures]


@pytest.fixture(autouse=True)
def _fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adds a backend of ours whose result fails."""
    monkeypatch.setitem(registry._EXTERNAL, "fails", fails)


def test_our_failure_is_noted_once() -> None:
    with compiler_core.record() as record:
        compiled = compiler_core.compile(lambda x: x.sin() * 2, backend="fails")
        x = torch.ones(3)
        with pytest.warns(compiler_core.CompileWarning, match="failed as it ran: ArithmeticError: made wrong"):
            assert torch.equal(compiled(x), x.sin() * 2)
        for _ in range(2):
            assert torch.equal(compiled(x), x.sin() * 2)
    (failure,) = failures(record)
    assert failure.stage == "run"
    assert failure.message == "ArithmeticError: made wrong"
    assert "in run" in failure.detail


def test_each_compile_notes_its_own() -> None:
    with compiler_core.record() as record:
        compiled = compiler_core.compile(lambda x: x.sin(), backend="fails")
        with pytest.warns(compiler_core.CompileWarning):
            compiled(torch.ones(3)), compiled(torch.ones(3, dtype=torch.float64))
    assert [len(c.failures) for frame in record.frames for c in frame.compiles] == [1, 1]


def test_the_users_error_is_not_noted() -> None:
    def pick(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x.sin()[i]

    with compiler_core.record() as record:
        compiled = compiler_core.compile(pick, backend="aot_eager")
        compiled(torch.ones(3), torch.tensor([1]))
        with pytest.raises(IndexError, match="out of bounds"):
            compiled(torch.ones(3), torch.tensor([7]))
    assert not failures(record)


def test_an_error_that_the_program_catches_is_not_noted() -> None:
    def pick(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        try:
            return x.sin()[i]
        except IndexError:
            return x

    with compiler_core.record() as record:
        compiled = compiler_core.compile(pick, backend="cpp", strict=True)
        compiled(torch.ones(3), torch.tensor([1]))
        assert torch.equal(compiled(torch.ones(3), torch.tensor([7])), torch.ones(3))
    assert not failures(record)


def test_strict_raises_our_failure() -> None:
    with pytest.raises(StrictError, match="failed in run: ArithmeticError: made wrong"):
        compiler_core.compile(lambda x: x.sin(), backend="fails", strict=True)(torch.ones(3))


@pytest.mark.parametrize("write", [lambda x: x.data.mul_(2), lambda x: x.mul_(2), lambda x: x.view(3).mul_(2)])
def test_what_was_written_is_put_back_before_the_frame_runs_again(write: Callable[[torch.Tensor], Any]) -> None:
    def double(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        write(x)
        return x.sin()[i]

    x, plain, outside = torch.ones(3), torch.ones(3), torch.tensor([7])
    for function, argument in ((double, plain), (compiler_core.compile(double, backend="eager"), x)):
        with pytest.raises(IndexError):
            function(argument, outside)
    assert torch.equal(x, plain)
    assert x._version == plain._version


def test_a_history_that_cannot_be_taken_back_leaves_the_error() -> None:
    def scale(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x.mul_(w)

    x = torch.ones(2, 3)
    with pytest.raises(ArithmeticError, match="made wrong"):
        compiler_core.compile(scale, backend="fails")(x[0], torch.full((3,), 2.0, requires_grad=True))
    assert torch.equal(x[0], torch.full((3,), 2.0))


def test_eagers_error_may_be_of_another_class() -> None:
    """A target out of range is a RuntimeError in the graph and an IndexError in eager PyTorch."""

    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        try:
            return torch.nn.functional.nll_loss(x.log_softmax(1), target)
        except IndexError:
            return x.sum()

    with compiler_core.record() as record:
        compiled = compiler_core.compile(loss, backend="aot_eager", strict=True)
        x = torch.randn(2, 3)
        compiled(x, torch.tensor([0, 1]))
        assert torch.equal(compiled(x, torch.tensor([0, 7])), x.sum())
    assert not failures(record)
