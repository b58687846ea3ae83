"""Predict, then reveal: covered panes, the views that a teacher presents, and larger type."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.ui.drive import Notebook, Server, expect_value

Screenshot = Callable[[Page, str], None]

LOAD = """
%load_ext kernel_magics
import torch, kernel_magics

def bar(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b

a, b = torch.randn(10, requires_grad=True), torch.rand(10)
"""

PRESENT = """
view = kernel_magics.last()
view.present(
    ("The branch", ["source", "decompiled"], "if b.sum()"),
    ("The graph before it", ["source", "captured"], "torch.abs"),
)
"""

QUESTION = """
from kernel_magics import workshop
workshop.ask("graphs/kinds", workshop.compile_of(kernel_magics.last_record(), "bar").find("captured").graph)
"""

CELLS = {
    "load": LOAD.strip(),
    "covered": "%%compile --backend aot_eager --cover captured,partition\nout = bar(a, b)",
    "present": PRESENT.strip(),
    "question": QUESTION.strip(),
    "save": "kernel_magics.save(kernel_magics.last_record(), 'views.html')",
}


@pytest.fixture(scope="module")
def notebook(page: Page, server: Server) -> Notebook:
    notebook = Notebook(page, server, server.notebook("predict.ipynb", CELLS)).open()
    notebook.run("load")
    page.evaluate("() => localStorage.clear()")
    notebook.run("covered")
    return notebook


def test_a_prediction_uncovers_a_pane_and_is_compared_with_the_record(
    notebook: Notebook, screenshot: Screenshot
) -> None:
    explorer = notebook.explorer("covered")
    graph = explorer.root.locator('section.pane[aria-label^="Captured graph"]')
    expect(graph.locator(".cover")).to_contain_text("Which lines have operations in this graph?")
    expect(explorer.root.locator(".counts")).to_be_hidden()
    screenshot(notebook.page, "predict_covered")
    graph.get_by_label("x = a / (torch.abs(a) + 1)").check()
    graph.get_by_label("return x * b").check()
    graph.get_by_role("button", name="Predict", exact=True).click()
    verdict = re.compile(r"^Missing: \d: if b.sum\(\) < 0:\. Wrong: \d: return x")
    expect(graph.locator(".prediction")).to_have_text(verdict)
    expect(graph.locator(".cover")).to_have_count(0)
    saved = explorer.root.locator('section.pane[aria-label^="Partition"]')
    saved.get_by_role("checkbox").first.check()
    saved.get_by_role("button", name="Predict", exact=True).click()
    expect(saved.locator(".prediction")).to_have_text(re.compile(r"^(Right|Missing|Wrong)"))
    expect(explorer.root.locator(".counts")).to_be_visible()
    screenshot(notebook.page, "predict_revealed")


def test_a_question_of_a_lesson_is_answered(notebook: Notebook, screenshot: Screenshot) -> None:
    notebook.run("question")
    form = notebook.element("question")
    answer = form.get_by_role("button", name="Answer", exact=True)
    for kind in ("call_function", "call_method", "call_module"):
        form.get_by_label(kind, exact=True).check()
    answer.click()
    expect(form).to_contain_text("2 right, 1 wrong, 2 missing. call_module: That is symbolic_trace")
    form.get_by_label("call_module", exact=True).uncheck()
    for kind in ("output", "placeholder"):
        form.get_by_label(kind, exact=True).check()
    answer.click()
    expect(form).to_contain_text("call_function, call_method, output, placeholder. Capture goes into modules")
    expect(form.get_by_role("button", name="Show the answer")).to_be_hidden()
    screenshot(notebook.page, "question")


def test_views_are_presented_in_large_type(notebook: Notebook, screenshot: Screenshot) -> None:
    notebook.run("present")
    explorer = notebook.explorer("covered")
    views = explorer.root.get_by_role("navigation", name="Views to present")
    views.get_by_title("Next view").click()
    expect(explorer.root.locator('section.pane[aria-label^="Decompiled"]')).to_be_visible()
    explorer.expect_pinned(0, "if b.sum() < 0:")
    text, size = explorer.root.locator(".cm-content").first, "(text) => parseFloat(getComputedStyle(text).fontSize)"
    before = text.evaluate(size)
    explorer.root.get_by_role("button", name="A+").click()
    expect_value(lambda: text.evaluate(size) > before * 1.2, True)
    notebook.page.set_viewport_size({"width": 1280, "height": 720})
    explorer.root.get_by_role("button", name="Full screen").click()
    explorer.root.press("PageDown")
    expect(views.get_by_role("combobox")).to_have_value("1")
    screenshot(notebook.page, "present_full_screen")
    explorer.pane(1).locator(".cover p").click()
    notebook.page.keyboard.press("PageUp")
    expect(views.get_by_role("combobox")).to_have_value("0")
    explorer.root.press("PageDown")
    explorer.pane(1).get_by_role("button", name="Show without a prediction").click()
    notebook.page.keyboard.press("PageUp")
    expect(views.get_by_role("combobox")).to_have_value("0")
    overflow = "(e) => e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight"
    expect_value(lambda: explorer.root.evaluate(overflow), False)
    notebook.page.evaluate("() => document.exitFullscreen()")
    notebook.page.set_viewport_size({"width": 1600, "height": 1000})
    explorer.root.get_by_role("button", name="A+").click()


def test_the_address_of_a_report_names_a_view(notebook: Notebook, screenshot: Screenshot) -> None:
    notebook.run("save")
    page = notebook.page.context.new_page()
    page.goto(f"{Path(notebook.server.root, 'views.html').as_uri()}#2")
    expect(page.get_by_role("combobox", name="View", exact=True)).to_have_value("1")
    expect(page.locator('section.pane[aria-label^="Captured graph"] .cover')).to_be_visible()
    screenshot(page, "present_report")
    page.close()
