"""The report's page, `cutaway show` and a cell's summary say the same: numbers, lines, causes and advice."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from compiler_core.tools.questions.counts import count
from kernel_magics.command.text import record_text
from kernel_magics.display import summary
from kernel_magics.display.report import write_report
from tests.faults.costs import REPEATED
from tests.faults.from_logs import OF_ALL
from tests.faults.harness import Engine, run
from tests.sampling import sample
from tests.ui.drive import expect_value, open_report

SCRIPTS = {fault.title: fault.script for fault in [*OF_ALL, *REPEATED]}
ENGINES: dict[str, Engine] = {
    "the nearest of several compiles is not the newest": "torch",
    "a value that a graph break leaves": "core",
    "a learning rate that a scheduler changes": "torch",
    "masks that are kept by length": "core",
    "weights that are loaded in the function": "torch",
    "layers of one class": "core",
    "a module of PyTorch that is compiled itself": "torch",
    "a retry with a smaller step": "core",
    "any over a generator": "torch",
    "a repair of values by a helper in a dataclass": "core",
    "a loss that is kept as a number, with nothing after it": "torch",
}
COUNTED = ("graph", "graph break", "expected break", "recompile", "expected recompile", "kernel", "failure")


@pytest.mark.parametrize("title", sample(ENGINES, 3))
def test_all_say_the_same(title: str, browser: Browser, tmp_path: Path) -> None:
    record = run(SCRIPTS[title], title, ENGINES[title]).record
    record.find_problems(slow_compile_s=0.01)
    assert record.problems
    listed, outline = record_text(record, count(record)), summary.text(record)
    with open_report(browser, write_report(record, tmp_path / "report.html")) as page:
        root = page.locator(".cutaway").first
        bar, overview = root.locator(".bar .count"), root.get_by_label("Overview", exact=True)
        expect(bar.first).to_be_visible()
        assert numbers(listed) == numbers(outline)
        expect_value(lambda: numbers_of_bar(bar.all_inner_texts()), numbers(listed))
        first = record.problems[0]
        kind = f"expected {first.kind.removeprefix('graph ')}" if first.grade == "expected" else first.kind
        bar.filter(has_text=re.compile(rf"^\d+ {kind}s?$")).click()
        for at, problem in enumerate(record.problems):
            if at:
                overview.locator("table button.link").nth(at).click()
            parts = [plain(text) for text in (problem.cause, problem.advice, problem.checked)]
            assert [part for part in parts if part not in plain(listed)] == []
            parts.append(plain(problem.cost))
            expect_value(lambda parts=parts: [part for part in parts if part not in blocks_of(overview)], [])  # type: ignore[misc]
            assert f"{problem.lineno}: {problem.title.partition(': ')[2] or problem.title}" in listed


def blocks_of(overview: Locator) -> str:
    return plain(" ".join(overview.locator(".block").all_inner_texts()))


def plain(text: str) -> str:
    """Returns a text without the marks of code and the breaks of lines."""
    return re.sub(r"\s+", " ", text.replace("`", "")).strip()


def numbers(text: str) -> dict[str, int]:
    """Returns the numbers of graphs, graph breaks, recompiles and kernels that the first line of a text has."""
    found: Counter[str] = Counter()
    line = text.partition("\n")[0].rpartition("; compiled in ")[0].partition(": ")[2]
    for number, name, expected in re.findall(r"(\d+) ([a-z ]+?)s?(?: \((?:and )?(\d+) expected\))?(?:,|$)", line):
        found[name] += int(number)
        found[f"expected {name.removeprefix('graph ')}"] += int(expected or 0)
    return {name: found[name] for name in COUNTED if found[name]}


def numbers_of_bar(counts: list[str]) -> dict[str, int]:
    """Returns the same of the page's bar."""
    found = {name.removesuffix("s"): int(number) for number, _, name in (text.partition(" ") for text in counts)}
    return {name: found[name] for name in COUNTED if name in found}
