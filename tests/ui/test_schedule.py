"""The pane with the schedules of kernels, in a report."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page, expect

from compiler_core.api import compile as api
from compiler_core.tools import recording
from kernel_magics.display.report import write_report
from tests.ui.drive import Explorer

Screenshot = Callable[[Page, str], None]


def rows_and_columns(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.softmax(x, -1), x.sin().sum(0), torch.softmax(x + 1, -1)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with recording.record("schedule") as record:
        api.compile(rows_and_columns, backend="cpp")(torch.ones(512, 1024))
    return write_report(record, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture
def explorer(themed_page: Page) -> Explorer:
    explorer = Explorer(themed_page.locator(".cutaway"))
    explorer.show(1, "schedule")
    return explorer


def test_rewrites_are_stepped_both_ways(explorer: Explorer, themed_page: Page) -> None:
    pane = explorer.pane(1)
    counter, changed = pane.locator(".count"), pane.locator(".nest .changed")
    current = pane.locator(".rewrites [aria-current=step]")
    total = pane.locator(".rewrites li").count() - 1
    expect(counter).to_have_text(f"0 of {total}")
    expect(current).to_have_text("naive nest")
    expect(changed).to_have_count(0)
    pane.get_by_role("button", name="Next rewrite").click()
    expect(counter).to_have_text(f"1 of {total}")
    expect(changed).not_to_have_count(0)
    themed_page.keyboard.press("End")
    expect(counter).to_have_text(f"{total} of {total}")
    expect(pane.locator(".nest")).to_contain_text(re.compile("thread i0 < .*vector j0", re.DOTALL))
    themed_page.keyboard.press("ArrowLeft")
    expect(counter).to_have_text(f"{total - 1} of {total}")
    expect(pane.locator(".nest")).not_to_contain_text("thread i0")
    pane.locator(".rewrites button").first.click()
    expect(counter).to_have_text(f"0 of {total}")


def test_the_iteration_space_is_drawn(
    explorer: Explorer, themed_page: Page, screenshot: Screenshot, request: pytest.FixtureRequest
) -> None:
    pane = explorer.pane(1)
    expect(pane.get_by_role("img", name=re.compile("^The iteration space over"))).to_be_visible()
    pane.locator(".rewrites button").last.click()
    expect(pane.locator(".space-notes")).to_contain_text("divided among threads")
    expect(pane.locator(".space-notes")).to_contain_text("in vectors of 16")
    expect(pane.locator(".space-notes")).to_contain_text(re.compile(r"Reads \d.*, writes \d.* iterations\."))
    screenshot(themed_page, f"schedule_{request.node.callspec.id}")


def test_a_line_of_the_nest_is_linked(explorer: Explorer) -> None:
    pane = explorer.pane(1)
    pane.locator(".rewrites button").last.click()
    line = pane.locator(".nest .item").filter(has_text="= exp(").first
    line.click()
    expect(line).to_have_class(re.compile("pinned"))
    expect(explorer.line(0, "torch.softmax")).to_have_class(re.compile("pin-linked"))
    explorer.show(1, "kernel")
    expect(explorer.pane(1).locator(".cm-line.pin-linked").filter(has_text="exp").first).to_be_visible()


def test_each_kernel_can_be_chosen(explorer: Explorer) -> None:
    pane = explorer.pane(1)
    kernels = pane.get_by_label("Kernel", exact=True)
    names = kernels.locator("option").all_inner_texts()
    assert len(names) > 1
    for name in names:
        kernels.select_option(label=name)
        expect(pane.locator(".nest")).to_contain_text(f"{name}:")
