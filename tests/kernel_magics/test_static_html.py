"""The record without a widget: as static HTML, in notebooks that a program runs and on pages of nbconvert."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from nbclient import NotebookClient
from nbconvert.exporters import HTMLExporter

import compiler_core
import kernel_magics
from compiler_core.records import Record, Timing, Timings
from kernel_magics.display.explorer import MIME
from kernel_magics.display.record_view import RecordView
from kernel_magics.display.static_html import html
from tests.limits import HANG_S

CELL = "%%compile\ny = torch.ones(3).sin()\nprint(end='')\ny + 1"
WIDGET = "application/vnd.jupyter.widget-view+json"


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def test_times_are_shown_with_what_makes_them_doubtful() -> None:
    record = Record(title="timed")
    rows = [Timing(name, 0.001, 0.001, 0.001, 20, 0.0, 0, 1.0) for name in ("eager", "compiled")]
    record.timings = Timings(rows, load=5.0)
    record.find_problems()
    page = text_of(html(record))
    assert "Eager 1 ms" in page
    assert "Other programs keep this machine busy" in page


def test_problems_and_compiles_are_tables() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        print(end="")
        return y + 1

    with compiler_core.record("two graphs") as record:
        compiler_core.compile(program, backend="cpp")(torch.ones(3))
    page = html(record)
    assert page.count("<table>") == 2
    line = program.__code__.co_firstlineno + 2
    assert f"costly graph break: print test_static_html.py line {line} Output must be printed now" in text_of(page)
    assert re.search(r" 0/0 program compiled 1 1 [\d.]+ ms", text_of(page))
    assert "<script" not in page


@pytest.mark.parametrize("by_program", [True, False])
def test_a_program_that_runs_the_notebook_gets_no_widget(
    magics: InteractiveShell, monkeypatch: pytest.MonkeyPatch, by_program: bool
) -> None:
    monkeypatch.setattr(magics, "kernel", SimpleNamespace(_allow_stdin=not by_program), raising=False)
    monkeypatch.setattr(RecordView, "latest", None)
    with capture_output() as output:
        magics.run_cell(CELL).raise_error()
    data: dict[str, Any] = output.outputs[0].data
    assert (WIDGET in data) != by_program
    if by_program:
        assert set(data) == {MIME, "text/html", "text/plain"}
    assert kernel_magics.last().record is kernel_magics.last_record()
    kernel_magics.reset()


@pytest.mark.slow
@pytest.mark.usefixtures("warm_kernels")
def test_nbconvert_shows_the_compiled_cell() -> None:
    load = nbformat.v4.new_code_cell("import torch\n%load_ext kernel_magics")
    notebook = nbformat.v4.new_notebook(cells=[load, nbformat.v4.new_code_cell(CELL)])
    NotebookClient(notebook, kernel_name="python3", extra_arguments=["--log-level=ERROR"], timeout=HANG_S).execute()
    assert "widgets" not in notebook.metadata
    page, _ = HTMLExporter().from_notebook_node(notebook)
    assert re.search(r"costly graph break: print (In\[2\] )?line 3 ", text_of(page))
    assert "0/0 top level compiled" in text_of(page)
