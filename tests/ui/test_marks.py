"""Marks in the notebook's own editors, in JupyterLab; `test_notebook7.py` looks at one in Notebook 7."""

from __future__ import annotations

import re
from collections.abc import Callable

import nbformat
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.sampling import sample
from tests.ui.drive import Notebook, Server, expect_value, line_of

Screenshot = Callable[[Page, str], None]

CELLS = {
    "load": "%load_ext kernel_magics\nimport torch, kernel_magics\nbig = torch.ones(512, 512)",
    "define": "def f(x):\n    y = x.cos() * 2\n    if y.sum() > 0:\n        y = y / 2\n    return y.relu()",
    "compile": "%%compile\nout = f(torch.ones(64, 32))\nout = f(torch.ones(128, 32))\nlarge = big.exp()",
    "again": "%%compile\nout = f(torch.ones(64, 32))\nkept = out.sin()",
}


PATHS = {"lab": "lab/tree", "notebook7": "notebooks"}
pytestmark = pytest.mark.parametrize("notebook", sample(PATHS, 2), indirect=True, scope="module")
"""Notebook 7 loads a page for each, and shows what JupyterLab shows: `make sweeps` runs the tests there, too."""


@pytest.fixture(scope="module")
def notebook(request: pytest.FixtureRequest, server: Server) -> Notebook:
    page = request.getfixturevalue("page" if request.param == "lab" else "page_of_notebook7")
    result = server.notebook(f"marks_{request.param}.ipynb", CELLS)
    notebook = Notebook(page, server, result, path=PATHS[request.param]).open()
    notebook.run_all()
    assert notebook.errors() == []
    return notebook


def marks(notebook: Notebook, id_: str) -> Locator:
    """Returns the marks in a cell's editor, without those in the explorer below it."""
    cell = notebook.element(id_)
    cell.scroll_into_view_if_needed()
    return cell.locator(".jp-Cell-inputArea .cutaway-mark")


BRANCH = re.compile(r"^\s*if y\.sum\(\) > 0:")


def test_marks_have_reason_and_hint(notebook: Notebook, screenshot: Screenshot) -> None:
    found = marks(notebook, "define")
    mark = found.filter(has_text="graph break: data-dependent branch")
    expect(mark).to_have_count(1)  # one for both cells
    expect(mark).to_have_text(re.compile("graph break: data-dependent branch . 2$"))
    expect(line_of(mark)).to_have_text(BRANCH)
    mark.hover()
    tip = notebook.page.locator(".cutaway-tip")
    expect(tip).to_contain_text("depends on the value of a tensor")
    expect(tip).to_contain_text("What to do: Compute both sides")
    screenshot(notebook.page, f"marks_{notebook.path[:3]}")
    notebook.page.mouse.move(5, 5)
    expect(tip).to_have_count(0)
    again = found.filter(has_text="recompiled").first
    again.hover()
    expect(tip).to_contain_text(re.compile(r"The size of x in dimension 0 is 128; compile \d+/0 was made for 64"))
    hot = marks(notebook, "compile").filter(has_text=re.compile("^hot: "))
    expect(hot).to_have_count(1)
    expect(line_of(hot)).to_have_text(re.compile(r"^large = big\.exp\(\)"))


def test_marks_need_no_scrolling_in_a_narrower_window(notebook: Notebook) -> None:
    """Also in cells that were out of view when the window changed, which CodeMirror did not measure."""
    page = notebook.page
    before = page.viewport_size
    for id_ in ("define", "compile"):
        expect(marks(notebook, id_)).not_to_have_count(0)
    scrollers = page.locator(".jp-InputArea-editor:has(.cutaway-mark) .cm-scroller")
    page.set_viewport_size({"width": 1100, "height": 500})
    for id_ in ("define", "compile"):
        expect(marks(notebook, id_).first).to_be_in_viewport()
        expect_value(lambda: scrollers.evaluate_all("(all) => all.filter((e) => e.scrollWidth > e.clientWidth)"), [])
    page.set_viewport_size(before or {"width": 1600, "height": 1000})


