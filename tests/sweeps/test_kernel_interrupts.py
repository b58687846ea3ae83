"""A short part of the sweep that interrupts cells of a real kernel; the whole is ``make kernel-interrupts``."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator

import pytest

from tests.limits import HANG_S
from tests.sweeps import kernel_interrupts
from tests.sweeps.kernel_interrupts import KINDS, LOAD, READY, SET_UP, Findings, Kernel, Kind, Reply, Sweep


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with tempfile.TemporaryDirectory() as folder:
        kernel = Kernel((LOAD, SET_UP), folder)
        yield kernel
        kernel.close()


def interrupted(kernel: Kernel, kind: Kind, count: int) -> Findings:
    sweep = Sweep(kind, seed=0)
    sweep.time_cell(kernel)
    while sweep.found.sent < count:
        sweep.interrupt(kernel)
    return sweep.found


@pytest.mark.parametrize("name", ["capture", "C++ build", "running"])
def test_each_interrupt_of_a_cell_is_raised_and_the_next_cell_runs(kernel: Kernel, name: str) -> None:
    kind = next(kind for kind in KINDS if kind.name == name)
    found = interrupted(kernel, dataclasses.replace(kind, until_s=0.6), 2)
    assert found.is_ok(HANG_S), found


DROPS = f"try:\n    {READY}\n    time.sleep({HANG_S})\nexcept KeyboardInterrupt:\n    pass\ntime.sleep(0.2)"
PRINTS = f"""\
class Held:
    def __del__(self):
        {READY}
        time.sleep({HANG_S})
held = Held()
del held
time.sleep(0.2)"""


@pytest.mark.parametrize(("cell", "outcome"), [(DROPS, "lost"), (PRINTS, "printed")])
def test_the_sweep_sees_interrupts_that_do_not_reach_the_cell(kernel: Kernel, cell: str, outcome: str) -> None:
    found = interrupted(kernel, Kind(outcome, cell, until_s=0.4), 1)
    assert found.outcomes == {outcome: 1}
    assert not found.is_ok(HANG_S)


def test_the_sweep_sees_that_a_cell_without_end_needs_a_second_interrupt(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_interrupts, "LOST_S", 0.5)
    loop = "while True:\n        time.sleep(0.01)"
    drops_one = f"try:\n    {READY}\n    {loop}\nexcept KeyboardInterrupt:\n    {loop}"
    found = interrupted(kernel, Kind("lost", drops_one, is_endless=True, until_s=0.2), 1)
    assert found.outcomes == {"lost": 1}


def test_the_sweep_sees_a_kernel_that_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_interrupts, "SET_UP", "import time")
    dies = f"import os, signal\nsignal.signal(signal.SIGINT, lambda *_: os._exit(3))\n{READY}\ntime.sleep({HANG_S})"
    found = Sweep(Kind("dies", dies, is_plain=True, until_s=0.2), seed=0).run(1)
    assert found.outcomes == {"killed": 1}
    assert not found.is_ok(HANG_S)


def test_a_signal_that_comes_with_the_reply_does_not_count() -> None:
    early, late = (Reply(status="ok", replied_at=10, prompt_at=10, sent_at=at) for at in (9.0, 9.99))
    assert kernel_interrupts.outcome_of(early)[0] == "lost"
    assert kernel_interrupts.outcome_of(late)[0] == "too late"
