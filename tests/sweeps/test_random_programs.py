"""Compares random programs, the same in every run, with eager; `make fuzz N=20000` runs many more."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.fx as fx

from tests.sampling import sample
from tests.sweeps.fuzz import run, within_noise
from tests.sweeps.fuzz.reduce import reduced
from tests.sweeps.fuzz.tensor_programs import written

pytestmark = pytest.mark.slow


@pytest.fixture
def _recursion_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignores a RecursionError in a finalizer or weak reference: some programs recurse without end."""
    hook = sys.unraisablehook

    def ignoring(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, RecursionError):
            hook(unraisable)

    monkeypatch.setattr(sys, "unraisablehook", ignoring)


@pytest.mark.usefixtures("_recursion_ignored")
@pytest.mark.parametrize("number", sample(range(20), 10))
def test_ten_programs(number: int) -> None:
    tally = run.Tally()
    run.search(number, tally, "eager")
    assert (tally.programs, tally.invalid) == (run.PER_SEED, 0)
    assert not tally.found, "\n\n".join(f"# {kind}\n{program}" for kind, program in tally.found.items())


def test_reduced_keeps_what_fails() -> None:
    source = "def f(a, b):\n    x = a + 1\n    if b:\n        print(x, 1 // 0)\n    return x\n"
    assert reduced(source, lambda text: "// 0" in text) == "1 // 0"


@pytest.mark.parametrize("number", sample(range(20, 30), 2))
def test_program_of_tensors(number: int) -> None:
    run.check(written(random.Random(number)), "cpp")


SUMS = """
from tests.sweeps.fuzz.tensor_parts import *
def program(x):
    return [x.sin().sum(-1), (x.sin() * 10).floor()]
CALLS = [lambda: (tensor((3, 100)),)]
CHANGES = []
GRAD = True
"""


def test_another_order_of_summation_is_within_noise_and_another_sine_is_not() -> None:
    def backend(change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        def compiled(gm: fx.GraphModule, examples: Sequence[torch.Tensor]) -> Callable[..., Any]:
            def call(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
                y = change(x.sin())
                return y.flip(-1).cumsum(-1)[:, -1].clone(), (y * 10).floor()

            return call

        return compiled

    module = run.load(SUMS)
    within_noise.check(module, backend(lambda y: y * (1 + 1e-7)))
    with pytest.raises(AssertionError, match="differ"):
        within_noise.check(module, backend(lambda y: y * (1 + 1e-4)))
