"""Tests of the HTML report: self-contained, without network access, and safe with untrusted records."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compiler_core.errors import BuildError
from compiler_core.records import Graph, Node, Record, Span

pytest.importorskip("kernel_magics.display.report")
from kernel_magics.display import assets
from kernel_magics.display.packing import unpack
from kernel_magics.display.report import report_html, write_report

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = (
    '</script><script>document.title = "ran"</script><img src=x onerror="document.title = \'ran\'">\u2028\u202e\x00'
)
CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


@pytest.fixture
def record() -> Record:
    """A frame with one compile: two lines of source, a graph of three nodes, a kernel of two lines."""
    record = Record(title=f"a cell {HOSTILE}")
    record.source("cell.py", 3, ["def f(x):", "    return x.cos().cos()"])
    frame = record.frame("f" + HOSTILE, "cell.py", 3, "root")
    compile_ = record.compile(frame, backend="cpp")
    nodes = [Node("x", "placeholder", "x", [10], "float32", "cpu", 40)]
    nodes += [Node(k, "call_method", "cos" + HOSTILE, [10], "float32", "cpu", 40) for k in ("cos", "cos_1")]
    spans = [Span("x", 1, 1), Span("cos", 2, 2), Span("cos_1", 3, 3)]
    graph = compile_.artifact(
        "captured",
        "graph",
        "python",
        "def f(x):\n    cos\n    cos_1\n",
        spans,
        Graph(nodes, [["x", "cos"], ["cos", "cos_1"]]),
    )
    kernel = compile_.artifact("kernel", "k.cpp", "cpp", "float a;\nfloat b;\n", [Span("1", 1, 1), Span("2", 2, 2)])
    for node, line in (("cos", "1"), ("cos_1", "2")):
        compile_.link(graph.item(node), ["src:0#4"], "capture")
        compile_.link(kernel.item(line), [graph.item(node)], "codegen")
    compile_.fail("build", HOSTILE, HOSTILE)
    compile_.outcome = "compiled"
    record.notes.append(HOSTILE)
    record.find_problems()
    return record


class PageElements(HTMLParser):
    """The elements of a page with their attributes, and the text of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.in_script = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.in_script = tag == "script"
        if self.in_script:
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.in_script:
            self.scripts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self.in_script = False

    def find(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]


def test_the_record_comes_out_as_it_went_in(record: Record) -> None:
    page = PageElements(report_html(record))
    names = [attributes.get("id") for attributes in page.find("script")]
    assert names == ["record", "explorer", None]
    assert unpack(json.loads(page.scripts[0])) == record
    assert unpacked(page.scripts[1]) == assets.asset("explorer.js").read_text(encoding="utf-8")


def unpacked(script: str) -> str:
    return gzip.decompress(base64.b64decode(script)).decode()


def test_no_text_of_the_record_becomes_markup(record: Record) -> None:
    tags = [tag for tag, _ in PageElements(report_html(record)).elements]
    assert tags.count("script") == 3
    assert set(tags) == {"html", "head", "meta", "title", "style", "body", "main", "noscript", "script"}


def test_the_policy_lets_only_our_script_start(record: Record) -> None:
    page = PageElements(report_html(record))
    policy = next(m["content"] for m in page.find("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy
    digest = base64.b64encode(hashlib.sha256(page.scripts[2].encode()).digest()).decode()
    scripts = next(part for part in policy.split("; ") if part.startswith("script-src"))
    assert scripts.split() == ["script-src", f"'sha256-{digest}'", "blob:", "'wasm-unsafe-eval'"]
    assert not any(name in attributes for _, attributes in page.elements for name in ("src", "href"))


def test_an_unbuilt_explorer_is_reported_with_its_remedy(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assets, "STATIC", tmp_path)
    with pytest.raises(BuildError, match="run `make lab` in the clone"):
        write_report(record, tmp_path / "report.html")


@pytest.fixture(scope="module")
def browser_page() -> Iterator[Page]:
    """A Chromium page without network access; `problems` of its context's pages fail the test."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium here: the report is not opened")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        yield browser.new_context(offline=True, viewport={"width": 1000, "height": 700}).new_page()
        browser.close()


@pytest.mark.browser
def test_the_report_opens_from_a_file_and_its_views_are_linked(
    browser_page: Page, record: Record, tmp_path: Path
) -> None:
    from playwright.sync_api import expect

    problems: list[str] = []
    browser_page.on("pageerror", lambda error: problems.append(str(error)))
    browser_page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    browser_page.goto(write_report(record, tmp_path / "report.html").as_uri())
    shown = browser_page.get_by_label("What this pane shows").nth(1)
    expect(shown).to_have_value("overview")  # a failure is shown at once
    shown.select_option("captured")
    nodes = browser_page.locator(".graph .node")
    nodes.nth(2).wait_for()
    assert nodes.count() == 3

    nodes.nth(1).click()
    source = browser_page.locator(".pane").first
    expect(source.locator(".cm-line.pin-linked")).to_have_text(["    return x.cos().cos()"])
    expect(browser_page.locator(".node.pin-linked")).to_have_count(0)
    expect(browser_page.locator(".node.pinned")).to_have_count(1)

    shown.select_option("kernel")
    expect(browser_page.locator(".cm-line.pin-linked")).to_have_text(["    return x.cos().cos()", "float a;"])

    browser_page.keyboard.press("Escape")
    browser_page.locator(".cm-line", has_text="float b;").click()
    expect(browser_page.locator(".cm-line.pin-linked")).to_have_text(["    return x.cos().cos()"])
    expect(browser_page.locator(".cm-line.pinned")).to_have_text(["float b;"])
    assert browser_page.title() != "ran"
    assert problems == []