def test_a_mark_opens_the_latest_explorer_at_its_line_and_the_source_follows(notebook: Notebook) -> None:
    marks(notebook, "define").filter(has_text="graph break").click()
    explorer = notebook.explorer("again")
    expect(explorer.root.get_by_label("Overview", exact=True)).to_contain_text("Graph break: data-dependent branch")
    expect(explorer.line(0, "if y.sum()")).to_have_class(re.compile("pinned"))
    source = explorer.pane(0)
    source.get_by_label("Artifact").select_option(label="In[2]")
    explorer.root.locator(".count", has_text="graphs").click()  # from the compile of f to the first one, of the cell
    explorer.show(1, "kernel")
    explorer.click_line(1, "= 1.0f")  # of torch.ones, which is in another cell
    expect(source).to_have_attribute("aria-label", "Source In[4]")
    explorer.expect_pinned(0, "out = f(torch.ones(64, 32))")


def test_marks_follow_edits_and_disappear_when_the_code_changes(notebook: Notebook) -> None:
    mark = marks(notebook, "define").filter(has_text="graph break")
    editor = notebook.element("define").locator(".jp-Cell-inputArea .cm-content")
    keyboard = notebook.page.keyboard
    editor.locator(".cm-line").first.click()
    keyboard.press("Control+Home")
    keyboard.type("# first\n\n")
    expect(line_of(mark)).to_have_text(BRANCH)
    keyboard.press("Control+End")
    keyboard.type(" + 1")
    expect(mark).to_have_count(0)
    for _ in range(4):
        keyboard.press("Backspace")
    expect(mark).to_have_count(1)
    keyboard.press("Escape")


def test_marks_survive_save_and_reload_without_a_kernel(notebook: Notebook) -> None:
    notebook.command("docmanager:save")
    notebook.page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")
    notebook.server.end_kernels()
    notebook.visit().wait()
    mark = marks(notebook, "define").filter(has_text="graph break")
    expect(mark).to_have_count(1)
    expect(line_of(mark)).to_have_text(BRANCH)
    mark.click()
    overview = notebook.explorer("again").root.get_by_label("Overview", exact=True)
    expect(overview).to_contain_text("Compute both sides")


def test_an_untrusted_notebook_has_marks(notebook: Notebook) -> None:
    """Marks are made from the record only: nothing in it runs, and no kernel is used."""
    saved = nbformat.read(notebook.server.root / notebook.name, as_version=4)
    saved.cells[0].source += "  # edited by someone else"
    strange = f"strange_{notebook.name}"
    nbformat.write(saved, notebook.server.root / strange)
    with notebook.beside(strange) as other:
        trusted = "() => window.jupyterapp.shell.currentWidget.content.widgets.map((cell) => cell.model.trusted)"
        expect_value(lambda: any(other.page.evaluate(trusted)), False)
        mark = marks(other, "define").filter(has_text="graph break: data-dependent branch")
        expect(mark).to_have_count(1)
        mark.hover()
        expect(other.page.locator(".cutaway-tip")).to_contain_text("What to do: Compute both sides")
        mark.click()
        explorer = other.explorer("again")
        expect(explorer.line(0, "if y.sum()")).to_have_class(re.compile("pinned"))
        assert other.python("'f' in globals()") is False


def test_clearing_the_output_removes_the_marks(notebook: Notebook) -> None:
    mark = marks(notebook, "define").filter(has_text="graph break")
    expect(mark).to_have_text(re.compile(". 2$"))
    clear(notebook, "again")
    expect(mark).to_have_text("graph break: data-dependent branch")
    clear(notebook, "compile")
    expect(marks(notebook, "define")).to_have_count(0)


def clear(notebook: Notebook, id_: str) -> None:
    """Clears the outputs of a cell."""
    notebook.page.evaluate(
        """(id) => {
            const { content } = window.jupyterapp.shell.currentWidget;
            content.activeCellIndex = content.widgets.findIndex((cell) => cell.model.id === id);
            content.deselectAll();
            return window.jupyterapp.commands.execute("notebook:clear-cell-output");
        }""",
        id_,
    )
