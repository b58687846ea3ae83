"""Tests of packed records, as notebooks and reports hold them."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.records import Record, RecordError, limits, to_plain
from kernel_magics.display import packing
from kernel_magics.display.packing import ENCODING, pack, unpack


@pytest.fixture(scope="module")
def record() -> Record:
    """The record of a small network."""
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    with compiler_core.record("a small network é 🙂") as record:
        compiler_core.compile(net, backend="cpp")(torch.ones(3, 8)).sum().backward()
    return record


def test_a_packed_record_is_a_quarter_of_its_json(record: Record) -> None:
    packed = json.dumps(pack(record))
    assert len(packed) * 4 < len(record.to_json())
    assert unpack(json.loads(packed)) == record


def test_records_of_earlier_versions_are_plain_json(record: Record) -> None:
    assert unpack(json.loads(json.dumps(to_plain(record)))) == record


def test_a_record_of_many_compiles_is_packed_in_parts(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MANY_COMPILES", 1)
    packed = json.loads(json.dumps(pack(record)))
    assert len(packed["details"]) == len(record.compiles)
    assert unpack(packed) == record
    index = json.loads(packing._decompressed(packed["data"], 10**6))
    assert all(line.startswith("src:0#") for line in index["summaries"][0]["lines"])
    assert index["summaries"][0]["nodes"] > 3
    (compile_,) = record.compiles
    lines = index["summaries"][0]["kernel_lines"]
    assert len(lines) == len(compile_.kernels)
    assert all(line in index["summaries"][0]["lines"] for each in lines for line in each)
    assert any(lines)
    assert not packing.DETAILS & index["record"]["frames"][0]["compiles"][0].keys()
    wrong = [
        ({**packed, "details": []}, "details of each compile"),
        ({**packed, "details": None}, "no details"),
        ({**packed, "details": ["*" for _ in packed["details"]]}, "cannot be decompressed"),
        ({**packed, "details": [packing.compressed('{"id": 3}') for _ in packed["details"]]}, "other fields"),
        ({**packed, "data": packing.compressed('{"record": {"frames": [3]}}')}, "no frames and compiles"),
    ]
    for each, message in wrong:
        with pytest.raises(RecordError, match=message):
            unpack(each)
    monkeypatch.setattr(packing, "_MAX_BYTES", len(json.dumps(index)) + 10)
    with pytest.raises(RecordError, match="more than"):
        unpack(packed)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (None, "no schema_version"),
        ({"encoding": "zstd", "data": ""}, "not encoded as gzip"),
        ({"encoding": ENCODING, "data": 3}, "not encoded as gzip"),
        ({"encoding": ENCODING, "data": "*"}, "cannot be decompressed"),
        ({"encoding": ENCODING, "data": encoded(b"{}")}, "cannot be decompressed"),
        ({"encoding": ENCODING, "data": encoded(gzip.compress(b"{}" * 100)[:-9])}, "is truncated"),
        ({"encoding": ENCODING, "data": encoded(gzip.compress(b"\xff"))}, "not UTF-8"),
        ({"encoding": ENCODING, "data": encoded(gzip.compress(b"{}"))}, "no schema_version"),
    ],
)
def test_anything_else_is_refused(packed: Any, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        unpack(packed)


def test_a_text_that_is_too_long_is_not_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert packing._MAX_BYTES == 4 * limits.JSON
    monkeypatch.setattr(packing, "_MAX_BYTES", 1000)
    with pytest.raises(RecordError, match="more than 1,000 bytes"):
        unpack({"encoding": ENCODING, "data": encoded(gzip.compress(b" " * 1001))})
