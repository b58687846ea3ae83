"""Accessibility: WCAG A and AA as checked by axe-core, and the keyboard, in the report and in JupyterLab."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, Page, expect

from compiler_core.api import compile as api
from compiler_core.tools import recording
from compiler_core.tools.measure import measure
from kernel_magics.display.messages import PANES
from kernel_magics.display.report import write_report
from tests.sampling import sample
from tests.ui.drive import Explorer, Notebook, Server, expect_value

Screenshot = Callable[[Page, str], None]

AXE = Path(__file__).parents[2] / "extension" / "node_modules" / "axe-core" / "axe.min.js"
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
THEMES = ["JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast"]
MODES = {"compare": ("Text", "Drawing"), "timings": ("Flames", "Lines"), "costs": ("Flames",)}
"""Modes of panes that are not the first ones, and have other elements."""
CELLS = {
    "load": "%load_ext kernel_magics\nimport torch, kernel_magics\nx = torch.ones(64, requires_grad=True)",
    "compile": "%%compile --steps\ndef halved(x):\n    return x / 2\ny = halved(x.cos())\n"
    "if y.sum() > 0:\n    y = y * 2\ny.sum().backward()",
}


def violations(page: Page, *within: str, only_colours: bool = False) -> list[str]:
    """Returns what axe-core finds, one line each: the rule, the element and the reason.

    With `only_colours` it looks for what depends on the theme, on a page whose other rules were checked in another one.
    """
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE.read_text())
    # axe takes all text for hidden where the body has no height, as in JupyterLab
    page.evaluate("() => { document.body.style.minHeight = '100vh'; }")
    found: list[dict[str, Any]] = page.evaluate(
        """async ([runOnly, within]) => {
            const include = within.filter((part) => document.querySelector(part)).map((part) => [part]);
            const { violations } = await axe.run({ include }, { runOnly, resultTypes: ["violations"] });
            return violations.flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary }) =>
                ({ id, html: html.slice(0, 160), why: failureSummary.split("\\n")[1] })));
        }""",
        [{"type": "rule", "values": ["color-contrast"]} if only_colours else TAGS, list(within)],
    )
    return [f"{each['id']}: {each['html']} {each['why']}" for each in found]


def expect_accessible(page: Page, *within: str, only_colours: bool = False) -> None:
    """Waits until axe-core finds nothing: colours may change for a moment."""
    expect_value(lambda: violations(page, *within, only_colours=only_colours), [])


def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    y = (x.cos() @ weight).relu()
    if y.sum() > 0:
        y = y / 2
    return y.sin().sum()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiled = api.compile(function, steps=True)
    with recording.record("accessible") as record:
        for size in (6, 8):
            compiled(torch.randn(size, 4), torch.ones(4, 4, requires_grad=True)).backward()
    measure(record)
    return write_report(record, tmp_path_factory.mktemp("report") / "report.html")


@pytest.mark.parametrize("scheme", sample(["light", "dark"], 2))
def test_report(report: Path, browser: Browser, scheme: Any) -> None:
    context = browser.new_context(viewport={"width": 1500, "height": 900}, color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    page.goto(report.as_uri())
    explorer = Explorer(page.locator(".cutaway"))
    explorer.row("recompiled").first.click()
    explorer.show(0, "source")
    explorer.click_line(0, "x.cos()")
    dark = scheme == "dark"
    expect_accessible(page, ".cutaway", only_colours=dark)
    shown = ".cutaway section.pane ~ section.pane"
    for kind in PANES:
        explorer.show(1, kind)
        expect_accessible(page, shown, only_colours=dark)
    for kind, modes in MODES.items():
        for mode in modes:
            explorer.show(1, kind).get_by_role("button", name=mode, exact=True).click()
            expect_accessible(page, shown, only_colours=dark)
    context.close()


def test_forced_colours(report: Path, browser: Browser, screenshot: Screenshot) -> None:
    """With the system's few colours (`forced-colors`), a drawing still has several colours."""
    context = browser.new_context(viewport={"width": 1500, "height": 900}, forced_colors="active")
    page = context.new_page()
    page.goto(report.as_uri())
    pane = Explorer(page.locator(".cutaway")).show(1, "forward")
    expect(pane.locator(".node-elements > .node").first).to_be_attached()
    several = """(canvas) => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return new Set(new Uint32Array(data.buffer)).size > 5;
    }"""
    canvas = pane.locator(".window > canvas")
    expect_value(lambda: canvas.evaluate(several), True)
    screenshot(page, "forced_colours")
    context.close()


@pytest.mark.sweep
def test_themes_of_jupyterlab(page: Page, server: Server, screenshot: Screenshot) -> None:
    notebook = Notebook(page, server, server.notebook("themes.ipynb", CELLS)).open()
    notebook.run_all()
    explorer = notebook.explorer("compile")
    explorer.root.locator(".count.warns").first.click()
    for theme in THEMES:
        notebook.command("apputils:change-theme", theme=theme)
        page.wait_for_selector(f"body[data-jp-theme-name='{theme}']", state="attached")
        expect(explorer.root).to_have_css("color-scheme", "light" if "Light" in theme else "dark")
        expect_accessible(page, ".cutaway", ".cutaway-mark", only_colours=theme != THEMES[0])
        screenshot(page, f"theme_{theme.replace(' ', '_')}")
    notebook.command("apputils:change-theme", theme=THEMES[0])


def test_tab_reaches_every_part(report: Path, browser: Browser) -> None:
    """Tab moves through the bar, the tree, each pane and the chain of links, in that order."""
    page = browser.new_page(viewport={"width": 1500, "height": 900}, reduced_motion="reduce")
    page.goto(report.as_uri())
    Explorer(page.locator(".cutaway")).click_line(0, "x.cos()")
    page.locator(".bar button").first.focus()
    reached = ["bar"]
    for _ in range(80):
        page.keyboard.press("Tab")
        part = page.evaluate(
            "() => document.activeElement.closest('.bar, .stages, .tree, .pane')?.className.split(' ')[0] ?? ''"
        )
        if part and reached[-1] != part:
            reached.append(part)
    assert reached[:4] == ["bar", "stages", "tree", "pane"]
    page.close()
