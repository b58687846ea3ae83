"""Tests of times in the explorer: the verdict on top, the button that times the cell, and the flame chart."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Locator, Page, expect

import compiler_core
from kernel_magics.display.report import write_report
from tests.ui.drive import Explorer, Notebook, Server, expect_value, open_report

Screenshot = Callable[[Page, str], None]
SETUP = """
%load_ext kernel_magics
import kernel_magics, torch
x = torch.randn(256, 256)
w = torch.nn.Parameter(torch.randn(256, 256) / 16)
optimizer = torch.optim.SGD([w], 0.1)
steps, numbers = [], iter(range(9))
"""
STEP = """%%compile
loss = (x @ w).sin().cos().square().mean()
loss.backward()
optimizer.step()
steps.append(1)"""
CELLS = {"setup": SETUP, "unfit": "%%compile\nx.sin() + next(numbers)", "step": STEP}
COMPARED = r"\d+\.\d+x(, doubtful)?|no difference measured|not comparable: the times vary too much"
SPEED = re.compile(rf"^Eager [\d.]+ [mun]?s → compiled [\d.]+ [mun]?s \(({COMPARED})\)$")
KNOWN = re.compile(r"^compiled in [\d.]+ m?s\s*1 problem$")


@pytest.fixture(scope="module")
def notebook(page: Page, server: Server) -> Notebook:
    notebook = Notebook(page, server, server.notebook("verdict.ipynb", CELLS)).open()
    notebook.run_all()
    return notebook


def verdict(explorer: Explorer) -> Locator:
    return explorer.root.locator(".verdict")


def test_the_cell_is_timed_by_a_button(notebook: Notebook, page: Page, screenshot: Screenshot) -> None:
    explorer = notebook.explorer("step")
    line = verdict(explorer)
    expect(line.locator(".parts")).to_have_text(re.compile("^compiled in [0-9.]+ m?s"))
    before = notebook.python("(w.sum().item(), w.grad.sum().item(), steps, torch.initial_seed(), w._version)")
    line.get_by_role("button", name="Time it").click()
    expect(line.locator(".speed")).to_have_text(SPEED)
    assert notebook.python("(w.sum().item(), w.grad.sum().item(), steps, torch.initial_seed(), w._version)") == before
    known = notebook.python("str(kernel_magics.last_record().verdict)")
    expect_value(lambda: " · ".join(line.locator(".parts > *").all_inner_texts()), known)
    line.locator(".speed").click()
    rows = explorer.root.locator('section.pane[aria-label^="Speed"]').get_by_role("row")
    expect(rows).to_have_count(3)
    screenshot(page, "verdict")


def test_timing_is_stopped(notebook: Notebook) -> None:
    line = verdict(notebook.explorer("step"))
    line.get_by_label("Try").select_option("time|core")
    stop = line.get_by_role("button", name="Stop")
    expect(line.get_by_role("progressbar")).to_be_visible()
    stop.click()
    expect(line.locator(".note", has_text="Stopped: nothing was timed.")).to_be_visible()
    assert notebook.python("len(steps)") == 1
    line.get_by_label("Try").select_option("time|core")  # and it can be timed again
    expect(line.locator(".speed")).to_have_text(SPEED)
    expect(line.locator(".note", has_text="Stopped")).to_have_count(0)


def test_an_experiment_is_shown_beside_the_first_run(notebook: Notebook, page: Page, screenshot: Screenshot) -> None:
    explorer = notebook.explorer("step")
    line = verdict(explorer)
    menu, runs = line.get_by_label("Try", exact=True), line.get_by_label("Runs of the cell")
    why = menu.locator("option", has_text="without the pinned guard")
    expect(why).to_have_attribute("disabled", "")
    expect(why).to_contain_text("pin one in the pane Guards")
    menu.select_option("try|size")
    expect(runs.get_by_role("button", pressed=True)).to_have_text(re.compile("^Another size: 256 . 128 rows$"))
    pane = explorer.root.locator('section.pane[aria-label^="Two runs"]')
    expect(pane).to_contain_text("are the same.")
    expect(pane.get_by_role("row").filter(has_text="recompiles").first).to_contain_text("01")
    screenshot(page, "experiment")
    runs.get_by_role("button", name="As it ran").click()
    expect(pane).to_have_count(0)
    explorer.show(1, "costs").get_by_role("button", name="Time them").click()
    expect(explorer.pane(1)).to_contain_text(re.compile(r"read and write .* in [\d.]+ .s\."))
    explorer.show(1, "guards").locator("tbody tr.item").first.click()
    menu.select_option("try|guard")
    expect(runs.get_by_role("button", pressed=True)).to_have_text(re.compile("^Without the guard of "))
    assert notebook.python("(len(steps), x.shape[0])") == (1, 256)


def test_a_cell_that_cannot_be_timed_says_why(notebook: Notebook) -> None:
    line = verdict(notebook.explorer("unfit"))
    line.get_by_role("button", name="Time it").click()
    expect(line.locator(".note")).to_have_text(
        "Not timed: the cell uses an iterator (range_iterator), whose state cannot be restored after each run."
    )
    assert notebook.python("next(numbers)") == 1


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with compiler_core.record() as record:
        compiled = compiler_core.compile(lambda x: x.sin() + 1, dynamic=False)
        compiled(torch.ones(3))
        compiled(torch.ones(4))
    return write_report(record, tmp_path_factory.mktemp("report") / "report.html")


def test_a_page_without_a_kernel_says_so(browser: Browser, report: Path) -> None:
    with open_report(browser, report) as page:
        line = verdict(Explorer(page.locator(".cutaway")))
        expect(line.locator(".whynot")).to_have_text("not timed: this is a saved result")
        expect(line.get_by_role("button", name="Time it")).to_have_count(0)
        expect(line.locator(".parts")).to_have_text(KNOWN)


def test_the_flame_chart_zooms_to_a_step(themed_page: Page, screenshot: Screenshot) -> None:
    pane = Explorer(themed_page.locator(".cutaway")).show(1, "timings")
    pane.get_by_role("button", name="Flames").click()
    lead, bars = pane.locator(".lead"), pane.locator(".flame")
    expect(lead).to_contain_text(" in 2 compiles")
    expect(pane.locator(".flame.compile")).to_have_count(2)
    screenshot(themed_page, "flames")
    capture = pane.locator(".flame.capture").first
    capture.click()
    expect(bars.first).to_have_class("flame capture")
    expect(lead).to_contain_text(re.compile("^capture: .* ms of "))
    lead.get_by_role("button", name="show all").click()
    expect(lead).to_contain_text(" in 2 compiles")
