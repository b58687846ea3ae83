"""Tests of the summary: the content for a real record, and the escaping for an untrusted one."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from typing import Any

import pytest
import torch

from compiler_core import CompileWarning, RefusalWarning
from compiler_core.api import compile as api
from compiler_core.backends import registry
from compiler_core.records import Record, Tuning, TuningTrial
from compiler_core.tools import recording
from compiler_core.tools.accuracy import check_accuracy
from compiler_core.tools.measure import measure
from kernel_magics.display import static_html, summary
from kernel_magics.display.explanation import explanation
from kernel_magics.display.pictures.lines_and_kernels import lines_and_kernels


def toy(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


@pytest.fixture(scope="module")
def record() -> Record:
    with recording.record("the toy") as record:
        compiled = api.compile(toy)
        for size in (10, 20):
            a = torch.linspace(-1, 1, size, requires_grad=True)
            compiled(a, torch.ones(size)).sum().backward()
    return record


def test_headline_counts(record: Record) -> None:
    headline = summary.text(record).splitlines()[0]
    kernels = sum(k.language != "extern" for c in record.compiles for k in c.kernels)
    assert headline.startswith("Cutaway of the toy: 2 frames, 4 graphs, 1 graph break, 0 recompiles (2 expected), ")
    assert f"{kernels} kernels; compiled in " in headline


def test_says_what_holds_the_memory() -> None:
    def pairs(x: torch.Tensor) -> torch.Tensor:
        return (x @ x.t()).softmax(-1)

    with recording.record() as record:
        api.compile(pairs)(torch.ones(600, 4))
    *_, first, of_products, of_result, inputs = summary.text(record).splitlines()
    assert re.match(r"  memory: at its peak, step \d of the forward of 0/0, .* pairs holds 2\.747 MiB:$", first)
    line = f"{__file__}:{pairs.__code__.co_firstlineno + 1}: return (x @ x.t()).softmax(-1)"
    assert of_products == f"    1.373 MiB: an intermediate value of the forward, made at {line}"
    assert of_result == f"    1.373 MiB: a result, made at {line}"
    assert inputs == "    besides, its inputs take 9.375 KiB: x 9.375 KiB"


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
    why = "The size of a in dimension 0 is 20; compile 0/0 was made for 10."
    assert f"recompile: {why}  Also different: the size of b is 20, not 10." in summary.text(record)
    problem = next(each for each in record.problems if each.kind == "recompile")
    line = (record.line_text(problem.line) or "").strip()
    assert f"line {problem.lineno}: {line}\n        {problem.advice}" in summary.text(record)


def test_a_refusal_is_no_failure() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        doubled = x * 2
        x.add_(1)
        return doubled + y

    both = torch.ones(8)
    with recording.record() as result, pytest.warns(RefusalWarning):
        api.compile(program, backend="aot_eager")(both[:6], both[2:])
    line = program.__code__.co_firstlineno + 2
    head, refusal, source, *_ = summary.text(result).splitlines()
    assert head.startswith("Cutaway: 1 refusal, ")
    assert refusal.startswith(f"  REFUSAL at test_summary.py line {line}: not compiled, by joint: the graph writes to")
    assert source == "    x.add_(1)"


def test_what_failed_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Any:
        raise ZeroDivisionError("by design")

    monkeypatch.setitem(registry._EXTERNAL, "broken", broken)

    def program(x: torch.Tensor) -> torch.Tensor:
        print(end="")
        return x.sin()

    with recording.record() as result:
        compiled = api.compile(program, backend="broken", dynamic=False)
        with pytest.warns(CompileWarning, match="by design"):
            compiled(torch.ones(3)), compiled(torch.ones(4))
    line = program.__code__.co_firstlineno + 1
    text = summary.text(result)
    head, failure, source, meaning, *_ = text.splitlines()
    assert head.startswith("Cutaway: 1 failure, ")
    assert failure == f"  FAILURE at test_summary.py line {line}: failed in backend: ZeroDivisionError: by design"
    assert source == '    print(end="")'
    assert meaning.endswith("the results are right, but it is not compiled.")
    assert text.count("FAILURE") == 1
    head, failure, cause, meaning, advice, *_ = explanation(result).splitlines()
    assert head.startswith("Cutaway: 1 failure, ")
    assert failure.startswith(f'  blocking: failed in backend, test_summary.py line {line} `print(end="")`.')
    assert (cause, meaning.strip()) == ("    ZeroDivisionError: by design", result.problems[0].cause.splitlines()[1])
    assert advice.startswith("    What to do: Report it with the record")


def test_time_counts_nested_and_overlapping_steps_once() -> None:
    result = Record()
    compile_ = result.compile(result.frame("f", "f.py", 1, "root"))
    for start, end in ((0, 10), (2, 6), (8, 12), (20, 25)):
        with compile_.step("capture") as event:
            pass
        event.start, event.end = start * 10**9, end * 10**9
    assert compile_.duration_ns == 17_000_000_000


def test_html_has_no_markup_of_the_records() -> None:
    evil = '<script>alert("x")</script><img src=x onerror=alert(1)>'
    result = Record(title=evil, notes=[evil])
    frame = result.frame(evil, evil, 1, "root")
    frame.skipped = evil
    result.compile(frame).fail("joint", evil)
    seen: set[str] = set()

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            seen.add(tag)
            assert [name for name, _ in attrs] in ([], ["style"])

    Tags().feed(static_html.html(result))
    assert seen <= {"div", "strong", "b", "br", "span", "details", "summary", *"table thead tbody tr th td".split()}


def test_the_picture_connects_lines_with_the_kernels_that_compute_them(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = ElementTree.fromstring(lines_and_kernels(record))
    texts = ["".join(text.itertext()) for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    curves = list(picture.iter("{http://www.w3.org/2000/svg}path"))
    assert any("forward_0" in text for text in texts)
    assert any(".py:" in text for text in texts)
    assert len(curves) >= 2
    assert lines_and_kernels(record) in static_html.html(record)
    monkeypatch.setitem(record.labels, next(a.name for a in record.sources if a.name.endswith(".py")), "<&>")
    assert "<&>" not in lines_and_kernels(record)
    assert len(lines_and_kernels(record)) < 8_000


def test_empty_record() -> None:
    assert summary.text(Record()).startswith("Cutaway: 0 frames, 0 graphs")
    assert static_html.html(Record())


def test_says_what_was_measured() -> None:
    with recording.record("measured") as result:
        api.compile(lambda x: (x.sin() @ x).sum(), tune=True, mode="reduce-overhead")(torch.randn(64, 64))
    before = summary.text(result)
    assert "kernels take" not in before
    measure(result)
    check_accuracy(result)
    text = summary.text(result)
    assert re.search(r"kernels take [\d.,]+ us on cpu; the slowest: \S+ [\d.,]+ us \(\d+%\)", text)
    assert re.search(
        r"3 values compared with float64, on random inputs; the largest error: \w+ \S+ \(eager PyTorch: \S+\)", text
    )
    assert "no kernel tuned in the forward: C++ kernels have no block sizes to choose" in text
    assert "no CUDA graph of the forward: CUDA graphs need CUDA tensors" in text
    compile_ = result.compiles[0]
    compile_.tunings = [
        Tuning("forward", "sm_90", tried=[TuningTrial("f", "a", 3000.0), TuningTrial("f", "b", 2000.0, chosen=True)])
    ]
    assert "tuned f: b, 2.0 us, untuned 3.0 us; 2 configurations tried" in summary.text(result)


@torch.no_grad()
def decorated(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


def test_the_users_line_comes_before_the_function_around_it() -> None:
    with recording.record() as record:
        api.compile(decorated, backend="eager")(torch.ones(3))
    line = decorated.__wrapped__.__code__.co_firstlineno + 2  # type: ignore[attr-defined]
    assert f"\n  decorated, test_summary.py line {line}\n" in summary.text(record)
    (frame,) = record.frames
    assert frame.name == "decorated"
