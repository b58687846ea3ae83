"""A failure of the compiler is shown first in the bar and the overview, at the user's line, and once as a warning."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.ui.drive import Notebook, Server, expect_value, line_of

Screenshot = Callable[[Page, str], None]

CELLS = {
    "load": """%load_ext kernel_magics
import torch
from compiler_core.loops.lower.body import RULES

def broken(*_):
    raise ZeroDivisionError("by design")

RULES[torch.ops.aten.sin.default] = broken""",
    "compile": """%%compile
x = torch.ones(64)
y = x.cos()
if y.sum() > 0:
    y = y.sin() + 1""",
    "whole": """%%compile --fullgraph
if x.sum() > 0:
    x = x + 1""",
}


@pytest.fixture(scope="module")
def notebook(page: Page, server: Server) -> Notebook:
    notebook = Notebook(page, server, server.notebook("failures.ipynb", CELLS)).open()
    notebook.run_all()
    assert [error.partition(":")[0] for error in notebook.errors()] == ["FullGraphError"]
    return notebook


def test_a_failure_comes_first(notebook: Notebook, screenshot: Screenshot) -> None:
    explorer = notebook.explorer("compile").root
    expect(explorer.locator(".bar .count").first).to_have_text("1 failure")
    overview = explorer.get_by_label("Overview", exact=True)
    block = overview.locator(".block").first
    expect(block).to_contain_text("Failure: failed in lower")
    expect(block).to_contain_text("ZeroDivisionError: by design")
    expect(block).to_contain_text("the results are right, but it is not compiled")
    expect(block.locator("pre")).to_be_hidden()
    cell = notebook.element("compile")
    cell.scroll_into_view_if_needed()
    mark = cell.locator(".jp-Cell-inputArea .cutaway-mark").filter(has_text="failed in lower")
    expect(mark).to_have_class(re.compile("failure"))
    expect(line_of(mark)).to_have_text(re.compile(r"^\s*y = y\.sin\(\) \+ 1"))
    mark.hover()
    expect(notebook.page.locator(".cutaway-tip")).to_contain_text("--save record.json")
    screenshot(notebook.page, "failure")
    explorer.locator(".bar .count").first.click()
    block.locator("summary").click()
    expect(block.locator("pre")).to_contain_text("in broken")
    screenshot(notebook.page, "failure_open")
    expect(cell.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr']")).to_contain_text(
        "CompileWarning: Cutaway failed to compile this, in the stage lower: ZeroDivisionError: by design"
    )


def test_a_graph_break_that_is_refused_is_explained_above_its_traceback(
    notebook: Notebook, screenshot: Screenshot
) -> None:
    explorer = notebook.explorer("whole").root
    overview = explorer.get_by_label("Overview", exact=True)
    expect(overview).to_contain_text("Graph break: data-dependent branch")
    expect(overview).to_contain_text("ended with an exception. fullgraph=True, but the graph")
    expect_value(lambda: explorer.evaluate("(root) => root.getBoundingClientRect().height <= 300"), True)
    screenshot(notebook.page, "fullgraph")
