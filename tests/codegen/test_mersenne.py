"""Tests of random numbers drawn like PyTorch's CPU generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import compiler_core
from compiler_core.codegen.wrapper import mersenne
from tests.sampling import pairs

if not mersenne.matches_pytorch():
    pytest.skip("PyTorch draws with MKL here", allow_module_level=True)


def after() -> list[torch.Tensor]:
    """Returns the generator's state and its next numbers."""
    return [torch.get_rng_state(), torch.randn(3), torch.rand(5)]


@pytest.mark.parametrize(
    ("words", "dtype"),  # words drawn before, of the state's 624
    pairs([0, 1, 311, 622, 623, 624], [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.bool], 2),
)
def test_the_numbers_and_the_state_are_those_of_pytorch(words: int, dtype: torch.dtype) -> None:
    for count in (0, 1, 2, 311, 312, 313, 1249, 5000):
        for p in (0.0, 1e-12, 0.1, 0.5, 0.9, 1.0):
            torch.manual_seed(count)
            torch.rand(words)
            state = torch.get_rng_state()
            expected = [torch.empty(count, dtype=dtype).bernoulli_(p), *after()]
            torch.set_rng_state(state)
            found = [mersenne.bernoulli(torch.empty(count, dtype=dtype), p), *after()]
            for want, got in zip(expected, found, strict=True):
                assert torch.equal(want, got)


def test_a_probability_that_is_none_raises_as_eager_does() -> None:
    with pytest.raises(RuntimeError, match="bernoulli_ expects p to be in"):
        mersenne.bernoulli(torch.empty(3), 1.5)


@pytest.mark.parametrize(("shape", "dtype"), pairs([(7,), (16, 33), (2, 3, 5, 7)], [torch.float32, torch.bfloat16], 2))
def test_dropout_is_eagers(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.dropout(x.sin(), 0.3) + x, 0.1)

    def outcome(function: Callable[..., Any]) -> list[Any]:
        torch.manual_seed(1)
        fresh = x.clone().requires_grad_()
        with torch.no_grad():
            unseen = function(x)
        y = function(fresh)
        y.sum().backward()
        return [unseen, y.detach(), fresh.grad, *after()]

    x = torch.randn(shape, dtype=dtype)
    for want, got in zip(outcome(program), outcome(compiler_core.compile(program)), strict=True):
        torch.testing.assert_close(got, want)


def test_a_dropout_beside_others_is_drawn_by_us() -> None:
    with compiler_core.record() as record:
        compiler_core.compile(lambda x: F.dropout(x, 0.1) + x)(torch.randn(64))
    (compile_,) = record.frames[0].compiles
    assert compile_.kernels[0].name == "draw_bernoulli"
    assert "bernoulli = draw_bernoulli(empty((64,), (1,), f32), 0.9)" in compile_.find("forward.wrapper").text
