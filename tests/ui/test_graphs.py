"""Drawings of graphs, in the report: groups, search, keys, overlays, side by side, the cut, memory budgets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Locator, Page, expect

from compiler_core.api import compile as api
from compiler_core.tools import recording
from kernel_magics.display.report import write_report
from tests.sampling import sample
from tests.ui.drive import Explorer, expect_value
from tests.ui.layers import WIDTH, Model

Screenshot = Callable[[Page, str], None]


def report_of(layers: int, backend: str, path: Path) -> Path:
    torch.manual_seed(0)
    compiled = api.compile(Model(layers), backend=backend, memory_curve=backend == "cpp")
    with recording.record("a model of layers") as record:
        compiled(torch.randn(4, WIDTH)).sum().backward()
    return write_report(record, path)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_of(2, "cpp", tmp_path_factory.mktemp("graphs") / "small.html")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_of(40, "aot_eager", tmp_path_factory.mktemp("graphs") / "large.html")


@pytest.fixture(params=sample(["light", "dark"], 2))
def theme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_explorer(browser: Browser) -> Iterator[Callable[[Path, str], Explorer]]:
    """Returns a function that opens a report; an error on a page fails the test."""
    contexts = []
    errors: list[str] = []

    def open_explorer(path: Path, scheme: str = "light") -> Explorer:
        context = browser.new_context(viewport={"width": 1600, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        contexts.append(context)
        context.add_init_script(TWO_PANES)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(path.as_uri())
        return Explorer(page.locator(".cutaway"))

    yield open_explorer
    for context in contexts:
        context.close()
    assert errors == []


# So that a drawing has half of the page, as if the user had chosen this.
TWO_PANES = """localStorage.getItem("cutaway.shown")
    ?? localStorage.setItem("cutaway.shown", '["source","captured"]')"""


def graph(explorer: Explorer, at: int, kind: str) -> Locator:
    """Shows a graph in a pane and returns its drawing, once it has nodes."""
    drawing = explorer.show(at, kind).locator(".graph")
    expect(drawing.locator(".node-elements > .node")).not_to_have_count(0)
    return drawing


def boxes(drawing: Locator) -> Locator:
    return drawing.locator(".node-elements > .node")


def group(drawing: Locator, name: str) -> Locator:
    return drawing.locator(f'.node-elements > [aria-label^="{name}, collapsed"]')


def pixels(drawing: Locator) -> str:
    picture: str = drawing.locator(".window > canvas").evaluate("(canvas) => canvas.toDataURL()")
    return picture


def still(drawing: Locator) -> str:
    """The pixels, once they have stopped changing."""
    last: list[str] = []

    def is_still() -> bool:
        last.append(pixels(drawing))
        return last[-3:] == 3 * last[-1:]

    expect_value(is_still, True)
    return last[-1]


def test_a_large_graph_starts_with_collapsed_modules(
    open_explorer: Callable[..., Explorer], large: Path, screenshot: Screenshot, theme: str
) -> None:
    explorer = open_explorer(large, theme)
    drawing = graph(explorer, 1, "joint")
    expect(group(drawing, "layers.0")).to_have_count(1)
    screenshot(explorer.root.page, f"graph_modules_{theme}")
    group(drawing, "layers.0").dblclick()
    expect(group(drawing, "layers.0")).to_have_count(0)
    expect(group(drawing, "layers.0.norm")).to_have_count(1)
    drawing.locator(".window").press("c")
    expect(group(drawing, "layers.0")).to_have_count(1)
    drawing.get_by_label("Collapse by").select_option("No groups")
    expect(group(drawing, "layers.0")).to_have_count(0)
    drawing.get_by_role("button", name="Show the whole graph").click()
    screenshot(explorer.root.page, f"graph_whole_{theme}")
    drawing.get_by_label("Collapse by").select_option("Repeated blocks")
    expect(group(drawing, "block 1")).to_have_count(1)


@pytest.mark.parametrize("mode", ["captured", "joint", "forward", "backward", "facing"])
def test_a_drawing_opens_at_a_readable_scale(open_explorer: Callable[..., Explorer], small: Path, mode: str) -> None:
    explorer = open_explorer(small)
    page = explorer.root.page
    page.set_viewport_size({"width": 900, "height": 500})
    drawing = graph(explorer, 1, "forward" if mode == "facing" else mode)
    if mode == "facing":
        explorer.pane(1).get_by_role("button", name="Side by side").click()
        drawing = explorer.pane(1).locator(".graph")
        expect(boxes(drawing)).not_to_have_count(0)
    expect_value(lambda: drawing.locator(".window").evaluate(READABLE), True)


READABLE = """(window) => {
    const { left, right, top, bottom } = window.getBoundingClientRect();
    const seen = [...window.querySelectorAll(".node-elements > .node")].map((node) => node.getBoundingClientRect())
        .filter((box) => left <= box.left && box.right <= right && top <= box.top && box.bottom <= bottom);
    return seen.length >= 2 && seen.every(({ height }) => height > 22);
}"""
"""Whether several boxes are in view, and all of them large enough for their texts."""


def test_search_expands_groups_and_shows_only_matches(
    open_explorer: Callable[..., Explorer], large: Path, screenshot: Screenshot
) -> None:
    explorer = open_explorer(large)
    drawing = graph(explorer, 1, "forward")
    window = drawing.locator(".window")
    window.focus()
    window.press("/")
    search = drawing.get_by_label("Search the graph's nodes")
    expect(search).to_be_focused()
    search.fill("op:addmm module:layers.7")
    expect(drawing.locator(".count")).to_have_text("1 found")
    search.press("Enter")
    expect(drawing.locator(".count")).to_have_text("1 of 1")
    expect(group(drawing, "layers.7")).to_have_count(0)
    expect(drawing.locator('.node-elements > .current[aria-label*="aten.addmm"]')).to_have_count(1)
    search.fill("op:addmm")
    expect(drawing.locator(".count")).to_have_text("40 found")
    drawing.get_by_role("button", name="Next match").click()
    expect(drawing.locator(".count")).to_have_text("1 of 40")
    drawing.get_by_role("button", name="Previous match").click()
    expect(drawing.locator(".count")).to_have_text("40 of 40")
    search.fill("")
    expect(drawing.get_by_role("button", name="Next match")).to_be_hidden()
    search.fill("op:addmm")
    drawing.get_by_role("button", name="Show only").click()
    drawing.get_by_label("Collapse by").select_option("No groups")
    expect(boxes(drawing)).to_have_count(40)
    screenshot(explorer.root.page, "graph_search")
    drawing.get_by_role("button", name="40 found").click()
    expect(boxes(drawing)).not_to_have_count(40)


def test_keys_move_pin_and_show_subsets(open_explorer: Callable[..., Explorer], small: Path) -> None:
    explorer = open_explorer(small)
    drawing = graph(explorer, 1, "captured")
    window = drawing.locator(".window")
    explorer.node(1, "layer_norm").click()
    expect(explorer.node(1, "layer_norm")).to_have_class(re.compile("pinned"))
    expect(explorer.line(0, "self.linear(self.norm(x))")).to_have_class(re.compile("pin-linked"))
    window.press("ArrowDown")
    expect(explorer.node(1, "linear")).to_have_class(re.compile("current"))
    expect(window).to_have_attribute("aria-activedescendant", explorer.node(1, "linear").get_attribute("id") or "")
    window.press("ArrowDown")
    expect(explorer.node(1, "gelu")).to_have_class(re.compile("current"))
    window.press("w")
    expect(boxes(drawing)).to_have_count(3)
    window.press("Escape")
    expect(boxes(drawing)).not_to_have_count(3)
    expect(explorer.node(1, "layer_norm")).to_have_class(re.compile("pinned"))
    window.press("a")
    expect(drawing.get_by_role("button", name="within 1 step of gelu")).to_be_visible()
    window.press("a")
    expect(drawing.get_by_role("button", name="within 2 steps of gelu")).to_be_visible()
    window.press("Escape")
    window.press("Enter")
    expect(explorer.node(1, "gelu")).to_have_class(re.compile("pinned"))
    window.press("Escape")
    expect(explorer.root.locator(".pinned")).to_have_count(0)


def test_overlays_show_bytes_decisions_and_kernels(
    open_explorer: Callable[..., Explorer], small: Path, screenshot: Screenshot
) -> None:
    explorer = open_explorer(small)
    drawing = graph(explorer, 1, "forward")
    seen = {still(drawing)}
    for overlay in ("Bytes", "Kernel traffic", "Saved or recomputed", "Kernels"):
        drawing.get_by_label("Colour by").select_option(overlay)
        expect_value(lambda: pixels(drawing) in seen, False)
        seen.add(still(drawing))
        if overlay == "Bytes":
            expect(drawing.locator(".legend")).to_contain_text("B")
            screenshot(explorer.root.page, "graph_bytes")


def test_side_by_side_the_cut_and_other_budgets(
    open_explorer: Callable[..., Explorer], small: Path, screenshot: Screenshot, theme: str
) -> None:
    explorer = open_explorer(small, theme)
    page = explorer.root.page
    graph(explorer, 1, "forward")
    explorer.pane(1).get_by_role("button", name="Side by side").click()
    drawing = explorer.pane(1).locator(".graph")
    expect(drawing.locator('.node-elements > [aria-label*="saved"]')).not_to_have_count(0)
    drawing.get_by_label("Collapse by").select_option("No groups")
    # a saved value appears in both graphs; in the forward with its target
    expect(drawing.locator('.node-elements > [aria-label*="addmm = "]')).to_have_count(1)
    drawing.get_by_role("button", name="Show the whole graph").click()
    screenshot(page, f"graph_facing_{theme}")
    explorer.show(0, "partition")
    slider = explorer.pane(0).get_by_label("Memory budget", exact=True)
    drawing = graph(explorer, 1, "joint")
    before = still(drawing)
    description = explorer.pane(0).locator(".budget [role=status]").inner_text()
    slider.focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    expect(explorer.pane(0).locator(".budget [role=status]")).not_to_have_text(description)
    expect(explorer.pane(0).locator(".budget .changes")).to_contain_text("no longer saved")
    expect_value(lambda: pixels(drawing) == before, False)
    screenshot(page, f"graph_cut_{theme}")
    explorer.pane(0).get_by_role("button", name="Plans").click()
    figures = explorer.pane(0).locator(".plans figure")
    expect(figures.nth(0)).to_contain_text("save everything")
    expect(figures.nth(3)).to_contain_text(re.compile(r"budget 0\.\d.*computed again"))
    expect(figures.locator("svg")).to_have_count(figures.count())
    expect(figures.nth(2).locator("svg .saved")).not_to_have_count(0)
    explorer.pane(0).get_by_role("button", name="Plans").scroll_into_view_if_needed()
    screenshot(page, f"plans_{theme}")


def test_fusion_shows_avoided_traffic_and_refusals(
    open_explorer: Callable[..., Explorer], small: Path, screenshot: Screenshot
) -> None:
    explorer = open_explorer(small)
    pane = explorer.show(0, "fusion")
    expect(pane).to_contain_text(re.compile(r"fusing them avoids [\d.]+ KiB of memory traffic"))
    pane.locator("tbody tr").first.click()
    expect(pane.locator("tr.pinned")).not_to_have_count(0)
    expect(pane.locator(".refusals tbody tr").first).to_be_attached()
    screenshot(explorer.root.page, "fusion")
