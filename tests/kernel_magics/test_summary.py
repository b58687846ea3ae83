"""The summary says what a real record holds, and escapes what a stranger's record holds."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
import torch

from compiler_core import CompileWarning
from compiler_core.api import compile as api
from compiler_core.api.accuracy import check_accuracy
from compiler_core.api.measure import measure
from compiler_core.records import Record, Tried, Tuning
from kernel_magics.display import summary


def toy(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


@pytest.fixture(scope="module")
def record() -> Record:
    with api.record("the toy") as record:
        compiled = api.compile(toy)
        for size in (10, 20):
            a = torch.linspace(-1, 1, size, requires_grad=True)
            compiled(a, torch.ones(size)).sum().backward()
    return record


def test_headline_counts(record: Record) -> None:
    headline = summary.text(record).splitlines()[0]
    kernels = sum(k.language != "extern" for c in record.compiles for k in c.kernels)
    assert headline.startswith("Cutaway of the toy: 2 frames, 4 graphs, 1 graph break, 2 recompiles, ")
    assert f"{kernels} kernels; compiled in " in headline


def test_says_each_stage(record: Record) -> None:
    text = summary.text(record)
    root = toy.__code__.co_firstlineno
    assert f"toy, test_summary.py line {root}" in text
    assert "0/0 compiled by cpp in " in text
    assert "saved for the backward: " in text
    assert "forward " in text
    assert "C++ kernel" in text
    assert f"graph break at line {root + 2} in toy: data-dependent branch" in text
    assert "if b.sum() < 0:" in text
    assert "not reached" in text


def test_names_the_guard_that_failed(record: Record) -> None:
    cause = record.frames[0].compiles[1].cause
    assert cause is not None
    assert f"recompile of 0/0: {cause.source} was expected to be {cause.expected} and is {cause.got}" in summary.text(
        record
    )


def test_explanation_lists_graphs_breaks_and_guards(record: Record) -> None:
    lines = summary.explanation(record).splitlines()
    assert "  graph 0/0: 5 operations" in lines
    assert sum(line.startswith("  graph break at") for line in lines) == 2
    guards = [g for c in record.compiles for g in c.guards]
    assert sum(line.startswith("  guard ") for line in lines) == len(guards)


def test_explanation_says_what_is_kept_and_what_that_would_cost_to_drop() -> None:
    weight = torch.randn(64, 64, requires_grad=True)
    with api.record() as made:
        api.compile(lambda x: (x @ weight).exp().sin(), backend="aot_eager", strict=True)(torch.randn(128, 64))
    text = summary.explanation(made)
    assert "  saved for the backward: 2 values, 64 KiB (the default way: " in text
    assert "    mm: a matrix product, convolution or attention, expensive to compute again (32,768 bytes)" in text
    assert "; dropping it would cost " in text
    assert "an input, in memory already" in text


def test_what_failed_comes_first() -> None:
    def broken(gm: torch.fx.GraphModule, examples: object) -> Any:
        raise ZeroDivisionError("by design")

    def program(x: torch.Tensor) -> torch.Tensor:
        print(end="")
        return x.sin()

    with api.record() as made:
        compiled = api.compile(program, backend=broken, dynamic=False)
        with pytest.warns(CompileWarning, match="by design"):
            compiled(torch.ones(3)), compiled(torch.ones(4))
    line = program.__code__.co_firstlineno + 1
    for text in (summary.text(made), summary.explanation(made)):
        head, failure, source, meaning, *_ = text.splitlines()
        assert head.startswith("Cutaway: 1 failure, ")
        assert failure == f"  FAILURE at test_summary.py line {line}: failed in backend: ZeroDivisionError: by design"
        assert source == '    print(end="")'
        assert meaning.endswith("the results are right, but it is not compiled.")
        assert text.count("FAILURE") == 1


def test_time_counts_nested_and_overlapping_steps_once() -> None:
    made = Record()
    compile_ = made.compile(made.frame("f", "f.py", 1, "root"))
    for start, end in ((0, 10), (2, 6), (8, 12), (20, 25)):
        with compile_.step("capture") as event:
            pass
        event.start, event.end = start * 10**9, end * 10**9
    assert summary.seconds(compile_) == 17


def test_html_has_no_markup_of_the_records() -> None:
    evil = '<script>alert("x")</script><img src=x onerror=alert(1)>'
    made = Record(title=evil, notes=[evil])
    frame = made.frame(evil, evil, 1, "root")
    frame.skipped = evil
    made.compile(frame).fail("joint", evil)
    seen: set[str] = set()

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            seen.add(tag)
            assert [name for name, _ in attrs] in ([], ["style"])

    Tags().feed(summary.html(made))
    assert seen <= {"div", "strong"}


def test_empty_record() -> None:
    assert summary.text(Record()).startswith("Cutaway: 0 frames, 0 graphs")
    assert summary.html(Record())


def test_says_what_was_measured() -> None:
    with api.record("measured") as made:
        api.compile(lambda x: (x.sin() @ x).sum(), tune=True, mode="reduce-overhead")(torch.randn(64, 64))
    before = summary.text(made)
    assert "kernels take" not in before
    measure(made)
    check_accuracy(made)
    text = summary.text(made)
    assert re.search(r"kernels take [\d.,]+ us on cpu; the dearest: \S+ [\d.,]+ us \(\d+%\)", text)
    assert re.search(r"beside float64, 3 values; the least exact: \w+ \S+ \(eager PyTorch: \S+\)", text)
    assert "nothing tuned in the forward: C++ kernels have no block sizes to choose" in text
    assert "no CUDA graph of the forward: CUDA graphs are of CUDA tensors only" in text
    compile_ = made.compiles[0]
    compile_.tunings = [
        Tuning("forward", "sm_90", tried=[Tried("f", "a", 3000.0), Tried("f", "b", 2000.0, chosen=True)])
    ]
    assert "tuned f: b, 2.0 us, the usual way 3.0 us; 2 ways tried" in summary.text(made)
