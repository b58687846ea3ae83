"""Explorers whose outputs leave a notebook in JupyterLab: the kernel frees them, and no others."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.ui.drive import Notebook, Server

LOAD = """
%load_ext kernel_magics
import torch, kernel_magics, weakref, warnings
warnings.simplefilter("error")
x = torch.ones(3)
made = {}

def note(name):
    made[name] = weakref.ref(kernel_magics.last())

def still_open():
    return [name for name, explorer in made.items() if explorer() is not None and explorer().comm is not None]
"""

NAMES = ("a", "b", "c", "d", "e", "last")
CELLS = {"load": LOAD.strip()} | {
    name: f"%%compile --backend eager\nx.cos() + {at}" for at, name in enumerate(NAMES)
}  # fmt: skip


@pytest.fixture
def notebook(page: Page, server: Server, request: pytest.FixtureRequest) -> Notebook:
    notebook = Notebook(page, server, server.notebook(f"{request.node.name}.ipynb", CELLS)).open()
    notebook.run("load")
    for name in NAMES:
        notebook.run(name)
        notebook.python(f"note({name!r})")
        expect_drawn(notebook, name)
    return notebook


def choose(notebook: Notebook, id_: str) -> None:
    notebook.page.evaluate(
        """(id) => {
            const { content } = window.jupyterapp.shell.currentWidget;
            content.activeCellIndex = content.widgets.findIndex((cell) => cell.model.id === id);
            content.deselectAll();
        }""",
        id_,
    )


def do(notebook: Notebook, command: str, id_: str) -> None:
    choose(notebook, id_)
    notebook.command(f"notebook:{command}")


def expect_drawn(notebook: Notebook, id_: str) -> None:
    """Waits for an explorer, whether live or of the saved record, which may replace each other meanwhile."""
    cell = notebook.element(id_)
    cell.scroll_into_view_if_needed()
    expect(cell.locator(".tree")).to_contain_text("one graph, no break")


def await_open(notebook: Notebook, *names: str) -> None:
    notebook.expect_python("still_open()", list(names))


def open_while_the_kernel_is_busy(notebook: Notebook) -> None:
    """Explorers are of the saved record until the kernel answers, and then live, with what was pinned before."""
    page, go = notebook.page, notebook.server.root / "go"
    page.evaluate(
        """() => {
            const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
            const code = "import os, time\\nwhile not os.path.exists('go'): time.sleep(0.05)";
            void kernel.requestExecute({ code, store_history: false });
            window.kernel = kernel;
        }"""
    )
    page.wait_for_function("() => window.kernel.status === 'busy'")
    page.evaluate("() => window.jupyterapp.shell.currentWidget.close()")
    notebook.visit()
    explorer = notebook.explorer("last")
    expect(explorer.root).to_contain_text("this is a saved result")
    explorer.click_line(0, "x.cos()")
    explorer.expect_pinned(0, "x.cos() + 5")
    explorer.show(1, "guards")
    go.touch()
    expect(explorer.root).not_to_contain_text("this is a saved result")
    explorer.expect_pinned(0, "x.cos() + 5")
    expect(explorer.pane(1)).to_have_attribute("aria-label", re.compile("^Guards"))
    notebook.wait()
    notebook.expect_python("len(kernel_magics.last().selection)", 1)


def test_cleared_outputs_and_deleted_cells_are_freed(notebook: Notebook) -> None:
    do(notebook, "clear-cell-output", "b")
    await_open(notebook, "a", "c", "d", "e", "last")
    do(notebook, "delete-cell", "c")
    await_open(notebook, "a", "d", "e", "last")
    notebook.command("notebook:undo-cell-action")
    expect_drawn(notebook, "c")  # from the record in the notebook
    choose(notebook, "d")
    notebook.page.evaluate(  # at once: nothing is reported
        """() => {
            void window.jupyterapp.commands.execute("notebook:delete-cell");
            void window.jupyterapp.commands.execute("notebook:undo-cell-action");
        }"""
    )
    do(notebook, "delete-cell", "e")
    await_open(notebook, "a", "d", "last")
    expect_drawn(notebook, "d")
    notebook.command("notebook:clear-all-cell-outputs")
    await_open(notebook, "last")
    assert notebook.python("kernel_magics.last().record.compiles[0].id") == "0/0"
    notebook.run("a")
    await_open(notebook)


@pytest.mark.sweep
def test_what_stays_in_the_notebook_stays_open(notebook: Notebook) -> None:
    """Each step comes before a removal, which the page reports later."""
    do(notebook, "move-cell-up", "b")
    do(notebook, "hide-cell-outputs", "c")
    do(notebook, "delete-cell", "a")
    await_open(notebook, "b", "c", "d", "e", "last")
    choose(notebook, "d")
    panel = notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.id")
    notebook.command("notebook:create-output-view")
    expect(notebook.page.locator(".jp-LinkedOutputView .cutaway")).to_be_visible()
    notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.close()")
    expect(notebook.page.locator(".jp-LinkedOutputView")).to_have_count(0)
    notebook.page.evaluate("(id) => window.jupyterapp.shell.activateById(id)", panel)
    do(notebook, "clear-cell-output", "e")
    await_open(notebook, "b", "c", "d", "last")
    notebook.command("docmanager:save")
    open_while_the_kernel_is_busy(notebook)
    for id_ in ("b", "d", "last"):
        expect_drawn(notebook, id_)
    do(notebook, "clear-cell-output", "d")
    await_open(notebook, "b", "c", "last")

    notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    notebook.run("load")
    do(notebook, "clear-cell-output", "last")  # the new kernel does not have its explorer
    for id_ in ("b", "c"):
        notebook.run(id_)
        notebook.python(f"note({id_!r})")
        expect_drawn(notebook, id_)
    do(notebook, "delete-cell", "b")
    await_open(notebook, "c")
