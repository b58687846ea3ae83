"""Tests of timing a cell: ``%%compile --time``, and what the explorer's button does."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

import kernel_magics
from compiler_core.errors import UsageError
from compiler_core.records import Record
from kernel_magics.cell.parse import parse
from kernel_magics.display.messages import CORE_FORMS
from kernel_magics.display.page_requests import PageRequests
from kernel_magics.run import cell_timer
from kernel_magics.run.cell_timer import CellTimer
from kernel_magics.run.request import Request
from tests.kernel_magics.cell_runs import run
from tests.limits import HANG_S


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_timer, "SECONDS", 0.01)


def timed(shell: InteractiveShell, cell: str, **options: Any) -> Record:
    """Times a cell as the button does, and returns the record."""
    record = Record()
    others = options.pop("others", ())
    CellTimer(shell, parse(shell, cell), Request(**options)).time(record, others)
    return record


def test_the_verdict_of_a_cell(magics: InteractiveShell) -> None:
    run(magics, "x = torch.ones(100, requires_grad=True)\nprinted = []")
    result, printed, errors = run(magics, "%%compile --time\ny = x.sin().cos().sum()\nprint('once')\ny.backward()")
    result.raise_error()
    record = kernel_magics.last_record()
    assert printed.startswith("once\nCutaway of ")
    assert (printed.count("once\n"), errors) == (1, "")
    assert record.timings is not None
    assert [row.name for row in record.timings.rows] == ["eager", "compiled"]
    assert re.match(r"Eager [\d.]+ \w+ → compiled [\d.]+ \w+ \(.*\) · compiled in ", str(record.verdict))
    assert str(record.verdict) in printed
    assert str(record.verdict).endswith(" · 0 problems")  # after the print, nothing is computed
    seconds = sum(each.duration_ns for each in record.compiles) / 1e9
    assert record.timings["compiled"].compile_seconds == seconds
    x = magics.user_ns["x"]
    torch.testing.assert_close(x.grad, torch.autograd.grad(x.sin().cos().sum(), x)[0])  # once


def test_before_it_is_timed_the_verdict_has_what_is_known(magics: InteractiveShell) -> None:
    run(magics, "%%compile\ntorch.ones(3).sin()")
    assert re.fullmatch(r"compiled in [\d.]+ m?s · 0 problems", str(kernel_magics.last_record().verdict))


def test_nothing_changes_for_the_user(magics: InteractiveShell) -> None:
    run(magics, "total, seen, w = 0, [], torch.nn.Parameter(torch.ones(3))\noptimizer = torch.optim.Adam([w])")
    cell = "w.square().sum().backward()\noptimizer.step()\ntotal += 1\nseen.append(total)\nnew = torch.rand(1)"
    states = torch.get_rng_state()
    record = timed(magics, cell)
    names = magics.user_ns
    assert record.timings is not None
    assert (names["total"], names["seen"], "new" in names) == (0, [], False)
    assert names["w"].tolist() == [1, 1, 1]
    assert (names["w"].grad, len(names["optimizer"].state)) == (None, 0)
    assert torch.equal(torch.get_rng_state(), states)


def test_the_same_forms_in_other_ways(magics: InteractiveShell) -> None:
    run(magics, "x = torch.ones(100)")
    others = ("pinned", *CORE_FORMS)
    record = timed(magics, "for _ in range(2):\n    x.sin()\nx.cos()", others=others)
    assert record.timings is not None
    assert [row.name for row in record.timings.rows] == ["eager", "compiled", *others]
    assert record.timings.failed == {}


def test_a_form_that_cannot_be_pinned_is_named(magics: InteractiveShell) -> None:
    run(magics, "xs = [torch.ones(n) for n in (2, 3)]")
    record = timed(magics, "for x in xs:\n    x.sin()", dynamic=False, others=("pinned",))
    assert record.timings is not None
    assert "has the compiles" in record.timings.failed["pinned"]
    record.find_problems()
    assert record.verdict is not None
    assert "pinned was not timed: " in record.verdict.warnings[-1]


REFUSED = {
    "a file": ("open('{folder}/file', 'w').write('a')", "changes the file .*file, which cannot be undone"),
    "a file, silently": (
        "try:\n    open('{folder}/file', 'w')\nexcept Exception:\n    pass",
        "changes the file .*file, which cannot be undone",
    ),
    "a program": ("import subprocess\nsubprocess.run(['true'])", "which cannot be undone"),
    "an iterator": ("next(numbers)", "uses an iterator \\(list_iterator\\), whose state cannot be restored"),
    "await": ("import asyncio\nawait asyncio.sleep(0)", "awaits"),
    "an exception": ("stack.pop()", "raises IndexError when it runs again: pop from empty list"),
}


@pytest.mark.parametrize(("cell", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_undone_is_refused(magics: InteractiveShell, tmp_path: Path, cell: str, why: str) -> None:
    run(magics, "numbers, stack = iter([1, 2]), []")
    with pytest.raises(UsageError, match=why):
        timed(magics, cell.format(folder=tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert next(magics.user_ns["numbers"]) == 1


def test_a_refusal_is_a_note_and_the_cell_keeps_its_value(magics: InteractiveShell) -> None:
    run(magics, "numbers = iter([1, 2])")
    result, printed, _ = run(magics, "%%compile --time\nnext(numbers)")
    result.raise_error()
    assert result.result == 1
    assert "note: --time: not timed: the cell uses an iterator" in printed


def test_a_cell_that_raises_is_not_timed(magics: InteractiveShell) -> None:
    result, _, _ = run(magics, "%%compile --time\nx = torch.ones(3).sin()\nraise KeyError(1)")
    assert isinstance(result.error_in_exec, KeyError)
    assert kernel_magics.last_record().timings is None


def test_wrong_forms_are_named(magics: InteractiveShell) -> None:
    result, _, errors = run(magics, "%%compile --time=fast\n1")
    assert result.error_in_exec is not None
    assert "no form is called 'fast'; the forms are core, " in errors


@pytest.mark.usefixtures("fresh_stock")
def test_both_engines_are_timed_side_by_side(magics: InteractiveShell) -> None:
    run(magics, "x = torch.ones(100)")
    result, printed, _ = run(magics, "%%compile --engine core,torch --backend aot_eager --time\nx.sin().cos()")
    result.raise_error()
    timings = kernel_magics.last_comparison().records[0].timings
    assert timings is not None
    assert [row.name for row in timings.rows] == ["eager", "compiled", "stock"]
    assert "Eager" in printed


# ---- requests of the page


class Shown:
    """What a page would show."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.messages: list[str] = []
        self.finished = 0

    def show(self, text: str, share: float, message: str) -> None:
        self.texts += [text] if text else []
        self.messages += [message] if message else []

    def finish(self) -> None:
        self.finished += 1


