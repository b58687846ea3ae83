"""Measurements on demand in the explorer: times, the roofline, errors against float64, autotuning."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Page, expect

import compiler_core
from compiler_core.records import Record, Tuning, TuningTrial
from compiler_core.tools.accuracy import check_accuracy
from compiler_core.tools.measure import measure
from kernel_magics.display.report import write_report
from tests.sampling import always
from tests.ui.drive import Explorer, Notebook, Server, expect_value, line_of, open_report

Screenshot = Callable[[Page, str], None]
SOURCE = "def f(x, w):\n    small = x.sin()\n    large = (small @ w).softmax(-1)\n    return (large * large).sum()\n"


@pytest.fixture(scope="module")
def record() -> Record:
    namespace: dict[str, object] = {}
    exec(compile(SOURCE, "/work/program.py", "exec"), namespace)
    with compiler_core.record("measured") as result:
        result.source("/work/program.py", 1, SOURCE.splitlines())
        fast = compiler_core.compile(namespace["f"], strict=True, tune=True)
        fast(torch.randn(8, 64), torch.randn(64, 8192, requires_grad=True)).backward()
    measure(result)
    check_accuracy(result)
    assert result.notes == []
    return result


APPEARANCES = {"light": ("light", 1600), "narrow": ("light", 1000), "dark": ("dark", 1600)}


@pytest.fixture(params=always(APPEARANCES, "light".__eq__))
def appearance(request: pytest.FixtureRequest) -> tuple[str, int]:
    return APPEARANCES[request.param]


@contextmanager
def opened_report(browser: Browser, record: Record, folder: Path, appearance: tuple[str, int]) -> Iterator[Page]:
    """Opens the report of `record` with a colour scheme and a width."""
    scheme, width = appearance
    with open_report(browser, write_report(record, folder / "report.html"), color_scheme=scheme) as page:
        page.set_viewport_size({"width": width, "height": 900})
        yield page


def show(page: Page, kind: str) -> Explorer:
    """Shows a kind of pane in the first pane, and returns the explorer."""
    explorer = Explorer(page.locator(".cutaway"))
    explorer.show(0, kind)
    return explorer


def test_costs_and_hot_lines_are_by_time(
    browser: Browser, record: Record, tmp_path: Path, appearance: tuple[str, int], screenshot: Screenshot
) -> None:
    with opened_report(browser, record, tmp_path, appearance) as page:
        pane = show(page, "costs").pane(0)
        expect(pane.locator("th").first.locator("xpath=..")).to_have_text(re.compile("Kernel.*Share.*Time.*Traffic"))
        expect(pane.locator(".lead").first).to_contain_text(re.compile(r"in [\d.]+ (µs|ms)\."))
        right = "(element) => element.getBoundingClientRect().right"  # all columns are visible
        expect_value(lambda: pane.locator("table").first.evaluate(right) <= pane.evaluate(right), True)
        pane = show(page, "source").pane(0)
        hot = pane.locator(".cutaway-mark", has_text="of the time")
        expect(hot).to_have_count(1)
        expect(line_of(hot)).to_contain_text("large = (small @ w)")
        screenshot(page, f"measured_costs_{appearance[0]}_{appearance[1]}")


def test_a_run_beside_eager_pytorch_and_its_memory(
    browser: Browser, record: Record, tmp_path: Path, appearance: tuple[str, int], screenshot: Screenshot
) -> None:
    with opened_report(browser, record, tmp_path, appearance) as page:
        explorer = show(page, "costs")
        explorer.show(1, "source")
        pane = explorer.pane(0)
        pane.get_by_role("button", name="Flames").click()
        expect(pane.locator(".lead")).to_contain_text(
            re.compile(r"A run of 0/0 takes [\d.]+ \S+ compiled beside [\d.]+ \S+")
        )
        charts = pane.locator(".flames")
        expect(charts).to_have_count(2)
        for name in ("compiled", "forward", "backward"):
            expect(charts.first.get_by_role("button", name=re.compile(f"^{name}")).first).to_be_attached()
        charts.first.get_by_role("button", name=re.compile("^large = ")).first.press("Enter")
        explorer.expect_pinned(1, "large = (small @ w).softmax(-1)")
        with page.expect_download() as download:
            pane.get_by_role("button", name="show all").click()
            pane.get_by_role("button", name="save as trace").click()
        assert json.loads(download.value.path().read_text())["traceEvents"]
        memory = explorer.show(1, "memory")
        peak = re.compile(r"^Step \d+ of the \w+, the peak: [\d.]+ MiB in \d+ buffers?$")
        expect(memory.get_by_role("status")).to_have_text(peak)
        expect(memory.locator("tbody tr").first).to_contain_text("large = ")
        memory.get_by_label("Step", exact=True).press("Home")
        expect(memory.get_by_role("status")).to_contain_text("Step 1 of the forward")
        screenshot(page, f"measured_run_{appearance[0]}_{appearance[1]}")


def test_roofline_of_this_device_and_of_a_target(
    browser: Browser, record: Record, tmp_path: Path, appearance: tuple[str, int], screenshot: Screenshot
) -> None:
    with opened_report(browser, record, tmp_path, appearance) as page:
        pane = show(page, "roofline").pane(0)
        kernels = record.compiles[0].kernels
        expect(pane.locator("tbody tr")).to_have_count(len(kernels))
        expect(pane.locator("tbody tr .share").filter(has_text="%")).to_have_count(len(kernels))
        screenshot(page, f"measured_roofline_{appearance[0]}_{appearance[1]}")
        pane.get_by_label("Device").select_option(label="sm_90: H200")
        expect(pane.locator(".lead")).to_contain_text("4,800 GB/s")
        expect(pane.locator(".lead")).to_contain_text("not timed on this device")
        expect(pane.locator("tbody tr .share")).to_have_count(0)


def test_errors_are_sorted_and_colour_the_graph(
    browser: Browser, record: Record, tmp_path: Path, appearance: tuple[str, int], screenshot: Screenshot
) -> None:
    result = Record.from_json(record.to_json())
    result.compiles[0].accuracy[-1].error = 0.25
    name = result.compiles[0].accuracy[-1].node.rpartition("#")[2]
    with opened_report(browser, result, tmp_path, appearance) as page:
        explorer = show(page, "accuracy")
        pane = explorer.pane(0)
        expect(pane.locator("tbody tr").first).to_contain_text(re.compile(rf"^{name} "))
        expect(pane.locator("tbody tr").first).to_have_class(re.compile("failed"))
        expect(pane.locator(".lead")).to_contain_text("1 has more than twice the error of eager PyTorch")
        screenshot(page, f"measured_accuracy_{appearance[0]}_{appearance[1]}")
        pane = explorer.show(0, "forward")
        colours = pane.get_by_label("Colour by")
        for overlay, title, legend in (("time", "Kernel time", "ns|µs|ms"), ("error", "Error against float64", "e-")):
            colours.select_option(label=title)
            expect(pane.locator(".legend")).to_contain_text(re.compile(legend))
            screenshot(page, f"measured_{overlay}_{appearance[0]}_{appearance[1]}")


def test_autotuning_and_why_nothing_was_tried(
    browser: Browser, record: Record, tmp_path: Path, screenshot: Screenshot
) -> None:
    with open_report(browser, write_report(record, tmp_path / "report.html")) as page:
        pane = show(page, "tuning").pane(0)
        expect(pane).to_contain_text("Nothing was tried: C++ kernels have no block sizes to choose")
    result = Record.from_json(record.to_json())
    result.compiles[0].tunings = [
        Tuning("forward", "sm_90", tried=[
            TuningTrial("forward_1", "4 rows x 1024 columns, 8 warps", 8200.0, 40, 0),
            TuningTrial("forward_1", "1 rows x 8192 columns, 16 warps", 6150.0, 60, 8, chosen=True),
            TuningTrial("forward_1", "8 rows x 8192 columns, 16 warps", why_not="out of resource: shared memory"),
        ]),
    ]  # fmt: skip
    with open_report(browser, write_report(result, tmp_path / "report.html")) as page:
        pane = show(page, "tuning").pane(0)
        expect(pane).to_contain_text("3 configurations were tried; the best takes 75 % of the default's time")
        expect(pane.locator("tbody tr").nth(1)).to_contain_text("chosen")
        expect(pane.locator("tbody tr").nth(2)).to_contain_text("out of resource: shared memory")
        screenshot(page, "measured_tuning")


def test_block_sizes_that_were_asked_for_are_not_called_impossible(browser: Browser, tmp_path: Path) -> None:
    with compiler_core.record() as asked:
        fast = compiler_core.compile(lambda x: x.softmax(-1), target="sm_90", block_sizes={"forward_0": {"i": 8}})
        fast(torch.randn(64, 100))
    with open_report(browser, write_report(asked, tmp_path / "report.html")) as page:
        pane = show(page, "tuning").pane(0)
        expect(pane).to_contain_text("forward_0 has the block sizes that were asked for")
        expect(pane.locator("tbody tr")).to_have_text(re.compile(r"8 rows x 128 columns.*asked for.*not timed"))


CELLS = {
    "load": "%load_ext kernel_magics\nimport torch, kernel_magics\nx, w = torch.randn(8, 64), torch.randn(64, 8192)",
    "plain": "%%compile\nsmall = x.sin()\nlarge = (small @ w).softmax(-1)",
    "timed": "%%compile --measure --check\nsmall = x.sin()\nlarge = (small @ w).softmax(-1)",
}


def test_a_cell_is_measured_on_demand(page: Page, server: Server, screenshot: Screenshot) -> None:
    notebook = Notebook(page, server, server.notebook("measured.ipynb", CELLS)).open()
    notebook.run_all()
    assert notebook.errors() == []
    mark = notebook.element("timed").locator(".jp-Cell-inputArea .cutaway-mark").filter(has_text="of the time")
    expect(mark).to_have_count(1)
    mark.click()
    costs = notebook.explorer("timed").root.locator('section.pane[aria-label^="Costs"]')
    expect(costs.locator(".lead").first).not_to_contain_text("not timed")
    screenshot(page, "measured_cell")
    plain = notebook.element("plain").locator(".jp-Cell-inputArea .cutaway-mark").filter(has_text="of the traffic")
    expect(plain).to_have_count(1)
    state = "str(torch.get_rng_state().sum())"
    before = notebook.python(state)
    notebook.python("kernel_magics.last().measure()")
    assert notebook.python(state) == before
