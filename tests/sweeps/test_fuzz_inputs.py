"""Damaged records, logs and messages: a short run of the fuzzer, and each rule here and in the browser."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.records import Record, RecordError
from compiler_core.records.steps import StepCall, StepCode, Steps
from compiler_core.tools import recording
from kernel_magics.display.messages import check_message
from tests.sweeps import fuzz_inputs

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")

COUNTS = {"records": 12, "logs": 6, "messages": 300}


@pytest.mark.parametrize("kind", COUNTS)
@pytest.mark.filterwarnings("ignore")
def test_damaged_input_loads_or_is_refused(kind: str) -> None:
    found = fuzz_inputs.run(kind, COUNTS[kind], seed=0)
    assert found.wrong == []
    assert found.taken
    assert found.refused


def plain_record() -> dict[str, Any]:
    record = Record(title="a cell")
    record.source("cell.py", 1, ["y = x.cos()", "z = y"])
    compile_ = record.compile(record.frame("f", "cell.py", 1, "root"))
    compile_.artifact("kernel", "kernel.cpp", "cpp", "// 1")
    calls = [StepCall(0, None), StepCall(0, 0)]
    steps = Steps(codes=[StepCode("f", "cell.py", ["NOP"], [1])], calls=calls, values=["x"])
    steps.call, steps.at, steps.pops, steps.pushes = [0, 1], [0, 0], [0, 1], [[0], []]
    compile_.steps.append(steps)
    plain: dict[str, Any] = json.loads(record.to_json())
    plain["frames"][0]["compiles"][0]["artifacts"][0]["graph"] = {
        "nodes": [{"key": "a", "op": "call", "target": "t"}, {"key": "b", "op": "call", "target": "t"}],
        "edges": [["a", "b"]],
    }
    return plain


def the_compile(plain: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = plain["frames"][0]["compiles"][0]
    return result


def the_steps(plain: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = the_compile(plain)["steps"][0]
    return result


def set_id(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda plain: the_compile(plain).update(id=name)


def deep(plain: dict[str, Any]) -> None:
    the_steps(plain)["calls"] = [{"code": 0, "caller": None if i == 0 else i - 1} for i in range(1001)]


Change = Callable[[dict[str, Any]], object]
BROKEN: dict[str, tuple[Change, str]] = {
    "an id that leads up": (set_id(".."), "not the id of a compile"),
    "an id that leads up at its end": (set_id("0/.."), "not the id of a compile"),
    "an id that leads to the root": (set_id("/etc"), "not the id of a compile"),
    "an empty id": (set_id(""), "not the id of a compile"),
    "a long id": (set_id("0" * 100), "not the id of a compile"),
    "an id with a line's end": (set_id("0/0\n"), "not the id of a compile"),
    "a compile of another frame": (lambda r: the_compile(r).update(frame=7), "the compile is of another frame"),
    "two frames of one id": (lambda r: r["frames"].append(r["frames"][0]), "two frames have one id"),
    "two compiles of one id": (lambda r: r["frames"][0]["compiles"].append(the_compile(r)), "two compiles have one id"),
    "two texts of one id": (lambda r: r["sources"].append(r["sources"][0]), "two artifacts have one id"),
    "two items of one key": (lambda r: r["sources"][0]["spans"].append(r["sources"][0]["spans"][0]), "two items have"),
    "lines beyond the text": (lambda r: r["sources"][0]["spans"][0].update(last=2**50), "no lines of the text"),
    "line 0": (lambda r: r["sources"][0]["spans"][0].update(first=0), "no lines of the text"),
    "lines the wrong way round": (lambda r: r["sources"][0]["spans"][0].update(first=2), "no lines of the text"),
    "an edge to no node": (
        lambda r: the_compile(r)["artifacts"][0]["graph"]["edges"].append(["a", "c"]),
        "not from one",
    ),
    "half an edge": (lambda r: the_compile(r)["artifacts"][0]["graph"]["edges"].append(["a"]), "not from one"),
    "two nodes of one key": (
        lambda r: the_compile(r)["artifacts"][0]["graph"]["nodes"][0].update(key="b"),
        "two nodes have one key",
    ),
    "steps that pop less than nothing": (lambda r: the_steps(r)["pops"].__setitem__(0, -1), "steps are inconsistent"),
    "steps of no value": (lambda r: the_steps(r)["pushes"].__setitem__(0, [9]), "steps are inconsistent"),
    "calls without end": (deep, "steps are inconsistent"),
    "code without instructions": (
        lambda r: (
            the_steps(r)["codes"].append({"name": "f", "filename": "", "instructions": [], "lines": []})
            or the_steps(r)["calls"][1].update(code=1)
        ),
        "steps are inconsistent",
    ),
    "a number beyond the browser's": (lambda r: r["frames"][0].update(line=2**53), "greater than 9007199254740991"),
    "a number beyond a float's": (lambda r: the_compile(r).update(guards_ns=10**400), "a finite number"),
}


@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_rule_is_named_and_the_browser_refuses_too(change: Change, message: str) -> None:
    plain = plain_record()
    change(plain)
    text = json.dumps(plain)
    with pytest.raises(RecordError, match=message):
        Record.from_json(text)
    assert fuzz_inputs.differing([("it", text.encode(), False)]) == []


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999", "9" * 5000])
def test_numbers_are_finite(text: str) -> None:
    whole = json.dumps(plain_record()).replace('"guards_ns": null', f'"guards_ns": {text}')
    assert text in whole
    with pytest.raises(RecordError):
        Record.from_json(whole)
    assert fuzz_inputs.differing([("it", whole.encode(), False)]) == []


def test_valid_records_are_accepted_by_both() -> None:
    plain = plain_record()
    the_compile(plain)["id"] = "!0/0_1/[2]"
    the_steps(plain)["pops"][1] = 2**50  # more than the stack has: it is then empty
    plain["frames"][0]["line"] = 2.0
    del plain["notes"], the_compile(plain)["edges"]  # an earlier version may not have written these
    record = Record.from_json(json.dumps(plain))
    assert record.compiles[0].replay().stack(1, 1) == []
    assert (record.frames[0].line, record.notes) == (2, [])
    assert fuzz_inputs.differing([("it", json.dumps(plain).encode(), True)]) == []


@pytest.mark.parametrize("where", ["a field's name", "a value", "a map's key", "the version"])
def test_an_error_does_not_echo_megabytes(where: str) -> None:
    plain, long = plain_record(), "x" * 3_000_000
    {
        "a field's name": lambda: plain["frames"][0].update({long: 1}),
        "a value": lambda: plain["frames"][0].update(kind=long),
        "a map's key": lambda: plain["versions"].update({long: 1}),
        "the version": lambda: plain.update(schema_version=long),
    }[where]()
    with pytest.raises(RecordError) as caught:
        Record.from_json(json.dumps(plain))
    assert len(str(caught.value)) < 400


def test_a_lone_surrogate_can_be_saved(tmp_path: Path) -> None:
    plain = plain_record()
    plain["title"] = the_compile(plain)["artifacts"][0]["text"] = "\ud800"
    plain["notes"] = ["\ud800"]
    record = Record.from_json(json.dumps(plain))
    fuzz_inputs.saved(record)
    fuzz_inputs.used(record, is_saved=False)


def test_a_binary_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(RecordError, match="not UTF-8"):
        Record.load(tmp_path / "a.json")


def test_records_of_the_compiler_satisfy_the_rules() -> None:
    with recording.record("ours") as record:
        compiled = compiler_core.compile(lambda x: (x @ x).softmax(-1).sum(), steps=True, dynamic=True)
        compiled(torch.ones(3, 3, requires_grad=True)).backward()
    assert Record.from_json(record.to_json()) == record


@pytest.mark.parametrize("message", fuzz_inputs.MESSAGES, ids=str)
def test_the_fuzzer_changes_messages_that_are_taken(message: Any) -> None:
    check_message({"content": {"data": message}}, Record.from_json(json.dumps(fuzz_inputs.records()[0])))


def test_the_fuzzer_finds_wrong_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that accepts everything, or raises other errors, is detected."""
    found = fuzz_inputs.Findings()
    assert not fuzz_inputs.check_case(lambda: json.loads("{"), RecordError, found, "it")
    assert "JSONDecodeError" in found.wrong[0]
    long = fuzz_inputs.Findings()

    def refuse() -> None:
        raise RecordError("x" * 10_000)

    fuzz_inputs.check_case(refuse, RecordError, long, "it")
    assert "an error of 10,000 characters" in long.wrong[0]
    text = json.dumps(copy.deepcopy(plain_record())).encode()
    if fuzz_inputs.browser() is not None:
        assert fuzz_inputs.differing([("it", text, False)]) == ["it: refused here, in the browser taken"]
