"""Tests of the verdict of a record: its line, and records of earlier versions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compiler_core.records import Problem, Record, Timing, Timings
from compiler_core.tools.questions.verdict import find_pays_off, verdict
from kernel_magics.display.static_html import html
from kernel_magics.display.summary import text

EAGER = Timing("eager", 4e-3, 4e-3, 4e-3, 20, 0.0, 10_000)


def compiled(**fields: Any) -> Timing:
    return Timing("compiled", 2e-3, 2e-3, 2e-3, 20, 8.0, 8_000, **fields)


@pytest.mark.parametrize(
    ("row", "line", "change"),
    [
        (
            compiled(speed=2.0, differs=True),
            "Eager 4 ms → compiled 2 ms (2.00x) · compiled in 8 s, pays off after 4,000 calls",
            "faster",
        ),
        (compiled(speed=0.5, differs=True), "Eager 4 ms → compiled 2 ms (0.50x) · compiled in 8 s", "slower"),
        (compiled(speed=2.0), "Eager 4 ms → compiled 2 ms (no difference measured) · compiled in 8 s", "same"),
    ],
)
def test_the_line(row: Timing, line: str, change: str) -> None:
    timings = Timings([EAGER, row])
    if change != "slower":  # its times are made up
        find_pays_off(timings)
    found = verdict(timings, 8_000_000_000, 1)
    assert str(found) == f"{line} · peak memory \N{MINUS SIGN}20% · 1 problem"
    assert found.change == change


def test_what_is_known_before_it_is_timed() -> None:
    assert str(verdict(None, 4_600_000_000, 0)) == "compiled in 4.6 s · 0 problems"
    assert str(verdict(None, 0, 2)) == "2 problems"


def test_a_form_that_failed_leaves_no_claim() -> None:
    found = verdict(Timings([EAGER], {"compiled": "it raises ValueError: no"}), 1_000_000_000, 0)
    assert str(found) == "compiled in 1 s · 0 problems"
    assert found.warnings == ["compiled was not timed: it raises ValueError: no"]


def test_viewers_show_it() -> None:
    record = Record(timings=Timings([EAGER, compiled(speed=2.0, differs=True)]))
    record.find_problems()
    for shown in (text(record), html(record)):
        assert "Eager 4 ms → compiled 2 ms (2.00x)" in shown
    assert Record.from_json(record.to_json()) == record


def test_a_record_of_an_earlier_version_gets_one() -> None:
    record = Record()
    record.problems = [Problem("failure", "blocking", "failed", "", "", "")]
    plain = json.loads(record.to_json())
    for name in ("verdict", "timings"):
        del plain[name]
    assert str(Record.from_json(json.dumps(plain)).verdict) == "1 problem"
