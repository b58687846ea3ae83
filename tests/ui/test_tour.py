"""The tour notebook in JupyterLab, opened by the card in the launcher, which copies the lessons."""

from __future__ import annotations

import re
from collections.abc import Callable

import nbformat
import pytest
from playwright.sync_api import Page, expect

from compiler_core.records import to_plain
from kernel_magics.display.explorer import MIME
from kernel_magics.display.packing import pack, unpack
from tests.ui.drive import INSIDE, Explorer, Notebook, Server, expect_value

TOUR = "cutaway-lessons/00_tour.ipynb"
CHANGED = "cutaway-lessons/workshop/01_frames.ipynb"
"""A lesson that is there already when the lessons are copied."""
Screenshot = Callable[[Page, str], None]


@pytest.fixture(scope="module")
def tour(page: Page, server: Server, screenshot: Screenshot) -> Notebook:
    changed = server.root / CHANGED
    changed.parent.mkdir(parents=True)
    changed.write_text("mine")
    tour = Notebook(page, server, TOUR)
    tour.command("launcher:create")
    card = page.locator(".jp-LauncherCard:visible", has_text="Cutaway lessons")
    expect(card.locator("svg")).to_be_visible()
    screenshot(page, "launcher")
    card.click()
    tour.wait_until_current()
    tour.wait()
    screenshot(page, "lessons_opened")
    tour.run_all()
    return tour


@pytest.fixture
def explorer(tour: Notebook) -> Explorer:
    """The explorer of the walk-through cell, with two panes and nothing pinned."""
    tour.python("(setattr(explorer, 'selection', []), explorer.show('source', 'captured', compile=compiles[0].id))")
    explorer = tour.explorer("walk-compile")
    expect(explorer.root.locator("section.pane")).to_have_count(2)
    expect(explorer.root.locator(".pinned, .pin-linked")).to_have_count(0)
    return explorer


def test_the_card_copied_the_lessons(tour: Notebook, server: Server) -> None:
    assert (server.root / CHANGED).read_text() == "mine"
    assert (server.root / CHANGED).with_name("03_guards.ipynb").exists()
    expect(tour.page.locator(".jp-DirListing-item", has_text="workshop")).to_be_visible()


def test_every_cell_runs(tour: Notebook) -> None:
    assert tour.errors() == []
    assert tour.cell("timing")["count"]


def test_each_compiled_cell_has_an_explorer(tour: Notebook) -> None:
    outputs = tour.page.locator(".cutaway")
    expect(outputs).to_have_count(3)
    for output in outputs.all():
        output.scroll_into_view_if_needed()
        expect(output.locator("header.bar")).to_be_visible()


def test_the_tree_lists_breaks_and_recompiles(explorer: Explorer, screenshot: Screenshot) -> None:
    expect(explorer.tree).to_contain_text("graph break at line 5: data-dependent branch")
    expect(explorer.tree).to_contain_text("graph break in function, line 5: data-dependent branch")
    expect(explorer.tree).to_contain_text("recompiled")
    expect(explorer.tree).to_contain_text("not reached")
    screenshot(explorer.root.page, "tour_walk_1600")


def test_a_click_on_a_source_line_highlights_all_panes(
    tour: Notebook, explorer: Explorer, screenshot: Screenshot
) -> None:
    explorer.add_pane()
    explorer.show(2, "kernel")
    explorer.click_line(0, "x.cos().cos()")
    expect(explorer.line(2, "::cosf(v0)")).to_have_class(re.compile("pin-linked"))
    explorer.expect_pinned(0, "x = x.cos().cos()")
    explorer.expect_pinned_nodes(1, "cos", "cos_1")
    expect(explorer.pane(2).locator(".cm-line.pin-linked").filter(has_text="0.5f")).to_have_count(0)
    tour.expect_python("[record.text(item).strip() for item in explorer.selection]", ["x = x.cos().cos()"])
    screenshot(explorer.root.page, "tour_line_clicked_1600")


