"""Measures notebooks with many compiled cells: their size, and opening them in JupyterLab without the records' kernel.

make bench ARGS='-k notebook'
python -m tests.benchmarks.bench_notebook

The same notebooks are measured with packed records and with records as plain JSON.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from playwright.sync_api import Browser, Page, sync_playwright

from compiler_core.records import to_plain
from kernel_magics.display.explorer import MIME
from kernel_magics.display.packing import unpack
from tests.benchmarks.bench_explorer import Busy, heap
from tests.ui.conftest import FLAGS, chromium
from tests.ui.drive import RUN_MS, Server, jupyter

CELLS = 40
LAYERS = 12
NETWORK = """import torch
from torch import nn
%load_ext kernel_magics
net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
x = torch.randn(32, 64)"""
TRAINING_STEP = """%%compile
loss = net(x).square().mean()
loss.backward()"""
TRANSFORMER = f"""from tests.benchmarks.bench_explorer import WIDTH, Model
model = Model({LAYERS})
words = torch.randn(2, 16, WIDTH)"""
TRANSFORMER_STEP = """%%compile
loss = model(words).square().mean()
loss.backward()"""
NOTEBOOKS = {
    f"{CELLS} cells that train a network of three layers": [NETWORK, *[TRAINING_STEP] * CELLS],
    f"one cell that trains a transformer of {LAYERS} layers": [NETWORK, TRANSFORMER, TRANSFORMER_STEP],
}
ROW = "{:<58} {:>12} {:>12} {:>9}"
# JupyterLab makes the outputs of a cell as it comes near; cells that are far away are not in the page
UNSHOWN = """() => window.jupyterapp.shell.currentWidget.content.widgets
    .filter(({ model, node }) => model.outputs?.length && !node.querySelector(".cutaway .bar")).length"""

SCROLL = """() => {
    const outer = document.querySelector(".jp-WindowedPanel-outer");
    const atEnd = outer.scrollTop + outer.clientHeight >= outer.scrollHeight - 1;
    outer.scrollTo(0, atEnd ? 0 : outer.scrollTop + 400);
}"""


def measure() -> dict[str, dict[str, float]]:
    """Returns the figures by notebook, form of the records and name."""
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder, jupyter(Path(folder)) as server, sync_playwright() as playwright:
        flags = [*FLAGS, "--enable-precise-memory-info", "--js-flags=--expose-gc"]
        browser = playwright.chromium.launch(executable_path=chromium(), args=flags)
        for title, cells in NOTEBOOKS.items():
            packed = executed(cells)
            for form, change in (("packed", lambda notebook: notebook), ("plain", with_plain_records)):
                figures[f"{title}, {form}"] = reopened(browser, server, change(packed))
        browser.close()
    return figures


def executed(cells: list[str]) -> nbformat.NotebookNode:
    notebook: nbformat.NotebookNode = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(text) for text in cells]
    )
    NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": "."}}, timeout=300).execute()
    return notebook


def with_plain_records(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Returns a copy with records as earlier versions saved them."""
    result: nbformat.NotebookNode = copy.deepcopy(notebook)
    for cell in result.cells:
        for output in cell.outputs:
            if MIME in output.get("data", {}):
                output["data"][MIME] = to_plain(unpack(output["data"][MIME]))
    return result


def reopened(browser: Browser, server: Server, notebook: nbformat.NotebookNode) -> dict[str, float]:
    file = server.root / "measured.ipynb"
    nbformat.write(notebook, file)
    page = browser.new_context(viewport={"width": 1600, "height": 1000}).new_page()
    page.set_default_timeout(RUN_MS)
    page.goto(f"{server.url}/lab?reset&token={server.token}")
    page.wait_for_selector(".jp-Launcher")
    empty = heap(page)
    opened = seconds(lambda: _open(page, file.name))
    busy = Busy(page)
    before = busy.ms()
    figures = {
        "file, MB": file.stat().st_size / 1e6,
        "until the first explorer, s": opened,
        "heap, MB more": heap(page) - empty,
        "scroll through all, s": seconds(lambda: _scroll_through(page)),
        "  of which the page's own thread, s": (busy.ms() - before) / 1e3,
        "heap with all explorers, MB more": heap(page) - empty,
    }
    page.context.close()
    return figures


def _open(page: Page, name: str) -> None:
    page.evaluate("(path) => { window.jupyterapp.commands.execute('docmanager:open', { path }); }", name)
    page.locator(".cutaway .bar").first.wait_for()


def _scroll_through(page: Page) -> None:
    """Scrolls until every explorer was made; not by the mouse, after whose turns Chromium is not idle for 2 s."""
    if (dialog := page.locator(".jp-Dialog button", has_text="No Kernel")).count():
        dialog.click()
    until = time.perf_counter() + RUN_MS / 1000
    while page.evaluate(UNSHOWN):
        assert time.perf_counter() < until, "an explorer was not made"
        page.evaluate(SCROLL)
        page.evaluate("() => new Promise(requestIdleCallback)")  # in which JupyterLab adds further cells


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def test_notebooks() -> None:
    figures = measure()
    for title in NOTEBOOKS:
        packed, plain = figures[f"{title}, packed"], figures[f"{title}, plain"]
        print(f"\n{title}\n" + ROW.format("", "packed", "plain JSON", "ratio"))
        for name, value in packed.items():
            print(ROW.format(name, f"{value:.3g}", f"{plain[name]:.3g}", f"{value / plain[name]:.2f}"))
    small, large = (figures[f"{title}, packed"] for title in NOTEBOOKS)
    assert small["file, MB"] < 3
    assert large["file, MB"] < 1
    assert small["heap with all explorers, MB more"] < 200


if __name__ == "__main__":
    test_notebooks()
