"""Tests of the explorer widget in Python: shown panes, synchronised traits, and the saved output."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from IPython.core import error
from IPython.core.display_functions import DisplayHandle
from IPython.core.interactiveshell import InteractiveShell

import kernel_magics
from compiler_core.api import compile as api
from compiler_core.errors import UsageError
from compiler_core.records import Compile, Kernel, Record
from compiler_core.tools import recording
from kernel_magics.display import explorer as explorers
from kernel_magics.display import progress
from kernel_magics.display.explorer import MIME, Explorer
from kernel_magics.display.packing import pack, unpack


@pytest.fixture
def record() -> Record:
    record = Record(title="a cell")
    record.source("cell.py", 1, ["y = x.cos()"])
    compile_ = record.compile(record.frame("f<b>", "cell.py", 1, "root"))
    compile_.outcome = "compiled"
    return record


def test_the_page_gets_the_packed_record(record: Record) -> None:
    explorer = Explorer(record)
    assert unpack(explorer.get_state("record")["record"]) == record
    assert Explorer().get_state("record") == {"record": None}


def test_a_record_is_packed_once_for_the_page_and_the_output(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    packer = Mock(wraps=pack)
    monkeypatch.setattr(explorers, "pack", packer)
    explorer = Explorer()
    handle = SimpleNamespace(update=lambda shows: shown.append(shows._repr_mimebundle_()))
    explorer.show_record(record, handle)
    assert packer.call_count == 1
    record.notes.append("more")
    explorer.refresh()
    assert packer.call_count == 2
    assert [unpack(data[MIME]).notes for data, _ in shown] == [[], ["more"]]
    assert unpack(explorer.get_state("record")["record"]) == record


def test_an_explorer_that_gets_no_record_says_so(record: Record) -> None:
    explorer, shown = Explorer(), Explorer(record)
    explorer.end()
    shown.end()
    assert explorer.progress == {"ended": "The cell has run, but its record cannot be shown."}
    assert shown.progress == {}


def test_show_says_which_panes_and_which_compile(record: Record) -> None:
    explorer = Explorer(record)
    explorer.show("guards", "kernel:backward.cpp", compile="0/0")
    assert (explorer.shown, explorer.compile) == (["guards", "kernel:backward.cpp"], "0/0")
    explorer.show("source")
    assert (explorer.shown, explorer.compile) == (["source"], "0/0")


@pytest.mark.parametrize(
    ("panes", "compile_id", "message"),
    [
        (("guard",), None, "no pane is called 'guard'; the panes are overview, source"),
        (("source",) * 5, None, "at most 4 panes"),
        (("source",), "7/0", "no compile '7/0'; it has 0/0"),
    ],
)
def test_show_refuses_what_is_not_there(
    record: Record, panes: tuple[str, ...], compile_id: str | None, message: str
) -> None:
    explorer = Explorer(record)
    with pytest.raises(ValueError, match=message):
        explorer.show(*panes, compile=compile_id)
    assert (explorer.shown, explorer.compile) == ([], "")


def test_a_notebook_saves_the_record_and_its_summary_beside_the_widget(record: Record) -> None:
    bundle = Explorer(record)._repr_mimebundle_()
    assert bundle is not None
    data = bundle[0]
    assert set(data) == {MIME, "application/vnd.jupyter.widget-view+json", "text/html", "text/plain"}
    assert unpack(data[MIME]) == record
    assert "<b>" not in data["text/html"]
    assert "f<b>" in data["text/plain"]


def test_until_there_is_a_record_only_the_widget_is_saved() -> None:
    bundle = Explorer()._repr_mimebundle_()
    assert bundle is not None
    assert MIME not in bundle[0]


def test_following_a_record_shows_its_steps_as_they_happen(record: Record) -> None:
    explorer = Explorer()
    log = []
    explorer.observe(lambda change: log.append(change.new), "progress")
    compile_: Compile = record.compiles[0]
    stop = explorer.follow(record)
    with pytest.raises(ZeroDivisionError), compile_.step("joint", "trace"):
        1 / 0
    stop()
    with compile_.step("build"):
        pass
    assert [(p["frame"], p["compile"], p["stage"]) for p in log] == [("f<b>", "0/0", "joint"), ("f<b>", "0/0", "")]
    assert log[0]["done"] == []
    assert [(s["name"], s["outcome"]) for s in log[1]["done"]] == [("trace", "failed")]


def test_the_running_compile_is_summed_up(record: Record) -> None:
    """The time in each stage, whose steps are nested, and how many kernels are built."""
    log = []
    explorer = Explorer()
    explorer.observe(lambda change: log.append(change.new), "progress")
    compile_ = record.compiles[0]
    compile_.kernels = [
        Kernel("a", "a", "cpp", "forward", None),
        Kernel("b", "b", "extern", "forward", None),
        Kernel("c", "c", "cpp", "backward", None),
    ]
    compile_.events.clear()
    explorer.follow(record)
    with compile_.step("lower", "outer"), compile_.step("lower", "inner"):
        pass
    with compile_.step("build", "forward"):
        assert log[-1]["kernels"] == 0
    assert [(s["stage"], s["running"]) for s in log[4]["stages"]] == [("lower", False), ("build", True)]
    inner, outer = log[3]["done"]
    assert inner["ms"] <= outer["ms"] == pytest.approx(log[3]["stages"][0]["ms"], abs=0.1)
    assert (log[-1]["kernels"], log[-1]["compiles"]) == (1, 1)


def test_a_long_compile_is_shown_as_far_as_it_is(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    explorer, running = Explorer(), Record(title="a cell")
    stop = explorer.follow(running)
    running.source("cell.py", 1, ["y = x.cos()"])
    compile_ = running.compile(running.frame("f", "cell.py", 1, "root"))
    with compile_.step("capture"):
        pass
    assert explorer.partial == {}  # it has only begun
    monkeypatch.setattr(progress, "PARTIAL_AFTER_S", 0.0)
    stop()
    stop = explorer.follow(running)
    with compile_.step("guards"):
        partial = unpack(explorer.partial)
        assert [each.stage for each in partial.compiles[0].events] == ["capture", "guards"]
        receive = explorer._handle_msg  # what is pinned meanwhile is an item of the record so far
        receive(
            {
                "content": {"data": {"method": "update", "state": {"selection": ["src:0#1"]}, "buffer_paths": []}},
                "buffers": [],
            }
        )
    assert explorer.selection == ["src:0#1"]
    stop()
    explorer.show_record(record, DisplayHandle())
    assert explorer.partial == {}


def test_fewer_messages_than_jupyter_drops(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Record, "clock", lambda _: 1)
    explorer, log = Explorer(), list[object]()
    explorer.observe(lambda change: log.append(change.new), "progress")
    explorer.follow(record)
    for _ in range(progress.MAX_MESSAGES):
        with record.compiles[0].step("capture"):
            pass
    assert len(log) == progress.MAX_MESSAGES


def test_a_record_that_is_too_large_is_not_in_the_output(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explorers, "MAX_OUTPUT", 10)
    bundle = explorers.record_bundle(record)
    assert MIME not in bundle
    assert all("is not saved with the notebook: %%compile --save FILE.html" in text for text in bundle.values())
    assert "a cell" in bundle["text/plain"]


def test_cancel_reaches_python() -> None:
    explorer, cancelled = Explorer(), []
    explorer.on_cancel(lambda: cancelled.append(True))
    explorer._handle_custom_msg({"type": "hello"}, [])
    assert cancelled == []
    explorer._handle_custom_msg({"type": "cancel"}, [])
    assert cancelled == [True]


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.linear(x).relu() + x
        return result


def test_an_fx_graph_is_shown_alone_and_beside_ours() -> None:
    gm = torch.fx.symbolic_trace(Block())
    before = str(gm.graph)
    alone = Explorer(gm).record
    assert alone is not None
    graph = alone.compiles[0].find("captured").graph
    assert graph is not None
    assert [(n.target, n.module) for n in graph.nodes][1:3] == [("linear", "linear"), ("relu", None)]
    with recording.record("ours") as ours:
        api.compile(Block(), backend="eager")(torch.ones(2, 4))
    exported = torch.export.export(Block(), (torch.ones(2, 4),))
    both = Explorer(exported, beside=ours).record
    assert both is not None
    assert both.title == "ours and a graph"
    assert [c.id for c in both.compiles] == ["0/0", "1/0"]
    assert [c.id for c in ours.compiles] == ["0/0"]
    captured = both.compiles[1].find("captured")
    assert captured.graph is not None
    assert [n.role for n in captured.graph.nodes] == ["parameter", "parameter", None, None, None, None, None]
    assert [n.shape for n in captured.graph.nodes][3] == [2, 4]
    # the graph's nodes lead to the same line of the user's as ours
    lines = {both.text(item).strip() for edge in both.compiles[1].edges for item in edge.sources}
    assert lines == {"result: torch.Tensor = self.linear(x).relu() + x"}
    assert str(gm.graph) == before
    assert getattr(Explorer(gm, beside=Record()).record, "title", "") == "A record and a graph"
    with recording.record("stock", engine="torch") as stock:  # whose frames are numbered over the whole process
        torch.compile(Block(), backend="eager")(torch.ones(2, 4))
    beside_stock = Explorer(gm, beside=stock).record
    assert beside_stock is not None
    assert beside_stock.frames[-1].id == 1 + max(frame.id for frame in stock.frames)


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(UsageError, match="an explorer shows a record or an FX graph, not a list"):
        Explorer([])


def test_panes_are_covered_and_views_presented(magics: InteractiveShell) -> None:
    magics.run_cell_magic("compile", "--backend eager --cover captured,guards", "y = torch.ones(3) * 2\nz = y + 1")
    record = kernel_magics.last_record()
    assert record is not None
    assert record.covered == ["captured", "guards"]
    view = Explorer(record)
    view.present(("Sum", ["source", "captured"], "y + 1"))
    assert [(each.title, each.panes, record.text(each.pinned[0])) for each in record.views] == [
        ("Sum", ["source", "captured"], "z = y + 1")
    ]
    view.cover()
    assert Record.from_json(record.to_json()).covered == []
    with pytest.raises(ValueError, match="no line of the sources contains 'nope'"):
        view.present(("Sum", ["source"], "nope"))
    with pytest.raises(ValueError, match="no pane is called 'nope'"):
        view.cover("nope")


def test_an_unknown_pane_is_not_covered(magics: InteractiveShell) -> None:
    with pytest.raises(error.UsageError, match="--cover: no pane is called 'graph'"):
        magics.run_cell_magic("compile", "--cover graph", "1")


def test_an_address_opens_the_same_view_of_a_shown_record(record: Record) -> None:
    compile_ = record.compiles[0].id
    shown = Explorer(record)
    opened = kernel_magics.view(f"a cell#compile={compile_}&pane=source&pane=kernel:a%20b.cpp&pinned=src:0%231")
    assert opened is not shown
    assert opened.record is record
    assert (opened.compile, opened.shown, opened.selection) == (compile_, ["source", "kernel:a b.cpp"], ["src:0#1"])
    for address, message in [
        ("a cell#compile=9/9", "no compile '9/9'"),
        ("a cell#pane=nothing", "no pane is called 'nothing'"),
    ]:
        with pytest.raises(ValueError, match=message):
            kernel_magics.view(address)
    with pytest.raises(UsageError, match=r"no explorer of this kernel shows 'another cell'.*no such file"):
        kernel_magics.view("another cell#pane=source")


def test_an_address_opens_the_same_view_of_a_saved_record(record: Record, tmp_path: Path) -> None:
    path = tmp_path / "records #1" / "record.json"
    path.parent.mkdir()
    record.save(path)
    opened = kernel_magics.view(f"{path}#pane=source&pane=bytecode")
    assert opened.record == record
    assert opened.shown == ["source", "bytecode"]
    assert kernel_magics.view(str(path)).record == record


def test_an_address_opens_one_record_of_a_notebook(record: Record, tmp_path: Path) -> None:
    path = tmp_path / "saved.ipynb"
    titles = [record.title, "another cell"]
    outputs = [{"data": {MIME: pack(replace(record, title=title))}} for title in titles]
    path.write_text(json.dumps({"cells": [{"outputs": [output]} for output in outputs]}))
    for title in titles:
        opened = kernel_magics.view(f"{path}#{title}#pane=source")
        assert opened.record is not None
        assert (opened.record.title, opened.shown) == (title, ["source"])
    with pytest.raises(UsageError, match="there is no record 'a third'; there are a cell, another cell"):
        kernel_magics.view(f"{path}#a third")
