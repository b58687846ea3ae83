"""Tests that record, tensors and code are freed when an output closes, its cell runs again, or all is reset."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import ipywidgets
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
from kernel_magics.display.record_view import RecordView

CELL = "%%compile\ndef f(t):\n    return t * big + 1\nf(torch.ones(1000)).sum()"


@pytest.fixture
def notebook(magics: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """A shell that shows explorers, like a kernel's."""
    monkeypatch.setattr(magics, "kernel", object(), raising=False)
    monkeypatch.setattr(RecordView, "latest", None)
    monkeypatch.setattr(magics.displayhook, "cache_size", 0)
    magics.user_ns["big"] = torch.ones(1000)
    yield magics
    kernel_magics.reset()


def run(shell: InteractiveShell, text: str, cell: str) -> None:
    with capture_output():
        shell.run_cell(text, store_history=True, cell_id=cell).raise_error()


def weak_references() -> dict[str, weakref.ref[Any]]:
    """Returns weak references to the explorer, its layout and the record of the cell compiled last."""
    explorer, record = kernel_magics.last(), kernel_magics.last_record()
    return {"explorer": weakref.ref(explorer), "layout": weakref.ref(explorer.layout), "record": weakref.ref(record)}


def alive(refs: dict[str, weakref.ref[Any]]) -> list[str]:
    gc.collect()
    return [name for name, ref in refs.items() if ref() is not None]


def test_a_cell_that_runs_again_frees_what_its_output_showed(notebook: InteractiveShell) -> None:
    run(notebook, CELL, "a")
    first = weak_references()
    run(notebook, CELL, "b")
    second = weak_references()
    assert alive(first) == ["explorer", "layout", "record"]
    run(notebook, CELL, "a")
    assert alive(first) == []
    assert alive(second) == ["explorer", "layout", "record"]


def test_the_latest_stays_until_another_cell_is_compiled(notebook: InteractiveShell) -> None:
    run(notebook, CELL, "a")
    refs = weak_references()
    run(notebook, "1 + 1", "a")
    assert alive(refs) == ["explorer", "layout", "record"]
    assert kernel_magics.last().comm is not None
    run(notebook, CELL, "a")
    assert alive(refs) == []


def test_explain_has_an_explorer_when_it_is_asked_for(notebook: InteractiveShell) -> None:
    run(notebook, "%explain big.cos()", "a")
    explorer = kernel_magics.last()
    assert explorer.record is kernel_magics.last_record()
    assert kernel_magics.last() is explorer


def test_beside_an_explorer_a_comparison_is_printed_in_few_lines(notebook: InteractiveShell) -> None:
    # the cell writes it before it reads it, so it need not be copied, which is not possible
    notebook.user_ns["y"] = torch.ones(2, requires_grad=True) * 2
    with capture_output() as output:
        notebook.run_cell("%%compile --engine core,torch --backend eager\ny = big * 3").raise_error()
    found = kernel_magics.last_comparison().comparison
    assert f"{found.brief()}\n" in output.stdout
    assert str(found) not in output.stdout
    assert len(found.brief().splitlines()) == 2
    assert "graphs 1 / 1" in found.brief()


def test_a_comparison_of_random_numbers_says_so(notebook: InteractiveShell) -> None:
    with capture_output():
        notebook.run_cell("%%compile --engine core,torch\ny = torch.rand(8) + 1\nz = big * 3").raise_error()
    found = kernel_magics.last_comparison().comparison
    assert list(found.values or ()) == ["y"]
    assert "the cell draws random numbers" in found.random
    assert f"this may be right: {found.random}" in found.brief()


def remove(explorer: Explorer | None) -> None:
    """Delivers JupyterLab's message that the outputs of an explorer were removed."""
    assert explorer is not None
    data = {"method": "custom", "content": {"type": "removed"}}
    explorer.comm.handle_msg({"content": {"comm_id": explorer.model_id, "data": data}, "buffers": []})


def test_a_removed_output_is_freed(notebook: InteractiveShell) -> None:
    run(notebook, CELL, "a")
    removed = weak_references()
    run(notebook, CELL, "b")
    remove(removed["explorer"]())
    assert alive(removed) == []
    run(notebook, CELL, "a")


def test_a_removed_output_of_the_latest_cell_is_freed_when_another_is_compiled(notebook: InteractiveShell) -> None:
    run(notebook, CELL, "a")
    removed = weak_references()
    remove(kernel_magics.last())
    assert kernel_magics.last().comm is not None
    run(notebook, "1 + 1", "b")
    assert alive(removed) == ["explorer", "layout", "record"]
    run(notebook, CELL, "c")
    assert alive(removed) == []


def test_a_removed_output_that_is_shown_again_stays(notebook: InteractiveShell) -> None:
    run(notebook, CELL, "a")
    shown = weak_references()
    remove(kernel_magics.last())
    run(notebook, "import kernel_magics; display(kernel_magics.last())", "b")
    run(notebook, CELL, "c")
    assert alive(shown) == ["explorer", "layout", "record"]


def test_a_removed_output_stays_while_another_widget_contains_it(notebook: InteractiveShell) -> None:
    run(notebook, CELL, "a")
    contained = weak_references()
    box = ipywidgets.HBox([kernel_magics.last()])
    run(notebook, CELL, "b")
    remove(contained["explorer"]())
    assert alive(contained) == ["explorer", "layout", "record"]
    box.close()
    del box
    run(notebook, CELL, "c")
    assert alive(contained) == []


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
    refs = weak_references()
    run(notebook, "import kernel_magics; kernel_magics.last().refresh()", "b")
    run(notebook, CELL, "a")
    assert alive(refs) == []


@pytest.mark.parametrize("by", ["python", "page"])
def test_closing_an_explorer_frees_it(notebook: InteractiveShell, by: str) -> None:
    run(notebook, CELL, "a")
    refs = weak_references()
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
    refs = weak_references()
    run(notebook, CELL, "b")
    refs |= {f"second {name}": ref for name, ref in weak_references().items()}
    kernel_magics.reset()
    assert alive(refs) == []
    with pytest.raises(RuntimeError, match="no cell was compiled"):
        kernel_magics.last_record()


def test_tensors_and_code_go_with_them(notebook: InteractiveShell) -> None:
    run(notebook, "%%compile\nbig = torch.ones(1000)\ndef f(t):\n    return t * big\nf(torch.ones(1000)).sum()", "a")
    refs = {name: weakref.ref(notebook.user_ns[name]) for name in ("big", "f")} | weak_references()
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
