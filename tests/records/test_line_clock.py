"""The clock that divides the time of a stage by line, and the line times that a compile records."""

from __future__ import annotations

from collections.abc import Iterator

import torch

import compiler_core
from compiler_core.records import LineClock, LineTime, Record


def ticks() -> Iterator[int]:
    now = 0
    while True:
        yield now
        now += 10


def test_time_belongs_to_the_line_at_work() -> None:
    times = ticks()
    clock = LineClock(lambda: next(times))
    found = [LineTime("capture", "src:0#1", 5)]
    for line in ("src:0#1", "src:0#2", "src:0#2", None, "src:0#1"):
        clock.switch(line)
    clock.add_to(found, "capture")
    assert found == [
        LineTime("capture", "src:0#1", 25),
        LineTime("capture", "src:0#2", 10),
        LineTime("capture", None, 10),
    ]
    clock.add_to(found, "capture")
    assert sum(each.ns for each in found) == 45


def lines_of(record: Record, stage: str) -> set[str]:
    times = [each for compile_ in record.compiles for each in compile_.line_times if each.stage == stage]
    return {record.text(each.line).strip() for each in times if each.line is not None}


def inner(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


def outer(x: torch.Tensor) -> torch.Tensor:
    y = inner(x)
    return y.cos() * 2


def test_a_compile_has_the_time_of_each_line_in_capture_and_tracing() -> None:
    with compiler_core.record() as record:
        compiler_core.compile(outer, backend="aot_eager")(torch.ones(3, requires_grad=True))
    assert lines_of(record, "capture") >= {"y = inner(x)", "return x.sin()", "return y.cos() * 2"}
    assert lines_of(record, "joint") == {"return x.sin()", "return y.cos() * 2"}
    (compile_,) = record.compiles
    steps = {event.name: event.end - event.start for event in compile_.events if event.end is not None}
    for stage, step in (("capture", "capture"), ("joint", "trace")):
        assert 0 < sum(each.ns for each in compile_.line_times if each.stage == stage) <= 1.01 * steps[step]
