"""Fixtures for the browser tests: Chromium, JupyterLab, pages and screenshots. All tests here are marked `browser`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.sampling import sample
from tests.ui.drive import RUN_MS, WAIT_MS, Server, jupyter, open_report

OUTPUT = Path(__file__).parent / "output"
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
"""The first, which has no windows, takes less processor time than the others."""
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


def chromium() -> str | None:
    """Returns the path of Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def pytest_runtest_setup() -> None:
    """Skips the tests without Chromium; in CI, they fail."""
    if chromium() is None and os.environ.get("CI"):
        pytest.fail("no Chromium on the path, and in CI the browser tests must run", pytrace=False)
    if chromium() is None:
        pytest.skip("the browser tests need Chromium on the path (on Debian: apt-get install chromium)")


def _scope(fixture_name: str, config: pytest.Config) -> Literal["session", "module"]:
    """One browser for all modules, except beside other tests, which Playwright's event loop would disturb."""
    alone = all(Path(__file__).parent in (Path(arg).resolve(), *Path(arg).resolve().parents) for arg in config.args)
    return "session" if alone else "module"


@pytest.fixture(scope=_scope)
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with jupyter(tmp_path_factory.mktemp("jupyter")) as server:
        yield server


@pytest.fixture(scope=_scope)
def context(browser: Browser) -> Iterator[BrowserContext]:
    """The context of all pages that show JupyterLab: it keeps the scripts of JupyterLab, which are large."""
    context = browser.new_context(viewport={"width": 1600, "height": 1000})
    yield context
    context.close()


FORGET = """() => {
    for (const key of Object.keys(localStorage)) if (key.startsWith("cutaway.")) localStorage.removeItem(key);
}"""
CLOSE_ALL = "() => { for (const widget of [...window.jupyterapp.shell.widgets('main')]) widget.dispose(); }"


@pytest.fixture(scope=_scope)
def jupyterlab(context: BrowserContext, server: Server) -> Iterator[Page]:
    """The page in which modules open their notebooks one after another, since it takes seconds to load."""
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(f"{server.url}/lab?reset&token={server.token}")
    page.wait_for_function("() => window.jupyterapp?.commands.hasCommand('docmanager:open')", timeout=RUN_MS)
    page.evaluate("() => window.jupyterapp.restored.then(() => null)")
    yield page
    page.close()


@pytest.fixture(scope="module")
def page(jupyterlab: Page, server: Server) -> Iterator[Page]:
    """A page with JupyterLab, without notebooks, kernels and choices of panes of other modules."""
    jupyterlab.evaluate(FORGET)
    yield jupyterlab
    jupyterlab.evaluate(CLOSE_ALL)
    server.end_kernels()


@pytest.fixture(scope="module")
def page_of_notebook7(context: BrowserContext, server: Server) -> Iterator[Page]:
    """A page in which Notebook 7 is to be opened."""
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    yield page
    page.close()
    server.end_kernels()


@pytest.fixture(params=sample(["light", "dark"], 2))
def themed_page(request: pytest.FixtureRequest, browser: Browser, report: Path) -> Iterator[Page]:
    """The `report` fixture of the test's module, in a new browser context, in the light and in the dark theme."""
    with open_report(browser, report, color_scheme=request.param) as page:
        yield page


@pytest.fixture(scope="session")
def screenshot() -> Callable[[Page, str], None]:
    """Returns a function that saves a screenshot in `tests/ui/output`, to be looked at; in CI it does nothing."""
    OUTPUT.mkdir(exist_ok=True)

    def screenshot(page: Page, name: str) -> None:
        if "CI" not in os.environ:
            page.wait_for_timeout(400)  # drawings move to where they show something
            page.screenshot(path=OUTPUT / f"{name}.png", animations="disabled")

    return screenshot
