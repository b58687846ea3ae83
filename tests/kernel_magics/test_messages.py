"""Tests of the messages that the page may send to an explorer, through a real comm."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from compiler_core.errors import UsageError
from compiler_core.records import Artifact, Guard, Kernel, Record
from compiler_core.records.differences import SourceEdit
from kernel_magics.display.explorer import Explorer
from kernel_magics.display.messages import MAX_ITEMS, MAX_NAME_LENGTH, MAX_PANES, PANES, MessageWarning
from kernel_magics.display.record_view import Run


@pytest.fixture
def explorer() -> Explorer:
    record = Record(title="a cell")
    record.source("cell.py", 1, ["y = x.cos()"])
    record.compile(record.frame("f", "cell.py", 1, "root"))
    return Explorer(record)


def receive(explorer: Explorer, data: Any, buffers: list[bytes] | None = None) -> None:
    """Delivers a message of the page through the widget's comm."""
    explorer.comm.handle_msg({"content": {"comm_id": explorer.model_id, "data": data}, "buffers": buffers or []})


def state_of(explorer: Explorer) -> dict[str, Any]:
    state: dict[str, Any] = explorer.get_state()
    return state


def update(**state: Any) -> dict[str, Any]:
    return {"method": "update", "state": state, "buffer_paths": []}


def custom(**content: Any) -> dict[str, Any]:
    return {"method": "custom", "content": content}


def test_what_a_reader_changes_is_taken(explorer: Explorer) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        receive(explorer, update(selection=["src:0#1"], shown=["source", "kernel:a.cpp"], compile="0/0"))
        assert (explorer.selection, explorer.shown, explorer.compile) == (
            ["src:0#1"], ["source", "kernel:a.cpp"], "0/0",
        )  # fmt: skip
        receive(explorer, update(selection=[], shown=[], compile=""))
        assert (explorer.selection, explorer.shown, explorer.compile) == ([], [], "")


