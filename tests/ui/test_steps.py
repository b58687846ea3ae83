"""The pane with the steps of the symbolic interpreter, in a report."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Locator, Page, expect

from compiler_core.api import compile as api
from compiler_core.tools import recording
from kernel_magics.display.report import write_report
from tests.ui.drive import Explorer

Screenshot = Callable[[Page, str], None]


def scale(value: torch.Tensor, by: int) -> torch.Tensor:
    return value * by


def function(x: torch.Tensor, layers: torch.nn.Module) -> torch.Tensor:
    parts = []
    for i in range(3):
        parts.append(scale(x, i))
    y: torch.Tensor = layers(torch.cat(parts))
    if y.sum() > 0:
        y = y / 2
    return y.relu()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    with recording.record("steps") as record:
        api.compile(function, backend="eager", steps=True)(torch.ones(2, 4), layers)
    return write_report(record, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture
def explorer(themed_page: Page) -> Explorer:
    explorer = Explorer(themed_page.locator(".cutaway"))
    explorer.row("0/0").first.click()
    explorer.add_pane()
    explorer.show(2, "steps")
    return explorer


def local_variable(pane: Locator, text: str) -> Locator:
    """Returns the rows of local variables whose whole text, without spaces between cells, matches."""
    rows = pane.locator("table", has_text="Locals").locator("tbody tr")
    return rows.filter(has_text=re.compile(rf"^\s*{text}\s*$"))


def test_steps_forward_and_backward(
    explorer: Explorer, themed_page: Page, screenshot: Screenshot, request: pytest.FixtureRequest
) -> None:
    pane = explorer.pane(2)
    slider = pane.get_by_label("Step", exact=True)
    count = pane.locator(".count")
    expect(count).to_have_text(re.compile(r"^step 1 of \d{3}$"))
    slider.focus()
    themed_page.keyboard.press("End")
    expect(pane.get_by_role("heading").first).to_have_text(re.compile(r"^Graph so far: \d+ nodes$"))
    expect(pane.get_by_role("heading").nth(1)).to_contain_text("Guards so far: ")
    expect(count).to_have_text(re.compile(r"^step (\d+) of \1$"))
    total = int(count.inner_text().split()[-1])
    themed_page.keyboard.press("ArrowLeft")
    expect(count).to_have_text(f"step {total - 1} of {total}")
    themed_page.keyboard.press("Home")
    for _ in range(4):
        themed_page.keyboard.press("ArrowRight")
    expect(count).to_have_text(f"step 5 of {total}")
    state = pane.locator(".page").inner_text()
    themed_page.keyboard.press("ArrowRight")
    expect(count).to_have_text(f"step 6 of {total}")
    themed_page.keyboard.press("ArrowLeft")
    expect(pane.locator(".page")).to_have_text(state, use_inner_text=True)
    screenshot(themed_page, f"steps_{request.node.callspec.id}")


def test_a_pinned_node_leads_to_its_step(
    explorer: Explorer, themed_page: Page, screenshot: Screenshot, request: pytest.FixtureRequest
) -> None:
    pane = explorer.pane(2)
    explorer.node(1, "mul_1").click()
    expect(pane.locator(".added.node")).to_contain_text("mul_1")
    expect(pane.locator(".path button")).to_have_text([re.compile("function:"), re.compile("scale:")])
    expect(explorer.node(1, "mul_1")).to_have_class(re.compile("stepped"))
    expect(explorer.line(0, "return value * by")).to_have_class(re.compile("stepped"))
    expect(local_variable(pane, "value.*")).to_have_count(1)
    pane.locator(".path button").first.click()
    expect(local_variable(pane, r"parts\s*list of 1")).to_have_count(1)
    screenshot(themed_page, f"steps_node_{request.node.callspec.id}")


def test_a_listed_node_leads_to_its_step(explorer: Explorer, themed_page: Page) -> None:
    pane = explorer.pane(2)
    pane.get_by_label("Step", exact=True).focus()
    themed_page.keyboard.press("End")
    pane.get_by_role("button", name="linear:").focus()
    themed_page.keyboard.press("Enter")
    expect(pane.locator(".added.node").last).to_contain_text("linear")
    expect(pane.locator(".latest tr.changed", has_text="linear: ")).to_have_count(1)
    before = pane.locator(".count").inner_text()
    themed_page.keyboard.press("ArrowRight")
    expect(pane.locator(".count")).not_to_have_text(before)


def test_steps_of_a_pinned_line(explorer: Explorer, themed_page: Page) -> None:
    pane = explorer.pane(2)
    explorer.click_line(0, "parts.append")
    finder = pane.locator(".finder")
    expect(pane.get_by_label("Stop at")).to_have_value("what is pinned")
    expect(finder.locator("output")).to_have_text("1 of 6")  # before and after each of three calls
    pane.get_by_role("button", name="Next stop").click()
    expect(finder.locator("output")).to_have_text("2 of 6")
    pane.get_by_label("Step", exact=True).focus()
    themed_page.keyboard.press("p")
    expect(finder.locator("output")).to_have_text("1 of 6")
    themed_page.keyboard.press("Escape")
    expect(pane.get_by_label("Stop at")).to_have_value("new node")


def test_stepping_stops_at_events_lines_and_instructions(explorer: Explorer, themed_page: Page) -> None:
    pane = explorer.pane(2)
    stops, count = pane.get_by_label("Stop at"), pane.locator(".finder output")
    pane.get_by_label("Step", exact=True).focus()
    themed_page.keyboard.press("n")
    expect(pane.locator(".added.node")).to_have_text([re.compile("x: "), re.compile("mul: ")])
    stops.select_option("CALL")
    pane.get_by_role("button", name="Next stop").click()
    expect(pane.locator(".instruction")).to_have_text(re.compile("^CALL "))
    line = stops.locator("option", has_text="return value * by")
    stops.select_option(line.get_attribute("value"))
    expect(count).to_have_text("1 of 3")  # three calls, the first of which was passed
    pane.get_by_role("button", name="Next stop").click()
    expect(count).to_have_text("2 of 3")
    expect(explorer.line(0, "return value * by")).to_have_class(re.compile("stepped"))


def test_the_graph_and_the_guards_grow_with_the_steps(explorer: Explorer, themed_page: Page) -> None:
    explorer.show(1, "captured")
    pane = explorer.pane(2)
    later = explorer.pane(1).locator(".node-elements > .later")
    expect(later).to_have_count(10)  # the output is one of them
    pane.get_by_label("Step", exact=True).focus()
    for left in (8, 7, 6):  # x and the first product are of one step
        themed_page.keyboard.press("n")
        expect(later).to_have_count(left)
    explorer.show(1, "guards")
    rows = explorer.pane(1).locator("tr.later")
    expect(rows.first).to_be_visible()
    pane.get_by_label("Step", exact=True).focus()
    themed_page.keyboard.press("End")
    expect(rows).to_have_count(0)
    themed_page.keyboard.press("Home")
    expect(rows.first).to_be_visible()
    explorer.show(2, "bytecode")  # without the pane, nothing is faint
    expect(rows).to_have_count(0)


def test_the_attempt_with_the_graph_break(
    explorer: Explorer, themed_page: Page, screenshot: Screenshot, request: pytest.FixtureRequest
) -> None:
    pane = explorer.pane(2)
    pane.get_by_label("Attempt to capture the frame").select_option(label="Attempt 1: graph break")
    pane.get_by_label("Step", exact=True).focus()
    themed_page.keyboard.press("End")
    expect(pane.locator(".added.break")).to_contain_text("data-dependent branch")
    screenshot(themed_page, f"steps_break_{request.node.callspec.id}")


def test_a_compile_without_steps_names_the_option(browser: Browser, tmp_path: Path) -> None:
    with recording.record("no steps") as record:
        api.compile(scale, backend="eager")(torch.ones(2), 2)
    page = browser.new_page()
    page.goto(write_report(record, tmp_path / "report.html").as_uri())
    explorer = Explorer(page.locator(".cutaway"))
    explorer.show(1, "steps")
    expect(explorer.pane(1).locator(".empty")).to_contain_text("%%compile --steps")
    page.close()
