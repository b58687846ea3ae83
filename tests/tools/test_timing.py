"""Tests of times side by side."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import compiler_core
from compiler_core.errors import UsageError
from compiler_core.records import Timing, Timings
from compiler_core.tools.questions.verdict import doubts, find_pays_off, line_on, memory_text, ratio_text
from compiler_core.tools.timing import rounds
from compiler_core.tools.timing.forms import Form, Run

MEBIBYTE = 1 << 20


REFERENCE = [4.0, 4.2, 4.4, 8.0] * 5
"""Milliseconds of plain PyTorch."""


def timing(name: str, milliseconds: list[float], compile_seconds: float = 0.0, peak: int = 10_000) -> Timing:
    """Returns the timing of these times, beside those of a reference."""
    run = Run(Form(name, lambda: None), first_seconds=compile_seconds)
    found = rounds.timing(run, [ms / 1000 for ms in milliseconds], [ms / 1000 for ms in REFERENCE], peak)
    found.compile_seconds = compile_seconds
    return found


def verdict(other: Timing) -> str:
    found = Timings([timing("eager", REFERENCE), other])
    find_pays_off(found)
    return line_on(found, other.name)


def test_verdict_of_a_faster_form() -> None:
    found = verdict(timing("core", [2.0, 2.1, 2.2, 4.0] * 5, compile_seconds=4.3, peak=8_000))
    assert found == (
        "Eager 4.3 ms → core 2.15 ms (2.00x) · compiled in 4.3 s, pays off after 2,000 calls · "
        "peak memory \N{MINUS SIGN}20%"
    )


def test_a_slower_form_never_pays_off() -> None:
    found = verdict(timing("core", [8.0, 8.4, 8.8, 16.0] * 5, compile_seconds=1))
    assert found == "Eager 4.3 ms → core 8.6 ms (0.50x) · compiled in 1 s · the same peak memory"


def test_a_difference_within_the_noise_is_called_so() -> None:
    found = verdict(timing("core", [3.8, 4.3, 4.3, 7.0] * 5, compile_seconds=1))
    assert "(no difference measured)" in found
    assert "pays off" not in found


def test_compiles_while_it_is_timed_are_reported() -> None:
    """Its time contains compiles, so that nobody knows when it pays off."""
    row = timing("core", [1.0] * 20, compile_seconds=1)
    row.compiled_again = 20
    found = Timings([timing("eager", REFERENCE), row])
    find_pays_off(found)
    assert "compiling again at each call" in line_on(found, "core")
    assert "pays off" not in line_on(found, "core")
    assert doubts(found)[0].startswith("core was compiled again 20 times while it was timed")


@pytest.mark.parametrize(
    ("eager", "core", "text"),
    [(0, 12, ""), (10_000, 10_010, "the same peak memory"), (12, 800_000, "peak memory 12 B → 781.2 KiB")],
)
def test_peak_memory_in_words(eager: int, core: int, text: str) -> None:
    rows = [timing("eager", REFERENCE, peak=eager), timing("core", REFERENCE, peak=core)]
    assert memory_text(Timings(rows), rows[1]) == text


def test_times_that_vary_widely_deserve_a_warning() -> None:
    steady, busy = timing("eager", [4.0, 4.2] * 10), timing("core", [1.0, 40.0] * 10)
    assert "vary" not in str(Timings([steady]))
    assert str(Timings([steady, busy])).endswith(
        "The times of core vary more than 3-fold: the machine is busy, or the calls do not all do the same."
    )


def test_a_busy_machine_deserves_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("compiler_core.tools.timing.machine_load._STATISTICS", tmp_path / "stat")
    for load, warned in ((0, False), (3, True)):
        (tmp_path / "stat").write_text(f"procs_running {load * (os.cpu_count() or 1)}\n")
        monkeypatch.setattr("os.getloadavg", lambda: (0, 0, 0))
        found = compiler_core.time(torch.sin, torch.ones(3), engines=["eager"], seconds=0.01)
        assert found.load == load
        assert ("Other programs keep this machine busy" in str(found)) is warned


@pytest.mark.parametrize(("speed", "text"), [(0.0123, "0.012x"), (1.5, "1.50x"), (43.61, "43.6x"), (4361.2, "4,361x")])
def test_ratios_are_short(speed: float, text: str) -> None:
    assert ratio_text(Timing("core", 1, 1, 1, 20, 0, 0, speed, differs=True)) == text


def test_each_form_is_timed_and_nothing_is_left() -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Dropout()), torch.randn(4, 8, requires_grad=True)
    grad = model[0].weight.grad = torch.ones(8, 8)
    states = torch.get_rng_state(), random.getstate()
    found = compiler_core.time(model, x, backward=True, seconds=0.01)
    assert [row.name for row in found.rows] == ["eager", "core"]
    assert found["eager"].rounds == found["core"].rounds >= 15
    assert found["core"].compile_seconds > 0
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


def test_a_training_step_leaves_no_trace() -> None:
    """Parameters, the optimizer, gradients, lists, counters, versions of tensors: all as before."""
    layer, x, losses = nn.Linear(4, 4), torch.randn(2, 4), []
    optimizer = torch.optim.AdamW(layer.parameters())
    h = (x @ layer.weight).square()  # its backward needs the weight at this version

    def step() -> None:
        optimizer.zero_grad()
        loss = layer(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss)
        x.mul_(0.5)

    before = [p.detach().clone() for p in layer.parameters()], x.clone()
    compiler_core.time(step, seconds=0.01)
    assert all(map(torch.equal, before[0], layer.parameters()))
    assert torch.equal(before[1], x)
    assert (losses, len(optimizer.state), layer.weight.grad) == ([], 0, None)
    h.sum().backward()


def test_a_form_that_fails_is_named_and_the_others_are_timed() -> None:
    forms: dict[str, Callable[..., Any]] = {"plain": torch.sin, "broken": torch.nn.functional.bilinear}
    found = compiler_core.time(torch.sin, torch.ones(3), engines=forms, seconds=0.01)
    assert [row.name for row in found.rows] == ["plain"]
    assert found.failed["broken"].startswith("it raises TypeError: bilinear()")
    assert "broken was not timed: it raises TypeError" in str(found)


def test_a_pinned_form() -> None:
    found = compiler_core.time(lambda x: x.sin().cos(), torch.ones(8), engines=("eager", "pinned"), seconds=0.01)
    assert [row.name for row in found.rows] == ["eager", "pinned"]
    assert found["pinned"].compile_seconds > 0


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