def test_the_page_gets_the_state_that_it_asks_for(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(explorer.comm, "send", lambda data, **_: sent.append(data))
    receive(explorer, {"method": "request_state"})
    assert sent[0]["state"]["compile"] == ""


def test_an_explorer_whose_outputs_were_removed_closes(explorer: Explorer) -> None:
    for content in ({"type": "removed", "more": 1}, {"type": ["removed"]}, "removed"):
        with pytest.warns(MessageWarning, match="its content is"):
            receive(explorer, {"method": "custom", "content": content})
    assert explorer.comm is not None
    receive(explorer, {"method": "custom", "content": {"type": "removed"}})
    assert explorer.comm is None


def test_cancel_is_taken_and_no_other_word(explorer: Explorer) -> None:
    cancelled: list[bool] = []
    explorer.on_cancel(lambda: cancelled.append(True))
    receive(explorer, {"method": "custom", "content": {"type": "cancel"}})
    assert cancelled == [True]
    for content in ({"type": "cancel", "more": 1}, {"type": "hello"}, "cancel", ["cancel"], None):
        with pytest.warns(MessageWarning, match="its content is"):
            receive(explorer, {"method": "custom", "content": content})
    assert cancelled == [True]


def test_a_request_to_time_the_cell_reaches_it_with_its_forms(explorer: Explorer) -> None:
    asked: list[Sequence[str]] = []
    explorer.reruns.offer_timing(lambda forms, progress: asked.append(forms))
    receive(explorer, {"method": "custom", "content": {"type": "time", "forms": ["stock", "pinned"]}})
    assert asked == [["stock", "pinned"]]


def test_a_record_without_its_cell_is_not_timed(explorer: Explorer) -> None:
    receive(explorer, {"method": "custom", "content": {"type": "time", "forms": []}})
    assert explorer.timing == {}
    with pytest.raises(UsageError, match="no inputs to run again"):
        explorer.time()
    with pytest.raises(UsageError, match="no form is called 'fast'"):
        explorer.time("fast")


class Tried:
    """Experiments that only note what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Guard | None]] = []

    def choices(self) -> list[dict[str, str]]:
        return [{"name": "dynamic", "label": "dynamic sizes", "why": ""}]

    def run(self, name: str, guard: Guard | None, progress: object) -> Run:
        self.asked.append((name, guard))
        return Run(Record(), name, "engines")

    def changes(self) -> list[tuple[int, SourceEdit]]:
        return [(0, SourceEdit("a change", "cell.py", 1, ["y = x.cos()"], ["y = x.sin()"]))]

    def run_changed_code(self, number: int, progress: object) -> Run:
        self.asked.append((f"change {number}", None))
        return Run(Record(), "changed", "engines")

    def run_fused(self, name: str, kernels: object, progress: object) -> Run:
        self.asked.append((f"{name} {kernels}", None))
        return Run(Record(), name, "engines")

    def run_changed(self, label: str, progress: object, marks: object = (), **changes: object) -> Run:
        raise AssertionError("the page does not ask for this")

    def time_kernels(self, record: Record, notes: object) -> None:
        raise AssertionError("the page does not ask for this")


def test_experiments_are_made_and_their_runs_stay(explorer: Explorer) -> None:
    own, tried = explorer.record, Tried()
    assert own is not None
    own.compiles[0].artifacts.append(Artifact("0/0:guards", "guards", "guards", "python", ""))
    guard = Guard("g1", "shape", "x", "x.shape == (3,)", "(3,)")
    own.compiles[0].guards.append(guard)
    explorer.reruns.offer_experiments(tried)
    for name, item in (("dynamic", ""), ("guard", "src:0#1"), ("guard", "0/0:guards#g1"), ("dynamic", "")):
        receive(explorer, custom(type="run", run=0))
        receive(explorer, custom(type="try", experiment=name, item=item))
    assert tried.asked == [("dynamic", None), ("guard", None), ("guard", guard), ("dynamic", None)]
    assert (explorer.experiments["runs"], explorer.experiments["shown"]) == (["As it ran", "guard", "dynamic"], 2)
    assert explorer.record is not own
    assert explorer.shown == ["source", "engines"]
    receive(explorer, custom(type="run", run=0))
    assert (explorer.record, explorer.experiments["shown"]) == (own, 0)
    receive(explorer, custom(type="try", experiment="change", item="0"))
    assert (tried.asked[-1], explorer.experiments["runs"][-1]) == (("change 0", None), "changed")
    assert explorer.changes() == ["cell.py:1: a change\n- y = x.cos()\n+ y = x.sin()"]
    receive(explorer, custom(type="run", run=0))
    own.compiles[0].kernels += [Kernel(name, name, "cpp", "forward", None, None, None) for name in ("k0", "k1")]
    receive(explorer, custom(type="try", experiment="join", item="k0,k1"))
    receive(explorer, custom(type="run", run=0))
    receive(explorer, custom(type="try", experiment="split", item="k0"))
    assert tried.asked[-2:] == [("join ['k0', 'k1']", None), ("split ['k0']", None)]
    receive(explorer, custom(type="run", run=0))
    for experiment, kernels in (("join", "k0"), ("split", "k0,k1"), ("split", "rm"), ("split", 1)):
        with pytest.warns(MessageWarning, match=f"no such kernels to {experiment}"):
            receive(explorer, custom(type="try", experiment=experiment, item=kernels))
    for number in ("-1", "", "1e3", "99999", None):
        with pytest.warns(MessageWarning, match="no change has the number"):
            receive(explorer, custom(type="try", experiment="change", item=number))
    receive(explorer, custom(type="run", run=0))
    receive(explorer, custom(type="run", run=7))  # there is none
    assert explorer.experiments["shown"] == 0
    with pytest.raises(UsageError, match="no experiment is called 'fast'"):
        explorer.experiment("fast")


LONG = "y" * 1_000_000
REFUSED: dict[str, tuple[Any, str]] = {
    "an unknown experiment": (custom(type="try", experiment="rm", item=""), "no experiment is called 'rm'"),
    "an item that is not there": (custom(type="try", experiment="guard", item="x#1"), "the record has no item 'x#1'"),
    "an item that is no text": (custom(type="try", experiment="guard", item=[1]), "item contains a list"),
    "a run that is no number": (custom(type="run", run="0"), "no run has the number '0'"),
    "a run that is a truth": (custom(type="run", run=True), "no run has the number True"),
    "a run below all": (custom(type="run", run=-1), "no run has the number"),
    "its code": (update(_esm="alert(1)"), "the page may not change '_esm'"),
    "its style": (update(_css="body { display: none }"), "the page may not change '_css'"),
    "its module": (update(_model_module="evil"), "the page may not change '_model_module'"),
    "its layout": (update(layout="IPY_MODEL_1"), "the page may not change 'layout'"),
    "its record": (update(record=""), "the page may not change 'record'"),
    "the progress": (update(progress={}), "the page may not change 'progress'"),
    "one that is unknown": (update(**{LONG: 1}), "the page may not change 'yyyyyyyy"),
    "code beside a right one": (update(compile="0/0", _esm="alert(1)"), "the page may not change '_esm'"),
    "many panes": (update(shown=["source"] * 100_000), f"shown has 100,000 entries, more than {MAX_PANES}"),
    "no pane": (update(shown=["evil"]), "no pane is called 'evil'"),
    "a long pane": (
        update(shown=["source:" + LONG]),
        f"a string of 1,000,007 characters, more than {MAX_NAME_LENGTH:,}",
    ),
    "panes that are no texts": (update(shown=[1]), "shown contains a int, which is not a string"),
    "panes that are no list": (update(shown="source"), "shown is 'source', not a list"),
    "many items": (update(selection=["src:0#1"] * (MAX_ITEMS + 1)), "selection has 10,001 entries"),
    "an item of another record": (update(selection=["src:9#1"]), "the record has no item 'src:9#1'"),
    "a compile of another record": (update(compile="9/9"), "the record has no compile '9/9'"),
    "a compile that is a list": (update(compile=["0/0"]), "the record has no compile a list"),
    "no state": ({"method": "update"}, "its state is None, not an object"),
    "a state that is a list": ({"method": "update", "state": []}, "its state is a list"),
    "buffers by paths": ({"method": "update", "state": {}, "buffer_paths": [["_esm"]]}, "it has binary buffers"),
    "another form": (
        {"method": "custom", "content": {"type": "time", "forms": ["os.system"]}},
        "no form is called 'os.system'",
    ),
    "forms that are no list": (
        {"method": "custom", "content": {"type": "time", "forms": "stock"}},
        "forms is 'stock', not a list",
    ),
    "many forms": (
        {"method": "custom", "content": {"type": "time", "forms": ["stock"] * 1000}},
        "forms has 1,000 entries",
    ),
    "code beside the forms": (
        {"method": "custom", "content": {"type": "time", "forms": [], "code": "1"}},
        "it has an unknown field 'code'",
    ),
    "the state of timing": (update(timing={}), "the page may not change 'timing'"),
    "another field": ({"method": "request_state", "echo": 1}, "it has an unknown field 'echo'"),
    "another method": ({"method": "echo_update", "state": {"_esm": "x"}}, "its method is 'echo_update'"),
    "a method that is a list": ({"method": []}, "its method is a list"),
    "no method": ({}, "its method is None"),
    "a text": ("cancel", "its data is 'cancel', not an object"),
    "nothing": (None, "its data is None, not an object"),
}


@pytest.mark.parametrize(("data", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_all_else_is_refused_in_few_words(explorer: Explorer, data: Any, says: str) -> None:
    before = state_of(explorer)
    with pytest.warns(MessageWarning) as warned:
        receive(explorer, data)
    assert says in str(warned[0].message)
    assert len(str(warned[0].message)) < 300
    assert state_of(explorer) == before


def test_binary_parts_are_refused(explorer: Explorer) -> None:
    with pytest.warns(MessageWarning, match="binary buffers"):
        receive(explorer, update(compile="0/0"), [b"x"])
    assert explorer.compile == ""


def test_the_panes_are_those_of_the_explorer() -> None:
    registry = Path(__file__).parents[2] / "extension/src/view/panes/registry.ts"
    assert sorted(re.findall(r'\bname: "(\w+)"', registry.read_text())) == sorted(PANES)


@pytest.mark.parametrize("pane", PANES)
def test_every_pane_may_be_shown(explorer: Explorer, pane: str) -> None:
    receive(explorer, update(shown=[pane]))
    assert explorer.shown == [pane]


def test_before_there_is_a_record_nothing_of_one_is_known() -> None:
    explorer = Explorer()
    with pytest.warns(MessageWarning, match="the record has no compile '0/0'"):
        receive(explorer, update(compile="0/0"))
    with pytest.warns(MessageWarning, match="the record has no item"):
        receive(explorer, update(selection=["src:0#1"]))
