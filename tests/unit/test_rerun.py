"""A graph that fails while it runs: the frame runs plainly, and the record says whose failure it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx as fx

import compiler_core
from compiler_core.record import Failure, Record


def failures(record: Record) -> list[Failure]:
    return [failure for frame in record.frames for compile_ in frame.compiles for failure in compile_.failures]


def fails(gm: fx.GraphModule, _: Any) -> Callable[..., Any]:
    def run(*inputs: torch.Tensor) -> Any:
        gm(*inputs)
        raise ArithmeticError("made wrong")

    return run


def test_our_failure_is_noted_once() -> None:
    with compiler_core.record() as record:
        compiled = compiler_core.compile(lambda x: x.sin() * 2, backend=fails)
        x = torch.ones(3)
        for _ in range(3):
            assert torch.equal(compiled(x), x.sin() * 2)
    (failure,) = failures(record)
    assert failure.stage == "run"
    assert failure.message == "the compiled graph raised ArithmeticError: made wrong"
    assert "in run" in failure.detail


def test_each_compile_notes_its_own() -> None:
    with compiler_core.record() as record:
        compiled = compiler_core.compile(lambda x: x.sin(), backend=fails)
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


def test_a_write_through_data_is_not_done_twice() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        x.data.mul_(2)
        return x.sin()

    x = torch.ones(3)
    with pytest.raises(ArithmeticError, match="made wrong"):
        compiler_core.compile(double, backend=fails)(x)
    assert torch.equal(x, torch.full((3,), 2.0))
