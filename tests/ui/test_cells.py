"""Errors in cells, in JupyterLab: a clear message, Python's own behaviour, and a kernel that stays usable."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.ui.drive import RUN_MS, Notebook, Server, expect_value

Screenshot = Callable[[Page, str], None]

# `long` takes long to compile, because it is unrolled, and little time to run.
LOAD = """
%load_ext kernel_magics
import torch, kernel_magics
x = torch.ones(3)
weights = torch.ones(3, requires_grad=True)

layers = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8)) for _ in range(4)]
model = torch.nn.Sequential(*layers)

def long(x):
    for i in range(2000):
        x = x.sin() + i
    return x
"""

CELLS = {
    "load": LOAD.strip(),
    "fine": "%%compile\nx.cos() + 1",
    "kernels": "%%compile\nz = torch.ones(40).exp().sin().tanh()[:, None] * torch.ones(40, 500)",
    "steps": "%%compile --steps --backend eager\nx.cos() + 1",
    "layers": "%%compile\nmodel(torch.ones(4, 8)).sum()",
    "option": "%%compile --backnd cpp\nx",
    "backend": "%%compile --backend nonsense\nx",
    "syntax": "%%compile\nx = = 1",
    "raises": "%%compile\ny = x.cos()\nraise ValueError('on purpose')",
    "after": "after = 1",
    "long": "%%compile\nlong(weights)",
    "lost": """from kernel_magics.display.explorer import Explorer
