"""Offline pages about many records: tables, and the explorer of each record in a file beside them."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compiler_core.records import Record
from compiler_core.tools.sweep.results import Sweep
from compiler_core.tools.sweep.store import Store
from kernel_magics.command.main import main
from kernel_magics.display.offline.sweep_page import write_sweep_page
from kernel_magics.display.offline.tables import Cell, Table, page
from tests.kernel_magics.test_report import CHROMIUM_FLAGS, HOSTILE

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).parents[2]


def made(folder: Path, speed: float = 2.0) -> Sweep:
    """A sweep of three models: one is well, one breaks, one failed; the first two have records."""
    store = Store(folder / "models.sqlite")
    store.create({"engine": "torch", "options": {}}, ["a", HOSTILE, "bad"])
    store.records.mkdir()
    break_ = {
        "kind": "print",
        "file": "model.py",
        "line": 24,
        "text": HOSTILE,
        "reason": "It prints.",
        "hint": "Do not.",
    }
    for name, breaks in (("a", []), (HOSTILE, [break_])):
        file = store.records / f"{len(breaks)}.json"
        Record(title=name).save(file)
        row = {"state": "ok", "reason": "", "graphs": 1 + len(breaks), "graph_breaks": len(breaks), "speed": speed,
               "breaks": breaks, "record": f"{store.records.name}/{file.name}", "compile_seconds": 3.0}  # fmt: skip
        store.finish(name, row)
    store.finish("bad", {"state": "failed", "reason": "ValueError: no"})
    return Sweep(store.path)


def test_the_page_of_a_sweep(tmp_path: Path) -> None:
    sweep = made(tmp_path)
    text = write_sweep_page(sweep, tmp_path / "out", before=sweep).read_text()
    assert HOSTILE not in text
    assert "3 models: 2 ok, 1 failed." in text
    assert "2 with red flags" in text
    assert "failed: ValueError: no" in text
    assert re.search(r"<td>print</td><td>model.py:24\n", text)
    for link in re.findall(r'href="(.*?)"', text):
        assert (tmp_path / "out" / link).is_file()
    assert text.count("href") == 4  # both records in the list of all, the second one as a red flag and at its break
    assert "://" not in text


def test_the_command_shows_a_sweep_and_checks_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "after").mkdir()
    before, after = made(tmp_path), made(tmp_path / "after", speed=0.5)
    shown = ["sweep", "--file", str(after.path)]
    assert main(shown) == 0
    assert main([*shown, "--fail-on", "flags"]) == 3
    assert main([*shown, "--compare", str(before.path), "--fail-on", "worse", "--page", str(tmp_path / "out")]) == 3
    output = capsys.readouterr()
    assert "a: speed 2 → 0.5 (worse)" in output.out
    assert "3 models with red flags" in output.err
    assert main([*shown, "--models", "unknown"]) == 2
    assert main(["sweep", "--cases", "nowhere.py:cases"]) == 2


def test_the_cases_of_the_page_can_be_made() -> None:
    text = (ROOT / "docs" / "sweeps.md").read_text()
    (program,) = re.findall(r"```python\n(# my_models.py\n.*?)```", text, re.DOTALL)
    space: dict[str, Any] = {"__name__": "my_models"}
    exec(compile(program, "my_models.py", "exec"), space)
    for case in space["cases"]():
        fn, args = case.make(*case.args)
        fn(*args)


@pytest.mark.sweep
def test_the_command_runs_the_cases_of_the_page(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "sweeps.md").read_text()
    (program,) = re.findall(r"```python\n(# my_models.py\n.*?)```", text, re.DOTALL)
    (tmp_path / "my_models.py").write_text(program)
    command = [sys.executable, "-m", "kernel_magics.command", "sweep", "--cases", "my_models.py:cases",
               "--option", "backend=eager", "--seconds", "0", "--page", "out"]  # fmt: skip
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert "mlp 16  ok     1" in run.stdout
    assert (tmp_path / "out" / "records" / "mlp_16-").parent.is_dir()


@pytest.fixture
def browser_page() -> Iterator[Page]:
    known = ("chromium-headless-shell", "chromium", "google-chrome")
    chromium = next(filter(None, map(shutil.which, known)), None)
    if chromium is None:
        pytest.skip("no Chromium here: the pages are not opened")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        yield browser.new_context(offline=True).new_page()
        browser.close()


@pytest.mark.browser
def test_a_click_opens_a_record_and_a_head_sorts(tmp_path: Path, browser_page: Page) -> None:
    messages: list[str] = []
    browser_page.on("console", lambda message: messages.append(message.text))
    browser_page.on("pageerror", lambda error: messages.append(str(error)))
    browser_page.goto(write_sweep_page(made(tmp_path), tmp_path / "out").as_uri())
    all_rows = browser_page.locator("table").last.locator("tbody tr")
    head = browser_page.locator("table").last.locator("th", has_text="graphs")
    head.click()
    head.click()
    assert all_rows.first.inner_text().startswith(HOSTILE[:9])
    browser_page.locator("#filter").fill("no such text")
    assert all_rows.first.is_hidden()
    browser_page.locator("#filter").fill("")
    browser_page.locator("a", has_text="a").first.click()
    browser_page.wait_for_selector(".cutaway")
    browser_page.goto(f"{(tmp_path / 'out' / 'records').as_uri()}/beside.html#0,1,../index")
    assert browser_page.locator("iframe").count() == 2
    browser_page.frame_locator("iframe").first.locator(".cutaway").wait_for()
    assert messages == []


def test_cells_are_text_only() -> None:
    table = Table(HOSTILE, (HOSTILE,), [[Cell(HOSTILE, 1.5, link=HOSTILE)]], note=HOSTILE)
    assert HOSTILE not in page(HOSTILE, [HOSTILE], [table, dataclasses.replace(table, rows=[])])