def test_a_click_on_a_node_highlights_its_line(tour: Notebook, explorer: Explorer) -> None:
    explorer.node(1, "mean").click()
    expect(explorer.line(0, "x.mean()")).to_have_class(re.compile("pin-linked"))
    explorer.expect_pinned(0, "if x.mean() > 0.5:")
    tour.expect_python("[item.partition(':')[2] for item in explorer.selection]", ["captured#mean"])


def test_hovering_highlights_until_the_pointer_leaves(explorer: Explorer) -> None:
    explorer.line(0, "x.mean()").hover(position=INSIDE)
    expect(explorer.node(1, "mean")).to_have_class(re.compile("hover-linked"))
    explorer.stages.hover()
    expect(explorer.root.locator(".hover-linked")).to_have_count(0)


def test_a_selection_set_in_python_is_shown(tour: Notebook, explorer: Explorer) -> None:
    tour.python("setattr(explorer, 'selection', [user_line])")
    expect(explorer.line(0, "x.cos().cos()")).to_have_class(re.compile("pinned"))
    explorer.expect_pinned_nodes(1, "cos", "cos_1")


def test_the_chain_of_links_of_a_line(explorer: Explorer) -> None:
    explorer.click_line(0, "x.cos().cos()")
    explorer.stages.get_by_role("button", name=re.compile("^Kernel")).click()
    expect(explorer.root.locator(".cm-line.pin-linked").filter(has_text="cosf")).not_to_have_count(0)


def test_arrow_keys_move_in_the_tree_and_escape_unpins(tour: Notebook, explorer: Explorer) -> None:
    expect(explorer.tree.get_by_role("treeitem").nth(5)).to_be_attached()
    selected = explorer.tree.locator("[aria-selected=true]")
    explorer.click_line(0, "x.cos().cos()")
    before = tour.python("explorer.compile")
    selected.focus()
    explorer.root.page.keyboard.press("ArrowDown")
    expect(selected).not_to_contain_text(before)
    tour.expect_python(f"explorer.compile != {before!r}", True)
    explorer.root.page.keyboard.press("ArrowUp")
    expect(selected).to_contain_text(before)
    explorer.root.page.keyboard.press("Escape")
    expect(explorer.root.locator(".pinned")).to_have_count(0)
    tour.expect_python("explorer.selection", [])


def test_keys_in_the_explorer_are_no_jupyterlab_shortcuts(tour: Notebook, explorer: Explorer) -> None:
    """In the notebook, `d d` deletes a cell and `a` adds one."""
    cells = tour.page.locator(".jp-Notebook .jp-Cell")
    count = cells.count()
    explorer.tree.locator("[aria-selected=true]").focus()
    for key in "adds":
        tour.page.keyboard.press(key)
    expect(cells).to_have_count(count)


@pytest.mark.parametrize("kind", ["overview", "bytecode", "guards", "joint", "partition", "forward", "backward",
                                  "fusion", "kernel", "wrapper", "generated", "decompiled", "timings"])  # fmt: skip
def test_every_pane_has_content(explorer: Explorer, kind: str) -> None:
    pane = explorer.show(1, kind)
    expect(pane.locator(".cm-line, table tr, .node-elements > .node, dl, ul").first).to_be_visible()
    expect(pane.locator(".empty")).to_have_count(0)


def test_narrow_and_dark(tour: Notebook, explorer: Explorer, screenshot: Screenshot) -> None:
    page = tour.page
    explorer.click_line(0, "x.cos().cos()")
    try:
        page.set_viewport_size({"width": 1000, "height": 800})
        explorer.root.scroll_into_view_if_needed()
        screenshot(page, "tour_walk_1000")
        tour.command("apputils:change-theme", theme="JupyterLab Dark")
        page.wait_for_selector("body[data-jp-theme-light=false]", state="attached")
        expect(explorer.root).to_have_css("color-scheme", "dark")
        screenshot(page, "tour_walk_dark_1000")
        page.set_viewport_size({"width": 1600, "height": 1000})
        explorer.root.scroll_into_view_if_needed()
        screenshot(page, "tour_walk_dark_1600")
    finally:
        tour.command("apputils:change-theme", theme="JupyterLab Light")
        page.wait_for_selector("body[data-jp-theme-light=true]", state="attached")
        page.set_viewport_size({"width": 1600, "height": 1000})


