"""The same in Notebook 7."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.ui.drive import Notebook, Server

CELLS = {
    "load": "%load_ext kernel_magics\nimport torch, kernel_magics\nx = torch.ones(3, requires_grad=True)",
    "compile": "%%compile\ny = x.cos().cos()\nloss = y.sum()\nloss.backward()",
}


def test_cell_is_explored_and_answers(page: Page, server: Server, shoot: Callable[[Page, str], None]) -> None:
    notebook = Notebook(page, server, server.notebook("seven.ipynb", CELLS), path="notebooks").open()
    notebook.run_all()
    assert notebook.errors() == []
    explorer = notebook.explorer("compile")
    explorer.show(1, "forward")
    explorer.click_line(0, "x.cos().cos()")
    expect(explorer.node(1, "cos")).to_have_class(re.compile("pin-linked"))
    text = "[kernel_magics.last_record().text(item) for item in kernel_magics.last().selection]"
    notebook.await_python(text, ["y = x.cos().cos()"])
    shoot(page, "notebook7")
