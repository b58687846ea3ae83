"""The pane that compares two compiles of one frame, in a report."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Locator, Page, expect

from compiler_core.api import compile as api
from compiler_core.tools import recording
from kernel_magics.display.report import write_report
from tests.ui.drive import INSIDE, Explorer, expect_value

Screenshot = Callable[[Page, str], None]


def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = x.cos() + y
    if x.shape[0] == 8:
        z = z * 2
    for i in range(30):
        z = z.sin() + i
    return z


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiled = api.compile(function)
    with recording.record("two compiles") as record:
        for size in (8, 10):
            compiled(torch.ones(size, 4, requires_grad=True), torch.ones(size, 4)).sum().backward()
    return write_report(record, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture
def pane(themed_page: Page) -> Locator:
    """The pane "Two compiles", opened from the recompile in the overview."""
    explorer = Explorer(themed_page.locator(".cutaway"))
    explorer.row("recompiled").click()
    explorer.show(1, "overview").get_by_role("button", name="Compare with").click()
    return explorer.root.locator('section.pane[aria-label^="Two compiles"]')


def half(pane: Locator, at: int) -> Locator:
    return pane.locator(".half").nth(at)


def line(pane: Locator, at: int, text: str) -> Locator:
    return half(pane, at).locator(".cm-line").filter(has_text=text).first


def expect_beside(left: Locator, right: Locator) -> None:
    top = "(line) => line.getBoundingClientRect().top"
    expect_value(lambda: abs(left.evaluate(top) - right.evaluate(top)) < 1.5, True)


def test_texts_are_aligned(pane: Locator, themed_page: Page, screenshot: Screenshot) -> None:
    pane.get_by_role("button", name="Text").click()
    expect(half(pane, 0).get_by_role("heading")).to_have_text("0/0")
    expect(half(pane, 1).get_by_role("heading")).to_have_text("0/1")
    expect(pane.get_by_label("What is compared")).to_have_value("captured")
    expect(line(pane, 0, " mul:")).to_have_class(re.compile("differs only"))
    expect(line(pane, 0, " cos:")).to_have_class(re.compile("differs changed"))
    expect(line(pane, 0, "def captured")).not_to_have_class(re.compile("differs"))
    expect(half(pane, 1).locator(".gap-beside")).to_have_count(1)
    for text in (" cos:", " sin:", " sin_3:"):
        expect_beside(line(pane, 0, text), line(pane, 1, text))
    screenshot(themed_page, "compare_text")
    Explorer(themed_page.locator(".cutaway")).row("0/0").last.click()
    expect(pane).to_contain_text("0/0 compared with")
    expect(half(pane, 0).get_by_role("heading")).to_have_text("0/0")  # the earlier one stays on the left


def test_both_halves_scroll_and_hover_together(pane: Locator, themed_page: Page) -> None:
    pane.get_by_role("button", name="Text").click()
    left, right = (half(pane, at).locator(".cm-scroller") for at in (0, 1))
    left.hover()
    themed_page.mouse.wheel(0, 300)
    expect(right).not_to_have_js_property("scrollTop", 0)
    expect_value(lambda: left.evaluate("e => e.scrollTop") == right.evaluate("e => e.scrollTop"), True)
    right.hover()
    themed_page.mouse.wheel(0, -1000)
    expect(left).to_have_js_property("scrollTop", 0)
    line(pane, 0, " cos:").hover(position=INSIDE)
    expect(line(pane, 1, " cos:")).to_have_class(re.compile("hovered"))
    pane.get_by_role("button", name="Next difference").click()
    expect(pane.get_by_role("status")).to_have_text(re.compile("^1 of .* differences"))


def test_guards_and_an_equal_artifact(pane: Locator) -> None:
    pane.get_by_role("button", name="Text").click()
    picker = pane.get_by_label("What is compared")
    expect(picker.locator("option", has_text="bytecode (same)")).to_have_count(1)
    picker.select_option("guards")
    expect(line(pane, 1, "size()[0]")).to_have_class(re.compile("differs"))
    picker.select_option("bytecode")
    expect(pane.get_by_role("status")).to_have_text("No line differs.")


def test_drawings_mark_differences_and_move_together(pane: Locator, themed_page: Page, screenshot: Screenshot) -> None:
    pane.get_by_role("button", name="Drawing").click()
    expect(pane.get_by_text("not the same on the other side")).to_be_visible()
    elements = [half(pane, at).locator(".node-elements") for at in (0, 1)]
    node = half(pane, 0).locator('.node-elements > [aria-label*=", cos = "]')
    node.hover()
    expect(half(pane, 1).locator('.node-elements > [aria-label*=", cos = "]')).to_have_class(re.compile("hovered"))
    screenshot(themed_page, "compare_drawing")
    before = [each.get_attribute("style") for each in elements]
    half(pane, 0).locator(".window").hover()
    themed_page.mouse.wheel(0, 200)
    for each, style in zip(elements, before, strict=True):
        expect(each).not_to_have_attribute("style", style or "")


def test_the_artifact_and_the_mode_are_remembered(pane: Locator, themed_page: Page) -> None:
    pane.get_by_role("button", name="Text").click()
    pane.get_by_label("What is compared").select_option("guards")
    themed_page.reload()
    explorer = Explorer(themed_page.locator(".cutaway"))
    explorer.row("recompiled").click()
    explorer.show(1, "compare")
    expect(explorer.root.get_by_label("What is compared")).to_have_value("guards")
