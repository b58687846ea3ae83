"""The card in JupyterLab's launcher copies the lessons and opens the first one; a lesson that was changed stays."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.ui.drive import Server

Screenshot = Callable[[Page, str], None]


def test_the_card_opens_the_lessons(page: Page, server: Server, screenshot: Screenshot) -> None:
    page.goto(f"{server.url}/lab/workspaces/lessons?reset&token={server.token}")
    card = page.locator(".jp-LauncherCard", has_text="Cutaway lessons")
    expect(card.locator("svg")).to_be_visible(timeout=60_000)
    screenshot(page, "launcher")
    lesson = server.root / "cutaway-lessons" / "workshop" / "01_frames.ipynb"
    lesson.parent.mkdir(parents=True)
    lesson.write_text("mine")
    card.click()
    expect(page.locator(".jp-NotebookPanel .jp-Notebook h1").first).to_be_visible(timeout=60_000)
    expect(page.locator(".jp-DirListing-item", has_text="workshop")).to_be_visible()
    screenshot(page, "lessons_opened")
    assert (lesson.parent / "03_guards.ipynb").exists()
    assert lesson.read_text() == "mine"


def test_what_cannot_be_copied_is_shown(page: Page, server: Server) -> None:
    file = server.root / "cutaway-lessons" / "workshop" / "04_graph_breaks.ipynb"
    file.unlink()
    file.symlink_to("/proc/nowhere/file")
    page.evaluate("window.jupyterapp.commands.execute('cutaway:open-lessons')")
    expect(
        page.locator(".Toastify__toast", has_text="The lessons could not be copied: [Errno 2] No such file")
    ).to_be_visible()
