"""Measures the README's first cells in a new JupyterLab, from its start to the first explorer.

    python -m tests.benchmarks.bench_first_explorer
    python -m tests.benchmarks.bench_first_explorer --python ENVIRONMENT/bin/python

The second form measures the environment that a wheel was installed in. No kernel is in the cache, and the kernel is
started as any other. Prints the seconds of each part.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from playwright.sync_api import sync_playwright

from tests import warm_python
from tests.ui import drive
from tests.ui.conftest import FLAGS, chromium

README = Path(__file__).parents[2] / "README.md"
ROUNDS = 3


@contextmanager
def timed(name: str, times: dict[str, float]) -> Iterator[None]:
    start = time.monotonic()
    yield
    times[name] = time.monotonic() - start


def first_cells() -> dict[str, str]:
    """Returns the cells of the README, by ids."""
    found = re.findall(r"```python\n(.*?)\n```", README.read_text(encoding="utf-8"), re.DOTALL)
    return {"load": found[0], "compile": found[1]}


def measure(python: str) -> dict[str, float]:
    times: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        page.set_default_timeout(drive.RUN_MS)
        with (
            mock.patch.object(sys, "executable", python),
            mock.patch.object(drive, "KERNEL", "python3"),
            mock.patch.object(warm_python, "kernel_spec", return_value={}),
            mock.patch.dict(os.environ, {"CUTAWAY_CACHE_DIR": f"{folder}/cache"}),
        ):
            stack = drive.jupyter(Path(folder))
            with timed("JupyterLab's server", times):
                server = stack.__enter__()
            try:
                notebook = drive.Notebook(page, server, server.notebook("first.ipynb", first_cells()))
                with timed("page and kernel", times):
                    notebook.open()
                with timed("first cell: load_ext, torch", times):
                    notebook.run("load")
                with timed("second cell: compile", times):
                    notebook.run("compile")
                with timed("until its explorer is there", times):
                    notebook.element("compile").locator(".cutaway .stages").wait_for()
                    notebook.element("compile").locator(".cutaway section.pane .cm-line").first.wait_for()
            finally:
                stack.__exit__(None, None, None)
        browser.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the Python of the environment to measure")
    python = str(Path(parser.parse_args().python).absolute())
    rounds = [measure(python) for _ in range(ROUNDS)]
    for name in rounds[0]:
        print(f"{name:30}", *(f"{each[name]:6.2f}" for each in rounds))
    print(f"{'all, s':30}", *(f"{sum(each.values()):6.2f}" for each in rounds))


if __name__ == "__main__":
    main()
