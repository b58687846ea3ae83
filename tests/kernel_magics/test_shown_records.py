"""Tests that records leave the kernel's memory once they are shown, and are the same for everybody who uses them."""

from __future__ import annotations

import dataclasses
import gc
import os
import threading
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import compiler_core
import kernel_magics
from compiler_core.records import Compile, Record
from compiler_core.records.record import LARGE_FIELDS
from kernel_magics.display import packing
from kernel_magics.display.packing import unpack
from kernel_magics.display.record_view import RecordView
from kernel_magics.display.storage import session_file, shown_records

CELLS = 4
OBJECTS_A_CELL, BYTES_A_CELL = 60, 150_000
"""A record of the network below has some 2,000 objects and 1 MB."""


@pytest.fixture
def notebook(magics: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """A shell that shows explorers, like a kernel's."""
    monkeypatch.setattr(magics, "kernel", object(), raising=False)
    monkeypatch.setattr(RecordView, "latest", None)
    monkeypatch.setattr(magics.displayhook, "cache_size", 0)
    net = torch.nn.Sequential(*(torch.nn.Linear(8, 8, bias=False) for _ in range(12))).requires_grad_(False)
    magics.user_ns |= {"net": net, "x": torch.randn(4, 8), "torch": torch}
    yield magics
    kernel_magics.reset()


def run(shell: InteractiveShell, cell: str, name: str = "") -> None:
    with capture_output():
        shell.run_cell(cell, store_history=True, cell_id=name or cell).raise_error()


def record_objects() -> int:
    gc.collect()
    return sum(str(type(each).__module__).startswith("compiler_core.records") for each in gc.get_objects())


def is_freed(record: Record) -> bool:
    return record._freed is not None


@pytest.fixture
def record() -> Record:
    with compiler_core.record() as made:
        compiler_core.compile(lambda x: (x.sin() + 1).sum(), backend="aot_eager")(torch.ones(3))
    return made


def test_each_cell_adds_little_to_the_memory_and_old_cells_still_work(notebook: InteractiveShell) -> None:
    explorers: list[Any] = []
    counts, sizes = [], []
    try:
        for number in range(CELLS):
            if number == CELLS - 3:
                tracemalloc.start()
            run(notebook, "%%compile --backend aot_eager\nnet(x).sum()", f"cell {number}")
            explorers.append(kernel_magics.last())
            counts.append(record_objects())
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert counts[-1] - counts[-2] < OBJECTS_A_CELL
    grown = [after - before for before, after in pairwise(sizes[-3:])]
    assert min(grown) < BYTES_A_CELL  # in one cell some dict of the process may grow

    first = explorers[0]
    assert first.record is not None
    sent = unpack(first.get_state("record")["record"])
    first._handle_msg(message({"selection": [f"{first.record.sources[0].id}#2", "0/0:guards#0"]}))
    assert is_freed(first.record)  # neither a page that connects again nor a click reads it
    assert first.record.to_json() == sent.to_json()
    assert not is_freed(first.record)
    own = first.record
    first.experiment("steps")
    again = first.record
    assert first.experiments["runs"] == ["As it ran", "Steps of the capture"]
    run(notebook, "1")
    assert is_freed(own)
    assert not is_freed(again)  # it was shown last, and is likely to be used next
    run(notebook, "%%compile --backend aot_eager\nx + 1")
    assert is_freed(again)
    assert again.compiles[0].steps


def message(state: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"data": {"method": "update", "state": state, "buffer_paths": []}}, "buffers": []}


def test_a_freed_record_is_the_same_object_with_the_same_data(record: Record) -> None:
    compile_, before = record.compiles[0], record.to_json()
    shown_records.free_again(record)
    assert is_freed(record)
    assert record.has_artifact("0/0:guards")
    assert not record.has_artifact("0/0:nothing")
    assert not hasattr(compile_, "nothing")
    assert is_freed(record)
    assert record.compiles[0] is compile_
    assert compile_.find("guards").text
    assert not is_freed(record)
    assert record.to_json() == before
    compile_.artifact("kernel", "later", "text", "added")
    shown_records.free_again(record)
    assert compile_.find("later").text == "added"


def test_a_record_that_is_too_large_for_an_output_is_freed_too(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    before = record.to_json()
    monkeypatch.setattr(packing, "MAX_OUTPUT", 10)
    monkeypatch.setattr(packing, "_MAX_BYTES", 10)
    shown_records.free_again(record)
    assert is_freed(record)
    assert record.to_json() == before


def test_both_records_of_a_comparison_are_freed(notebook: InteractiveShell) -> None:
    run(notebook, "%%compile --backend aot_eager --engine core,torch\nx + 2")
    records = kernel_magics.last_comparison().records
    run(notebook, "%%compile --backend aot_eager\nx + 3")
    assert [is_freed(each) for each in records] == [True, True]


def test_compiled_code_runs_without_reading_its_record(notebook: InteractiveShell) -> None:
    run(notebook, "%%compile --backend aot_eager\ndef f(t): return t.sin().sum()\nt = x.clone().requires_grad_()\nf(t)")
    record = kernel_magics.last_record()
    for _ in range(3):
        run(notebook, "f(t).backward()\nx.sum()")
    assert is_freed(record)


def test_fields_are_read_once_by_many_threads(record: Record) -> None:
    shown_records.free_again(record)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(record.compiles[0].artifacts)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(each is found[0] for each in found)


def test_a_compile_that_runs_keeps_its_fields(record: Record) -> None:
    running = record.compile(record.frames[0])
    shown_records.free_again(record)
    running.artifact("kernel", "k", "text", "text")
    assert is_freed(record)
    assert record.compiles[0].artifacts
    assert [each.text for each in running.artifacts] == ["text"]


def test_large_fields_are_fields_of_a_compile() -> None:
    assert {field.name for field in dataclasses.fields(Compile)} > LARGE_FIELDS


# ---- the file


def test_the_file_uses_space_again_and_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_file, "MAX_BYTES", 2**20)
    file = session_file.SessionFile()
    for _ in range(50):
        number = file.write("x" * 100_000)
        assert number is not None
        assert file.read(number) == "x" * 100_000
        file.delete(number)
    open_files = [os.readlink(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd") if is_link(each)]
    assert [each for each in open_files if "etilqs" in each and not each.endswith("(deleted)")] == []


def is_link(number: str) -> bool:
    return os.path.islink(f"/proc/self/fd/{number}")


def test_what_the_file_cannot_take_stays_in_memory(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_file, "MAX_BYTES", 3 * 4096)
    monkeypatch.setattr(shown_records, "_file", session_file.SessionFile())
    record.source("long.py", 1, [os.urandom(40_000).hex()])
    shown_records.free_again(record)
    assert not is_freed(record)
    assert record.compiles[0].artifacts


@pytest.mark.own_process
def test_a_forked_process_reads_and_never_writes(record: Record) -> None:
    shown_records.free_again(record)
    child = os.fork()
    if not child:
        is_right = shown_records._file.write("text") is None and record.compiles[0].find("guards").text
        os._exit(0 if is_right else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert is_freed(record)
