"""Measures the explorer in headless Chromium, on records of real compiles.

make bench ARGS='-k explorer'          (some minutes: records are compiled first and cached in build/explorer)
python -m tests.benchmarks.bench_explorer
"""

from __future__ import annotations

import gzip
import itertools
import re
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Locator, Page, sync_playwright

import compiler_core
from compiler_core.records import Record
from kernel_magics.display import summary
from kernel_magics.display.assets import asset
from kernel_magics.display.packing import pack, packed_size
from kernel_magics.display.report import write_report
from kernel_magics.display.static_html import html
from tests.ui.conftest import FLAGS, chromium

KEPT = Path("build/explorer")
LAYERS = 24
DEEP_LAYERS = 114
"""The layers of a model whose joint graph has 20,000 nodes."""
COMPILES = 300
ROUNDS = 5
WIDTH = 32
MIB = 2**20
OUTPUTS = 40
ROW = "{:<66} {:>10} {:>8}  {}"
GRAPH_MS, FRAME_MS, LINKS_MS, OPEN_MS, OUTPUTS_MB = 500.0, 1000 / 60 + 1, 30.0, 1000.0, 200.0
"""The bars: opening 20,000 nodes, a frame at 60 a second (and a millisecond of tolerance), highlighting the links of a
line, opening 300 compiles, and the heap with 40 explorers."""

# The time from the click to the frame that shows the graph.
OPEN_GRAPH = """async ([pane, name]) => {
    const section = document.querySelectorAll("section.pane")[pane];
    const picker = section.querySelector("select[aria-label='What this pane shows']");
    const start = performance.now();
    picker.value = name;
    picker.dispatchEvent(new Event("change"));
    while (!section.querySelector(".graph .node-elements")?.style.transform) await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    return performance.now() - start;
}"""

# The page's work and the times between frames, while a graph moves for a second.
MOVE = """async ([kind, frames]) => {
    const host = [...document.querySelectorAll(".graph .window")].at(-1);
    const { left, top, width, height } = host.getBoundingClientRect();
    const at = { clientX: left + width / 2, clientY: top + height / 2, bubbles: true, cancelable: true };
    const times = [];
    for (let i = 0; i < frames; i++) {
        const before = performance.now();
        const deltaY = (Math.floor(i / 20) % 2 ? -1 : 1) * (kind === "zoom" ? 24 : 60);
        host.dispatchEvent(new WheelEvent("wheel", { ...at, deltaY, ctrlKey: kind === "zoom" }));
        await new Promise(requestAnimationFrame);
        times.push(performance.now() - before);
    }
    return times.slice(2);
}"""

# The time from moving the pointer over a line, or pressing it, to the frame in which all panes show the linked items.
POINT = """async ([text, press]) => {
    const line = [...document.querySelectorAll(".cm-line")].find((l) => l.textContent.includes(text));
    const { left, top, height } = line.getBoundingClientRect();
    const at = { clientX: left + 30, clientY: top + height / 2, bubbles: true };
    const times = [];
    for (let i = 0; i < 9; i++) {
        line.parentElement.dispatchEvent(new MouseEvent("mouseleave"));
        document.querySelector("section.pane").dispatchEvent(new MouseEvent("mouseleave"));
        await new Promise(requestAnimationFrame);
        await new Promise(requestAnimationFrame);
        const before = performance.now();
        line.dispatchEvent(new MouseEvent("mousemove", at));
        if (press) line.dispatchEvent(new MouseEvent("click", at));
        const done = press ? ".cm-line.pinned" : ".cm-line.hovered";
        while (!document.querySelector(done)) {
            if (performance.now() - before > 5000) throw new Error(`no ${done}`);
            await new Promise(requestAnimationFrame);
        }
        const drawn = new MessageChannel();
        await new Promise((done) => { drawn.port1.onmessage = done; drawn.port2.postMessage(0); });
        times.push(performance.now() - before);
        document.querySelector(".unpin")?.click();
    }
    return times;
}"""

OPEN_MANY = """async ([code, packed, count]) => {
    const { open } = await import(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
    for (let i = 0; i < count; i++) open(document.body.appendChild(document.createElement("div")), packed);
}"""


