"""Measures the README's first cells in a new JupyterLab, from its start to the first explorer.

    python -m tests.benchmarks.bench_first_explorer
    python -m tests.benchmarks.bench_first_explorer --python ENVIRONMENT/bin/python

The second form measures the environment that a wheel was installed in. No kernel is in the cache, and the kernel is
started as any other. Prints the seconds of each part, then whose they are: JupyterLab's are measured again without
Cutaway, and PyTorch's imports alone in a process. The kernel's processor time is less disturbed by other programs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
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
    """Returns the cells of the README, by ids: the first line of its first cell loads the extension."""
    found = re.findall(r"```python\n(.*?)\n```", README.read_text(encoding="utf-8"), re.DOTALL)
    load, _, imports = found[0].partition("\n")
    return {"load": load, "torch": imports, "compile": found[1]}


def disable_cutaway(folder: Path) -> None:
    """Writes the settings of Jupyter with which neither its server nor its page loads Cutaway."""
    page = folder / "config" / "labconfig" / "page_config.json"
    page.parent.mkdir(parents=True)
    page.write_text(json.dumps({"disabledExtensions": {"cutaway": True}}))
    server = {"ServerApp": {"jpserver_extensions": {"kernel_magics.server": False}}}
    (folder / "config" / "jupyter_server_config.json").write_text(json.dumps(server))


def imports_of_pytorch(python: str) -> list[float]:
    """Returns seconds: the import of PyTorch's compiler after that of PyTorch, and the processor time of both."""
    program = "import time, torch; start = time.monotonic(); import torch._dynamo"
    printed = "print(time.monotonic() - start, time.process_time())"
    output = subprocess.run([python, "-c", f"{program}; {printed}"], check=True, capture_output=True).stdout
    return [float(each) for each in output.split()]


def run_cells(notebook: drive.Notebook, times: dict[str, float]) -> float:
    """Runs the cells; returns the processor time of the kernel, and of the compilers that it started, for them."""
    seconds = "sum(__import__('os').times()[:4])"
    before = float(notebook.python(seconds))
    with timed("%load_ext kernel_magics", times):
        notebook.run("load")
    with timed("import torch", times):
        notebook.run("torch")
    with timed("the compiled cell", times):
        notebook.run("compile")
    with timed("until its explorer is there", times):
        notebook.element("compile").locator(".cutaway .stages").wait_for()
        notebook.element("compile").locator(".cutaway section.pane .cm-line").first.wait_for()
    return float(notebook.python(seconds)) - before


def measure(python: str, *, with_cutaway: bool = True) -> tuple[dict[str, float], float]:
    """Returns the seconds of each part, and the processor time of the kernel for the cells."""
    times: dict[str, float] = {}
    processor = 0.0
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        page.set_default_timeout(drive.RUN_MS)
        if not with_cutaway:
            disable_cutaway(Path(folder))
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
                with timed("its page, and a kernel", times):
                    notebook.visit().wait()
                if with_cutaway:
                    processor = run_cells(notebook, times)
            finally:
                stack.__exit__(None, None, None)
        browser.close()
    return times, processor


def a_round(python: str) -> dict[str, float]:
    """Returns the seconds of each part of a round, and how JupyterLab, PyTorch and Cutaway share them."""
    without, _ = measure(python, with_cutaway=False)
    times, processor = measure(python)
    imports, imports_processor = imports_of_pytorch(python)
    jupyter, torch, whole = sum(without.values()), times["import torch"] + imports, sum(times.values())
    shares = {"all": whole, "JupyterLab's": jupyter, "PyTorch's imports": torch, "ours": whole - jupyter - torch}
    processors = {"processor: PyTorch's imports": imports_processor, "processor: ours": processor - imports_processor}
    return times | shares | processors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the Python of the environment to measure")
    python = str(Path(parser.parse_args().python).absolute())
    rounds = [a_round(python) for _ in range(ROUNDS)]
    for name in rounds[0]:
        values = [each[name] for each in rounds]
        print(f"{name:30}", *(f"{value:6.2f}" for value in values), f"  median {statistics.median(values):6.2f} s")


if __name__ == "__main__":
    main()
