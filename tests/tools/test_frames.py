"""Tests of the frames that ran in a compiled call: what each became, how often, and who called it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core import instruments
from compiler_core.errors import UsageError
from compiler_core.records import Record
from compiler_core.records.record import SeenFrame
from compiler_core.tools.frames import frame_watch, stock_frame_watch
from compiler_core.tools.frames.frame_watch import FrameWatch
from compiler_core.tools.frames.report import FrameReport
from compiler_core.tools.stock.hooks import torch_internals

X = torch.ones(3)


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def breaks(x: torch.Tensor) -> torch.Tensor:
    x = doubled(x) + doubled(x)
    compiler_core.graph_break("here")
    return doubled(x)


def power(x: torch.Tensor, n: int) -> torch.Tensor:
    return x if n == 0 else power(x * 2, n - 1)


def halves(x: torch.Tensor) -> Iterator[torch.Tensor]:
    for _ in range(3):
        yield doubled(x)


def sums(x: torch.Tensor) -> torch.Tensor:
    return sum(halves(x), x)


class Reader:
    def __iter__(self) -> Iterator[int]:
        yield 1
        yield 2


def read() -> int:
    return len(list(Reader()))


read_apart = compiler_core.disable(read, recursive=False)


def reads(x: torch.Tensor) -> torch.Tensor:
    size: int = read_apart()
    return x + size


def encodes(x: torch.Tensor) -> torch.Tensor:
    text = json.dumps([1, 2], indent=1)
    return x + len(text)


def suspended() -> Iterator[None]:
    """Stays suspended in a try block when it is dropped, after which a graph cannot end."""
    try:
        yield
    finally:
        len("")


def loops(x: torch.Tensor) -> torch.Tensor:
    next(suspended())
    for _ in range(3):
        compiler_core.graph_break()
        x = doubled(x)
    return x


def outer(x: torch.Tensor) -> torch.Tensor:
    return loops(x) + 1


def kept_plain(x: torch.Tensor) -> torch.Tensor:
    return doubled(x)


apart = compiler_core.disable(kept_plain)


def calls_apart(x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = apart(x + 1)
    return result + 1


def seen(fn: Any, *args: Any) -> list[tuple[str, int, str, str | None, str | None]]:
    """Returns name, calls, fate, compile and the caller's name of each frame."""
    frames = compiler_core.frames(fn, *args).frames
    callers = [None if f.caller is None else frames[f.caller].name for f in frames]
    return [(f.name, f.calls, f.fate, f.compile, caller) for f, caller in zip(frames, callers, strict=True)]


def test_a_graph_break_and_inlined_helpers() -> None:
    frames = compiler_core.frames(breaks, X).frames
    assert seen(breaks, X)[:2] == [("breaks", 1, "compiled", "0/0", None), ("doubled", 2, "inlined", "0/0", "breaks")]
    rest = next(f for f in frames if f.name == "breaks.<resumed>")
    assert (rest.fate, rest.compile, rest.reason) == ("compiled", "1/0", "the rest after a graph break of 0/0")
    assert (rest.filename, rest.line) == (__file__, breaks.__code__.co_firstlineno + 2)
    (after,) = [f for f in frames if f.name == "doubled" and f.compile == "1/0"]
    assert (after.calls, after.line) == (1, doubled.__code__.co_firstlineno)
    graphs = [f for f in frames if f.reason == frame_watch.RUNS_GRAPH and f.name.startswith("graph_")]
    assert [f.calls for f in graphs] == [1, 1]


def test_a_recursive_function_is_below_itself() -> None:
    found = [row for row in seen(power, X, 2) if row[0] == "power"]
    assert found == [("power", 1, "compiled", "0/0", None), *[("power", 1, "inlined", "0/0", "power")] * 2]


def test_an_inlined_generator() -> None:
    assert seen(sums, X)[:3] == [
        ("sums", 1, "compiled", "0/0", None),
        ("halves", 1, "inlined", "0/0", "sums"),
        ("doubled", 3, "inlined", "0/0", "halves"),
    ]


def test_a_generator_that_runs_is_skipped_and_counted_once() -> None:
    (found,) = [f for f in compiler_core.frames(reads, X).frames if f.name == "Reader.__iter__"]
    assert (found.calls, found.fate, found.reason) == (1, "skipped", "a generator or coroutine")


def test_a_library_call_is_skipped() -> None:
    report = compiler_core.frames(encodes, X)
    (dumps,) = [f for f in report.frames if f.name == "dumps"]
    assert (dumps.fate, dumps.reason, dumps.calls) == ("skipped", "part of the standard library", 1)
    below = [f for f in report.frames if f.caller == report.frames.index(dumps)]
    assert {f.reason for f in below} == {"part of the standard library"}
    (line,) = [line for line in report.tree().splitlines() if line.strip().startswith("dumps")]
    assert line.startswith("  dumps  json/__init__.py:")
    assert " calls inside)" in line
    assert "JSONEncoder.encode" in report.table()
    assert "JSONEncoder.encode" not in report.tree()


def test_plain_python_has_its_reason() -> None:
    found = compiler_core.frames(outer, X).frames
    (plain,) = [f for f in found if f.name == "loops" and f.fate == "plain"]
    assert plain.reason == "asked for: graph_break(): the frame runs as plain Python"
    assert [(f.calls, f.fate) for f in found if f.name == "doubled" and f.fate == "compiled"] == [(3, "compiled")]


