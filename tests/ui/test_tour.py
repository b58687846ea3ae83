"""The tour in JupyterLab, as a person goes through it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Page, expect

from kernel_magics.display.explorer import MIME
from tests.ui.drive import INSIDE, Explorer, Notebook, Server

TOUR = Path(__file__).parents[2] / "notebooks" / "00_tour.ipynb"
Shoot = Callable[[Page, str], None]


@pytest.fixture(scope="module")
def tour(page: Page, server: Server) -> Notebook:
    shutil.copy(TOUR, server.root / TOUR.name)
    tour = Notebook(page, server, TOUR.name).open()
    tour.run_all()
    return tour


@pytest.fixture
def walk(tour: Notebook) -> Explorer:
    """The explorer of the walk-through function, with nothing pinned and two panes."""
    tour.python("(setattr(explorer, 'selection', []), explorer.show('source', 'captured', compile=compiles[0].id))")
    explorer = tour.explorer("walk-compile")
    expect(explorer.root.locator("section.pane")).to_have_count(2)
    expect(explorer.root.locator(".pinned, .pin-linked")).to_have_count(0)
    return explorer


def test_every_cell_runs(tour: Notebook) -> None:
    assert tour.errors() == []
    assert tour.cell("timing")["count"]


def test_each_compiled_cell_has_an_explorer(tour: Notebook) -> None:
    expect(tour.page.locator(".cutaway .bar")).to_have_count(3)


def test_tree_says_what_happened(walk: Explorer, shoot: Shoot) -> None:
    expect(walk.tree).to_contain_text("graph break at line 5: data-dependent branch")
    expect(walk.tree).to_contain_text("graph break in function, line 5: data-dependent branch")
    expect(walk.tree).to_contain_text("recompiled")
    expect(walk.tree).to_contain_text("not reached")
    shoot(walk.root.page, "tour_walk_1600")


def test_click_on_a_source_line_lights_all_panes(tour: Notebook, walk: Explorer, shoot: Shoot) -> None:
    walk.add_pane()
    walk.show(2, "kernel")
    walk.click_line(0, "x.cos().cos()")
    expect(walk.line(2, "::cosf(v0)")).to_have_class(re.compile("pin-linked"))
    assert walk.lit(0) == ["x = x.cos().cos()"]
    assert {"cos", "cos_1"} <= set(walk.lit_nodes(1))
    assert not any("0.5f" in line for line in walk.lit(2))
    tour.await_python("[record.text(item).strip() for item in explorer.selection]", ["x = x.cos().cos()"])
    shoot(walk.root.page, "tour_line_clicked_1600")


def test_click_on_a_node_lights_the_line(tour: Notebook, walk: Explorer) -> None:
    walk.node(1, "mean").click()
    expect(walk.line(0, "x.mean()")).to_have_class(re.compile("pin-linked"))
    assert walk.lit(0) == ["if x.mean() > 0.5:"]
    tour.await_python("[item.partition(':')[2] for item in explorer.selection]", ["captured#mean"])


def test_pointing_lights_and_leaving_puts_out(walk: Explorer) -> None:
    walk.line(0, "x.mean()").hover(position=INSIDE)
    expect(walk.node(1, "mean")).to_have_class(re.compile("hover-linked"))
    walk.strip.hover()
    expect(walk.root.locator(".hover-linked")).to_have_count(0)


def test_selection_made_in_python_is_shown(tour: Notebook, walk: Explorer) -> None:
    tour.python("setattr(explorer, 'selection', [user_line])")
    expect(walk.line(0, "x.cos().cos()")).to_have_class(re.compile("pinned"))
    assert {"cos", "cos_1"} <= set(walk.lit_nodes(1))


def test_the_way_of_a_line_can_be_walked(walk: Explorer) -> None:
    walk.click_line(0, "x.cos().cos()")
    walk.strip.get_by_role("button", name=re.compile("^Kernels?")).click()
    expect(walk.root.locator(".cm-line.pin-linked").filter(has_text="cosf")).not_to_have_count(0)


def test_arrow_keys_walk_the_tree_and_escape_lets_go(tour: Notebook, walk: Explorer) -> None:
    rows = walk.tree.get_by_role("treeitem")
    selected = walk.tree.locator("[aria-selected=true]")
    walk.click_line(0, "x.cos().cos()")
    before = tour.python("explorer.compile")
    selected.focus()
    walk.root.page.keyboard.press("ArrowDown")
    expect(selected).not_to_contain_text(before)
    tour.await_python(f"explorer.compile != {before!r}", True)
    walk.root.page.keyboard.press("ArrowUp")
    expect(selected).to_contain_text(before)
    walk.root.page.keyboard.press("Escape")
    expect(walk.root.locator(".pinned")).to_have_count(0)
    tour.await_python("explorer.selection", [])
    assert rows.count() >= 6


def test_keys_in_the_explorer_are_not_jupyterlabs(tour: Notebook, walk: Explorer) -> None:
    """`d d` deletes a cell, and `a` makes one, where the notebook hears it."""
    cells = tour.page.locator(".jp-Notebook .jp-Cell").count()
    walk.tree.locator("[aria-selected=true]").focus()
    for key in "adds":
        tour.page.keyboard.press(key)
    assert tour.page.locator(".jp-Notebook .jp-Cell").count() == cells


@pytest.mark.parametrize("kind", ["overview", "bytecode", "guards", "joint", "partition", "forward", "backward",
                                  "fusion", "kernel", "wrapper", "generated", "decompiled", "timings"])  # fmt: skip
def test_every_pane_has_something_to_show(walk: Explorer, kind: str) -> None:
    pane = walk.show(1, kind)
    expect(pane.locator(".cm-line, table tr, .spots > .node, dl, ul").first).to_be_visible()
    expect(pane.locator(".empty")).to_have_count(0)


def test_narrow_and_dark(tour: Notebook, walk: Explorer, shoot: Shoot) -> None:
    page = tour.page
    walk.click_line(0, "x.cos().cos()")
    try:
        page.set_viewport_size({"width": 1000, "height": 800})
        walk.root.scroll_into_view_if_needed()
        shoot(page, "tour_walk_1000")
        tour.command("apputils:change-theme", theme="JupyterLab Dark")
        page.wait_for_selector("body[data-jp-theme-light=false]", state="attached")
        expect(walk.root).to_have_css("color-scheme", "dark")
        shoot(page, "tour_walk_dark_1000")
        page.set_viewport_size({"width": 1600, "height": 1000})
        walk.root.scroll_into_view_if_needed()
        shoot(page, "tour_walk_dark_1600")
    finally:
        tour.command("apputils:change-theme", theme="JupyterLab Light")
        page.wait_for_selector("body[data-jp-theme-light=true]", state="attached")
        page.set_viewport_size({"width": 1600, "height": 1000})


def test_saved_notebook_shows_the_record_without_its_kernel(tour: Notebook, shoot: Shoot) -> None:
    """Saved, its kernel gone: the output is drawn from the notebook's own data."""
    tour.command("docmanager:save")
    tour.page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")
    for session in tour.server.get("api/sessions"):
        tour.server.get(f"api/sessions/{session['id']}", "DELETE")
    tour.open()
    saved = tour.explorer("walk-compile")
    expect(saved.tree).to_contain_text("not reached")
    saved.row("graph break at line 5").first.click()
    saved.show(0, "source")
    saved.click_line(0, "x.cos().cos()")
    saved.show(1, "kernel")
    expect(saved.line(1, "::cosf(v0)")).to_have_class(re.compile("pin-linked"))
    shoot(tour.page, "tour_saved_1600")


