"""Records of stock torch.compile, in a report: its panes, links from kernels to the user's lines, comparisons."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Page, expect
from torch._inductor.utils import fresh_cache

from compiler_core.api import compile as api
from compiler_core.records import Record
from compiler_core.tools import recording
from compiler_core.tools.questions.compare import compare
from kernel_magics.display.report import write_report
from tests.tools.stock.stock_ranks import Net
from tests.ui.drive import Explorer

Screenshot = Callable[[Page, str], None]

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")


def function(x: torch.Tensor) -> torch.Tensor:
    y = x.cos() + 0
    if y.sum() > 0:
        return y.exp()
    return y.sin()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch._dynamo.reset()
    x = torch.ones(8, requires_grad=True)
    with fresh_cache(), recording.record("stock", engine="torch", steps=True) as record:
        torch.compile(function)(x).sum().backward()
    assert record.notes == []
    return write_report(record, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture
def explorer(report: Path, browser: Browser) -> Iterator[Explorer]:
    page = browser.new_page(viewport={"width": 1500, "height": 900})
    page.goto(report.as_uri())
    yield Explorer(page.locator(".cutaway"))
    page.close()


def test_the_graph_break_has_pytorchs_explanation_and_a_proven_advice(explorer: Explorer) -> None:
    expect(explorer.row("function from line")).to_have_count(1)
    overview = explorer.show(0, "overview")
    expect(overview).to_contain_text("Graph break: Data-dependent branching")
    expect(overview).to_contain_text("Compute both sides and choose with torch.where")
    expect(overview).to_contain_text("compile-graph-break-site/gb/gb0170.html")


def test_panes_that_only_stock_has(explorer: Explorer) -> None:
    expect(explorer.show(0, "pregrad").locator(".node-elements > .node")).not_to_have_count(0)
    expect(explorer.show(0, "passes")).to_contain_text("remove_noop_ops")
    expect(explorer.show(0, "postgrad").locator(".node-elements > .node")).not_to_have_count(0)
    expect(explorer.show(0, "other")).to_contain_text("dynamo_graph_break_reason")
    expect(explorer.show(0, "guards")).to_contain_text("TENSOR_MATCH")
    expect(explorer.show(0, "timings")).to_contain_text("GraphLowering.run")
    expect(explorer.show(0, "steps")).to_contain_text("RESUME")


def test_an_empty_pane_says_that_the_compile_was_in_pytorchs_cache(tmp_path: Path, browser: Browser) -> None:
    records = []
    with fresh_cache():
        for title in ("compiled", "from the cache"):
            torch._dynamo.reset()
            with recording.record(title, engine="torch") as record:
                torch.compile(torch.sin)(torch.ones(3))
            records.append(record)
    first, second = (any(each.pane == "pregrad" for each in record.artifacts) for record in records)
    assert (first, second) == (True, False)
    page = browser.new_page()
    page.goto(write_report(records[1], tmp_path / "report.html").as_uri())
    expect(Explorer(page.locator(".cutaway")).show(0, "pregrad")).to_contain_text("found it in its AOTAutograd cache")
    page.close()


def test_a_pass_is_compared_with_the_graph_before(explorer: Explorer) -> None:
    explorer.row("1/0").click()
    passes = explorer.show(0, "passes")
    passes.get_by_label("Artifact").select_option("joint_graph_passes.remove_noop_ops")
    passes.get_by_role("button", name="Change").click()
    before, after = passes.locator(".half").nth(0), passes.locator(".half").nth(1)
    expect(before).to_contain_text("before.joint_graph_passes.remove_noop_ops")
    expect(before).to_contain_text("torch.ops.aten.alias.default(exp)")
    expect(after).to_contain_text("torch.ops.aten.exp.default")
    expect(after).not_to_contain_text("torch.ops.aten.alias.default")
    expect(passes.get_by_role("status")).to_contain_text("difference")


def test_a_line_of_a_kernel_is_linked_to_the_users_line(explorer: Explorer) -> None:
    explorer.show(0, "source")
    explorer.show(1, "kernel")
    explorer.click_line(1, ".cos()")
    explorer.expect_pinned(0, "y = x.cos() + 0")


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report that compares our engine and stock torch.compile on the same function."""
    runs = []
    for engine, through in (("core", api.compile), ("torch", torch.compile)):
        torch._dynamo.reset()
        with recording.record(engine, engine=engine) as record:  # type: ignore[arg-type]
            through(function, backend="aot_eager")(torch.ones(8, requires_grad=True)).sum().backward()
        runs.append(record)
    runs[0].comparison = compare(*runs)
    runs[0].comparison.values = {}
    return write_report(runs[0], tmp_path_factory.mktemp("runs") / "report.html")


def test_two_engines_side_by_side(two_runs: Path, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1500, "height": 900})
    page.goto(two_runs.as_uri())
    explorer = Explorer(page.locator(".cutaway"))
    pane = explorer.show(1, "engines")
    expect(pane).to_contain_text("The values of core and torch are the same.")
    expect(pane.get_by_role("row", name="graph breaks")).to_have_text("graph breaks11")
    captured = pane.locator("tr.same").filter(has_text="captured")
    expect(captured).to_have_count(0)  # at first only differences are listed
    pane.get_by_label("same").check()
    expect(captured.filter(has_text="cos")).to_have_count(1)
    times = pane.locator("tr").filter(has_text="compile time")
    expect(times.first).to_contain_text(re.compile(r"compile time[\d.]+ m?s[\d.]+ m?s"))
    expect(times.nth(1)).to_contain_text("capture")
    expect(pane.get_by_role("row", name="of these in capture")).to_be_visible()
    explorer.show(0, "source")
    pane.locator("tr.place").filter(has_text="y = x.cos() + 0").click()
    explorer.expect_pinned(0, "y = x.cos() + 0")
    page.close()


def rank(number: int) -> Record:
    """The record of what one rank of `tests/tools/stock/stock_ranks.py` compiles."""
    torch._dynamo.reset()
    with recording.record(f"rank {number}", engine="torch") as record:
        torch.compile(Net(number), backend="aot_eager")(torch.randn(6, 8)).mean().backward()
    return record


def test_two_ranks_side_by_side(tmp_path: Path, browser: Browser) -> None:
    record = rank(2)
    record.comparison = compare(rank(0), record)
    page = browser.new_page(viewport={"width": 1500, "height": 900})
    page.goto(write_report(record, tmp_path / "report.html").as_uri())
    explorer = Explorer(page.locator(".cutaway"))
    pane = explorer.show(1, "engines")
    expect(pane.get_by_role("columnheader", name="rank 2").first).to_be_visible()
    guard = pane.locator("tr.changed").filter(has_text="['self'].rank")
    expect(guard).to_contain_text("guard")
    expect(guard).to_contain_text("L['self'].rank == 0")
    expect(guard).to_contain_text("L['self'].rank == 2")
    expect(pane.locator("tr.added").filter(has_text="captured")).to_contain_text("sin float32[6, 16]")
    explorer.show(0, "source")
    pane.locator("tr.place").filter(has_text="x = x.sin()").click()
    explorer.expect_pinned(0, "x = x.sin()")
    page.close()