def test_disabled_functions_are_not_shown_to_the_hook() -> None:
    report = compiler_core.frames(calls_apart, X)
    assert "contextlib" not in str(report)
    found = [f for f in report.frames if f.name in ("kept_plain", "doubled")]
    assert [(f.name, f.fate, f.reason) for f in found] == [
        (n, "skipped", frame_watch.NOT_ASKED) for n in ("kept_plain", "doubled")
    ]


def test_later_calls_are_counted() -> None:
    compiled = compiler_core.compile(sums, backend="eager", steps=True)
    with compiler_core.record() as record, FrameWatch() as watch:
        compiled(X)
        compiled(X)
    watch.write(record)
    assert [(f.name, f.calls) for f in record.seen[:3]] == [("sums", 2), ("halves", 2), ("doubled", 6)]
    assert Record.from_json(record.to_json()).seen == record.seen


def test_code_that_was_compiled_before() -> None:
    compiled = compiler_core.compile(doubled, backend="eager")
    compiled(X)
    with compiler_core.record() as record, FrameWatch() as watch:
        compiled(X)
    watch.write(record)
    assert [f.name for f in record.seen] == ["doubled", "graph_0_0", "forward"]
    assert record.seen[0].outcome == "compiled: before this call, as 0/0 of another record"


@torch.compiler.disable  # type: ignore[untyped-decorator]
def kept_plain_by_torch(x: torch.Tensor) -> torch.Tensor:
    return doubled(x)


silu = torch.nn.SiLU()


def stocks(x: torch.Tensor) -> torch.Tensor:
    x = doubled(silu(x))
    return breaks_in_a_loop(kept_plain_by_torch(doubled(x)))


def breaks_in_a_loop(x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        torch._dynamo.graph_break()
        x = x + 1
    return x


def test_frames_of_stock() -> None:
    torch._dynamo.reset()
    frames = compiler_core.frames(stocks, X, engine="torch").frames
    found: dict[tuple[str, str], list[SeenFrame]] = {}
    for frame in frames:
        found.setdefault((frame.name, frame.fate), []).append(frame)
    (root,) = found["stocks", "compiled"]
    assert (root.compile, root.calls, root.caller) == ("0/0", 1, None)
    assert found["doubled", "inlined"][0].compile == "0/0"
    assert found["forward", "inlined"][0].reason == "Dynamo inlines code of torch/nn/modules/activation.py"
    assert found["kept_plain_by_torch", "skipped"][0].reason == stock_frame_watch.NOT_ASKED
    (rest,) = [f for f in frames if f.reason == "the rest after a graph break of 0/0"]
    assert rest.fate == "compiled"
    (given_up,) = found["breaks_in_a_loop", "plain"]
    assert given_up.reason.startswith("Dynamo cannot go on after its graph break: Call to `torch._dynamo.graph")
    assert not [f for f in frames if "compiler_core" in f.filename or f"torch{os.sep}_dynamo" in f.filename]


def test_code_that_stock_compiled_or_gave_up_before() -> None:
    torch._dynamo.reset()
    compiled: Any = torch.compile(stocks, backend="eager")
    compiled(X)
    with compiler_core.record(engine="torch", frames=True) as record:
        compiled(X)
    outcomes = {f.name: f.outcome for f in record.seen}
    assert outcomes["stocks"] == "compiled: before this call, as an earlier compile of stock torch.compile"
    assert outcomes["breaks_in_a_loop"] == f"skipped: {stock_frame_watch.GIVEN_UP}"
    assert torch_internals.frame_callback().__call__.__name__ == "__call__"


def test_nothing_is_watched_otherwise() -> None:
    calls: list[str] = []

    def profile(frame: Any, event: str, argument: Any) -> None:
        calls.append(event)

    sys.setprofile(profile)
    try:
        compiler_core.frames(doubled, X)
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(None)
    assert instruments.frame_watch is None
    with pytest.raises(TypeError):
        compiler_core.frames(doubled)
    assert sys.getprofile() is None
    assert instruments.frame_watch is None


def test_one_watch_at_a_time() -> None:
    with FrameWatch(), pytest.raises(UsageError, match="watched already"), FrameWatch():
        pass
    assert instruments.frame_watch is None


def test_many_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_watch, "MAX_NODES", 2)
    record = Record()
    compiled = compiler_core.compile(encodes, backend="eager")
    with FrameWatch() as watch:
        compiled(X)
    watch.write(record)
    assert len(record.seen) == 2
    assert "not among the frames" in record.notes[0]


def test_the_texts() -> None:
    assert str(FrameReport([])) == "no frames: nothing was compiled"
    frames = [
        SeenFrame("f", "/cell", 1, 1, "compiled", "0/0"),
        SeenFrame("loads", "/lib/json/a.py", 7, 2, "skipped", None, "part of x", 0),
        SeenFrame("scan", "/lib/json/b.py", 3, 1, "skipped", None, "part of x", 1),
        SeenFrame("g", "/cell", 4, 3, "inlined", "0/0", "", 0),
        *[SeenFrame(f"h{i}", "/cell", 5, 1, "plain", None, "why", 0) for i in range(70)],
    ]
    report = FrameReport(frames, {"/cell": "In[1]"})
    assert report.rows()[:2] == [("f", "In[1]:1", "1", "compiled as 0/0"), ("g", "In[1]:4", "3", "inlined into 0/0")]
    assert report.table().splitlines()[-1] == "... and 14 more functions"
    assert report.tree().splitlines()[:4] == [
        "f  In[1]:1  compiled as 0/0",
        "  loads x2  json/a.py:7  skipped: part of x (and 1 call inside)",
        "  g x3  In[1]:4  inlined into 0/0",
        "  h0  In[1]:5  plain Python: why",
    ]
