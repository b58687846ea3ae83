"""Navigation in the explorer, in a report: the bar, the chain of links, stored settings, a narrow page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Page, expect

import compiler_core
from compiler_core.api import compile as api
from compiler_core.records.differences import Comparison
from compiler_core.tools import recording
from compiler_core.tools.frames.frame_watch import FrameWatch
from kernel_magics.display.report import write_report
from tests.ui.drive import Explorer, expect_value, open_report

Screenshot = Callable[[Page, str], None]


def function(x: torch.Tensor) -> torch.Tensor:
    y = x.cos() + 1
    if y.sum() > 0:
        y = y / 2
    return y.sin()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiled = api.compile(function, steps=True)
    with recording.record("explored") as record, FrameWatch() as watch:
        for size in (6, 8):
            compiled(torch.ones(size, requires_grad=True)).sum().backward()
    watch.write(record)
    return write_report(record, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture
def page(browser: Browser, report: Path) -> Iterator[Page]:
    """A page in a new context, so that each test starts with empty storage."""
    with open_report(browser, report) as page:
        yield page


@pytest.fixture
def explorer(page: Page) -> Explorer:
    return Explorer(page.locator(".cutaway"))


def test_each_click_on_a_count_goes_to_the_next_target(explorer: Explorer) -> None:
    count = explorer.root.locator(".count").filter(has_text="recompiles")
    count.click()
    selected = explorer.tree.locator("[aria-selected=true]")
    expect(selected).to_contain_text("recompiled")
    cause = "The size of x in dimension 0 is 8; compile 0/0 was made for 6."
    expect(explorer.root.get_by_label("Overview", exact=True)).to_contain_text(cause)
    first = selected.inner_text()
    count.click()
    expect(selected).not_to_have_text(first)
    expect(selected).to_contain_text("recompiled")


def test_kernels_open_at_the_first_kernel(browser: Browser, tmp_path: Path) -> None:
    with recording.record("softmax") as record:
        api.compile(lambda x: torch.softmax(x, -1))(torch.ones(50, 30))
    with open_report(browser, write_report(record, tmp_path / "report.html")) as page:
        explorer = Explorer(page.locator(".cutaway"))
        explorer.show(1, "kernel")
        expect(explorer.line(1, 'extern "C" void forward_0')).to_be_in_viewport()
        expect(explorer.line(1, "using f32 = float")).to_have_count(0)
        explorer.pane(1).get_by_role("button", name="lines that all kernels share").click()
        expect(explorer.line(1, "using f32 = float")).to_be_in_viewport()


def test_arrow_keys_move_along_the_chain(explorer: Explorer, page: Page, screenshot: Screenshot) -> None:
    explorer.click_line(0, "x.cos() + 1")
    step = explorer.stages.get_by_role("button", name=re.compile("^Graph"))
    step.click()
    expect(step).to_contain_text(re.compile(r"1/\d"))
    page.keyboard.press("ArrowDown")
    expect(step).to_contain_text(re.compile(r"2/\d"))
    for stage in ("Joint", "Forward", "Backward", "Fusion", "Schedule", "Kernel"):
        page.keyboard.press("ArrowRight")
        expect(explorer.root.locator(".step.walked")).to_contain_text(stage)
        expect(explorer.root.locator(f'section.pane[aria-label^="{stage}"]')).to_be_visible()
    expect(explorer.root.locator(".cm-line.hovered, .cm-line.hover-linked").first).to_be_visible()
    screenshot(page, "chain")
    page.keyboard.press("ArrowLeft")
    expect(explorer.root.locator(".step.walked")).to_contain_text("Schedule")


def test_arrow_keys_move_on_after_a_click(explorer: Explorer, page: Page) -> None:
    walked = explorer.root.locator(".step.walked")
    explorer.click_line(0, "x.cos() + 1")
    page.keyboard.press("ArrowRight")
    expect(walked).to_contain_text("Bytecode")
    page.keyboard.press("Escape")
    row = explorer.show(1, "fusion").locator("tbody tr.item").first
    row.click()
    expect(row).to_have_class(re.compile("pinned"))
    page.keyboard.press("ArrowLeft")
    expect(walked).not_to_have_count(0)


def test_a_pane_that_did_not_fit_comes_back(explorer: Explorer, page: Page) -> None:
    panes = explorer.root.locator("section.pane")
    expect(panes).to_have_count(3)
    page.set_viewport_size({"width": 700, "height": 420})
    expect(panes).to_have_count(2)
    page.set_viewport_size({"width": 1600, "height": 900})
    expect(panes).to_have_count(3)


def test_panes_and_modes_are_remembered(explorer: Explorer, page: Page) -> None:
    explorer.show(1, "captured").get_by_role("button", name="Python").click()
    explorer.add_pane()
    explorer.show(2, "guards")
    explorer.root.get_by_role("button", name="Frames").click()
    page.reload()
    expect(explorer.root.locator("section.pane")).to_have_count(4)
    expect(explorer.pane(1).get_by_role("button", name="Python")).to_have_attribute("aria-pressed", "true")
    expect(explorer.pane(2)).to_have_attribute("aria-label", re.compile("^Guards"))
    expect(explorer.tree).to_be_hidden()
    explorer.root.get_by_role("button", name="Frames").click()
    expect(explorer.tree).to_be_visible()


def test_a_pin_shows_source_graph_and_kernel_and_its_chain(explorer: Explorer, page: Page) -> None:
    titles = ["Source", "Captured graph", "Kernels"]
    for at, title in enumerate(titles):
        expect(explorer.pane(at)).to_have_attribute("aria-label", re.compile(f"^{title}"))
    explorer.click_line(0, "x.cos() + 1")
    for at in range(3):
        expect(explorer.pane(at).locator(".pin-linked, .pinned").first).to_be_visible()
    expect(explorer.stages.get_by_role("button", name=re.compile("^Graph"))).to_contain_text("cos")
    # a key in the text in which it was pinned moves along the chain
    page.keyboard.press("ArrowRight")
    expect(explorer.root.locator(".step.walked")).to_contain_text("Bytecode")
    expect(explorer.root.locator('section.pane[aria-label^="Bytecode"]')).to_be_visible()
    page.keyboard.press("Escape")
    expect(explorer.stages.locator(".linked")).to_have_count(0)


def test_stages_and_the_menu_open_panes(explorer: Explorer) -> None:
    forward = explorer.stages.get_by_role("button", name=re.compile("^Forward"))
    forward.click()
    expect(forward).to_have_attribute("aria-pressed", "true")
    expect(explorer.pane(2)).to_have_attribute("aria-label", re.compile("^Forward"))
    menu = explorer.stages.get_by_label("More panes")
    expect(menu.locator("optgroup[label=Capture]")).to_contain_text("Guards")
    expect(menu.locator("optgroup").first).to_contain_text("Roofline")
    menu.select_option("guards")
    expect(explorer.root.locator('section.pane[aria-label^="Guards"]')).to_be_visible()
    menu.select_option("frames")
    frames = explorer.root.locator('section.pane[aria-label^="Python frames"]')
    row = frames.get_by_role("row").filter(has_text="function").filter(has_text="compiled as")
    row.filter(has_text="0/1").get_by_role("button", name="0/1").click()
    expect(explorer.tree.locator("[aria-selected=true]")).to_contain_text("0/1")


CUT = """(root) => [...root.querySelectorAll(".bar, .steps, .pane > header, table")]
    .filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.outerHTML.slice(0, 200))"""
"""What is wider than its place."""
SMALL = """(root) => [...root.querySelectorAll("section.pane:not(.shut)")].map((pane) => pane.getBoundingClientRect())
    .filter(({ width, height, bottom }) =>
        width <= 250 || height <= 120 || bottom > root.getBoundingClientRect().bottom)"""
"""The panes that are small, or reach out of the explorer; those that are only titles have given way to others."""
BLANK = """(root) => [...root.querySelectorAll("td")].map((cell) => [cell.textContent.trim(), cell.clientWidth])
    .filter(([text, width]) => text && width < 24)"""
"""The cells of tables that have no room for their text."""


@pytest.mark.parametrize("size", [(960, 540), (1000, 700), (2560, 1440)])
def test_it_fits_the_window(explorer: Explorer, page: Page, screenshot: Screenshot, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    explorer.stages.get_by_label("More panes").select_option("partition")
    explorer.click_line(0, "x.cos() + 1")
    screenshot(page, f"window_{size[0]}")
    expect_value(lambda: explorer.root.evaluate(CUT), [])
    expect_value(lambda: explorer.root.evaluate(SMALL), [])
    expect_value(lambda: explorer.root.evaluate(BLANK), [])


def test_a_link_opens_the_same_view(explorer: Explorer, page: Page, browser: Browser) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    explorer.row("0/1").first.click()
    explorer.show(1, "guards")
    explorer.click_line(0, "x.cos() + 1")
    explorer.root.get_by_role("button", name="Link").click()
    expect(explorer.root.get_by_role("button", name="Copied")).to_be_visible()
    address = page.evaluate("navigator.clipboard.readText()")
    assert address.startswith(f"{page.url}#compile=0/1&pane=source&pane=guards")
    other = browser.new_context().new_page()
    other.goto(address)
    opened = Explorer(other.locator(".cutaway"))
    expect(opened.tree.locator("[aria-selected=true]")).to_contain_text("0/1")
    expect(opened.pane(1).get_by_label("What this pane shows")).to_have_value("guards")
    opened.expect_pinned(0, "y = x.cos() + 1")
    other.evaluate("() => { location.hash = 'compile=0/0&pane=captured'; }")
    expect(opened.tree.locator("[aria-selected=true]")).to_contain_text("0/0")
    expect(opened.root.locator("section.pane")).to_have_count(1)
    other.context.close()


def drop_sines(gm: torch.fx.GraphModule) -> None:
    for node in list(gm.graph.nodes):
        if node.target == "sin":
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)


def sines_for_cosines(gm: torch.fx.GraphModule, _: object) -> Callable[..., object]:
    for node in gm.graph.find_nodes(op="call_method", target="cos"):
        node.target = "sin"
    gm.recompile()
    return gm.forward


def test_a_graph_that_a_pass_changed_says_so(browser: Browser, tmp_path: Path, screenshot: Screenshot) -> None:
    with recording.record("passes") as record:
        passes = [compiler_core.GraphPass(drop_sines)]
        api.compile(lambda x: x.sin().cos(), passes=passes, backend=sines_for_cosines)(torch.ones(3))
    with open_report(browser, write_report(record, tmp_path / "report.html")) as page:
        explorer = Explorer(page.locator(".cutaway"))
        pane = explorer.show(1, "captured")
        note = pane.get_by_text("before the pass drop_sines and the backend sines_for_cosines changed it")
        expect(note).to_be_visible()
        screenshot(page, "pass_note")
        note.get_by_role("button", name="Passes").click()
        passes_pane = explorer.root.locator('section.pane[aria-label^="Passes"]')
        expect(passes_pane).to_contain_text("sin")
        expect(passes_pane.locator(".changed-later")).to_be_hidden()


def test_values_that_differ_by_chance_are_no_fault(browser: Browser, tmp_path: Path) -> None:
    with recording.record("random") as record:
        api.compile(lambda x: x.cos(), backend="eager")(torch.ones(3))
    record.comparison = Comparison("ours", "stock", [], [], values={"y": "by up to 0.5"}, random="numbers are drawn")
    with open_report(browser, write_report(record, tmp_path / "report.html")) as page:
        block = Explorer(page.locator(".cutaway")).root.locator(".block", has_text="1 value differs")
        expect(block).to_contain_text("This may be right: numbers are drawn.")
        expect(block).not_to_have_class(re.compile("bad"))


def test_full_screen(explorer: Explorer, page: Page) -> None:
    button = explorer.root.get_by_role("button", name="Full screen")
    button.click()
    page.wait_for_function("() => document.fullscreenElement?.matches('.cutaway')")
    button.click()
    page.wait_for_function("() => !document.fullscreenElement")


def test_a_break_and_a_guard_lead_to_their_steps(explorer: Explorer) -> None:
    explorer.root.locator(".count").filter(has_text="graph break").click()
    explorer.root.get_by_role("button", name="of the capture").click()
    steps = explorer.root.locator('section.pane[aria-label^="Symbolic steps"]')
    expect(steps.locator(".added.break")).to_contain_text("data-dependent branch")
    explorer.show(0, "guards").locator("tbody tr.item").last.click()
    expect(steps.locator(".added.guard").first).to_be_visible()


def test_a_narrow_page_is_readable(browser: Browser, report: Path, screenshot: Screenshot) -> None:
    page = browser.new_page(viewport={"width": 620, "height": 700})
    page.goto(report.as_uri())
    explorer = Explorer(page.locator(".cutaway"))
    explorer.root.get_by_role("button", name="Frames").click()
    explorer.click_line(0, "x.cos()")
    screenshot(page, "narrow")
    expect_value(lambda: page.evaluate("() => document.documentElement.scrollWidth <= 620"), True)
    widths = "(panes) => panes.map((pane) => pane.getBoundingClientRect().width).filter((width) => width <= 250)"
    expect_value(lambda: explorer.root.locator("section.pane").evaluate_all(widths), [])
    page.close()