class Block(torch.nn.Module):
    """A transformer layer with all its operations and small sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        heads = self.qkv(self.before(x)).view(batch, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        weights = (query @ key.transpose(-2, -1) / (width // 2) ** 0.5).softmax(-1)
        x = x + self.out((weights @ value).transpose(1, 2).reshape(batch, length, width))
        result: torch.Tensor = x + self.mlp(self.between(x))
        return result


class Model(torch.nn.Module):
    """A sequence of layers; with `breaks`, each is a separate graph."""

    def __init__(self, layers: int, breaks: bool = False) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Block() for _ in range(layers))
        self.breaks = breaks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
            if self.breaks:
                compiler_core.graph_break()
        return x


def deep_record() -> Record:
    """Returns a record with a training graph of 20,000 nodes."""
    compiled = compiler_core.compile(Model(DEEP_LAYERS), backend="aot_eager")
    with compiler_core.record("a deep model") as record:
        compiled(torch.randn(2, 8, WIDTH)).sum().backward()
    return record


def many_record() -> Record:
    """Returns a record of 300 compiles: a model with a graph break at each layer, for several sequence lengths."""
    model = Model(LAYERS, breaks=True)
    with compiler_core.record("a model of 24 layers") as record:
        compiled = compiler_core.compile(model, backend="aot_eager", dynamic=False, recompile_limit=2 * COMPILES)
        for length in itertools.count(4):
            compiled(torch.randn(2, length, WIDTH)).sum().backward()
            if len(record.compiles) >= COMPILES:
                return record
    raise AssertionError


def report(name: str, make: Callable[[], Record]) -> Path:
    """Returns the report of a record, which is made once."""
    path = KEPT / f"{name}.html"
    saved = KEPT / f"{name}.json"
    if not saved.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(0)
        saved.write_text(make().to_json())
    return write_report(Record.from_json(saved.read_text()), path)


def small_record() -> Record:
    """Returns the record of a training step of a small network, as a cell of a notebook has it."""
    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    with compiler_core.record("a small network") as record:
        compiler_core.compile(net)(torch.randn(32, 64)).square().mean().backward()
    return record


@pytest.mark.timeout(1800)  # the records are compiled first
def test_explorer() -> None:
    """Compares each figure with its limit."""
    figures = measure()
    print()
    for what, (value, bar) in figures.items():
        print(ROW.format(what, f"{value:.4g}", f"{bar:.4g}", "pass" if value <= bar else "FAIL"))
    late = [what for what, (value, bar) in figures.items() if value > bar]
    assert not late


def measure() -> dict[str, tuple[float, float]]:
    """Returns each figure with its limit."""
    small = small_record()
    figures = bundle() | saved(small)
    with sync_playwright() as playwright:
        flags = [*FLAGS, "--enable-precise-memory-info", "--js-flags=--expose-gc"]
        browser = playwright.chromium.launch(executable_path=chromium(), args=flags)
        figures |= large_graph(browser, report("deep", deep_record))
        figures |= many_compiles(browser, report("many", many_record))
        figures |= many_outputs(browser, small)
        browser.close()
    return figures


def bundle() -> dict[str, tuple[float, float]]:
    result = asset("explorer.js").read_bytes()
    return {
        "bundle, MB": (len(result) / 1e6, 1.5),
        "bundle compressed (gzip -9), KB": (len(gzip.compress(result, 9)) / 1e3, 650),
    }


def saved(small: Record) -> dict[str, tuple[float, float]]:
    """What the outputs of cells add to a notebook: `bench_notebook` has the files themselves."""
    with compiler_core.record("a model of 12 layers") as deep:
        compiler_core.compile(Model(12))(torch.randn(2, 16, WIDTH)).square().mean().backward()
    return {
        f"outputs of {OUTPUTS} cells of a small network in a notebook, MB": (OUTPUTS * output_size(small) / 1e6, 3.0),
        "output of a training step of 12 layers in a notebook, MB": (output_size(deep) / 1e6, 1.0),
    }


def output_size(record: Record) -> int:
    """Returns the characters of a record in an output: packed, as a page without scripts, and as text."""
    record.find_problems()
    return packed_size(pack(record)) + len(html(record)) + len(summary.text(record))


def large_graph(browser: Browser, path: Path) -> dict[str, tuple[float, float]]:
    page = opened(browser, path)
    page.locator(".graph .node-elements").wait_for(state="attached")
    page.wait_for_timeout(1000)
    busy = Busy(page)
    before = busy.ms()
    collapsed = page.evaluate(OPEN_GRAPH, [1, "joint"])
    collapsed_busy = busy.ms() - before
    graph = page.locator(".graph").last
    nodes = int(re.sub(r"\D", "", (graph.locator(".window").get_attribute("aria-label") or "").split(" nodes")[0]))
    assert nodes >= 20_000
    before = busy.ms()
    whole = expanded(page, graph)
    whole_busy = busy.ms() - before
    figures = {
        f"open a graph of {nodes:,} nodes, its modules collapsed, ms": (collapsed, GRAPH_MS),
        "  of which the page's own thread": (collapsed_busy, GRAPH_MS),
        "the same with all nodes shown, ms": (whole, 2 * GRAPH_MS),
        "  of which the page's own thread, then": (whole_busy, 2 * GRAPH_MS),
    }
    for scale, prepare in (("read", lambda: None), ("all of it", lambda: fit(graph))):
        prepare()
        for kind in ("pan", "zoom"):
            times = page.evaluate(MOVE, [kind, 60])
            figures[f"{kind} at the scale where {scale} is seen, median ms a frame"] = (
                statistics.median(times),
                FRAME_MS,
            )
    figures["heap with the graph, MB"] = (heap(page), 250.0)
    page.context.close()
    return figures


def expanded(page: Page, graph: Locator) -> float:
    """Returns the milliseconds from choosing to show all nodes to the frame that shows them."""
    took: float = graph.get_by_label("Collapse by").evaluate(
        """async (select) => {
            const elements = select.closest(".graph").querySelector(".node-elements");
            const last = elements.lastElementChild;
            const start = performance.now();
            select.value = "";
            select.dispatchEvent(new Event("change"));
            while (last.isConnected) await new Promise(requestAnimationFrame);
            await new Promise(requestAnimationFrame);
            return performance.now() - start;
        }"""
    )
    return took


def fit(graph: Locator) -> None:
    graph.get_by_role("button", name="Show the whole graph").click()
    graph.page.wait_for_timeout(500)


def many_compiles(browser: Browser, path: Path) -> dict[str, tuple[float, float]]:
    size = path.with_suffix(".json").stat().st_size / MIB
    took, own = [], []
    for _ in range(ROUNDS):
        page = browser.new_context(viewport={"width": 1600, "height": 900}).new_page()
        busy = Busy(page)
        visit(page, path)
        took.append(page.evaluate("performance.now()"))
        own.append(busy.ms())
        if len(took) < ROUNDS:
            page.context.close()
    page.locator(".cm-line", has_text="softmax(-1)").first.wait_for()
    page.wait_for_timeout(1000)
    times, presses = (page.evaluate(POINT, ["softmax(-1)", press]) for press in (False, True))
    figures = {
        f"open {COMPILES} compiles of {LAYERS} layers ({size:.0f} MiB of JSON), median ms": (
            statistics.median(took),
            OPEN_MS,
        ),
        "  of which the page's own thread, median": (statistics.median(own), OPEN_MS),
        "point at a line, all its links light up, median ms": (statistics.median(times), LINKS_MS),
        "press a line, all its links light up, median ms": (statistics.median(presses), LINKS_MS),
        "heap with the record, MB": (heap(page), 100.0),
    }
    page.context.close()
    return figures


def many_outputs(browser: Browser, record: Record) -> dict[str, tuple[float, float]]:
    """Opens a record in many explorers of one page, each drawn; `bench_notebook` has them in JupyterLab."""
    page = browser.new_context(viewport={"width": 1600, "height": 900}).new_page()
    page.goto(f"file://{KEPT.absolute()}")
    page.add_style_tag(path=asset("explorer.css"))
    page.evaluate(OPEN_MANY, [asset("explorer.js").read_text(), pack(record), OUTPUTS])
    for at in range(OUTPUTS):
        explorer = page.locator(".cutaway").nth(at)
        explorer.evaluate("(element) => element.scrollIntoView()")
        explorer.locator(".cm-line").first.wait_for()
    figures = {f"heap with {OUTPUTS} explorers of a training step, MB": (heap(page), OUTPUTS_MB)}
    page.context.close()
    return figures


class Busy:
    """Measures the processor seconds of a page's main thread, which exclude the load of other processes."""

    def __init__(self, page: Page) -> None:
        self.session = page.context.new_cdp_session(page)
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def ms(self) -> float:
        metrics = {m["name"]: m["value"] for m in self.session.send("Performance.getMetrics")["metrics"]}
        return float(metrics["TaskDuration"]) * 1e3


def opened(browser: Browser, path: Path) -> Page:
    page = browser.new_context(viewport={"width": 1600, "height": 900}).new_page()
    visit(page, path)
    return page


def visit(page: Page, path: Path) -> None:
    page.goto(path.absolute().as_uri())
    page.locator(".cutaway .cm-line").first.wait_for()


def heap(page: Page) -> float:
    used: float = page.evaluate("() => { gc(); return performance.memory.usedJSHeapSize; }")
    return used / 1e6


if __name__ == "__main__":
    test_explorer()
