"""Where the explorer shows what was asked for, in reports of three sizes: problems, deep models, kernels, subgraphs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from playwright.sync_api import Browser, Locator, Page, expect
from torch._higher_order_ops import while_loop

from compiler_core.api import compile as api
from compiler_core.records import Record
from compiler_core.records.artifacts import Graph, Language, Node
from compiler_core.tools import recording
from kernel_magics.display.messages import PANES
from kernel_magics.display.report import write_report
from tests.sampling import sample
from tests.ui.drive import Explorer, expect_value, open_report
from tests.ui.layers import WIDTH, Model

Screenshot = Callable[[Page, str], None]
LAYERS = 4
SIZES = [(552, 518), (1007, 666), (2100, 1065)]
"""The explorers of windows of 1000 by 700, 1440 by 900 and 2560 by 1440 pixels, the last one full screen."""


def newton(x: torch.Tensor) -> torch.Tensor:
    def go(i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return i < 5

    def step(i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return i + 1, (y + x / y) / 2

    found: tuple[torch.Tensor, torch.Tensor] = while_loop(go, step, (torch.tensor(0), torch.ones_like(x)))
    return found[1]


def selected(x: torch.Tensor) -> torch.Tensor:
    y = x.sin() * 2
    kept = y[y > 0]
    return kept.cos() * kept.shape[0]


def two_problems(x: torch.Tensor, scale: torch.Tensor, names: list[str]) -> torch.Tensor:
    y = x.cos() * int(scale)
    print("a long line of code, so that its mark lies to the right of what a narrow pane can show of it", *names)
    return y.sin() + 1


def two_branches(x: torch.Tensor) -> torch.Tensor:
    y = x.cos()
    if y.sum() > 0:
        y = y / 2
    if y.max() > 0:
        y = y.relu()
    return y


def training_step() -> None:
    model = Model(1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    fast = api.compile(step, capture_backward=True, memory_curve=True, steps=True)
    for _ in range(2):
        fast(torch.randn(4, WIDTH))


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    torch.manual_seed(0)
    x = torch.randn(4, WIDTH)
    programs: dict[str, Callable[[], Any]] = {
        "deep": lambda: api.compile(Model(LAYERS))(x).sum().backward(),
        "problems": lambda: api.compile(two_problems)(x, torch.tensor(2.0), []),
        "branches": lambda: api.compile(two_branches)(torch.ones(3)),
        "loop": lambda: api.compile(newton)(x.exp()),
        "parts": lambda: api.compile(selected)(x),
        "step": training_step,
    }
    folder, found = tmp_path_factory.mktemp("layout"), {}
    for name, program in programs.items():
        with recording.record(name) as record:
            program()
        record.find_problems()
        if name == "deep":  # so that each stage has something
            record.frames[0].compiles[0].artifact("machine", "forward.asm", "asm", "ret\n" * 20_000)
        found[name] = write_report(record, folder / f"{name}.html")
    machine = Record(title="machine")
    compile_ = machine.compile(machine.frame("f", "a.py", 1, "root"))
    for language in get_args(Language)[-6:]:
        compile_.artifact("machine", f"forward.{language}", language, f"the {language}")
    return found | {"machine": write_report(machine, folder / "machine.html")}


@pytest.fixture
def page(browser: Browser, reports: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[Page]:
    """The report of `of`, in a new context."""
    with open_report(browser, reports[request.param]) as page:
        yield page


def of(report: str) -> pytest.MarkDecorator:
    """Gives a test the page of a report."""
    return pytest.mark.parametrize("page", [report], indirect=True)


@pytest.fixture
def explorer(page: Page) -> Explorer:
    return Explorer(page.locator(".cutaway"))


def pane_of(explorer: Explorer, title: str) -> Locator:
    return explorer.root.locator(f'section.pane[aria-label^="{title}"]')


PLACES = "(steps) => steps.map((step) => [step.offsetLeft, step.offsetTop, step.offsetWidth])"
CUT_NAMES = "(names) => names.filter((name) => name.scrollWidth > name.clientWidth + 1).map((name) => name.textContent)"
OUTSIDE = """(elements, outer) => elements.filter((element) =>
    element.getBoundingClientRect().right > element.closest(outer).getBoundingClientRect().right + 1).length"""
# The marks that lie over code, although there is room for their signs behind it.
OVER_CODE = """(marks) => marks.filter((mark) => {
    const code = document.createRange();
    code.setStart(mark.closest(".cm-line"), 0);
    code.setEndBefore(mark);
    const { right } = code.getBoundingClientRect();
    const has_room = right + 80 < mark.closest("section").getBoundingClientRect().right;
    return has_room && mark.querySelector("button").getBoundingClientRect().left < right;
}).length"""
# What is wrong with a pane, once it has settled: it is empty, it scrolls sideways (other than code and drawings), or a
# text is smaller than 11 pixels, or cut without an ellipsis and a tooltip that has all of it.
FAULTS = """async (pane) => {
    for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
    const found = [];
    const body = pane.querySelector(".body");
    if (!body.innerText.trim() && !body.querySelector("canvas, svg")) found.push("nothing is shown");
    for (const element of [body, ...body.querySelectorAll("*")]) {
        if (!element.checkVisibility() || !element.getClientRects().length) continue;
        const style = getComputedStyle(element);
        const name = `${element.className}: ${element.textContent.trim().slice(0, 60)}`;
        const isWide = element.clientWidth > 1 && element.scrollWidth > element.clientWidth + 1;
        const isCode = element.closest(".cm-editor, pre, .code, .plans .drawn");
        if (isWide && /auto|scroll/.test(style.overflowX) && !isCode) {
            found.push(`scrolls to ${element.scrollWidth} of ${element.clientWidth}: ${name}`);
        }
        if (![...element.childNodes].some((node) => node instanceof Text && node.data.trim())) continue;
        const size = parseFloat(style.fontSize) * (element.getScreenCTM?.().a ?? 1);
        if (size && size < 10.9) found.push(`${size} pixels: ${name}`);
        const isLow = element.clientHeight > 1 && element.scrollHeight > element.clientHeight + 2;
        const isCut = style.overflow.includes("hidden") && (isWide || isLow);
        const isSaid = element.closest("[title]") && (isLow || style.textOverflow === "ellipsis");
        if (isCut && !isSaid && !element.closest(".cm-editor")) found.push(`cut: ${name}`);
    }
    return found;
}"""
FIGURES = "(rows) => rows.map((row) => row.cells[row.cells.length - 1].textContent)"


@of("problems")
@pytest.mark.parametrize("size", SIZES)
def test_an_answer_gets_the_place(
    explorer: Explorer, page: Page, screenshot: Screenshot, size: tuple[int, int]
) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    explorer.root.locator(".problem .what").click()
    overview = pane_of(explorer, "Overview")
    expect(overview.locator(".block h4").first).to_be_in_viewport(ratio=1)
    expect(overview.get_by_text("What to do:").first).to_be_in_viewport(ratio=1)
    height = "(body) => body.clientHeight / body.closest('.panes').clientHeight > 0.75"
    expect_value(lambda: overview.locator(".body").evaluate(height), True)
    wider = """(pane) => [...pane.parentElement.querySelectorAll("section.pane")]
        .filter((other) => other.offsetWidth > pane.offsetWidth + 2).map((other) => other.ariaLabel)"""
    expect_value(lambda: overview.evaluate(wider), [])
    screenshot(page, f"answer_{size[0]}")
    # a pane that gave way comes back
    for title in explorer.root.locator("section.pane.shut").get_by_label("Show this pane").all()[:1]:
        title.click()
        expect(explorer.root.locator("section.pane:not(.shut) .body").first).to_be_visible()
    expect(explorer.root.locator("section.pane:not(.shut)")).not_to_have_count(0)


@of("branches")
def test_code_in_the_texts_of_problems_has_no_backquotes(explorer: Explorer) -> None:
    what = explorer.root.locator(".problem .what")
    expect(what.locator("code")).to_have_text("y.sum() > 0")
    what.click()
    listed = pane_of(explorer, "Overview").locator("h3.problems + table")
    expect(listed.locator("code")).to_have_text(["y.sum() > 0", "y.max() > 0"])
    for place in (what, listed, explorer.tree):
        expect(place).not_to_contain_text("`")


@of("problems")
def test_problems_are_shown_one_after_another(explorer: Explorer, page: Page) -> None:
    line = explorer.root.locator(".problem")
    expect(line.locator(".what")).to_contain_text(re.compile(r"^Line \d+: graph break: "))
    expect(line.locator(".which")).to_have_text("1 of 2")
    first = line.locator(".what").inner_text()
    line.get_by_label("Next problem").click()
    expect(line.locator(".which")).to_have_text("2 of 2")
    expect(line.locator(".what")).not_to_have_text(first)
    page.set_viewport_size({"width": SIZES[0][0], "height": SIZES[0][1]})
    whole = "(text) => text.scrollHeight <= text.clientHeight + 1"  # all of it is seen
    expect_value(lambda: line.locator(".what").evaluate(whole), True)
    listed = pane_of(explorer, "Overview").locator("h3.problems + table tbody tr")
    expect(listed).to_have_count(2)
    expect(listed.nth(1)).to_have_class(re.compile("pinned"))
    listed.nth(0).get_by_role("button").click()
    expect(listed.nth(0)).to_have_class(re.compile("pinned"))
    line.get_by_label("Previous problem").click()
    expect(line.locator(".which")).to_have_text("1 of 2")


@of("deep")
@pytest.mark.parametrize("size", [(820, 560), *SIZES[1:]])
def test_stages_stay_and_keep_their_names(explorer: Explorer, page: Page, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    steps = explorer.stages.locator(".step")
    expect(steps).to_have_count(9)
    expect_value(lambda: steps.locator("b, > span").evaluate_all(CUT_NAMES), [])
    before = steps.evaluate_all(PLACES)
    explorer.click_line(0, "return x + ")
    expect(explorer.root.locator(".chain .step")).not_to_have_count(0)
    expect_value(lambda: steps.evaluate_all(PLACES), before)
    expect_value(lambda: explorer.root.locator(".step b").evaluate_all(CUT_NAMES), [])
    explorer.root.get_by_role("button", name="Unpin").click()
    expect(explorer.root.locator(".chain .step")).to_have_count(0)
    page.set_viewport_size({"width": SIZES[0][0], "height": SIZES[0][1]})
    expect_value(lambda: steps.evaluate_all(OUTSIDE, ".steps"), 0)


def test_a_source_of_few_lines_needs_little_room(browser: Browser, tmp_path: Path, screenshot: Screenshot) -> None:
    graph = Graph([Node("x", "placeholder", "x"), Node("cos", "call_method", "cos")], [["x", "cos"]])
    record = Record(title="short")
    source = record.source("a.py", 1, ["y = x.cos()"])
    compile_ = record.compile(record.frame("f", "a.py", 1, "root"))
    compile_.outcome = "compiled"
    compile_.artifact("captured", "captured", "python", "def captured(x): ...", graph=graph)
    with open_report(browser, write_report(record, tmp_path / "short.html")) as page:
        page.set_viewport_size({"width": 567, "height": 460})
        explorer = Explorer(page.locator(".cutaway"))
        expect(explorer.line(0, source.text.strip())).to_be_visible()
        expect(explorer.node(1, "cos")).to_be_attached()
        screenshot(page, "few_lines")


@of("problems")
@pytest.mark.parametrize("size", SIZES[:2])
def test_counts_and_marks_are_not_cut(explorer: Explorer, page: Page, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    explorer.show(0, "source")
    marks = explorer.pane(0).locator(".cutaway-mark")
    expect(marks).not_to_have_count(0)
    expect_value(lambda: marks.evaluate_all(OUTSIDE, "section"), 0)
    expect_value(lambda: explorer.pane(0).locator(".cutaway-marks").evaluate_all(OVER_CODE), 0)
    expect_value(lambda: explorer.root.locator(".counts .count").evaluate_all(OUTSIDE, ".counts"), 0)


@pytest.mark.parametrize("page", sample(["step", "deep", "branches"], 2), indirect=True)
def test_panes_fit_at_each_size(explorer: Explorer, page: Page) -> None:
    page.add_style_tag(content=".cutaway .rows { padding-right: 25px }")  # as a scrollbar, which this browser hides
    for kind in PANES:
        pane = explorer.show(1, kind)
        modes = pane.locator(".modes button[aria-pressed]").all() or [pane.locator(".body")]
        for mode in modes:
            if len(modes) > 1:
                mode.click()
            for width, height in SIZES:
                page.set_viewport_size({"width": width, "height": height})
                expect_value(partial(pane.evaluate, FAULTS), [])
        page.set_viewport_size({"width": SIZES[1][0], "height": SIZES[1][1]})


@of("branches")
def test_tools_of_compared_drawings_are_not_cut(explorer: Explorer, page: Page, screenshot: Screenshot) -> None:
    pane = explorer.show(1, "compare")
    pane.get_by_role("button", name="Drawing", exact=True).click()
    expect(pane.locator(".half")).to_have_count(2)
    for width in (1100, 552):
        page.set_viewport_size({"width": width, "height": 800})
        fits = pane.locator(".tools").get_by_role("button", name="Fit")
        expect_value(partial(fits.evaluate_all, OUTSIDE, ".half"), 0)
        screenshot(page, f"compared_{width}")


def expect_groups(pane: Locator) -> None:
    """Waits for a row that stands for equal ones, and opens it."""
    group = pane.locator("table").first.locator("tr").filter(has=pane.page.locator(".unfold-rows")).first
    expect(group).to_contain_text("layers.*")
    inside = pane.locator("tr.in-group:visible")
    expect(inside).to_have_count(0)
    group.locator(".unfold-rows").click()
    expect_value(lambda: inside.count() in (LAYERS - 1, LAYERS), True)  # the first may differ


@of("deep")
def test_equal_rows_of_repeated_modules_are_one(explorer: Explorer, page: Page, screenshot: Screenshot) -> None:
    for title in ("Costs", "Partition", "Fusion", "Roofline", "Guards"):
        explorer.show(1, title.lower())
        expect_groups(pane_of(explorer, title))
        screenshot(page, f"groups_{title.lower()}")


@of("deep")
def test_memory_is_shown_by_module(explorer: Explorer, screenshot: Screenshot, page: Page) -> None:
    explorer.show(1, "memory")
    modules = pane_of(explorer, "Memory").locator("h3:text('Modules') + table").get_by_role("row")
    expect(modules.filter(has_text="layers.*")).to_contain_text(re.compile(rf"\u00d7 {LAYERS}.*%.*KiB"))
    expect(modules.filter(has_text="linear")).to_contain_text("%")
    screenshot(page, "memory_modules")


@of("deep")
def test_tables_are_sorted_by_a_column(explorer: Explorer) -> None:
    table = explorer.show(1, "costs").locator("table").first
    rows = table.locator("tbody tr:not(.in-group)")
    before = rows.evaluate_all(FIGURES)
    traffic = table.get_by_role("button", name="Traffic")

    def sizes() -> list[float]:
        units = {"B": 1, "KiB": 1024}
        return [float(number) * units[unit] for number, unit in map(str.split, rows.evaluate_all(FIGURES))]

    traffic.click()
    expect(table.locator("th[aria-sort=descending]")).to_have_text("Traffic")
    expect_value(lambda: sizes() == sorted(sizes(), reverse=True), True)
    traffic.click()
    expect(table.locator("th[aria-sort=ascending]")).to_have_text("Traffic")
    expect_value(lambda: sizes() == sorted(sizes()), True)
    traffic.click()
    expect_value(lambda: rows.evaluate_all(FIGURES), before)


@of("deep")
def test_rows_of_a_table_are_filtered_and_copied(explorer: Explorer, page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    pane = explorer.show(1, "guards")
    table = pane.locator("table")
    rows = table.locator("tbody tr")
    expect(rows.nth(1)).to_be_visible()
    total = rows.filter(visible=True).count()
    pane.get_by_label("Filter the rows of this table").fill("tensor weight")
    expect(rows.filter(visible=True)).not_to_have_count(total)
    found = rows.filter(visible=True).count()
    expect(table.locator(".found")).to_have_text(f"{found} of {total}")
    table.get_by_role("button", name="Copy").click()
    expect(table.get_by_role("button", name="Copied")).to_be_visible()
    head, *lines = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert head.split("\t")[:3] == ["Kind", "Check", "Line"]
    assert len(lines) == found
    assert all("weight" in line for line in lines)
    pane.get_by_label("Filter the rows of this table").press("Escape")
    expect(rows.filter(visible=True)).to_have_count(total)
    page.set_viewport_size({"width": 700, "height": 700})  # where sentences are below the other columns
    pane = explorer.show(1, "partition")
    expect(pane.locator("table.sentences tbody tr").filter(visible=True)).not_to_have_count(0)
    pane.get_by_label("Filter the rows of this table").fill("no such row")
    expect(pane.locator("table.sentences tbody tr").filter(visible=True)).to_have_count(0)


@of("deep")
def test_inputs_of_a_backward_have_the_users_names(explorer: Explorer) -> None:
    pane = explorer.show(1, "backward")
    pane.get_by_label("Collapse by").select_option("No groups")
    named = pane.locator('.node-elements > [aria-label^="tangents_1 "]')
    expect(named).to_have_attribute("aria-label", re.compile("gradient of "))
    button = pane.get_by_role("button", name="Parameters")
    expect(button).to_have_attribute("aria-pressed", "false")
    weights = pane.locator('.node-elements > [aria-label^="primals_"][aria-label*="linear_weight"]')
    expect(weights).to_have_count(0)
    button.click()
    expect(weights).not_to_have_count(0)


@of("loop")
def test_functions_of_a_loop_are_drawn_with_the_users_names(explorer: Explorer, screenshot: Screenshot) -> None:
    pane = explorer.show(1, "subgraphs")
    pane.get_by_label("Artifact").select_option("while_loop_body_0.captured")
    for name in ("i", "y"):
        expect(explorer.node(1, name)).to_have_count(1)
    explorer.click_line(0, "return i + 1")
    explorer.expect_pinned_nodes(1, "add")
    screenshot(explorer.root.page, "subgraphs")


@of("loop")
def test_the_names_of_a_narrow_pane_are_not_cut(explorer: Explorer, page: Page, screenshot: Screenshot) -> None:
    page.set_viewport_size({"width": 1000, "height": 700})
    pane = explorer.show(1, "subgraphs")
    pane.get_by_label("Artifact").select_option(index=0)
    cut = """(selects) => selects.filter((select) => {
        const canvas = document.createElement("canvas").getContext("2d");
        canvas.font = getComputedStyle(select).font;
        const text = select.selectedOptions[0].text;
        return select.checkVisibility() && canvas.measureText(text).width > select.clientWidth;
    }).map((select) => select.selectedOptions[0].text)"""
    pickers = explorer.root.locator("select")
    expect(pickers).not_to_have_count(0)
    expect_value(lambda: pickers.evaluate_all(cut), [])
    expect(pane.get_by_role("button", name="Close this pane")).to_be_in_viewport()
    explorer.root.get_by_role("button", name="A+").click()
    expect_value(lambda: pickers.evaluate_all(cut), [])
    screenshot(page, "narrow_names")


@of("parts")
def test_the_kernels_and_sizes_of_parts_are_shown(explorer: Explorer, screenshot: Screenshot) -> None:
    stage = explorer.stages.get_by_role("button", name=re.compile("^Kernel"))
    expect(stage).to_contain_text("2 kernels")
    for name in ("Forward", "Schedule"):
        expect(explorer.stages.get_by_role("button", name=re.compile(f"^{name}"))).not_to_contain_text("none")
    stage.click()
    pane = pane_of(explorer, "Kernels")
    picker = pane.get_by_label("Artifact")
    expect(picker.locator("option")).to_have_text([re.compile("part_0.forward.cpp"), re.compile("part_2.forward.cpp")])
    sizes = explorer.show(1, "sizes")
    expect(sizes).to_contain_text("getitem.size(0)")
    screenshot(explorer.root.page, "parts")


@of("machine")
def test_machine_code_opens_at_what_the_device_runs(explorer: Explorer) -> None:
    explorer.stages.get_by_role("button", name=re.compile("^Machine")).click()
    expect(pane_of(explorer, "Machine code").locator(".cm-content")).to_have_text("the sass")