def test_record_from_a_stranger_is_only_text(tour: Notebook, server: Server, shoot: Shoot) -> None:
    """A notebook that is not trusted, whose record tries to be more than data."""
    content = nbformat.from_dict(server.get(f"api/contents/{TOUR.name}")["content"])
    (output,) = (o for c in content["cells"] if c["id"] == "walk-compile" for o in c["outputs"] if MIME in o["data"])
    evil = "<img src=x onerror='window.evil = 1'><script>window.evil = 1</script>"
    output["data"][MIME]["title"] = evil
    output["data"][MIME]["frames"][0]["name"] = evil
    output["data"]["text/html"] = evil
    cells = [nbformat.v4.new_markdown_cell(id="words"), nbformat.v4.new_code_cell("1", id="made", outputs=[output])]
    stranger = nbformat.v4.new_notebook(cells=cells, metadata=content["metadata"])
    nbformat.write(stranger, server.root / "stranger.ipynb")
    explorer = Notebook(tour.page, server, "stranger.ipynb").open().explorer("made")
    expect(explorer.root.locator(".bar b")).to_have_text(evil)
    assert tour.page.evaluate("window.evil") is None
    broken = output["data"][MIME] | {"schema_version": 99}
    output["data"][MIME] = broken
    nbformat.write(stranger, server.root / "stranger2.ipynb")
    other = Notebook(tour.page, server, "stranger2.ipynb").open()
    expect(other.element("made").get_by_role("alert")).to_contain_text("99")
    shoot(tour.page, "refused_record")