lost = Explorer()
lost._trait_values["record"] = kernel_magics.last_record()  # no message of it is sent
lost""",
    "usable": "%%compile\nusable = x.sin()\nusable.sum()",
}


LANGUAGE = "() => window.jupyterapp.shell.currentWidget.content.activeCell.model.mimeType"
"""The language of the active cell."""


@pytest.fixture(scope="module")
def notebook(page: Page, server: Server) -> Notebook:
    notebook = Notebook(page, server, server.notebook("cells.ipynb", CELLS)).open()
    notebook.run("load")
    return notebook


def test_the_value_of_a_cell_is_its_output(notebook: Notebook) -> None:
    notebook.run("fine")
    outputs = notebook.cell("fine")["outputs"]
    assert outputs[-1]["output_type"] == "execute_result"
    assert outputs[-1]["data"]["text/plain"] == "tensor([1.5403, 1.5403, 1.5403])"
    expect(notebook.explorer("fine").tree).to_contain_text("one graph, no break")


def test_edit_makes_a_cell_that_tries_the_text(notebook: Notebook, screenshot: Screenshot) -> None:
    page, explorer = notebook.page, notebook.explorer("fine")
    pane = explorer.show(0, "kernel")
    pane.get_by_role("button", name="Edit", exact=True).click()
    expect(pane.get_by_text("In the cell below.")).to_be_visible()
    cell = page.locator(".jp-Notebook .jp-Cell.jp-mod-active")
    expect(cell.locator(".cm-content")).to_contain_text("%%kernel 0/0:forward_0")
    expect(cell.locator(".cm-content")).to_contain_text("void forward_0(")
    expect_value(lambda: page.evaluate(LANGUAGE), "text/x-c++src")
    page.keyboard.press("Shift+Enter")
    printed = page.locator(".jp-OutputArea", has_text="forward_0: the same values").last
    expect(printed).to_be_visible(timeout=RUN_MS)
    screenshot(page, "edit")
    assert notebook.python("kernel_magics.run.edits.revert(None)").startswith("Nothing is edited")


def test_edit_makes_a_cell_with_the_schedule(notebook: Notebook) -> None:
    page, explorer = notebook.page, notebook.explorer("fine")
    pane = explorer.show(0, "schedule")
    pane.get_by_role("button", name="Edit", exact=True).click()
    expect(pane.get_by_text("In the cell below.")).to_be_visible()
    cell = page.locator(".jp-Notebook .jp-Cell.jp-mod-active")
    expect(cell.locator(".cm-content")).to_contain_text("%%schedule 0/0:forward_0")
    expect(cell.locator(".cm-content")).to_contain_text("vectorize(")
    page.keyboard.press("Shift+Enter")
    expect(page.locator(".jp-OutputArea", has_text="forward_0.schedule: the same values").last).to_be_visible()
    assert notebook.python("kernel_magics.run.edits.revert(None)").startswith("Nothing is edited")


def test_kernels_are_joined_and_split_by_dragging(notebook: Notebook, screenshot: Screenshot) -> None:
    page, mouse = notebook.page, notebook.page.mouse
    notebook.run("kernels")
    explorer = notebook.explorer("kernels")
    pane = explorer.show(0, "fusion")
    row = pane.locator("tr", has=page.get_by_role("button", name="Choose forward_1"))
    pane.get_by_role("button", name="Choose forward_0").hover()
    mouse.down()
    row.hover()
    expect(row).to_have_class(re.compile("drop"))
    screenshot(page, "drag")
    mouse.up()
    runs = explorer.root.get_by_role("group", name="Runs")
    expect(runs).to_contain_text("forward_0 and forward_1 joined", timeout=RUN_MS)
    notebook.expect_python("[len(c.kernels) for c in kernel_magics.last().record.compiles]", [1])
    two_runs = explorer.root.locator(".pane", has_text="kernel time")
    expect(two_runs).to_be_visible()
    screenshot(page, "joined")
    pane = explorer.show(0, "fusion")
    pane.get_by_role("button", name="Choose forward_0").focus()  # by the keyboard
    page.keyboard.press("Enter")
    expect(pane.get_by_role("status")).to_contain_text("forward_0: choose another kernel")
    pane.get_by_role("button", name="Drop a kernel here to split it").focus()
    page.keyboard.press("Enter")
    expect(runs).to_contain_text("forward_0 split", timeout=RUN_MS)


def test_a_link_is_a_line_of_python_that_opens_the_view(notebook: Notebook) -> None:
    notebook.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    notebook.run("fine")
    explorer = notebook.explorer("fine")
    explorer.show(0, "source")
    explorer.show(1, "guards")
    explorer.click_line(0, "x.cos()")
    notebook.run("usable")  # the record is found by its cell, not because it is the last
    explorer = notebook.explorer("fine")
    explorer.root.get_by_role("button", name="Link").click()
    expect(explorer.root.get_by_role("button", name="Copied")).to_be_visible()
    line = notebook.page.evaluate("navigator.clipboard.readText()")
    shown, pinned, text = notebook.python(f"(lambda e: (e.shown, e.selection, e.record.sources[0].text))({line})")
    assert shown[:2] == ["source", "guards"]
    assert pinned == ["src:0#2"]
    assert "x.cos() + 1" in text


def test_recorded_steps_are_shown_at_once_beside_the_graph(notebook: Notebook) -> None:
    notebook.page.evaluate("() => localStorage.removeItem('cutaway.shown')")
    notebook.run("steps")
    kinds = notebook.explorer("steps").root.get_by_label("What this pane shows")
    expect_value(lambda: kinds.evaluate_all("(all) => all.map((each) => each.value)"), ["source", "steps", "captured"])


def test_the_kernel_of_a_group_of_rows_can_be_chosen(notebook: Notebook) -> None:
    notebook.run("layers")
    explorer = notebook.explorer("layers")
    pane = explorer.show(0, "fusion")
    group = pane.locator("tr").filter(has=notebook.page.locator(".unfold-rows")).first
    handle = group.get_by_role("button", name=re.compile("^Choose "))
    handle.press("Enter")
    expect(handle).to_have_attribute("aria-pressed", "true")
    expect(pane.locator(".fusion-handles")).to_contain_text("choose another kernel")


def test_a_wrong_option_is_named(notebook: Notebook) -> None:
    notebook.run("option")
    assert "--backnd" in notebook.output_text("option")
    assert "Traceback" not in notebook.output_text("option")


def test_an_unknown_backend_lists_the_known_ones(notebook: Notebook) -> None:
    notebook.run("backend")
    output = notebook.output_text("backend")
    assert all(name in output for name in ("nonsense", "cpp", "triton", "eager"))
    assert "Traceback" not in output


def test_a_syntax_error_shows_the_line(notebook: Notebook) -> None:
    notebook.run("syntax")
    assert "SyntaxError" in notebook.output_text("syntax")
    assert "x = = 1" in notebook.output_text("syntax")


def test_run_all_stops_at_a_cell_that_raises(notebook: Notebook, screenshot: Screenshot) -> None:
    cells = {name: CELLS[name] for name in ("load", "fine", "raises", "after")}
    with notebook.beside(notebook.server.notebook("stops.ipynb", cells)) as other:
        run_to_an_error(other, screenshot)


def run_to_an_error(notebook: Notebook, screenshot: Screenshot) -> None:
    notebook.run_all()
    assert notebook.errors() == ["ValueError: on purpose"]
    output = notebook.output_text("raises")
    assert re.findall("Traceback", output) == ["Traceback"]
    assert "line 3" in output
    assert notebook.cell("after")["count"] is None
    assert notebook.python("torch.allclose(y, x.cos())"), "what ran before the error has its effect"
    explorer = notebook.explorer("raises").root  # one line above the traceback, until it is asked for
    expect(explorer.locator(".verdict")).to_contain_text("it raised ValueError")
    expect(explorer).not_to_contain_text("not timed")  # which would say it again
    expect(explorer.locator(".stages")).to_be_hidden()
    screenshot(notebook.page, "cell_raises")
    explorer.get_by_role("button", name="Explore").click()
    expect(explorer.locator(".stages")).to_be_visible()


def test_a_record_whose_message_was_lost_is_asked_for(notebook: Notebook) -> None:
    notebook.run("fine")
    notebook.run("lost")
    explorer = notebook.explorer("lost")
    expect(explorer.root.locator(".compiling")).to_have_count(0)
    expect(explorer.tree).to_contain_text("one graph, no break")


@pytest.mark.parametrize("way", ["stop", "cancel"])
def test_a_long_compile_can_be_interrupted(notebook: Notebook, screenshot: Screenshot, way: str) -> None:
    notebook.page.evaluate("() => localStorage.removeItem('cutaway.shown')")  # tests before this one chose other panes
    notebook.start("long")
    compiling = notebook.element("long").locator(".compiling")
    expect(compiling).to_contain_text("✓capture")
    if way == "stop":
        live = notebook.explorer("long")  # the panes fill meanwhile
        expect(live.pane(0)).to_contain_text("long(weights)")
        expect(live.root.locator(".stages").last).to_contain_text("4,002 nodes")
        screenshot(notebook.page, "compiling")
        notebook.command("notebook:interrupt-kernel")
    else:
        compiling.get_by_role("button", name="Stop").click()
    notebook.page.wait_for_function("() => window.ended", timeout=RUN_MS)
    assert "KeyboardInterrupt" in notebook.output_text("long")
    notebook.run("usable")
    assert notebook.python("torch.allclose(usable, x.sin())")
    expect(notebook.explorer("usable").tree).to_contain_text("one graph, no break")