def test_a_saved_notebook_shows_the_record_without_its_kernel(tour: Notebook, screenshot: Screenshot) -> None:
    """The output of a saved notebook without a kernel is rendered from the notebook's data, as after a restart."""
    tour.command("docmanager:save")
    tour.page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")
    verdict = tour.explorer("walk-compile").root.locator(".verdict")
    expect(verdict).not_to_contain_text("this is a saved result")
    tour.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    expect(verdict).to_contain_text("not timed: this is a saved result")  # no button that would do nothing
    tour.server.end_kernels()
    tour.page.evaluate("() => window.jupyterapp.shell.currentWidget.dispose()")
    tour.open()
    saved = tour.explorer("walk-compile")
    expect(saved.tree).to_contain_text("not reached")
    saved.row("graph break at line 5").first.click()
    saved.show(0, "source")
    saved.click_line(0, "x.cos().cos()")
    saved.show(1, "kernel")
    expect(saved.line(1, "::cosf(v0)")).to_have_class(re.compile("pin-linked"))
    screenshot(tour.page, "tour_saved_1600")
    tour.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    saved.root.get_by_role("button", name="Link").click()
    expect(saved.root.get_by_role("button", name="Copied")).to_be_visible()
    line = tour.page.evaluate("navigator.clipboard.readText()").replace("kernel_magics", "__import__('kernel_magics')")
    shown, pinned, title = tour.python(f"(lambda e: (e.shown, e.selection, e.record.title))({line})")
    assert (shown[:2], len(pinned)) == (["source", "kernel"], 1)
    expect(saved.root.locator(".bar b")).to_have_text(title)


def test_an_untrusted_record_is_only_text(tour: Notebook, server: Server, screenshot: Screenshot) -> None:
    """An untrusted notebook whose record contains markup."""
    content = nbformat.from_dict(server.get(f"api/contents/{TOUR}")["content"])
    (output,) = (o for c in content["cells"] if c["id"] == "walk-compile" for o in c["outputs"] if MIME in o["data"])
    evil = "<img src=x onerror='window.evil = 1'><script>window.evil = 1</script>"
    record = unpack(output["data"][MIME])
    record.title = record.frames[0].name = evil
    output["data"][MIME] = pack(record)
    output["data"]["text/html"] = evil
    cells = [nbformat.v4.new_markdown_cell(id="words"), nbformat.v4.new_code_cell("1", id="made", outputs=[output])]
    stranger = nbformat.v4.new_notebook(cells=cells, metadata=content["metadata"])
    nbformat.write(stranger, server.root / "stranger.ipynb")
    explorer = Notebook(tour.page, server, "stranger.ipynb").open().explorer("made")
    expect(explorer.root.locator(".bar b")).to_have_text(evil)
    expect_value(lambda: tour.page.evaluate("window.evil"), None)
    output["data"][MIME] = to_plain(record) | {"schema_version": 99}
    nbformat.write(stranger, server.root / "stranger2.ipynb")
    other = Notebook(tour.page, server, "stranger2.ipynb").open()
    expect(other.element("made").get_by_role("alert")).to_contain_text("99")
    screenshot(tour.page, "refused_record")


def test_lessons_that_cannot_be_copied(tour: Notebook, server: Server) -> None:
    file = server.root / "cutaway-lessons" / "workshop" / "04_graph_breaks.ipynb"
    file.unlink()
    file.symlink_to("/proc/nowhere/file")
    tour.command("cutaway:open-lessons")
    message = "The lessons could not be copied: [Errno 2] No such file"
    expect(tour.page.locator(".Toastify__toast", has_text=message)).to_be_visible()
