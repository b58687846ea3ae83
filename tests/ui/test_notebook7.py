"""The explorer in Notebook 7: links, drawings, groups, side by side, comparison, themes, and Python access."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.ui.drive import Explorer, Notebook, Server

Screenshot = Callable[[Page, str], None]

LOAD = """
%load_ext kernel_magics
import torch, kernel_magics
x = torch.ones(3, requires_grad=True)
layer = lambda: torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
model = torch.nn.Sequential(*(layer() for _ in range(4)))
"""

CELLS = {
    "load": LOAD.strip(),
    "compile": "%%compile\ny = x.cos().cos()\nloss = y.sum()\nloss.backward()",
    "model": "%%compile\nfor size in (2, 4):\n    out = model(torch.ones(size, 8)).sum()",
}


@pytest.fixture(scope="module")
def notebook(page_of_notebook7: Page, server: Server) -> Notebook:
    notebook = Notebook(page_of_notebook7, server, server.notebook("seven.ipynb", CELLS), path="notebooks").open()
    notebook.run_all()
    assert notebook.errors() == []
    return notebook


def test_a_click_on_a_line_highlights_its_node(notebook: Notebook, screenshot: Screenshot) -> None:
    explorer = notebook.explorer("compile")
    explorer.show(1, "forward")
    explorer.click_line(0, "x.cos().cos()")
    expect(explorer.node(1, "cos")).to_have_class(re.compile("pin-linked"))
    screenshot(notebook.page, "notebook7")


def test_graphs_are_drawn_and_grouped(notebook: Notebook, screenshot: Screenshot) -> None:
    explorer = notebook.explorer("model")
    pane = explorer.show(1, "forward")
    inner = pane.locator('.node-elements > [aria-label*="aten.erf"]')
    expect(inner).not_to_have_count(0)
    pane.get_by_label("Collapse by").select_option("layer")
    expect(inner).to_have_count(0)
    expect(pane.locator('.node-elements > [aria-label*=", collapsed: "]')).not_to_have_count(0)
    screenshot(notebook.page, "notebook7_groups")
    pane.get_by_label("Collapse by").select_option("")
    expect(inner).not_to_have_count(0)


def test_side_by_side_and_two_compiles(notebook: Notebook, screenshot: Screenshot) -> None:
    explorer = notebook.explorer("model")
    pane = explorer.show(1, "forward")
    pane.get_by_role("button", name="Side by side").click()
    expect(pane.locator(".window")).to_have_attribute("aria-label", re.compile("^forward and backward"))
    screenshot(notebook.page, "notebook7_facing")
    pane.get_by_role("button", name="Drawing").click()
    explorer.row("recompiled").first.click()
    beside = explorer.show(1, "compare")
    beside.get_by_role("button", name="Text").click()
    expect(beside.locator(".half .cm-line.differs").first).to_be_visible()


def test_a_mark_has_its_reason_and_opens_the_explorer_at_its_line(notebook: Notebook) -> None:
    mark = notebook.element("compile").locator(".jp-Cell-inputArea .cutaway-mark", has_text="graph break").first
    mark.scroll_into_view_if_needed()
    mark.hover()
    expect(notebook.page.locator(".cutaway-tip")).to_contain_text("Nothing to change")
    mark.click()
    notebook.explorer("compile").expect_pinned(0, "loss.backward()")


def test_dark(notebook: Notebook, screenshot: Screenshot) -> None:
    root = notebook.explorer("model").root
    notebook.command("apputils:change-theme", theme="JupyterLab Dark")
    notebook.page.wait_for_selector("body[data-jp-theme-light=false]", state="attached")
    expect(root).to_have_css("color-scheme", "dark")
    screenshot(notebook.page, "notebook7_dark")
    notebook.command("apputils:change-theme", theme="JupyterLab Light")
    notebook.page.wait_for_selector("body[data-jp-theme-light=true]", state="attached")


def test_python_and_the_explorer_share_their_state(notebook: Notebook) -> None:
    """`show(...)` and `selection`, from Python and in the page."""
    explorer: Explorer = notebook.explorer("model")
    notebook.python("kernel_magics.last().show('guards', 'captured')")
    expect(explorer.pane(0)).to_have_attribute("aria-label", re.compile("^Guards"))
    expect(explorer.pane(1)).to_have_attribute("aria-label", re.compile("^Captured graph"))
    explorer.show(0, "source")
    notebook.expect_python("kernel_magics.last().shown", ["source", "captured"])
    explorer.click_line(0, "out = model")
    text = "[kernel_magics.last_record().text(item).strip() for item in kernel_magics.last().selection]"
    notebook.expect_python(text, ["out = model(torch.ones(size, 8)).sum()"])
    notebook.python("setattr(kernel_magics.last(), 'selection', [])")
    expect(explorer.root.locator(".pinned")).to_have_count(0)
