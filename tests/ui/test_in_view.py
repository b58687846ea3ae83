"""Explorers are drawn where they can be seen and where a cell has just ended in JupyterLab, and nothing jumps."""

from __future__ import annotations

import re
from collections.abc import Callable

import nbformat
import pytest
from playwright.sync_api import Page, expect

from tests.ui.drive import PANEL, RUN_MS, Notebook, Server, expect_value

Screenshot = Callable[[Page, str], None]

LOAD = """
%load_ext kernel_magics
import torch
x = torch.ones(3)
layer = lambda: torch.nn.TransformerEncoderLayer(64, 4, 256, batch_first=True, dropout=0.)
model = torch.nn.Sequential(*(layer() for _ in range(12)))
data = torch.randn(2, 8, 64)
"""

CELLS = {
    "load": LOAD.strip(),
    "first": "%%compile\ny = x.cos()",
    "second": "%%compile\nz = (x.cos() + 1).sum()",
    "slow": "%%compile\nmodel(data).sum().backward()",
}
MANY = 20

FROM_THE_FIRST = """() => {
    const { content } = window.jupyterapp.shell.currentWidget;
    content.activeCellIndex = 0;
    content.deselectAll();
    content.mode = "command";
    content.activate();
}"""
HAS_RUN = """(id) => window.jupyterapp.shell.currentWidget.content.widgets
    .find((cell) => cell.model.id === id).model.executionCount !== null"""
# Scrolls as a fast wheel does, in a few frames.
SCROLL_TO = """async ([panel, share]) => {
    const box = document.querySelector(`${panel} .jp-WindowedPanel-outer`);
    const from = box.scrollTop;
    for (let step = 1; step <= 8; step++) {
        box.scrollTop = from + ((box.scrollHeight - box.clientHeight) * share - from) * (step / 8);
        await new Promise(requestAnimationFrame);
    }
}"""
# The explorers of which a part can be seen: those that are drawn, and those that are not.
SEEN = """(panel) => {
    const box = document.querySelector(`${panel} .jp-WindowedPanel-outer`).getBoundingClientRect();
    const found = { drawn: 0, blank: 0 };
    for (const place of document.querySelectorAll(`${panel} .cutaway-output`)) {
        const { top, bottom, height } = place.getBoundingClientRect();
        if (!height || bottom <= box.top || top >= box.bottom) continue;
        found[place.querySelector(".cutaway > .verdict") ? "drawn" : "blank"]++;
    }
    return found;
}"""
SCROLLED = "(panel) => document.querySelector(`${panel} .jp-WindowedPanel-outer`).scrollTop"
HEIGHTS = "(panel) => [...document.querySelectorAll(`${panel} .cutaway`)].map((each) => each.offsetHeight)"


@pytest.fixture(scope="module")
def notebook(page: Page, server: Server) -> Notebook:
    return Notebook(page, server, server.notebook("in_view.ipynb", CELLS)).open()


@pytest.mark.sweep  # the slow cell's explorer stayed empty once in nine runs, beside all other tests; why is not known
def test_a_cell_that_has_just_ended_is_drawn_without_a_scroll(notebook: Notebook, screenshot: Screenshot) -> None:
    page = notebook.page
    page.evaluate(FROM_THE_FIRST)
    for id_ in CELLS:
        page.keyboard.press("Shift+Enter")
        page.wait_for_function(HAS_RUN, arg=id_, timeout=RUN_MS)
    slow = notebook.element("slow")
    expect(slow.locator(".compiling")).to_have_count(0)  # its progress has the same parts
    for id_ in ("first", "second", "slow"):
        expect(notebook.element(id_).locator(".cutaway > .verdict")).to_have_count(1)
    expect(slow.locator(".cm-content").first).to_contain_text("model(data)")
    screenshot(page, "just_ended")
    output, explorer = slow.locator(".cutaway-output").bounding_box(), slow.locator(".cutaway").bounding_box()
    assert output
    assert explorer
    assert output["height"] == explorer["height"]


def many_explorers(notebook: Notebook) -> str:
    """Saves a notebook with the explorers of one cell many times; returns its name."""
    notebook.run("load")
    notebook.run("first")
    expect(notebook.element("first").locator(".cutaway > .verdict")).to_have_count(1)
    notebook.command("docmanager:save")
    file = notebook.server.root / notebook.name
    expect_value(lambda: "cutaway.record" in file.read_text(), True)
    saved = nbformat.read(file, as_version=4)
    first = saved.cells[1]
    for output in first.outputs:
        output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
    saved.cells = [nbformat.from_dict(first | {"id": f"cell-{at}"}) for at in range(MANY)]
    nbformat.write(saved, file.with_name("many.ipynb"))
    return "many.ipynb"


def test_a_saved_notebook_draws_what_can_be_seen(notebook: Notebook, screenshot: Screenshot) -> None:
    page = notebook.page
    with notebook.beside(many_explorers(notebook)):
        drawn = page.locator(f"{PANEL} .cutaway > .verdict")
        expect(drawn).not_to_have_count(0)
        # the others wait, but have their place already
        expect_value(lambda: len(page.evaluate(HEIGHTS, PANEL)), MANY)
        expect_value(lambda: len(set(page.evaluate(HEIGHTS, PANEL))), 1)
        expect_value(lambda: drawn.count() < MANY / 2, True)
        expect_value(lambda: page.evaluate(SCROLLED, PANEL), 0)
        for share in (0.5, 1, 0.2, 0.7, 0):
            page.evaluate(SCROLL_TO, [PANEL, share])
            expect_value(lambda: page.evaluate(SEEN, PANEL)["blank"], 0)
        screenshot(page, "scrolled")


def test_a_key_goes_from_a_cell_to_its_explorer_and_back(notebook: Notebook) -> None:
    page = notebook.page
    notebook.run("load")
    notebook.run("first")
    expect(notebook.element("first").locator(".cutaway > .verdict")).to_have_count(1)
    page.evaluate(FROM_THE_FIRST)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("e")
    inside = notebook.element("first").locator(".cutaway :focus")
    expect(inside).to_have_count(1)
    page.keyboard.press("ArrowRight")
    expect(inside).to_contain_text("Bytecode")
    page.keyboard.press("Escape")
    expect(inside).to_have_count(0)
    page.keyboard.press("ArrowDown")
    expect(notebook.element("second")).to_have_class(re.compile("jp-mod-active"))