def test_a_request_is_run_and_finished() -> None:
    shown, asked = Shown(), list[Sequence[str]]()

    def measure(others: Sequence[str], progress: Any) -> None:
        asked.append(others)
        progress("timing", 0.5)

    PageRequests(measure, shown.show, shown.finish).request(["stock"])
    assert (asked, shown.texts, shown.messages, shown.finished) == ([["stock"]], ["timing"], [], 1)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (UsageError("the cell awaits"), "Not timed: the cell awaits."),
        (RuntimeError("x"), "Not timed: RuntimeError: x"),
        (KeyboardInterrupt(), "Stopped: nothing was timed."),
    ],
)
def test_why_nothing_was_timed_is_shown(error: BaseException, text: str) -> None:
    def measure(others: Sequence[str], progress: Any) -> None:
        raise error

    shown = Shown()
    requests = PageRequests(measure, shown.show, shown.finish)
    for _ in range(2):  # a second request works
        requests.request([])
    assert (shown.messages, shown.finished) == ([text] * 2, 0)


def test_stop_works_where_an_interrupt_is_dropped() -> None:
    shown = Shown()

    def measure(others: Sequence[str], progress: Any) -> None:
        try:
            requests.stop()
            time.sleep(30)
        except KeyboardInterrupt:
            progress("timing", 0.5)

    requests = PageRequests(measure, shown.show, shown.finish)
    requests.request([])
    assert (shown.messages, shown.finished) == (["Stopped: nothing was timed."], 0)


def test_stop_interrupts_the_main_thread() -> None:
    shown, started = Shown(), threading.Event()
    before = signal.getsignal(signal.SIGINT)

    def measure(others: Sequence[str], progress: Any) -> None:
        started.set()
        for _ in range(3000):
            time.sleep(0.01)

    requests = PageRequests(measure, shown.show, shown.finish)

    def press() -> None:
        started.wait(HANG_S)
        requests.stop()

    thread = threading.Thread(target=press)
    thread.start()
    requests.request([])
    thread.join()
    assert shown.messages == ["Stopped: nothing was timed."]
    assert signal.getsignal(signal.SIGINT) is before
    requests.stop()  # too late: nothing is interrupted
