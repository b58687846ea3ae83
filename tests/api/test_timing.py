"""Tests of times side by side."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn

import compiler_core
from compiler_core.api.timing import Timing, Timings
from compiler_core.errors import UsageError

MEBIBYTE = 1 << 20


def timing(name: str, milliseconds: list[float], compile_seconds: float = 0.0, peak: int = 1000) -> Timing:
    return Timing(name, tuple(ms / 1000 for ms in milliseconds), compile_seconds, peak, None)


def verdict(other: Timing) -> str:
    return Timings((timing("eager", [4.0, 4.2, 4.4, 8.0] * 5), other)).verdict(other.name)


def test_verdict_of_a_faster_form() -> None:
    found = verdict(timing("core", [2.0, 2.1, 2.2, 4.0] * 5, compile_seconds=4.3, peak=800))
    assert found == (
        "eager 4.3 ms → core 2.15 ms (2.00x) · compiled in 4.3 s, pays off after 2,000 calls · peak memory -20%"
    )


def test_a_slower_form_never_pays_off() -> None:
    found = verdict(timing("core", [8.0, 8.4, 8.8, 16.0] * 5, compile_seconds=1))
    assert found == "eager 4.3 ms → core 8.6 ms (0.50x) · compiled in 1 s · the same peak memory"


def test_a_difference_within_the_noise_is_called_so() -> None:
    found = verdict(timing("core", [3.8, 4.3, 4.3, 7.0] * 5, compile_seconds=1))
    assert "(no difference beyond noise)" in found
    assert "pays off" not in found


def test_times_that_vary_widely_deserve_a_warning() -> None:
    steady, busy = timing("eager", [4.0, 4.2] * 10), timing("core", [1.0, 40.0] * 10)
    assert "vary" not in str(Timings((steady,)))
    assert str(Timings((steady, busy))).endswith(
        "The times of core vary more than 3-fold: the machine is busy, or the calls do not all do the same."
    )


def test_each_form_is_timed_and_nothing_is_left() -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Dropout()), torch.randn(4, 8, requires_grad=True)
    grad = model[0].weight.grad = torch.ones(8, 8)
    states = torch.get_rng_state(), random.getstate()
    found = compiler_core.time(model, x, backward=True, seconds=0.01)
    assert [row.name for row in found.rows] == ["eager", "core"]
    assert len(found["eager"].seconds) == len(found["core"].seconds) >= 11
    assert found["core"].compile_seconds > found["eager"].compile_seconds
    assert found["core"].problems == 0
    assert model[0].weight.grad is grad
    assert torch.equal(grad, torch.ones(8, 8))
    assert model[0].bias.grad is None
    assert x.grad is None
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert str(found).count("\n") >= 3


def test_peak_memory_is_what_one_call_allocates() -> None:
    x = torch.zeros(MEBIBYTE // 4)
    forms = {"one": lambda: (x + 1).sum(), "two": lambda: ((x + 1) * (x + 2)).sum()}
    found = compiler_core.time(forms["one"], engines=forms, seconds=0.01)
    assert MEBIBYTE <= found["one"].peak_bytes < 1.1 * MEBIBYTE
    assert 3 * MEBIBYTE <= found["two"].peak_bytes < 3.1 * MEBIBYTE


def test_modules_in_closures_keep_their_gradients() -> None:
    layer, x = nn.Linear(2, 2), torch.randn(3, 2)
    compiler_core.time(lambda: layer(x), engines=["eager"], backward=True, seconds=0.01)
    assert layer.weight.grad is None


@pytest.mark.parametrize(
    ("engines", "backward", "message"),
    [
        (("eager", "fast"), False, "unknown engine 'fast'"),
        (("eager",), True, "requires a gradient"),
        ((), False, "least"),
    ],
)
def test_wrong_use(engines: tuple[str, ...], backward: bool, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        compiler_core.time(torch.sin, torch.ones(2), engines=engines, backward=backward)
