"""An untrusted record is shown as text: nothing in it runs, loads or breaks the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from compiler_core.records import Record
from kernel_magics.display import static_html
from kernel_magics.display.messages import PANES
from kernel_magics.display.report import write_report
from tests.ui.drive import Explorer, expect_value
from tests.ui.hostile import MARKUP, MEGABYTE, STRINGS, hostile_record

# CodeMirror adds images without a source next to its widgets.
FOREIGN = (
    "script, iframe, object, embed, img:not(.cm-widgetBuffer), link, meta, base, form, video, a[href], foreignObject, "
    "[onload], [onerror]"
)


@pytest.fixture(scope="module")
def record() -> Record:
    return hostile_record()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page on which errors and network requests fail the test."""
    context = browser.new_context(viewport={"width": 1500, "height": 900})
    errors: list[str] = []

    def refuse(route: Route) -> None:
        if route.request.url.startswith("file:"):
            route.continue_()
        else:
            errors.append(f"asked for {route.request.url}")
            route.abort()

    context.route(re.compile("^(?!blob:|data:)"), refuse)
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: errors.append(dialog.message))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    yield page
    assert errors == []
    expect_value(lambda: page.evaluate("window.evil"), None)
    context.close()


def test_there_are_a_hundred_strings() -> None:
    assert len(set(STRINGS)) == len(STRINGS) == 100
    assert max(map(len, STRINGS)) == MEGABYTE


@pytest.mark.sweep
def test_the_explorer_shows_them_as_text(page: Page, record: Record, tmp_path: Path) -> None:
    page.goto(write_report(record, tmp_path / "report.html").as_uri(), wait_until="commit")
    explorer = Explorer(page.locator(".cutaway"))
    rows = explorer.tree.locator(".row")
    expect(rows).to_have_count(len(STRINGS))
    expect(explorer.root.locator(".bar b")).to_have_text(STRINGS[0])
    for kind in PANES:
        explorer.show(1, kind)
        expect(page.locator(".cutaway").locator(FOREIGN)).to_have_count(0)
    explorer.show(0, "source")
    explorer.add_pane()
    for kinds, strings in ((("overview", "captured", "kernel"), STRINGS), (("guards", "sizes", "costs"), MARKUP)):
        for at, kind in enumerate(kinds):
            explorer.show(at, kind)
        rows.first.click(position={"x": 3, "y": 3})
        for _ in strings[1:]:
            page.keyboard.press("ArrowDown")
        expect(rows.nth(len(strings) - 1)).to_have_attribute("aria-selected", "true")
        expect(page.locator(".cutaway").locator(FOREIGN)).to_have_count(0)


def test_a_pinned_item_and_its_links(page: Page, record: Record, tmp_path: Path) -> None:
    small = Record.from_json(record.to_json())
    small.frames = [frame for frame in small.frames if len(frame.name) < MEGABYTE][:5]
    page.goto(write_report(small, tmp_path / "report.html").as_uri())
    explorer = Explorer(page.locator(".cutaway"))
    explorer.tree.locator(".row").nth(2).click(position={"x": 3, "y": 3})
    explorer.show(0, "source")
    explorer.pane(0).locator(".cm-line").first.click(position={"x": 12, "y": 6})
    expect(explorer.stages.locator(".step")).not_to_have_count(0)
    for step in explorer.stages.locator(".step").all():
        step.click()
    expect(page.locator(".cutaway").locator(FOREIGN)).to_have_count(0)


def test_the_html_summary_is_escaped(page: Page, record: Record) -> None:
    page.set_content(static_html.html(record))
    expect(page.locator(FOREIGN)).to_have_count(0)
    expect_value(lambda: STRINGS[0] in page.locator("body").inner_text(), True)


def test_the_record_is_saved_and_loaded(record: Record) -> None:
    again = Record.from_json(record.to_json())
    assert [frame.name for frame in again.frames] == STRINGS
    record.to_json().encode()
