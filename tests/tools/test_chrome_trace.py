"""Tests of the time of compiling in Chrome's trace format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import compiler_core
from compiler_core.records import Record
from kernel_magics.display import export


def test_each_step_is_an_event_of_its_compile(tmp_path: Path) -> None:
    with compiler_core.record("two sizes") as record:
        compiled = compiler_core.compile(lambda x: x.sin() + 1, dynamic=False)
        compiled(torch.ones(3))
        compiled(torch.ones(4))
    trace = json.loads(compiler_core.save_trace(record, tmp_path / "a.trace.json").read_text())
    names = [event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"]
    assert names[0] == "Cutaway: two sizes"
    assert [name.split(",")[0] for name in names[1:]] == ["0/0 <lambda>", "0/1 <lambda>"]
    for track, compile_ in enumerate(record.compiles, 1):
        steps = [event for event in trace["traceEvents"] if event["tid"] == track and event["ph"] == "X"]
        want = [(event.name, event.stage, event.start / 1000) for event in compile_.events]
        assert [(step["name"], step["cat"], step["ts"]) for step in steps] == want
        assert sum(step["dur"] for step in steps if step["name"] == "capture") > 0


def test_a_step_that_did_not_finish_only_begins(tmp_path: Path) -> None:
    record = Record()
    compile_ = record.compile(record.frame("f", "a.py", 1, "root"))
    with pytest.raises(ZeroDivisionError), compile_.step("joint"):
        1 / 0
    compile_.events.append(compile_.events[0].__class__("lower", "forward", 5_000))
    events = json.loads(export.save(record, str(tmp_path / "a.trace.json")).read_text())["traceEvents"]
    assert [(event["ph"], event["name"]) for event in events[2:]] == [("X", "joint"), ("B", "forward")]
    assert events[2]["args"]["outcome"] == "failed"
    assert events[3]["ts"] == 5
