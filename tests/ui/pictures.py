"""Makes the pictures of the README from the real product, light and dark: ``python -m tests.ui.pictures``."""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from unittest import mock

import torch
from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

import compiler_core
from compiler_core.records import Record
from kernel_magics import write_report
from tests.ui import drive
from tests.ui.conftest import FLAGS, chromium
from tests.ui.drive import INSIDE, Explorer, Notebook
from tests.ui.pictured.branch import branch
from tests.ui.pictured.layer import layer
from tests.ui.pictured.softmax import softmax
from tests.ui.pictured.step import step

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
THEMES: dict[Literal["light", "dark"], str] = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
VIEWPORT: ViewportSize = {"width": 1120, "height": 600}
STILL: ViewportSize = {"width": 1120, "height": 420}
WIDE: ViewportSize = {"width": 1640, "height": 700}
QUALITY = 80

SETUP = """
%load_ext kernel_magics
import torch

x = torch.linspace(-1, 1, 1000, requires_grad=True)
"""
CELL = """
%%compile
y = torch.cos(torch.cos(x))
y.sum().backward()
"""


def save_still(page: Page, name: str) -> None:
    page.mouse.move(5, 5)
    page.wait_for_timeout(700)
    Image.open(io.BytesIO(page.screenshot())).save(FOLDER / f"{name}.webp", quality=QUALITY, method=6)


class Recording:
    """The frames of a recording."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.frames: list[Image.Image] = []
        self.times: list[int] = []

    def add(self, milliseconds: int) -> None:
        """Adds what the page shows now."""
        self.page.wait_for_timeout(350)
        self.frames.append(Image.open(io.BytesIO(self.page.screenshot())).convert("RGB"))
        self.times.append(milliseconds)

    def save(self, name: str) -> None:
        first, *others = self.frames
        path, times = FOLDER / f"{name}.webp", self.times
        first.save(path, save_all=True, append_images=others, duration=times, loop=0, quality=QUALITY, method=6)


def record_cell(browser: Browser, theme: Literal["light", "dark"]) -> None:
    """Records how a cell is run and a line followed to its kernel."""
    themes = {"@jupyterlab/apputils-extension/themes": {"theme": THEMES[theme]}}
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(drive, "SETTINGS", drive.SETTINGS | themes),
        drive.jupyter(Path(folder)) as server,
    ):
        page = browser.new_page(viewport=VIEWPORT, color_scheme=theme)
        notebook = Notebook(page, server, server.notebook("recording.ipynb", {"a": SETUP.strip(), "b": CELL.strip()}))
        notebook.visit().wait()
        notebook.command("application:toggle-left-area")
        recording = Recording(page)
        notebook.run("a")
        recording.add(1200)
        notebook.run("b")
        explorer = notebook.explorer("b")
        notebook.element("b").evaluate("(cell) => cell.scrollIntoView({ block: 'start' })")
        recording.add(1800)
        line = explorer.line(0, "torch.cos(torch.cos(x))")
        line.hover(position=INSIDE)
        recording.add(1800)
        line.click(position=INSIDE)
        recording.add(1500)
        for stage in ("Graph", "Forward", "Backward", "Kernel"):
            explorer.stages.get_by_role("button", name=stage).first.click()
            page.wait_for_timeout(500)
            recording.add(1800)
        recording.save(f"recording_{theme}")
        page.close()


@contextmanager
def recorded(title: str, engine: str = "core") -> Iterator[Record]:
    with compiler_core.record(title, engine="torch" if engine == "torch" else "core") as record:
        yield record
    record.find_problems()


def records() -> dict[str, Record]:
    """Returns a record for each still picture."""
    with recorded("branch") as broken:
        compiler_core.compile(branch, backend="eager")(torch.ones(8))
    with recorded("layer") as saved:
        compiler_core.compile(layer, memory_curve=True)(torch.randn(64, 32), torch.randn(32, 16, requires_grad=True))
    with recorded("softmax") as kernels:
        compiler_core.compile(softmax)(torch.randn(64, 100))
    with recorded("softmax") as machine:
        compiler_core.compile(softmax, target="sm_90")(torch.randn(64, 100))
    with recorded("branch") as ours:
        compiler_core.compile(branch, backend="aot_eager")(torch.ones(8))
    with recorded("branch, stock", "torch") as stock:
        torch.compile(branch, backend="aot_eager")(torch.ones(8))
    ours.comparison = compiler_core.compare(ours, stock)
    with recorded("step") as whole:
        compiler_core.compile(step, capture_backward=True)(torch.randn(16, 32))
    return {"break": broken, "saved": saved, "kernels": kernels, "machine": machine, "engines": ours, "step": whole}


def press_break(page: Page, explorer: Explorer) -> None:
    explorer.root.locator(".count").filter(has_text="graph break").click()


def press_saved(page: Page, explorer: Explorer) -> None:
    explorer.show(1, "partition")
    explorer.root.locator(".count").filter(has_text="saved").click()


def press_line(page: Page, explorer: Explorer) -> None:
    explorer.show(1, "fusion")
    explorer.click_line(0, "shifted.exp()")
    explorer.stages.get_by_role("button", name="Kernel").first.click()


def press_machine(page: Page, explorer: Explorer) -> None:
    explorer.show(1, "fusion")
    explorer.click_line(0, "shifted.exp()")
    explorer.stages.get_by_role("button", name="Machine").first.click()


def press_step(page: Page, explorer: Explorer) -> None:
    page.set_viewport_size(WIDE)
    explorer.show(1, "training")
    pane = explorer.root.locator('section.pane[aria-label^="Training step"]')
    others = explorer.root.locator('section.pane:not([aria-label^="Training step"])')
    while others.count():
        others.first.get_by_label("Close this pane").click()
    pane.get_by_role("row").filter(has_text="0.weight").get_by_role("cell").nth(1).get_by_role("button").last.click()
    pane.locator(".rows").first.evaluate("(rows) => rows.scrollTo(0, 0)")


STILLS: dict[str, Callable[[Page, Explorer], None]] = {
    "break": press_break,
    "saved": press_saved,
    "kernels": press_line,
    "machine": press_machine,
    "engines": lambda page, explorer: None,
    "step": press_step,
}


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        shown = records()
        for theme in THEMES:
            for name, prepare in STILLS.items():
                report = write_report(shown[name], Path(folder) / f"{name}.html")
                page = browser.new_page(viewport=STILL, color_scheme=theme, device_scale_factor=1.25)
                page.goto(report.as_uri())
                explorer = Explorer(page.locator(".cutaway"))
                explorer.root.locator(".bar").wait_for()
                prepare(page, explorer)
                save_still(page, f"{name}_{theme}")
                page.close()
            record_cell(browser, theme)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
