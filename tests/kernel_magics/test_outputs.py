"""What is freed when an output closes, its cell runs again, or all is reset: the record, the tensors and the code."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display
from IPython.utils.capture import capture_output

import compiler_core
import kernel_magics
from compiler_core.api.compile import record_of
from compiler_core.records import Record
from kernel_magics.display.explorer import Explorer
from kernel_magics.display.view import View

CELL = "%%compile\ndef f(t):\n    return t * big + 1\nf(torch.ones(1000)).sum()"


@pytest.fixture
def notebook(magics: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """A shell that shows explorers, as that of a kernel."""
    monkeypatch.setattr(magics, "kernel", object(), raising=False)
    monkeypatch.setattr(View, "latest", None)
    monkeypatch.setattr(magics.displayhook, "cache_size", 0)
    magics.user_ns["big"] = torch.ones(1000)
    yield magics
    kernel_magics.reset()


def run(shell: InteractiveShell, text: str, cell: str) -> None:
    with capture_output():
        shell.run_cell(text, store_history=True, cell_id=cell).raise_error()


def made() -> dict[str, weakref.ref[Any]]:
    """What the cell that was compiled last made: its explorer and its record."""
    return {"explorer": weakref.ref(kernel_magics.last()), "record": weakref.ref(kernel_magics.last_record())}


def alive(refs: dict[str, weakref.ref[Any]]) -> list[str]:
    gc.collect()
    return [name for name, ref in refs.items() if ref() is not None]


def test_a_cell_that_runs_again_frees_what_its_output_showed(notebook: InteractiveShell) -> None:
    run(notebook, CELL, "a")
    first = made()
    run(notebook, CELL, "b")
    second = made()
    assert alive(first) == ["explorer", "record"]
    run(notebook, CELL, "a")
    assert alive(first) == []
    assert alive(second) == ["explorer", "record"]


def test_the_latest_stays_until_another_cell_is_compiled(notebook: InteractiveShell) -> None:
    run(notebook, CELL, "a")
    refs = made()
    run(notebook, "1 + 1", "a")
    assert alive(refs) == ["explorer", "record"]
    assert kernel_magics.last().comm is not None
    run(notebook, CELL, "a")
    assert alive(refs) == []


def test_an_explorer_that_another_cell_shows_too_stays_open(notebook: InteractiveShell) -> None:
    run(notebook, CELL, "a")
    notebook.user_ns["shown"] = kernel_magics.last()
    notebook.user_ns["display"] = display
    run(notebook, "display(shown)", "b")
    run(notebook, CELL, "a")
    shown = notebook.user_ns["shown"]
    assert shown.comm is not None
    run(notebook, "None", "b")
    run(notebook, CELL, "a")
    assert shown.comm is None


def test_a_record_that_is_brought_up_to_date_elsewhere_is_freed_with_its_own_cell(notebook: InteractiveShell) -> None:
    run(notebook, CELL, "a")
    refs = made()
    run(notebook, "import kernel_magics; kernel_magics.last().grown()", "b")
    run(notebook, CELL, "a")
    assert alive(refs) == []


@pytest.mark.parametrize("by", ["python", "page"])
def test_closing_an_explorer_frees_it(notebook: InteractiveShell, by: str) -> None:
    run(notebook, CELL, "a")
    refs = made()
    run(notebook, CELL, "b")
    explorer = refs["explorer"]()
    assert explorer is not None
    if by == "python":
        explorer.close()
    else:  # comm_close
        explorer.comm.handle_close({"content": {"data": {}}})
    del explorer
    assert alive(refs) == []


def test_reset_frees_all(notebook: InteractiveShell) -> None:
    run(notebook, CELL, "a")
    refs = made()
    run(notebook, CELL, "b")
    refs |= {f"second {name}": ref for name, ref in made().items()}
    kernel_magics.reset()
    assert alive(refs) == []
    with pytest.raises(RuntimeError, match="no cell was compiled"):
        kernel_magics.last_record()


def test_tensors_and_code_go_with_them(notebook: InteractiveShell) -> None:
    run(notebook, "%%compile\nbig = torch.ones(1000)\ndef f(t):\n    return t * big\nf(torch.ones(1000)).sum()", "a")
    refs = {name: weakref.ref(notebook.user_ns[name]) for name in ("big", "f")} | made()
    refs["code"] = weakref.ref(notebook.user_ns["f"].__code__)
    run(notebook, "%%compile\nbig = torch.ones(2000)\ndef f(t):\n    return t + big\nf(torch.ones(2000)).sum()", "a")
    notebook.last_execution_result = None
    assert alive(refs) == []


def test_an_explorer_alone_is_freed_when_it_closes() -> None:
    explorer = Explorer(Record())
    refs: dict[str, weakref.ref[Any]] = {"explorer": weakref.ref(explorer), "record": weakref.ref(explorer.record)}
    explorer.close()
    del explorer
    assert alive(refs) == []


def test_a_reset_frees_the_records_of_compiled_functions() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.cos() * 2

    compiled = compiler_core.compile(program)
    compiled(torch.ones(3))
    record = weakref.ref(record_of(compiled))
    gc.collect()
    assert record() is not None
    compiler_core.reset()
    gc.collect()
    assert record() is None
    assert compiled(torch.zeros(3)).tolist() == [2, 2, 2]
    assert len(record_of(compiled).compiles) == 1
